//! `weir doctor`: what Weir sees on this machine, and why it sees nothing of a program.

mod machine;
mod trial;

use crate::setup::find_library;
use crate::{Outcome, output};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_coord::text::printable;

#[derive(clap::Args)]
#[command(after_help = "Exit code: 0 if nothing is wrong, 1 otherwise.")]
pub(crate) struct Args {
    /// libweir.so or its directory [default: WEIR_LIB or beside this program]
    #[arg(long, value_name = "FILE")]
    lib: Option<PathBuf>,
    /// A command to try, as in `mpirun -n 4 ./app`; it runs in full
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What was found, printed as it is found.
#[derive(Default)]
struct Findings {
    wrong: usize,
    /// Why something could not be printed.
    unprinted: Option<String>,
}

impl Findings {
    fn fine(&mut self, about: &str, text: &str) {
        self.tell("ok", about, text);
    }

    /// Worth knowing, and not wrong by itself.
    fn note(&mut self, about: &str, text: &str) {
        self.tell("note", about, text);
    }

    fn wrong(&mut self, about: &str, text: &str) {
        self.wrong += 1;
        self.tell("WRONG", about, text);
    }

    fn tell(&mut self, what: &str, about: &str, text: &str) {
        let printed = output::print(&format!("{what:<6} {about:<11} {}\n", printable(text)));
        self.unprinted = self.unprinted.take().or(printed.err());
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut findings = Findings::default();
    let library = match find_library(args.lib.as_deref()) {
        Ok(library) => {
            machine::check_library(&mut findings, &library);
            Some(library)
        }
        Err(error) => {
            findings.wrong("libweir.so", &error);
            None
        }
    };
    machine::check_mpis(&mut findings);
    machine::check_directory(&mut findings);
    machine::check_environment(&mut findings);
    if let (Some(library), false) = (&library, args.command.is_empty()) {
        trial::check_command(&mut findings, library, &args.command)?;
    }
    if let Some(error) = findings.unprinted {
        return Err(error);
    }
    Ok(if findings.wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
