//! From records to the profile: what goes in comes out, once.

mod records;

use records::{Builder, START_NS, Scratch, duration, ticks};
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use weir_profile::counters::{Module, mpiio, posix};
use weir_profile::failures::{IS_HARMLESS, IS_MPI};
use weir_profile::job::{Launch, Merged, find};
use weir_profile::layout::{Ended, Header, MAGIC, PHASE_NAME_WORDS};
use weir_profile::profile::{Fate, Profile, Value};
use weir_profile::tally::POSIX_BY_APP;
use weir_profile::{Error, finish_job};

const SCHEMA: &str = include_str!("../../../docs/profile.schema.json");

/// Validates against the published schema, and against one that allows no key it does not describe.
fn check_schema(profile: &Profile) {
    let instance = serde_json::to_value(profile).unwrap();
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let mut strict = schema.clone();
    forbid_other_keys(&mut strict);
    for schema in [schema, strict] {
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator.iter_errors(&instance).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

fn forbid_other_keys(schema: &mut serde_json::Value) {
    match schema {
        serde_json::Value::Object(object) => {
            object.values_mut().for_each(forbid_other_keys);
            if object.get("properties").is_some_and(|p| p.is_object()) && object.contains_key("description") {
                object.insert("additionalProperties".into(), false.into());
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(forbid_other_keys),
        _ => {}
    }
}

/// The launch of records whose names say none.
const UNNAMED: Launch = Launch { id: None, start_ns: START_NS };

/// A folder with one launch.
fn merge_folder(dir: &Path, job_over: bool) -> Result<Merged, Error> {
    let mut merged = weir_profile::job::merge_folder(dir, job_over)?.0;
    assert_eq!(merged.len(), 1);
    Ok(merged.remove(0))
}

fn finish(scratch: &Scratch) -> Result<Profile, Error> {
    let path =
        finish_job(&scratch.job(), &scratch.0, UNNAMED, Duration::from_millis(200))?.expect("a profile");
    Ok(load(&path))
}

fn load(path: &Path) -> Profile {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn count(profile: &Profile, module: &str, counter: &str) -> u64 {
    profile.modules[module].counters[counter].as_u64()
}

/// A rank that writes one mebibyte collectively in each of five phases, two seconds apart; rank 0
/// moves it all to the file.
fn checkpointing(rank: u64, nprocs: u64) -> Builder {
    let mut record = Builder::new(rank, nprocs);
    let file = record.file("/scratch/checkpoint.dat");
    let aggregator = rank == 0;
    record.counters(
        file,
        Module::Mpiio,
        0,
        &[
            (mpiio::MPIIO_COLL_OPENS, 1),
            (mpiio::MPIIO_COLL_WRITES, 5),
            (mpiio::MPIIO_BYTES_WRITTEN, 5 << 20),
            (mpiio::MPIIO_F_WRITE_TIME, duration(1.0)),
            (mpiio::MPIIO_F_COLL_TIME, duration(1.0)),
            (mpiio::MPIIO_F_COLL_FILE_TIME, if aggregator { duration(0.75) } else { 0 }),
            (mpiio::MPIIO_COLL_FILE_BYTES, if aggregator { nprocs * (5 << 20) } else { 0 }),
            (mpiio::MPIIO_F_WRITE_START_TIMESTAMP, ticks(1.0)),
            (mpiio::MPIIO_F_WRITE_END_TIMESTAMP, ticks(9.2)),
            (mpiio::MPIIO_F_MAX_WRITE_TIME, duration(0.2)),
            (mpiio::MPIIO_LAST_DIRECTION, 2),
        ],
    );
    if aggregator {
        let bytes = nprocs * (5 << 20);
        let counters = [
            (posix::POSIX_WRITES, 5),
            (posix::POSIX_BYTES_WRITTEN, bytes),
            (posix::POSIX_MPI_BYTES_WRITTEN, bytes),
            (posix::POSIX_F_WRITE_TIME, duration(0.75)),
            (posix::POSIX_MAX_BYTE_WRITTEN, bytes - 1),
        ];
        record.counters(file, Module::Posix, 0, &counters);
    }
    for phase in 0..5 {
        let at_s = 1.0 + 2.0 * phase as f64;
        record.burst(0, at_s, at_s + 0.2, 1 << 20, 0.0, 0);
        record.collective(file, phase + 1, at_s, at_s + 0.2, if aggregator { 0.15 } else { 0.0 });
        record.slow(phase as usize, file, "MPI_File_write_at_all", at_s, 0.2 + rank as f64 / 1000.0);
        record.series(0, (at_s / (0.5e-9 * (1u64 << 27) as f64)) as usize, 1 << 20);
    }
    record.calls(Module::Mpiio, 1, 5, 1 << 20, 0.2);
    record
}

#[test]
fn a_job_of_four_ranks() {
    let scratch = Scratch::new("four");
    for rank in 0..4 {
        checkpointing(rank, 4).write(&scratch.job());
    }
    let profile = finish(&scratch).unwrap();
    check_schema(&profile);
    assert_eq!(profile.job.ended, "finalized");
    assert_eq!((profile.job.nprocs, profile.job.nnodes), (4, 1));
    assert_eq!(profile.job.start, "2023-11-14T22:13:20.000Z");
    assert_eq!(profile.job.duration_s, 10.0);
    assert_eq!(count(&profile, "MPIIO", "MPIIO_COLL_WRITES"), 20);
    assert_eq!(count(&profile, "MPIIO", "MPIIO_BYTES_WRITTEN"), 20 << 20);
    assert_eq!(count(&profile, "MPIIO", "MPIIO_INDEP_WRITES"), 0, "zero counters are present");
    let mpiio = &profile.modules["MPIIO"].counters;
    assert_eq!(mpiio["MPIIO_F_WRITE_TIME"], Value::Seconds(4.0), "summed over ranks");
    assert_eq!(mpiio["MPIIO_F_MAX_WRITE_TIME"], Value::Seconds(0.2), "the longest of all ranks");
    assert_eq!(mpiio["MPIIO_F_WRITE_START_TIMESTAMP"], Value::Seconds(1.0));
    assert!(!mpiio.contains_key("MPIIO_LAST_DIRECTION"), "state is not in the profile");

    assert_eq!((profile.phases.count, profile.phases.gap_source.as_str()), (5, "learnt"));
    assert_eq!(profile.phases.characteristic_time_s, Some(2.0));
    assert!((profile.phases.io_ratio - 0.1).abs() < 1e-9);
    assert_eq!(profile.phases.list[0].bytes_written, 4 << 20);
    assert_eq!(profile.phases.list[4].calls, 4);

    assert_eq!(profile.files.len(), 1);
    let file = &profile.files[0];
    assert_eq!((file.nranks, &file.ranks, &file.aggregators), (4, &vec![0, 1, 2, 3], &vec![0]));
    assert!(!file.modules["MPIIO"].contains_key("MPIIO_INDEP_WRITES"), "files list what is not zero");

    let collectives = &profile.collectives;
    assert_eq!((collectives.calls, collectives.list.len()), (20, 5));
    assert_eq!(collectives.aggregators[0].file_bytes, 20 << 20);
    assert_eq!((collectives.time_s, collectives.file_time_s, collectives.rest_s), (4.0, 0.75, 3.25));
    let call = &collectives.list[2];
    assert_eq!((call.sequence, call.bytes, call.file_bytes, call.nranks), (3, 4 << 20, 1 << 20, 4));
    assert_eq!((call.ranks[0].file_s, call.ranks[0].rest_s), (0.15, 0.05));

    assert_eq!(profile.series.bytes_written.iter().sum::<u64>(), 20 << 20, "no byte lost or doubled");
    assert_eq!(profile.slowest.len(), 10);
    assert_eq!((profile.slowest[0].rank, profile.slowest[0].duration_s), (3, 0.203));
    let sizes = &profile.histograms["MPIIO"].write.size_bytes;
    assert_eq!((sizes.count, sizes.bins.as_slice()), (20, [(1_048_576.0, 20)].as_slice()));
    assert_eq!([sizes.min, sizes.mean, sizes.p50, sizes.max], [1_048_576.0; 4], "all are of one size");
    let latency = &profile.histograms["MPIIO"].write.latency_s;
    assert!((latency.p50 / 0.2 - 1.0).abs() < 0.125, "{}", latency.p50);
    assert_eq!(profile.ranks.len(), 4);
    assert!(profile.ranks[0].aggregator && !profile.ranks[1].aggregator);
    assert_eq!(profile.ranks[0].bytes_written, 5 << 20, "what MPI wrote for others is not the rank's");
    assert_eq!(profile.ranks[0].io_s, 1.0, "POSIX beneath MPI-IO lies within its time");
    let io_time = profile.io_time.unwrap();
    assert_eq!((io_time.write_s, io_time.total_s()), (4.0, 4.0));
    assert!((profile.phases.io_time_ratio.unwrap() - 0.1).abs() < 1e-9);
    assert!(!scratch.0.join(".weir-4711").exists(), "records of a whole job are removed");
}

/// Of three ranks one waits for five of its ten seconds, and is in I/O for one of the other five; one does no I/O.
#[test]
fn time_in_io_is_a_share_of_the_time_a_rank_had() {
    let scratch = Scratch::new("io-time");
    for rank in 0..2 {
        let mut record = Builder::new(rank, 3);
        let file = record.file("/data/out");
        let held_back = if rank == 0 { duration(5.0) } else { 0 };
        let counters = [
            (mpiio::MPIIO_F_WRITE_TIME, duration(0.5) + held_back),
            (mpiio::MPIIO_F_META_TIME, duration(0.5)),
            (mpiio::MPIIO_F_OPEN_CLOSE_TIME, duration(0.5)),
            (mpiio::MPIIO_F_GATE_TIME, held_back),
        ];
        record.counters(file, Module::Mpiio, 0, &counters);
        record.set(offset_of!(Header, gate.wait_ticks), held_back);
        record.burst(0, 1.0, 2.0, 10, 0.0, 0).write(&scratch.job());
    }
    let profile = finish(&scratch).unwrap();
    assert!((profile.phases.io_time_ratio.unwrap() - (0.2 + 0.1) / 3.0).abs() < 1e-6);
    let ranks: Vec<(f64, f64)> = profile.ranks.iter().map(|rank| (rank.io_s, rank.held_back_s)).collect();
    assert!((ranks[0].0 - 1.0).abs() < 1e-6 && ranks[0].1 == 5.0, "{ranks:?}");
    assert_eq!(ranks[1..], [(1.0, 0.0), (0.0, 0.0)]);
}

#[test]
fn failures_of_all_ranks_are_named_and_bounded() {
    let scratch = Scratch::new("failures");
    for rank in 0..2 {
        let mut record = Builder::new(rank, 2);
        let file = record.file("/data/out");
        record.failure(0, "write", file, 28, 3, 4.0 - rank as f64);
        record.failure(1, "MPI_File_delete", file, IS_MPI | IS_HARMLESS | 42, 9, 1.0);
        record.failure(2, "fsync", file, 5000 + rank, 1, 5.0);
        record.burst(0, 1.0, 2.0, 10, 0.0, 0).write(&scratch.job());
    }
    let errors = finish(&scratch).unwrap().errors;
    let found: Vec<(&str, &str, u64, u64, u64, bool)> = errors
        .iter()
        .map(|e| (e.op.as_str(), e.error.as_str(), e.count, e.nranks, e.rank, e.harmless))
        .collect();
    let expected = [
        ("write", "ENOSPC", 6, 2, 1, false),
        ("fsync", "errno 5000", 1, 1, 0, false),
        ("fsync", "errno 5001", 1, 1, 1, false),
        ("MPI_File_delete", "MPI_ERR_NO_SUCH_FILE", 18, 2, 0, true),
    ];
    assert_eq!(found, expected);
    assert_eq!((errors[0].start_s, errors[0].errno, errors[3].errno), (3.0, Some(28), None));
}

#[test]
fn threads_of_one_rank_add_up() {
    let scratch = Scratch::new("lanes");
    let mut record = Builder::new(0, 1);
    let file = record.file("/data/log");
    record.counters(file, Module::Posix, 0, &[(posix::POSIX_WRITES, 3), (posix::POSIX_MAX_BYTE_WRITTEN, 70)]);
    record.counters(file, Module::Posix, 1, &[(posix::POSIX_WRITES, 4), (posix::POSIX_MAX_BYTE_WRITTEN, 50)]);
    record.burst(0, 1.0, 2.0, 10, 0.0, 0).burst(1, 1.5, 2.5, 20, 0.0, 0);
    record.write(&scratch.job());
    let profile = finish(&scratch).unwrap();
    assert_eq!(count(&profile, "POSIX", "POSIX_WRITES"), 7);
    assert_eq!(count(&profile, "POSIX", "POSIX_MAX_BYTE_WRITTEN"), 70);
    assert_eq!(profile.files[0].nranks, 1);
    let phase = &profile.phases.list[0];
    assert_eq!((profile.phases.count, phase.start_s, phase.end_s, phase.bytes_written), (1, 1.0, 2.5, 30));
    assert_eq!(profile.phases.characteristic_time_s, None);
}

#[test]
fn what_a_killed_process_had_not_yet_counted_is_counted() {
    let scratch = Scratch::new("pending");
    let mut record = Builder::new(0, 1);
    let file = record.file("/data/log");
    let counters =
        [(posix::POSIX_WRITES, 3), (posix::POSIX_BYTES_WRITTEN, 300), (posix::POSIX_LAST_READ_END, u64::MAX)];
    record.counters(file, Module::Posix, 0, &counters);
    record.burst(0, 1.0, 2.0, 300, 0.0, 0).series(0, 15, 300).ended(Ended::Running, 0, 1.0);
    record.run(POSIX_BY_APP + 1, 1000, 7).pending(7000, 7, 4.0, 45).write(&scratch.job());
    let profile = finish(&scratch).unwrap();
    assert_eq!(count(&profile, "POSIX", "POSIX_WRITES"), 10);
    assert_eq!(count(&profile, "POSIX", "POSIX_BYTES_WRITTEN"), 7300);
    assert_eq!(count(&profile, "POSIX", "POSIX_SIZE_WRITE_100_1K"), 7);
    assert_eq!(count(&profile, "POSIX", "POSIX_MAX_BYTE_READ"), 0);
    assert_eq!(profile.histograms["POSIX"].write.size_bytes.count, 7);
    let phase = &profile.phases.list[0];
    assert_eq!((phase.bytes_written, phase.calls, phase.end_s), (7300, 8, 4.0));
    assert_eq!(profile.series.bytes_written.iter().sum::<u64>(), 7300);
    assert_eq!(profile.job.duration_s, 4.0, "it lived until its last I/O");
    assert_eq!(profile.job.ended, "killed: rank 0");
}

#[test]
fn every_end_has_its_name() {
    let scratch = Scratch::new("ends");
    let ends = [
        (Ended::Finalized, 0),
        (Ended::Exited, 3),
        (Ended::Aborted, 5),
        (Ended::Signalled, 15),
        (Ended::Running, 0),
    ];
    for (rank, (ended, code)) in ends.into_iter().enumerate() {
        checkpointing(rank as u64, 8).ended(ended, code, 9.5).write(&scratch.job());
    }
    let mut elsewhere = checkpointing(5, 8);
    elsewhere.ended(Ended::Running, 0, 9.5).text(offset_of!(Header, host), 8, "another-host");
    elsewhere.write(&scratch.job());
    let cut_short = [&MAGIC.to_le_bytes(), b" and then the disk was full".as_slice()].concat();
    fs::write(scratch.job().join("6-host-99-0.rec"), cut_short).unwrap();

    let merged = merge_folder(&scratch.job(), false).unwrap();
    check_schema(&merged.profile);
    let fates: Vec<Fate> = merged.profile.ranks.iter().map(|rank| rank.ended).collect();
    use Fate::*;
    assert_eq!(fates, [Finalized, Exited, Aborted, Signalled, Killed, Unknown, Damaged, Idle]);
    assert_eq!(merged.profile.ranks[1].code, Some(3));
    assert_eq!(merged.profile.ranks[3].signal.as_deref(), Some("SIGTERM"));
    assert_eq!(merged.profile.job.ended, "aborted: rank 2, code 5");
    assert!(
        merged.profile.notes[0].contains("6-host-99-0.rec: truncated record"),
        "{:?}",
        merged.profile.notes
    );
    assert_eq!(
        count(&merged.profile, "MPIIO", "MPIIO_COLL_WRITES"),
        6 * 5,
        "whoever was killed is merged too"
    );
    assert!(merged.is_live(), "the rank on the other host may be alive");

    drop(merged);
    let over = merge_folder(&scratch.job(), true).unwrap();
    assert_eq!(over.profile.ranks[5].ended, Killed, "its launcher has ended");
    over.write(&scratch.0).unwrap().unwrap();
    let left: Vec<_> = fs::read_dir(scratch.job()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["6-host-99-0.rec"], "what could not be read stays");
}

#[test]
fn a_rank_that_outlives_its_launcher_for_a_moment_is_waited_for() {
    let scratch = Scratch::new("outlives");
    let mut rank = Command::new("sleep").arg("60").spawn().unwrap();
    let mut record = checkpointing(0, 1);
    record.ended(Ended::Running, 0, 9.0).set(offset_of!(Header, pid), u64::from(rank.id()));
    record.set(offset_of!(Header, process_start), weir_profile::process_start(u64::from(rank.id())));
    record.write(&scratch.job());
    assert!(merge_folder(&scratch.job(), false).unwrap().is_live());
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        // Not waited for: whoever has ended is gone.
        rank.kill().unwrap();
        std::mem::forget(rank);
    });
    let merged = merge_folder(&scratch.job(), true).unwrap();
    assert_eq!(merged.profile.ranks[0].ended, Fate::Killed);
    assert!(!merged.is_live());
}

#[test]
fn a_fault_of_one_rank_is_the_cause_when_the_launcher_kills_the_rest() {
    let scratch = Scratch::new("fault");
    for rank in 0..4 {
        let (ended, code) = if rank == 2 { (Ended::Signalled, 11) } else { (Ended::Running, 0) };
        checkpointing(rank, 4).ended(ended, code, 9.0).write(&scratch.job());
    }
    let profile = merge_folder(&scratch.job(), false).unwrap().profile;
    assert_eq!(profile.job.ended, "signalled: rank 2, SIGSEGV");
    checkpointing(2, 4).ended(Ended::Exited, 3, 9.0).write(&scratch.job());
    let profile = merge_folder(&scratch.job(), false).unwrap().profile;
    assert_eq!(profile.job.ended, "exited: rank 2, code 3");
    checkpointing(2, 4).ended(Ended::Running, 0, 9.0).write(&scratch.job());
    let profile = merge_folder(&scratch.job(), false).unwrap().profile;
    assert_eq!(profile.job.ended, "killed: 4 of 4 ranks");
}

#[test]
fn a_rank_that_still_runs_keeps_the_records() {
    let scratch = Scratch::new("running");
    checkpointing(0, 2).write(&scratch.job());
    let mut running = checkpointing(1, 2);
    running.ended(Ended::Running, 0, 9.0).set(offset_of!(Header, pid), u64::from(std::process::id()));
    let path = running.write(&scratch.job());
    let profile = finish(&scratch).unwrap();
    assert_eq!(profile.ranks[1].ended, Fate::Running);
    assert_eq!(profile.job.ended, "running: rank 1");
    assert!(path.exists());

    running.ended(Ended::Finalized, 0, 10.0).write(&scratch.job());
    assert_eq!(finish(&scratch).unwrap().job.ended, "finalized");
    assert!(!path.exists());
    assert!(scratch.0.join("weir-stencil-4711.json").exists(), "the first profile is not overwritten");
    assert!(scratch.0.join("weir-stencil-4711-2.json").exists());
}

#[test]
fn a_process_that_initialises_mpi_twice_is_one_rank() {
    let scratch = Scratch::new("twice");
    checkpointing(0, 1).ended(Ended::Replaced, 0, 4.0).write(&scratch.job());
    checkpointing(0, 1).set(offset_of!(Header, generation), 1).write(&scratch.job());
    let profile = finish(&scratch).unwrap();
    assert_eq!(profile.ranks.len(), 1);
    assert_eq!(profile.ranks[0].ended, Fate::Finalized, "the last record says how it ended");
    assert_eq!(profile.ranks[0].bytes_written, 10 << 20);
    assert_eq!(profile.files[0].nranks, 1);
}

#[test]
fn a_job_without_io_writes_nothing() {
    let scratch = Scratch::new("idle");
    for rank in 0..2 {
        Builder::new(rank, 2).write(&scratch.job());
    }
    assert_eq!(finish_job(&scratch.job(), &scratch.0, UNNAMED, Duration::from_millis(200)), Ok(None));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn files_that_merely_look_like_records_are_left_alone() {
    let scratch = Scratch::new("foreign");
    fs::write(scratch.0.join("sound.rec"), "somebody else's").unwrap();
    let found = find(&scratch.0).unwrap();
    assert!(found.folders.is_empty() && found.profiles.is_empty());
    assert_eq!(find(&scratch.job()).unwrap().folders, [scratch.job()]);
}

#[test]
fn a_rank_without_io_is_not_waited_for() {
    let scratch = Scratch::new("one-writer");
    checkpointing(0, 64).write(&scratch.job());
    let path = finish_job(&scratch.job(), &scratch.0, UNNAMED, Duration::from_secs(3600)).unwrap().unwrap();
    let profile = load(&path);
    check_schema(&profile);
    assert_eq!(profile.job.ended, "finalized");
    assert_eq!((profile.ranks.len(), profile.ranks[63].ended), (64, Fate::Idle));
    assert!(!scratch.0.join(".weir-4711").exists());
}

#[test]
fn the_same_profile_is_not_written_twice_and_another_never_replaces_it() {
    let scratch = Scratch::new("names");
    let mut record = checkpointing(0, 1);
    record.text(offset_of!(Header, application), 16, "my app/v2").write(&scratch.job());
    let profile = merge_folder(&scratch.job(), false).unwrap().profile;
    let write = |profile: &Profile| weir_profile::job::write_profile(profile, &scratch.0).unwrap();
    let first = write(&profile);
    assert_eq!(first.file_name().unwrap(), "weir-my_app_v2-4711.json");
    assert_eq!(write(&profile), first);
    let other = Profile { notes: vec!["another".into()], ..profile };
    assert_eq!(write(&other).file_name().unwrap(), "weir-my_app_v2-4711-2.json");
    assert_eq!(load(&first).notes.len(), 0);
    assert_eq!(find(&scratch.0).unwrap().profiles.len(), 2, "no temporary file is left");
}

#[test]
fn an_unwritable_directory_is_named_and_the_records_stay() {
    let scratch = Scratch::new("unwritable");
    let record = checkpointing(0, 1).write(&scratch.job());
    let nowhere = scratch.0.join("nowhere");
    let error = finish_job(&scratch.job(), &nowhere, UNNAMED, Duration::from_millis(200)).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert!(record.exists());
}

#[test]
fn marked_phases_are_exact() {
    let scratch = Scratch::new("marked");
    for rank in 0..2 {
        let mut record = Builder::new(rank, 2);
        let file = record.file("/data/out");
        record.counters(file, Module::Mpiio, 0, &[(mpiio::MPIIO_INDEP_WRITES, 3)]);
        // Found bursts: one inside the first mark (by the other thread), one outside of all.
        record.burst(1, 1.2, 1.3, 7, 0.0, 0).burst(0, 5.0, 5.1, 100, 0.0, 0);
        record.burst(0, 1.0 + rank as f64 / 10.0, 2.0, 10, 0.25, 1).burst(0, 3.0, 4.0, 20, 0.5, 2);
        record.named(0, "checkpoint");
        record.write(&scratch.job());
    }
    let profile = finish(&scratch).unwrap();
    check_schema(&profile);
    let phases = &profile.phases;
    assert_eq!((phases.count, phases.gap_source.as_str(), phases.gap_s), (2, "marked", None));
    assert_eq!((phases.list[0].start_s, phases.list[0].end_s), (1.0, 2.0));
    assert_eq!((phases.list[0].bytes_written, phases.list[1].bytes_written), (34, 40));
    assert_eq!(phases.outside.bytes_written, 200);
    assert_eq!(phases.list[1].name.as_deref(), Some("checkpoint"));
    assert_eq!(phases.list[0].name, None);
    assert_eq!(phases.list[0].wait_s, 0.25, "ranks held back together cost the job that time once");
    assert_eq!(phases.characteristic_time_s, Some(1.75), "time held back is not the program's own");
    assert!((phases.io_ratio - 1.25 / 9.25).abs() < 1e-9);
}

/// The first rank also marks its log, every other step: its marks are not those of the others by number.
#[test]
fn ranks_that_mark_different_phases_are_merged_by_name() {
    let scratch = Scratch::new("names");
    for rank in 0..3 {
        let mut record = Builder::new(rank, 3);
        let file = record.file("/data/out");
        record.counters(file, Module::Mpiio, 0, &[(mpiio::MPIIO_INDEP_WRITES, 3)]);
        record.text(offset_of!(Header, phase_names) + 8 * PHASE_NAME_WORDS, PHASE_NAME_WORDS, "log");
        let mut number = 0;
        for step in 0..9 {
            let at_s = 1.0 + f64::from(step) + rank as f64 / 100.0;
            if rank == 0 && step % 2 == 0 {
                number += 1;
                record.burst(0, at_s - 0.1, at_s - 0.05, 1, 0.0, number).named_as(0, 2);
            }
            number += 1;
            record.burst(0, at_s, at_s + 0.001, 100, 0.0, number).named(0, "checkpoint");
        }
        record.write(&scratch.job());
    }
    let phases = finish(&scratch).unwrap().phases;
    let named = |name: &str| phases.list.iter().filter(|phase| phase.name.as_deref() == Some(name)).count();
    assert_eq!((phases.count, named("checkpoint"), named("log")), (14, 9, 5));
    assert!(phases.list.iter().all(|phase| [300, 1].contains(&phase.bytes_written)));
}

#[test]
fn a_thousand_ranks_with_many_files_stay_bounded() {
    let scratch = Scratch::new("thousand");
    let nprocs = 1000;
    let template = checkpointing(1, nprocs).bytes();
    for rank in 0..nprocs {
        let mut record = if rank == 0 { checkpointing(0, nprocs) } else { Builder::from_bytes(&template, 2) };
        record.set(offset_of!(Header, rank), rank);
        // Every rank has files of its own; rank 7's are the largest.
        for own in 0..20 {
            let file = record.file(&format!("/scratch/out.{rank}.{own}"));
            let bytes = if rank == 7 { 9 << 30 } else { 100 };
            let counters = [(posix::POSIX_WRITES, 1), (posix::POSIX_BYTES_WRITTEN, bytes)];
            record.counters(file, Module::Posix, 0, &counters);
        }
        record.write(&scratch.job());
    }
    let path = finish_job(&scratch.job(), &scratch.0, UNNAMED, Duration::from_secs(600)).unwrap().unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 4 << 20, "a profile of a few megabytes at most");
    let profile = load(&path);
    check_schema(&profile);
    assert_eq!(profile.ranks.len(), 1000);
    assert_eq!(count(&profile, "MPIIO", "MPIIO_COLL_WRITES"), 5000);
    assert_eq!(
        count(&profile, "POSIX", "POSIX_WRITES"),
        20_005,
        "what is dropped from lists stays in the sums"
    );
    assert_eq!(profile.files.len(), 1001);
    assert_eq!(profile.dropped.files, 20_001 - 1000);
    let in_files: f64 = profile.files.iter().map(|f| f.modules["POSIX"]["POSIX_WRITES"].as_f64()).sum();
    assert_eq!(in_files, 20_005.0, "other files hold the rest");
    assert!(profile.files[..20].iter().all(|file| file.name.starts_with("/scratch/out.7.")));
    assert_eq!(profile.files[20].name, "/scratch/checkpoint.dat");
    assert_eq!((profile.files[20].nranks, profile.files[20].ranks.len()), (1000, 64));
    let call = &profile.collectives.list[0];
    assert_eq!((call.nranks, call.ranks.len()), (1000, 64));
    assert_eq!(call.ranks[0].rank, 0, "the aggregator is among the ranks listed");
    assert_eq!(profile.phases.count, 5);
    assert_eq!(profile.series.bytes_written.iter().sum::<u64>(), 5000 << 20);
}

#[test]
fn a_rank_without_room_for_its_record_is_missed() {
    let scratch = Scratch::new("room");
    let folder = scratch.job();
    checkpointing(0, 2).write(&folder);
    fs::write(folder.join("1-node-2-1.lost"), "").unwrap();
    let profile = finish(&scratch).unwrap();
    assert_eq!(
        profile.ranks.iter().map(|rank| rank.ended).collect::<Vec<_>>(),
        [Fate::Finalized, Fate::Damaged]
    );
    assert!(profile.notes.iter().any(|note| note.contains("no room")), "{:?}", profile.notes);
    assert!(!folder.exists());
}

#[test]
fn no_room_for_any_record_leaves_nothing() {
    let scratch = Scratch::new("no-room");
    let folder = scratch.job();
    fs::write(folder.join("0-node-1-1.lost"), "").unwrap();
    assert!(merge_folder(&folder, true).is_err_and(|error| error.to_string().contains("no room")));
    let written = finish_job(&folder, &scratch.0, UNNAMED, Duration::from_millis(200)).unwrap();
    assert_eq!(written, None);
    assert!(!folder.exists());
}
