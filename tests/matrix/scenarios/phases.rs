//! More phases than there are places for: those that are not listed are in the sums.

use super::{Place, SYSTEM, Scenario, scenario};
use crate::mpi::c;
use crate::run::{Job, Ran};
use crate::{Verdict, ensure, profile};
use serde_json::Value;
use std::ffi::OsString;

const PHASES: u64 = 3000;
const BYTES: u64 = 4096 * PHASES;

pub(super) fn list() -> Vec<Scenario> {
    ["found", "marked", "killed"]
        .into_iter()
        .map(|kind| {
            scenario(format!("phases_{kind}"), move |place: &Place| thousands(place, kind)).only(SYSTEM)
        })
        .collect()
}

/// Shorter than the program's pauses, and than what bursts are made with by themselves.
const GAP: &str = "0.5ms";

fn thousands(place: &Place, kind: &str) -> Verdict {
    let executable = place.mpi.build(&c("phases", "tests/programs/phases.c", &["-Iinclude"]))?;
    let command: [OsString; 3] = [executable.into(), kind.into(), PHASES.to_string().into()];
    let ran = Job::mpi(&place.name, &place.mpi, 1, command).variable("WEIR_PHASE_GAP", GAP);
    let ran = ran.with_library().run("weir")?;
    let profile = match kind {
        "killed" => report(&ran)?,
        _ => profile::all(&ran.profiles)?.pop().ok_or("no profile")?,
    };
    let phases = &profile["phases"];
    ensure(phases["count"] == PHASES, || format!("{} phases of {PHASES}", phases["count"]))?;
    let listed = phases["list"].as_array().ok_or("no list")?;
    let bytes = |phase: &Value| phase["bytes_written"].as_u64().unwrap_or(0);
    let all = listed.iter().map(bytes).sum::<u64>() + bytes(&phases["unlisted"]);
    ensure(all == BYTES, || format!("{all} bytes of {BYTES} in phases"))?;
    let unlisted = phases["unlisted"]["count"].as_u64();
    ensure(unlisted == Some(PHASES - listed.len() as u64), || format!("{unlisted:?} are not in the list"))?;
    ensure(listed.len() >= 200, || format!("only {} are in the list", listed.len()))?;
    ensure(profile["dropped"]["phases"].as_u64() == unlisted, || format!("{}", profile["dropped"]))?;
    rhythm(&ran, phases)
}

/// What Weir says of times is what the program measured itself.
fn rhythm(ran: &Ran, phases: &Value) -> Verdict {
    let printed = |word: &str| {
        let line = ran.stdout.lines().find_map(|line| line.strip_prefix(word));
        line.and_then(|number| number.trim().parse::<f64>().ok())
            .ok_or(format!("no {word} in {}", ran.stdout))
    };
    let every_s = printed("TIME")? / (PHASES - 1) as f64;
    let profiled_s = phases["characteristic_time_s"].as_f64().unwrap_or(0.0);
    for (who, said_s) in [("profile", profiled_s), ("process", printed("WEIR")?)] {
        ensure((said_s / every_s - 1.0).abs() < 0.05, || format!("{who}: {said_s} s, but it was {every_s}"))?;
    }
    // A write of 4 KiB, and two milliseconds of sleep.
    let ratio = phases["io_ratio"].as_f64().unwrap_or(1.0);
    ensure(ratio > 0.0 && ratio < 0.5, || format!("I/O ratio {ratio}"))
}

fn report(ran: &Ran) -> Verdict<Value> {
    let (code, json, errors) = profile::report(&["--json"], &ran.profiles)?;
    ensure(code == 0, || format!("weir report: {code}\n{errors}"))?;
    let profile: Value = serde_json::from_str(&json).map_err(|error| format!("{error}:\n{json}"))?;
    profile::validate(&profile)?;
    Ok(profile)
}
