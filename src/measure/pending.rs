//! Nonblocking operations that have not completed. A request is known by its value, so it does not
//! matter where the program keeps it or how often it copied it.

use super::data::{self, Call, Class, Op};
use super::record;
use crate::shim::caller::Thread;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use weir_profile::layout::Block;

/// How many there are: what `MPI_Wait` and its kin look at first.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Operations beyond this many at a time are counted when issued.
const MOST: usize = 4096;

pub(crate) struct Pending {
    request: usize,
    pub(crate) block: &'static Block,
    pub(crate) op: &'static Op,
    pub(crate) bytes: u64,
    pub(crate) start_ticks: u64,
    /// Time spent in the call that issued it.
    pub(crate) issue_ticks: u64,
}

static LIST: Mutex<Vec<Pending>> = Mutex::new(Vec::new());

#[inline(always)]
pub(crate) fn none() -> bool {
    COUNT.load(Relaxed) == 0
}

/// An operation was issued; returns it when there is no room to follow it.
pub(crate) fn issue(request: usize, pending: Pending) -> Option<Pending> {
    let mut list = LIST.lock().unwrap_or_else(|e| e.into_inner());
    if list.len() >= MOST {
        record::with_header(|h| _ = h.dropped.requests.fetch_add(1, Relaxed));
        return Some(pending);
    }
    list.push(Pending { request, ..pending });
    COUNT.store(list.len(), Release);
    None
}

impl Pending {
    pub(crate) fn new(
        block: &'static Block,
        op: &'static Op,
        bytes: u64,
        start_ticks: u64,
        issue_ticks: u64,
    ) -> Pending {
        Pending { request: 0, block, op, bytes, start_ticks, issue_ticks }
    }

    /// Counts it: it ended now, and the program spent `wait_ticks` waiting for it.
    pub(crate) fn complete(&self, thread: &Thread, end_ticks: u64, wait_ticks: u64) {
        let call = Call { op: self.op, start_ticks: self.start_ticks, end_ticks, bytes: self.bytes };
        data::mpiio(thread, self.block, Class::Nonblocking, &call, self.issue_ticks + wait_ticks);
    }
}

/// Whether a request is one of ours.
pub(crate) fn contains(request: usize) -> bool {
    LIST.lock().unwrap_or_else(|e| e.into_inner()).iter().any(|p| p.request == request)
}

/// Takes a request that completed out of the list.
pub(crate) fn take(request: usize) -> Option<Pending> {
    let mut list = LIST.lock().unwrap_or_else(|e| e.into_inner());
    let index = list.iter().position(|p| p.request == request)?;
    let pending = list.swap_remove(index);
    COUNT.store(list.len(), Release);
    Some(pending)
}

/// Everything that was never waited for, at the end.
pub(crate) fn take_all() -> Vec<Pending> {
    let mut list = LIST.lock().unwrap_or_else(|e| e.into_inner());
    COUNT.store(0, Release);
    std::mem::take(&mut list)
}

pub(super) fn forget() {
    COUNT.store(0, Relaxed);
    if let Ok(mut list) = LIST.try_lock() {
        list.clear();
    }
}
