//! `weir simulate`: a scenario file in, what each policy makes of it out.

mod collective;
mod fields;
pub(crate) mod periodic;
mod requests;
mod resources;
mod sharing;

use crate::{Outcome, output};
use clap::{Parser, ValueEnum};
use std::io::Read;
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
    /// For sharing: with all that coordination costs when it runs (phases that have to be found, messages, gates, credits, jobs let
    /// in out of turn) instead of the papers' model; `none` is what happens without
    #[arg(long)]
    live: bool,
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
    let scenario = read(&args.scenario).map_err(|e| format!("scenario {name}: {e}"))?;
    let policies = (args.policy != "all").then(|| names(&args.policy));
    let request = Request { scenario: &scenario, policies, seed: args.seed, train: args.train.as_deref() };
    let answer = match args.kind {
        Kind::Sharing if args.live => sharing::simulate_live(&request),
        _ if args.live => Err("--live is for sharing".into()),
        Kind::Sharing => sharing::simulate(&request),
        Kind::Periodic => periodic::simulate(&request),
        Kind::Collective => collective::simulate(&request),
        Kind::Requests => requests::simulate(&request),
        Kind::Resources => resources::simulate(&request),
    }
    .map_err(|e| format!("scenario {name}: {e}"))?;
    output::print(&if args.json { format!("{:#}\n", answer.json) } else { answer.text })?;
    Ok(ExitCode::SUCCESS)
}

/// Each once, in the order of first mention.
fn names(list: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for name in list.split(',').map(str::trim) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Larger files are refused before they fill the memory.
const MAX_SCENARIO_BYTES: u64 = 64 << 20;

fn read(path: &Path) -> Result<String, String> {
    let mut input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(|e| format!("cannot be read: {e}"))?)
    };
    let mut text = Vec::new();
    let length = input.by_ref().take(MAX_SCENARIO_BYTES + 1).read_to_end(&mut text);
    if length.map_err(|e| format!("cannot be read: {e}"))? as u64 > MAX_SCENARIO_BYTES {
        let limit = MAX_SCENARIO_BYTES >> 20;
        return Err(format!("too many jobs, applications or requests: larger than {limit} MiB"));
    }
    String::from_utf8(text).map_err(|e| format!("is not UTF-8: {e}"))
}
