//! `weir reproduce`: each paper's tables and figures, theirs beside ours.

mod agios;
mod apio;
mod hio;
mod iosets;
mod plot;
pub(crate) mod render;
mod resources;
mod study;

use crate::{Outcome, output};
use clap::{Parser, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
pub(crate) struct Args {
    /// Which paper
    paper: Paper,
    /// Fewer repetitions: under 30 seconds for all papers
    #[arg(long)]
    quick: bool,
    /// Where the text, JSON, CSV and SVG files go
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of everything that is drawn at random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads to use (the result is the same for any number)
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Measured bandwidth curves for the resource study: CSV with a heading such as pattern,b1,b2,b4,b8
    #[arg(long, value_name = "CSV")]
    curves: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Paper {
    Iosets,
    Hio,
    Resources,
    Apio,
    Agios,
    All,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let context = study::Context::new(args.quick, args.seed, args.threads, args.curves.clone());
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    }
    for (paper, make) in [
        (Paper::Iosets, iosets::study as fn(&study::Context) -> Result<study::Study, String>),
        (Paper::Hio, hio::study),
        (Paper::Resources, resources::study),
        (Paper::Apio, apio::study),
        (Paper::Agios, agios::study),
    ] {
        if args.paper == paper || args.paper == Paper::All {
            let study = make(&context)?;
            output::print(&study.text())?;
            if let Some(dir) = &args.out {
                study.write(dir)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
