//! The `weir` command: parsing here, each subcommand in a file of its own.

mod coordinator;
mod doctor;
mod elf;
mod launcher;
mod merge;
mod node_helper;
mod output;
mod pages;
mod report;
mod reproduce;
mod run;
mod setup;
mod simulate;
mod status;
mod train;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Measures the I/O of MPI programs, and schedules it.
#[derive(Parser)]
#[command(name = "weir", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an MPI program with its I/O measured, taking turns with others
    Run(Box<run::Args>),
    /// Say in ten seconds what a job's I/O was like
    Report(report::Args),
    /// Make profiles of what killed jobs have left, in the name of their owners
    Merge(merge::Args),
    /// Find out what Weir sees on this machine, or why it sees nothing of a program
    Doctor(doctor::Args),
    /// Run a scenario of your own through the scheduling policies
    Simulate(simulate::Args),
    /// Regenerate the tables and figures of the five papers
    Reproduce(reproduce::Args),
    /// Learn from measurements of your own which request scheduler fits
    Train(train::Args),
    /// Coordinate the I/O of jobs, as a service
    Coordinator(coordinator::Args),
    /// Show who coordinates, who is in I/O and who waits
    Status(status::Args),
    /// Keep the records of a job's ranks on this node; started by libweir.so
    #[command(hide = true)]
    NodeHelper(node_helper::Args),
    /// Print the completions of a shell
    Completions(pages::CompletionsArgs),
    /// Write the manual pages to a directory
    Man(pages::ManArgs),
}

/// Every subcommand answers with this; `main` prints the error and turns it into an exit code.
pub(crate) type Outcome = Result<ExitCode, String>;

fn main() -> ExitCode {
    // A reader that has seen enough (`weir report | head`) ends this program quietly, as it does others.
    // SAFETY: before any thread is started.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // Ranks wait for it to listen: not before all that the other commands have to say was put together.
    if let Some(outcome) = node_helper::run_at_once() {
        return outcome.unwrap_or_else(fail);
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(message) => return explain(&message),
    };
    let outcome = match command {
        Command::Run(args) => run::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Coordinator(args) => coordinator::run(&args),
        Command::Status(args) => status::run(&args),
        Command::NodeHelper(args) => node_helper::run(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Man(args) => pages::man(&args),
    };
    outcome.unwrap_or_else(fail)
}

/// The help that was asked for, or what is wrong with the arguments.
fn explain(message: &clap::Error) -> ExitCode {
    let printed = message.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(error) if !message.use_stderr() => fail(output::failed(error)),
        _ => ExitCode::from(message.exit_code() as u8),
    }
}

fn fail(message: String) -> ExitCode {
    output::say(message);
    ExitCode::FAILURE
}
