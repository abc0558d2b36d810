//! Calls that failed, in words.

use super::text::{seconds, tail};
use weir_profile::profile::{Failure, Profile};

/// Kinds of failed calls that the text names.
const NAMED: usize = 3;
const FILE_WIDTH: usize = 48;

/// A line for each of the kinds that failed most, and one for the rest; none for calls that only asked whether a file is there.
pub(super) fn lines(profile: &Profile) -> Vec<String> {
    let failed: u64 = ["MPIIO", "POSIX", "STDIO"].iter().map(|module| counted(profile, module)).sum();
    let harmless = || profile.errors.iter().filter(|failure| failure.harmless);
    let mut rest = failed.saturating_sub(harmless().map(|failure| failure.count).sum());
    let mut lines = Vec::new();
    for failure in profile.errors.iter().filter(|failure| !failure.harmless).take(NAMED) {
        rest = rest.saturating_sub(failure.count);
        lines.push(line(failure, profile.job.nprocs));
    }
    match (rest, lines.is_empty()) {
        (0, _) => {}
        (1, true) => lines.push("1 I/O call returned an error".into()),
        (rest, true) => lines.push(format!("{rest} I/O calls returned an error")),
        (rest, false) => lines.push(format!("{rest} more I/O calls failed in other ways")),
    }
    lines
}

fn counted(profile: &Profile, module: &str) -> u64 {
    let counters = profile.modules.get(module).map(|module| &module.counters);
    let errors = counters.and_then(|counters| counters.get(format!("{module}_ERRORS").as_str()));
    errors.map_or(0, |value| value.as_u64())
}

/// `write of /scratch/a.dat failed 3×: no space left on device (ENOSPC), first on rank 2 at 12.0 s`.
fn line(failure: &Failure, nprocs: u64) -> String {
    let times = if failure.count > 1 { format!(" {}×", failure.count) } else { String::new() };
    let error = match failure.errno {
        Some(errno) => format!("{} ({})", described(errno), failure.error),
        None => failure.error.clone(),
    };
    let by = match (nprocs, failure.nranks) {
        (1, _) => String::new(),
        (_, 1) => format!(" on rank {}", failure.rank),
        (_, several) => format!(" on {several} ranks"),
    };
    let first = if failure.count > 1 { ", first" } else { "," };
    let at = seconds(failure.start_s);
    format!("{} of {} failed{times}{by}: {error}{first} at {at}", failure.op, tail(&failure.file, FILE_WIDTH))
}

/// What the C library says of an error, without the number that Rust puts behind it.
fn described(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    let mut chars = text[..end].chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
