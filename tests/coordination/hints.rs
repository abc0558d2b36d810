//! A coordinator that knows the storage says how many aggregators a new file should have; what the program
//! says itself stands.

use crate::live::{Directory, Service};
use crate::mpi::c;
use crate::run::{Job, Ran, same_files};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, profile, scenario};
use serde_json::Value;

const RANKS: usize = 3;

pub(super) fn list() -> Vec<Scenario> {
    vec![scenario("hints::told", told).only(SYSTEM), scenario("hints::nobody", nobody).only(SYSTEM)]
}

fn job(place: &Place, coordinator: &str) -> Verdict<Job> {
    let executable = place.mpi.build(&c("hints", "tests/programs/hints.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, RANKS, [executable]);
    Ok(job.variable("WEIR_COORDINATOR", coordinator).variable("WEIR_HINTS", "on"))
}

fn told(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let config = directory.path().join("config");
    // Wider is faster up to all of them, and nobody else is there.
    std::fs::write(
        &config,
        "[storage /]\ntargets = 3\nbandwidth_mb_per_s = 100 200 300\ncompute_nodes = 1\n",
    )?;
    let address = format!("unix:{}", directory.path().join("sock").display());
    let _service = Service::start(&["--listen", &address, "--config", &config.display().to_string()])?;
    let job = job(place, &address)?;
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    ended_well(&bare, &with)?;
    // Open MPI aggregates where it is told to; ROMIO has one aggregator per node, or none for blocks like these.
    if place.mpi.name == "openmpi" {
        let (ours, own) = (aggregators(&with, "ours")?, aggregators(&with, "own")?);
        ensure(ours == RANKS as u64, || format!("{ours} aggregators\n{}", with.stdout))?;
        ensure(own == 1, || format!("the program's own hint is lost: {own} aggregators\n{}", with.stdout))?;
    }
    Ok(())
}

/// A coordinator that knows no storage, and none at all: nothing is changed.
fn nobody(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    for coordinator in [directory.elect(), "unix:/nonexistent/weir.sock".into()] {
        let job = job(place, &coordinator)?;
        let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
        ended_well(&bare, &with)?;
        ensure(bare.stdout == with.stdout, || format!("{}\nis not\n{}", with.stdout, bare.stdout))?;
        if place.mpi.name == "openmpi" {
            let ours = aggregators(&with, "ours")?;
            ensure(ours < RANKS as u64, || format!("{ours} aggregators although nobody said so"))?;
        }
    }
    Ok(())
}

fn ended_well(bare: &Ran, with: &Ran) -> Verdict {
    let ended = |ran: &Ran| format!("{}\n{}{}", ran.code, ran.stdout, ran.stderr);
    ensure(bare.code == 0, || format!("fails without Weir: {}", ended(bare)))?;
    ensure(with.code == 0, || format!("fails with Weir: {}", ended(with)))?;
    same_files(&bare.files, &with.files)
}

fn aggregators(ran: &Ran, name: &str) -> Verdict<u64> {
    let profile = profile::only(ran, RANKS)?;
    let files = profile["files"].as_array().ok_or("no files")?;
    let is_it = |file: &&Value| file["name"].as_str().is_some_and(|path| path.ends_with(&format!("/{name}")));
    Ok(files.iter().find(is_it).and_then(|file| file["naggregators"].as_u64()).ok_or("no such file")?)
}
