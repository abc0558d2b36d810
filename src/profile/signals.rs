//! A fatal signal leaves its number in the record.
//!
//! Only signals that would kill the process anyway are watched: where the program, or MPI, has a handler
//! or ignores the signal, nothing is changed. The handler stores two words and lets the signal do what it
//! would have done. `WEIR_SIGNALS=off` leaves all signals alone.

use super::{is_recorded_process, mark_end};
use crate::lifecycle;
use std::ffi::c_int;
use std::sync::atomic::Ordering::*;
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

pub(crate) fn watch() {
    for signal in FATAL {
        // SAFETY: all-zero is a valid sigaction; the handler does only what is allowed in one. With
        // SA_RESETHAND the kernel itself puts the default action back before the handler runs.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(*signal, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_DFL {
                let mut new: libc::sigaction = std::mem::zeroed();
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
                new.sa_sigaction = handler as usize;
                new.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK | libc::SA_SIGINFO;
                libc::sigaction(*signal, &new, std::ptr::null_mut());
            }
        }
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if lifecycle::STATE.load(Relaxed) == lifecycle::ARMED && is_recorded_process() {
        mark_end(Ended::Signalled, signal);
    }
    // A fault repeats itself when the handler returns, and then kills with the right address in the core.
    // What somebody sent has to be sent again.
    // SAFETY: the kernel passes a valid siginfo.
    let by_kernel = !info.is_null() && unsafe { (*info).si_code } > 0;
    let fault = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL);
    if !(fault && by_kernel) {
        // SAFETY: sends the signal to this thread; its action is the default one now.
        unsafe { libc::raise(signal) };
    }
}
