//! Worlds with faults, drawn from seeds.
//!
//! `weir-world [--seeds FROM..TO] [--threads N] [--replay FILE] [--expect-failure]` runs many worlds and names the seeds
//! that broke a promise; `weir-world --seed N --trace` shows one of them, event by event. Same seed, same events.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often progress is said.
const PROGRESS: Duration = Duration::from_secs(30);

/// More failures are counted, and not shown.
const MAX_SHOWN: usize = 10;

thread_local! {
    /// Where the latest panic of the thread happened.
    static PLACE: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

struct Options {
    seeds: std::ops::Range<u64>,
    replayed: Vec<u64>,
    threads: usize,
    trace: bool,
    /// Succeeds at the first world that fails: the code has a mistake that must be found.
    expects_failure: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(options) => run(&options),
        Err(reason) => {
            eprintln!("weir-world: {reason}");
            eprintln!(
                "usage: weir-world [--seeds FROM..TO | --seed N] [--replay FILE] [--threads N] [--trace] [--expect-failure]"
            );
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options =
        Options { seeds: 0..1000, replayed: Vec::new(), threads, trace: false, expects_failure: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
        match word.as_str() {
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..").unwrap_or(("0", &text));
                options.seeds = number(from)?..number(to)?;
            }
            "--seed" => {
                let seed = number(&value()?)?;
                options.seeds = seed..seed + 1;
            }
            "--replay" => {
                let path = value()?;
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
                let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
                options.replayed =
                    lines.filter(|line| !line.is_empty()).map(number).collect::<Result<_, _>>()?;
            }
            "--threads" => options.threads = number(&value()?)?.clamp(1, 1024) as usize,
            "--trace" => options.trace = true,
            "--expect-failure" => options.expects_failure = true,
            _ => return Err(format!("unknown option {word:?}")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> ExitCode {
    let start = Instant::now();
    let all: Vec<u64> = options.replayed.iter().copied().chain(options.seeds.clone()).collect();
    let (next, events) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
    let is_enough = AtomicBool::new(false);
    // The place of a panic is part of what is wrong with the seed.
    std::panic::set_hook(Box::new(|panic| PLACE.set(panic.location().map(ToString::to_string))));
    let count = || (next.load(Relaxed) as usize).min(all.len());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut said = Instant::now();
            while count() < all.len() && !is_enough.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                if said.elapsed() > PROGRESS {
                    said = Instant::now();
                    let failed = failures.lock().expect("no panic in here").len();
                    eprintln!("world: {} of {} seeds, {failed} failed so far", count(), all.len());
                }
            }
        });
        for _ in 0..options.threads.min(all.len()) {
            scope.spawn(|| {
                while !is_enough.load(Relaxed)
                    && let Some(&seed) = all.get(next.fetch_add(1, Relaxed) as usize)
                {
                    let (outcome, count) = try_seed(seed, options.trace);
                    events.fetch_add(count, Relaxed);
                    if let Err(why) = outcome {
                        failures.lock().expect("no panic in here").push((seed, why));
                        is_enough.store(options.expects_failure, Relaxed);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic in here");
    failures.sort();
    for (seed, why) in failures.iter().take(MAX_SHOWN) {
        println!("world {seed}: {why}");
    }
    println!(
        "world: {} seeds, {:.1} million events, {} failed, {:.1} s",
        count(),
        events.load(Relaxed) as f64 * 1e-6,
        failures.len(),
        start.elapsed().as_secs_f64()
    );
    print_coverage();
    if failures.is_empty() == options.expects_failure { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn try_seed(seed: u64, trace: bool) -> (Result<(), String>, u64) {
    let tried = catch_unwind(AssertUnwindSafe(|| weir_world::run_seed(seed, trace)));
    tried.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        let place = PLACE.take().unwrap_or_default();
        (Err(format!("it panics: {text} ({place})")), 0)
    })
}

#[cfg(feature = "coverage")]
fn print_coverage() {
    for (file, branches) in weir_coord::branches::all() {
        let taken = branches.iter().filter(|(_, taken)| *taken).count();
        let missing: Vec<&str> = branches.iter().filter(|(_, taken)| !taken).map(|(name, _)| *name).collect();
        let never =
            if missing.is_empty() { String::new() } else { format!("; never: {}", missing.join(", ")) };
        println!("branches of {file}: {taken} of {}{never}", branches.len());
    }
}

#[cfg(not(feature = "coverage"))]
fn print_coverage() {}
