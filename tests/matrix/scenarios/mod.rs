//! What is tried with every MPI. A file per subject; each lists its scenarios.

mod abi;
mod endings;
mod examples;
mod input;
mod nodes;
mod programs;
mod silence;
mod tools;

use crate::mpi::{Found, Mpi};
use crate::{Stop, Verdict, trial};
use libtest_mimic::Trial;
use std::sync::Arc;

/// Where a scenario is played: the name of its trial, and the MPI.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) mpi: Arc<Mpi>,
}

pub(crate) struct Scenario {
    name: String,
    test: Arc<dyn Fn(&Place) -> Verdict + Send + Sync>,
    /// With these MPIs alone; empty means all.
    only: &'static [&'static str],
}

pub(crate) fn scenario(
    name: impl Into<String>,
    test: impl Fn(&Place) -> Verdict + Send + Sync + 'static,
) -> Scenario {
    Scenario { name: name.into(), test: Arc::new(test), only: &[] }
}

impl Scenario {
    fn only(self, only: &'static [&'static str]) -> Self {
        Scenario { only, ..self }
    }
}

/// The system's two, for what does not depend on the MPI and takes its time.
const SYSTEM: &[&str] = &["openmpi", "mpich"];

pub(crate) fn trials(mpis: &[Found]) -> Vec<Trial> {
    let scenarios: Vec<Scenario> = [
        abi::list(),
        programs::list(),
        tools::list(),
        silence::list(),
        endings::list(),
        input::list(),
        examples::list(),
        nodes::list(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut trials = Vec::new();
    for (mpi, found) in mpis {
        for scenario in scenarios.iter().filter(|s| s.only.is_empty() || s.only.contains(&mpi.as_str())) {
            let name = format!("{mpi}::{}", scenario.name);
            let (place, test) = (name.clone(), scenario.test.clone());
            trials.push(match found {
                Ok(mpi) => {
                    let mpi = mpi.clone();
                    trial(name, move || test(&Place { name: place, mpi }))
                }
                Err(reason) => {
                    let reason = reason.clone();
                    trial(name, move || Err(Stop::Skip(reason)))
                }
            });
        }
    }
    trials
}
