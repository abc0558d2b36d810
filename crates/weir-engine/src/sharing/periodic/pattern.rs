//! A pattern: one period of a periodic schedule, filled instance by instance.
//!
//! The bandwidth still free is a circle of segments. A segment is only ever split, so each
//! application can keep the segment where its last instance ended and go on from there: an
//! insertion costs what it touches, however long the period is.

use super::Application;

/// Bandwidth given to an application, constant from `start_s` to `end_s`.
///
/// Times count from the start of the period and may exceed it: the pattern repeats, so what lies
/// beyond the period belongs at the same distance from its beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    pub start_s: f64,
    pub end_s: f64,
    pub bandwidth: f64,
}

/// One instance of an application: it computes from `compute_s`, then transfers its volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    pub compute_s: f64,
    pub transfers: Vec<Transfer>,
}

impl Instance {
    /// When the computing phase ends and the I/O phase may begin.
    pub fn io_s(&self, application: &Application) -> f64 {
        self.compute_s + application.work_s
    }

    /// When the last byte is transferred: the next instance computes from here.
    pub fn end_s(&self) -> f64 {
        self.transfers.last().map_or(self.compute_s, |transfer| transfer.end_s)
    }
}

/// A stretch of the period over which the free bandwidth is constant. It ends where `next` starts,
/// or at the end of the period when `next` is the first segment.
#[derive(Clone, Copy)]
struct Segment {
    start_s: f64,
    free: f64,
    next: usize,
}

/// A moment of the circle: `time_s` (which may exceed the period) and a segment at or before it.
#[derive(Clone, Copy)]
struct Cursor {
    segment: usize,
    /// How many whole periods lie before the segment.
    lap: u32,
    time_s: f64,
}

/// A transfer that was found but not yet taken, and where it begins.
struct Found {
    at: Cursor,
    transfer: Transfer,
}

/// One period of bandwidth `B`, and the instances inserted so far.
pub struct Pattern<'a> {
    applications: &'a [Application],
    bandwidth: f64,
    period_s: f64,
    segments: Vec<Segment>,
    instances: Vec<Vec<Instance>>,
    /// Where the last instance of each application ends.
    ends: Vec<Option<Cursor>>,
}

/// The part of a period that is taken for rounding.
const ROUNDING: f64 = 1e-12;
/// The part of the bandwidth that is too little to be worth a transfer.
const SLIVER: f64 = 1e-9;

impl<'a> Pattern<'a> {
    pub fn new(applications: &'a [Application], bandwidth: f64, period_s: f64) -> Self {
        Pattern {
            applications,
            bandwidth,
            period_s,
            segments: vec![Segment { start_s: 0.0, free: bandwidth, next: 0 }],
            instances: vec![Vec::new(); applications.len()],
            ends: vec![None; applications.len()],
        }
    }

    pub fn period_s(&self) -> f64 {
        self.period_s
    }

    /// The instances of each application, in their order.
    pub fn instances(&self) -> &[Vec<Instance>] {
        &self.instances
    }

    pub fn into_instances(self) -> Vec<Vec<Instance>> {
        self.instances
    }

    /// Insert-In-Pattern: adds an instance of application `index`, or says that it is not schedulable.
    ///
    /// The instances of an application form a chain without a gap: each computes as soon as the one
    /// before has transferred its volume, then transfers as fast as its cap and the free bandwidth
    /// let it, and the whole chain fits the period. So an application stays unschedulable once it is.
    pub fn insert(&mut self, index: usize) -> bool {
        match self.ends[index] {
            None => self.insert_first(index),
            Some(end) => self.insert_next(index, end),
        }
    }

    /// The first instance is free to begin anywhere: its I/O begins at the segment from which it
    /// takes the least time, the earliest of equals.
    fn insert_first(&mut self, index: usize) -> bool {
        let application = &self.applications[index];
        let longest_s = self.period_s - application.work_s;
        let mut best: Option<(f64, Cursor)> = None;
        let mut found = Vec::new();
        let mut segment = 0;
        loop {
            let from = self.first_io_at(segment, application.work_s);
            if self.segments[segment].free > self.bandwidth * SLIVER {
                let limit_s = best.map_or(longest_s, |(length_s, _)| length_s.min(longest_s));
                if let Some(end) = self.find(application, from, from.time_s + limit_s, &mut found) {
                    let length_s = end.time_s - from.time_s;
                    if best.is_none_or(|(shortest_s, _)| length_s < shortest_s - self.slack_s()) {
                        best = Some((length_s, from));
                    }
                }
            }
            segment = self.segments[segment].next;
            if segment == 0 {
                break;
            }
        }
        let Some((_, from)) = best else { return false };
        let Some(end) = self.find(application, from, from.time_s + longest_s, &mut found) else {
            return false;
        };
        self.take(index, from.time_s - application.work_s, &found, end);
        true
    }

    /// A later instance computes from the end of the one before, and must be done when the first
    /// one of the next period begins.
    fn insert_next(&mut self, index: usize, end: Cursor) -> bool {
        let application = &self.applications[index];
        let first_s = self.instances[index][0].compute_s;
        let from = self.forward(end, end.time_s + application.work_s);
        let mut found = Vec::new();
        let Some(end) = self.find(application, from, first_s + self.period_s, &mut found) else {
            return false;
        };
        let compute_s = from.time_s - application.work_s;
        self.take(index, compute_s, &found, end);
        true
    }

    /// The start of a segment, in the second lap if the computing before it would begin below zero.
    fn first_io_at(&self, segment: usize, work_s: f64) -> Cursor {
        let start_s = self.segments[segment].start_s;
        let lap = u32::from(start_s < work_s);
        Cursor { segment, lap, time_s: f64::from(lap) * self.period_s + start_s }
    }

    fn slack_s(&self) -> f64 {
        self.period_s * ROUNDING
    }

    fn end_of(&self, segment: usize) -> f64 {
        match self.segments[segment].next {
            0 => self.period_s,
            next => self.segments[next].start_s,
        }
    }

    fn step(&self, cursor: Cursor) -> Cursor {
        let segment = self.segments[cursor.segment].next;
        let lap = cursor.lap + u32::from(segment == 0);
        let start_s = f64::from(lap) * self.period_s + self.segments[segment].start_s;
        Cursor { segment, lap, time_s: cursor.time_s.max(start_s) }
    }

    fn end_at(&self, cursor: Cursor) -> f64 {
        f64::from(cursor.lap) * self.period_s + self.end_of(cursor.segment)
    }

    /// The cursor moved on to `time_s`.
    fn forward(&self, mut cursor: Cursor, time_s: f64) -> Cursor {
        while self.end_at(cursor) <= time_s {
            cursor = self.step(cursor);
        }
        Cursor { time_s, ..cursor }
    }

    /// The transfers of one volume from a moment on, as early as the free bandwidth lets them, and
    /// where they end; nothing when they do not end by `deadline_s`.
    fn find(
        &self,
        application: &Application,
        from: Cursor,
        deadline_s: f64,
        found: &mut Vec<Found>,
    ) -> Option<Cursor> {
        found.clear();
        let mut left = application.volume;
        let mut cursor = self.forward(from, from.time_s);
        loop {
            let bandwidth = self.segments[cursor.segment].free.min(application.cap);
            let end_s = self.end_at(cursor);
            if bandwidth > self.bandwidth * SLIVER && end_s > cursor.time_s + self.slack_s() {
                let done_s = cursor.time_s + left / bandwidth;
                let last = done_s <= end_s + self.slack_s();
                let stop_s = if last { done_s.min(end_s) } else { end_s };
                if stop_s > deadline_s + self.slack_s() {
                    return None;
                }
                found.push(Found {
                    at: cursor,
                    transfer: Transfer { start_s: cursor.time_s, end_s: stop_s, bandwidth },
                });
                if last {
                    return Some(Cursor { time_s: stop_s, ..cursor });
                }
                left -= bandwidth * (end_s - cursor.time_s);
            }
            if end_s > deadline_s + self.slack_s() {
                return None;
            }
            cursor = self.step(cursor);
        }
    }

    /// Takes the bandwidth of transfers that were found.
    fn take(&mut self, index: usize, compute_s: f64, found: &[Found], end: Cursor) {
        for Found { at, transfer } in found {
            let lap_s = f64::from(at.lap) * self.period_s;
            let taken = self.split(at.segment, transfer.start_s - lap_s);
            self.split(taken, transfer.end_s - lap_s);
            self.segments[taken].free = (self.segments[taken].free - transfer.bandwidth).max(0.0);
        }
        self.instances[index].push(Instance { compute_s, transfers: joined(found) });
        self.ends[index] = Some(end);
    }

    /// Splits a segment at `time_s` and answers the part that begins there: the segment itself when
    /// it begins there already, or ends there.
    fn split(&mut self, segment: usize, time_s: f64) -> usize {
        let whole = self.segments[segment];
        if time_s <= whole.start_s + self.slack_s() || time_s >= self.end_of(segment) - self.slack_s() {
            return segment;
        }
        self.segments.push(Segment { start_s: time_s, ..whole });
        let part = self.segments.len() - 1;
        self.segments[segment].next = part;
        part
    }
}

/// Segments end where others begin or end; where the bandwidth goes on, so does the transfer.
fn joined(found: &[Found]) -> Vec<Transfer> {
    let mut transfers: Vec<Transfer> = Vec::with_capacity(found.len());
    for Found { transfer, .. } in found {
        match transfers.last_mut() {
            Some(last) if last.end_s == transfer.start_s && last.bandwidth == transfer.bandwidth => {
                last.end_s = transfer.end_s;
            }
            _ => transfers.push(*transfer),
        }
    }
    transfers
}
