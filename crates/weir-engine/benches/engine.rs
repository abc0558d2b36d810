//! How many steps the engine makes in a second, and how the cost of one grows with the number of jobs.
//!
//! `cargo bench -p weir-engine --bench engine [-- ROW…]`. A step is one event and the actions that answer it; what a
//! host does about them is not measured. Every job computes and does I/O in turn for random
//! times, held or not; one in ten is in its phase. A third each of the events are beginnings, bytes reported just
//! before the end, and ends. Events are made up a thousand at a time, outside the time
//! measured, so that they stay in the cache as those of a coordinator do. The median thousand is
//! what is told: one that other work on the machine cuts into counts as no more than one.
//!
//! Jobs that come in random order are not in the cache when they are many, whatever the policy; `(records)` is the
//! engine with a policy that does nothing. What a miss costs depends on who else uses the machine, so on a busy one a row
//! may be found above log n that is not on an idle one. `instructions.sh` beside this file counts
//! instructions instead, which are the same on any day.
//!
//! Making a timetable (`periodic`, `apio`, `apio-barrier`) takes milliseconds, but is seldom done: when a job
//! comes, goes, or has shown twice as many phases. The median does not show it; the slowest thousand with the fewest jobs is told beside it.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::time::Instant;
use weir_engine::engine::{Action, Desk, Engine, Event, JobId, JobInfo};
use weir_engine::sharing::{Policy, PolicyKind};

const COUNTS: [u32; 6] = [60, 300, 1_000, 10_000, 30_000, 100_000];
const EVENTS: usize = 1_000_000;
/// Of a run under callgrind.
const COUNTED_EVENTS: usize = 200_000;
const TIMED_TOGETHER: usize = 1_000;

/// A history that makes sense: who asks moves some bytes, then ends.
struct History {
    random: Pcg64,
    now_ns: u64,
    asking: Vec<u32>,
    computing: Vec<u32>,
}

impl History {
    fn new(jobs: u32) -> History {
        let random = Pcg64::seed_from_u64(1);
        History { random, now_ns: 1_000_000_000, asking: Vec::new(), computing: (0..jobs).collect() }
    }

    /// What happens next, in place of what is in `events`.
    fn go_on(&mut self, events: &mut Vec<(u64, Event)>) {
        let History { random, now_ns, asking, computing } = self;
        let jobs = asking.len() + computing.len();
        events.clear();
        while events.len() < TIMED_TOGETHER {
            *now_ns += random.random_range(0..200_000_000_000 / jobs as u64);
            if asking.len() * 10 < jobs {
                let job = computing.swap_remove(random.random_range(0..computing.len()));
                asking.push(job);
                events.push((*now_ns, Event::PhaseBegan { job: JobId(job), bytes: None }));
            } else {
                let job = asking.swap_remove(random.random_range(0..asking.len()));
                computing.push(job);
                let bytes = 1 << random.random_range(20..36);
                events.push((*now_ns, Event::BytesMoved { job: JobId(job), bytes }));
                events.push((*now_ns, Event::PhaseEnded { job: JobId(job) }));
            }
        }
    }
}

/// Of an event, in the median thousand of them and in the slowest.
struct Cost {
    median_ns: f64,
    slowest_ns: f64,
}

/// The number of jobs of a run under callgrind.
fn counted_jobs() -> Option<u32> {
    std::env::var("WEIR_BENCH_JOBS").ok().map(|jobs| jobs.parse().expect("WEIR_BENCH_JOBS is a number"))
}

/// What is measured. Callgrind knows it by its name.
#[inline(never)]
fn measured(events: &[(u64, Event)], step: &mut impl FnMut(u64, Event)) {
    for &(now_ns, event) in events {
        step(now_ns, event);
    }
}

fn nanoseconds_per_event(jobs: u32, mut step: impl FnMut(u64, Event)) -> Cost {
    let mut history = History::new(jobs);
    let mut events = Vec::new();
    let mut costs_ns: Vec<f64> = Vec::new();
    let count = if counted_jobs().is_some() { COUNTED_EVENTS } else { EVENTS };
    for _ in 0..count / TIMED_TOGETHER {
        history.go_on(&mut events);
        let start = Instant::now();
        measured(&events, &mut step);
        costs_ns.push(start.elapsed().as_nanos() as f64 / events.len() as f64);
    }
    costs_ns.sort_by(f64::total_cmp);
    Cost { median_ns: costs_ns[costs_ns.len() / 2], slowest_ns: costs_ns[costs_ns.len() - 1] }
}

fn of_engine(policy: Box<dyn Policy>, jobs: u32) -> Cost {
    let mut actions: Vec<Action> = Vec::new();
    let mut engine = Engine::new(policy);
    for job in 0..jobs {
        let w_iter_ns = Some(10u64.pow(9 + job % 4));
        let cap = Some(if job % 2 == 0 { 1.0 } else { 0.5 });
        let info = JobInfo { w_iter_ns, cap, ..JobInfo::default() };
        engine.step(0, Event::JobJoined { job: JobId(job), info }, &mut actions);
    }
    nanoseconds_per_event(jobs, |now_ns, event| engine.step(now_ns, event, &mut actions))
}

struct Nothing;

impl Policy for Nothing {
    fn began(&mut self, _job: JobId, _desk: &mut Desk) {}
    fn ended(&mut self, _job: JobId, _desk: &mut Desk) {}
}

fn log_growth() -> f64 {
    f64::from(COUNTS[COUNTS.len() - 1]).ln() / f64::from(COUNTS[0]).ln()
}

fn print_row(name: &str, cost: impl Fn(u32) -> Cost) {
    let mut wanted = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).peekable();
    if wanted.peek().is_some() && !wanted.any(|wanted| wanted == name) {
        return;
    }
    if let Some(jobs) = counted_jobs() {
        cost(jobs);
        return println!("{COUNTED_EVENTS}");
    }
    let costs = COUNTS.map(cost);
    let cells = costs.each_ref().map(|cost| format!("{:8.0}", cost.median_ns)).concat();
    let growth = costs[COUNTS.len() - 1].median_ns / costs[0].median_ns;
    let verdict = if growth <= log_growth() { "yes" } else { "no" };
    let rate = 1e3 / costs[0].median_ns;
    println!("{name:12}{cells} {growth:>7.1} {verdict:>8} {rate:>10.1} {:>10.0}", costs[0].slowest_ns);
}

fn print_heading() {
    let (few, many) = (COUNTS[0], COUNTS[COUNTS.len() - 1]);
    println!("nanoseconds per step, by number of jobs; how many times more with {many} than with {few}");
    println!(
        "and whether that is at most log n ({:.1}); with {few}, millions of steps per second, and",
        log_growth()
    );
    println!("nanoseconds per step of the slowest thousand");
    let heads = COUNTS.map(|count| format!("{count:>8}")).concat();
    println!("{:12}{heads} {:>7} {:>8} {:>10} {:>10}", "policy", "growth", "<= log n", "Msteps/s", "slowest");
}

fn main() {
    if counted_jobs().is_none() {
        print_heading();
    }
    print_row("(records)", |jobs| of_engine(Box::new(Nothing), jobs));
    for kind in PolicyKind::ALL {
        print_row(&kind.to_string(), |jobs| of_engine(kind.build(), jobs));
    }
}
