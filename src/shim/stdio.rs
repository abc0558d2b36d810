//! Calls on `FILE *` streams.

use super::caller::{Caller, Thread, observing};
use super::posix::missing;
use super::shield::shield;
use super::wrap::{c_function, c_name, real_function};
use crate::clock::ticks;
use crate::gate;
use crate::lifecycle::armed;
use crate::measure::data::{self, Call, Direction, Meta, NONE, Op};
use crate::measure::errors::{self, Error};
use crate::measure::lane::Name;
use crate::measure::{files, steady};
use libc::{FILE, c_char, c_int, c_long, c_void, off_t, off64_t, size_t, ssize_t};
use weir_profile::counters::{Module, stdio::*};
use weir_profile::layout::Block;

const fn opening(counter: usize) -> Meta {
    Meta {
        counter,
        time: STDIO_F_META_TIME,
        own_time: STDIO_F_OPEN_CLOSE_TIME,
        first: STDIO_F_OPEN_START_TIMESTAMP,
        last: STDIO_F_OPEN_END_TIMESTAMP,
    }
}
const CLOSE: Meta = Meta {
    first: STDIO_F_CLOSE_START_TIMESTAMP,
    last: STDIO_F_CLOSE_END_TIMESTAMP,
    ..Meta::timed(STDIO_F_META_TIME).of_kind(STDIO_F_OPEN_CLOSE_TIME)
};

const fn counted(counter: usize) -> Meta {
    Meta::counted(counter, STDIO_F_META_TIME)
}

/// Counters of the file behind a stream.
#[inline(always)]
pub(super) fn of_stream(stream: *mut FILE) -> Option<&'static Block> {
    if stream.is_null() {
        return None;
    }
    files::of_fd(Module::Stdio, descriptor(stream))
}

/// The descriptor of a stream, -1 for one without. Read where glibc's public `struct _IO_FILE` has it:
/// `fileno` would set `errno` for a stream in memory.
#[inline(always)]
pub(super) fn descriptor(stream: *mut FILE) -> c_int {
    const FILENO_OFFSET: usize = 112;
    // SAFETY: a stream of the program's; the structure is part of glibc's ABI.
    unsafe { stream.cast::<c_int>().byte_add(FILENO_OFFSET).read() }
}

/// A data call returned; `bytes` is `None` when it failed or met the end of the file.
#[inline(always)]
pub(super) fn done(block: &'static Block, op: &'static Op, start_ticks: u64, bytes: Option<u64>) {
    let call = Call { op, start_ticks, end_ticks: ticks(), bytes: bytes.unwrap_or(0) };
    if Thread::current().owner_calls() != 0 || !steady::stdio(block, &call) {
        note(block, op, start_ticks, call.end_ticks, call.bytes);
    }
}

/// One that was held back is no call like the one before it.
fn done_behind_gate(block: &'static Block, op: &'static Op, start_ticks: u64, bytes: Option<u64>) {
    if Thread::current().gate_ticks.get() > 0 {
        note(block, op, start_ticks, ticks(), bytes.unwrap_or(0));
    } else {
        done(block, op, start_ticks, bytes);
    }
}

/// The general way.
#[cold]
#[inline(never)]
fn note(block: &'static Block, op: &'static Op, start_ticks: u64, end_ticks: u64, bytes: u64) {
    let (error, thread) = (Error::last(), Thread::current());
    let end_ticks = end_ticks.max(start_ticks);
    data::stdio(thread, block, &Call { op, start_ticks, end_ticks, bytes });
    // Where nothing was written, `errno` is of this call if it is what only a write can say.
    if op.writes()
        && bytes == 0
        && matches!(error, Error::Errno(libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EIO))
    {
        errors::note(thread, block, STDIO_ERRORS, op.name(), error, start_ticks);
    }
}

/// What a call is asked to move, or 0 where that is not known.
macro_rules! asked {
    () => {
        0
    };
    ($bytes:expr) => {
        $bytes
    };
}

/// Rows `function(arguments) -> answer: stream, direction, bytes it moved, bytes it is asked to move`.
macro_rules! data_calls {
    ($($name:ident ($($arg:ident: $type:ty),*) -> $answer:ty: $stream:ident, $direction:ident,
        |$result:ident| $bytes:expr, else $missing:expr $(, of $asked:expr)?;)+) => {$(
        #[allow(non_snake_case)]
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($($arg: $type),*) -> $answer, $missing);
            static OP: Op = Op::new(stringify!($name), Direction::$direction);

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $answer {
                // SAFETY: the program's own call.
                if armed() { unsafe { measured($($arg),*) } } else { unsafe { real($($arg),*) } }
            }

            #[inline(never)]
            unsafe extern "C-unwind" fn measured($($arg: $type),*) -> $answer {
                if observing() && let Some(block) = of_stream($stream) {
                    if gate::is_on() {
                        // SAFETY: the program's own call.
                        return unsafe { gated(block, $($arg),*) };
                    }
                    let start = ticks();
                    // SAFETY: the program's own call.
                    let $result = unsafe { real($($arg),*) };
                    done(block, &OP, start, $bytes);
                    return $result;
                }
                // SAFETY: the program's own call.
                unsafe { real($($arg),*) }
            }

            #[cold]
            #[inline(never)]
            unsafe fn gated(block: &'static Block, $($arg: $type),*) -> $answer {
                let asked_bytes = asked!($($asked)?) as u64;
                let mut pass = gate::admit_stream(Thread::current(), block, descriptor($stream), asked_bytes);
                let start = ticks();
                // SAFETY: the program's own call.
                let $result = unsafe { real($($arg),*) };
                pass.moved($bytes.unwrap_or(0));
                done_behind_gate(block, &OP, start, $bytes);
                $result
            }
        }
    )+};
}

/// Length of a C string that the program passed or the C library filled.
fn length(text: *const c_char) -> Option<u64> {
    // SAFETY: null, or a C string by the contract of `fputs` and `fgets`.
    (!text.is_null()).then(|| unsafe { libc::strlen(text) } as u64)
}

data_calls! {
    fread(to: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t:
        stream, Read, |items| Some((items * size) as u64), else 0, of size.saturating_mul(n);
    fwrite(from: *const c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t:
        stream, Write, |items| Some((items * size) as u64), else 0, of size.saturating_mul(n);
    fread_unlocked(to: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t:
        stream, Read, |items| Some((items * size) as u64), else 0, of size.saturating_mul(n);
    fwrite_unlocked(from: *const c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t:
        stream, Write, |items| Some((items * size) as u64), else 0, of size.saturating_mul(n);
    __fread_chk(to: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t:
        stream, Read, |items| Some((items * size) as u64), else 0, of size.saturating_mul(n);
    fgets(to: *mut c_char, n: c_int, stream: *mut FILE) -> *mut c_char:
        stream, Read, |text| length(text), else std::ptr::null_mut();
    __fgets_chk(to: *mut c_char, room: size_t, n: c_int, stream: *mut FILE) -> *mut c_char:
        stream, Read, |text| length(text), else std::ptr::null_mut();
    fgetc(stream: *mut FILE) -> c_int: stream, Read, |c| (c >= 0).then_some(1), else missing();
    getc(stream: *mut FILE) -> c_int: stream, Read, |c| (c >= 0).then_some(1), else missing();
    getw(stream: *mut FILE) -> c_int: stream, Read, |w| (w != libc::EOF).then_some(4), else missing();
    fgets_unlocked(to: *mut c_char, n: c_int, stream: *mut FILE) -> *mut c_char:
        stream, Read, |text| length(text), else std::ptr::null_mut();
    __fread_unlocked_chk(to: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t:
        stream, Read, |items| Some((items * size) as u64), else 0, of size.saturating_mul(n);
    __fgets_unlocked_chk(to: *mut c_char, room: size_t, n: c_int, stream: *mut FILE) -> *mut c_char:
        stream, Read, |text| length(text), else std::ptr::null_mut();
    fgetc_unlocked(stream: *mut FILE) -> c_int: stream, Read, |c| (c >= 0).then_some(1), else missing();
    getc_unlocked(stream: *mut FILE) -> c_int: stream, Read, |c| (c >= 0).then_some(1), else missing();
    _IO_getc(stream: *mut FILE) -> c_int: stream, Read, |c| (c >= 0).then_some(1), else missing();
    fputc_unlocked(c: c_int, stream: *mut FILE) -> c_int: stream, Write, |c| (c >= 0).then_some(1), else missing();
    putc_unlocked(c: c_int, stream: *mut FILE) -> c_int: stream, Write, |c| (c >= 0).then_some(1), else missing();
    _IO_putc(c: c_int, stream: *mut FILE) -> c_int: stream, Write, |c| (c >= 0).then_some(1), else missing();
    getline(to: *mut *mut c_char, n: *mut size_t, stream: *mut FILE) -> ssize_t:
        stream, Read, |n| u64::try_from(n).ok(), else missing();
    getdelim(to: *mut *mut c_char, n: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t:
        stream, Read, |n| u64::try_from(n).ok(), else missing();
    // What a compiler that optimises makes of getline.
    __getdelim(to: *mut *mut c_char, n: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t:
        stream, Read, |n| u64::try_from(n).ok(), else missing();
    fputs(text: *const c_char, stream: *mut FILE) -> c_int:
        stream, Write, |c| if c >= 0 { length(text) } else { None }, else missing();
    fputs_unlocked(text: *const c_char, stream: *mut FILE) -> c_int:
        stream, Write, |c| if c >= 0 { length(text) } else { None }, else missing();
    fputc(c: c_int, stream: *mut FILE) -> c_int: stream, Write, |c| (c >= 0).then_some(1), else missing();
    putc(c: c_int, stream: *mut FILE) -> c_int: stream, Write, |c| (c >= 0).then_some(1), else missing();
    putw(word: c_int, stream: *mut FILE) -> c_int: stream, Write, |c| (c == 0).then_some(4), else missing();
}

/// Rows `function(arguments): path, how it is counted`; each answers a stream.
macro_rules! open_calls {
    ($($name:ident ($($arg:ident: $type:ty),*): $path:expr, $meta:expr;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($($arg: $type),*) -> *mut FILE, std::ptr::null_mut());
            static OP: Name = Name::new(stringify!($name));

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> *mut FILE {
                if !observing() {
                    // SAFETY: the program's own call.
                    return unsafe { real($($arg),*) };
                }
                let start = ticks();
                // SAFETY: the program's own call.
                let stream = unsafe { real($($arg),*) };
                if stream.is_null() {
                    not_opened(&OP, $path, start);
                } else {
                    opened(stream, $path, $meta, start);
                }
                stream
            }
        }
    )+};
}

open_calls! {
    fopen(path: *const c_char, mode: *const c_char): Some(path), opening(STDIO_OPENS);
    fopen64(path: *const c_char, mode: *const c_char): Some(path), opening(STDIO_OPENS);
    fdopen(fd: c_int, mode: *const c_char): None, opening(STDIO_FDOPENS);
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE): Some(path), opening(STDIO_OPENS);
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE): Some(path), opening(STDIO_OPENS);
}

/// A stream was opened, by path or on a descriptor that is open already.
fn opened(stream: *mut FILE, path: Option<*const c_char>, meta: Meta, start: u64) {
    let end = ticks();
    let thread = Thread::current();
    let block = shield(None, || {
        let fd = descriptor(stream);
        match path {
            Some(path) if !path.is_null() => {
                files::forget_fd(fd);
                // SAFETY: the program's path; the call with it succeeded.
                let block = unsafe { files::absolute(path, None) }
                    .filter(|p| files::wanted(p, false))
                    .and_then(|p| files::block(&p, Module::Stdio));
                files::note_fd(Module::Stdio, fd, block);
                block
            }
            _ => files::of_fd(Module::Stdio, fd),
        }
    });
    if let Some(block) = block {
        data::meta(thread, block, meta, start, end);
    }
}

/// A stream could not be opened. That a file is not there, or is there, is an answer to a program that asks.
#[cold]
#[inline(never)]
fn not_opened(op: &Name, path: Option<*const c_char>, start: u64) {
    let (error, end) = (Error::last(), ticks());
    let thread = Thread::current();
    let (Some(path), Caller::App) = (path, thread.caller.get()) else { return };
    if matches!(error, Error::Errno(libc::ENOENT | libc::ENOTDIR | libc::EEXIST | libc::EFAULT)) {
        return;
    }
    let block = shield(None, || {
        // SAFETY: the program's path, which the system could read.
        let path = unsafe { files::absolute(path, None) };
        path.filter(|path| files::wanted(path, false)).and_then(|path| files::block(&path, Module::Stdio))
    });
    if let Some(block) = block {
        data::meta(thread, block, opening(NONE), start, end);
        errors::note(thread, block, STDIO_ERRORS, op, error, start);
    }
}

/// A pipe to a program: no file, but its number is free again.
mod pclose {
    use super::*;
    c_function!(c"pclose", fn(stream: *mut FILE) -> c_int, missing());

    #[unsafe(no_mangle)]
    unsafe extern "C-unwind" fn pclose(stream: *mut FILE) -> c_int {
        if observing() && !stream.is_null() {
            files::forget_fd(descriptor(stream));
        }
        // SAFETY: the program's own call.
        unsafe { real(stream) }
    }
}

mod fclose {
    use super::*;
    c_function!(c"fclose", fn(stream: *mut FILE) -> c_int, missing());
    static OP: Name = Name::new("fclose");

    #[unsafe(no_mangle)]
    unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
        if !observing() || stream.is_null() {
            // SAFETY: the program's own call.
            return unsafe { real(stream) };
        }
        let fd = descriptor(stream);
        let block = files::known_stream(fd);
        // Before the call: afterwards the number may be another thread's file.
        files::forget_fd(fd);
        let start = ticks();
        // SAFETY: the program's own call.
        let answer = unsafe { real(stream) };
        if let Some(block) = block {
            ended(block, &OP, CLOSE, answer, start);
        }
        answer
    }
}

/// A call that may write what a stream has gathered returned.
fn ended(block: &'static Block, op: &Name, meta: Meta, answer: c_int, start: u64) {
    let (error, thread) = (Error::last(), Thread::current());
    data::meta(thread, block, meta, start, ticks());
    if answer != 0 {
        errors::note(thread, block, STDIO_ERRORS, op, error, start);
    }
}

/// Rows `function(stream, …) -> answer: what is counted`.
macro_rules! stream_calls {
    ($($name:ident ($stream:ident: *mut FILE $(, $arg:ident: $type:ty)*) -> $answer:ty: $meta:expr;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($stream: *mut FILE $(, $arg: $type)*) -> $answer, missing_stream());
            static OP: Name = Name::new(stringify!($name));

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($stream: *mut FILE $(, $arg: $type)*) -> $answer {
                if observing() && let Some(block) = of_stream($stream) {
                    let start = ticks();
                    // SAFETY: the program's own call.
                    let answer = unsafe { real($stream $(, $arg)*) };
                    ended(block, &OP, $meta, answer.as_error(), start);
                    return answer;
                }
                // SAFETY: the program's own call.
                unsafe { real($stream $(, $arg)*) }
            }
        }
    )+};
}

/// The answer of a function that does not exist and may return nothing.
trait Answer: Copy {
    fn missing() -> Self;
    /// Not zero if it is an error.
    fn as_error(self) -> c_int;
}
impl Answer for c_int {
    fn missing() -> c_int {
        missing()
    }
    fn as_error(self) -> c_int {
        self
    }
}
impl Answer for () {
    fn missing() {}
    fn as_error(self) -> c_int {
        0
    }
}
fn missing_stream<A: Answer>() -> A {
    A::missing()
}

stream_calls! {
    fflush(stream: *mut FILE) -> c_int: counted(STDIO_FLUSHES).of_kind(STDIO_F_SYNC_TIME);
    fseek(stream: *mut FILE, offset: c_long, whence: c_int) -> c_int: counted(STDIO_SEEKS);
    fseeko(stream: *mut FILE, offset: off_t, whence: c_int) -> c_int: counted(STDIO_SEEKS);
    fseeko64(stream: *mut FILE, offset: off64_t, whence: c_int) -> c_int: counted(STDIO_SEEKS);
    fsetpos(stream: *mut FILE, position: *const c_void) -> c_int: counted(STDIO_SEEKS);
    fsetpos64(stream: *mut FILE, position: *const c_void) -> c_int: counted(STDIO_SEEKS);
    rewind(stream: *mut FILE) -> (): counted(STDIO_SEEKS);
}
