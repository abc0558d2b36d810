//! Collective reads of two jobs from a storage target with a small bandwidth (`tests/testbed`): their aggregators
//! take turns, and whatever dies meanwhile, the others read on. The program compares every byte.

use crate::live::{Directory, Live, SOON, Service, signal, status, until};
use crate::mpi::{Program, c, root};
use crate::run::{Job, Ran, library};
use crate::turns::gate;
use crate::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, profile, scenario};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_coord::address::Address;

const PROGRAM: Program = c("reader", "benches/sharing/reader.c", &[]);
const RANKS: usize = 2;
const CALLS: usize = 16;
const MB_PER_S: usize = 20;
const FILE_BYTES: usize = 4 << 20;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("readers::take_turns", take_turns).only(SYSTEM),
        scenario("readers::unordered", unordered).only(SYSTEM),
        scenario("readers::sigkill", killed_in_its_turn).only(SYSTEM),
        scenario("readers::sigstop", stopped_in_its_turn).only(SYSTEM),
        scenario("readers::coordinator", without_coordinator).only(SYSTEM),
    ]
}

/// Storage of its own, gone at the end of the trial.
struct Storage {
    name: String,
    mounts: Vec<PathBuf>,
}

impl Storage {
    fn up() -> Verdict<Storage> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-readers-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let mut storage = Storage { name, mounts: Vec::new() };
        let up = storage.script(&["up", "quick", "-t", "1", "-r", &MB_PER_S.to_string(), "-s", "64"])?;
        let said = String::from_utf8_lossy(&up.stderr).into_owned();
        match up.status.code() {
            Some(0) => {}
            Some(77) => return Err(Stop::Skip(said)),
            _ => return Err(said.into()),
        }
        storage.mounts = String::from_utf8_lossy(&up.stdout).lines().map(PathBuf::from).collect();
        Ok(storage)
    }

    fn script(&self, words: &[&str]) -> Verdict<Output> {
        let script = root().join("tests/testbed/testbed.sh");
        Ok(Command::new(script).args(words).env("WEIR_TESTBED", &self.name).output()?)
    }

    /// A file on each target, as the program wants it.
    fn files(&self, name: &str) -> Verdict<Vec<PathBuf>> {
        let data: Vec<u8> = (0..FILE_BYTES).map(|offset| (1 + offset % 251) as u8).collect();
        let paths: Vec<PathBuf> = self.mounts.iter().map(|mount| mount.join(name)).collect();
        paths.iter().try_for_each(|path| std::fs::write(path, &data))?;
        Ok(paths)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let _ = self.script(&["down"]);
    }
}

/// Two jobs that read from one target, in turns, under a service.
struct Scene {
    live: Vec<Live>,
    service: Service,
    address: Address,
    _directory: Directory,
    _storage: Storage,
}

const NAMES: [&str; 2] = ["one", "other"];

fn scene(place: &Place, order: &str) -> Verdict<Scene> {
    let (storage, directory) = (Storage::up()?, Directory::new()?);
    let path = directory.path().join("sock");
    let text = format!("unix:{}", path.display());
    let service = Service::start(&["--listen", &text, "--policy", "fair", "--order", order])?;
    let executable = place.mpi.build(&PROGRAM)?;
    let mut live = Vec::new();
    for name in NAMES {
        let words = [executable.clone().into_os_string(), "0".into(), CALLS.to_string().into(), "0".into()];
        let files = storage.files(name)?.into_iter().map(PathBuf::into_os_string);
        let job = Job::mpi(&place.name, &place.mpi, RANKS, words.into_iter().chain(files));
        let job = job
            .preload([library()])
            .variable("WEIR_COORDINATOR", &text)
            .variable("WEIR_JOB_ID", format!("{name}-{}", storage.name))
            .variable("TMPDIR", directory.path());
        live.push(Live::start(&job, name)?);
    }
    Ok(Scene { live, service, address: Address::Unix(path), _directory: directory, _storage: storage })
}

impl Scene {
    /// When a reader waits at a target at which another job reads: the names of the two.
    fn one_waits(&self) -> Verdict<(String, String)> {
        until("one job reads, the other waits for its turn", SOON / 4, || {
            let status = status(&self.address, None)?;
            let targets = status["targets"].as_array()?;
            targets.iter().find_map(|target| Some((first(target, "reading")?, first(target, "waiting")?)))
        })
    }

    fn live(&mut self, name: &str) -> Live {
        let at = NAMES.iter().position(|other| *other == name).unwrap_or(0);
        self.live.remove(at.min(self.live.len() - 1))
    }
}

/// A scene in which one job reads and the other waits. On a machine that is busy just then a job may come too late to meet the
/// other: then once more.
fn waiting_scene(place: &Place) -> Verdict<(Scene, String, String)> {
    let attempt = || -> Verdict<(Scene, String, String)> {
        let scene = scene(place, "hio")?;
        let (reads, waits) = scene.one_waits()?;
        Ok((scene, reads, waits))
    };
    attempt().or_else(|_| attempt())
}

fn first(target: &Value, what: &str) -> Option<String> {
    let (name, _) = target[what].as_array()?.first()?.as_str()?.split_once('-')?;
    Some(name.into())
}

/// Every byte that it read was right, or the program would not have ended well.
fn ended_well(ran: &Ran) -> Verdict<Value> {
    let said = || format!("{}{}", ran.stdout, ran.stderr);
    ensure(ran.code == 0, || format!("code {}: {}", ran.code, said()))?;
    let reads = ran.stdout.lines().filter(|line| line.starts_with("read ")).count();
    ensure(reads == CALLS, || format!("{reads} reads: {}", said()))?;
    profile::only(ran, RANKS)
}

/// A target has the readers of one job at a time, as seen again and again; the profiles tell of turns.
fn take_turns(place: &Place) -> Verdict {
    let mut scene = scene(place, "hio")?;
    let mut seen = 0;
    while !scene.live.iter_mut().all(Live::has_ended) {
        std::thread::sleep(Duration::from_millis(5));
        let Some(status) = status(&scene.address, None) else { continue };
        for target in status["targets"].as_array().into_iter().flatten() {
            let jobs: Vec<&Value> = target["reading"].as_array().into_iter().flatten().collect();
            ensure(jobs.windows(2).all(|pair| pair[0] == pair[1]), || format!("two at a time: {status:#}"))?;
            seen += jobs.len();
        }
    }
    for live in scene.live.drain(..) {
        let profile = ended_well(&live.end()?)?;
        let at_gate = &profile["coordination"];
        let good =
            gate(&profile, "turns") > 0 && at_gate["turn_wait_s"] != 0.0 && gate(&profile, "limits") == 0;
        ensure(good, || format!("the profile says {at_gate}"))?;
        println!("{}: {} turns", place.name, at_gate["turns"]);
    }
    ensure(seen > 0, || "nobody was seen to read".into())
}

/// With the order `nio` nobody asks.
fn unordered(place: &Place) -> Verdict {
    let mut scene = scene(place, "nio")?;
    for live in scene.live.drain(..) {
        let profile = ended_well(&live.end()?)?;
        ensure(gate(&profile, "turns") == 0, || format!("the profile says {}", profile["coordination"]))?;
    }
    Ok(())
}

fn killed_in_its_turn(place: &Place) -> Verdict {
    let (mut scene, reads, waits) = waiting_scene(place)?;
    let victim = scene.live(&reads);
    let killed = Instant::now();
    victim.pids(RANKS)?.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
    let other = scene.live(&waits);
    let went_on = other.says("read", killed)?.duration_since(killed);
    println!("{}: the other job has read after {:.0} ms", place.name, went_on.as_secs_f64() * 1e3);
    ended_well(&other.end()?)?;
    ensure(victim.end()?.code != 0, || "was to be killed".into())
}

/// Who is stopped in its turn is not waited for; who goes on reads to its end.
fn stopped_in_its_turn(place: &Place) -> Verdict {
    let (mut scene, reads, waits) = waiting_scene(place)?;
    let victim = scene.live(&reads);
    let pids = victim.pids(RANKS)?;
    let stopped = Instant::now();
    pids.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
    let other = scene.live(&waits);
    let went_on = other.says("read", stopped);
    pids.iter().for_each(|pid| signal(*pid, libc::SIGCONT));
    let went_on = went_on?.duration_since(stopped);
    println!("{}: the other job has read after {:.0} ms", place.name, went_on.as_secs_f64() * 1e3);
    ended_well(&other.end()?)?;
    ended_well(&victim.end()?).map(|_| ())
}

/// The coordinator is killed while somebody waits for its turn: all go on at once.
fn without_coordinator(place: &Place) -> Verdict {
    let (mut scene, _, _) = waiting_scene(place)?;
    scene.service.signal(libc::SIGKILL);
    for live in scene.live.drain(..) {
        let profile = ended_well(&live.end()?)?;
        let at_gate = &profile["coordination"];
        let good =
            gate(&profile, "turns") > 0 && gate(&profile, "losses") > 0 && gate(&profile, "limits") == 0;
        ensure(good, || format!("the profile says {at_gate}"))?;
    }
    Ok(())
}
