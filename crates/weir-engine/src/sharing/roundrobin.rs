//! RoundRobin (APIO section 3.3.1): first come, first served, each at its cap.

use super::Policy;
use super::greedy::Greedy;
use super::tournament::Line;
use crate::engine::{Desk, JobId};

#[derive(Default)]
pub struct RoundRobin {
    greedy: Greedy,
}

impl Policy for RoundRobin {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.greedy.enter(job, line(job, desk), desk);
        self.greedy.settle(desk, |job, _, desk| line(job, desk));
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.greedy.leave(job, desk);
        self.greedy.settle(desk, |job, _, desk| line(job, desk));
    }
}

/// Earlier is higher, for ever.
fn line(job: JobId, desk: &Desk) -> Line {
    Line { value: -(desk.job(job).arrival as f64), slope: 0.0, at_ns: desk.now_ns }
}
