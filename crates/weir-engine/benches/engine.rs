//! How many steps the engine makes in a second, and how the cost of one grows with the number of jobs.
//!
//! `cargo bench -p weir-engine --bench engine`. Every job computes and does I/O in turn for random
//! times; one in ten is in its phase. Only the steps are timed, by the processor time of this thread, so
//! that other work on the machine counts as little as can be.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::time::Instant;
use weir_engine::engine::{Action, Engine, Event, JobId, JobInfo};
use weir_engine::sharing::PolicyKind;

const COUNTS: [u32; 6] = [60, 300, 1_000, 10_000, 30_000, 100_000];

/// A history that makes sense: who asks moves some bytes, then ends.
fn history(jobs: u32, events: usize) -> Vec<(u64, Event)> {
    let mut random = Pcg64::seed_from_u64(1);
    let mut asking: Vec<u32> = Vec::new();
    let mut computing: Vec<u32> = (0..jobs).collect();
    let mut now_ns = 1_000_000_000;
    let mut history = Vec::with_capacity(events);
    while history.len() < events {
        now_ns += random.random_range(0..200_000_000_000 / u64::from(jobs));
        if asking.len() * 10 < jobs as usize {
            let job = computing.swap_remove(random.random_range(0..computing.len()));
            asking.push(job);
            history.push((now_ns, Event::PhaseBegan { job: JobId(job), bytes: None }));
        } else {
            let job = asking.swap_remove(random.random_range(0..asking.len()));
            computing.push(job);
            let bytes = 1 << random.random_range(20..36);
            history.push((now_ns, Event::BytesMoved { job: JobId(job), bytes }));
            history.push((now_ns, Event::PhaseEnded { job: JobId(job) }));
        }
    }
    history
}

fn engine(kind: PolicyKind, jobs: u32, actions: &mut Vec<Action>) -> Engine {
    let mut engine = Engine::new(kind.build());
    for job in 0..jobs {
        let w_iter_ns = Some(10u64.pow(9 + job % 4));
        let info = JobInfo { w_iter_ns, cap: Some(if job % 2 == 0 { 1.0 } else { 0.5 }), nodes: 1 };
        engine.step(0, Event::JobJoined { job: JobId(job), info }, actions);
    }
    engine
}

/// Time on the processor where the system tells it, else time that passed.
fn processor_ns(start: Instant) -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_processor = told.and_then(|text| text.split(' ').next()?.parse().ok());
    on_processor.unwrap_or_else(|| start.elapsed().as_nanos() as u64)
}

fn nanoseconds_per_step(kind: PolicyKind, jobs: u32) -> f64 {
    let events = (20 * jobs as usize).clamp(300_000, 1_000_000);
    let history = history(jobs, events);
    let mut actions = Vec::new();
    let start = Instant::now();
    let mut best_ns = u64::MAX;
    for _ in 0..3 {
        let mut engine = engine(kind, jobs, &mut actions);
        let before_ns = processor_ns(start);
        for &(now_ns, event) in &history {
            engine.step(now_ns, event, &mut actions);
        }
        best_ns = best_ns.min(processor_ns(start) - before_ns);
    }
    best_ns as f64 / history.len() as f64
}

fn main() {
    // Timetables are planned for tens of applications; they are not on this curve.
    let planned = [PolicyKind::Periodic, PolicyKind::Apio, PolicyKind::ApioBarrier];
    println!("nanoseconds per step, by number of jobs (and millions of steps per second with {})", COUNTS[0]);
    let heads: Vec<String> = COUNTS.iter().map(|count| format!("{count:>8}")).collect();
    println!("{:12}{} {:>10}", "policy", heads.concat(), "Msteps/s");
    for kind in PolicyKind::ALL.into_iter().filter(|kind| !planned.contains(kind)) {
        let costs: Vec<f64> = COUNTS.iter().map(|&count| nanoseconds_per_step(kind, count)).collect();
        let cells: Vec<String> = costs.iter().map(|cost| format!("{cost:8.0}")).collect();
        println!("{:12}{} {:>10.1}", kind.to_string(), cells.concat(), 1e3 / costs[0]);
    }
}
