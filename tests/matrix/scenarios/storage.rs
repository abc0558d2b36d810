//! Whatever happens to the file system of `WEIR_DIR`, while the program runs and while it ends, the program does not notice: same
//! exit code, same output, same bytes, no call that takes longer. And whatever happens to the ranks, what they did is not lost.

use super::{Place, SYSTEM, Scenario, scenario};
use crate::mpi::c;
use crate::run::{Job, code_of, contents, library};
use crate::volume::Volume;
use crate::{Stop, Verdict, ensure, profile};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RANKS: usize = 2;
const BYTES: u64 = 4096;
/// Places of a rank's blocks in the shared file (`tests/programs/steady.c`).
const PLACES: u64 = 64;
/// A call of the program's is at most this long, on a machine that others use: far less than the disturbances here take.
const LONGEST_MS: u64 = 900;
/// How long rank 0 may wait for a profile, and some time to end.
const END_LIMIT: Duration = Duration::from_millis(2_500);

pub(super) fn list() -> Vec<Scenario> {
    const ONE: &[&str] = &["openmpi"];
    const OTHER: &[&str] = &["mpich"];
    let both = vec![
        scenario("storage_full", full),
        scenario("storage_shut_down", shut_down),
        scenario("storage_read_only", read_only),
        scenario("storage_emptied", |place: &Place| emptied(place, None)),
        scenario("storage_frozen_while_it_runs", frozen_while_it_runs),
        scenario("storage_frozen_when_it_ends", frozen_when_it_ends),
        scenario("storage_small_shared_memory", small_shared_memory),
        scenario("storage_memory_limit", memory_limit),
        scenario("storage_without_helper", without_helper),
    ];
    let mut list: Vec<Scenario> = both.into_iter().map(|scenario| scenario.only(SYSTEM)).collect();
    let in_memory = |place: &Place| emptied(place, Some("/dev/shm"));
    list.push(scenario("storage_emptied_in_memory", in_memory).only(OTHER));
    let is_long = std::env::var_os("WEIR_LONG_TESTS").is_some();
    for (seconds, only) in [(1, ONE), (3, OTHER), (30, SYSTEM)] {
        if seconds < 30 || is_long {
            let name = format!("storage_killed_after_{seconds}_s");
            let only = if is_long { SYSTEM } else { only };
            list.push(scenario(name, move |place: &Place| killed(place, seconds)).only(only));
        }
    }
    list
}

/// A program that runs for some seconds, with Weir and its `WEIR_DIR` somewhere.
struct Running {
    child: Child,
    files: PathBuf,
    profiles: PathBuf,
    job: String,
    start: Instant,
}

/// What it was like when it had ended.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
    files: PathBuf,
    profiles: PathBuf,
    lasted: Duration,
}

fn steady(place: &Place, seconds: f64) -> Verdict<Job> {
    let executable = place.mpi.build(&c("steady", "tests/programs/steady.c", &["-pthread"]))?;
    let words: [OsString; 4] =
        [executable.into(), seconds.to_string().into(), BYTES.to_string().into(), "spin".into()];
    Ok(Job::mpi(&place.name, &place.mpi, RANKS, words))
}

impl Running {
    fn start(job: &Job, place: &Place, directory: Option<&Path>) -> Verdict<Running> {
        let name = format!("trial-{}-{}", std::process::id(), place.name.replace("::", "-"));
        let mut job = job.clone().preload([library()]).variable("WEIR_JOB_ID", &name);
        if let Some(directory) = directory {
            job = job.variable("WEIR_DIR", directory);
        }
        let (mut command, files, profiles) = job.prepare("weir")?;
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let profiles = directory.map_or(profiles, Path::to_path_buf);
        Ok(Running { child, files, profiles, job: name, start: Instant::now() })
    }

    /// Until its ranks have been in I/O for so long.
    fn after(&self, seconds: f64) -> Verdict {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.files.join("steady.dat").exists() {
            ensure(Instant::now() < deadline, || "no I/O after 20 s".into())?;
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        self.profiles.join(format!(".weir-{}", self.job))
    }

    fn end(self) -> Verdict<Ended> {
        let output = self.child.wait_with_output()?;
        Ok(Ended {
            code: code_of(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            files: self.files,
            profiles: self.profiles,
            lasted: self.start.elapsed(),
        })
    }
}

impl Ended {
    /// The program ended well, and no call took as long as the disturbance.
    fn is_unharmed(&self) -> Verdict {
        ensure(self.code == 0, || format!("code {}\n{}{}", self.code, self.stdout, self.stderr))?;
        let longest = self.stdout.lines().find_map(|line| line.strip_prefix("LONGEST ")?.parse::<u64>().ok());
        ensure(longest.is_some_and(|ms| ms < LONGEST_MS), || format!("longest call: {longest:?} ms"))?;
        let tally = profile::tally(&self.stdout)?;
        let files = contents(&self.files)?;
        let written = files.get(Path::new("steady.dat")).map_or(0, |bytes| bytes.len() as u64);
        let all = RANKS as u64 * PLACES * BYTES;
        ensure(tally["MPIIO_INDEP_WRITES"] > 0 && written == all, || format!("{written} bytes of {all}"))
    }

    /// One line of Weir's, with this in it.
    fn says(&self, word: &str) -> Verdict {
        let said: Vec<_> = self.stderr.lines().filter(|line| line.starts_with("weir:")).collect();
        ensure(said.len() == 1 && said[0].contains(word), || {
            format!("expected one line with {word}, got {said:?}\n{}", self.stderr)
        })
    }

    /// The profile is whole, whoever has merged it.
    fn has_profile(&self) -> Verdict<Value> {
        let profile = reported(&self.profiles)?;
        profile::agrees(&profile::tally(&self.stdout)?, &[&profile])?;
        Ok(profile)
    }
}

fn reported(profiles: &Path) -> Verdict<Value> {
    let (code, json, errors) = profile::report(&["--json"], profiles)?;
    ensure(code == 0, || format!("weir report: {code}\n{json}{errors}"))?;
    let profile = serde_json::from_str(&json).map_err(|error| format!("{error}:\n{json}"))?;
    profile::validate(&profile)?;
    Ok(profile)
}

/// Processes whose command line has this word.
fn processes_with(word: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())
    })
    .collect()
}

/// The helper process ends with the last rank.
fn helper_goes(job: &str) -> Verdict {
    for _ in 0..200 {
        if processes_with(job).is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("a helper process of {job} is still there: {:?}", processes_with(job)).into())
}

fn full(place: &Place) -> Verdict {
    let mut volume = Volume::mount(&place.name, "btrfs", 120)?;
    let running = Running::start(&steady(place, 2.5)?, place, Some(&volume.at))?;
    running.after(0.8)?;
    volume.fill()?;
    let job = running.job.clone();
    let ended = running.end()?;
    ended.is_unharmed()?;
    // There may still be room for a small file: then there is a profile, and it is whole.
    if profile::all(&ended.profiles)?.is_empty() {
        ended.says(&volume.at.display().to_string())?;
    }
    helper_goes(&job)
}

fn shut_down(place: &Place) -> Verdict {
    let mut volume = Volume::mount(&place.name, "xfs", 320)?;
    let running = Running::start(&steady(place, 2.0)?, place, Some(&volume.at))?;
    running.after(0.8)?;
    volume.shut_down()?;
    let job = running.job.clone();
    let ended = running.end()?;
    ended.is_unharmed()?;
    ended.says("WEIR_DIR")?;
    helper_goes(&job)
}

fn read_only(place: &Place) -> Verdict {
    let mut volume = Volume::mount(&place.name, "ext4", 32)?;
    let running = Running::start(&steady(place, 1.8)?, place, Some(&volume.at))?;
    running.after(0.8)?;
    volume.make_read_only()?;
    let ended = running.end()?;
    ended.is_unharmed()?;
    ended.says("Read-only file system")
}

/// Somebody empties what is there, and then takes it away: it is written again.
fn emptied(place: &Place, parent: Option<&str>) -> Verdict {
    let own = parent.map(|parent| Path::new(parent).join(format!("weir-trial-{}", std::process::id())));
    let running = Running::start(&steady(place, 2.0)?, place, own.as_deref())?;
    running.after(0.8)?;
    let files: Vec<PathBuf> = fs::read_dir(running.folder())?.flatten().map(|entry| entry.path()).collect();
    ensure(!files.is_empty(), || "no file of the node after a second".into())?;
    for file in &files {
        fs::File::create(file)?;
    }
    std::thread::sleep(Duration::from_millis(300));
    fs::remove_dir_all(running.folder())?;
    let ended = running.end()?;
    ended.is_unharmed()?;
    let whole = ended.has_profile();
    if let Some(own) = own {
        fs::remove_dir_all(own)?;
    }
    whole.map(drop)
}

fn frozen_while_it_runs(place: &Place) -> Verdict {
    let mut volume = Volume::mount(&place.name, "ext4", 32)?;
    let running = Running::start(&steady(place, 2.5)?, place, Some(&volume.at))?;
    running.after(0.01)?;
    volume.freeze()?;
    std::thread::sleep(Duration::from_millis(1_500));
    volume.thaw()?;
    let ended = running.end()?;
    ended.is_unharmed()?;
    ended.has_profile().map(drop)
}

/// Nobody but the helper waits for it; the profile comes when it can be written.
fn frozen_when_it_ends(place: &Place) -> Verdict {
    let job = steady(place, 1.5)?;
    let bare = {
        let start = Instant::now();
        let ran = job.run("bare")?;
        ensure(ran.code == 0, || format!("fails without Weir:\n{}", ran.stderr))?;
        start.elapsed()
    };
    let mut volume = Volume::mount(&place.name, "ext4", 32)?;
    let running = Running::start(&job, place, Some(&volume.at))?;
    running.after(0.8)?;
    volume.freeze()?;
    let name = running.job.clone();
    let ended = running.end()?;
    ended.is_unharmed()?;
    ensure(ended.lasted < bare + END_LIMIT, || format!("{:?}, bare {bare:?}", ended.lasted))?;
    ended.says("WEIR_DIR")?;
    volume.thaw()?;
    ended.has_profile()?;
    helper_goes(&name)
}

/// As in a container. The records are not there.
fn small_shared_memory(place: &Place) -> Verdict {
    let job = steady(place, 1.0)?;
    let text = "mount -t tmpfs -o size=64m none /dev/shm || exit 77; head -c 20M /dev/zero >/dev/shm/filler; exec \"$@\"";
    let job = job.within(&["unshare", "--mount", "sh", "-c", text, "sh"]);
    let ended = Running::start(&job, place, None)?.end()?;
    if ended.code == 77 || ended.stderr.contains("unshare failed") {
        return Err(Stop::Skip("may not mount another /dev/shm (needs root)".into()));
    }
    ended.is_unharmed()?;
    ended.has_profile().map(drop)
}

/// The cache of what the program writes fills the memory that its group may have, several times over.
fn memory_limit(place: &Place) -> Verdict {
    let group = PathBuf::from(format!("/sys/fs/cgroup/memory/weir-trial-{}", std::process::id()));
    if fs::create_dir_all(&group).is_err() || fs::write(group.join("memory.limit_in_bytes"), "192M").is_err()
    {
        return Err(Stop::Skip("no memory cgroup of its own (needs root and cgroup v1)".into()));
    }
    let executable = place.mpi.build(&c("steady", "tests/programs/steady.c", &["-pthread"]))?;
    let words: [OsString; 4] = [executable.into(), "1.2".into(), (4 << 20).to_string().into(), "spin".into()];
    let job = Job::mpi(&place.name, &place.mpi, RANKS, words);
    let text = format!("echo $$ >{}/cgroup.procs; exec \"$@\"", group.display());
    let ended = Running::start(&job.within(&["sh", "-c", &text, "sh"]), place, None)?.end()?;
    ensure(ended.code == 0, || format!("code {}\n{}", ended.code, ended.stderr))?;
    ended.has_profile()?;
    // Whoever was in it is gone with the helper.
    for _ in 0..100 {
        if fs::remove_dir(&group).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err("processes are left in the group".into())
}

/// Records are written at the end, by the ranks themselves, and the profile says so.
fn without_helper(place: &Place) -> Verdict {
    let job = steady(place, 0.5)?.variable("WEIR_HELPER", "/nowhere/weir");
    let ended = Running::start(&job, place, None)?.end()?;
    ended.is_unharmed()?;
    let profile = ended.has_profile()?;
    let notes = profile["notes"].to_string();
    ensure(notes.contains("at the end of their ranks only") && notes.contains("no helper process"), || {
        notes.clone()
    })?;
    let (_, text, _) = profile::report(&[], &ended.profiles)?;
    ensure(text.contains("at the end of their ranks only"), || format!("weir report:\n{text}"))?;
    ensure(ended.stderr.lines().all(|line| !line.starts_with("weir:")), || ended.stderr.clone())
}

/// Every rank at once: the profile has every write that was done, but for one of each rank's that was being made.
fn killed(place: &Place, seconds: u64) -> Verdict {
    let running = Running::start(&steady(place, 60.0)?, place, None)?;
    running.after(seconds as f64)?;
    let executable = place.mpi.build(&c("steady", "tests/programs/steady.c", &["-pthread"]))?;
    let is_rank = |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == executable);
    let ranks: Vec<i32> =
        processes_with(&executable.display().to_string()).into_iter().filter(is_rank).collect();
    let mut command = Command::new("kill");
    ensure(command.arg("-KILL").args(ranks.iter().map(i32::to_string)).status()?.success(), || {
        "kill".into()
    })?;
    let job = running.job.clone();
    let ended = running.end()?;
    ensure(ended.code != 0, || "the launcher did not notice".into())?;
    helper_goes(&job)?;
    let profile = reported(&ended.profiles)?;
    let told = profile["modules"]["MPIIO"]["counters"]["MPIIO_INDEP_WRITES"].as_u64().unwrap_or(0);
    let did = writes_in(&ended.files.join("steady.dat"))?;
    ensure(told.abs_diff(did) <= RANKS as u64 && did > 100 * seconds, || {
        format!("{did} writes in the file, {told} in the profile")
    })?;
    let dead = profile["ranks"].as_array().into_iter().flatten().all(|rank| rank["ended"] == "killed");
    ensure(dead, || format!("ranks are {}", profile["ranks"]))
}

/// The highest number of each rank's blocks, added up.
fn writes_in(path: &Path) -> Verdict<u64> {
    let file = fs::File::open(path)?;
    let mut sum = 0;
    for rank in 0..RANKS as u64 {
        let mut highest = 0;
        for place in 0..PLACES {
            let mut number = [0; 8];
            if file.read_exact_at(&mut number, (rank * PLACES + place) * BYTES).is_ok() {
                highest = highest.max(u64::from_le_bytes(number));
            }
        }
        sum += highest;
    }
    Ok(sum)
}
