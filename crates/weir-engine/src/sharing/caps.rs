//! What part of the bandwidth each job can use, learnt from what it moves.
//!
//! Only what a job moves while nobody else is served counts: what it moves beside others says as much of
//! them, and to let in more of them for it would go on without end. Until enough has been seen of a job, it is
//! taken to be like the others: to serve it alone only to find out would leave unused what it cannot use.

use crate::engine::{Desk, JobId, SeenAlone};
use crate::records::Seat;

/// A learnt cap is this much larger than what was seen, to notice when a job can use more.
const ROOM: f64 = 1.05;

/// What a job does in less time says nothing: storages take a burst much faster than what follows it.
const ENOUGH_NS: f64 = 1e9;

#[derive(Default)]
pub(super) struct Caps {
    /// By job.
    reports: Vec<Reports>,
    /// Of all jobs.
    alone: Alone,
    /// The highest rate that a job has kept up while nobody else was served.
    best_bytes_per_ns: f64,
}

/// While nobody else was served: how long, and how much was moved.
#[derive(Clone, Copy, Default)]
struct Alone {
    ns: f64,
    bytes: f64,
}

#[derive(Clone, Copy, Default)]
struct Reports {
    alone: Alone,
    /// Up to when the bytes have been reported, and how many in this phase.
    reported_ns: u64,
    reported_bytes: u64,
}

impl Alone {
    fn add(&mut self, ns: f64, bytes: f64) {
        self.ns += ns;
        self.bytes += bytes;
    }

    fn bytes_per_ns(&self) -> f64 {
        self.bytes / self.ns
    }
}

impl Caps {
    /// `before` is what was seen of the job before it joined.
    pub(super) fn join(&mut self, job: JobId, before: SeenAlone, now_ns: u64) {
        if self.reports.len() <= job.index() {
            self.reports.resize(job.index() + 1, Reports::default());
        }
        let reports = Reports { reported_ns: now_ns, ..Reports::default() };
        self.reports[job.index()] = reports;
        self.see_alone(job, before.ns as f64, before.bytes as f64);
    }

    /// The job has moved these bytes in a time in which nobody else was served.
    fn see_alone(&mut self, job: JobId, ns: f64, bytes: f64) {
        let own = &mut self.reports[job.index()].alone;
        own.add(ns, bytes);
        self.alone.add(ns, bytes);
        if own.ns >= ENOUGH_NS {
            self.best_bytes_per_ns = self.best_bytes_per_ns.max(own.bytes_per_ns());
        }
    }

    /// What the job has done while nobody else was served.
    pub(super) fn seen_alone(&self, job: JobId) -> Option<SeenAlone> {
        let Alone { ns, bytes } = self.reports.get(job.index())?.alone;
        // The casts saturate.
        Some(SeenAlone { ns: ns as u64, bytes: bytes as u64 })
    }

    /// As told, or as seen next to the best: of the job, or of all.
    pub(super) fn of(&self, seat: Seat, desk: &Desk) -> f64 {
        if let Some(cap) = desk.seated(seat).told_cap() {
            return cap;
        }
        if self.best_bytes_per_ns == 0.0 {
            return 1.0;
        }
        let own = self.reports[seat.job.index()].alone;
        let seen = if own.ns >= ENOUGH_NS { own } else { self.alone };
        (ROOM * seen.bytes_per_ns() / self.best_bytes_per_ns).clamp(1e-6, 1.0)
    }

    /// Counts what was moved since the last report, if all that time nobody else was served.
    pub(super) fn learn(&mut self, seat: Seat, alone_since_ns: Option<u64>, desk: &Desk) {
        let entry = desk.seated(seat);
        if entry.told_cap().is_some() {
            return;
        }
        let reports = self.reports[seat.job.index()];
        let since_ns = reports.reported_ns.max(entry.phase_began_ns().unwrap_or(0));
        if alone_since_ns.is_some_and(|alone_ns| alone_ns <= since_ns) && since_ns < desk.now_ns {
            let ns = (desk.now_ns - since_ns) as f64;
            let bytes = (entry.moved_bytes() - reports.reported_bytes) as f64;
            self.see_alone(seat.job, ns, bytes);
        }
        let reports = &mut self.reports[seat.job.index()];
        reports.reported_ns = desk.now_ns;
        reports.reported_bytes = entry.moved_bytes();
    }

    pub(super) fn phase_ended(&mut self, seat: Seat, desk: &Desk) {
        if desk.seated(seat).told_cap().is_none() {
            self.reports[seat.job.index()].reported_bytes = 0;
        }
    }
}
