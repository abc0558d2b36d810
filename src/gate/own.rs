//! What the program itself moves to and from files, without MPI-IO: when that is so much that it takes turns, and where it may not
//! be made to wait. Applies to `WEIR_GATE=auto`; with `all` every call takes its turn, but in signal handlers.

use super::lane;
use crate::profile::signals;
use crate::shim::shield::keeping_errno;
use crate::shim::signals::real_sigaction;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use weir_profile::layout::Block;

/// A stream takes a turn when so much was read from it or written to it since the last one: the C library moves a stream in small pieces.
const STREAM_BYTES: u64 = 1 << 20;
/// A sync takes a turn if so much was moved since the last one that did: syncs of a log file move next to nothing.
const SYNCED_BYTES: u64 = 1 << 20;

/// Bytes of each stream that have not taken a turn, by the file's index in the record; the first stands for all files without a place of
/// their own. Threads that meet on one stream may lose a few.
static STREAMS: [AtomicU32; lane::MAX_FILES + 1] = [const { AtomicU32::new(0) }; lane::MAX_FILES + 1];
/// Bytes that have taken their turn since the last sync that did.
static UNSYNCED_BYTES: AtomicU64 = AtomicU64::new(0);
/// A request of the program's own has been let in.
static SEEN: AtomicBool = AtomicBool::new(false);

pub(super) fn reset() {
    UNSYNCED_BYTES.store(0, Relaxed);
    SEEN.store(false, Relaxed);
}

/// Standard input, output and error are no data of the program's, wherever they lead.
pub(super) fn is_data(descriptor: i32) -> bool {
    descriptor > libc::STDERR_FILENO
}

/// A request of the program's own is about to ask. Its files are not counted as those that MPI opens are, so there is always taken to be
/// one that is open: phases end by their pauses.
pub(super) fn note(bytes: u64) {
    UNSYNCED_BYTES.fetch_add(bytes, Relaxed);
    if !SEEN.swap(true, Relaxed) {
        lane::file_opened();
    }
}

/// Whether a sync takes a turn.
pub(super) fn is_much_to_sync() -> bool {
    UNSYNCED_BYTES.load(Relaxed) >= SYNCED_BYTES && UNSYNCED_BYTES.swap(0, Relaxed) >= SYNCED_BYTES
}

/// A call on a stream is about to move so many bytes, or 0 if that is not known. Answers what it is to be charged with, if it is to take a turn.
pub(super) fn gathered_bytes(block: &Block, bytes: u64) -> Option<u64> {
    let gathered = stream(block)?;
    let all_bytes = u64::from(gathered.load(Relaxed)).saturating_add(bytes);
    if all_bytes < STREAM_BYTES {
        return None;
    }
    gathered.store(0, Relaxed);
    Some(all_bytes)
}

/// A call on a stream that took no turn has moved so many bytes.
pub(super) fn gather(block: &Block, bytes: u64) {
    if let Some(gathered) = stream(block) {
        let all_bytes = u64::from(gathered.load(Relaxed)).saturating_add(bytes);
        gathered.store(all_bytes.min(u64::from(u32::MAX)) as u32, Relaxed);
    }
}

fn stream(block: &Block) -> Option<&'static AtomicU32> {
    STREAMS.get(block.file.load(Relaxed) as usize)
}

/// Whether this thread seems to run a signal handler of the program's, where nothing may be waited for: a signal for which the program has a
/// handler is blocked, as it is while its handler runs. A thread that blocks such signals for other reasons does not wait either.
#[cold]
pub(super) fn is_in_signal_handler() -> bool {
    // SAFETY: all-zero is a valid set, which outlives the calls.
    keeping_errno(|| unsafe {
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked) == 0
            && (1..=libc::SIGRTMAX())
                .any(|signal| libc::sigismember(&blocked, signal) == 1 && has_handler(signal))
    })
}

fn has_handler(signal: i32) -> bool {
    // SAFETY: all-zero is a valid action, which outlives the call.
    let mut action: signals::Action = unsafe { std::mem::zeroed() };
    // SAFETY: the same.
    if unsafe { real_sigaction(signal, std::ptr::null(), &mut action) } != 0 {
        return false;
    }
    let is_handler = |handler| handler != libc::SIG_DFL && handler != libc::SIG_IGN;
    match signals::before(signal).filter(|_| signals::is_ours(action.sa_sigaction)) {
        Some(before) => is_handler(before.sa_sigaction),
        None => is_handler(action.sa_sigaction),
    }
}
