//! Bad input: one clear line that names what is wrong, and a program that does not notice.

use super::programs::EVERYTHING;
use super::{Place, SYSTEM, Scenario, scenario};
use crate::mpi::c;
use crate::run::{Job, Ran, contents, same};
use crate::{Stop, Verdict, ensure, profile};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(super) fn list() -> Vec<Scenario> {
    let settings = [
        ("WEIR_PHASE_GAP", "banana"),
        ("WEIR_MAX_FILES", "-1"),
        ("WEIR_SIGNALS", "?"),
        ("WEIR_NONSENSE", "1"),
    ];
    let settings = settings.into_iter().map(|(name, value)| {
        let title = format!("input_{}", name.to_lowercase());
        scenario(title, move |place: &Place| {
            let ran = one_remark(&everything(place)?.variable(name, value), name)?;
            let profile = profile::only(&ran, 2)?;
            profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])
        })
    });
    let rest = [
        scenario("input_excluded_files", excluded),
        scenario("input_folder_not_utf8", odd_folder),
        scenario("input_unwritable_folder", unwritable),
        scenario("input_full_file_system", full),
        scenario("input_little_room", little_room),
        scenario("input_file_size_limit", small_files_only),
        scenario("input_file_size_limit_of_one", one_record_missing),
        scenario("input_damaged_records", damaged),
        scenario("input_newer_schema", newer_schema),
        scenario("input_not_a_profile", not_a_profile),
    ];
    settings.chain(rest).map(|scenario| scenario.only(SYSTEM)).collect()
}

fn everything(place: &Place) -> Verdict<Job> {
    Ok(Job::mpi(&place.name, &place.mpi, 2, [place.mpi.build(&EVERYTHING)?]))
}

/// Runs it with and without Weir: the same, but for one line that has `word` in it.
fn one_remark(job: &Job, word: &str) -> Verdict<Ran> {
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    same(&bare, &with)?;
    let remarks = with.remarks();
    ensure(remarks.len() == 1 && remarks[0].contains(word), || {
        format!("expected one line with {word}, got {remarks:?}\n{}", with.stderr)
    })?;
    Ok(with)
}

/// Of files that are left out nothing is counted, neither below MPI nor at it.
fn excluded(place: &Place) -> Verdict {
    let job = everything(place)?.variable("WEIR_EXCLUDE", "*");
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    same(&bare, &with)?;
    let moved = |profile: &Value| profile["modules"]["MPIIO"]["counters"]["MPIIO_BYTES_WRITTEN"].as_u64();
    let profiles = profile::all(&with.profiles)?;
    ensure(profiles.iter().all(|profile| moved(profile).unwrap_or(0) == 0), || {
        format!("counted: {}", profiles[0]["modules"]["MPIIO"])
    })
}

/// Names of files are bytes.
fn odd_folder(place: &Place) -> Verdict {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("odd").join(place.mpi.name.as_str());
    let _ = fs::remove_dir_all(&parent);
    let folder = parent.join(OsStr::from_bytes(b"caf\xe9"));
    everything(place)?.variable("WEIR_DIR", &folder).with_library().run("weir")?;
    let left = contents(&folder)?;
    ensure(left.len() == 1, || format!("a profile and nothing else was expected: {:?}", left.keys()))
}

/// A folder beneath a file: not even root can make it.
fn unwritable(place: &Place) -> Verdict {
    one_remark(&everything(place)?.variable("WEIR_DIR", "/etc/passwd/weir"), "WEIR_DIR").map(|_| ())
}

/// A tiny file system, mounted for this trial and gone with it.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(place: &Place, size: &str) -> Verdict<Tiny> {
        let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny").join(place.mpi.name.as_str()).join(size);
        fs::create_dir_all(&at)?;
        let options = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tiny"]).arg(&at).output()?;
        if !mounted.status.success() {
            return Err(Stop::Skip("may not mount a file system (needs root)".into()));
        }
        Ok(Tiny(at))
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        // Nothing to be done if it fails: the next mount goes on top.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn full(place: &Place) -> Verdict {
    let tiny = Tiny::mount(place, "4k")?;
    one_remark(&everything(place)?.variable("WEIR_DIR", &tiny.0), "WEIR_DIR")?;
    // A file of the node from when the ranks had done less may have found room.
    let left: Vec<_> = fs::read_dir(&tiny.0)?.flatten().map(|entry| entry.file_name()).collect();
    ensure(left.iter().all(|name| name.to_string_lossy().starts_with(".weir-")), || {
        format!("left behind: {left:?}")
    })
}

/// There is room for the profile, but not for the memory of a record: nothing is dropped.
fn little_room(place: &Place) -> Verdict {
    let tiny = Tiny::mount(place, "96k")?;
    let executable = place.mpi.build(&c("threads", "tests/programs/threads.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]).variable("WEIR_DIR", &tiny.0);
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    same(&bare, &with)?;
    let profiles = profile::all(&tiny.0)?;
    let [profile] = profiles.as_slice() else { return Err(format!("{} profiles", profiles.len()).into()) };
    profile::consistent(profile)?;
    profile::agrees(&profile::tally(&with.stdout)?, &[profile])
}

/// Where no file may be large the record would end the program with SIGXFSZ.
fn small_files_only(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("limit", "tests/programs/limit.c", &[]))?;
    one_remark(&Job::mpi(&place.name, &place.mpi, 2, [executable]), "WEIR_DIR").map(|_| ())
}

/// One rank may have no file as large as a record, and neither may the helper process if that rank has started it: the profile has the
/// other, and says if this one is missing.
fn one_record_missing(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("limit", "tests/programs/limit.c", &[]))?;
    let command: [OsString; 2] = [executable.into(), "1".into()];
    let job = Job::mpi(&place.name, &place.mpi, 2, command);
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    same(&bare, &with)?;
    let profiles = profile::all(&with.profiles)?;
    let [profile] = profiles.as_slice() else { return Err(format!("{} profiles", profiles.len()).into()) };
    let ended: Vec<_> =
        profile["ranks"].as_array().into_iter().flatten().map(|rank| &rank["ended"]).collect();
    let is_whole = ended == ["finalized", "finalized"];
    ensure(is_whole || ended == ["finalized", "damaged"], || format!("ranks are {}", profile["ranks"]))?;
    let notes = profile["notes"].to_string();
    ensure(is_whole || notes.contains("no room"), || format!("notes are {notes}"))?;
    let left = contents(&with.profiles)?;
    ensure(left.len() == 1, || format!("a profile and nothing else was expected: {:?}", left.keys()))
}

/// The file of a node with three ranks that were killed, as the helper process left it.
fn records(place: &Place) -> Verdict<(Ran, PathBuf)> {
    let executable = place.mpi.build(&c("ending", "tests/programs/ending.c", &[]))?;
    let command: [OsString; 3] = [executable.into(), "SIGKILL".into(), "all".into()];
    let ran = Job::mpi(&place.name, &place.mpi, 3, command).with_library().run("weir")?;
    let node_files = || -> Verdict<BTreeMap<PathBuf, Vec<u8>>> {
        let mut found = contents(&ran.profiles)?;
        found.retain(|path, _| path.extension().is_some_and(|extension| extension == "node"));
        Ok(found)
    };
    // It may not have heard of the last one yet.
    let mut found = node_files()?;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(500));
        let before = std::mem::replace(&mut found, node_files()?);
        if found == before && !found.is_empty() {
            break;
        }
    }
    let [name] = found.keys().collect::<Vec<_>>()[..] else {
        return Err(format!("three ranks were killed on one node, but files are {:?}", found.keys()).into());
    };
    let path = ran.profiles.join(name);
    Ok((ran, path))
}

/// The file of a node cut short: what is whole of it still counts, the rest is named.
fn damaged(place: &Place) -> Verdict {
    let (ran, path) = records(place)?;
    let file = fs::OpenOptions::new().write(true).open(&path)?;
    file.set_len(file.metadata()?.len() - 10)?;
    let (code, json, errors) = profile::report(&["--json"], &ran.profiles)?;
    ensure(code == 0, || format!("weir report: {code}\n{json}{errors}"))?;
    ensure(!errors.contains("panicked"), || errors.clone())?;
    let profile: Value = serde_json::from_str(&json).map_err(|error| format!("{error}:\n{json}"))?;
    profile::validate(&profile)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let notes = profile["notes"].to_string();
    ensure(notes.contains(&name) && notes.contains("truncated"), || {
        format!("{name} is not named:\n{notes}")
    })?;
    let damaged = profile["ranks"].as_array().into_iter().flatten().filter(|rank| rank["ended"] == "damaged");
    ensure(damaged.count() == 1, || format!("ranks are {}", profile["ranks"]))?;
    let writes = &profile["modules"]["MPIIO"]["counters"]["MPIIO_COLL_WRITES"];
    ensure(*writes == 2, || format!("two whole records, but MPIIO_COLL_WRITES is {writes}"))
}

fn newer_schema(place: &Place) -> Verdict {
    let ran = everything(place)?.with_library().run("weir")?;
    let mut profile = profile::only(&ran, 2)?;
    profile["weir"]["schema"] = 999.into();
    // It says so in one line, and shows what it understands.
    let file = ran.files.join("newer.json");
    fs::write(&file, profile.to_string())?;
    let (code, text, errors) = profile::report(&[], &file)?;
    let one_line = errors.trim_end().lines().count() == 1;
    ensure(code == 0 && one_line && errors.contains("newer.json") && errors.contains("999"), || {
        format!("{code}: {errors}")
    })?;
    ensure(text.contains("everything"), || format!("nothing understood:\n{text}"))
}

fn not_a_profile(place: &Place) -> Verdict {
    let ran = everything(place)?.run("bare")?;
    refused(&ran.files.join("other.json"), "{\"a\": [1, 2", "other.json")?;
    refused(&ran.files.join("empty.json"), "", "empty.json")?;
    let (code, _, errors) = profile::report(&[], &ran.files.join("absent.json"))?;
    ensure(code != 0 && errors.contains("absent.json"), || format!("{code}: {errors}"))
}

/// `weir report` on a file with this text fails with one line that names the file and has `word`.
fn refused(file: &Path, text: &str, word: &str) -> Verdict {
    fs::write(file, text)?;
    let (code, _, errors) = profile::report(&[], file)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let one_line = errors.trim_end().lines().count() == 1;
    ensure(code != 0 && one_line && errors.contains(&*name) && errors.contains(word), || {
        format!("{code}: {errors}")
    })
}
