//! How often phases end later than fair sharing would have ended them, and what it costs never to let them:
//! `cargo run --release -p weir-engine --example bound [WORKLOADS [SEED [LOAD [NOISE]]]]`
//!
//! Workloads of IO-SETS section 4, measured from 1000 to 9000 seconds. A phase is *beyond* if it takes longer than 1.1 times its fair
//! duration and 50 ms; the first phase of a job, whose size nobody knows, if longer than 1.5 times and 50 ms. A job's progress is
//! compared with its own under `fair`.

use weir_engine::sharing::PolicyKind;
use weir_engine::sim::{Mix, Outcome, PhaseOutcome, SECOND_NS, Setting, Storage};
use weir_engine::sim::{fair_ends_ns, iosets, simulate, simulate_phases};

fn main() {
    let arguments: Vec<f64> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let argument = |index: usize, otherwise: f64| arguments.get(index).copied().unwrap_or(otherwise);
    let (workloads, seed) = (argument(0, 16.0) as u64, argument(1, 1.0) as u64);
    let (stress, noise) = (argument(2, 0.8), argument(3, 0.0));
    println!("n_H policy  utilization stretch  beyond: known  first  longest  worst job: mean  least");
    for high in [0, 20, 40] {
        for kind in [PolicyKind::Weir, PolicyKind::Set10] {
            let mix = Mix { stress, noise, ..Mix::paper(high) };
            let rows: Vec<Row> = (seed..seed + workloads).map(|seed| run(&mix, seed, kind)).collect();
            let mean = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
            println!(
                "{high:3} {:7} {:11.4} {:7.4} {:13.2} % {:4.1} % {:7.1} {:16.3} {:6.3}",
                kind.to_string(),
                mean(|row| row.utilization),
                mean(|row| row.stretch),
                mean(|row| row.known_beyond),
                mean(|row| row.first_beyond),
                rows.iter().map(|row| row.longest).fold(0.0, f64::max),
                mean(|row| row.worst_job),
                rows.iter().map(|row| row.worst_job).fold(f64::INFINITY, f64::min),
            );
        }
    }
}

struct Row {
    utilization: f64,
    stretch: f64,
    /// Per cent of the phases.
    known_beyond: f64,
    first_beyond: f64,
    /// Of the known ones beyond, the most times its fair duration that one took.
    longest: f64,
    /// The least progress of a job, as a part of that under fair sharing.
    worst_job: f64,
}

fn run(mix: &Mix, seed: u64, kind: PolicyKind) -> Row {
    let jobs = iosets(mix, seed);
    let setting = Setting {
        storage: Storage::WorkConserving,
        window_ns: Some((1000 * SECOND_NS, 9000 * SECOND_NS)),
        stop_at_window: true,
    };
    let (outcome, phases) = simulate_phases(&jobs, kind.build(), &setting);
    let fair = simulate(&jobs, PolicyKind::Fair.build(), &setting);
    let caps: Vec<f64> = jobs.iter().map(|job| job.cap).collect();
    let (known, first) = durations(&phases, &fair_ends_ns(&phases, &caps));
    let is_beyond = |times: f64| move |&&(real_s, fair_s): &&(f64, f64)| real_s > times * fair_s + 0.05;
    let part = |all: &[(f64, f64)], times: f64| {
        100.0 * all.iter().filter(is_beyond(times)).count() as f64 / all.len() as f64
    };
    Row {
        utilization: outcome.utilization(),
        stretch: outcome.stretch(),
        known_beyond: part(&known, 1.1),
        first_beyond: part(&first, 1.5),
        longest: known
            .iter()
            .filter(is_beyond(1.1))
            .map(|(real_s, fair_s)| real_s / fair_s)
            .fold(0.0, f64::max),
        worst_job: progress(&outcome)
            .zip(progress(&fair))
            .map(|(weir, fair)| weir / fair)
            .fold(f64::INFINITY, f64::min),
    }
}

fn progress(outcome: &Outcome) -> impl Iterator<Item = f64> {
    outcome.jobs.iter().map(|job| job.compute_ns + job.io_ns)
}

/// Seconds that phases took, and would have taken fairly.
type Durations = Vec<(f64, f64)>;

/// Durations of phases of jobs that had one before, and of first ones.
fn durations(phases: &[PhaseOutcome], fair_ends_ns: &[u64]) -> (Durations, Durations) {
    let mut seen = std::collections::BTreeSet::new();
    let (mut known, mut first) = (Vec::new(), Vec::new());
    for (phase, fair_end_ns) in phases.iter().zip(fair_ends_ns) {
        let Some(ended_ns) = phase.ended_ns else { continue };
        let since_s = |ns: u64| (ns - phase.began_ns) as f64 / SECOND_NS as f64;
        let list = if seen.insert(phase.job) { &mut first } else { &mut known };
        list.push((since_s(ended_ns), since_s(*fair_end_ns)));
    }
    (known, first)
}
