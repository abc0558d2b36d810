//! A lane's counters, and how they are updated: the owner's with plain loads and stores and by runs of
//! like calls, those of all other threads with atomic additions.

use super::{activity, steady};
use crate::shim::caller;
use crate::shim::shield::keeping_errno;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Mutex, MutexGuard};
use weir_profile::layout::*;
use weir_profile::tally::{self, KINDS};

/// How a lane's words are updated.
pub(crate) trait Access {
    fn state() -> &'static State;
    fn add(cell: &Cell, value: u64);
    /// One more call of a kind, of `bytes` bytes, that began at `start_ticks`.
    fn count(kind: usize, block: &'static Block, bytes: u64, start_ticks: u64);
    /// A call of the program's own belongs to a burst and to the series.
    fn activity(write: bool, start_ticks: u64, end_ticks: u64, bytes: u64);

    /// Writes a word of which any thread's value will do.
    #[inline(always)]
    fn put(cell: &Cell, value: u64) {
        cell.store(value, Relaxed);
    }
}

/// The thread that armed Weir.
pub(crate) struct Own;
/// All other threads.
pub(crate) struct Shared;

impl Access for Own {
    #[inline(always)]
    fn state() -> &'static State {
        &STATES[0]
    }

    #[inline(always)]
    fn add(cell: &Cell, value: u64) {
        tally::add_alone(cell, value);
    }

    #[inline(always)]
    fn count(kind: usize, block: &'static Block, bytes: u64, start_ticks: u64) {
        let run = &words::<Own>().runs[kind];
        let address = std::ptr::from_ref(block).addr() as u64;
        if run.address.load(Relaxed) != address || run.bytes.load(Relaxed) != bytes {
            begin_run(kind, block, bytes, start_ticks);
        }
        Own::add(&run.calls, 1);
    }

    #[inline(always)]
    fn activity(write: bool, start_ticks: u64, end_ticks: u64, bytes: u64) {
        activity::own(write, start_ticks, end_ticks, bytes);
    }
}

impl Access for Shared {
    #[inline(always)]
    fn state() -> &'static State {
        &STATES[1]
    }

    #[inline(always)]
    fn add(cell: &Cell, value: u64) {
        tally::add_atomically(cell, value);
    }

    fn count(kind: usize, block: &'static Block, bytes: u64, start_ticks: u64) {
        tally::count_calls(kind, words::<Shared>(), block, bytes, 1, tally::add_atomically);
        note_start(kind, block, start_ticks);
    }

    fn activity(write: bool, start_ticks: u64, end_ticks: u64, bytes: u64) {
        activity::shared(write, start_ticks, end_ticks, bytes);
    }
}

/// Where a lane is at, as far as a reader of the record need not know.
pub(crate) struct State {
    lane: AtomicPtr<Lane>,
    /// A call that ends later does not lie in the current bin of the series.
    pub(super) bin_end: AtomicU64,
    lock: Mutex<()>,
}

impl State {
    /// Taken on the slow paths only. Who has to wait for it may find `errno` changed by the waiting.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        keeping_errno(|| self.lock.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// Takes what finds no place in the record.
// SAFETY: words, for which zero is a value.
static NOWHERE: Lane = unsafe { std::mem::zeroed() };

static STATES: [State; LANES] = [const {
    State {
        lane: AtomicPtr::new((&raw const NOWHERE).cast_mut()),
        bin_end: AtomicU64::new(0),
        lock: Mutex::new(()),
    }
}; LANES];

/// A lane has its place in the record: it can be used.
pub(super) fn begin(index: usize, lane: &'static Lane) {
    activity::begin(lane);
    lane.collectives.stride.store(1, Relaxed);
    STATES[index].bin_end.store(0, Relaxed);
    STATES[index].lane.store(std::ptr::from_ref(lane).cast_mut(), Release);
}

/// A lane has no place in the record, or none yet.
pub(super) fn leave_out(index: usize) {
    STATES[index].lane.store((&raw const NOWHERE).cast_mut(), Relaxed);
}

pub(super) fn are_locks_free() -> bool {
    STATES.iter().all(|state| crate::child::is_free(&state.lock))
}

/// The lane's words.
#[inline(always)]
pub(crate) fn words<A: Access>() -> &'static Lane {
    // SAFETY: a static, or what `begin` put there; neither the mapping nor this address is ever undone, so that a
    // call that outlives `MPI_Finalize` in another thread finds them.
    unsafe { &*A::state().lane.load(Relaxed) }
}

/// Another file, size or kind of call than before: the run so far goes into the counters.
#[cold]
#[inline(never)]
fn begin_run(kind: usize, block: &'static Block, bytes: u64, start_ticks: u64) {
    let lane = words::<Own>();
    flush_run(kind, lane);
    end_opposite_runs(kind, lane, block);
    let run = &lane.runs[kind];
    run.block.store(block.lane.load(Relaxed) >> 1, Relaxed);
    run.bytes.store(bytes, Relaxed);
    run.address.store(std::ptr::from_ref(block).expose_provenance() as u64, Relaxed);
    note_start(kind, block, start_ticks);
}

/// A file that was read is written, or the other way round: calls as before would change direction again
/// and must not pass for more of the same.
fn end_opposite_runs(kind: usize, lane: &Lane, block: &Block) {
    let address = std::ptr::from_ref(block).addr() as u64;
    for (other, run) in lane.runs.iter().enumerate() {
        let opposite = KINDS[other].module == KINDS[kind].module && KINDS[other].write != KINDS[kind].write;
        if opposite && run.address.load(Relaxed) == address {
            flush_run(other, lane);
            run.address.store(0, Relaxed);
            steady::forget();
        }
    }
}

fn flush_run(kind: usize, lane: &Lane) {
    let address = lane.runs[kind].address.load(Relaxed) as usize;
    if address != 0 {
        // SAFETY: `begin_run` stored the address of a block, which is never unmapped.
        tally::flush_run(kind, lane, unsafe { &*std::ptr::with_exposed_provenance(address) });
    }
}

fn note_start(kind: usize, block: &Block, start_ticks: u64) {
    let start = &block.words[KINDS[kind].start];
    if start.load(Relaxed) == 0 {
        start.store(start_ticks, Relaxed);
    }
}

/// A call took long enough that it may be the longest of its file or, if it is the program's own and so
/// has an `op`, one of the ten slowest of the process.
#[cold]
#[inline(never)]
pub(crate) fn attend<A: Access>(
    kind: usize,
    block: &Block,
    op: Option<&Name>,
    start: u64,
    duration: u64,
    bytes: u64,
) {
    let lane = words::<A>();
    let longest = &block.words[KINDS[kind].longest];
    longest.fetch_max(duration, Relaxed);
    if let Some(op) = op {
        keep_slow::<A>(lane, op, block.file.load(Relaxed), start, duration, bytes);
        let attention = lane.slowest_threshold_ticks.load(Relaxed).min(longest.load(Relaxed));
        block.words[KINDS[kind].attention].store(attention, Relaxed);
    }
}

fn keep_slow<A: Access>(lane: &Lane, op: &Name, file: u64, start: u64, duration: u64, bytes: u64) {
    // A signal handler that does I/O of its own here must not come for the lock.
    let _caller = caller::enter_weir();
    let _guard = A::state().lock();
    if duration <= lane.slowest_threshold_ticks.load(Relaxed) {
        return;
    }
    let fastest = || (0..SLOWEST).min_by_key(|i| lane.slowest[*i].duration_ticks.load(Relaxed)).unwrap_or(0);
    let slot = &lane.slowest[fastest()];
    slot.start_ticks.store(start, Relaxed);
    slot.bytes.store(bytes, Relaxed);
    slot.file.store(file, Relaxed);
    op.store(&slot.op);
    slot.duration_ticks.store(duration, Relaxed);
    let threshold = lane.slowest[fastest()].duration_ticks.load(Relaxed);
    lane.slowest_threshold_ticks.store(threshold, Relaxed);
}

/// The name of a function as the four words the record has for it.
pub(crate) struct Name([u64; 4]);

impl Name {
    pub(crate) const fn new(text: &str) -> Name {
        let bytes = text.as_bytes();
        assert!(bytes.len() <= 32);
        let mut words = [0u64; 4];
        let mut i = 0;
        while i < bytes.len() {
            words[i / 8] |= (bytes[i] as u64) << (8 * (i % 8));
            i += 1;
        }
        Name(words)
    }

    /// Whether this is the name that was stored there.
    pub(crate) fn is(&self, text: &Text<4>) -> bool {
        text.0.iter().zip(self.0).all(|(cell, word)| cell.load(Relaxed) == word)
    }

    #[inline(always)]
    pub(crate) fn store(&self, text: &Text<4>) {
        for (cell, word) in text.0.iter().zip(self.0) {
            cell.store(word, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::thread::JoinHandleExt;
    use std::time::Duration;

    extern "C" fn interrupted(_: std::ffi::c_int) {}

    /// Of two threads, a signal interrupts the one that waits.
    #[test]
    fn waiting_for_the_lock_keeps_errno() {
        let handler: extern "C" fn(std::ffi::c_int) = interrupted;
        // SAFETY: all-zero is a valid action, without SA_RESTART; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            libc::sigaction(libc::SIGWINCH, &action, std::ptr::null_mut());
        }
        let held = Shared::state().lock();
        let waiting = std::thread::spawn(|| {
            // SAFETY: glibc's errno location is valid for the life of the thread.
            unsafe { *libc::__errno_location() = 0 };
            drop(Shared::state().lock());
            // SAFETY: as above.
            unsafe { *libc::__errno_location() }
        });
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(waiting.as_pthread_t(), libc::SIGWINCH) };
        }
        drop(held);
        assert_eq!(waiting.join().unwrap(), 0);
    }
}
