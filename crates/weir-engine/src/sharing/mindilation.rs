//! MinDilation (APIO section 3.3.1): the job with the lowest `ρ̃_i(t) / ρ_i(t)` first.

use super::Policy;
use super::greedy::Greedy;
use super::tournament::Line;
use crate::engine::{Desk, Job, JobId};

#[derive(Default)]
pub struct MinDilation {
    greedy: Greedy,
}

impl Policy for MinDilation {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.greedy.enter(job, dilation(desk.job(job), desk.now_ns), desk);
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

impl MinDilation {
    fn settle(&mut self, desk: &mut Desk) {
        self.greedy.settle(desk, |job, _, desk| dilation(desk.job(job), desk.now_ns));
    }
}

/// `ρ_i(t) / ρ̃_i(t)`, the dilation so far: with `ρ̃_i(t) = W / (t − r_i)` and `W` constant through
/// an I/O phase, it is a line in `t`.
///
/// The paper sums `W` over the instances that have been executed; here the compute phase that led to
/// this I/O counts too. It is over and known, and without it every job would have an efficiency of
/// zero, and all the same rank, in its first phase.
pub(super) fn dilation(job: &Job, now_ns: u64) -> Line {
    let compute_ns = (job.compute_ns as f64).max(1.0);
    let io_alone_ns = job.past_io_ns / job.cap();
    let best_efficiency = compute_ns / (compute_ns + io_alone_ns);
    let slope = best_efficiency / compute_ns;
    Line { value: slope * (now_ns - job.joined_ns) as f64, slope, at_ns: now_ns }
}
