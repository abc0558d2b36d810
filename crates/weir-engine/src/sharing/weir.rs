//! `weir`, the default: shortest first, as long as nobody falls behind.
//!
//! Serving the job with the least left to move keeps the fewest jobs waiting, which is what
//! utilization asks for, and lets large jobs wait too long, which is what stretch forbids. The rule
//! weighs one against the other. A job ranks by
//!
//! ```text
//! f / left^e        f    = part of its life that the job has been stalled in I/O
//!                   left = volume it is expected to move still in this phase
//!                   e    = 0.45 + 8 x,  x = mean of f over the jobs
//! ```
//!
//! and the highest is served, at once and in place of whoever is served, once it is a hundredth above. Jobs whose `f` is above a
//! limit are *overdue*: they go before all others, the highest `f` first, until they are below it again.
//! Nobody is to be stalled more than five times the mean, nor to get on (`1 - f`, the inverse of its
//! stretch) more than 9 % slower than the mean job. The first is what counts where stalls are few, the
//! second in overload. Each job is given what it can use; what it leaves goes to the next in rank.
//!
//! - It needs no characteristic time. What is left comes from past phases; for a job without
//!   any, from how much others move for the time they compute.
//! - Volumes vary: past its mean, a phase is not about to end. What is left is the mean residual of a
//!   spread as wide as the job's own ([`residual`]).
//! - What a job can use of the bandwidth is learnt when not told ([`Caps`]).
//! - Nobody starves: who waits has an `f` that grows without bound on its line while that of the
//!   served stands still, so it becomes overdue, then first among those; a timer makes sure of a look
//!   even if nothing else happens.
//!
//! The form and the constants were chosen by trial, some ninety combinations, on workloads of the same
//! scenarios as those of `weir reproduce iosets`; docs/reproduction/iosets.md has what came out on others.

use super::Policy;
use super::caps::Caps;
use super::deadlines::Deadlines;
use super::greedy::Greedy;
use super::tournament::{Line, overtaken_at_ns};
use crate::engine::{Desk, Job, JobId};

#[derive(Default)]
pub struct Weir {
    greedy: Greedy,
    ledger: Ledger,
    caps: Caps,
    timer_ns: Option<u64>,
    /// Who alone is served, and since when.
    alone: Option<(JobId, u64)>,
}

/// A job is taken to have run this long without a stall before it joined: one that begins with I/O
/// has not been stalled "all its life" after a second.
const GRACE_NS: f64 = 600e9;

/// The longest time between two looks while somebody waits.
const LOOK_AGAIN_NS: u64 = 2_000_000_000;

/// How many times the mean a job may be stalled, and how far its progress may be behind the mean's.
const MOST_STALLED: f64 = 5.0;
const MOST_BEHIND: f64 = 0.09;

/// Who is served ranks this much higher. To change places costs a message to either, and of many whose ranks
/// are all but the same one would overtake the other at every event.
const IN_PLACE: f64 = 1.01;

/// Lifts the overdue above all others. Ranks below are at most [`HIGHEST_WEIGHT`].
const OVERDUE: f64 = 1e9;
const HIGHEST_WEIGHT: f64 = 1e6;

impl Policy for Weir {
    fn joined(&mut self, job: JobId, desk: &mut Desk) {
        self.ledger.join(job);
        self.caps.join(job, desk.now_ns);
    }

    fn left(&mut self, job: JobId, _desk: &mut Desk) {
        self.ledger.leave(job);
    }

    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.ledger.phase_began(job, desk);
        let line = self.ledger.line(job, false, desk);
        self.greedy.enter_with_cap(job, self.caps.of(job, desk), line, desk);
        self.settle(desk);
    }

    /// The rank is brought up to date (late news of a job that is held: when it is served again).
    /// Places change at the events that follow, or here if it turns out that the job can use another
    /// part of the bandwidth than it was thought to.
    fn moved(&mut self, job: JobId, desk: &mut Desk) {
        let alone_since_ns = self.alone.filter(|&(alone, _)| alone == job).map(|(_, since_ns)| since_ns);
        self.caps.learn(job, alone_since_ns, desk);
        self.ledger.standings[desk.seat(job)].weight = self.ledger.weight(job, desk);
        if !self.greedy.is_served(job, desk) {
            return;
        }
        let line = self.ledger.line(job, true, desk);
        self.greedy.change(job, line, desk);
        if desk.job(job).told_cap().is_none() {
            self.greedy.change_cap(job, self.caps.of(job, desk), desk);
            self.settle(desk);
        }
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.ledger.phase_ended(job, desk);
        self.caps.phase_ended(job, desk);
        self.greedy.leave(job, desk);
        self.settle(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.settle(desk);
    }

    fn wants_progress(&self) -> bool {
        true
    }
}

impl Weir {
    fn settle(&mut self, desk: &mut Desk) {
        while let Some(job) = self.ledger.next_overdue(desk) {
            let line = self.ledger.line(job, false, desk);
            self.greedy.change(job, line, desk);
        }
        let ledger = &mut self.ledger;
        self.greedy.settle(desk, |job, served, desk| ledger.line(job, served, desk));
        let alone = self.greedy.only_served(desk);
        if alone != self.alone.map(|(job, _)| job) {
            self.alone = alone.map(|job| (job, desk.now_ns));
        }
        if self.timer_ns.is_none_or(|at_ns| at_ns <= desk.now_ns) {
            self.timer_ns = None;
            if self.greedy.somebody_waits(desk.now_ns) {
                let at_ns = desk.now_ns.saturating_add(LOOK_AGAIN_NS);
                self.timer_ns = Some(at_ns);
                desk.timer(at_ns);
            }
        }
    }
}

/// What the rule knows of the jobs beyond the engine's records.
#[derive(Default)]
struct Ledger {
    /// By job.
    stalls: Vec<Stalls>,
    /// By seat.
    standings: Vec<Standing>,
    jobs: u64,
    /// Sum of the jobs' `f`, each as of its latest event.
    sum_of_fractions: f64,
    /// When to look whether a job that waits is overdue.
    deadlines: Deadlines,
    /// Over the past phases of all jobs: their number, what they moved, the compute time before them.
    phases: f64,
    volume_bytes: f64,
    compute_ns: f64,
}

/// How long a job has been stalled in its life.
#[derive(Clone, Copy, Default)]
struct Stalls {
    past_ns: f64,
    /// `f` as of the latest event.
    fraction: f64,
}

/// How a job in its phase stands.
#[derive(Clone, Copy)]
struct Standing {
    /// Stalled since then, on top of the past; `None` while served.
    stalled_since_ns: Option<u64>,
    /// `left^-e` as of the latest news.
    weight: f64,
    overdue: bool,
}

impl Ledger {
    fn join(&mut self, job: JobId) {
        if self.stalls.len() <= job.index() {
            self.stalls.resize(job.index() + 1, Stalls::default());
        }
        self.stalls[job.index()] = Stalls::default();
        self.jobs += 1;
    }

    fn leave(&mut self, job: JobId) {
        self.jobs -= 1;
        self.sum_of_fractions -= self.stalls[job.index()].fraction;
    }

    fn phase_began(&mut self, job: JobId, desk: &Desk) {
        let standing = Standing { stalled_since_ns: None, weight: self.weight(job, desk), overdue: false };
        let seat = desk.seat(job);
        if self.standings.len() <= seat {
            self.standings.resize(seat + 1, standing);
        }
        self.standings[seat] = standing;
    }

    fn mean_fraction(&self) -> f64 {
        (self.sum_of_fractions / self.jobs.max(1) as f64).max(0.0)
    }

    /// Above this `f` a job is overdue. Two thousandths of one's life are never too late.
    fn limit(&self) -> f64 {
        let mean = self.mean_fraction();
        let slowest = (1.0 - MOST_BEHIND) * (1.0 - mean);
        (MOST_STALLED * mean).min(1.0 - slowest).max(0.002)
    }

    /// The job's rank from now on. `f` is a curve, `stalled / life`; its tangent at this moment lies
    /// above it, so a job that is not looked at for long ranks rather too high than too low.
    fn line(&mut self, job: JobId, served: bool, desk: &Desk) -> Line {
        let now_ns = desk.now_ns;
        let entry = desk.job(job);
        let life_ns = life_ns(entry, now_ns);
        let limit = self.limit();
        let (stalls, standing) = (&mut self.stalls[job.index()], &mut self.standings[desk.seat(job)]);
        stalls.past_ns += standing.stop_stall(now_ns);
        standing.stalled_since_ns = (!served).then_some(now_ns);
        let fraction = stalls.past_ns / life_ns;
        let growth = (1.0 - fraction) / life_ns;
        self.sum_of_fractions += fraction - stalls.fraction;
        stalls.fraction = fraction;
        standing.overdue &= fraction >= limit;
        let Standing { weight, overdue, .. } = *standing;
        if !served && !overdue {
            let deadline_ns = overtaken_at_ns(now_ns, (limit - fraction).max(0.0), growth);
            self.look_by(job, deadline_ns, desk);
        }
        let (lift, weight) = if overdue { (OVERDUE, 1.0) } else { (0.0, weight) };
        let rank = fraction * weight;
        let (value, slope) = if served { (rank * IN_PLACE, 0.0) } else { (rank, growth * weight) };
        Line { value: lift + value, slope, at_ns: now_ns }
    }

    /// A deadline is only when to look: an earlier one stays as it is, even while the job is served.
    fn look_by(&mut self, job: JobId, deadline_ns: u64, desk: &Desk) {
        let seat = desk.seat(job);
        if deadline_ns < self.deadlines.get(seat) {
            self.deadlines.set(job, seat, deadline_ns);
        }
    }

    /// A waiting job whose time has come.
    fn next_overdue(&mut self, desk: &Desk) -> Option<JobId> {
        let limit = self.limit();
        while let Some(job) = self.deadlines.pop(desk.now_ns) {
            let standing = &mut self.standings[desk.seat(job)];
            if standing.stalled_since_ns.is_none() || standing.overdue {
                continue;
            }
            let life_ns = life_ns(desk.job(job), desk.now_ns);
            let stalled_ns = self.stalls[job.index()].past_ns + standing.stall_ns(desk.now_ns);
            let fraction = stalled_ns / life_ns;
            if fraction >= limit {
                standing.overdue = true;
                return Some(job);
            }
            let wait_ns = ((limit - fraction) * life_ns).max(life_ns * 1e-4);
            self.look_by(job, desk.now_ns.saturating_add(wait_ns as u64 + 1), desk);
        }
        None
    }

    /// `left^-e`, with volumes in units of the mean phase: `e` moves with time, and a unit of its own
    /// would let ranks of different times differ by far more than the jobs do.
    fn weight(&self, job: JobId, desk: &Desk) -> f64 {
        let mean_bytes = if self.phases > 0.0 { self.volume_bytes / self.phases } else { 1.0 };
        let left = self.left_bytes(desk.job(job)) / mean_bytes.max(1.0);
        let exponent = 0.45 + 8.0 * self.mean_fraction();
        left.powf(-exponent).clamp(1.0 / HIGHEST_WEIGHT, HIGHEST_WEIGHT)
    }

    /// What the phase is expected to move still.
    fn left_bytes(&self, job: Job) -> f64 {
        let history = job.history;
        let (mean_bytes, spread_bytes) = match (job.announced_bytes(), history.past_phases()) {
            (Some(bytes), _) => (bytes as f64, 0.0),
            (None, 0) if self.compute_ns > 0.0 => {
                let likely = history.compute_ns as f64 * self.volume_bytes / self.compute_ns;
                (likely, 0.1 * likely)
            }
            (None, 0) => (0.0, 0.0),
            (None, 1) => (history.past_mean_bytes, 0.1 * history.past_mean_bytes),
            (None, _) => (history.past_mean_bytes, history.past_deviation_bytes()),
        };
        let left = residual(mean_bytes - job.moved_bytes() as f64, spread_bytes);
        left.max(0.01 * mean_bytes).max(1.0)
    }

    fn phase_ended(&mut self, job: JobId, desk: &Desk) {
        let entry = desk.job(job);
        self.phases += 1.0;
        self.volume_bytes += entry.moved_bytes() as f64;
        self.compute_ns += entry.history.compute_ns as f64 / entry.history.past_phases().max(1) as f64;
        let seat = desk.seat(job);
        self.stalls[job.index()].past_ns += self.standings[seat].stop_stall(desk.now_ns);
        self.deadlines.clear(seat);
    }
}

impl Standing {
    /// The stall under way.
    fn stall_ns(&self, now_ns: u64) -> f64 {
        self.stalled_since_ns.map_or(0.0, |since_ns| (now_ns - since_ns) as f64)
    }

    /// How long it was.
    fn stop_stall(&mut self, now_ns: u64) -> f64 {
        let stall_ns = self.stall_ns(now_ns);
        self.stalled_since_ns = None;
        stall_ns
    }
}

fn life_ns(job: Job, now_ns: u64) -> f64 {
    (now_ns - job.history.joined_ns) as f64 + GRACE_NS
}

/// The mean of what is still to come of a quantity expected to be `ahead` more, with the given
/// standard deviation, knowing that it has not ended yet. A smooth maximum of `ahead` and zero that
/// is one deviation at `ahead = 0`; the exact one is 0.80 for normal, 0.87 for uniform spreads.
fn residual(ahead: f64, deviation: f64) -> f64 {
    (ahead + (ahead * ahead + 4.0 * deviation * deviation).sqrt()) / 2.0
}
