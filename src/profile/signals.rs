//! A fatal signal leaves its number in the record.
//!
//! Only signals that end the process anyway are watched: those with the default action, and those for
//! which the MPI library has installed a handler of its own that prints a stack and dies. Where the
//! program has a handler or ignores the signal, nothing is changed. Ours stores a few words, puts back what
//! was there and lets the signal come again. `WEIR_SIGNALS=off` leaves all signals alone.

use super::{is_recorded_process, mark_end};
use crate::shim::real::object_of;
use crate::{lifecycle, measure};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};
use weir_profile::layout::Ended;

const FATAL: &[c_int] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// What each signal did before; leaked once, read in the handler.
static BEFORE: [AtomicPtr<libc::sigaction>; FATAL.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; FATAL.len()];

/// Libraries whose handlers report a crash and then die.
const MPI_LIBRARIES: &[&str] = &["libmpi", "libmpich", "libopen-pal", "libopen-rte", "libucs", "libpmix"];

pub(crate) fn watch() {
    for (signal, before) in FATAL.iter().zip(&BEFORE) {
        // SAFETY: all-zero is a valid sigaction; the handler does only what is allowed in one.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(*signal, std::ptr::null(), &mut old) != 0 || !ends_the_process(&old) {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
            new.sa_sigaction = handler as usize;
            new.sa_flags = libc::SA_ONSTACK | libc::SA_SIGINFO;
            if before.load(Acquire).is_null() {
                before.store(Box::into_raw(Box::new(old)), Release);
            }
            libc::sigaction(*signal, &new, std::ptr::null_mut());
        }
    }
}

fn ends_the_process(action: &libc::sigaction) -> bool {
    let handler = action.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return handler == libc::SIG_DFL;
    }
    let library = object_of(std::ptr::with_exposed_provenance::<c_void>(handler)).unwrap_or_default();
    let name = library.to_string_lossy().rsplit('/').next().unwrap_or_default().to_string();
    MPI_LIBRARIES.iter().any(|library| name.starts_with(library))
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // A handler of the program's that came later may call the one that was there before it: this one.
    // It has the signal in hand; the default action it would have found does not concern us.
    // SAFETY: all-zero is a valid sigaction, and sigaction fills it or says no.
    let current = unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut current);
        current.sa_sigaction
    };
    let ours: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    if current != ours as usize {
        return;
    }
    if lifecycle::STATE.load(Relaxed) == lifecycle::ARMED && is_recorded_process() {
        // The first is the cause: a handler that reports a crash may itself die of a heap that is damaged.
        let dies_already =
            measure::header().is_some_and(|h| h.ended.load(Relaxed) == Ended::Signalled as u64);
        if !dies_already {
            mark_end(Ended::Signalled, signal);
        }
    }
    let before = FATAL.iter().position(|fatal| *fatal == signal).map(|i| BEFORE[i].load(Acquire));
    // SAFETY: what `watch` stored, or nothing, which leaves the default.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        let before = before.filter(|b| !b.is_null()).map_or(&raw const default, |b| b.cast_const());
        libc::sigaction(signal, before, std::ptr::null_mut());
    }
    // A fault repeats itself when this returns, with the right address in the core. What somebody sent
    // has to be sent again.
    // SAFETY: the kernel passes a valid siginfo.
    let by_kernel = !info.is_null() && unsafe { (*info).si_code } > 0;
    let fault = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL);
    if !(fault && by_kernel) {
        // SAFETY: sends the signal to this thread; it arrives when this handler returns.
        unsafe { libc::raise(signal) };
    }
}
