//! Calls that move no data: they are I/O phases and time in I/O as any other, and what fails is named.

use super::{Place, SYSTEM, Scenario, scenario};
use crate::mpi::c;
use crate::run::{Job, Ran};
use crate::{Verdict, ensure, profile};
use serde_json::Value;
use std::ffi::OsString;

const BURSTS: u64 = 4;

pub(super) fn list() -> Vec<Scenario> {
    let phases = ["posix", "mpi"].into_iter().map(|kind| {
        scenario(format!("metadata_{kind}"), move |place: &Place| are_phases(place, kind)).only(SYSTEM)
    });
    phases.chain([scenario("failures", failures_are_named)]).collect()
}

fn are_phases(place: &Place, kind: &str) -> Verdict {
    let executable = place.mpi.build(&c("metadata", "tests/programs/metadata.c", &[]))?;
    let command: [OsString; 3] = [executable.into(), kind.into(), BURSTS.to_string().into()];
    // Between the pauses of the program and those in which a busy machine does something else.
    let job = Job::mpi(&place.name, &place.mpi, 1, command).variable("WEIR_PHASE_GAP", "150ms");
    let ran = job.with_library().run("weir")?;
    let profile = profile::only(&ran, 1)?;
    let sums = profile::tally(&ran.stdout)?;
    for (key, did) in &sums {
        let module = key.split('_').next().unwrap_or_default();
        let counted = &profile["modules"][module]["counters"][key];
        ensure(*counted == *did, || format!("{key}: {counted}, but the program did {did}"))?;
    }
    let phases = &profile["phases"];
    ensure(phases["count"] == BURSTS, || format!("{} phases of {BURSTS}", phases["count"]))?;
    let said = |value: &Value| value.as_f64().unwrap_or(-1.0);
    let run_s = said(&profile["job"]["duration_s"]);
    let length_s = said(&phases["io_ratio"]) * run_s;
    near("time in phases", length_s, printed(&ran, "BURSTS")?, 0.8)?;
    near("opens and closes", said(&profile["io_time"]["open_close_s"]), printed(&ran, "CALLS")?, 0.3)?;
    let ratio = said(&phases["io_time_ratio"]);
    let total_s = said(&profile["ranks"][0]["io_s"]);
    ensure((ratio * run_s - total_s).abs() < 1e-3, || format!("{ratio} of {run_s} s is not {total_s} s"))?;
    let (code, text, errors) = profile::report(&[], &ran.profiles)?;
    ensure(code == 0 && text.contains(" of the run in I/O: open/close "), || format!("{text}\n{errors}"))
}

fn printed(ran: &Ran, word: &str) -> Verdict<f64> {
    let line = ran.stdout.lines().find_map(|line| line.strip_prefix(word));
    let number = line.and_then(|number| number.trim().parse::<f64>().ok());
    Ok(number.ok_or_else(|| format!("no {word} in {}", ran.stdout))?)
}

/// What the program measures has its own looks at the clock in it, and what Weir adds: of it, so much is left at least.
fn near(what: &str, said_s: f64, was_s: f64, least: f64) -> Verdict {
    let is_near = said_s <= was_s * 1.02 && said_s >= was_s * least;
    ensure(is_near, || format!("{what}: {said_s} s, but it was {was_s}"))
}

fn failures_are_named(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("failures", "tests/programs/failures.c", &[]))?;
    let ran = Job::mpi(&place.name, &place.mpi, 1, [executable]).with_library().run("weir")?;
    ensure(ran.code == 0, || format!("{}: {}", ran.code, ran.stderr))?;
    let profile = profile::only(&ran, 1)?;
    let list = profile["errors"].as_array().ok_or("no list of errors")?;
    let named: Vec<(String, bool, u64)> = list
        .iter()
        .map(|failure| {
            let text = |key: &str| failure[key].as_str().unwrap_or_default();
            let file = text("file").rsplit('/').next().unwrap_or_default();
            let name = format!("{} {file} {}", text("op"), text("error"));
            (name, failure["harmless"] == true, failure["count"].as_u64().unwrap_or(0))
        })
        .collect();
    for (name, count) in
        [("write readonly.dat EBADF", 3), ("open new.dat ENOENT", 1), ("fflush large.dat EFBIG", 1)]
    {
        ensure(named.contains(&(name.into(), false, count)), || format!("no {count}× {name}: {named:?}"))?;
    }
    for (name, is_harmless, _) in &named {
        let probes = name.contains("absent.dat");
        ensure(probes == *is_harmless, || format!("{name}: harmless {is_harmless}, in {named:?}"))?;
    }
    let (_, text, _) = profile::report(&[], &ran.profiles)?;
    let expected = "readonly.dat failed 3×: bad file descriptor (EBADF), first at ";
    ensure(text.contains(expected) && !text.contains("absent.dat"), || text)
}
