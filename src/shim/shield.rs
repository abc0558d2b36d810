//! What stands between a mistake of ours and somebody's week-long run.
//!
//! Two kinds of code run in a wrapper. The **hot path** of data calls is written without anything that
//! can panic, allocate or fail, and needs no shield (a test looks through its machine code). All the
//! rest runs inside [`shield`], which keeps `errno`, stops a panic and blows the fuse.

use crate::shim::caller;
use crate::{config, heap, lifecycle, profile};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static FUSE: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Until it is dropped, this thread is not cancelled: what Weir opens and writes is nothing the program reckons with, and
/// its locks would stay locked.
struct NotCancelled(c_int);

impl NotCancelled {
    fn begin() -> NotCancelled {
        let mut before = 0;
        // SAFETY: a valid place for the answer.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        NotCancelled(before)
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        // SAFETY: what it was before; a cancellation that came meanwhile waits for the program's next call.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

pub(crate) fn fuse_is_blown() -> bool {
    FUSE.load(Relaxed)
}

/// Runs `work`; `errno` stays as it was.
pub(crate) fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: glibc's errno location is valid for the life of the thread.
    let errno = unsafe { *libc::__errno_location() };
    let answer = work();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    answer
}

/// Runs `work` as Weir: what it opens or writes is not measured, `errno` stays as it was, and if it
/// panics the answer is `otherwise` and Weir is off from then on.
#[cold]
#[inline(never)]
pub(crate) fn shield<R>(otherwise: R, work: impl FnOnce() -> R) -> R {
    // SAFETY: glibc's errno location is valid for the life of the thread.
    let errno = unsafe { *libc::__errno_location() };
    let _caller = caller::enter_weir();
    let _not_cancelled = NotCancelled::begin();
    silence_panics();
    let answer = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        blow_fuse(&said(cause));
        otherwise
    });
    if heap::ran_short() {
        blow_fuse("no memory left");
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    answer
}

/// What a panic has to say, `blow_fuse` says. A function of its own: closures within `shield` would leave
/// a table of pointers for each of its hundreds of uses, which every process that loads Weir has to relocate.
#[inline(never)]
fn silence_panics() {
    static SILENT: std::sync::Once = std::sync::Once::new();
    SILENT.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

/// What a panic said.
fn said(cause: Box<dyn std::any::Any + Send>) -> String {
    match cause.downcast::<String>() {
        Ok(text) => *text,
        Err(cause) => cause.downcast_ref::<&str>().unwrap_or(&"no reason given").to_string(),
    }
}

fn blow_fuse(text: &str) {
    FUSE.store(true, Relaxed);
    lifecycle::switch_off();
    config::say(&format!("internal error ({text}): measuring stops here, the program goes on"));
    profile::note_fuse(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Through the unwinder that `shim::late` finds, as in a program.
    #[test]
    fn a_panic_gives_the_other_answer_and_blows_the_fuse() {
        assert_eq!(shield(1, || 2), 2);
        assert!(!fuse_is_blown());
        // SAFETY: glibc's errno location is valid for the life of the thread.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno = libc::EINTR };
        let answer = shield(1, || if fuse_is_blown() { 2 } else { panic!("in a test") });
        assert_eq!(answer, 1);
        assert!(fuse_is_blown());
        // SAFETY: as above.
        assert_eq!(unsafe { *errno }, libc::EINTR);
    }

    #[test]
    fn what_a_panic_said_is_kept() {
        let caught = |work: fn()| said(catch_unwind(work).unwrap_err());
        assert_eq!(caught(|| panic!("plain")), "plain");
        assert_eq!(caught(|| panic!("{} words", 2)), "2 words");
    }
}
