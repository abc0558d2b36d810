//! Programs that do not reach `MPI_Finalize`: what was measured is there, and who ended how.

use super::{Place, Scenario, scenario};
use crate::mpi::c;
use crate::run::Job;
use crate::{Verdict, ensure, profile};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

const RANKS: usize = 3;

/// A way to end, and what the profile is to say of a rank that ended so.
struct Ending {
    how: &'static str,
    fates: &'static [&'static str],
    code: Option<i64>,
    signal: Option<&'static str>,
}

const ENDINGS: &[Ending] = &[
    Ending { how: "exit", fates: &["exited"], code: Some(3), signal: None },
    Ending { how: "_exit", fates: &["exited"], code: Some(4), signal: None },
    Ending { how: "quick_exit", fates: &["exited"], code: Some(6), signal: None },
    Ending { how: "execve", fates: &["replaced"], code: None, signal: None },
    Ending { how: "execlp", fates: &["replaced"], code: None, signal: None },
    Ending { how: "execl_SIGKILL", fates: &["killed"], code: None, signal: None },
    Ending { how: "abort", fates: &["aborted"], code: Some(5), signal: None },
    Ending { how: "SIGSEGV", fates: &["signalled"], code: None, signal: Some("SIGSEGV") },
    Ending { how: "damaged_heap", fates: &["signalled"], code: None, signal: Some("SIGSEGV") },
    Ending { how: "SIGTERM", fates: &["signalled"], code: None, signal: Some("SIGTERM") },
    // A handler of the program's own, of later than its first I/O, that passes on what is not meant for it.
    Ending { how: "SIGTERM_passed_on", fates: &["signalled"], code: None, signal: Some("SIGTERM") },
    Ending { how: "SIGSEGV_passed_on", fates: &["signalled"], code: None, signal: Some("SIGSEGV") },
    Ending { how: "SIGTERM_by_kernel", fates: &["signalled"], code: None, signal: Some("SIGTERM") },
    Ending { how: "SIGSEGV_by_kernel", fates: &["signalled"], code: None, signal: Some("SIGSEGV") },
    Ending { how: "SIGKILL", fates: &["killed"], code: None, signal: None },
];

pub(super) fn list() -> Vec<Scenario> {
    let both = ENDINGS.iter().flat_map(|ending| [(ending, "one"), (ending, "all")]);
    both.map(|(ending, who)| {
        scenario(format!("ending_{}_{who}", ending.how), move |place: &Place| ended(place, ending, who))
    })
    .collect()
}

fn ended(place: &Place, ending: &Ending, who: &str) -> Verdict {
    let executable = place.mpi.build(&c("ending", "tests/programs/ending.c", &[]))?;
    let command: [OsString; 3] = [executable.into(), ending.how.into(), who.into()];
    let job = Job::mpi(&place.name, &place.mpi, RANKS, command);
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    // The launcher's own words go to standard output with some MPIs, process numbers among them.
    crate::run::same_files(&bare.files, &with.files)?;
    // Which rank's code the launcher passes on is a race among them.
    ensure(bare.code != 0 && with.code != 0, || {
        format!("codes {} and {}: no failure seen", bare.code, with.code)
    })?;

    let profile = settled(&with.profiles)?;
    profile::validate(&profile)?;
    let printed = std::fs::read_to_string(with.files.join("stdout"))?;
    profile::agrees(&profile::tally(&printed)?, &[&profile])?;

    let ranks = profile["ranks"].as_array().ok_or("no ranks")?;
    ensure(ranks.len() == RANKS, || format!("{} ranks of {RANKS}", ranks.len()))?;
    // With `one` it is the last; how the launcher gets rid of the others is its own business. With
    // `all` it may get rid of some before they do what they were told.
    let last = &ranks[RANKS - 1];
    // A handler of the MPI library's that uses the damaged heap is ended by that.
    let is_by_damage = |rank: &Value| ending.how == "damaged_heap" && rank["signal"] == "SIGABRT";
    let as_told = |rank: &Value| {
        ending.fates.iter().any(|fate| rank["ended"] == *fate)
            && ending.code.is_none_or(|code| rank["code"] == code)
            && ending.signal.is_none_or(|signal| rank["signal"] == signal || is_by_damage(rank))
    };
    let right = if who == "one" { as_told(last) } else { ranks.iter().any(as_told) };
    ensure(right, || format!("{} of {who}, but ranks are {}", ending.how, profile["ranks"]))?;
    ensure(ranks.iter().all(|rank| rank["ended"] != "running"), || {
        format!("still running: {}", profile["ranks"])
    })?;

    let (code, text, errors) = profile::report(&[], &with.profiles)?;
    ensure(code == 0 && text.contains("rank"), || format!("weir report: {code}\n{text}{errors}"))
}

/// The merged profile once no rank is running any more: launchers return before all of them are gone.
fn settled(folder: &Path) -> Verdict<Value> {
    for _ in 0..100 {
        let (code, json, errors) = profile::report(&["--json"], folder)?;
        ensure(code == 0, || format!("weir report: {code}\n{json}{errors}"))?;
        let profile: Value = serde_json::from_str(&json).map_err(|error| format!("{error}:\n{json}"))?;
        if profile["ranks"].as_array().into_iter().flatten().all(|rank| rank["ended"] != "running") {
            return Ok(profile);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("ranks are still running 10 s after their launcher ended".into())
}
