//! EXCLUSIVE-FCFS (IO-SETS section 3): one job at a time, in order of arrival.

use super::Policy;
use super::queue::{Neighbours, Queue};
use crate::engine::{Desk, JobId};

#[derive(Default)]
pub struct Exclusive {
    /// The first one is served.
    queue: Queue,
    neighbours: Neighbours,
}

impl Policy for Exclusive {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.queue.join(job, desk.seat(job).index(), &mut self.neighbours);
        self.serve_first(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.queue.leave(desk.seat(job).index(), &mut self.neighbours);
        self.serve_first(desk);
    }
}

impl Exclusive {
    fn serve_first(&mut self, desk: &mut Desk) {
        if let Some(job) = self.queue.first(&self.neighbours) {
            desk.grant(job, 1.0);
        }
    }
}
