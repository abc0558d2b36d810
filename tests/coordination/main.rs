//! Real MPI jobs that coordinate, and everything that can go wrong while they do: what is on disk is
//! exact, who is not hurt ends well, nobody hangs.
//!
//! `cargo test --test coordination -- mpich::sigkill` runs a part of it. What is not permitted on a machine is
//! reported as ignored, with the reason.

#[path = "../common/mod.rs"]
mod common;
mod counts;
mod directory;
mod hints;
mod impostors;
mod input;
mod kills;
mod learnt;
mod limits;
mod live;
mod meeting;
mod partners;
mod peace;
mod programs;
mod readers;
mod says;
mod service;
mod status;
mod strangers;
mod turns;

use common::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, mpi, nodes, profile, run, scenario};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, "stranger", address] = words.iter().map(String::as_str).collect::<Vec<_>>()[..]
        && let Ok(address) = address.parse()
    {
        strangers::act(&address);
        return ExitCode::SUCCESS;
    }
    let scenarios: Vec<Scenario> = [
        peace::list(),
        kills::list(),
        service::list(),
        directory::list(),
        meeting::list(),
        strangers::list(),
        programs::list(),
        counts::list(),
        partners::list(),
        limits::list(),
        learnt::list(),
        status::list(),
        impostors::list(),
        input::list(),
        hints::list(),
        readers::list(),
        says::list(),
    ]
    .into_iter()
    .flatten()
    .collect();
    common::play(&scenarios)
}
