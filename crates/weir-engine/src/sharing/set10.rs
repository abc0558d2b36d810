//! SET-10 (IO-SETS section 3.1): jobs of one order of magnitude take turns, orders share.

use super::Policy;
use super::queue::{Neighbours, Queue};
use crate::engine::{Desk, JobId};

/// A `u64` of nanoseconds spans the orders of seconds from -9 to 10; what is learnt is a sum of two.
const LOWEST_SET: i32 = -9;
const SETS: usize = 21;

#[derive(Default)]
pub struct Set10 {
    /// By set, from [`LOWEST_SET`] on. The first one of each is served.
    queues: [Queue; SETS],
    neighbours: Neighbours,
    /// By seat, where the job was put when its phase began: a learnt `w_iter` may put the next one elsewhere.
    queue_of: Vec<usize>,
}

impl Policy for Set10 {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let (seat, queue) =
            (desk.seat(job).index(), (set_of(desk.job(job).w_iter_ns()) - LOWEST_SET) as usize);
        if self.queue_of.len() <= seat {
            self.queue_of.resize(seat + 1, 0);
        }
        self.queue_of[seat] = queue;
        let is_first = self.queues[queue].is_empty();
        self.queues[queue].join(job, seat, &mut self.neighbours);
        if is_first {
            self.share(desk);
        }
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job).index();
        if self.queues[self.queue_of[seat]].leave(seat, &mut self.neighbours) {
            self.share(desk);
        }
    }
}

impl Set10 {
    /// Eq. (1) over the sets that have somebody in them.
    fn share(&self, desk: &mut Desk) {
        let served = || {
            let sets = LOWEST_SET..;
            sets.zip(&self.queues).filter_map(|(set, queue)| Some((set, queue.first(&self.neighbours)?)))
        };
        let total: f64 = served().map(|(set, _)| priority(set)).sum();
        for (set, job) in served() {
            desk.grant(job, priority(set) / total);
        }
    }
}

/// Eq. (4): the nearest integer to `log10(w_iter)`, in seconds. A time not known yet counts as 1 ns.
fn set_of(w_iter_ns: f64) -> i32 {
    let highest_set = LOWEST_SET + SETS as i32 - 1;
    ((w_iter_ns.max(1.0) * 1e-9).log10().round() as i32).clamp(LOWEST_SET, highest_set)
}

/// Eq. (5).
fn priority(set: i32) -> f64 {
    10f64.powi(-set)
}
