//! Formatted text on streams and descriptors: variadic functions, which come in through a trampoline as a `va_list`.

use super::caller::{Thread, observing};
use super::posix::{self, AT_POSITION};
use super::real::{self, Slot, early};
use super::shield::{keeping_errno, shield};
use super::stdio::{descriptor, done, of_stream};
use super::wrap::{c_function, c_name, real_function};
use crate::arch::variadic;
use crate::clock::ticks;
use crate::gate;
use crate::measure::data::{Direction, Op};
use crate::measure::files;
use libc::{FILE, c_char, c_int, c_void, ssize_t};
use std::ffi::CStr;
use weir_profile::counters::Module;

type VaList = *mut c_void;

/// Rows `function(arguments, list): direction`: the form that takes a `va_list`.
macro_rules! list_calls {
    ($($name:ident as $body:ident ($file:ident: $kind:ty $(, $arg:ident: $type:ty)*): $direction:ident;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($file: $kind $(, $arg: $type)*) -> c_int, -1);
            static OP: Op = Op::new(stringify!($name), Direction::$direction);

            #[unsafe(no_mangle)]
            pub(super) unsafe extern "C-unwind" fn $name($file: $kind $(, $arg: $type)*) -> c_int {
                // SAFETY: the program's own call.
                $body(&OP, $file, || unsafe { real($file $(, $arg)*) })
            }
        }
    )+};
}

list_calls! {
    vfprintf as print(stream: *mut FILE, format: *const c_char, list: VaList): Write;
    __vfprintf_chk as print(stream: *mut FILE, flag: c_int, format: *const c_char, list: VaList): Write;
    vdprintf as print_on(fd: c_int, format: *const c_char, list: VaList): Write;
    __vdprintf_chk as print_on(fd: c_int, flag: c_int, format: *const c_char, list: VaList): Write;
    vfscanf as scan(stream: *mut FILE, format: *const c_char, list: VaList): Read;
    __isoc99_vfscanf as scan(stream: *mut FILE, format: *const c_char, list: VaList): Read;
    __isoc23_vfscanf as scan(stream: *mut FILE, format: *const c_char, list: VaList): Read;
}

fn print(op: &'static Op, stream: *mut FILE, real: impl FnOnce() -> c_int) -> c_int {
    if observing()
        && let Some(block) = of_stream(stream)
    {
        let mut pass =
            gate::is_on().then(|| gate::admit_stream(Thread::current(), block, descriptor(stream), 0));
        let start = ticks();
        let printed = real();
        if let Some(pass) = &mut pass {
            pass.moved(u64::try_from(printed).unwrap_or(0));
        }
        done(block, op, start, u64::try_from(printed).ok());
        return printed;
    }
    real()
}

/// On a descriptor: a POSIX call. How much it will print is known afterwards.
fn print_on(op: &'static Op, fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if observing()
        && let Some(block) = files::of_fd(Module::Posix, fd)
    {
        let mut pass = gate::is_on().then(|| gate::admit_stream(Thread::current(), block, fd, 0));
        let start = ticks();
        let printed = real();
        if let Some(pass) = &mut pass {
            pass.moved(u64::try_from(printed).unwrap_or(0));
        }
        posix::done(block, op, start, ticks(), printed as ssize_t, AT_POSITION);
        return printed;
    }
    real()
}

/// How many bytes a scan consumed is seen from the position before and after.
fn scan(op: &'static Op, stream: *mut FILE, real: impl FnOnce() -> c_int) -> c_int {
    if observing()
        && let Some(block) = of_stream(stream)
    {
        let before = position(stream);
        let start = ticks();
        let items = real();
        done(block, op, start, u64::try_from(position(stream) - before).ok());
        return items;
    }
    real()
}

/// Where a stream is at; -1 where nobody can tell, as in a pipe.
fn position(stream: *mut FILE) -> i64 {
    // SAFETY: the program's stream; asking for the position changes nothing.
    keeping_errno(|| unsafe { libc::ftello(stream) })
}

/// Rows `function(named arguments; how many)`: the variadic form. The trampoline
/// hands its arguments over as a list; the first call also finds the real function, to which the
/// trampoline jumps as long as Weir is not armed.
macro_rules! variadic_calls {
    ($($name:ident ($($arg:ident: $type:ty),*; $fixed:tt) to $list:ident;)+) => {$(
        pub(super) mod $name {
            use super::*;
            const NAME: &CStr = c_name!(stringify!($name));
            static REAL: Slot = Slot::new(std::ptr::null());
            early!(NAME, REAL);

            unsafe extern "C-unwind" fn with_list($($arg: $type,)* list: VaList) -> c_int {
                if REAL.get().is_null() {
                    REAL.set(shield(std::ptr::null_mut(), || real::find(NAME)));
                }
                // SAFETY: the program's own call, its arguments gathered into a list.
                unsafe { $list::$list($($arg,)* list) }
            }
            variadic!($name, $fixed, REAL, with_list);
        }
    )+};
}

variadic_calls! {
    fprintf(stream: *mut FILE, format: *const c_char; 2) to vfprintf;
    __fprintf_chk(stream: *mut FILE, flag: c_int, format: *const c_char; 3) to __vfprintf_chk;
    dprintf(fd: c_int, format: *const c_char; 2) to vdprintf;
    __dprintf_chk(fd: c_int, flag: c_int, format: *const c_char; 3) to __vdprintf_chk;
    fscanf(stream: *mut FILE, format: *const c_char; 2) to vfscanf;
    __isoc99_fscanf(stream: *mut FILE, format: *const c_char; 2) to __isoc99_vfscanf;
    __isoc23_fscanf(stream: *mut FILE, format: *const c_char; 2) to __isoc23_vfscanf;
}
