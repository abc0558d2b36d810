//! Recordings of real programs' bursts (`benches/programs/record.py` makes them): does detection find what their inputs ask for?

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use weir_profile::phases::*;

/// As the library makes bursts.
const FLOOR_NS: u64 = 1_000_000;
/// Recordings of each program.
const RUNS: usize = 5;

struct Recording {
    name: String,
    phases: u64,
    period_ns: u64,
    bursts: Vec<Span>,
}

/// `phases` and `period_us` as the program's input and output say, then a line for each burst: start and end in
/// microseconds, bytes read, bytes written.
fn read(path: &Path) -> Recording {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let mut value = |key: &str| -> u64 {
        let line = lines.next().and_then(|line| line.strip_prefix(key)).expect(key);
        line.trim().parse().unwrap()
    };
    let (phases, period_us) = (value("phases"), value("period_us"));
    let burst = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [start_us, end_us, bytes_read, bytes_written] = numbers[..] else { panic!("{line}") };
        let (start_ns, end_ns) = (start_us * 1000, end_us * 1000);
        Span { start_ns, end_ns, bytes_read, bytes_written, calls: 1, ..Span::default() }
    };
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    Recording { name, phases, period_ns: period_us * 1000, bursts: lines.map(burst).collect() }
}

fn recordings() -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bursts");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

#[test]
fn phases_are_as_many_and_as_often_as_the_input_says() {
    for Recording { name, phases, period_ns, bursts } in recordings() {
        let found = find(&bursts, FLOOR_NS);
        let (count, said_ns) = (count(&found.list), characteristic_time_ns(&found.list).unwrap_or(0));
        let what = format!("{name}: {count} phases of {phases}, every {said_ns} ns of {period_ns}");
        assert!(count.abs_diff(phases) * 10 <= phases, "{what}");
        assert!(said_ns.abs_diff(period_ns) * 20 <= period_ns, "{what}");
        assert!(!rhythm(&found.list).is_irregular, "{what}");
    }
}

#[test]
fn every_program_was_recorded_as_often() {
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    for recording in recordings() {
        let (program, _) = recording.name.rsplit_once('-').unwrap();
        *runs.entry(program.to_string()).or_default() += 1;
    }
    assert!(runs.len() >= 3 && runs.values().all(|count| *count == RUNS), "{runs:?}");
}
