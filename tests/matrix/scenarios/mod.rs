//! What is tried with every MPI. A file per subject; each lists its scenarios.

mod abi;
mod children;
mod endings;
mod examples;
mod hardships;
mod input;
mod launches;
mod metadata;
mod nodes;
mod phases;
mod programs;
mod silence;
mod storage;
mod tools;

use crate::{Place, SYSTEM, Scenario, scenario};

pub(crate) fn all() -> Vec<Scenario> {
    [
        abi::list(),
        programs::list(),
        tools::list(),
        silence::list(),
        children::list(),
        endings::list(),
        input::list(),
        hardships::list(),
        storage::list(),
        launches::list(),
        metadata::list(),
        examples::list(),
        nodes::list(),
        phases::list(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
