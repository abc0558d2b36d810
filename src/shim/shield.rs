//! What stands between a mistake of ours and somebody's week-long run.
//!
//! Two kinds of code run in a wrapper. The **hot path** of data calls is written without anything that
//! can panic, allocate or fail, and needs no shield (a test looks through its machine code). All the
//! rest runs inside [`shield`], which keeps `errno`, stops a panic and blows the fuse.

use crate::shim::caller;
use crate::{config, lifecycle, profile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static FUSE: AtomicBool = AtomicBool::new(false);

pub(crate) fn fuse_is_blown() -> bool {
    FUSE.load(Relaxed)
}

/// Runs `work` as Weir: what it opens or writes is not measured, `errno` stays as it was, and if it
/// panics the answer is `otherwise` and Weir is off from then on.
#[cold]
#[inline(never)]
pub(crate) fn shield<R>(otherwise: R, work: impl FnOnce() -> R) -> R {
    // SAFETY: glibc's errno location is valid for the life of the thread.
    let errno = unsafe { *libc::__errno_location() };
    let _caller = caller::enter_weir();
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let answer = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        blow_fuse(&cause);
        otherwise
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    answer
}

fn blow_fuse(cause: &(dyn std::any::Any + Send)) {
    FUSE.store(true, Relaxed);
    lifecycle::switch_off();
    let text = cause
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| cause.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    config::say(&format!("internal error ({text}): measuring stops here, the program goes on"));
    profile::note_fuse(&text);
}
