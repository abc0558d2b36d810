//! The files of which most was moved.

use super::text::{bytes, counted, tail};
use weir_profile::profile::{File, Profile};

const SHOWN: usize = 3;
const FILE_WIDTH: usize = 48;
/// A file that was read so often or more is worth a word.
const MANY_TIMES: f64 = 2.0;

pub(super) fn lines(profile: &Profile) -> Vec<String> {
    let moved = || profile.files.iter().filter(|file| read(file) + written(file) > 0.0);
    let mut lines: Vec<String> = moved().take(SHOWN).map(line).collect();
    let more = moved().count().saturating_sub(SHOWN) as u64 + profile.dropped.files;
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// `9.28 MiB written, 4.00 MiB read  traj.trr, 2 ranks`.
fn line(file: &File) -> String {
    let parts = [(written(file), "written"), (read(file), "read")];
    let moved: Vec<String> = parts
        .iter()
        .filter(|(amount, _)| *amount > 0.0)
        .map(|(amount, what)| format!("{} {what}", bytes(*amount)))
        .collect();
    let ranks = counted(file.nranks, "rank");
    let again = match times_read(file) {
        Some(times) => format!(", read {times:.0} times over"),
        None => String::new(),
    };
    format!("{}  {}, {ranks}{again}", moved.join(", "), tail(&file.name, FILE_WIDTH))
}

fn counter(file: &File, name: &str) -> f64 {
    let module = name.split('_').next().unwrap_or_default();
    let counters = file.modules.get(module);
    counters.and_then(|counters| counters.get(name)).map_or(0.0, |value| value.as_f64())
}

/// What the program itself moved: POSIX calls of the MPI library move MPI-IO's bytes once more.
fn moved(file: &File, direction: &str) -> f64 {
    let bytes = |module: &str| counter(file, &format!("{module}_BYTES_{direction}"));
    bytes("MPIIO") + bytes("POSIX") - counter(file, &format!("POSIX_MPI_BYTES_{direction}")) + bytes("STDIO")
}

fn read(file: &File) -> f64 {
    moved(file, "READ")
}

fn written(file: &File) -> f64 {
    moved(file, "WRITTEN")
}

/// How often the part of a file that was read at all was read; `None` where that is not known or not worth a word.
fn times_read(file: &File) -> Option<f64> {
    let highest = counter(file, "POSIX_MAX_BYTE_READ");
    let times = counter(file, "POSIX_BYTES_READ") / (highest + 1.0);
    // The highest byte is 0 of a file of which one byte was read, and of one of which none was.
    (highest > 0.0 && times.round() >= MANY_TIMES).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use std::collections::BTreeMap;
    use weir_profile::profile::Value;

    fn file(counters: &[(&'static str, u64)]) -> File {
        let mut modules: BTreeMap<Cow<'static, str>, BTreeMap<Cow<'static, str>, Value>> = BTreeMap::new();
        for (name, value) in counters {
            let module = name.split('_').next().unwrap_or_default();
            let module = modules.entry(Cow::Borrowed(module)).or_default();
            module.insert(Cow::Borrowed(name), Value::Count(*value));
        }
        let name = "/scratch/traj.trr".to_string();
        File { name, nranks: 1, ranks: vec![0], naggregators: 0, aggregators: vec![], modules }
    }

    #[test]
    fn what_was_read_and_what_was_written_are_told_apart() {
        let both = file(&[("POSIX_BYTES_READ", 4 << 20), ("POSIX_BYTES_WRITTEN", 10 << 20)]);
        assert_eq!(line(&both), "10.0 MiB written, 4.00 MiB read  /scratch/traj.trr, 1 rank");
        let beneath_mpi = file(&[
            ("MPIIO_BYTES_WRITTEN", 1 << 20),
            ("POSIX_BYTES_WRITTEN", 1 << 20),
            ("POSIX_MPI_BYTES_WRITTEN", 1 << 20),
        ]);
        assert_eq!(line(&beneath_mpi), "1.00 MiB written  /scratch/traj.trr, 1 rank");
    }

    #[test]
    fn a_file_that_is_read_again_and_again_is_named() {
        let again = file(&[("POSIX_BYTES_READ", 60 * 1024), ("POSIX_MAX_BYTE_READ", 1023)]);
        assert_eq!(line(&again), "60.0 KiB read  /scratch/traj.trr, 1 rank, read 60 times over");
        let once = file(&[("POSIX_BYTES_READ", 1100), ("POSIX_MAX_BYTE_READ", 1023)]);
        assert_eq!(line(&once), "1.07 KiB read  /scratch/traj.trr, 1 rank");
    }
}
