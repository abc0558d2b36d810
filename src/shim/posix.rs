//! POSIX data calls: the program's own, and those the MPI library makes beneath `MPI_File_*`.

use super::caller::{Caller, Thread};
use super::shield::shield;
use super::wrap::{c_name, real_function};
use crate::arch;
use crate::clock::ticks;
use crate::lifecycle::armed;
use crate::measure::data::{self, Call, Direction};
use crate::measure::{files, steady};
use crate::measure::lane::Name;
use libc::{aiocb, c_int, c_void, iovec, off_t, off64_t, size_t, ssize_t};
use std::sync::Mutex;
use weir_profile::counters::{Module, posix::POSIX_ERRORS};
use weir_profile::layout::Block;

/// What a function that this C library does not have answers.
#[cold]
pub(super) fn missing<R: From<i8>>() -> R {
    // SAFETY: glibc's errno location is valid for the life of the thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    R::from(-1)
}

/// For a call that continues at the file's position.
const AT_POSITION: off64_t = -1;

/// Rows `function(arguments): direction, offset`. The first argument is the descriptor.
macro_rules! data_calls {
    ($($name:ident ($fd:ident: c_int $(, $arg:ident: $type:ty)*): $direction:ident, $offset:expr;)+) => {$(
        mod $name {
            use super::*;
            real_function!(c_name!(stringify!($name)), fn($fd: c_int $(, $arg: $type)*) -> ssize_t, missing());
            static OP: Name = Name::new(stringify!($name));

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($fd: c_int $(, $arg: $type)*) -> ssize_t {
                // SAFETY: the program's own call.
                if armed() { unsafe { measured($fd $(, $arg)*) } } else { unsafe { real($fd $(, $arg)*) } }
            }

            /// The owner of the first lane, on a file that is known: nothing before the real call
            /// but reading the clock.
            #[inline(never)]
            unsafe extern "C" fn measured($fd: c_int $(, $arg: $type)*) -> ssize_t {
                let thread = Thread::current();
                let by = thread.owner_calls();
                let Some(block) = files::known_fd($fd).filter(|_| by <= 1) else {
                    // SAFETY: the program's own call.
                    return unsafe { looked_at($fd $(, $arg)*) };
                };
                let start_ticks = arch::cycles();
                // SAFETY: the program's own call.
                let moved = unsafe { real($fd $(, $arg)*) };
                let end_ticks = arch::cycles();
                let direction = Direction::$direction;
                let call = Call { op: &OP, direction, start_ticks, end_ticks, bytes: moved as u64 };
                let offset = offset($offset);
                // A negative answer is the size of no run.
                let steady = if by == 0 {
                    steady::posix_by_app(block, &call, offset)
                } else {
                    steady::posix_by_mpi(thread, block, &call, offset)
                };
                if steady { moved } else { done(block, &OP, direction, start_ticks, end_ticks, moved, $offset) }
            }

            /// Any other thread or file.
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn looked_at($fd: c_int $(, $arg: $type)*) -> ssize_t {
                if Thread::current().caller.get() != Caller::Weir
                    && let Some(block) = files::of_fd(Module::Posix, $fd)
                {
                    let start = ticks();
                    // SAFETY: the program's own call.
                    let moved = unsafe { real($fd $(, $arg)*) };
                    return done(block, &OP, Direction::$direction, start, ticks(), moved, $offset);
                }
                // SAFETY: the program's own call.
                unsafe { real($fd $(, $arg)*) }
            }
        }
    )+};
}

data_calls! {
    read(fd: c_int, buf: *mut c_void, n: size_t): Read, AT_POSITION;
    write(fd: c_int, buf: *const c_void, n: size_t): Write, AT_POSITION;
    pread(fd: c_int, buf: *mut c_void, n: size_t, offset: off_t): Read, offset;
    pwrite(fd: c_int, buf: *const c_void, n: size_t, offset: off_t): Write, offset;
    pread64(fd: c_int, buf: *mut c_void, n: size_t, offset: off64_t): Read, offset;
    pwrite64(fd: c_int, buf: *const c_void, n: size_t, offset: off64_t): Write, offset;
    readv(fd: c_int, iov: *const iovec, n: c_int): Read, AT_POSITION;
    writev(fd: c_int, iov: *const iovec, n: c_int): Write, AT_POSITION;
    preadv(fd: c_int, iov: *const iovec, n: c_int, offset: off_t): Read, offset;
    pwritev(fd: c_int, iov: *const iovec, n: c_int, offset: off_t): Write, offset;
    preadv64(fd: c_int, iov: *const iovec, n: c_int, offset: off64_t): Read, offset;
    pwritev64(fd: c_int, iov: *const iovec, n: c_int, offset: off64_t): Write, offset;
    preadv2(fd: c_int, iov: *const iovec, n: c_int, offset: off_t, flags: c_int): Read, offset;
    pwritev2(fd: c_int, iov: *const iovec, n: c_int, offset: off_t, flags: c_int): Write, offset;
    preadv64v2(fd: c_int, iov: *const iovec, n: c_int, offset: off64_t, flags: c_int): Read, offset;
    pwritev64v2(fd: c_int, iov: *const iovec, n: c_int, offset: off64_t, flags: c_int): Write, offset;
    // What `-D_FORTIFY_SOURCE` makes of read and pread.
    __read_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t): Read, AT_POSITION;
    __pread_chk(fd: c_int, buf: *mut c_void, n: size_t, offset: off_t, room: size_t): Read, offset;
    __pread64_chk(fd: c_int, buf: *mut c_void, n: size_t, offset: off64_t, room: size_t): Read, offset;
}

#[inline(always)]
fn offset(offset: off64_t) -> Option<u64> {
    if offset < 0 { None } else { Some(offset as u64) }
}

/// A data call returned `moved` bytes, or an error; passes that on.
#[cold]
#[inline(never)]
fn done(
    block: &'static Block,
    op: &'static Name,
    direction: Direction,
    start_ticks: u64,
    end_ticks: u64,
    moved: ssize_t,
    at: off64_t,
) -> ssize_t {
    let thread = Thread::current();
    if moved < 0 {
        data::count(thread, block, POSIX_ERRORS);
    } else {
        let call = Call { op, direction, start_ticks, end_ticks, bytes: moved as u64 };
        data::posix(thread, block, &call, offset(at));
    }
    moved
}

/// An asynchronous call under way; it is counted by `aio_return`.
struct Asynchronous {
    control: usize,
    block: &'static Block,
    direction: Direction,
    offset: u64,
    start_ticks: u64,
}

static ASYNCHRONOUS: Mutex<Vec<Asynchronous>> = Mutex::new(Vec::new());
/// Calls beyond this many at a time are not followed.
const MOST_ASYNCHRONOUS: usize = 4096;

/// Remembers a control block that was handed to the system.
fn submitted(control: *const aiocb, direction: Direction, start_ticks: u64) {
    if !armed() || control.is_null() || Thread::current().caller.get() == Caller::Weir {
        return;
    }
    // SAFETY: the program passed a valid control block, and the system has taken it.
    let (fd, offset) = unsafe { ((*control).aio_fildes, (*control).aio_offset) };
    let Some(block) = files::of_fd(Module::Posix, fd) else { return };
    shield((), || {
        let mut list = ASYNCHRONOUS.lock().unwrap_or_else(|e| e.into_inner());
        if list.len() < MOST_ASYNCHRONOUS {
            let control = control.addr();
            list.push(Asynchronous { control, block, direction, offset: offset.max(0) as u64, start_ticks });
        }
    });
}

/// `aio_return` told how many bytes were moved.
fn returned(control: *const aiocb, moved: ssize_t) {
    if !armed() {
        return;
    }
    let found = shield(None, || {
        let mut list = ASYNCHRONOUS.lock().unwrap_or_else(|e| e.into_inner());
        let index = list.iter().position(|a| a.control == control.addr())?;
        Some(list.swap_remove(index))
    });
    if let Some(a) = found {
        static READ: Name = Name::new("aio_read");
        static WRITE: Name = Name::new("aio_write");
        let op = if a.direction == Direction::Read { &READ } else { &WRITE };
        done(a.block, op, a.direction, a.start_ticks, ticks(), moved, a.offset as off64_t);
    }
}

macro_rules! asynchronous {
    ($($name:ident $direction:ident;)+) => {$(
        mod $name {
            use super::*;
            real_function!(c_name!(stringify!($name)), fn(control: *mut aiocb) -> c_int, missing());

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(control: *mut aiocb) -> c_int {
                let start = if armed() { ticks() } else { 0 };
                // SAFETY: the program's own call.
                let answer = unsafe { real(control) };
                if answer == 0 {
                    submitted(control, Direction::$direction, start);
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
            real_function!(c_name!(stringify!($name)), fn(control: *mut aiocb) -> ssize_t, missing());

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(control: *mut aiocb) -> ssize_t {
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
            real_function!(
                c_name!(stringify!($name)),
                fn(mode: c_int, list: *const *mut aiocb, n: c_int, event: *mut c_void) -> c_int,
                missing()
            );

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(mode: c_int, list: *const *mut aiocb, n: c_int, event: *mut c_void) -> c_int {
                let start = if armed() { ticks() } else { 0 };
                // SAFETY: the program's own call.
                let answer = unsafe { real(mode, list, n, event) };
                if armed() && answer == 0 {
                    for i in 0..n.max(0) as usize {
                        // SAFETY: the program passed `n` addresses; null ones are allowed.
                        let control = unsafe { *list.add(i) };
                        // SAFETY: as above.
                        match unsafe { control.as_ref() }.map(|c| c.aio_lio_opcode) {
                            Some(libc::LIO_READ) => submitted(control, Direction::Read, start),
                            Some(libc::LIO_WRITE) => submitted(control, Direction::Write, start),
                            _ => {}
                        }
                    }
                }
                answer
            }
        }
    )+};
}

asynchronous_list! { lio_listio lio_listio64 }
