//! The online heuristics of the APIO paper (section 3.3.1) that differ in their rank alone.

use super::Policy;
use super::deadlines::Deadlines;
use super::greedy::Greedy;
use super::tournament::Line;
use crate::engine::{Desk, Job, JobId, elapsed_ns};
use crate::records::Seat;

/// Bandwidth in order of rank: to each what it can use, until nothing is left.
pub struct Online {
    greedy: Greedy,
    first_phases: FirstPhases,
    /// Whether ranks tell how long a job has run for what it did.
    ranks_by_dilation: bool,
    /// A job's rank in its phase, as of now.
    rank: fn(Job, u64) -> Line,
}

impl Online {
    /// RoundRobin: first come, first served.
    pub fn round_robin() -> Online {
        Online {
            greedy: Greedy::default(),
            first_phases: FirstPhases::default(),
            ranks_by_dilation: false,
            rank: arrival,
        }
    }

    /// MinDilation: the job with the lowest `ρ̃_i(t) / ρ_i(t)` first.
    pub fn min_dilation() -> Online {
        Online { rank: dilation, ranks_by_dilation: true, ..Online::round_robin() }
    }

    /// MaxSysEff: the job with the highest `β_i ρ_i(t) / ρ̃_i(t)` first.
    pub fn max_sys_eff() -> Online {
        Online { rank: lost_nodes, ranks_by_dilation: true, ..Online::round_robin() }
    }

    fn settle(&mut self, desk: &mut Desk) {
        let rank = self.rank;
        while let Some(seat) = self.first_phases.pop(desk) {
            self.greedy.change(seat, rank(desk.seated(seat), desk.now_ns), desk);
        }
        self.greedy.settle(desk, |seat, _, desk| rank(desk.seated(seat), desk.now_ns));
        self.first_phases.set_timer(desk);
    }
}

impl Policy for Online {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        if self.ranks_by_dilation {
            self.first_phases.began(seat, desk);
        }
        self.greedy.enter(seat, (self.rank)(desk.seated(seat), desk.now_ns), desk);
        self.settle(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.first_phases.ended(desk.seat(job));
        self.greedy.leave(desk.seat(job));
        self.settle(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.settle(desk);
    }
}

/// Jobs in their first phase: what is known of them beside the computing before it is how long the phase has been, and that
/// changes as it goes on.
#[derive(Default)]
pub(super) struct FirstPhases {
    /// When to look at a job again.
    looks: Deadlines,
    timer_ns: Option<u64>,
}

/// A first phase is looked at each time it has become this much longer, or this part of its age later.
const LONGER: f64 = 0.25;
const PART_OF_AGE: f64 = 1.0 / 16.0;
const MIN_LOOK_NS: f64 = 1e6;

impl FirstPhases {
    pub(super) fn began(&mut self, seat: Seat, desk: &Desk) {
        let job = desk.seated(seat);
        if job.history().past_phases() == 0 {
            let wait_ns = job.compute_ns().max(MIN_LOOK_NS as u64);
            self.looks.set(seat, desk.now_ns.saturating_add(wait_ns));
        }
    }

    pub(super) fn ended(&mut self, seat: Seat) {
        self.looks.clear(seat);
    }

    /// A job that has done I/O for longer than it has computed, and for longer than when it was last looked at.
    pub(super) fn pop(&mut self, desk: &Desk) -> Option<Seat> {
        while let Some(seat) = self.looks.pop(desk.now_ns) {
            let job = desk.seated(seat);
            let io_ns = job.io_until_ns(desk.now_ns) / job.cap();
            let doubt_ns = job.compute_ns() as f64 - io_ns;
            let age_ns = elapsed_ns(job.phase_began_ns().unwrap_or(desk.now_ns), desk.now_ns);
            let wait_ns = doubt_ns.max(LONGER * io_ns).max(PART_OF_AGE * age_ns).max(MIN_LOOK_NS);
            self.looks.set(seat, desk.now_ns.saturating_add(wait_ns as u64));
            if doubt_ns <= 0.0 {
                return Some(seat);
            }
        }
        None
    }

    pub(super) fn set_timer(&mut self, desk: &mut Desk) {
        self.timer_ns = self.timer_ns.filter(|&at_ns| at_ns > desk.now_ns);
        if let Some(at_ns) = self.looks.next_ns()
            && self.timer_ns.is_none_or(|timer_ns| at_ns < timer_ns)
        {
            self.timer_ns = Some(at_ns);
            desk.timer(at_ns);
        }
    }
}

/// Earlier is higher, for ever.
fn arrival(job: Job, _now_ns: u64) -> Line {
    Line { value: -(job.arrival() as f64), slope: 0.0, at_ns: 0 }
}

/// `ρ_i(t) / ρ̃_i(t)`, the dilation so far: with `ρ̃_i(t) = W / (t − r_i)` and `ρ_i(t) = W / (W + I/O alone)` it is
/// `(t − r_i) / (W + I/O alone)`, a line through an I/O phase.
///
/// The paper sums `W` over the instances that have been executed; here the compute phase that led to
/// this I/O counts too. It is over and known, and without it every job would have an efficiency of
/// zero, and all the same rank, in its first phase.
///
/// A job whose first phase has taken longer than the computing before it has needed at least that long: one that
/// begins with I/O is not infinitely late after a nanosecond.
pub(super) fn dilation(job: Job, now_ns: u64) -> Line {
    times_dilation(1.0, job, now_ns)
}

/// The dilation so far, weighted by the nodes that suffer it.
pub(super) fn lost_nodes(job: Job, now_ns: u64) -> Line {
    times_dilation(job.nodes() as f64, job, now_ns)
}

/// A single division, and always from the job's beginning on: what is equal on paper is a tie here too.
fn times_dilation(weight: f64, job: Job, now_ns: u64) -> Line {
    let history = job.history();
    let compute_ns = (job.compute_ns() as f64).max(1.0);
    let needed_ns = if history.past_phases() == 0 {
        compute_ns.max(job.io_until_ns(now_ns) / job.cap())
    } else {
        compute_ns + history.past_io_ns / job.cap()
    };
    Line { value: 0.0, slope: weight / needed_ns, at_ns: history.joined_ns }
}
