//! `sigaction` and its older forms: the program does not see the handlers that Weir has for fatal signals, but what was there
//! before them. It may take them for its own business: install a handler only where there is none, or pass on what is not
//! meant for it.

use super::posix::missing;
use super::wrap::{c_function, c_name, real_function};
use crate::profile::signals::{self, Action};
use libc::c_int;

pub(crate) use sigaction::real as real_sigaction;

macro_rules! action_calls {
    ($($name:ident)+) => {$(
        pub(crate) mod $name {
            use super::*;
            c_function!(
                c_name!(stringify!($name)),
                fn(signal: c_int, new: *const Action, old: *mut Action) -> c_int,
                missing()
            );

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
                let Some(before) = signals::before(signal) else {
                    // SAFETY: the program's own call.
                    return unsafe { real(signal, new, old) };
                };
                // Before the call, for both may be the same place.
                // SAFETY: null, or an action of the program's.
                let set = unsafe { new.as_ref() }.map(|new| new.sa_sigaction);
                // SAFETY: the program's own call.
                let answer = unsafe { real(signal, new, old) };
                // SAFETY: null, or what the call filled.
                if answer == 0 && let Some(old) = unsafe { old.as_mut() } && signals::is_ours(old.sa_sigaction) {
                    *old = *before;
                }
                if answer == 0 && let Some(handler) = set {
                    signals::replaced(signal, handler);
                }
                answer
            }
        }
    )+};
}

action_calls! { sigaction __sigaction }

/// Handlers are addresses, or `SIG_DFL` and the like.
macro_rules! handler_calls {
    ($($name:ident)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn(signal: c_int, handler: usize) -> usize, libc::SIG_ERR);

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(signal: c_int, handler: usize) -> usize {
                let before = signals::before(signal);
                // SAFETY: the program's own call.
                let old = unsafe { real(signal, handler) };
                match before {
                    Some(before) if old != libc::SIG_ERR => {
                        signals::replaced(signal, handler);
                        if signals::is_ours(old) { before.sa_sigaction } else { old }
                    }
                    _ => old,
                }
            }
        }
    )+};
}

handler_calls! { signal bsd_signal ssignal sysv_signal __sysv_signal sigset }
