//! Whatever is in a record: an answer or a reason, never a panic.

mod records;

use proptest::prelude::*;
use records::{Builder, Scratch, lane_at};
use std::fs;
use std::mem::offset_of;
use std::time::Duration;
use weir_profile::counters::{Module, mpiio};
use weir_profile::finish_job;
use weir_profile::job::{Launch, merge_folder};
use weir_profile::layout::*;
use weir_profile::profile::Fate;
use weir_profile::record::Record;

/// The launch of records whose names say none.
const UNNAMED: Launch = Launch { id: None, start_ns: 0 };

fn sound() -> Builder {
    let mut record = Builder::new(0, 1);
    let file = record.file("/data/a");
    record.counters(file, Module::Mpiio, 0, &[(mpiio::MPIIO_INDEP_WRITES, 1)]);
    record.burst(0, 1.0, 2.0, 100, 0.1, 0).burst(0, 3.0, 4.0, 100, 0.0, 1).slow(0, file, "write", 1.0, 0.5);
    record.collective(file, 1, 1.0, 2.0, 0.5).series(0, 3, 100).calls(Module::Mpiio, 1, 1, 100, 0.5);
    record.run(1, 100, 1);
    record
}

fn reason(record: &mut Builder) -> String {
    Record::parse(&record.bytes()).err().expect("a reason")
}

#[test]
fn each_damage_has_its_reason() {
    assert!(Record::parse(&sound().bytes()).is_ok());
    let header = |offset: usize, value: u64| reason(sound().set(offset, value));
    assert_eq!(header(0, 7), "not a Weir record: wrong first word");
    let newer = MAGIC + (1 << 56);
    assert_eq!(header(0, newer), "record of layout version 6; this Weir reads version 5");
    assert_eq!(header(offset_of!(Header, rank), 1), "damaged record: rank 1 of 1 processes");
    assert_eq!(
        header(offset_of!(Header, nprocs), 1 << 60),
        "damaged record: rank 0 of 1152921504606846976 processes"
    );
    assert_eq!(header(offset_of!(Header, abi), 9), "damaged record: ABI 9");
    assert_eq!(header(offset_of!(Header, ended), 9), "damaged record: ended 9");
    assert_eq!(header(offset_of!(Header, lanes), 0), "damaged record: 0 lanes");
    assert_eq!(header(offset_of!(Header, lanes), 3), "damaged record: 3 lanes");
    assert!(header(offset_of!(Header, blocks), 3).starts_with("truncated record: "));
    assert!(header(offset_of!(Header, blocks), u64::MAX).ends_with("more than a record can hold"));
    let lane = |offset: usize, value: u64| header(lane_at(1) + offset, value);
    assert_eq!(lane(offset_of!(Lane, bursts.count), 401), "damaged record: 401 bursts, 400 at most");
    assert_eq!(lane(offset_of!(Lane, collectives.count), 65), "damaged record: 65 collectives, 64 at most");
    assert_eq!(lane(offset_of!(Lane, series.shift), 64), "damaged record: series bins of 2^64 ticks");
    assert_eq!(Record::parse(&[]).err().unwrap(), "not a Weir record: 0 bytes long");
}

#[test]
fn a_lane_that_is_not_in_use_is_not_looked_at() {
    let mut record = sound();
    record.set(lane_at(1) + offset_of!(Lane, bursts.count), 401).set(offset_of!(Header, lanes), 1);
    assert_eq!(Record::parse(&record.bytes()).unwrap().lanes(), 0..1);
}

#[test]
fn a_record_of_a_newer_layout_names_the_file() {
    let scratch = Scratch::new("newer");
    sound().set(0, MAGIC + (1 << 56)).write(&scratch.job());
    let error = finish_job(&scratch.job(), &scratch.0, UNNAMED, Duration::ZERO).unwrap_err();
    assert!(error.path.ends_with(format!("0-{}-1073741824-0.rec", records::this_host())));
    assert_eq!(error.what, "record of layout version 6; this Weir reads version 5");
}

#[test]
fn an_empty_folder_is_taken_away() {
    let scratch = Scratch::new("empty");
    assert!(merge_folder(&scratch.job(), false).unwrap().0.is_empty());
    assert!(!scratch.0.join(".weir-4711").exists());
}

/// A clock that was read once only, or ran backwards, or a job of no length, divides by nothing.
#[test]
fn clocks_that_cannot_be_right() {
    for last_ticks in [0, 1, records::FIRST_TICKS, u64::MAX] {
        for last_ns in [0, 5_000, u64::MAX] {
            let scratch = Scratch::new("clock");
            let mut record = sound();
            record.set(offset_of!(Header, clock_last.ticks), last_ticks);
            record
                .set(offset_of!(Header, clock_last.monotonic_ns), last_ns)
                .set(offset_of!(Header, end_ticks), 0);
            record.write(&scratch.job());
            let profile = merge_folder(&scratch.job(), false).unwrap().0.remove(0).profile;
            assert!(profile.phases.io_ratio.is_finite() && profile.job.duration_s.is_finite());
            assert_eq!(profile.series.bytes_written.iter().sum::<u64>(), 100);
        }
    }
}

/// Merges a record of these bytes beside a sound one, as `weir report` would.
fn merge_beside_a_sound_one(name: &str, bytes: &[u8]) {
    let scratch = Scratch::new(name);
    let mut beside = sound();
    beside.set(offset_of!(Header, nprocs), 2).set(offset_of!(Header, rank), 1).write(&scratch.job());
    fs::write(scratch.job().join("0-host-1-0.rec"), bytes).unwrap();
    let merged = merge_folder(&scratch.job(), false).unwrap().0.remove(0);
    let profile = &merged.profile;
    assert!(profile.modules["MPIIO"].counters["MPIIO_INDEP_WRITES"].as_u64() >= 1, "the sound one counts");
    let damaged = profile.ranks.iter().any(|rank| rank.ended == Fate::Damaged);
    assert_eq!(
        damaged,
        profile.notes.iter().any(|note| note.contains("0-host-1-0.rec")),
        "{:?}",
        profile.notes
    );
    serde_json::to_string(profile).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn truncation_anywhere(length in 0usize..300_000) {
        let mut bytes = sound().bytes();
        bytes.truncate(length);
        merge_beside_a_sound_one("truncated", &bytes);
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..10_000)) {
        merge_beside_a_sound_one("random", &bytes);
    }

    /// Words overwritten where they do most harm: anywhere in the used parts, with extreme values among them.
    #[test]
    fn overwritten_words(
        words in prop::collection::vec((0usize..40_000, prop_oneof![any::<u64>(), Just(u64::MAX), 0u64..1000]), 1..400),
    ) {
        let mut bytes = sound().bytes();
        for (word, value) in words {
            let at = (8 * word) % (bytes.len() - 8) / 8 * 8;
            // The first word decides whether the rest is read at all.
            if at > 0 {
                bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            }
        }
        merge_beside_a_sound_one("overwritten", &bytes);
    }

    /// The same for the header and the lists alone, which a uniform choice seldom hits.
    #[test]
    fn overwritten_header(words in prop::collection::vec((1usize..40, any::<u64>()), 1..10)) {
        let mut record = sound();
        for (word, value) in words {
            record.set(8 * word, value);
        }
        merge_beside_a_sound_one("header", &record.bytes());
    }

    #[test]
    fn overwritten_bursts(words in prop::collection::vec((0usize..64, any::<u64>()), 1..20)) {
        let mut record = sound();
        for (word, value) in words {
            record.set(lane_at(0) + offset_of!(Lane, bursts.list) + 8 * word, value);
        }
        record.set(lane_at(0) + offset_of!(Lane, bursts.count), 8);
        merge_beside_a_sound_one("bursts", &record.bytes());
    }

    #[test]
    fn overwritten_runs(words in prop::collection::vec((0usize..64, prop_oneof![any::<u64>(), 0u64..4]), 1..20)) {
        let mut record = sound();
        for (word, value) in words {
            record.set(lane_at(0) + 8 * word, value);
        }
        merge_beside_a_sound_one("runs", &record.bytes());
    }
}
