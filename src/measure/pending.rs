//! Nonblocking operations that have not completed. A request is known by its value, so it does not
//! matter where the program keeps it or how often it copied it.

use super::data::{self, Call, Class, Op};
use super::record;
use crate::shim::caller::Thread;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use weir_profile::layout::Block;

/// How many there are: what `MPI_Wait` and its kin look at first.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Operations beyond this many at a time are counted when issued.
const MOST: usize = 4096;

pub(crate) struct Pending {
    pub(crate) block: &'static Block,
    pub(crate) op: &'static Op,
    pub(crate) bytes: u64,
    pub(crate) start_ticks: u64,
    /// Time spent in the call that issued it.
    pub(crate) issue_ticks: u64,
}

/// By request. Open MPI may hand out the same handle for several requests that completed at once.
static PENDING: Mutex<BTreeMap<usize, Vec<Pending>>> = Mutex::new(BTreeMap::new());

fn lock() -> MutexGuard<'static, BTreeMap<usize, Vec<Pending>>> {
    PENDING.lock().unwrap_or_else(|e| e.into_inner())
}

#[inline(always)]
pub(crate) fn none() -> bool {
    COUNT.load(Relaxed) == 0
}

/// An operation was issued; returns it when there is no room to follow it.
pub(crate) fn issue(request: usize, pending: Pending) -> Option<Pending> {
    let mut all = lock();
    if COUNT.load(Relaxed) >= MOST {
        record::with_header(|h| _ = h.dropped.requests.fetch_add(1, Relaxed));
        return Some(pending);
    }
    all.entry(request).or_default().push(pending);
    COUNT.fetch_add(1, Release);
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
        Pending { block, op, bytes, start_ticks, issue_ticks }
    }

    /// Counts it: it ended now, and the program spent `wait_ticks` waiting for it.
    pub(crate) fn complete(&self, thread: &Thread, end_ticks: u64, wait_ticks: u64) {
        let call = Call { op: self.op, start_ticks: self.start_ticks, end_ticks, bytes: self.bytes };
        data::mpiio(thread, self.block, Class::Nonblocking, &call, self.issue_ticks + wait_ticks);
    }
}

/// Whether a request is one of ours.
pub(crate) fn contains(request: usize) -> bool {
    lock().contains_key(&request)
}

/// Takes a request that completed out of the table.
pub(crate) fn take(request: usize) -> Option<Pending> {
    let mut all = lock();
    let alike = all.get_mut(&request)?;
    let pending = alike.pop();
    if alike.is_empty() {
        all.remove(&request);
    }
    COUNT.fetch_sub(usize::from(pending.is_some()), Release);
    pending
}

/// Everything that was never waited for, at the end.
pub(crate) fn take_all() -> Vec<Pending> {
    COUNT.store(0, Release);
    std::mem::take(&mut *lock()).into_values().flatten().collect()
}

pub(super) fn is_lock_free() -> bool {
    crate::child::is_free(&PENDING)
}

pub(super) fn forget() {
    COUNT.store(0, Relaxed);
    if let Ok(mut all) = PENDING.try_lock() {
        all.clear();
    }
}
