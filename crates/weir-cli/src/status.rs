//! `weir status`: who coordinates, who is in I/O and who waits.

use crate::{Outcome, output};
use serde_json::Value;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use weir_coord::address::Choice;
use weir_coord::auth::Key;
use weir_coord::election::{default_directory, find};
use weir_coord::query::query_status;
use weir_coord::text::printable;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// elect, elect:/directory, unix:/path or tcp://host:port [default: WEIR_COORDINATOR, else elect]
    #[arg(value_name = "COORDINATOR")]
    coordinator: Option<Choice>,
    /// The file with the key of a coordinator on TCP [default: WEIR_KEY]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print what the coordinator answers, as JSON
    #[arg(long)]
    json: bool,
    /// Ask again every second until interrupted
    #[arg(long)]
    watch: bool,
}

const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args) -> Outcome {
    let choice = match (&args.coordinator, variable("WEIR_COORDINATOR")) {
        (Some(choice), _) => choice.clone(),
        (None, Some(value)) => value.parse().map_err(|error| format!("WEIR_COORDINATOR {error}"))?,
        (None, None) => Choice::Elect(None),
    };
    let key_file = args.key.clone().or_else(|| variable("WEIR_KEY").map(PathBuf::from));
    let key = key_file.as_deref().map(Key::read).transpose()?;
    let clear = if args.watch && std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    loop {
        match ask(&choice, key.as_ref()).and_then(|answer| shown(&answer, args.json)) {
            Ok(text) => output::print(&format!("{clear}{text}"))?,
            // While watching, a coordinator that goes is news and no reason to stop.
            Err(error) if args.watch => output::print(&format!("{clear}{error}\n"))?,
            Err(error) => return Err(error),
        }
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn ask(choice: &Choice, key: Option<&Key>) -> Result<String, String> {
    match choice {
        Choice::Off => Err("coordination is off".into()),
        Choice::Service(address) => query_status(address, key, TIMEOUT),
        Choice::Elect(directory) => ask_elected(&directory.clone().unwrap_or_else(default_directory), key),
    }
}

fn ask_elected(directory: &Path, key: Option<&Key>) -> Result<String, String> {
    let mut outcome = Err(String::new());
    for (address, published) in find(directory)
        .map_err(|error| format!("{error}; jobs under `weir run` elect one with their first I/O"))?
    {
        outcome = query_status(&address, published.as_ref().or(key), TIMEOUT);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// How whoever coordinates in the directory calls itself, if it says so.
pub(crate) fn coordinator(directory: &Path) -> Option<String> {
    let status: Value = serde_json::from_str(&ask_elected(directory, None).ok()?).ok()?;
    status["coordinator"].as_str().map(printable)
}

fn shown(answer: &str, as_json: bool) -> Result<String, String> {
    if as_json {
        // Whose strings have theirs spelt out by themselves.
        return Ok(format!("{}\n", printable(answer)));
    }
    let mut status: Value = serde_json::from_str(answer).map_err(|error| format!("no status: {error}"))?;
    make_printable(&mut status);
    Ok(text(&status))
}

/// No string in there has control characters any more.
fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text),
        Value::Array(items) => items.iter_mut().for_each(make_printable),
        Value::Object(fields) => fields.values_mut().for_each(make_printable),
        _ => {}
    }
}

/// The status for people: who coordinates, then a line per job.
fn text(status: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let word = |value: &Value| value.as_str().unwrap_or("?").to_string();
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} with policy {}, order {}, up {:.0} s, on {}\n{} jobs, {}/s now, {:.0} decisions/s, {} turned away, {} leases expired\n",
        word(&status["coordinator"]),
        word(&status["policy"]),
        word(&status["order"]),
        number(&status["up_s"]),
        status["listens_on"].as_array().into_iter().flatten().map(word).collect::<Vec<_>>().join(", "),
        status["jobs"].as_array().map_or(0, Vec::len),
        bytes(number(&status["bandwidth_bytes_per_s"])),
        number(&status["decisions_per_s"]),
        status["refused"],
        status["leases_expired"],
    );
    let _ = writeln!(
        out,
        "{:<28} {:<16} {:>5} {:>4} {:<10} {:>8} {:>6} {:>7} {:>10} {:>9} {:>9}",
        "JOB", "APPLICATION", "NODES", "SET", "STATE", "FOR", "SHARE", "PHASES", "MOVED", "HELD", "WAITED"
    );
    for job in status["jobs"].as_array().into_iter().flatten() {
        let share = number(&job["share"]);
        let _ = writeln!(
            out,
            "{:<28} {:<16} {:>5} {:>4} {:<10} {:>7.1}s {:>6} {:>7} {:>10} {:>8.1}s {:>8.1}s",
            word(&job["job"]),
            word(&job["application"]),
            job["nodes"].as_array().map_or(0, Vec::len),
            job["set"].as_f64().map_or("-".into(), |set| format!("{set:.0}")),
            word(&job["state"]),
            number(&job["state_s"]),
            if share > 0.0 { format!("{share:.3}") } else { "-".into() },
            number(&job["phases"]),
            bytes(number(&job["moved_bytes"]) + number(&job["phase_bytes"])),
            number(&job["held_s"]),
            number(&job["waited_s"]),
        );
    }
    let _ = write!(out, "{}{}", places(status), targets(status));
    out
}

/// Which jobs read where and wait for that. A target has no name that all nodes know.
fn targets(status: &Value) -> String {
    let mut out = String::new();
    for target in status["targets"].as_array().into_iter().flatten() {
        let jobs = |what: &str| {
            let mut names: Vec<&str> =
                target[what].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let readers = names.len();
            names.sort_unstable();
            names.dedup();
            if names.is_empty() { "nobody".into() } else { format!("{} ({readers})", names.join(", ")) }
        };
        let _ = writeln!(
            out,
            "\ntarget {}: {} reads, {} waits; {} turns, {} overdue",
            target["target"].as_str().unwrap_or("?"),
            jobs("reading"),
            jobs("waiting"),
            target["turns"],
            target["overdue"],
        );
    }
    out
}

/// Which targets the files of jobs have.
fn places(status: &Value) -> String {
    let mut out = String::new();
    for storage in status["storages"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "\n{}:", storage["path"].as_str().unwrap_or("?"));
        for job in status["jobs"].as_array().into_iter().flatten() {
            let allocations = job["allocations"].as_array().into_iter().flatten();
            for allocation in allocations.filter(|allocation| allocation["storage"] == storage["path"]) {
                let _ = writeln!(
                    out,
                    "  {:<26} {} files open, on targets {}",
                    job["job"].as_str().unwrap_or("?"),
                    allocation["files"],
                    ranges(&allocation["targets"]),
                );
            }
        }
    }
    out
}

/// `0-3, 7`.
fn ranges(targets: &Value) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for target in targets.as_array().into_iter().flatten().filter_map(Value::as_u64) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == target => *last = target,
            _ => ranges.push((target, target)),
        }
    }
    let text = |(first, last): (u64, u64)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_shown_with_a_line_per_job() {
        let status = serde_json::json!({
            "coordinator": "job 4711 on node7", "policy": "set10", "order": "hio", "up_s": 12.3, "refused": 0, "leases_expired": 1,
            "bandwidth_bytes_per_s": 3.5e6, "decisions_per_s": 12.0, "listens_on": ["unix:/run/a", "tcp://n:1"],
            "jobs": [{ "job": "4711", "application": "lammps", "nodes": [{}], "set": 1.0, "state": "in I/O",
                       "state_s": 0.5, "share": 0.9, "phases": 3, "phase_bytes": 1024, "moved_bytes": 0, "held_s": 0.25,
                       "waited_s": 0.5 }],
        });
        let text = text(&status);
        assert!(
            text.starts_with("job 4711 on node7 with policy set10, order hio, up 12 s, on unix:/run/a, tcp://n:1\n1 jobs, 3.3 MiB/s now"),
            "{text}"
        );
        let line = text.lines().last().unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>()[..6],
            ["4711", "lammps", "1", "1", "in", "I/O"]
        );
    }

    #[test]
    fn what_a_coordinator_says_gives_no_orders_to_the_terminal() {
        let answer = r#"{ "coordinator": "\u001b[2J", "listens_on": ["\u009b2J"], "refused": "\u007f",
                          "jobs": [{ "job": "a\u001b]0;b\u0007" }], "storages": [{ "path": "/\r" }] }"#;
        let shown = shown(answer, false).unwrap();
        assert!(!shown.replace('\n', "").contains(char::is_control), "{shown:?}");
        assert!(shown.starts_with("\\u001b[2J with policy ?"), "{shown}");
        let json = super::shown("{}\u{1b}[2J", true).unwrap();
        assert_eq!(json, "{}\\u001b[2J\n");
    }

    #[test]
    fn places_are_shown_by_storage() {
        let status = serde_json::json!({
            "storages": [{ "path": "/scratch" }],
            "jobs": [{ "job": "4711", "allocations": [
                { "storage": "/scratch", "targets": [0, 1, 2, 5, 7, 8], "files": 3 },
                { "storage": "/home", "targets": [1], "files": 1 },
            ] }],
        });
        let text = places(&status);
        assert!(text.starts_with("\n/scratch:\n"), "{text}");
        assert!(text.ends_with("3 files open, on targets 0-2, 5, 7-8\n"), "{text}");
    }

    #[test]
    fn targets_are_shown_with_who_reads_and_who_waits() {
        let status = serde_json::json!({ "targets": [
            { "target": "00ff", "reading": ["b", "b"], "waiting": ["c", "a", "c"], "turns": 7, "overdue": 1 },
            { "target": "0001", "reading": [], "waiting": [], "turns": 2, "overdue": 0 },
        ] });
        let text = "\ntarget 00ff: b (2) reads, a, c (3) waits; 7 turns, 1 overdue\n\
            \ntarget 0001: nobody reads, nobody waits; 2 turns, 0 overdue\n";
        assert_eq!(targets(&status), text);
    }
}
