//! Every MPI, every language, every scenario: one named trial each, against the release build.
//!
//! `make test` installs the MPIs first; what is missing is reported as ignored, with the reason.
//! `cargo test --test matrix -- mpich::ending` runs a part of it.
//!
//! `WEIR_LIB` and `WEIR_BIN` name another library or command than those in `target/release`.

mod mpi;
mod profile;
mod run;
mod scenarios;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;

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

pub(crate) fn trial(name: String, test: impl FnOnce() -> Verdict + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match test() {
        Ok(()) => Ok(Completion::Completed),
        Err(Stop::Skip(reason)) => Ok(Completion::ignored_with(reason)),
        Err(Stop::Fail(message)) => Err(Failed::from(message)),
    })
}

fn main() -> ExitCode {
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
    libtest_mimic::run(&arguments, scenarios::trials(&mpis)).exit_code()
}
