//! MaxSysEff (APIO section 3.3.1): the job with the highest `β_i ρ_i(t) / ρ̃_i(t)` first.

use super::Policy;
use super::greedy::Greedy;
use super::mindilation::dilation;
use super::tournament::Line;
use crate::engine::{Desk, Job, JobId};

#[derive(Default)]
pub struct MaxSysEff {
    greedy: Greedy,
}

impl Policy for MaxSysEff {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.greedy.enter(job, lost_nodes(desk.job(job), desk.now_ns), desk);
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

impl MaxSysEff {
    fn settle(&mut self, desk: &mut Desk) {
        self.greedy.settle(desk, |job, _, desk| lost_nodes(desk.job(job), desk.now_ns));
    }
}

/// The dilation so far, weighted by the nodes that suffer it.
pub(super) fn lost_nodes(job: &Job, now_ns: u64) -> Line {
    let line = dilation(job, now_ns);
    let nodes = job.info.nodes as f64;
    Line { value: nodes * line.value, slope: nodes * line.slope, at_ns: line.at_ns }
}
