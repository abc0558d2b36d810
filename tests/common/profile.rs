//! Reading profiles, and comparing them with what programs know they did.

use super::mpi::root;
use super::run::{Ran, contents, weir};
use super::{Verdict, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// What programs printed in their `TALLY` lines, added up.
pub(crate) fn tally(stdout: &str) -> Verdict<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for line in stdout.lines().filter_map(|line| line.strip_prefix("TALLY ")) {
        let one: BTreeMap<String, u64> =
            serde_json::from_str(line).map_err(|error| format!("TALLY line: {error}: {line}"))?;
        for (key, value) in one {
            *sums.entry(key).or_default() += value;
        }
    }
    ensure(!sums.is_empty(), || format!("the program printed no TALLY:\n{stdout}"))?;
    Ok(sums)
}

/// The profiles in a folder, each checked against the published schema.
pub(crate) fn all(folder: &Path) -> Verdict<Vec<Value>> {
    contents(folder)?
        .into_iter()
        .filter(|(name, _)| name.extension().is_some_and(|e| e == "json"))
        .map(|(name, bytes)| {
            let profile =
                serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", name.display()))?;
            validate(&profile)?;
            Ok(profile)
        })
        .collect()
}

pub(crate) fn validate(profile: &Value) -> Verdict {
    static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
        let text =
            std::fs::read_to_string(root().join("docs/profile.schema.json")).expect("the schema is there");
        jsonschema::validator_for(&serde_json::from_str(&text).expect("the schema is JSON"))
            .expect("a schema")
    });
    let errors: Vec<_> = SCHEMA.iter_errors(profile).map(|e| format!("{}: {e}", e.instance_path())).collect();
    ensure(errors.is_empty(), || format!("against the schema:\n{}", errors.join("\n")))
}

/// The one profile of a job that ended well, with nothing left beside it.
pub(crate) fn only(ran: &Ran, ranks: usize) -> Verdict<Value> {
    let names: Vec<_> = contents(&ran.profiles)?.into_keys().collect();
    let mut profiles = all(&ran.profiles)?;
    ensure(profiles.len() == 1 && names.len() == 1, || {
        format!("expected one profile, found {names:?}\n{}", ran.stderr)
    })?;
    let profile = profiles.remove(0);
    ensure(profile["job"]["nprocs"] == ranks as u64, || format!("nprocs: {}", profile["job"]["nprocs"]))?;
    ensure(profile["job"]["ended"] == "finalized", || format!("ended: {}", profile["job"]["ended"]))?;
    consistent(&profile)?;
    Ok(profile)
}

/// What must hold in any profile of a small job: nothing dropped, sums that agree, no system files.
pub(crate) fn consistent(profile: &Value) -> Verdict {
    for (what, count) in profile["dropped"].as_object().into_iter().flatten() {
        ensure(*count == 0, || format!("dropped {count} {what}"))?;
    }
    ensure(profile["notes"] == serde_json::json!([]), || format!("notes: {}", profile["notes"]))?;
    for file in profile["files"].as_array().into_iter().flatten() {
        let name = file["name"].as_str().unwrap_or_default();
        let foreign =
            ["/dev/", "/proc/", "/sys/", "/etc/", "/usr/", "/lib"].iter().any(|p| name.starts_with(p));
        ensure(!foreign, || format!("a system file is in the profile: {name}"))?;
    }
    let counter = |name: &str| profile["modules"]["MPIIO"]["counters"][name].as_u64().unwrap_or(u64::MAX);
    for direction in ["READ", "WRITE"] {
        let calls: u64 = ["INDEP", "COLL", "NB", "SPLIT"]
            .iter()
            .map(|c| counter(&format!("MPIIO_{c}_{direction}S")))
            .sum();
        let bins = profile["modules"]["MPIIO"]["counters"].as_object().into_iter().flatten();
        let bins = bins.filter(|(name, _)| name.starts_with(&format!("MPIIO_SIZE_{direction}_AGG_")));
        let binned: u64 = bins.filter_map(|(_, count)| count.as_u64()).sum();
        ensure(calls == binned, || format!("{calls} {direction}S, but {binned} in the bins of sizes"))?;
        let histogram = &profile["histograms"]["MPIIO"][direction.to_lowercase()]["size_bytes"]["count"];
        ensure(*histogram == calls, || format!("{calls} {direction}S, but {histogram} in the histogram"))?;
    }
    Ok(())
}

/// Fails unless every key of the tally has the same value in the profiles (added up).
pub(crate) fn agrees(tally: &BTreeMap<String, u64>, profiles: &[&Value]) -> Verdict {
    let wrong: Vec<_> = tally
        .iter()
        .filter_map(|(key, &did)| {
            let says: u64 = profiles.iter().map(|profile| look_up(profile, key)).sum();
            (says != did).then(|| format!("{key}: the program did {did}, the profile says {says}"))
        })
        .collect();
    ensure(wrong.is_empty(), || wrong.join("\n"))
}

/// `COUNTER` of its module, or `file|COUNTER` of that file. What is not there is 0.
fn look_up(profile: &Value, key: &str) -> u64 {
    let module = |counter: &str| counter.split('_').next().unwrap_or_default().to_string();
    let value = match key.split_once('|') {
        None => profile["modules"][module(key)]["counters"][key].as_u64(),
        Some((file, counter)) => profile["files"].as_array().and_then(|files| {
            let ending = format!("/{file}");
            let entry =
                files.iter().find(|entry| entry["name"].as_str().is_some_and(|n| n.ends_with(&ending)))?;
            entry["modules"][module(counter)][counter].as_u64()
        }),
    };
    value.unwrap_or(0)
}

/// `weir report ARGUMENTS`: its code and everything it printed.
pub(crate) fn report(arguments: &[&str], folder: &Path) -> Verdict<(i32, String, String)> {
    let output = Command::new(weir()).arg("report").args(arguments).arg(folder).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
}
