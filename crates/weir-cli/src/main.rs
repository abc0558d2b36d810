//! The `weir` command: parsing here, each subcommand in a file of its own.

mod reproduce;
mod simulate;
mod train;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures and coordinates the I/O of MPI programs.
#[derive(Parser)]
#[command(name = "weir", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a scenario of your own through the scheduling policies
    Simulate(simulate::Args),
    /// Regenerate the tables and figures of the five papers
    Reproduce(reproduce::Args),
    /// Learn from measurements of your own which request scheduler fits
    Train(train::Args),
}

/// Every subcommand answers with this; `main` prints the error and turns it into an exit code.
pub(crate) type Outcome = Result<ExitCode, String>;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Simulate(args) => simulate::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Train(args) => train::run(&args),
    };
    outcome.unwrap_or_else(|message| {
        eprintln!("weir: {message}");
        ExitCode::FAILURE
    })
}
