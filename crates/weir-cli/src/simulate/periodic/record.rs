//! What a policy gave to whom and when, written down as it happens.

use std::cell::RefCell;
use std::rc::Rc;
use weir_engine::engine::{Desk, JobId};
use weir_engine::sharing::Policy;

/// Bandwidth an application had, as a part of the whole, in its `instance`-th I/O phase.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) instance: usize,
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    pub(super) share: f64,
}

/// The windows of every application, in order of time.
pub(super) type Record = Rc<RefCell<Vec<Vec<Window>>>>;

/// One application in I/O: the share it has since when.
#[derive(Clone, Copy)]
struct Open {
    job: JobId,
    instance: usize,
    since_ns: u64,
    share: f64,
}

/// A policy that does as another one does, and keeps a record.
pub(super) struct Recorder {
    policy: Box<dyn Policy>,
    record: Record,
    open: Vec<Open>,
    begun: Vec<usize>,
}

impl Recorder {
    pub(super) fn new(policy: Box<dyn Policy>, applications: usize) -> (Recorder, Record) {
        let record = Record::new(RefCell::new(vec![Vec::new(); applications]));
        let recorder =
            Recorder { policy, record: Rc::clone(&record), open: Vec::new(), begun: vec![0; applications] };
        (recorder, record)
    }

    fn look(&mut self, desk: &Desk) {
        for open in &mut self.open {
            let share = desk.job(open.job).share();
            if share != open.share {
                close(&self.record, open, desk.now_ns);
                *open = Open { since_ns: desk.now_ns, share, ..*open };
            }
        }
    }
}

fn close(record: &Record, open: &Open, now_ns: u64) {
    if open.share > 0.0 && now_ns > open.since_ns {
        record.borrow_mut()[open.job.0 as usize].push(Window {
            instance: open.instance,
            start_s: open.since_ns as f64 / 1e9,
            end_s: now_ns as f64 / 1e9,
            share: open.share,
        });
    }
}

impl Policy for Recorder {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let instance = self.begun[job.0 as usize];
        self.begun[job.0 as usize] += 1;
        self.open.push(Open { job, instance, since_ns: desk.now_ns, share: 0.0 });
        self.policy.began(job, desk);
        self.look(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        if let Some(index) = self.open.iter().position(|open| open.job == job) {
            close(&self.record, &self.open.swap_remove(index), desk.now_ns);
        }
        self.policy.ended(job, desk);
        self.look(desk);
    }

    fn moved(&mut self, job: JobId, desk: &mut Desk) {
        self.policy.moved(job, desk);
        self.look(desk);
    }

    fn joined(&mut self, job: JobId, desk: &mut Desk) {
        self.policy.joined(job, desk);
        self.look(desk);
    }

    fn left(&mut self, job: JobId, desk: &mut Desk) {
        self.policy.left(job, desk);
        self.look(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.policy.time_passed(desk);
        self.look(desk);
    }

    fn wants_progress(&self) -> bool {
        self.policy.wants_progress()
    }
}
