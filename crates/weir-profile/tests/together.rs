//! Folders that others use as well: several launches, several who merge, and what strangers have put there.

mod records;

use records::{Builder, START_NS, Scratch};
use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weir_profile::counters::{Module, posix};
use weir_profile::finish_job;
use weir_profile::job::{Launch, Merged, find, launch_suffix, merge_folder, write_profile};
use weir_profile::layout::{Ended, Header};
use weir_profile::profile::Profile;

const LIMIT: Duration = Duration::from_millis(200);

/// A rank that wrote so many bytes, in a process and a launch of its own.
fn rank(rank: u64, pid: u64, bytes: u64) -> Builder {
    let mut record = Builder::new(rank, 2);
    let file = record.file("/scratch/out");
    record.counters(file, Module::Posix, 0, &[(posix::POSIX_WRITES, 1), (posix::POSIX_BYTES_WRITTEN, bytes)]);
    record.burst(0, 1.0, 2.0, bytes, 0.0, 0);
    record.set(offset_of!(Header, pid), (1 << 30) + pid);
    record
}

/// Under the name that the library gives the record of a launch.
fn write_of(launch: u64, record: &mut Builder, folder: &Path) -> PathBuf {
    let plain = record.write(folder);
    let stem = plain.file_stem().unwrap().to_str().unwrap();
    let named = folder.join(format!("{stem}{}.rec", launch_suffix(launch)));
    fs::rename(plain, &named).unwrap();
    named
}

fn written(profile: &Profile) -> u64 {
    profile.modules["POSIX"].counters["POSIX_BYTES_WRITTEN"].as_u64()
}

fn load(path: &Path) -> Profile {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn start_later(record: &mut Builder, seconds: u64) {
    record.set(offset_of!(Header, clock_first.realtime_ns), START_NS + seconds * 1_000_000_000);
}

#[test]
fn launches_with_one_name_have_a_profile_each() {
    let scratch = Scratch::new("launches");
    let folder = scratch.job();
    for number in 0..2 {
        write_of(7, rank(number, number, 1000).ended(Ended::Running, 0, 3.0), &folder);
        write_of(8, &mut rank(number, 10 + number, 1), &folder);
    }
    fs::write(folder.join(format!("1-node-2-1{}.lost", launch_suffix(7))), "").unwrap();
    let second = Launch { id: Some(8), start_ns: START_NS };
    let path = finish_job(&folder, &scratch.0, second, LIMIT).unwrap().unwrap();
    let profile = load(&path);
    assert_eq!((written(&profile), profile.job.ended.as_str()), (2, "finalized"));
    assert!(profile.notes.is_empty(), "{:?}", profile.notes);

    let left = merge_folder(&folder, true).unwrap().0;
    let [first] = left.as_slice() else { panic!("{} launches", left.len()) };
    assert_eq!((written(&first.profile), first.profile.job.ended.as_str()), (2000, "killed: 2 of 2 ranks"));
    assert!(first.profile.notes[0].contains("no room"));
}

#[test]
fn a_launch_with_the_name_of_an_earlier_one_is_told_by_its_start() {
    let scratch = Scratch::new("again");
    let folder = scratch.job();
    for number in 0..2 {
        write_of(7, rank(number, number, 1000).ended(Ended::Running, 0, 3.0), &folder);
        // A node's clock is not quite another's.
        let mut later = rank(number, 10 + number, 1);
        start_later(&mut later, 20 + number);
        write_of(7, &mut later, &folder);
        // It has initialised MPI again, later still.
        let mut again = rank(number, 10 + number, 2);
        start_later(again.set(offset_of!(Header, generation), 1), 100);
        write_of(7, &mut again, &folder);
    }
    let second = Launch { id: Some(7), start_ns: START_NS + 20_000_000_000 };
    let path = finish_job(&folder, &scratch.0, second, LIMIT).unwrap().unwrap();
    assert_eq!(written(&load(&path)), 6);
    assert_eq!(merge_folder(&folder, true).unwrap().0.iter().map(|m| written(&m.profile)).sum::<u64>(), 2000);
}

#[test]
fn a_launch_without_records_leaves_those_of_others() {
    let scratch = Scratch::new("others");
    let record = write_of(7, &mut rank(0, 0, 5), &scratch.job());
    let other = Launch { id: Some(8), start_ns: START_NS };
    assert_eq!(finish_job(&scratch.job(), &scratch.0, other, LIMIT), Ok(None));
    assert!(record.exists());
}

fn only(folder: &Path) -> Merged {
    merge_folder(folder, false).unwrap().0.remove(0)
}

#[test]
fn one_at_a_time_merges_for_good() {
    let scratch = Scratch::new("claim");
    let folder = scratch.job();
    let records = [rank(0, 0, 5).write(&folder), rank(1, 1, 6).write(&folder)];
    let unnamed = Launch { id: None, start_ns: START_NS };
    let looking = only(&folder);
    let error = finish_job(&folder, &scratch.0, unnamed, LIMIT).unwrap_err();
    assert!(error.to_string().contains("another process is merging"), "{error}");
    assert!(records.iter().all(|record| record.exists()));
    drop(looking);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing but the records is left");

    // The other writes while this one waits.
    let merged = only(&folder);
    let (at, out) = (folder.clone(), scratch.0.clone());
    let waiting = std::thread::spawn(move || finish_job(&at, &out, unnamed, Duration::from_secs(60)));
    std::thread::sleep(Duration::from_millis(50));
    merged.write(&scratch.0).unwrap().unwrap();
    assert_eq!(waiting.join().unwrap(), Ok(None), "that was merged already");
    assert_eq!(find(&scratch.0).unwrap().profiles.len(), 1);
    assert!(!folder.exists());
    assert_eq!(finish_job(&folder, &scratch.0, unnamed, LIMIT), Ok(None));
    assert!(merge_folder(&folder, false).unwrap().0.is_empty());
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn pipes_and_links_among_the_records_are_not_waited_for() {
    let scratch = Scratch::new("pipes");
    let folder = scratch.job();
    rank(0, 0, 5).write(&folder);
    pipe(&folder.join("1-node-1-0.rec"));
    let elsewhere = rank(1, 1, 100).write(&scratch.0);
    symlink(elsewhere, folder.join("1-node-2-0.rec")).unwrap();
    let unnamed = Launch { id: None, start_ns: START_NS };
    pipe(&scratch.0.join("weir-stencil-4711.json"));
    let path = finish_job(&folder, &scratch.0, unnamed, LIMIT).unwrap().unwrap();
    let profile = load(&path);
    assert_eq!(written(&profile), 5);
    assert!(profile.notes.iter().any(|note| note.contains("not a regular file")), "{:?}", profile.notes);
    assert!(path.ends_with("weir-stencil-4711-2.json"));
}

#[test]
fn a_link_in_the_place_of_the_temporary_file_is_not_followed() {
    let scratch = Scratch::new("links");
    rank(0, 0, 5).write(&scratch.job());
    let victim = scratch.0.join("victim");
    fs::write(&victim, "the user's own").unwrap();
    let temporary = format!(".weir-stencil-4711.json.{}", std::process::id());
    symlink(&victim, scratch.0.join(&temporary)).unwrap();
    symlink(&victim, scratch.0.join(format!("{temporary}.1"))).unwrap();
    let profile = only(&scratch.job()).profile;
    let path = write_profile(&profile, &scratch.0).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"the user's own");
    assert!(path.symlink_metadata().unwrap().is_file());
    assert_eq!(written(&load(&path)), 5);
    assert!(find(&scratch.0).unwrap().folders.iter().all(|folder| *folder == scratch.job()));
    assert!(!scratch.0.join(format!("{temporary}.2")).exists(), "it is gone");
}
