//! What processes that ranks fork do: counted, by their parents' ranks, and never in the way.

use super::{Place, Scenario, scenario};
use crate::mpi::{c, root};
use crate::run::{Job, Ran};
use crate::{SYSTEM, Stop, Verdict, ensure, profile};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("children", children),
        scenario("children_many", many).only(SYSTEM),
        scenario("children_pool", pool).only(SYSTEM),
        scenario("children_are_not_gated", not_gated).only(SYSTEM),
    ]
}

const RANKS: usize = 2;

fn job(place: &Place) -> Verdict<Job> {
    let executable = place.mpi.build(&c("children", "tests/programs/children.c", &[]))?;
    Ok(Job::mpi(&place.name, &place.mpi, RANKS, [executable]))
}

/// The children of each rank: how many, and what they wrote.
fn counted(profile: &Value) -> Vec<(u64, u64)> {
    let ranks = profile["ranks"].as_array().into_iter().flatten();
    let number = |rank: &Value, key: &str| rank["children"][key].as_u64().unwrap_or(0);
    ranks.map(|rank| (number(rank, "count"), number(rank, "bytes_written"))).collect()
}

fn agrees(ran: &Ran) -> Verdict<Value> {
    let profile = profile::only(ran, RANKS)?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])?;
    Ok(profile)
}

/// A child that was killed and one of a child are among them; what became another program is not.
fn children(place: &Place) -> Verdict {
    let profile = agrees(&job(place)?.compare()?)?;
    let expected = vec![(5, 1_000_000); RANKS];
    ensure(counted(&profile) == expected, || format!("{:?}, not {expected:?}", counted(&profile)))?;
    let own = |rank: &Value| (rank["bytes_written"].as_u64(), rank["ended"].as_str().map(String::from));
    let owns: Vec<_> = profile["ranks"].as_array().into_iter().flatten().map(own).collect();
    ensure(owns == vec![(Some(30), Some("finalized".into())); RANKS], || format!("{owns:?}"))
}

/// More than are kept: those beyond are counted as left out, and the job goes on.
fn many(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("children_many", "tests/programs/children_many.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, RANKS, [executable]);
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    crate::run::same(&bare, &with)?;
    let profiles = profile::all(&with.profiles)?;
    let [profile] = profiles.as_slice() else {
        return Err(format!("{} profiles\n{}", profiles.len(), with.stderr).into());
    };
    let kept: u64 = counted(profile).iter().map(|(count, _)| count).sum();
    let lost = profile["dropped"]["children"].as_u64().unwrap_or(0);
    ensure(kept == 256 && kept + lost == 2 * 150, || format!("{kept} children, and {lost} left out"))
}

fn pool(place: &Place) -> Verdict {
    // The distribution's is for Open MPI.
    let of_debian =
        place.mpi.name == "openmpi" && Path::new("/usr/lib/python3/dist-packages/mpi4py").exists();
    let python = place.mpi.get("MPI_PYTHON").or(of_debian.then_some("/usr/bin/python3"));
    let Some(python) = python else {
        return Err(Stop::Skip(format!("no mpi4py for {}", place.mpi.name)));
    };
    let program = root().join("tests/programs/pool.py");
    let profile = agrees(
        &Job::mpi(&place.name, &place.mpi, RANKS, [OsString::from(python), program.into()]).compare()?,
    )?;
    let wrote: Vec<u64> = counted(&profile).into_iter().map(|(_, bytes)| bytes).collect();
    ensure(wrote == vec![6 << 20; RANKS], || format!("the pools wrote {wrote:?}"))
}

/// Where every request takes its turn, those of children do not.
fn not_gated(place: &Place) -> Verdict {
    let job = job(place)?.variable("WEIR_COORDINATOR", "elect").variable("WEIR_GATE", "all");
    let job = job.variable("WEIR_FREE_BYTES", "0");
    let profile = agrees(&job.compare()?)?;
    ensure(counted(&profile) == vec![(5, 1_000_000); RANKS], || format!("{:?}", counted(&profile)))
}
