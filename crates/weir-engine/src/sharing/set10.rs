//! SET-10 (IO-SETS section 3.1): jobs of one order of magnitude take turns, orders share.

use super::Policy;
use crate::engine::{Desk, JobId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Set10 {
    /// The sets with somebody in them; within a set by arrival, the first one is served.
    sets: BTreeMap<i32, BTreeSet<(u64, JobId)>>,
    /// The set a job was put in when its phase began: a learnt `w_iter` may put the next one elsewhere.
    set_of: Vec<i32>,
}

impl Policy for Set10 {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let set = set_of(desk.job(job).w_iter_ns());
        if self.set_of.len() <= job.index() {
            self.set_of.resize(job.index() + 1, 0);
        }
        self.set_of[job.index()] = set;
        let queue = self.sets.entry(set).or_default();
        queue.insert((desk.job(job).arrival, job));
        if queue.len() == 1 {
            self.share(desk);
        }
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        let set = self.set_of[job.index()];
        let Some(queue) = self.sets.get_mut(&set) else { return };
        let was_served = queue.first().is_some_and(|&(_, first)| first == job);
        queue.remove(&(desk.job(job).arrival, job));
        if queue.is_empty() {
            self.sets.remove(&set);
        }
        if was_served {
            self.share(desk);
        }
    }
}

impl Set10 {
    /// Eq. (1) over the sets that have somebody in them. There are at most 21 sets, whatever the
    /// number of jobs: a `u64` of nanoseconds spans the orders -9 to 10, and rounds up to 11.
    fn share(&self, desk: &mut Desk) {
        let total: f64 = self.sets.keys().map(|&set| priority(set)).sum();
        for (&set, queue) in &self.sets {
            if let Some(&(_, job)) = queue.first() {
                desk.grant(job, priority(set) / total);
            }
        }
    }
}

/// Eq. (4): the nearest integer to `log10(w_iter)`, in seconds. A time not known yet counts as 1 ns.
fn set_of(w_iter_ns: f64) -> i32 {
    (w_iter_ns.max(1.0) * 1e-9).log10().round() as i32
}

/// Eq. (5).
fn priority(set: i32) -> f64 {
    10f64.powi(-set)
}
