//! Launches that share a job's name, and folders that somebody else has made.

use super::{Place, SYSTEM, Scenario, scenario};
use crate::mpi::c;
use crate::run::{Job, same};
use crate::{Stop, Verdict, ensure, profile};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

const RANKS: usize = 2;

pub(super) fn list() -> Vec<Scenario> {
    [
        scenario("launches_in_turn", in_turn),
        scenario("launches_at_once", at_once),
        scenario("folder_of_somebody_else", planted),
    ]
    .into_iter()
    .map(|scenario| scenario.only(SYSTEM))
    .collect()
}

/// A script under one `weir run`; `$1 PROGRAM` launches a program.
fn script(place: &Place, text: &str, programs: &[&Path]) -> Job {
    let launcher = place.mpi.launcher(RANKS).join(" ");
    let mut words = vec!["sh".into(), "-c".into(), text.into(), "sh".into(), launcher];
    words.extend(programs.iter().map(|program| program.display().to_string()));
    let job = Job::new(&place.name, words).under(&["run", "--quiet", "--coordinator", "off"]);
    place.mpi.variables.iter().fold(job, |job, (name, value)| job.variable(name, value))
}

fn ends(profiles: &[Value]) -> Vec<&str> {
    let mut ends: Vec<_> = profiles.iter().filter_map(|profile| profile["job"]["ended"].as_str()).collect();
    ends.sort_unstable();
    ends
}

/// What a launch that was killed has left is not added to the next one's.
fn in_turn(place: &Place) -> Verdict {
    let ending = place.mpi.build(&c("ending", "tests/programs/ending.c", &[]))?;
    let overlap = place.mpi.build(&c("overlap", "tests/programs/overlap.c", &[]))?;
    let job = script(place, "$1 $2 SIGKILL all > killed.txt; $1 $3 0", &[&ending, &overlap]);
    let ran = job.run("weir")?;
    let profiles = profile::all(&ran.profiles)?;
    ensure(ends(&profiles) == ["finalized", "killed: 2 of 2 ranks"], || {
        format!("{:?}\n{}", ends(&profiles), ran.stderr)
    })?;
    let whole: Vec<_> = profiles.iter().filter(|profile| profile["job"]["ended"] == "finalized").collect();
    profile::agrees(&profile::tally(&ran.stdout)?, &whole)
}

/// A launch that ends neither waits for one that goes on nor writes down what that has done so far.
fn at_once(place: &Place) -> Verdict {
    let many = place.mpi.build(&c("many", "tests/programs/many.c", &[]))?;
    let overlap = place.mpi.build(&c("overlap", "tests/programs/overlap.c", &[]))?;
    let text = "$1 $3 15 > long.txt & until grep -q COMPUTING long.txt; do sleep 0.1; done
        $1 $2; ls \"$WEIR_DIR\"; wait";
    let ran = script(place, text, &[&many, &overlap]).run("weir")?;
    let profiles = profile::all(&ran.profiles)?;
    ensure(ends(&profiles) == ["finalized", "finalized"], || {
        format!("{:?}\n{}", ends(&profiles), ran.stderr)
    })?;
    ensure(ran.stdout.contains("weir-many-") && profiles.iter().all(|p| p["job"]["nprocs"] == 2), || {
        format!("no profile of its own when it ended:\n{}", ran.stdout)
    })?;
    let of = |name: &str| profiles.iter().filter(|p| p["job"]["application"] == name).collect::<Vec<_>>();
    profile::agrees(&profile::tally(&ran.stdout)?, &of("many"))?;
    profile::agrees(&profile::tally(&fs::read_to_string(ran.files.join("long.txt"))?)?, &of("overlap"))
}

/// Nothing in a folder that belongs to another user is looked at: there might be a pipe without an end.
fn planted(place: &Place) -> Verdict {
    let many = place.mpi.build(&c("many", "tests/programs/many.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, RANKS, [many]);
    let bare = job.run("bare")?;
    let shared = bare.profiles.with_file_name("shared");
    let folder = shared.join(".weir-4711");
    fs::create_dir_all(&folder)?;
    let pipe = folder.join("1-node-1-0.rec");
    ensure(Command::new("mkfifo").arg(&pipe).status()?.success(), || "no pipe".into())?;
    let nobody = Some(65534);
    chown(&folder, nobody, nobody).map_err(|_| Stop::Skip("only root can give a folder away".into()))?;
    let job = job.variable("WEIR_DIR", &shared).variable("WEIR_JOB_ID", "4711");
    let with = job.with_library().run("weir")?;
    same(&bare, &with)?;
    let remarks = with.remarks();
    ensure(remarks.len() == 1 && remarks[0].contains(".weir-4711 is there and not a directory"), || {
        format!("one line was expected: {remarks:?}\n{}", with.stderr)
    })?;
    let left = fs::read_dir(&shared)?.count() + fs::read_dir(&folder)?.count();
    ensure(left == 2, || format!("{left} entries, and not the folder and its pipe"))
}
