//! A job's I/O on one screen.

use super::advice::advice;
use super::text::{bytes, counted, percent, ranks, seconds, sparkline, tail};
use super::{exchange, files, moment, turns};
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_coord::text::printable;
use weir_profile::describe_end;
use weir_profile::profile::{Children, Fate, PhaseClass, Phases, Profile, Rank};

/// How the text is dressed: plain, or with bold labels on a terminal.
#[derive(Clone, Copy)]
pub(crate) struct Dress {
    pub(crate) bold: bool,
}

impl Dress {
    pub(crate) fn strong(self, text: &str) -> String {
        if self.bold { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Whatever the profile's strings have in them (names of files, phases, hosts), it stays one line and orders nothing.
    fn line(self, out: &mut String, label: &str, text: &str) {
        let _ = writeln!(out, "{} {}", self.strong(&format!("{label:<12}")), printable(text));
    }
}

const FILE_WIDTH: usize = 48;

pub(crate) fn summary(profile: &Profile, dress: Dress) -> String {
    let mut out = String::new();
    head(&mut out, profile, dress);
    volume(&mut out, profile, dress);
    time(&mut out, profile, dress);
    phases(&mut out, profile, dress);
    turns(&mut out, profile, dress);
    collectives(&mut out, profile, dress);
    slowest(&mut out, profile, dress);
    files(&mut out, profile, dress);
    ends(&mut out, profile, dress);
    children(&mut out, profile, dress);
    look_at(&mut out, profile, dress);
    out
}

fn head(out: &mut String, profile: &Profile, dress: Dress) {
    let job = &profile.job;
    let (application, id) = (printable(&job.application), printable(&job.id));
    let _ = writeln!(out, "{}  job {id}  {}", dress.strong(&application), printable(&job.ended));
    let ran = format!(
        "{} on {}, {} ({} ABI), {}, ran {}{}",
        counted(job.nprocs, "rank"),
        counted(job.nnodes, "node"),
        mpi_name(&job.mpi),
        job.abi,
        moment::local(&job.start),
        seconds(job.duration_s),
        if job.spawned { ", spawned by another job" } else { "" }
    );
    let _ = writeln!(out, "{}\n", printable(&ran));
}

/// Open MPI tells where it was packaged behind its name and version.
fn mpi_name(version: &str) -> &str {
    let end = [" package:", ", package", ","].iter().filter_map(|mark| version.find(mark)).min();
    &version[..end.unwrap_or(version.len())]
}

fn volume(out: &mut String, profile: &Profile, dress: Dress) {
    let moved = profile.ranks.iter().map(Rank::moved_bytes);
    let (read, written) = moved.fold((0.0, 0.0), |sum, [read, written]| (sum.0 + read, sum.1 + written));
    let speed = speed(&profile.phases)
        .map_or(String::new(), |bytes_per_s| format!(", {}/s while in I/O", bytes(bytes_per_s)));
    dress.line(out, "Moved", &format!("{} written, {} read{speed}", bytes(written), bytes(read)));
    let count = |module: &str, names: &[&str]| -> u64 {
        let counters = profile.modules.get(module).map(|module| &module.counters);
        names.iter().filter_map(|name| counters?.get(*name)).map(|value| value.as_u64()).sum()
    };
    let kinds = [
        ("collective", count("MPIIO", &["MPIIO_COLL_READS", "MPIIO_COLL_WRITES"])),
        ("split", count("MPIIO", &["MPIIO_SPLIT_READS", "MPIIO_SPLIT_WRITES"])),
        ("nonblocking", count("MPIIO", &["MPIIO_NB_READS", "MPIIO_NB_WRITES"])),
        ("independent", count("MPIIO", &["MPIIO_INDEP_READS", "MPIIO_INDEP_WRITES"])),
    ];
    let mpiio: Vec<String> =
        kinds.iter().filter(|kind| kind.1 > 0).map(|(kind, n)| format!("{n} {kind}")).collect();
    let mpiio = if mpiio.is_empty() { "none".to_string() } else { mpiio.join(", ") };
    let posix = count("POSIX", &["POSIX_READS", "POSIX_WRITES"]);
    let stdio = count("STDIO", &["STDIO_READS", "STDIO_WRITES"]);
    dress.line(out, "Data calls", &format!("MPI-IO {mpiio}; POSIX {posix}; STDIO {stdio}"));
}

/// Other calls are named if they take this part of the time in I/O or more.
const WORTH_A_WORD: f64 = 0.01;

/// How much of the run the mean rank spent in I/O calls, and in which.
fn time(out: &mut String, profile: &Profile, dress: Dress) {
    let (Some(time), Some(ratio)) = (&profile.io_time, profile.phases.io_time_ratio) else { return };
    let mean = |sum_s: f64| seconds(sum_s / profile.job.nprocs.max(1) as f64);
    let mut parts = vec![
        format!("open/close {}", mean(time.open_close_s)),
        format!("write {}", mean(time.write_s)),
        format!("read {}", mean(time.read_s)),
        format!("sync {}", mean(time.sync_s)),
    ];
    if time.other_s > WORTH_A_WORD * time.total_s() {
        parts.push(format!("other {}", mean(time.other_s)));
    }
    let slowest = profile.ranks.iter().max_by(|a, b| a.io_s.total_cmp(&b.io_s));
    let of_ranks = match slowest.filter(|_| profile.job.nprocs > 1) {
        Some(rank) => {
            let own_run_s = profile.job.duration_s - rank.held_back_s;
            format!(
                " (mean rank; slowest rank {}: {})",
                rank.rank,
                percent(rank.io_s.min(own_run_s), own_run_s)
            )
        }
        None => String::new(),
    };
    let text = format!("{} of the run in I/O: {}{of_ranks}", percent(ratio, 1.0), parts.join(", "));
    dress.line(out, "Time", &text);
}

/// Bytes of the phases by their time, time held back taken out. Marked phases may overlap.
fn speed(phases: &Phases) -> Option<f64> {
    let Phases { list, unlisted, .. } = phases;
    let mut length_s = unlisted.length_s - unlisted.wait_s;
    let mut moved = unlisted.bytes_read as f64 + unlisted.bytes_written as f64;
    let mut covered_s = f64::NEG_INFINITY;
    for phase in list {
        length_s += (phase.end_s - phase.start_s.max(covered_s) - phase.wait_s).max(0.0);
        covered_s = covered_s.max(phase.end_s);
        moved += phase.bytes_read as f64 + phase.bytes_written as f64;
    }
    (length_s > 0.0).then(|| moved / length_s)
}

fn phases(out: &mut String, profile: &Profile, dress: Dress) {
    let phases = &profile.phases;
    let every = match phases.characteristic_time_s {
        Some(time_s) => format!(", characteristic time {}", seconds(time_s)),
        None => String::new(),
    };
    let gap = match (phases.gap_s, phases.gap_source.as_str()) {
        (Some(gap_s), source) if phases.count > 1 => format!(" (gap {source}: {})", seconds(gap_s)),
        (None, "marked") => format!(" (marked{})", phase_names(phases)),
        _ => String::new(),
    };
    let text = format!(
        "{}{every}, I/O ratio {}{gap}",
        counted(phases.count, "phase"),
        percent(phases.io_ratio, 1.0)
    );
    dress.line(out, "Phases", &text);
    if let Some(rhythm) = rhythm(phases) {
        dress.line(out, "Rhythm", &rhythm);
    }
    let series = &profile.series;
    let moved: Vec<u64> =
        series.bytes_read.iter().zip(&series.bytes_written).map(|(r, w)| r.saturating_add(*w)).collect();
    if let Some(highest) = moved.iter().max().filter(|highest| **highest > 0) {
        let peak = bytes(*highest as f64 / series.bin_s);
        dress.line(out, "Over time", &format!("▕{}▏ peak {peak}/s", sparkline(&moved, 64)));
    }
}

/// Classes that the text names.
const SHOWN_CLASSES: usize = 3;

/// Whether the phases come at regular times, and the kinds of phases if there are several.
fn rhythm(phases: &Phases) -> Option<String> {
    let confidence = phases.confidence.filter(|_| phases.count > 2)?;
    let regular = if phases.irregular {
        "irregular: no period is seen".to_string()
    } else {
        format!("regular, {} sure", percent(confidence, 1.0))
    };
    if phases.classes.len() < 2 {
        return Some(regular);
    }
    let class = |class: &PhaseClass| {
        let size = match (class.bytes_written, class.bytes_read) {
            (written, 0) => format!("{} written", bytes(written as f64)),
            (0, read) => format!("{} read", bytes(read as f64)),
            (written, read) => format!("{} written and {} read", bytes(written as f64), bytes(read as f64)),
        };
        let every = class.period_s.map_or(String::new(), |period_s| format!(" every {}", seconds(period_s)));
        format!("{}× {size}{every}", class.count)
    };
    let shown: Vec<String> = phases.classes.iter().take(SHOWN_CLASSES).map(class).collect();
    let more = if phases.classes.len() > shown.len() { "; …" } else { "" };
    Some(format!("{regular}: {}{more}", shown.join("; ")))
}

/// What the program called its phases, and how often if all of them are listed.
fn phase_names(phases: &Phases) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for name in phases.list.iter().filter_map(|phase| phase.name.as_deref()) {
        *counts.entry(name).or_default() += 1;
    }
    let all = phases.unlisted.count == 0;
    let show =
        |(name, count): (&&str, &u64)| if all { format!("{count}× {name}") } else { name.to_string() };
    let shown: Vec<String> = counts.iter().take(4).map(show).collect();
    let more = if counts.len() > shown.len() { ", …" } else { "" };
    if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join(", ")) }
}

fn turns(out: &mut String, profile: &Profile, dress: Dress) {
    if let Some(line) = turns::line(&profile.coordination) {
        dress.line(out, "Turns", &line);
    }
}

fn collectives(out: &mut String, profile: &Profile, dress: Dress) {
    let collectives = &profile.collectives;
    if collectives.calls == 0 {
        return;
    }
    let text = format!(
        "{} of rank time: {} file, {} shuffle and waiting",
        seconds(collectives.time_s),
        percent(collectives.file_time_s, collectives.time_s),
        percent(collectives.rest_s, collectives.time_s)
    );
    dress.line(out, "Collectives", &text);
    let mut by_host: BTreeMap<&str, (Vec<u64>, f64)> = BTreeMap::new();
    for aggregator in &collectives.aggregators {
        let host = by_host.entry(&aggregator.host).or_default();
        host.0.push(aggregator.rank);
        host.1 += aggregator.file_bytes as f64;
    }
    let hosts: Vec<String> = by_host
        .iter()
        .take(3)
        .map(|(host, (on, moved))| format!("{} on {host} {}", ranks(on), bytes(*moved)))
        .collect();
    let more = if by_host.len() > 3 { format!("; {} more nodes", by_host.len() - 3) } else { String::new() };
    let count = counted(collectives.aggregators.len() as u64, "rank");
    let of = format!("{count} of {}", profile.job.nprocs);
    let text =
        if hosts.is_empty() { "none seen".into() } else { format!("{of}: {}{more}", hosts.join("; ")) };
    dress.line(out, "Aggregators", &text);
    for (index, line) in exchange::lines(&collectives.exchange).iter().enumerate() {
        dress.line(out, if index == 0 { "Shuffle" } else { "" }, line);
    }
}

fn slowest(out: &mut String, profile: &Profile, dress: Dress) {
    for (index, slow) in profile.slowest.iter().take(3).enumerate() {
        let text = format!(
            "{:>8}  {} of {} by rank {} at {}, {}",
            seconds(slow.duration_s),
            slow.op,
            bytes(slow.bytes as f64),
            slow.rank,
            seconds(slow.start_s),
            tail(&slow.file, FILE_WIDTH)
        );
        dress.line(out, if index == 0 { "Slowest" } else { "" }, &text);
    }
}

fn files(out: &mut String, profile: &Profile, dress: Dress) {
    for (index, line) in files::lines(profile).iter().enumerate() {
        dress.line(out, if index == 0 { "Files" } else { "" }, line);
    }
}

/// What processes that ranks have forked did, which is in all the sums.
fn children(out: &mut String, profile: &Profile, dress: Dress) {
    let all = || profile.ranks.iter().filter_map(|rank| Some((rank.rank, rank.children?)));
    let parents: Vec<u64> = all().map(|(rank, _)| rank).collect();
    let sum = |part: fn(&Children) -> u64| all().map(|(_, children)| part(&children) as f64).sum::<f64>();
    if !parents.is_empty() {
        let count = all().fold(0u64, |sum, (_, children)| sum.saturating_add(children.count));
        let text = format!(
            "{} forked by {} {}: {} written, {} read",
            if count == 1 { "1 process".to_string() } else { format!("{count} processes") },
            if parents.len() == 1 { "rank" } else { "ranks" },
            ranks(&parents),
            bytes(sum(|children| children.bytes_written)),
            bytes(sum(|children| children.bytes_read))
        );
        dress.line(out, "Children", &text);
    }
}

/// How many ranks ended how; whoever did not end well is named.
fn ends(out: &mut String, profile: &Profile, dress: Dress) {
    let mut by_fate: BTreeMap<Fate, Vec<&weir_profile::profile::Rank>> = BTreeMap::new();
    for rank in &profile.ranks {
        by_fate.entry(rank.ended).or_default().push(rank);
    }
    let describe = |(fate, list): (&Fate, &Vec<&weir_profile::profile::Rank>)| {
        let numbers: Vec<u64> = list.iter().map(|rank| rank.rank).collect();
        match list.as_slice() {
            _ if matches!(fate, Fate::Finalized) => format!("{} finalized", numbers.len()),
            _ if matches!(fate, Fate::Idle) => format!("{} without I/O", numbers.len()),
            [only] => format!("{}: {}", fate.name(), describe_end(only)),
            _ => format!("{} {} (ranks {})", numbers.len(), fate.name(), ranks(&numbers)),
        }
    };
    let texts: Vec<String> = by_fate.iter().map(describe).collect();
    dress.line(out, "Ranks", &texts.join("; "));
}

fn look_at(out: &mut String, profile: &Profile, dress: Dress) {
    let mut advice = advice(profile);
    advice.extend(profile.notes.iter().take(4).cloned());
    let dropped = &profile.dropped;
    if dropped.requests + dropped.handles > 0 {
        advice.push(format!(
            "{} and {} could not be followed to their end",
            counted(dropped.requests, "nonblocking operation"),
            counted(dropped.handles, "call")
        ));
    }
    out.push('\n');
    if advice.is_empty() {
        dress.line(out, "Look at", "nothing stands out");
    }
    for (index, line) in advice.iter().enumerate() {
        dress.line(out, if index == 0 { "Look at" } else { "" }, line);
    }
}
