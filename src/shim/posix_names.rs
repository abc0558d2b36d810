//! POSIX calls that ask about files or change directories: they move no data, and on a shared file system they are often what
//! a program waits for.
//!
//! Counted are those of the program, once it has done I/O otherwise: what a program looks for when it starts is not its I/O.

use super::caller::{Caller, Thread};
use super::posix::missing;
use super::shield::shield;
use super::wrap::{c_function, c_name, real_function};
use crate::clock::ticks;
use crate::lifecycle::armed;
use crate::measure::data::{self, Meta};
use crate::measure::{self, files};
use crate::profile;
use libc::{c_char, c_int, c_uint, c_void, mode_t, off_t, off64_t};
use weir_profile::counters::posix::*;

const STAT: Meta = Meta::counted(POSIX_STATS, POSIX_F_META_TIME);
const CHANGE: Meta = Meta::counted(POSIX_DIRECTORY_CHANGES, POSIX_F_META_TIME);
const TRUNCATE: Meta = Meta::counted(POSIX_TRUNCATES, POSIX_F_META_TIME);

/// Whether a call is to be counted.
#[inline(always)]
fn counts() -> bool {
    armed()
        && Thread::current().caller.get() == Caller::App
        && measure::header().is_some()
        && profile::is_recorded_process()
}

/// Rows `function(arguments): path, directory, how it is counted`.
macro_rules! path_calls {
    ($($name:ident ($($arg:ident: $type:ty),*): $path:expr, $directory:expr, $meta:expr;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($($arg: $type),*) -> c_int, missing());

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
                if !counts() {
                    // SAFETY: the program's own call.
                    return unsafe { real($($arg),*) };
                }
                let start = ticks();
                // SAFETY: the program's own call.
                let answer = unsafe { real($($arg),*) };
                named($path, $directory, $meta, start);
                answer
            }
        }
    )+};
}

path_calls! {
    stat(path: *const c_char, about: *mut c_void): path, None, STAT;
    stat64(path: *const c_char, about: *mut c_void): path, None, STAT;
    lstat(path: *const c_char, about: *mut c_void): path, None, STAT;
    lstat64(path: *const c_char, about: *mut c_void): path, None, STAT;
    fstatat(directory: c_int, path: *const c_char, about: *mut c_void, flags: c_int): path, Some(directory), STAT;
    fstatat64(directory: c_int, path: *const c_char, about: *mut c_void, flags: c_int): path, Some(directory), STAT;
    statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, about: *mut c_void):
        path, Some(directory), STAT;
    // What programs compiled before glibc 2.33 call for the same.
    __xstat(version: c_int, path: *const c_char, about: *mut c_void): path, None, STAT;
    __xstat64(version: c_int, path: *const c_char, about: *mut c_void): path, None, STAT;
    __lxstat(version: c_int, path: *const c_char, about: *mut c_void): path, None, STAT;
    __lxstat64(version: c_int, path: *const c_char, about: *mut c_void): path, None, STAT;
    __fxstatat(version: c_int, directory: c_int, path: *const c_char, about: *mut c_void, flags: c_int):
        path, Some(directory), STAT;
    __fxstatat64(version: c_int, directory: c_int, path: *const c_char, about: *mut c_void, flags: c_int):
        path, Some(directory), STAT;
    access(path: *const c_char, mode: c_int): path, None, STAT;
    faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int): path, Some(directory), STAT;
    unlink(path: *const c_char): path, None, CHANGE;
    unlinkat(directory: c_int, path: *const c_char, flags: c_int): path, Some(directory), CHANGE;
    remove(path: *const c_char): path, None, CHANGE;
    rmdir(path: *const c_char): path, None, CHANGE;
    mkdir(path: *const c_char, mode: mode_t): path, None, CHANGE;
    mkdirat(directory: c_int, path: *const c_char, mode: mode_t): path, Some(directory), CHANGE;
    rename(path: *const c_char, to: *const c_char): path, None, CHANGE;
    renameat(directory: c_int, path: *const c_char, to_directory: c_int, to: *const c_char):
        path, Some(directory), CHANGE;
    renameat2(directory: c_int, path: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint):
        path, Some(directory), CHANGE;
    truncate(path: *const c_char, size: off_t): path, None, TRUNCATE;
    truncate64(path: *const c_char, size: off64_t): path, None, TRUNCATE;
}

/// A call on a path returned, with success or without.
#[cold]
#[inline(never)]
fn named(path: *const c_char, directory: Option<c_int>, meta: Meta, start: u64) {
    let end = ticks();
    let block = shield(None, || {
        // A system call that was given no memory to read answers that, and nothing is known of the file.
        // SAFETY: glibc's errno location is valid for the life of the thread.
        if unsafe { *libc::__errno_location() } == libc::EFAULT {
            return None;
        }
        // SAFETY: null, or a path that the system could read.
        let path = unsafe { files::absolute(path, directory) }?;
        files::wanted(&path, false).then(|| files::of_path(&path)).flatten()
    });
    if let Some(block) = block {
        data::meta(Thread::current(), block, meta, start, end);
    }
}

/// Rows `function(arguments): descriptor`.
macro_rules! descriptor_calls {
    ($($name:ident ($($arg:ident: $type:ty),*): $fd:expr;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($($arg: $type),*) -> c_int, missing());

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
                if counts() && let Some(block) = files::known_fd($fd) {
                    let start = ticks();
                    // SAFETY: the program's own call.
                    let answer = unsafe { real($($arg),*) };
                    data::meta(Thread::current(), block, STAT, start, ticks());
                    return answer;
                }
                // SAFETY: the program's own call.
                unsafe { real($($arg),*) }
            }
        }
    )+};
}

descriptor_calls! {
    fstat(fd: c_int, about: *mut c_void): fd;
    fstat64(fd: c_int, about: *mut c_void): fd;
    __fxstat(version: c_int, fd: c_int, about: *mut c_void): fd;
    __fxstat64(version: c_int, fd: c_int, about: *mut c_void): fd;
}
