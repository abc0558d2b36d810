//! `weir simulate`: a scenario file in, what each policy makes of it out.

mod collective;
pub(crate) mod periodic;
mod requests;
mod resources;
mod sharing;

use crate::Outcome;
use clap::{Parser, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
pub(crate) struct Args {
    /// What to simulate
    kind: Kind,
    /// The scenario: a JSON file, or - for standard input (formats: docs/scenarios/)
    scenario: PathBuf,
    /// Policies to compare, separated by commas
    #[arg(long, value_name = "P[,P...]", default_value = "all")]
    policy: String,
    /// Seed of everything that is drawn at random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For requests: measurements of your own that `auto` learns from (see weir train)
    #[arg(long, value_name = "CSV")]
    train: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Jobs that compute and do I/O in turn on one storage
    Sharing,
    /// A timetable for periodic applications
    Periodic,
    /// Aggregators of collective calls on several storage targets
    Collective,
    /// Single requests at one device
    Requests,
    /// I/O resources for applications
    Resources,
}

/// What a simulation answers: JSON for `--json`, and the same as text for a person.
pub(crate) struct Answer {
    pub(crate) json: serde_json::Value,
    pub(crate) text: String,
}

/// What every kind of scenario is handed: its text and what the command line said.
/// `policies` is `None` for `all`; a name that does not exist is an error naming the valid ones.
pub(crate) struct Request<'a> {
    pub(crate) scenario: &'a str,
    pub(crate) policies: Option<Vec<&'a str>>,
    pub(crate) seed: u64,
    pub(crate) train: Option<&'a Path>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let name = args.scenario.display();
    let scenario = if args.scenario.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&args.scenario)
    }
    .map_err(|e| format!("cannot read scenario {name}: {e}"))?;
    let policies = (args.policy != "all").then(|| args.policy.split(',').map(str::trim).collect());
    let request = Request { scenario: &scenario, policies, seed: args.seed, train: args.train.as_deref() };
    let answer = match args.kind {
        Kind::Sharing => sharing::simulate(&request),
        Kind::Periodic => periodic::simulate(&request),
        Kind::Collective => collective::simulate(&request),
        Kind::Requests => requests::simulate(&request),
        Kind::Resources => resources::simulate(&request),
    }
    .map_err(|e| format!("scenario {name}: {e}"))?;
    if args.json {
        println!("{:#}", answer.json);
    } else {
        print!("{}", answer.text);
    }
    Ok(ExitCode::SUCCESS)
}
