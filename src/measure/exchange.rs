//! Who exchanges how much with whom in a collective call. The ranks do not talk about it: each notes where
//! its own bytes lie in the file and what it moved itself, and whoever merges the records lays one over
//! the other (`weir-profile/src/exchange.rs`).
//!
//! Only for calls that will be in the list of collective calls, which grows thinner as they grow many.

use super::data;
use super::files;
use super::handles;
use super::lane::{Own, Shared};
use crate::abi::{self, Handle};
use crate::shim::caller::Thread;
use crate::shim::shield::shield;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};
use weir_profile::extents::{ROWS, Transfers, VIEW_WORDS, View};
use weir_profile::layout::{Block, Collective, LANES};

/// Where a call begins in the view.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// An offset in elementary types.
    At(i64),
    /// At the process's own file pointer.
    Pointer,
    /// At the shared file pointer: where that is nobody knows before the call.
    Shared,
}

/// What was noted of a call.
#[derive(Clone)]
pub(crate) struct Noted {
    file: u64,
    write: bool,
    nranks: u64,
    first: u64,
    view: Option<View>,
    transfers: Transfers,
}

/// The call of a lane that is being looked at: of the owner's, and of one of the other threads'.
struct Trace {
    /// Who makes the call, 0 for nobody.
    thread: usize,
    start_ticks: u64,
    noted: Noted,
}

static TRACES: [Mutex<Trace>; LANES] = [const {
    Mutex::new(Trace {
        thread: 0,
        start_ticks: 0,
        noted: Noted { file: 0, write: false, nranks: 0, first: 0, view: None, transfers: Transfers::NONE },
    })
}; LANES];

/// Runs `work` with the trace of the thread's lane, unless another thread has it. A signal handler that
/// gets here in the middle goes away without.
fn with_trace<R>(thread: &Thread, work: impl FnOnce(&mut Trace, usize) -> Option<R>) -> Option<R> {
    let me = std::ptr::from_ref(thread).addr();
    let mut trace = match TRACES[usize::from(!thread.owns_lane())].try_lock() {
        Ok(trace) => trace,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if trace.thread == 0 || trace.thread == me { work(&mut trace, me) } else { None }
}

/// A collective call is about to be made. `true` when it will be in the list and is looked at closely.
pub(crate) fn begin(thread: &Thread, fh: usize, place: Place, write: bool) -> bool {
    let Some(open) = handles::find(fh) else { return false };
    let block = open.block();
    let listed = if thread.owns_lane() {
        data::lists_next::<Own>(block)
    } else {
        data::lists_next::<Shared>(files::twin(block))
    };
    if !listed {
        return false;
    }
    let place = open.view.place(fh, place);
    let (first, view) = place.map_or((0, None), |(first, view)| (first, Some(view)));
    let (file, nranks) = (block.file.load(Relaxed), open.nranks.load(Relaxed));
    let noted = Noted { file, write, nranks, first, view, transfers: Transfers::NONE };
    with_trace(thread, |trace, me| {
        *trace = Trace { thread: me, start_ticks: 0, noted };
        Some(())
    })
    .is_some()
}

/// The call that `begin` looked at begins now.
pub(crate) fn started(thread: &Thread, start_ticks: u64) {
    with_trace(thread, |trace, _| {
        trace.start_ticks = start_ticks;
        Some(())
    });
}

/// The MPI library moved bytes beneath the call.
pub(crate) fn transferred(thread: &Thread, block: &Block, write: bool, start: u64, bytes: u64) {
    with_trace(thread, |trace, _| {
        trace.noted.moved(block, write, start, bytes);
        Some(())
    });
}

/// What was noted of the call that began then.
pub(crate) fn take(thread: &Thread, start_ticks: u64) -> Option<Noted> {
    with_trace(thread, |trace, me| {
        let mine = trace.thread == me && trace.start_ticks == start_ticks;
        mine.then(|| {
            trace.thread = 0;
            trace.noted.clone()
        })
    })
}

/// Goes on with a call that was taken.
pub(crate) fn resume(thread: &Thread, start_ticks: u64, noted: Noted) {
    with_trace(thread, |trace, me| {
        *trace = Trace { thread: me, start_ticks, noted };
        Some(())
    });
}

impl Noted {
    pub(super) fn moved(&mut self, block: &Block, write: bool, start: u64, bytes: u64) {
        // Not what it read to fill the gaps of what it writes, nor files of its own.
        if self.write == write && self.file == block.file.load(Relaxed) {
            self.transfers.add(start, bytes);
        }
    }

    /// More was moved than has been seen: better to know nothing of it than a part.
    pub(crate) fn forget_transfers(&mut self) {
        self.transfers = Transfers::NONE;
    }

    /// Fills an entry of the list; one of which nothing was noted is filled with zeros.
    pub(super) fn store(noted: Option<Noted>, entry: &Collective) {
        let (nranks, first, view, rows) = match &noted {
            Some(noted) => (
                noted.nranks,
                noted.first,
                noted.view.map_or([0; VIEW_WORDS], |view| view.to_words()),
                noted.transfers.rows().map(|row| row.to_words()),
            ),
            None => (0, 0, [0; VIEW_WORDS], [[0; _]; ROWS]),
        };
        entry.nranks.store(nranks, Relaxed);
        entry.first.store(first, Relaxed);
        entry.view.iter().zip(view).for_each(|(cell, word)| cell.store(word, Relaxed));
        let cells = entry.transfers.iter().flatten();
        cells.zip(rows.into_iter().flatten()).for_each(|(cell, word)| cell.store(word, Relaxed));
    }
}

/// The view of an open file. What `MPI_File_set_view` was given is kept; how the blocks of a tile lie is
/// found out when a call first needs it.
pub(crate) struct FileView {
    state: AtomicU64,
    etype_bytes: AtomicU64,
    words: [AtomicU64; VIEW_WORDS],
}

/// As after `MPI_File_open`.
const WHOLE_FILE: u64 = 0;
/// Set, but not looked at: the blocks are not known.
const SET: u64 = 1;
const SEEN: u64 = 2;
const UNKNOWN: u64 = 3;
/// Whatever the view is.
const SEQUENTIAL: u64 = 4;

/// Asking MPI where bytes lie may take it long when a tile has very many blocks.
const LOOK_LIMIT: Duration = Duration::from_micros(200);

impl FileView {
    /// Nothing but zeros: a table of these takes no room in the library. `opened` comes before any use.
    pub(crate) const fn new() -> FileView {
        FileView {
            state: AtomicU64::new(WHOLE_FILE),
            etype_bytes: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; VIEW_WORDS],
        }
    }

    /// The file was opened. A sequential one does not tell where bytes lie.
    pub(crate) fn opened(&self, sequential: bool) {
        self.state.store(if sequential { SEQUENTIAL } else { WHOLE_FILE }, Relaxed);
        self.etype_bytes.store(1, Relaxed);
    }

    /// `MPI_File_set_view` succeeded. Its datatypes may be freed before the next call, so that their sizes
    /// are asked for now.
    pub(crate) fn set(&self, displacement: i64, etype: Handle, filetype: Handle, datarep: *const c_char) {
        let arguments = || {
            // SAFETY: MPI took it for a C string.
            let native =
                unsafe { CStr::from_ptr(datarep.as_ref()?) }.to_bytes().eq_ignore_ascii_case(b"native");
            let (mut lower, mut extent) = (0, 0);
            // SAFETY: a datatype that the program just used.
            unsafe { abi::type_get_extent(filetype, &mut lower, &mut extent) }?;
            let (etype_bytes, tile_bytes) = (abi::ask_type_size(etype), abi::ask_type_size(filetype));
            let sound = native && etype_bytes > 0 && tile_bytes >= etype_bytes && extent as u64 >= tile_bytes;
            let spread = View {
                displacement: u64::try_from(displacement).ok()?,
                tile_extent: u64::try_from(extent).ok()?,
                tile_bytes,
                first: 0,
                block_bytes: 0,
                stride: extent as u64,
            };
            sound.then_some((etype_bytes, spread))
        };
        if self.state.load(Relaxed) == SEQUENTIAL {
            return;
        }
        match arguments() {
            Some((etype_bytes, view)) => {
                self.etype_bytes.store(etype_bytes, Relaxed);
                self.store(view);
                self.state.store(SET, Relaxed);
            }
            None => self.state.store(UNKNOWN, Relaxed),
        }
    }

    fn store(&self, view: View) {
        self.words.iter().zip(view.to_words()).for_each(|(cell, word)| cell.store(word, Relaxed));
    }

    fn load(&self) -> Option<View> {
        View::from_words(self.words.each_ref().map(|cell| cell.load(Relaxed)))
    }

    /// Where a call begins, in bytes of the view, and the view.
    fn place(&self, fh: usize, place: Place) -> Option<(u64, View)> {
        let mut offset = match place {
            Place::At(offset) => offset,
            Place::Pointer => 0,
            Place::Shared => return None,
        };
        let view = match self.state.load(Relaxed) {
            WHOLE_FILE => View::WHOLE_FILE,
            SEEN => self.load()?,
            SET => shield(None, || self.look(fh))?,
            _ => return None,
        };
        if matches!(place, Place::Pointer) {
            // SAFETY: an open file that has a pointer, for it is not sequential.
            shield(None, || unsafe { abi::file_get_position(fh, &mut offset) })?;
        }
        let first = u64::try_from(offset).ok()?.saturating_mul(self.etype_bytes.load(Relaxed));
        Some((first, view))
    }

    /// Finds out how the blocks lie, and remembers it.
    fn look(&self, fh: usize) -> Option<View> {
        let spread = self.load()?;
        let seen = look(&spread, self.etype_bytes.load(Relaxed), limited(fh)).unwrap_or(spread);
        self.store(seen);
        self.state.store(SEEN, Relaxed);
        Some(seen)
    }
}

/// Asks MPI where an elementary type of the view lies, as long as that does not take too long.
fn limited(fh: usize) -> impl FnMut(u64) -> Option<u64> {
    let begun = Instant::now();
    move |offset| {
        if begun.elapsed() > LOOK_LIMIT {
            return None;
        }
        let mut position = 0;
        // SAFETY: an open file that is not sequential, and an offset within its view.
        unsafe { abi::file_get_byte_offset(fh, i64::try_from(offset).ok()?, &mut position) }?;
        u64::try_from(position).ok()
    }
}

/// Points at which a view is compared with what was found.
const CHECKS: u64 = 16;

/// Finds the blocks of a tile by asking where single elementary types lie: how far the first block goes,
/// where the second begins, and whether the others follow at the same distance. When they do not, the data
/// counts as spread over what the tile covers. `None` when `position` does not answer.
fn look(spread: &View, etype_bytes: u64, mut position: impl FnMut(u64) -> Option<u64>) -> Option<View> {
    let etypes = spread.tile_bytes / etype_bytes;
    let begin = position(0)?;
    let first = begin.checked_sub(spread.displacement)?;
    let (mut alike, mut beyond) = (1, etypes + 1);
    while beyond - alike > 1 {
        let middle = alike + (beyond - alike) / 2;
        if position(middle - 1)?.checked_sub(begin)? == (middle - 1) * etype_bytes {
            alike = middle;
        } else {
            beyond = middle;
        }
    }
    let block_bytes = alike * etype_bytes;
    if alike == etypes {
        return Some(View { first, block_bytes, stride: block_bytes, ..*spread });
    }
    let stride = position(alike)?.checked_sub(begin)?;
    let regular = View { first, block_bytes, stride, ..*spread };
    for check in 0..=CHECKS {
        let etype = (u128::from(etypes - 1) * u128::from(check) / u128::from(CHECKS)) as u64;
        if position(etype)? != regular.position(etype * etype_bytes) {
            let end = position(etypes - 1)?.checked_add(etype_bytes)?;
            return Some(View { first, block_bytes: 0, stride: end.checked_sub(begin)?, ..*spread });
        }
    }
    Some(regular)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a view whose elementary types, of 4 bytes, lie at these multiples of 4.
    fn look_at(places: &[u64], tile_extent: u64) -> View {
        let tile_bytes = 4 * places.len() as u64;
        let spread = View {
            displacement: 100,
            tile_extent,
            tile_bytes,
            first: 0,
            block_bytes: 0,
            stride: tile_extent,
        };
        let seen = look(&spread, 4, |etype| Some(100 + 4 * places[etype as usize])).unwrap();
        assert!(View::from_words(seen.to_words()).is_some(), "{seen:?}");
        seen
    }

    fn blocks(view: View) -> (u64, u64, u64) {
        (view.first, view.block_bytes, view.stride)
    }

    #[test]
    fn blocks_are_found_by_asking() {
        assert_eq!(blocks(look_at(&[0], 4)), (0, 4, 4));
        assert_eq!(blocks(look_at(&[2, 3, 4], 20)), (8, 12, 12));
        assert_eq!(blocks(look_at(&[1, 5, 9, 13], 64)), (4, 4, 16));
        let rows: Vec<u64> = (0..64).map(|i| 3 + i / 8 * 20 + i % 8).collect();
        assert_eq!(blocks(look_at(&rows, 640)), (12, 32, 80));
    }

    #[test]
    fn blocks_that_differ_are_spread() {
        // The whole first tile is asked when it has few types.
        assert_eq!(blocks(look_at(&[1, 2, 5, 6, 10], 64)), (4, 0, 40));
        assert_eq!(blocks(look_at(&[0, 4, 8, 13], 64)), (0, 0, 56));
    }

    #[test]
    fn no_answer_is_no_view() {
        let spread = View { tile_bytes: 8, ..View::contiguous(0) };
        assert!(look(&spread, 4, |_| None).is_none());
    }
}
