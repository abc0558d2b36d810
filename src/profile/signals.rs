//! A fatal signal leaves its number in the record.
//!
//! Only signals that end the process anyway are watched: those with the default action, and those for
//! which the MPI library has installed a handler of its own that prints a stack and dies. Where the
//! program has a handler or ignores the signal, nothing is changed. Ours stores a few words, puts back what
//! was there and lets the signal come again. The program does not see it (`shim/signals.rs`), and where it installs one of
//! its own, that replaces ours. `WEIR_SIGNALS=off` leaves all signals alone.

use super::{is_recorded_process, mark_end};
use crate::shim::real::object_of;
use crate::shim::signals::real_sigaction;
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

pub(crate) type Action = libc::sigaction;
type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// What each signal did before Weir had a handler for it; null if it never had. Read in the handler, so never freed.
static BEFORE: [AtomicPtr<Action>; FATAL.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; FATAL.len()];

// SAFETY: numbers, for which zero is a value; `SIG_DFL` is zero.
static DEFAULT: Action = unsafe { std::mem::zeroed() };

/// Libraries whose handlers report a crash and then die.
const MPI_LIBRARIES: &[&str] = &["libmpi", "libmpich", "libopen-pal", "libopen-rte", "libucs", "libpmix"];

pub(crate) fn watch() {
    for (signal, before) in FATAL.iter().zip(&BEFORE) {
        let Some(now) = current(*signal).filter(ends_the_process) else { continue };
        before.store(Box::into_raw(Box::new(now)), Release);
        install(*signal);
    }
}

fn current(signal: c_int) -> Option<Action> {
    let mut action = DEFAULT;
    // SAFETY: a valid place for the answer.
    (unsafe { real_sigaction(signal, std::ptr::null(), &mut action) } == 0).then_some(action)
}

fn install(signal: c_int) {
    let handler: Handler = on_signal;
    let flags = libc::SA_ONSTACK | libc::SA_SIGINFO;
    let action = Action { sa_sigaction: handler as usize, sa_flags: flags, ..DEFAULT };
    // SAFETY: the handler does only what is allowed in one.
    unsafe { real_sigaction(signal, &action, std::ptr::null_mut()) };
}

fn ends_the_process(action: &Action) -> bool {
    let handler = action.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return handler == libc::SIG_DFL;
    }
    let library = object_of(std::ptr::with_exposed_provenance::<c_void>(handler)).unwrap_or_default();
    let name = library.to_string_lossy().rsplit('/').next().unwrap_or_default().to_string();
    MPI_LIBRARIES.iter().any(|library| name.starts_with(library))
}

fn place(signal: c_int) -> Option<&'static AtomicPtr<Action>> {
    FATAL.iter().position(|fatal| *fatal == signal).map(|index| &BEFORE[index])
}

/// What a signal did before Weir had a handler for it.
pub(crate) fn before(signal: c_int) -> Option<&'static Action> {
    // SAFETY: null, or what `watch` stored, which is never freed.
    unsafe { place(signal)?.load(Acquire).as_ref() }
}

pub(crate) fn is_ours(handler: usize) -> bool {
    let ours: Handler = on_signal;
    handler == ours as usize
}

/// The program has set what a signal does. Where it will end the process again, as after a handler that has passed the
/// signal on or was there for a while, so is Weir's.
pub(crate) fn replaced(signal: c_int, handler: usize) {
    let Some((place, before)) = place(signal).zip(before(signal)) else { return };
    let is_default = handler == libc::SIG_DFL;
    if (is_default || handler == before.sa_sigaction) && lifecycle::armed() && is_recorded_process() {
        if is_default {
            place.store((&raw const DEFAULT).cast_mut(), Release);
        }
        install(signal);
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if lifecycle::armed() && is_recorded_process() {
        // The first is the cause: a handler that reports a crash may itself die of a heap that is damaged.
        let dies_already =
            measure::header().is_some_and(|h| h.ended.load(Relaxed) == Ended::Signalled as u64);
        if !dies_already {
            mark_end(Ended::Signalled, signal);
        }
    }
    let before = before(signal).unwrap_or(&DEFAULT);
    let is_called_by_another = current(signal).is_some_and(|now| !is_ours(now.sa_sigaction));
    if is_called_by_another && before.sa_sigaction != libc::SIG_DFL {
        return pass_on(before, signal, info, context);
    }
    // SAFETY: what was there before.
    unsafe { real_sigaction(signal, before, std::ptr::null_mut()) };
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

/// A handler that came later has called ours, which it found by other ways than the C library's. It wants the one before.
fn pass_on(before: &Action, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let handler: *const () = std::ptr::with_exposed_provenance(before.sa_sigaction);
    // SAFETY: a handler takes these, or only the first of them; those it does not take do it no harm.
    unsafe { std::mem::transmute::<*const (), Handler>(handler)(signal, info, context) };
}
