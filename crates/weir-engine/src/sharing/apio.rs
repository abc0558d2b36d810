//! APIO as printed: OnlineAdj (Algorithm 2) within a period, a barrier between periods (Algorithm 3).
//!
//! Where the paper leaves room, this is the reading:
//! - A coordinator can't hold a computing phase, only I/O. So the barrier is met at the first I/O of
//!   the next period; what Algorithm 3 prints, with nobody computing either, would be slower still.
//! - Every application begins its first instance of a period at once, wherever PerSched inserted it:
//!   there is nothing else for it to do. Reservations beyond the end of the pattern stay there.
//! - Late instances are emptied at every event and before anything is allocated, not only in one
//!   branch and afterwards (lines 14-17): the bandwidth is known to be unused, so it may be used.
//! - `best-effort` is: as early as possible, as fast as the cap and what is free allow.

use super::Policy;
use super::periodic::{MOST_JOBS, Periodic, Timetable, Transfer};
use crate::engine::{Desk, JobId};
use std::collections::BTreeMap;

/// Times closer than this are the same moment: a nanosecond, as the engine counts.
const SAME_S: f64 = 2e-9;
/// Less bandwidth than this part of the whole is none.
const SLIVER: f64 = 1e-9;
/// Assignments change this much after the moment they were made for, so that an instance whose last
/// byte is due at that moment has moved it before its bandwidth goes.
const GRACE_S: f64 = 50e-9;
/// What a job is allocated of which nothing is known, at the whole bandwidth.
const UNKNOWN_S: f64 = 1.0;
/// A period is given up when it takes this many times what was planned, and not before [`MIN_PATIENCE_S`]: one of a few
/// nanoseconds would otherwise be over before the first of its assignments is made.
const PATIENCE: f64 = 10.0;
const MIN_PATIENCE_S: f64 = 100.0 * GRACE_S;

/// When a period that was planned to take `period_s` is given up.
fn patience_s(period_s: f64) -> f64 {
    (PATIENCE * period_s).max(MIN_PATIENCE_S)
}

/// `free`: the bandwidth that is not reserved, from each point in time on to the next.
struct Free {
    points: Vec<(f64, f64)>,
}

impl Default for Free {
    fn default() -> Self {
        Free { points: vec![(0.0, 1.0)] }
    }
}

impl Free {
    /// The index of the point at `time_s`, which is made if there is none.
    fn point(&mut self, time_s: f64) -> usize {
        let after = self.points.partition_point(|&(start_s, _)| start_s <= time_s);
        if self.points[after - 1].0 == time_s {
            return after - 1;
        }
        let free = self.points[after - 1].1;
        self.points.insert(after, (time_s, free));
        after
    }

    fn add(&mut self, transfer: &Transfer, sign: f64) {
        if transfer.end_s > transfer.start_s {
            let (from, to) = (self.point(transfer.start_s), self.point(transfer.end_s));
            for (_, free) in &mut self.points[from..to] {
                *free = (*free + sign * transfer.bandwidth).clamp(0.0, 1.0);
            }
        }
    }

    /// Gives back what is reserved from `now_s` on.
    fn release(&mut self, transfers: &[Transfer], now_s: f64) {
        for transfer in transfers {
            self.add(&Transfer { start_s: transfer.start_s.max(now_s), ..*transfer }, 1.0);
        }
    }

    /// Reserves a volume from `now_s` on.
    fn allocate(&mut self, now_s: f64, volume: f64, cap: f64) -> Vec<Transfer> {
        let mut transfers = Vec::new();
        let mut left = volume;
        let mut at = self.points.partition_point(|&(start_s, _)| start_s <= now_s) - 1;
        loop {
            let start_s = self.points[at].0.max(now_s);
            let end_s = self.points.get(at + 1).map_or(f64::INFINITY, |point| point.0);
            let bandwidth = self.points[at].1.min(cap);
            if bandwidth > SLIVER {
                let done_s = start_s + left / bandwidth;
                transfers.push(Transfer { start_s, end_s: done_s.min(end_s), bandwidth });
                if done_s <= end_s {
                    break;
                }
                left -= bandwidth * (end_s - start_s);
            }
            at += 1;
        }
        for transfer in &transfers {
            self.add(transfer, -1.0);
        }
        self.points.drain(..self.points.partition_point(|&(start_s, _)| start_s <= now_s) - 1);
        transfers
    }
}

/// One application within the current period.
struct Running {
    /// The reservations of its instances to come, the next one last.
    reserved: Vec<Vec<Transfer>>,
    /// How many of them, the next ones, were emptied.
    emptied: usize,
}

/// An I/O phase under way: what it was allocated, or nothing while it stands at the barrier.
#[derive(Default)]
struct Phase {
    allocated: Vec<Transfer>,
    /// What it will be allocated when that was not enough.
    more: f64,
}

/// Algorithms 2 and 3, for as many jobs as a timetable is made for. A job that has no place in it, because nothing is
/// known of it yet, is allocated what is free and meets no barrier.
#[derive(Default)]
struct Barrier {
    timetable: Timetable,
    running: BTreeMap<JobId, Running>,
    phases: BTreeMap<JobId, Phase>,
    free: Free,
    period_began_ns: u64,
    /// Nobody's next reservation begins earlier, unless it was emptied.
    next_start_s: f64,
    /// One who was not done when it was last looked at.
    awaited: Option<JobId>,
    /// What everybody is to have; kept for its memory.
    shares: Vec<(JobId, f64)>,
}

impl Barrier {
    /// Algorithm 3, line 5: the next period begins, and those at the barrier go on.
    fn begin_period(&mut self, desk: &Desk) {
        self.period_began_ns = desk.now_ns;
        self.free = Free::default();
        self.running.clear();
        for &job in self.timetable.planned() {
            let Some(instances) = self.timetable.instances(job) else { continue };
            let reserved: Vec<_> =
                instances.iter().rev().map(|instance| instance.transfers.clone()).collect();
            for transfer in reserved.iter().flatten() {
                self.free.add(transfer, -1.0);
            }
            self.running.insert(job, Running { reserved, emptied: 0 });
        }
        self.next_start_s = f64::NEG_INFINITY;
        for job in in_order_of_arrival(self.phases.keys().copied().collect(), desk) {
            self.adjust(job, 0.0, desk);
        }
    }

    /// Algorithm 2, lines 3-18: an instance's computing phase has ended.
    fn adjust(&mut self, job: JobId, now_s: f64, desk: &Desk) {
        let known = self.timetable.application(job).map(|application| application.volume);
        let volume = known.unwrap_or(UNKNOWN_S);
        let mut phase =
            Phase { allocated: Vec::new(), more: known.map_or(UNKNOWN_S, |volume| volume * 1e-3) };
        let own = match self.running.get_mut(&job) {
            None => Some(Vec::new()),
            Some(running) => {
                let was_emptied = running.emptied > 0;
                running.emptied = running.emptied.saturating_sub(1);
                running.reserved.pop().map(|own| if was_emptied { Vec::new() } else { own })
            }
        };
        self.empty_late(now_s);
        if let Some(own) = own {
            let is_in_time = own.first().is_some_and(|first| (first.start_s - now_s).abs() <= SAME_S);
            phase.allocated = if is_in_time {
                own
            } else {
                self.free.release(&own, now_s);
                self.free.allocate(now_s, volume, desk.job(job).cap())
            };
        }
        self.phases.insert(job, phase);
    }

    /// Algorithm 2, lines 14-17: who should have begun its I/O by now loses its reservation.
    fn empty_late(&mut self, now_s: f64) {
        if self.next_start_s >= now_s - SAME_S {
            return;
        }
        self.next_start_s = f64::INFINITY;
        for running in self.running.values_mut() {
            while let Some(next) = running.reserved.len().checked_sub(running.emptied + 1) {
                let start_s = running.reserved[next].first().map_or(f64::INFINITY, |first| first.start_s);
                if start_s >= now_s - SAME_S {
                    self.next_start_s = self.next_start_s.min(start_s);
                    break;
                }
                self.free.release(&running.reserved[next], now_s);
                running.emptied += 1;
            }
        }
    }

    /// Everybody's instances of this period are done, or somebody takes far longer than planned:
    /// Algorithm 3 would let all wait for one that computes for ever.
    fn period_is_over(&mut self, now_s: f64) -> bool {
        let Some(plan) = self.timetable.plan() else { return false };
        let is_done = |job: &JobId, running: &Running| {
            running.reserved.is_empty() && self.phases.get(job).is_none_or(|phase| phase.allocated.is_empty())
        };
        let is_late = now_s > patience_s(plan.period_s);
        let awaited =
            self.awaited.filter(|job| self.running.get(job).is_some_and(|running| !is_done(job, running)));
        let anybody = || self.running.iter().find(|(job, running)| !is_done(job, running));
        self.awaited = awaited.or_else(|| anybody().map(|(&job, _)| job));
        self.awaited.is_none() || is_late
    }

    fn now_s(&self, desk: &Desk) -> f64 {
        (desk.now_ns - self.period_began_ns) as f64 * 1e-9
    }

    /// Algorithm 2, line 19: executes the current assignment, and comes back when it changes.
    fn execute(&mut self, desk: &mut Desk) {
        let now_s = self.now_s(desk);
        let mut change_s = f64::INFINITY;
        let mut shares = std::mem::take(&mut self.shares);
        shares.clear();
        for (&job, phase) in &mut self.phases {
            let Some(last) = phase.allocated.last() else { continue };
            if last.end_s <= now_s {
                phase.allocated = self.free.allocate(now_s, phase.more, desk.job(job).cap());
                phase.more *= 2.0;
            }
            phase.allocated.retain(|transfer| transfer.end_s > now_s);
            let Some(first) = phase.allocated.first() else { continue };
            let has_begun = first.start_s <= now_s;
            change_s = change_s.min(if has_begun { first.end_s } else { first.start_s });
            shares.push((job, if has_begun { first.bandwidth } else { 0.0 }));
        }
        for &(job, share) in &shares {
            if share == 0.0 {
                desk.hold(job);
            } else if share < desk.job(job).share() {
                desk.grant(job, share);
            }
        }
        for &(job, share) in &shares {
            if share > desk.job(job).share() {
                desk.grant(job, share);
            }
        }
        self.shares = shares;
        if let Some(plan) = self.timetable.plan() {
            change_s = change_s.min(patience_s(plan.period_s).max(now_s) + GRACE_S);
        }
        if change_s.is_finite() {
            // Saturating: a job may claim to compute for ages.
            desk.timer(self.period_began_ns.saturating_add(((change_s + GRACE_S) * 1e9).ceil() as u64));
        }
    }
}

impl Policy for Barrier {
    fn joined(&mut self, job: JobId, desk: &mut Desk) {
        self.timetable.joined(job, desk);
    }

    fn began(&mut self, job: JobId, desk: &mut Desk) {
        if self.timetable.refresh() {
            self.phases.insert(job, Phase::default());
            self.begin_period(desk);
        } else {
            self.adjust(job, self.now_s(desk), desk);
        }
        self.time_passed(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        if let Some(phase) = self.phases.remove(&job) {
            self.free.release(&phase.allocated, self.now_s(desk));
        }
        self.timetable.ended(job, desk);
        self.time_passed(desk);
    }

    fn left(&mut self, job: JobId, desk: &mut Desk) {
        self.timetable.left(job, desk);
        self.running.remove(&job);
        self.time_passed(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        if self.timetable.refresh() || self.period_is_over(self.now_s(desk)) {
            self.begin_period(desk);
        }
        self.execute(desk);
    }
}

/// `apio-barrier`. With more jobs than a timetable is made for nobody has a reservation to keep to, and to look at all of
/// them at every event would take ever longer: then they are served as under `apio`.
pub struct ApioBarrier {
    jobs: usize,
    way: Way,
}

enum Way {
    Barrier(Barrier),
    Crowd(Periodic),
}

impl ApioBarrier {
    pub fn new(timetable: Timetable) -> Self {
        ApioBarrier { jobs: 0, way: Way::Barrier(Barrier { timetable, ..Barrier::default() }) }
    }

    fn policy(&mut self) -> &mut dyn Policy {
        match &mut self.way {
            Way::Barrier(barrier) => barrier,
            Way::Crowd(crowd) => crowd,
        }
    }

    /// The other way if the jobs are too many for this one, or no more. Those in their phase begin it anew there.
    fn change_way(&mut self, desk: &mut Desk) {
        let (timetable, asking) = match &mut self.way {
            Way::Barrier(barrier) if self.jobs > MOST_JOBS => {
                (std::mem::take(&mut barrier.timetable), barrier.phases.keys().copied().collect())
            }
            Way::Crowd(crowd) if self.jobs <= MOST_JOBS => crowd.disband(),
            _ => return,
        };
        self.way = match self.way {
            Way::Barrier(_) => Way::Crowd(Periodic::moved(timetable)),
            Way::Crowd(_) => {
                Way::Barrier(Barrier { timetable, period_began_ns: desk.now_ns, ..Barrier::default() })
            }
        };
        asking.iter().for_each(|&job| desk.hold(job));
        for job in in_order_of_arrival(asking, desk) {
            self.policy().began(job, desk);
        }
    }
}

fn in_order_of_arrival(mut jobs: Vec<JobId>, desk: &Desk) -> Vec<JobId> {
    jobs.sort_by_key(|&job| desk.job(job).arrival());
    jobs
}

impl Policy for ApioBarrier {
    fn joined(&mut self, job: JobId, desk: &mut Desk) {
        self.policy().joined(job, desk);
        self.jobs += 1;
        self.change_way(desk);
    }

    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.policy().began(job, desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.policy().ended(job, desk);
    }

    fn left(&mut self, job: JobId, desk: &mut Desk) {
        self.policy().left(job, desk);
        self.jobs -= 1;
        self.change_way(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.policy().time_passed(desk);
    }
}
