//! Every MPI, every language, every scenario: one named trial each, against the release build.
//!
//! `make test` installs the MPIs first; what is missing is reported as ignored, with the reason.
//! `cargo test --test matrix -- mpich::ending` runs a part of it.

#[path = "../common/mod.rs"]
mod common;
mod scenarios;

use common::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, mpi, nodes, profile, run, scenario, volume};
use std::process::ExitCode;

fn main() -> ExitCode {
    common::play(&scenarios::all())
}
