//! POSIX data calls: the program's own, and those the MPI library makes beneath `MPI_File_*`.

use super::caller::{Caller, Restore, Thread};
use super::shield::shield;
use super::wrap::{c_function, c_name, real_function};
use crate::arch;
use crate::clock::ticks;
use crate::gate;
use crate::lifecycle::armed;
use crate::measure::data::{self, Call, Direction, Meta, Op};
use crate::measure::errors::{self, Error};
use crate::measure::{files, steady};
use libc::{aiocb, c_int, c_void, iovec, off_t, off64_t, size_t, ssize_t};
use std::sync::Mutex;
use weir_profile::counters::{
    Module,
    posix::{POSIX_ERRORS, POSIX_F_META_TIME},
};
use weir_profile::layout::Block;

/// What a function that this C library does not have answers.
#[cold]
pub(super) fn missing<R: From<i8>>() -> R {
    // SAFETY: glibc's errno location is valid for the life of the thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    R::from(-1)
}

/// Where a call is that names no offset.
pub(super) const AT_POSITION: i64 = -1;

/// Where a call is, as one word.
#[inline(always)]
fn or_position(offset: Option<u64>) -> i64 {
    offset.map_or(AT_POSITION, |offset| offset as i64)
}

/// `preadv2` and `pwritev2` take -1 for the file's position.
#[inline(always)]
fn if_given(offset: i64) -> Option<u64> {
    if offset < 0 { None } else { Some(offset as u64) }
}

/// Bytes that a list of buffers asks for.
fn total(list: *const iovec, count: c_int) -> u64 {
    let count = usize::try_from(count).unwrap_or(0).min(libc::UIO_MAXIOV as usize);
    // SAFETY: the program passes that many; a list that the kernel would refuse is not read beyond its limit.
    (0..count).map(|i| unsafe { (*list.add(i)).iov_len as u64 }).fold(0, u64::saturating_add)
}

/// The MPI library moves what it was given in whatever call it is in next, and most of those are not wrapped: on a
/// descriptor that it opened, it is the library that calls.
pub(super) fn by_whom(thread: &Thread, fd: c_int) -> Option<Restore> {
    if files::is_opened_by_mpi(fd) { thread.goes_on_in_mpi() } else { None }
}

/// Rows `function(arguments): direction, offset, bytes asked for`. The first argument is the descriptor.
macro_rules! data_calls {
    ($($name:ident ($fd:ident: c_int $(, $arg:ident: $type:ty)*): $direction:ident, $offset:expr, $bytes:expr;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($fd: c_int $(, $arg: $type)*) -> ssize_t, missing());
            static OP: Op = Op::new(stringify!($name), Direction::$direction);

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($fd: c_int $(, $arg: $type)*) -> ssize_t {
                // SAFETY: the program's own call.
                if armed() { unsafe { measured($fd $(, $arg)*) } } else { unsafe { real($fd $(, $arg)*) } }
            }

            /// The owner of the first lane, on a file that is known: nothing before the real call
            /// but reading the clock.
            #[inline(never)]
            unsafe extern "C-unwind" fn measured($fd: c_int $(, $arg: $type)*) -> ssize_t {
                let block = files::at_once($fd, Thread::current().owner_calls());
                if !files::is_known(block) {
                    // SAFETY: the program's own call.
                    return unsafe { looked_at($fd $(, $arg)*) };
                }
                // SAFETY: a block of the mapped record, never unmapped.
                let block = unsafe { &*block };
                let start_ticks = arch::cycles();
                // SAFETY: the program's own call.
                let moved = unsafe { real($fd $(, $arg)*) };
                let end_ticks = arch::cycles();
                // A negative answer is the size of no run.
                let call = Call { op: &OP, start_ticks, end_ticks, bytes: moved as u64 };
                let thread = Thread::current();
                let steady = if thread.owner_calls() == 0 {
                    steady::posix_by_app(block, &call, $offset)
                } else {
                    steady::posix_by_mpi(thread, block, &call, $offset)
                };
                if steady { moved } else { done(block, &OP, start_ticks, end_ticks, moved, or_position($offset)) }
            }

            /// Any other thread or file.
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn looked_at($fd: c_int $(, $arg: $type)*) -> ssize_t {
                let thread = Thread::current();
                if thread.caller.get() != Caller::Weir
                    && let Some(block) = files::of_fd(Module::Posix, $fd)
                {
                    let _caller = by_whom(thread, $fd);
                    let _pass = gate::is_on().then(|| match Direction::$direction {
                        Direction::Read => gate::admit_read(thread, block, $fd, $bytes),
                        Direction::Write => gate::admit(thread, block, $fd, $bytes),
                    });
                    let start = ticks();
                    // SAFETY: the program's own call.
                    let moved = unsafe { real($fd $(, $arg)*) };
                    return done(block, &OP, start, ticks(), moved, or_position($offset));
                }
                // SAFETY: the program's own call.
                unsafe { real($fd $(, $arg)*) }
            }
        }
    )+};
}

data_calls! {
    read(fd: c_int, buf: *mut c_void, n: size_t): Read, None, n as u64;
    write(fd: c_int, buf: *const c_void, n: size_t): Write, None, n as u64;
    pread(fd: c_int, buf: *mut c_void, n: size_t, offset: off_t): Read, Some(offset as u64), n as u64;
    pwrite(fd: c_int, buf: *const c_void, n: size_t, offset: off_t): Write, Some(offset as u64), n as u64;
    pread64(fd: c_int, buf: *mut c_void, n: size_t, offset: off64_t): Read, Some(offset as u64), n as u64;
    pwrite64(fd: c_int, buf: *const c_void, n: size_t, offset: off64_t): Write, Some(offset as u64), n as u64;
    readv(fd: c_int, iov: *const iovec, n: c_int): Read, None, total(iov, n);
    writev(fd: c_int, iov: *const iovec, n: c_int): Write, None, total(iov, n);
    preadv(fd: c_int, iov: *const iovec, n: c_int, offset: off_t): Read, Some(offset as u64), total(iov, n);
    pwritev(fd: c_int, iov: *const iovec, n: c_int, offset: off_t): Write, Some(offset as u64), total(iov, n);
    preadv64(fd: c_int, iov: *const iovec, n: c_int, offset: off64_t): Read, Some(offset as u64), total(iov, n);
    pwritev64(fd: c_int, iov: *const iovec, n: c_int, offset: off64_t): Write, Some(offset as u64), total(iov, n);
    preadv2(fd: c_int, iov: *const iovec, n: c_int, offset: off_t, flags: c_int): Read, if_given(offset), total(iov, n);
    pwritev2(fd: c_int, iov: *const iovec, n: c_int, offset: off_t, flags: c_int): Write, if_given(offset), total(iov, n);
    preadv64v2(fd: c_int, iov: *const iovec, n: c_int, offset: off64_t, flags: c_int): Read, if_given(offset), total(iov, n);
    pwritev64v2(fd: c_int, iov: *const iovec, n: c_int, offset: off64_t, flags: c_int): Write, if_given(offset), total(iov, n);
    // What `-D_FORTIFY_SOURCE` makes of read and pread.
    __read_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t): Read, None, n as u64;
    __pread_chk(fd: c_int, buf: *mut c_void, n: size_t, offset: off_t, room: size_t): Read, Some(offset as u64), n as u64;
    __pread64_chk(fd: c_int, buf: *mut c_void, n: size_t, offset: off64_t, room: size_t): Read, Some(offset as u64), n as u64;
}

/// A data call returned `moved` bytes, or an error; passes that on. Its arguments fit into registers, so
/// that the hot path need not keep anything for it.
#[cold]
#[inline(never)]
pub(super) fn done(
    block: &'static Block,
    op: &'static Op,
    start_ticks: u64,
    end_ticks: u64,
    moved: ssize_t,
    offset: i64,
) -> ssize_t {
    let thread = Thread::current();
    if moved < 0 {
        failed(thread, block, op, start_ticks, end_ticks, Error::last());
    } else {
        let call = Call { op, start_ticks, end_ticks: end_ticks.max(start_ticks), bytes: moved as u64 };
        data::posix(thread, block, &call, if_given(offset));
    }
    // Were it known that this is what came in, the hot path would keep it and not jump here.
    std::hint::black_box(moved)
}

/// A data call returned an error. It took its time all the same.
#[cold]
fn failed(
    thread: &Thread,
    block: &'static Block,
    op: &'static Op,
    start_ticks: u64,
    end_ticks: u64,
    error: Error,
) {
    let began_ticks = data::began(thread, start_ticks);
    data::held_back_meta(thread, block, Meta::timed(POSIX_F_META_TIME), began_ticks, start_ticks, end_ticks);
    errors::note(thread, block, POSIX_ERRORS, op.name(), error, start_ticks);
}

/// An asynchronous call under way; it is counted by `aio_return`.
struct Asynchronous {
    control: usize,
    block: &'static Block,
    by_mpi: bool,
    direction: Direction,
    offset: u64,
    start_ticks: u64,
}

static ASYNCHRONOUS: Mutex<Vec<Asynchronous>> = Mutex::new(Vec::new());
/// Calls beyond this many at a time are not followed.
const MOST_ASYNCHRONOUS: usize = 4096;

pub(crate) fn is_lock_free() -> bool {
    crate::child::is_free(&ASYNCHRONOUS)
}

/// In a forked child: what is under way is its parent's.
pub(crate) fn forget_asynchronous() {
    if let Ok(mut list) = ASYNCHRONOUS.try_lock() {
        list.clear();
    }
}

/// Remembers a control block that is about to be handed to the system: afterwards it may be freed at
/// any moment.
fn submit(control: *const aiocb, direction: Direction, start_ticks: u64) {
    if !armed() || control.is_null() || Thread::current().caller.get() == Caller::Weir {
        return;
    }
    // SAFETY: the program passes a valid control block.
    let (fd, offset, bytes) =
        unsafe { ((*control).aio_fildes, (*control).aio_offset, (*control).aio_nbytes as u64) };
    let Some(block) = files::of_fd(Module::Posix, fd) else { return };
    let thread = Thread::current();
    let _caller = by_whom(thread, fd);
    let by_mpi = thread.caller.get().is_mpi();
    if gate::is_on() {
        // Over at once: when it really ends is not known before the program asks, which may be long after, and the
        // turn should not last until then.
        drop(gate::admit(thread, block, fd, bytes));
        if thread.gate_ticks.get() > 0 {
            data::activity(thread, block, start_ticks, ticks());
        }
    }
    shield((), || {
        let mut list = ASYNCHRONOUS.lock().unwrap_or_else(|e| e.into_inner());
        let control = control.addr();
        // One that was never asked for its result is used again.
        list.retain(|a| a.control != control);
        if list.len() < MOST_ASYNCHRONOUS {
            let offset = offset.max(0) as u64;
            list.push(Asynchronous { control, block, by_mpi, direction, offset, start_ticks });
        }
    });
}

/// Takes a control block back.
fn withdraw(control: *const aiocb) -> Option<Asynchronous> {
    shield(None, || {
        let mut list = ASYNCHRONOUS.lock().unwrap_or_else(|e| e.into_inner());
        let index = list.iter().position(|a| a.control == control.addr())?;
        Some(list.swap_remove(index))
    })
}

/// `aio_return` told how many bytes were moved.
fn returned(control: *const aiocb, moved: ssize_t) {
    if !armed() {
        return;
    }
    if let Some(a) = withdraw(control) {
        static READ: Op = Op::new("aio_read", Direction::Read);
        static WRITE: Op = Op::new("aio_write", Direction::Write);
        let op = if a.direction == Direction::Read { &READ } else { &WRITE };
        let _caller = if a.by_mpi { Thread::current().goes_on_in_mpi() } else { None };
        if moved < 0 {
            // SAFETY: the program's control block, which it just asked for its result.
            let error = Error::Errno(unsafe { libc::aio_error(control) });
            failed(Thread::current(), a.block, op, a.start_ticks, ticks(), error);
        } else {
            done(a.block, op, a.start_ticks, ticks(), moved, a.offset as i64);
        }
    }
}

macro_rules! asynchronous {
    ($($name:ident $direction:ident;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn(control: *mut aiocb) -> c_int, missing());

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(control: *mut aiocb) -> c_int {
                if !armed() {
                    // SAFETY: the program's own call.
                    return unsafe { real(control) };
                }
                submit(control, Direction::$direction, ticks());
                // SAFETY: the program's own call.
                let answer = unsafe { real(control) };
                if answer != 0 {
                    withdraw(control);
                }
                answer
            }
        }
    )+};
}

asynchronous! {
    aio_read Read;
    aio_write Write;
    aio_read64 Read;
    aio_write64 Write;
}

macro_rules! asynchronous_return {
    ($($name:ident)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn(control: *mut aiocb) -> ssize_t, missing());

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(control: *mut aiocb) -> ssize_t {
                // SAFETY: the program's own call.
                let moved = unsafe { real(control) };
                returned(control, moved);
                moved
            }
        }
    )+};
}

asynchronous_return! { aio_return aio_return64 }

macro_rules! asynchronous_list {
    ($($name:ident)+) => {$(
        mod $name {
            use super::*;
            c_function!(
                c_name!(stringify!($name)),
                fn(mode: c_int, list: *const *mut aiocb, n: c_int, event: *mut c_void) -> c_int,
                missing()
            );

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(mode: c_int, list: *const *mut aiocb, n: c_int, event: *mut c_void) -> c_int {
                if armed() {
                    let start = ticks();
                    for i in 0..n.max(0) as usize {
                        // SAFETY: the program passes `n` addresses; null ones are allowed.
                        let control = unsafe { *list.add(i) };
                        // SAFETY: as above.
                        match unsafe { control.as_ref() }.map(|c| c.aio_lio_opcode) {
                            Some(libc::LIO_READ) => submit(control, Direction::Read, start),
                            Some(libc::LIO_WRITE) => submit(control, Direction::Write, start),
                            _ => {}
                        }
                    }
                }
                // SAFETY: the program's own call. What of it fails says so when asked for its result.
                unsafe { real(mode, list, n, event) }
            }
        }
    )+};
}

asynchronous_list! { lio_listio lio_listio64 }
