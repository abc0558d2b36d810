//! The file of a node: the same records as in files of their own, in less room, and never trusted.

mod records;

use proptest::prelude::*;
use records::{Builder, START_NS, Scratch};
use std::fs::{self, File};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_profile::counters::{Module, mpiio, posix};
use weir_profile::finish_job;
use weir_profile::folder::{node_path, put_file};
use weir_profile::job::{Launch, merge_folder};
use weir_profile::layout::{Ended, Header};
use weir_profile::node::{Leaf, Process, encode};
use weir_profile::profile::{Fate, Profile};

const LAUNCH: u64 = 7;
/// Beyond any real process.
const NOBODY: Process = Process { pid: (1 << 30) + 999, start: 1 };

/// A rank that has done a little of everything.
fn rank(rank: u64, nprocs: u64) -> Builder {
    let mut record = Builder::new(rank, nprocs);
    record.set(offset_of!(Header, pid), (1 << 30) + rank);
    let file = record.file("/scratch/project/run/checkpoint.dat");
    record.counters(file, Module::Mpiio, 0, &[(mpiio::MPIIO_COLL_WRITES, 5)]);
    let own = record.file(&format!("/scratch/project/run/out.{rank}"));
    let bytes = 1000 + rank;
    record.counters(own, Module::Posix, 0, &[(posix::POSIX_WRITES, 1), (posix::POSIX_BYTES_WRITTEN, bytes)]);
    for phase in 0..5u32 {
        let at_s = 1.0 + f64::from(phase) * 1.5 + rank as f64 * 1e-4;
        record.burst(0, at_s, at_s + 0.2, 1 << 20, 0.0, 0);
        record.collective(file, u64::from(phase) + 1, at_s, at_s + 0.1, if rank == 0 { 0.05 } else { 0.0 });
        record.series(0, phase as usize, 1 << 20);
    }
    record.calls(Module::Mpiio, 1, 5, 1 << 20, 0.1).slow(0, file, "MPI_File_write_at_all", 1.0, 0.1);
    record
}

fn leaf(scratch: &Scratch, record: &mut Builder, is_gone: bool) -> Leaf {
    let path = record.write(&scratch.0);
    let name = path.file_stem().unwrap().to_str().unwrap().to_string() + ".0000000000000007.rec";
    let leaf = Leaf::read(name, &File::open(&path).unwrap(), is_gone).unwrap();
    fs::remove_file(path).unwrap();
    leaf
}

/// Puts these records into the file of a node.
fn put(scratch: &Scratch, name: &str, leaves: Vec<Leaf>) -> PathBuf {
    let path = node_path(&scratch.job(), name, LAUNCH);
    put_file(&path, &encode(NOBODY, leaves)).unwrap();
    path
}

fn finish(scratch: &Scratch) -> Profile {
    let launch = Launch { id: Some(LAUNCH), start_ns: START_NS };
    let path = finish_job(&scratch.job(), &scratch.0, launch, Duration::from_secs(20)).unwrap().unwrap();
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn only(folder: &Path) -> Profile {
    let mut merged = merge_folder(folder, false).unwrap().0;
    assert_eq!(merged.len(), 1);
    merged.remove(0).profile
}

#[test]
fn the_profile_is_that_of_records_in_files_of_their_own() {
    let (apart, together) = (Scratch::new("apart"), Scratch::new("together"));
    for number in 0..8 {
        let path = rank(number, 8).write(&apart.job());
        let named = path.with_extension("0000000000000007.rec");
        fs::rename(path, named).unwrap();
    }
    // Ranks in turn on two nodes.
    for node in 0..2 {
        let leaves: Vec<Leaf> =
            (0..4).map(|number| leaf(&together, &mut rank(2 * number + node, 8), false)).collect();
        put(&together, &format!("n{node}-1-1"), leaves);
    }
    let text = |profile: &Profile| serde_json::to_string(profile).unwrap();
    assert_eq!(text(&finish(&apart)), text(&finish(&together)));
    assert!(!apart.job_is_there() && !together.job_is_there(), "what is merged is taken away");
}

#[test]
fn ranks_alike_take_little_room() {
    let scratch = Scratch::new("little");
    let leaves: Vec<Leaf> = (0..128).map(|number| leaf(&scratch, &mut rank(number, 128), false)).collect();
    let bytes = encode(NOBODY, leaves).len();
    assert!(bytes < 128 * 512, "{bytes} bytes for 128 ranks");
}

/// Ranks that have a full list of everything and a thousand files each: the file of their node is as small as promised, sums are what they were,
/// and what is missing is counted.
#[test]
fn a_node_with_too_much_to_tell_keeps_its_sums() {
    const NODE_RANKS: u64 = 24;
    let (apart, together) = (Scratch::new("much-apart"), Scratch::new("much-together"));
    let mut leaves = Vec::new();
    for number in 0..NODE_RANKS {
        let mut record = Builder::new(number, NODE_RANKS);
        record.set(offset_of!(Header, pid), (1 << 30) + number);
        let shared = record.file("/scratch/shared");
        record.counters(shared, Module::Mpiio, 0, &[(mpiio::MPIIO_COLL_WRITES, 64)]);
        for file in 0..1000 {
            let file = record.file(&format!("/scratch/{number}/{file:04}"));
            let bytes = (posix::POSIX_BYTES_WRITTEN, 1000 + file * 7919 % 1000);
            record.counters(file, Module::Posix, 0, &[(posix::POSIX_WRITES, 1), bytes]);
        }
        for index in 0..64u32 {
            let at_s = f64::from(index) * 0.1 + number as f64 * 1e-5;
            record.collective(shared, u64::from(index), at_s, at_s + 0.01, 0.0);
        }
        for index in 0..400u32 {
            let at_s = f64::from(index) * 0.02 + number as f64 * 1e-5;
            record.burst(0, at_s, at_s + 0.001, 500, 0.0, 0);
            record.series(0, index as usize % 256, 500);
        }
        let path = record.write(&apart.job());
        let name = path.file_stem().unwrap().to_str().unwrap().to_string() + ".0000000000000007.rec";
        leaves.push(Leaf::read(name.clone(), &File::open(&path).unwrap(), false).unwrap());
        fs::rename(&path, path.with_file_name(name)).unwrap();
    }
    let path = put(&together, "node-1-1", leaves);
    let bytes = fs::metadata(&path).unwrap().len();
    assert!(bytes <= (256 << 10) + 512 * NODE_RANKS, "{bytes} bytes");
    let (whole, thin) = (finish(&apart), finish(&together));
    let counter =
        |profile: &Profile, module: &str, name: &str| profile.modules[module].counters[name].as_u64();
    for (module, name) in
        [("POSIX", "POSIX_WRITES"), ("POSIX", "POSIX_BYTES_WRITTEN"), ("MPIIO", "MPIIO_COLL_WRITES")]
    {
        assert_eq!(counter(&whole, module, name), counter(&thin, module, name), "{name}");
    }
    let series = |profile: &Profile| profile.series.bytes_written.iter().sum::<u64>();
    assert_eq!(series(&whole), series(&thin));
    assert_eq!(whole.phases.count, thin.phases.count);
    assert!(thin.dropped.collectives > 0 && thin.dropped.files > 0, "{:?}", thin.dropped);
}

#[test]
fn a_process_that_was_seen_to_be_gone_was_killed() {
    let scratch = Scratch::new("gone");
    let mut running = rank(0, 2);
    running.ended(Ended::Running, 0, 3.0).text(offset_of!(Header, host), 8, "elsewhere");
    let mut other = rank(1, 2);
    other.ended(Ended::Running, 0, 3.0).text(offset_of!(Header, host), 8, "elsewhere");
    put(
        &scratch,
        "elsewhere-1-1",
        vec![leaf(&scratch, &mut running, true), leaf(&scratch, &mut other, false)],
    );
    let ended: Vec<Fate> = only(&scratch.job()).ranks.iter().map(|rank| rank.ended).collect();
    assert_eq!(ended, [Fate::Killed, Fate::Unknown]);
}

#[test]
fn the_last_word_of_a_helper_is_waited_for() {
    let scratch = Scratch::new("last-word");
    let mut early = rank(0, 1);
    early.ended(Ended::Running, 0, 3.0).text(offset_of!(Header, host), 8, "elsewhere");
    let path = put(&scratch, "elsewhere-1-1", vec![leaf(&scratch, &mut early, false)]);
    let mut late = rank(0, 1);
    late.text(offset_of!(Header, host), 8, "elsewhere");
    let bytes = encode(NOBODY, vec![leaf(&scratch, &mut late, false)]);
    let writing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        put_file(&path, &bytes).unwrap();
    });
    let began = Instant::now();
    assert_eq!(finish(&scratch).job.ended, "finalized");
    assert!(began.elapsed() < Duration::from_millis(290));
    writing.join().unwrap();
}

#[test]
fn a_file_that_was_replaced_meanwhile_stays() {
    let scratch = Scratch::new("replaced");
    let path = put(&scratch, "node-1-1", vec![leaf(&scratch, &mut rank(0, 2), false)]);
    let merged = merge_folder(&scratch.job(), false).unwrap();
    let both = vec![leaf(&scratch, &mut rank(0, 2), false), leaf(&scratch, &mut rank(1, 2), false)];
    put_file(&path, &encode(NOBODY, both)).unwrap();
    merged.write(&scratch.0).unwrap();
    assert!(path.exists());
}

#[test]
fn damage_is_named_and_the_rest_counts() {
    let scratch = Scratch::new("node-damage");
    let leaves: Vec<Leaf> = (0..3).map(|number| leaf(&scratch, &mut rank(number, 3), false)).collect();
    let path = put(&scratch, "node-1-1", leaves);
    let whole = fs::read(&path).unwrap();
    // Cut short: the last record is not all there.
    fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let profile = only(&scratch.job());
    let ended: Vec<Fate> = profile.ranks.iter().map(|rank| rank.ended).collect();
    assert_eq!(ended, [Fate::Finalized, Fate::Finalized, Fate::Damaged]);
    assert!(
        profile.notes[0].contains("truncated record") && profile.notes[0].contains("2-"),
        "{:?}",
        profile.notes
    );
    // Emptied.
    fs::write(&path, "").unwrap();
    assert!(merge_folder(&scratch.job(), false).is_err_and(|error| error.what.contains("too short")));
    // Of a newer form.
    let mut newer = whole.clone();
    newer[7] = 9;
    fs::write(&path, newer).unwrap();
    assert!(merge_folder(&scratch.job(), false).is_err_and(|error| error.what.contains("form 9")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// An answer or a reason, never a panic.
    #[test]
    fn overwritten_bytes(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let scratch = Scratch::new("node-bytes");
        let leaves: Vec<Leaf> = (0..2).map(|number| leaf(&scratch, &mut rank(number, 2), false)).collect();
        let path = put(&scratch, "node-1-1", leaves);
        let mut bytes = fs::read(&path).unwrap();
        for (place, value) in places {
            let at = place.index(bytes.len());
            bytes[at] = value;
        }
        fs::write(&path, bytes).unwrap();
        let _ = merge_folder(&scratch.job(), false);
    }
}
