//! What the test programs with real MPI jobs have in common: finding MPIs, building and running programs,
//! reading profiles. Against the release build; `WEIR_LIB` and `WEIR_BIN` name another library or command than
//! those in `target/release`.

// Each test program uses its part.
#![allow(dead_code)]

pub(crate) mod mpi;
pub(crate) mod nodes;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod volume;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mpi::{Found, Mpi};
use std::process::ExitCode;
use std::sync::Arc;

/// Why a trial did not pass.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It could not be tried here.
    Skip(String),
    Fail(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Self {
        Stop::Fail(message)
    }
}

impl From<&str> for Stop {
    fn from(message: &str) -> Self {
        Stop::Fail(message.into())
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Stop::Fail(error.to_string())
    }
}

pub(crate) type Verdict<T = ()> = Result<T, Stop>;

pub(crate) fn ensure(ok: bool, message: impl FnOnce() -> String) -> Verdict {
    if ok { Ok(()) } else { Err(Stop::Fail(message())) }
}

fn trial(name: String, test: impl FnOnce() -> Verdict + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match test() {
        Ok(()) => Ok(Completion::Completed),
        Err(Stop::Skip(reason)) => Ok(Completion::ignored_with(reason)),
        Err(Stop::Fail(message)) => Err(Failed::from(message)),
    })
}

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
    pub(crate) fn only(self, only: &'static [&'static str]) -> Self {
        Scenario { only, ..self }
    }
}

/// The system's two, for what does not depend on the MPI and takes its time.
pub(crate) const SYSTEM: &[&str] = &["openmpi", "mpich"];

/// Plays every scenario with every MPI it is for.
pub(crate) fn play(scenarios: &[Scenario]) -> ExitCode {
    let arguments = Arguments::from_args();
    let mpis = mpi::all();
    if !arguments.list {
        for (name, found) in &mpis {
            match found {
                Ok(_) => println!("MPI {name}: here"),
                Err(reason) => println!("MPI {name}: MISSING, its trials are skipped: {reason}"),
            }
        }
    }
    libtest_mimic::run(&arguments, trials(&mpis, scenarios)).exit_code()
}

fn trials(mpis: &[Found], scenarios: &[Scenario]) -> Vec<Trial> {
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
