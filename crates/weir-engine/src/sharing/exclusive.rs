//! EXCLUSIVE-FCFS (IO-SETS section 3): one job at a time, in order of arrival.

use super::Policy;
use crate::engine::{Desk, JobId};
use std::collections::BTreeSet;

#[derive(Default)]
pub struct Exclusive {
    /// By arrival; the first one is served.
    queue: BTreeSet<(u64, JobId)>,
}

impl Policy for Exclusive {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.queue.insert((desk.job(job).arrival, job));
        self.serve_first(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.queue.remove(&(desk.job(job).arrival, job));
        self.serve_first(desk);
    }
}

impl Exclusive {
    fn serve_first(&mut self, desk: &mut Desk) {
        if let Some(&(_, job)) = self.queue.first() {
            desk.grant(job, 1.0);
        }
    }
}
