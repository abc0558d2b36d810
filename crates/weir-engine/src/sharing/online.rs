//! The online heuristics of the APIO paper (section 3.3.1) that differ in their rank alone.

use super::Policy;
use super::greedy::Greedy;
use super::tournament::Line;
use crate::engine::{Desk, Job, JobId};

/// Bandwidth in order of rank: to each what it can use, until nothing is left.
pub struct Online {
    greedy: Greedy,
    /// A job's rank in its phase.
    rank: fn(Job) -> Line,
}

impl Online {
    /// RoundRobin: first come, first served.
    pub fn round_robin() -> Online {
        Online { greedy: Greedy::default(), rank: arrival }
    }

    /// MinDilation: the job with the lowest `ρ̃_i(t) / ρ_i(t)` first.
    pub fn min_dilation() -> Online {
        Online { rank: dilation, ..Online::round_robin() }
    }

    /// MaxSysEff: the job with the highest `β_i ρ_i(t) / ρ̃_i(t)` first.
    pub fn max_sys_eff() -> Online {
        Online { rank: lost_nodes, ..Online::round_robin() }
    }

    fn settle(&mut self, desk: &mut Desk) {
        let rank = self.rank;
        self.greedy.settle(desk, |seat, _, desk| rank(desk.seated(seat)));
    }
}

impl Policy for Online {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        self.greedy.enter(seat, (self.rank)(desk.seated(seat)), desk);
        self.settle(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.greedy.leave(desk.seat(job));
        self.settle(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.settle(desk);
    }
}

/// Earlier is higher, for ever.
fn arrival(job: Job) -> Line {
    Line { value: -(job.arrival() as f64), slope: 0.0, at_ns: 0 }
}

/// `ρ_i(t) / ρ̃_i(t)`, the dilation so far: with `ρ̃_i(t) = W / (t − r_i)` and `ρ_i(t) = W / (W + I/O alone)` it is
/// `(t − r_i) / (W + I/O alone)`, a line through an I/O phase.
///
/// The paper sums `W` over the instances that have been executed; here the compute phase that led to
/// this I/O counts too. It is over and known, and without it every job would have an efficiency of
/// zero, and all the same rank, in its first phase.
pub(super) fn dilation(job: Job) -> Line {
    times_dilation(1.0, job)
}

/// The dilation so far, weighted by the nodes that suffer it.
pub(super) fn lost_nodes(job: Job) -> Line {
    times_dilation(job.nodes() as f64, job)
}

/// A single division, and always from the job's beginning on: what is equal on paper is a tie here too.
fn times_dilation(weight: f64, job: Job) -> Line {
    let compute_ns = (job.compute_ns() as f64).max(1.0);
    let io_alone_ns = job.history().past_io_ns / job.cap();
    Line { value: 0.0, slope: weight / (compute_ns + io_alone_ns), at_ns: job.history().joined_ns }
}
