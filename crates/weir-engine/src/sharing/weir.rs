//! `weir`, the default: shortest first, as long as nobody falls behind.
//!
//! Serving the job with the least left to move keeps the fewest jobs waiting, which is what
//! utilization asks for, and lets large jobs wait too long, which is what stretch forbids. The rule
//! weighs one against the other. A job ranks by
//!
//! ```text
//! pull(f / F) − 0.85 ln(left) + ln(lost)     f    = part of its life that the job has been stalled in I/O
//!                                            F    = mean of f over the jobs
//!                                            left = volume it is expected to move still in this phase
//!                                            lost = node seconds of computing that a second of stall costs
//!                                            pull(x) = 0.8 x, at most 5
//! ```
//!
//! and the highest is served, at once and in place of the job that is served, once it is a hundredth above.
//! Without the first term this is nearly the shortest remaining time first, weighted by what a wait costs. With it, a job that
//! has been stalled as much more than another as the mean job in all goes before one two fifths its size.
//!
//! In overload the jobs that are worst off are many. There the jobs whose progress (`1 - f`, the inverse of
//! the stretch) is 9 % behind that of the mean job are *overdue*: they go before all others, the highest `f` first,
//! until they are no longer. While stalls are few this limit is too wide to matter ([`Ledger::limit`]).
//! Each job is given what it can use; what it leaves goes to the next in rank.
//!
//! Before all ranks stands that no phase ends later than fair sharing would have ended it ([`FairClock`]): a phase that would is
//! *due* and goes first. So does a job that can use less than its fair share, which fair sharing would never keep waiting. A phase of unknown size
//! goes before the ranks while it has moved less than a quarter of its fair part, unless that is too little to matter in the job's
//! life: no job is to fall more than about 2 % behind fair sharing for it. Where all sizes are known, no phase ends later than fairly;
//! tests/sharing_weir.rs holds it to that.
//!
//! - It needs no characteristic time. What is left comes from past phases; for a job without
//!   any, from how much others move for the time they compute.
//! - Volumes vary: past its mean, a phase is not about to end. What is left is the mean residual of a
//!   spread as wide as the job's own ([`residual`]); past three times its mean, a phase is taken to be
//!   of another kind, with as much to come as has come beyond the mean.
//! - What a job can use of the bandwidth is learnt when not told ([`Caps`]).
//! - Nobody starves: the `f` of a waiting job grows while that of the served one stands still, and a timer makes sure
//!   of a look even if nothing else happens.
//!
//! The form and the constants were chosen by trial on workloads of the same
//! scenarios as those of `weir reproduce iosets`; docs/reproduction/iosets.md has what came out on others.

use super::Policy;
use super::caps::Caps;
use super::deadlines::Deadlines;
use super::fair_clock::{FairClock, Urgency};
use super::greedy::Greedy;
use super::tournament::{Line, overtaken_at_ns};
use crate::engine::{Desk, Job, JobId, Past, SeenAlone, elapsed_ns};
use crate::math::ln;
use crate::records::Seat;

#[derive(Default)]
pub struct Weir {
    greedy: Greedy,
    ledger: Ledger,
    caps: Caps,
    clock: FairClock,
    throughput: Throughput,
    /// Phases that can use less than their fair share, which the clock does not count.
    beside: Vec<Seat>,
    /// Phases whose urgency has changed; kept for its memory.
    changed: Vec<(Seat, Urgency)>,
    timer_ns: Option<u64>,
    /// When a phase last began or ended.
    news_ns: u64,
    /// Who alone is served, and since when.
    alone: Option<(Seat, u64)>,
}

/// A job is taken to have run this long without a stall before it joined: one that begins with I/O
/// has not been stalled "all its life" after a second.
const GRACE_NS: f64 = 600e9;

/// While somebody waits there is a look at least so often, or, when nothing has happened for long, so many times
/// while that time doubles: what has not changed for a day is not about to within seconds.
const LOOK_AGAIN_NS: u64 = 2_000_000_000;
const LOOKS: u64 = 20_000;

/// How strongly a job that is stalled more than the mean one is preferred.
const PULL: f64 = 0.8;

/// What the logarithm of the size counts.
const SIZE: f64 = 0.85;

/// No stall outweighs more than this in the logarithm of the size: a phase some hundred times shorter than the others goes
/// before them whatever they have suffered, at no cost to them.
const MAX_PULL: f64 = 5.0;

/// Means below this are as good as none: a stall of a thousandth is not worth a change of order.
const MIN_MEAN: f64 = 0.001;
const MEAN_STEP: f64 = 1.125;

/// How far a job's progress may be behind the mean one's in overload, the mean stall from which on it is overload,
/// and how much farther behind a job may be for each part that the mean stall is below that.
const MAX_BEHIND: f64 = 0.09;
const OVERLOAD: f64 = 0.08;
const ROOM_BELOW_OVERLOAD: f64 = 4.0;

/// The served job ranks this much higher. To change places costs a message to either, and of many whose ranks
/// are all but the same one would overtake the other at every event.
const IN_PLACE: f64 = 0.01;

/// Lifts the overdue above all others, those behind above these, and those due above all.
const OVERDUE: f64 = 1e9;
const BEHIND: f64 = 1e11;
const DUE: f64 = 1e12;

/// A phase of unknown size may be behind by so much time, and this part of the job's life.
const PATIENCE_NS: f64 = 50e6;
const PATIENCE: f64 = 0.02;

/// Looks whether a phase is due are at least so far apart.
const MIN_LOOK_NS: f64 = 1e6;

/// A size is known from past phases that differ by at most this part, until the phase has moved so many times their mean.
const KNOWN_SPREAD: f64 = 0.5;
const KNOWN_UNTIL: f64 = 1.2;

/// A waiting job is looked at again when its stall has grown by at least this part of the mean one, and in one step at most
/// so many jobs are: the others' turn comes at the next.
const MIN_LOOK: f64 = 0.25;
const MAX_LOOKS: usize = 16;

/// A phase that has moved so many times its job's mean is of another kind than those before.
const OUTGROWN: f64 = 3.0;

impl Policy for Weir {
    fn joined(&mut self, job: JobId, desk: &mut Desk) {
        let past = desk.info(job).map_or(Past::default(), |info| info.past);
        self.ledger.join(job, past);
        self.caps.join(job, past.alone, desk.now_ns);
    }

    fn left(&mut self, job: JobId, _desk: &mut Desk) {
        self.ledger.leave(job);
    }

    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        self.news_ns = desk.now_ns;
        self.ledger.phase_began(seat, desk);
        self.throughput.somebody_asks(self.ledger.asking, desk.now_ns);
        let cap = self.caps.of(seat, desk);
        self.beside.push(seat);
        self.ledger.standings[seat.index()].urgency = Urgency::Due;
        let line = self.ledger.line(seat, false, desk);
        self.greedy.enter_with_cap(seat, cap, line, desk);
        self.count_who_can_use_its_share(desk);
        self.settle(desk);
    }

    /// The rank is brought up to date (late news of a job that is held: when it is served again).
    /// Places change at the events that follow, or here if it turns out that the job can use another
    /// part of the bandwidth than it was thought to.
    fn moved(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        let alone_since_ns = self.alone.filter(|&(alone, _)| alone == seat).map(|(_, since_ns)| since_ns);
        self.caps.learn(seat, alone_since_ns, desk);
        self.throughput.add(self.ledger.progressed(seat, desk));
        let entry = desk.seated(seat);
        self.clock.moved(seat, entry.moved_bytes(), known_bytes(entry));
        let mut news = self.clock.is_time_to_look();
        if self.greedy.is_served(seat) {
            let line = self.ledger.line(seat, true, desk);
            self.greedy.change(seat, line, desk);
            if desk.seated(seat).told_cap().is_none() {
                self.greedy.change_cap(seat, self.caps.of(seat, desk));
                news = true;
            }
        }
        if news {
            self.settle(desk);
        }
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        self.news_ns = desk.now_ns;
        self.throughput.add(self.ledger.progressed(seat, desk));
        match self.beside.iter().position(|&beside| beside == seat) {
            Some(index) => drop(self.beside.swap_remove(index)),
            None => self.clock.ended(seat, desk.seated(seat).moved_bytes()),
        }
        self.ledger.phase_ended(seat, desk);
        self.throughput.somebody_ends(self.ledger.asking, desk.now_ns);
        self.caps.phase_ended(seat, desk);
        self.greedy.leave(seat);
        self.settle(desk);
    }

    /// A served job that reports nothing keeps a rank of long ago, so the lowest of them is looked at as well.
    fn time_passed(&mut self, desk: &mut Desk) {
        if let Some(seat) = self.greedy.lowest_served() {
            let line = self.ledger.line(seat, true, desk);
            self.greedy.change(seat, line, desk);
        }
        self.settle(desk);
    }

    fn seen_alone(&self, job: JobId) -> Option<SeenAlone> {
        self.caps.seen_alone(job)
    }

    fn wants_progress(&self) -> bool {
        true
    }
}

impl Weir {
    fn settle(&mut self, desk: &mut Desk) {
        for _ in 0..MAX_LOOKS {
            let Some(seat) = self.ledger.next_to_look_at(desk) else { break };
            let line = self.ledger.line(seat, false, desk);
            self.greedy.change(seat, line, desk);
        }
        self.look_who_is_due(desk);
        let ledger = &mut self.ledger;
        self.greedy.settle(desk, |seat, served, desk| ledger.line(seat, served, desk));
        let alone = self.greedy.only_served();
        if alone != self.alone.map(|(seat, _)| seat) {
            self.alone = alone.map(|seat| (seat, desk.now_ns));
        }
        self.timer_ns = self.timer_ns.filter(|&at_ns| at_ns > desk.now_ns);
        if self.greedy.somebody_waits(desk.now_ns) {
            let wait_ns = LOOK_AGAIN_NS.max((desk.now_ns - self.news_ns) / LOOKS);
            let room_ns = self.clock.room_bytes() / self.throughput.bytes_per_ns(desk.now_ns);
            let at_ns = desk.now_ns.saturating_add(wait_ns.min(room_ns.max(MIN_LOOK_NS) as u64));
            if self.timer_ns.is_none_or(|timer_ns| at_ns < timer_ns) {
                self.timer_ns = Some(at_ns);
                desk.timer(at_ns);
            }
        }
    }

    /// The clock counts a phase from when it can use its fair share on. The more phases there are, the smaller that is.
    fn count_who_can_use_its_share(&mut self, desk: &Desk) {
        let bytes_per_ns = self.throughput.bytes_per_ns(desk.now_ns);
        let mut index = 0;
        while let Some(&seat) = self.beside.get(index) {
            if self.caps.of(seat, desk) * (self.ledger.asking as f64) < 1.0 {
                index += 1;
                continue;
            }
            self.beside.swap_remove(index);
            let job = desk.seated(seat);
            let life_ns = elapsed_ns(job.history().joined_ns, desk.now_ns);
            let patience_bytes = bytes_per_ns * (PATIENCE_NS + PATIENCE * life_ns);
            self.clock.began(seat, job.moved_bytes(), known_bytes(job), patience_bytes);
            self.change_urgency(seat, Urgency::Calm, desk);
        }
    }

    fn look_who_is_due(&mut self, desk: &Desk) {
        if !self.clock.is_time_to_look() {
            return;
        }
        let grain_bytes = (self.throughput.bytes_per_ns(desk.now_ns) * MIN_LOOK_NS).max(1.0);
        let mut changed = std::mem::take(&mut self.changed);
        self.clock.look(grain_bytes, |seat, urgency| changed.push((seat, urgency)));
        for (seat, urgency) in changed.drain(..) {
            self.change_urgency(seat, urgency, desk);
        }
        self.changed = changed;
    }

    fn change_urgency(&mut self, seat: Seat, urgency: Urgency, desk: &Desk) {
        self.ledger.standings[seat.index()].urgency = urgency;
        let line = self.ledger.line(seat, self.greedy.is_served(seat), desk);
        self.greedy.change(seat, line, desk);
    }
}

/// What the phase under way moves in all, where that is known.
fn known_bytes(job: Job) -> Option<f64> {
    let moved_bytes = job.moved_bytes() as f64;
    if let Some(bytes) = job.announced_bytes() {
        return Some(bytes as f64).filter(|&bytes| moved_bytes <= bytes);
    }
    let history = job.history();
    let (mean_bytes, spread_bytes) = (history.past_mean_bytes, history.past_deviation_bytes());
    let is_known = history.past_phases() > 0
        && spread_bytes <= KNOWN_SPREAD * mean_bytes
        && moved_bytes <= KNOWN_UNTIL * mean_bytes + 2.0 * spread_bytes;
    is_known.then(|| moved_bytes + residual(mean_bytes - moved_bytes, spread_bytes))
}

/// How fast the storage has been while there was something to do.
#[derive(Default)]
struct Throughput {
    bytes: f64,
    busy_ns: f64,
    busy_since_ns: u64,
}

/// What was longer ago counts half.
const THROUGHPUT_MEMORY_NS: f64 = 1000e9;

impl Throughput {
    fn add(&mut self, bytes: f64) {
        self.bytes += bytes;
    }

    fn somebody_asks(&mut self, asking: u64, now_ns: u64) {
        if asking == 1 {
            self.busy_since_ns = now_ns;
        }
    }

    fn somebody_ends(&mut self, asking: u64, now_ns: u64) {
        if asking == 0 {
            self.busy_ns += elapsed_ns(self.busy_since_ns, now_ns);
            self.busy_since_ns = now_ns;
            if self.busy_ns > THROUGHPUT_MEMORY_NS {
                self.bytes /= 2.0;
                self.busy_ns /= 2.0;
            }
        }
    }

    /// At least a byte in a second: nothing is divided by nothing.
    fn bytes_per_ns(&self, now_ns: u64) -> f64 {
        let busy_ns = self.busy_ns + elapsed_ns(self.busy_since_ns, now_ns);
        (self.bytes / busy_ns.max(1.0)).max(1e-9)
    }
}

/// What the rule knows of the jobs beyond the engine's records.
#[derive(Default)]
struct Ledger {
    /// By job, up to its latest phase.
    stalls: Vec<Stalls>,
    /// By seat.
    standings: Vec<Standing>,
    jobs: u64,
    /// Jobs in their phase.
    asking: u64,
    /// Sum of the jobs' `f`, each as of its latest event.
    sum_of_fractions: f64,
    /// See [`Ledger::scale`].
    scale: f64,
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

/// How a job in its phase stands: all that is asked of it until the phase ends.
#[derive(Clone, Copy)]
struct Standing {
    /// When its life began, as far as the clock goes back.
    born_ns: u64,
    /// The mean over its phases, this one included, of the compute time before each.
    compute_ns: f64,
    stalls: Stalls,
    /// Stalled since then, on top of the past; [`SERVED`] while it is not.
    stalled_since_ns: u64,
    /// The rank without what stalls add to it: `ln(lost) − 0.85 ln(left)` as of the latest news.
    worth: f64,
    /// `ln(lost)`.
    lost: f64,
    moved_bytes: u64,
    overdue: bool,
    urgency: Urgency,
}

const SERVED: u64 = u64::MAX;

impl Ledger {
    fn join(&mut self, job: JobId, past: Past) {
        if self.stalls.len() <= job.index() {
            self.stalls.resize(job.index() + 1, Stalls::default());
        }
        let past_ns = past.stalled_ns as f64;
        let fraction = past_ns / (past.life_ns as f64 + GRACE_NS);
        self.stalls[job.index()] = Stalls { past_ns, fraction };
        self.sum_of_fractions += fraction;
        self.jobs += 1;
    }

    fn leave(&mut self, job: JobId) {
        self.jobs -= 1;
        self.sum_of_fractions -= self.stalls[job.index()].fraction;
    }

    fn phase_began(&mut self, seat: Seat, desk: &Desk) {
        self.asking += 1;
        let job = desk.seated(seat);
        let standing = Standing {
            born_ns: job.history().joined_ns.saturating_sub(job.past().life_ns),
            compute_ns: job.compute_ns() as f64 / (job.history().past_phases() + 1) as f64,
            stalls: self.stalls[seat.job.index()],
            stalled_since_ns: SERVED,
            worth: 0.0,
            lost: self.lost(job),
            moved_bytes: 0,
            overdue: false,
            urgency: Urgency::Calm,
        };
        let standing = Standing { worth: standing.lost - SIZE * ln(self.left(job)), ..standing };
        if self.standings.len() <= seat.index() {
            self.standings.resize(seat.index() + 1, standing);
        }
        self.standings[seat.index()] = standing;
    }

    fn mean_fraction(&self) -> f64 {
        (self.sum_of_fractions / self.jobs.max(1) as f64).max(0.0)
    }

    /// The mean that ranks are made with. It follows the mean in steps: where every rank changed a little with every event, all of
    /// those who wait would change places all the time.
    fn scale(&mut self) -> f64 {
        let mean = self.mean_fraction().max(MIN_MEAN);
        if !(mean / MEAN_STEP..=mean * MEAN_STEP).contains(&self.scale) {
            self.scale = mean;
        }
        self.scale
    }

    /// Above this `f` a job is overdue. Where stalls are few, order of size and the pull of stalls do without a limit.
    fn limit(&self) -> f64 {
        let mean = self.mean_fraction();
        let behind = MAX_BEHIND + ROOM_BELOW_OVERLOAD * (OVERLOAD - mean).max(0.0);
        1.0 - (1.0 - behind) * (1.0 - mean)
    }

    /// The job's rank from now on.
    fn line(&mut self, seat: Seat, served: bool, desk: &Desk) -> Line {
        let now_ns = desk.now_ns;
        let (limit, mean) = (self.limit(), self.scale());
        let standing = &mut self.standings[seat.index()];
        standing.stop_stall(now_ns);
        standing.stalled_since_ns = if served { SERVED } else { now_ns };
        let life_ns = standing.life_ns(now_ns);
        let fraction = standing.stalls.past_ns / life_ns;
        let growth = (1.0 - fraction) / life_ns;
        self.sum_of_fractions += fraction - standing.stalls.fraction;
        standing.stalls.fraction = fraction;
        standing.overdue = fraction >= limit && (!served || standing.overdue);
        let Standing { worth, overdue, urgency, .. } = *standing;
        if !served {
            let missing = if overdue { 1.0 } else { limit - fraction };
            self.look_by(seat, overtaken_at_ns(now_ns, missing.max(MIN_LOOK * mean), growth));
        }
        let (in_place, grows) = if served { (IN_PLACE, 0.0) } else { (0.0, 1.0) };
        let lift = match urgency {
            Urgency::Calm => 0.0,
            Urgency::Behind => BEHIND,
            Urgency::Due => DUE,
        };
        if overdue {
            let value = lift + OVERDUE + fraction * (1.0 + in_place);
            return Line { value, slope: grows * growth, at_ns: now_ns };
        }
        let stalled = fraction / mean;
        let (pull, next_pull) = (pull(stalled), pull(stalled + 1.0));
        let slope = grows * (next_pull - pull) * growth / mean;
        Line { value: lift + pull + worth + in_place, slope, at_ns: now_ns }
    }

    /// A deadline is only when to look: an earlier one stays as it is, even while the job is served.
    fn look_by(&mut self, seat: Seat, deadline_ns: u64) {
        if deadline_ns < self.deadlines.get(seat) {
            self.deadlines.set(seat, deadline_ns);
        }
    }

    /// A waiting job that it is time to look at.
    fn next_to_look_at(&mut self, desk: &Desk) -> Option<Seat> {
        while let Some(seat) = self.deadlines.pop(desk.now_ns) {
            if self.standings[seat.index()].stalled_since_ns != SERVED {
                return Some(seat);
            }
        }
        None
    }

    /// The job has moved some of its phase's volume. Answers how much since this was last said.
    fn progressed(&mut self, seat: Seat, desk: &Desk) -> f64 {
        let job = desk.seated(seat);
        let left = self.left(job);
        let standing = &mut self.standings[seat.index()];
        standing.worth = standing.lost - SIZE * ln(left);
        let before_bytes = std::mem::replace(&mut standing.moved_bytes, job.moved_bytes());
        (job.moved_bytes() - before_bytes) as f64
    }

    /// The logarithm of what a second of stall costs: the job's nodes, times the part of their time that they compute
    /// when the job runs alone.
    fn lost(&self, job: Job) -> f64 {
        let history = job.history();
        let past_phases = history.past_phases() as f64;
        let io_ns = if past_phases > 0.0 { history.past_io_ns / past_phases / job.cap() } else { 0.0 };
        let compute_ns = job.compute_ns() as f64 / (past_phases + 1.0);
        let efficiency = if compute_ns > 0.0 { compute_ns / (compute_ns + io_ns) } else { 1.0 };
        ln(job.nodes() as f64 * efficiency.max(0.01))
    }

    /// What the phase is expected to move still, in units of the mean phase.
    fn left(&self, job: Job) -> f64 {
        let mean_bytes = if self.phases > 0.0 { self.volume_bytes / self.phases } else { 1.0 };
        self.left_bytes(job) / mean_bytes.max(1.0)
    }

    /// What the phase is expected to move still.
    fn left_bytes(&self, job: Job) -> f64 {
        let history = job.history();
        let (mean_bytes, spread_bytes) = match (job.announced_bytes(), history.past_phases()) {
            (Some(bytes), _) => (bytes as f64, 0.0),
            (None, 0) if self.compute_ns > 0.0 => {
                let likely = job.compute_ns() as f64 * self.volume_bytes / self.compute_ns;
                (likely, 0.1 * likely)
            }
            (None, 0) => (0.0, 0.0),
            (None, 1) => (history.past_mean_bytes, 0.1 * history.past_mean_bytes),
            (None, _) => (history.past_mean_bytes, history.past_deviation_bytes()),
        };
        let moved_bytes = job.moved_bytes() as f64;
        let left_bytes = residual(mean_bytes - moved_bytes, spread_bytes).max(0.01 * mean_bytes).max(1.0);
        if moved_bytes > OUTGROWN * mean_bytes {
            left_bytes.max(moved_bytes - mean_bytes)
        } else {
            left_bytes
        }
    }

    fn phase_ended(&mut self, seat: Seat, desk: &Desk) {
        let standing = &mut self.standings[seat.index()];
        standing.stop_stall(desk.now_ns);
        self.asking -= 1;
        if !desk.cut_short {
            self.phases += 1.0;
            self.volume_bytes += desk.seated(seat).moved_bytes() as f64;
            self.compute_ns += standing.compute_ns;
        }
        self.stalls[seat.job.index()] = standing.stalls;
        self.deadlines.clear(seat);
    }
}

impl Standing {
    /// The stall under way.
    fn stall_ns(&self, now_ns: u64) -> f64 {
        if self.stalled_since_ns == SERVED { 0.0 } else { elapsed_ns(self.stalled_since_ns, now_ns) }
    }

    /// It is one of the past.
    fn stop_stall(&mut self, now_ns: u64) {
        self.stalls.past_ns += self.stall_ns(now_ns);
        self.stalled_since_ns = SERVED;
    }

    fn life_ns(&self, now_ns: u64) -> f64 {
        elapsed_ns(self.born_ns, now_ns) + GRACE_NS
    }
}

/// What it adds to a job's rank to have been stalled so many times the mean stall.
fn pull(stalled: f64) -> f64 {
    (PULL * stalled).min(MAX_PULL)
}

/// The mean of what is still to come of a quantity expected to be `ahead` more, with the given
/// standard deviation, knowing that it has not ended yet. A smooth maximum of `ahead` and zero that
/// is one deviation at `ahead = 0`; the exact one is 0.80 for normal, 0.87 for uniform spreads.
fn residual(ahead: f64, deviation: f64) -> f64 {
    (ahead + (ahead * ahead + 4.0 * deviation * deviation).sqrt()) / 2.0
}
