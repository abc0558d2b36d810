//! `weir`, the default.

use super::Policy;
use super::greedy::Greedy;
use super::tournament::Line;
use crate::engine::{Desk, JobId};

#[derive(Default)]
pub struct Weir {
    greedy: Greedy,
    lags: Vec<Lag>,
}

/// Time a job has been stalled in I/O so far.
#[derive(Clone, Copy, Default)]
struct Lag {
    before_ns: u64,
    /// Stalled since then; `None` while served or computing.
    since_ns: Option<u64>,
}

impl Lag {
    fn total_ns(&self, now_ns: u64) -> u64 {
        self.before_ns + self.since_ns.map_or(0, |since| now_ns - since)
    }
}

const Q: f64 = 1.5;

impl Weir {
    fn line(lags: &mut [Lag], job: JobId, served: bool, desk: &Desk) -> Line {
        let now_ns = desk.now_ns;
        let lag = &mut lags[job.index()];
        *lag = Lag { before_ns: lag.total_ns(now_ns), since_ns: (!served).then_some(now_ns) };
        let entry = desk.job(job);
        let mean = if entry.past.count == 0 { 1e9 } else { entry.past.mean_bytes };
        let left = (mean - entry.moved_bytes as f64).max(mean * 0.01).max(1.0);
        let weight = left.powf(-1.0 / Q);
        Line { value: lag.before_ns as f64 * weight, slope: if served { 0.0 } else { weight }, at_ns: now_ns }
    }

    fn settle(&mut self, desk: &mut Desk) {
        let lags = &mut self.lags;
        self.greedy.settle(desk, |job, served, desk| Weir::line(lags, job, served, desk));
    }
}

impl Policy for Weir {
    fn joined(&mut self, job: JobId, _desk: &mut Desk) {
        if self.lags.len() <= job.index() {
            self.lags.resize(job.index() + 1, Lag::default());
        }
        self.lags[job.index()] = Lag::default();
    }

    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let line = Weir::line(&mut self.lags, job, false, desk);
        self.greedy.enter(job, line, desk);
        self.settle(desk);
    }

    fn moved(&mut self, job: JobId, desk: &mut Desk) {
        let served = self.greedy.is_served(job);
        let line = Weir::line(&mut self.lags, job, served, desk);
        self.greedy.change(job, line, desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        let lag = &mut self.lags[job.index()];
        *lag = Lag { before_ns: lag.total_ns(desk.now_ns), since_ns: None };
        self.greedy.leave(job, desk);
        self.settle(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.settle(desk);
    }

    fn wants_progress(&self) -> bool {
        true
    }
}
