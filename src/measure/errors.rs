//! Which calls failed: function, file and error, bounded in number.

use super::data;
use super::lane::Name;
use super::record;
use crate::abi;
use crate::shim::caller::{self, Thread};
use crate::shim::shield::keeping_errno;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use weir_profile::failures::{FILE_EXISTS, IS_HARMLESS, IS_MPI, NO_SUCH_FILE, class_name};
use weir_profile::layout::Block;

/// What a call returned instead of success.
#[derive(Clone, Copy)]
pub(crate) enum Error {
    Errno(c_int),
    /// The answer of an MPI function.
    Mpi(c_int),
    /// The same of one that may find no file, or one that is there already, and reckons with it.
    MpiProbe(c_int),
}

impl Error {
    /// The `errno` that the C library left.
    pub(crate) fn last() -> Error {
        // SAFETY: glibc's errno location is valid for the life of the thread.
        Error::Errno(unsafe { *libc::__errno_location() })
    }

    /// As the record has it.
    fn code(self) -> u64 {
        match self {
            Error::Errno(errno) => {
                let is_harmless = matches!(errno, libc::EINTR | libc::EAGAIN);
                u64::from(errno as u32) | if is_harmless { IS_HARMLESS } else { 0 }
            }
            Error::Mpi(answer) => IS_MPI | u64::from(abi::error_class(answer)),
            Error::MpiProbe(answer) => {
                let class = abi::error_class(answer);
                let name = class_name(abi::current().kind, class);
                let is_harmless = matches!(name, Some(NO_SUCH_FILE | FILE_EXISTS));
                IS_MPI | u64::from(class) | if is_harmless { IS_HARMLESS } else { 0 }
            }
        }
    }
}

/// A call on a file failed: adds to the counter of such calls, and to the list.
#[cold]
#[inline(never)]
pub(crate) fn note(
    thread: &Thread,
    block: &'static Block,
    counter: usize,
    op: &Name,
    error: Error,
    start_ticks: u64,
) {
    data::count(thread, block, counter);
    keeping_errno(|| list(op, block.file.load(Relaxed), error, start_ticks));
}

static LISTING: Mutex<()> = Mutex::new(());

pub(super) fn is_lock_free() -> bool {
    crate::child::is_free(&LISTING)
}

/// Adds to the failures alike, or takes a free place for the first of them.
fn list(op: &Name, file: u64, error: Error, start_ticks: u64) {
    // A signal handler that does I/O of its own here must not come for the lock.
    let _caller = caller::enter_weir();
    let _guard = LISTING.lock().unwrap_or_else(|e| e.into_inner());
    let Some(header) = record::header() else { return };
    let code = error.code();
    for failure in &header.failures {
        let is_free = failure.count.load(Relaxed) == 0;
        if is_free {
            op.store(&failure.op);
            failure.file.store(file, Relaxed);
            failure.code.store(code, Relaxed);
            failure.start_ticks.store(start_ticks, Relaxed);
        }
        let is_alike = failure.file.load(Relaxed) == file && failure.code.load(Relaxed) == code;
        if is_free || is_alike && op.is(&failure.op) {
            failure.count.fetch_add(1, Relaxed);
            return;
        }
    }
}
