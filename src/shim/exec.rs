//! `exec*`: the process goes on as another program, and its record says so.
//!
//! The C library's own calls from one of these to another are not seen, so each is wrapped. An exec that
//! fails returns, and the program goes on as if nothing had been. In a child of `vfork`, which shares our
//! memory, nothing is touched but the stack.

use super::caller::observing;
use super::posix::missing;
use super::shield::shield;
use super::wrap::{c_function, c_name, real_function};
use crate::{arch, measure, profile};
use libc::{c_char, c_int};
use weir_profile::layout::Ended;

type Strings = *const *const c_char;

/// Rows `function(arguments)`.
macro_rules! exec_calls {
    ($($name:ident ($($arg:ident: $type:ty),*);)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($($arg: $type),*) -> c_int, missing());

            #[unsafe(no_mangle)]
            pub(super) unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
                let marked = about_to_be_replaced();
                // SAFETY: the program's own call.
                let answer = unsafe { real($($arg),*) };
                if marked {
                    profile::take_back_end();
                }
                answer
            }
        }
    )+};
}

exec_calls! {
    execve(path: *const c_char, arguments: Strings, environment: Strings);
    execv(path: *const c_char, arguments: Strings);
    execvp(file: *const c_char, arguments: Strings);
    execvpe(file: *const c_char, arguments: Strings, environment: Strings);
    fexecve(fd: c_int, arguments: Strings, environment: Strings);
    execveat(directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int);
}

// What takes its arguments one by one is what takes them in a row.
arch::arguments_in_a_row!(execl, execv::execv);
arch::arguments_in_a_row!(execlp, execvp::execvp);
arch::arguments_in_a_row!(execle, with_environment_behind);

/// `execle`: the environment comes after the null that ends the arguments.
unsafe extern "C-unwind" fn with_environment_behind(path: *const c_char, arguments: Strings) -> c_int {
    let mut end = arguments;
    // SAFETY: the list that the program passed ends with a null and has the environment behind it.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve::execve(path, arguments, *end.add(1).cast::<Strings>())
    }
}

/// Marks the record, if it is this process's; whether it did.
fn about_to_be_replaced() -> bool {
    let ours = observing() && profile::is_recorded_process();
    if ours {
        shield((), || {
            profile::mark_end(Ended::Replaced, 0);
            measure::save();
        });
    }
    ours
}
