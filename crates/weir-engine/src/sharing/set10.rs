//! SET-10 (IO-SETS section 3.1): jobs of one order of magnitude take turns, orders share.

use super::Policy;
use super::deadlines::Deadlines;
use super::queue::{Neighbours, Queue};
use crate::engine::{Desk, JobId};
use crate::records::Seat;

/// A `u64` of nanoseconds spans the orders of seconds from -9 to 10; what is learnt is a sum of two.
const LOWEST_SET: i32 = -9;
const SETS: usize = 21;

/// So many jobs whose time is not known are served at once, the earliest first: each of them hears of every change.
const MAX_UNKNOWN_SERVED: usize = 64;

/// The queue of a job whose characteristic time is not known.
const UNKNOWN: usize = SETS;

#[derive(Default)]
pub struct Set10 {
    /// By set, from [`LOWEST_SET`] on. The first one of each is served.
    queues: [Queue; SETS],
    neighbours: Neighbours,
    /// By seat, where the job was put when its phase began: a learnt `w_iter` may put the next one elsewhere.
    queue_of: Vec<usize>,
    /// Jobs of which no time is known. Each is served as a set of its own that has an equal part of the bandwidth.
    unknown: Vec<JobId>,
    /// When to look whether the first phase of a job is longer than the computing before it.
    doubts: Deadlines,
}

impl Policy for Set10 {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let (seat, entry) = (desk.seat(job), desk.job(job));
        let queue = if entry.has_known_period() || entry.compute_ns() > 0 {
            (set_of(entry.w_iter_ns()) - LOWEST_SET) as usize
        } else {
            UNKNOWN
        };
        let believed_ns = if entry.has_known_period() { u64::MAX } else { entry.compute_ns() };
        if self.queue_of.len() <= seat.index() {
            self.queue_of.resize(seat.index() + 1, 0);
        }
        self.queue_of[seat.index()] = queue;
        if queue == UNKNOWN {
            self.unknown.push(job);
            return self.share(desk);
        }
        self.look_at(seat, desk.now_ns.saturating_add(believed_ns), desk);
        let is_first = self.queues[queue].is_empty();
        self.queues[queue].join(job, seat.index(), &mut self.neighbours);
        if is_first {
            self.share(desk);
        }
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        self.doubts.clear(seat);
        if self.leave(job, seat) {
            self.share(desk);
        }
    }

    /// What a job has computed before its first phase is believed to be most of its period, until the phase has
    /// taken as much of the storage's time.
    fn time_passed(&mut self, desk: &mut Desk) {
        let mut changed = false;
        while let Some(seat) = self.doubts.pop(desk.now_ns) {
            let job = desk.seated(seat);
            let believed_ns = job.compute_ns() as f64 - job.io_until_ns(desk.now_ns);
            if believed_ns > 0.0 {
                self.look_at(seat, desk.now_ns.saturating_add(believed_ns as u64 + 1), desk);
            } else {
                self.leave(seat.job, seat);
                self.queue_of[seat.index()] = UNKNOWN;
                self.unknown.push(seat.job);
                changed = true;
            }
        }
        if changed {
            self.share(desk);
        }
        if let Some(at_ns) = self.doubts.next_ns() {
            desk.timer(at_ns);
        }
    }
}

impl Set10 {
    fn look_at(&mut self, seat: Seat, at_ns: u64, desk: &mut Desk) {
        let next_ns = self.doubts.next_ns();
        self.doubts.set(seat, at_ns);
        if at_ns < next_ns.unwrap_or(u64::MAX) {
            desk.timer(at_ns);
        }
    }

    /// Answers whether the job was served.
    fn leave(&mut self, job: JobId, seat: Seat) -> bool {
        match self.queue_of[seat.index()] {
            UNKNOWN => {
                self.unknown.retain(|&unknown| unknown != job);
                true
            }
            queue => self.queues[queue].leave(seat.index(), &mut self.neighbours),
        }
    }

    /// Eq. (1) over the sets that have somebody in them. Of `k` sets and `u` jobs whose time is not known each of the latter
    /// has `1 / (k + u)`: a time that is not known is neither short nor long.
    fn share(&self, desk: &mut Desk) {
        let served = || {
            let sets = LOWEST_SET..;
            sets.zip(&self.queues).filter_map(|(set, queue)| Some((set, queue.first(&self.neighbours)?)))
        };
        let unknown_served = self.unknown.len().min(MAX_UNKNOWN_SERVED);
        let (sets, unknown) = (served().count() as f64, unknown_served as f64);
        let known_part = sets / (sets + unknown);
        let total: f64 = served().map(|(set, _)| priority(set)).sum();
        for (set, job) in served() {
            desk.grant(job, known_part * priority(set) / total);
        }
        for &job in &self.unknown[..unknown_served] {
            desk.grant(job, 1.0 / (sets + unknown));
        }
    }
}

/// Eq. (4): the nearest integer to `log10(w_iter)`, in seconds.
fn set_of(w_iter_ns: f64) -> i32 {
    let highest_set = LOWEST_SET + SETS as i32 - 1;
    ((w_iter_ns.max(1.0) * 1e-9).log10().round() as i32).clamp(LOWEST_SET, highest_set)
}

/// Eq. (5).
fn priority(set: i32) -> f64 {
    10f64.powi(-set)
}
