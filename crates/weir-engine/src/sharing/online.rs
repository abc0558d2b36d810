//! The online heuristics of the APIO paper (section 3.3.1) that differ in their rank alone.

use super::Policy;
use super::greedy::Greedy;
use super::tournament::Line;
use crate::engine::{Desk, Job, JobId};

/// Bandwidth in order of rank: to each what it can use, until nothing is left.
pub struct Online {
    greedy: Greedy,
    /// A job's rank from now on.
    rank: fn(Job, u64) -> Line,
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
        self.greedy.settle(desk, |job, _, desk| rank(desk.job(job), desk.now_ns));
    }
}

impl Policy for Online {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.greedy.enter(job, (self.rank)(desk.job(job), desk.now_ns), desk);
        self.settle(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.greedy.leave(job, desk);
        self.settle(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.settle(desk);
    }
}

/// Earlier is higher, for ever.
fn arrival(job: Job, now_ns: u64) -> Line {
    Line { value: -(job.arrival() as f64), slope: 0.0, at_ns: now_ns }
}

/// `ρ_i(t) / ρ̃_i(t)`, the dilation so far: with `ρ̃_i(t) = W / (t − r_i)` and `W` constant through
/// an I/O phase, it is a line in `t`.
///
/// The paper sums `W` over the instances that have been executed; here the compute phase that led to
/// this I/O counts too. It is over and known, and without it every job would have an efficiency of
/// zero, and all the same rank, in its first phase.
pub(super) fn dilation(job: Job, now_ns: u64) -> Line {
    let compute_ns = (job.history.compute_ns as f64).max(1.0);
    let io_alone_ns = job.history.past_io_ns / job.cap();
    let best_efficiency = compute_ns / (compute_ns + io_alone_ns);
    let slope = best_efficiency / compute_ns;
    Line { value: slope * (now_ns - job.history.joined_ns) as f64, slope, at_ns: now_ns }
}

/// The dilation so far, weighted by the nodes that suffer it.
pub(super) fn lost_nodes(job: Job, now_ns: u64) -> Line {
    let line = dilation(job, now_ns);
    let nodes = job.nodes() as f64;
    Line { value: nodes * line.value, slope: nodes * line.slope, at_ns: line.at_ns }
}
