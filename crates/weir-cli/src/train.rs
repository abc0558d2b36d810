//! `weir train`: the decision tree that `auto` learns from one's own measurements.

use crate::{Outcome, output};
use clap::Parser;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_engine::requests::select::{Inputs, Measurement, Selector, examples};
use weir_engine::requests::{cross_validation_errors, measurements_from_csv};

#[derive(Parser)]
pub(crate) struct Args {
    /// A situation per line: operation, files, spatiality, request_size, seq_to_random, and either best or
    /// a time for each of to, to-agg, sjf, mlf, aioli
    measurements: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn read(path: &Path) -> Result<Vec<Measurement>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read measurements {name}: {e}"))?;
    measurements_from_csv(&text).map_err(|e| format!("measurements {name}: {e}"))
}

pub(crate) fn run(args: &Args) -> Outcome {
    let measurements = read(&args.measurements)?;
    let selector = Selector::learn(&measurements, Inputs::Live);
    let (tree, situations) = (selector.tree(), measurements.len());
    let (nodes, leaves, correct) = (tree.nodes(), tree.leaves(), selector.correct(&measurements));
    // As many folds as there are situations, if there are few: each is then left out once.
    let folds = situations.min(10);
    let unseen = situations - cross_validation_errors(&examples(&measurements, Inputs::Live), folds, 1);
    if args.json {
        let answer = json!({
            "situations": situations, "correct": correct, "correct_unseen": unseen,
            "nodes": nodes, "leaves": leaves, "tree": tree.to_string(),
        });
        output::print(&format!("{answer:#}\n"))?;
    } else {
        output::print(&format!(
            "{correct} of {situations} situations right, {unseen} when not learnt from them\n\
             {nodes} nodes, {leaves} leaves\n{tree}\n"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
