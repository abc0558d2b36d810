//! From an `MPI_File` to its counters. Lookups take no lock; opening and closing do.

use super::exchange::{FileView, Noted};
use crate::gate::reads::Reads;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use weir_profile::layout::Block;

/// A power of two; files open at the same time beyond three quarters of it are not followed.
const PLACES: usize = 4096;

/// An open file.
pub(crate) struct Open {
    handle: AtomicUsize,
    block: AtomicPtr<Block>,
    /// Processes that have it open together.
    pub(crate) nranks: AtomicU64,
    pub(crate) view: FileView,
    pub(crate) reads: Reads,
    /// A split collective that is under way (MPI allows one per handle): when it began and what of
    /// that time was spent inside `_begin`.
    pub(crate) split: Split,
}

pub(crate) struct Split {
    pub(crate) start_ticks: AtomicU64,
    pub(crate) inside_ticks: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) file_ticks: AtomicU64,
    pub(crate) file_bytes: AtomicU64,
    /// What was noted of where its bytes lie, if it will be in the list of collective calls.
    pub(crate) noted: Mutex<Option<Box<Noted>>>,
}

static OPEN: [Open; PLACES] = [const {
    Open {
        handle: AtomicUsize::new(0),
        block: AtomicPtr::new(std::ptr::null_mut()),
        nranks: AtomicU64::new(0),
        view: FileView::new(),
        reads: Reads::new(),
        split: Split {
            start_ticks: AtomicU64::new(0),
            inside_ticks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            file_ticks: AtomicU64::new(0),
            file_bytes: AtomicU64::new(0),
            noted: Mutex::new(None),
        },
    }
}; PLACES];

/// A place that was used: the search goes on behind it.
const REMOVED: usize = 1;
static WRITING: Mutex<usize> = Mutex::new(0);

#[inline(always)]
fn first_place(handle: usize) -> usize {
    (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> (64 - PLACES.ilog2())
}

#[inline(always)]
fn probe(handle: usize) -> impl Iterator<Item = &'static Open> {
    let first = first_place(handle);
    (0..PLACES).map(move |step| &OPEN[(first + step) & (PLACES - 1)])
}

/// The open file with that handle.
#[inline(always)]
pub(crate) fn find(handle: usize) -> Option<&'static Open> {
    // MPICH's MPI_FILE_NULL is 0, as an empty place is.
    if handle <= REMOVED {
        return None;
    }
    for open in probe(handle) {
        let found = open.handle.load(Acquire);
        if found == handle {
            return Some(open);
        }
        if found == 0 {
            return None;
        }
    }
    None
}

impl Open {
    #[inline(always)]
    pub(crate) fn block(&self) -> &'static Block {
        // SAFETY: set before the handle was, to a block of the mapped record.
        unsafe { &*self.block.load(Relaxed) }
    }
}

/// `MPI_File_open` on `nranks` processes returned this handle. `false` when the table is full.
pub(crate) fn insert(handle: usize, block: &'static Block, nranks: u64, sequential: bool) -> bool {
    let mut used = WRITING.lock().unwrap_or_else(|e| e.into_inner());
    if *used >= PLACES / 4 * 3 || handle <= REMOVED {
        return false;
    }
    for open in probe(handle) {
        let found = open.handle.load(Relaxed);
        if found <= REMOVED || found == handle {
            *used += usize::from(found == 0);
            open.block.store(std::ptr::from_ref(block).cast_mut(), Relaxed);
            open.nranks.store(nranks, Relaxed);
            open.view.opened(sequential);
            open.reads.opened();
            open.split.start_ticks.store(0, Relaxed);
            open.handle.store(handle, Release);
            return true;
        }
    }
    false
}

/// Split collectives that are under way; for more of them at a time it is not known what was moved between their halves.
static SPLITS: [AtomicPtr<Open>; 64] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 64];

impl Open {
    /// The first half of a split collective has returned.
    pub(crate) fn split_begins(&'static self) {
        let me = std::ptr::from_ref(self).cast_mut();
        SPLITS
            .iter()
            .find(|place| place.compare_exchange(std::ptr::null_mut(), me, Release, Relaxed).is_ok());
    }

    /// The second half has, or the file is closed.
    pub(crate) fn split_ends(&self) {
        let me = std::ptr::from_ref(self).cast_mut();
        for place in &SPLITS {
            let _ = place.compare_exchange(me, std::ptr::null_mut(), Relaxed, Relaxed);
        }
    }
}

/// The split collective that is under way on the file that these counters, of any module, belong to.
pub(super) fn split_under_way(block: &Block) -> Option<&'static Split> {
    // SAFETY: null, or the address of a place in the table.
    let mut all = SPLITS.iter().filter_map(|place| unsafe { place.load(Acquire).as_ref() });
    let file = block.file.load(Relaxed);
    all.find(|open| open.block().file.load(Relaxed) == file).map(|open| &open.split)
}

/// Files that are open and left out of the profile; calls on more of them count among "other files".
static LEFT_OUT: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// `MPI_File_open` returned the handle of a file that is not to be measured.
pub(crate) fn leave_out(handle: usize) {
    LEFT_OUT.iter().find(|place| place.compare_exchange(0, handle, Relaxed, Relaxed).is_ok());
}

pub(crate) fn is_left_out(handle: usize) -> bool {
    handle != 0 && LEFT_OUT.iter().any(|place| place.load(Relaxed) == handle)
}

/// `MPI_File_close` is done with it.
pub(crate) fn remove(handle: usize) {
    for place in &LEFT_OUT {
        let _ = place.compare_exchange(handle, 0, Relaxed, Relaxed);
    }
    let mut used = WRITING.lock().unwrap_or_else(|e| e.into_inner());
    let Some(open) = find(handle) else { return };
    open.split_ends();
    open.handle.store(REMOVED, Release);
    // Removed places that nothing lies behind become free again, so that the table never fills with them.
    let mut place = OPEN.iter().position(|o| std::ptr::eq(o, open)).unwrap_or(0);
    while OPEN[(place + 1) & (PLACES - 1)].handle.load(Relaxed) == 0
        && OPEN[place].handle.load(Relaxed) == REMOVED
    {
        OPEN[place].handle.store(0, Release);
        *used -= 1;
        place = (place + PLACES - 1) & (PLACES - 1);
    }
}

pub(super) fn is_lock_free() -> bool {
    crate::child::is_free(&WRITING)
}

pub(super) fn forget() {
    SPLITS.iter().for_each(|place| place.store(std::ptr::null_mut(), Relaxed));
    LEFT_OUT.iter().for_each(|place| place.store(0, Relaxed));
    if let Ok(mut used) = WRITING.try_lock()
        && *used > 0
    {
        OPEN.iter().for_each(|open| open.handle.store(0, Release));
        *used = 0;
    }
}
