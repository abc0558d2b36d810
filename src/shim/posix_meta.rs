//! POSIX calls that open, close, duplicate, seek, sync, resize or map.

use super::caller::{Caller, Thread, observing};
use super::posix::{by_whom, missing};
use super::shield::shield;
use super::wrap::{c_function, c_name, real_function};
use crate::clock::ticks;
use crate::gate;
use crate::measure::data::{self, Meta, NONE};
use crate::measure::errors::{self, Error};
use crate::measure::files;
use crate::measure::lane::Name;
use crate::profile;
use libc::{c_char, c_int, c_uint, c_void, mode_t, off_t, off64_t, size_t};
use weir_profile::counters::{Module, posix::*};
use weir_profile::layout::Block;

const OPEN: Meta = Meta {
    counter: POSIX_OPENS,
    time: POSIX_F_META_TIME,
    own_time: POSIX_F_OPEN_CLOSE_TIME,
    first: POSIX_F_OPEN_START_TIMESTAMP,
    last: POSIX_F_OPEN_END_TIMESTAMP,
};
const CLOSE: Meta = Meta {
    first: POSIX_F_CLOSE_START_TIMESTAMP,
    last: POSIX_F_CLOSE_END_TIMESTAMP,
    ..Meta::timed(POSIX_F_META_TIME).of_kind(POSIX_F_OPEN_CLOSE_TIME)
};

const fn counted(counter: usize) -> Meta {
    Meta::counted(counter, POSIX_F_META_TIME)
}

const fn sync(counter: usize) -> Meta {
    counted(counter).of_kind(POSIX_F_SYNC_TIME)
}

/// For what changes the table of descriptors: a child of `vfork` shares our memory, not our descriptors.
fn observing_this_process() -> bool {
    observing() && profile::is_recorded_process()
}

/// Rows `function(arguments): path, directory, flags`.
macro_rules! open_calls {
    ($($name:ident ($($arg:ident: $type:ty),*): $path:expr, $directory:expr, $flags:expr;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($($arg: $type),*) -> c_int, missing());
            static OP: Name = Name::new(stringify!($name));

            // In C the mode is variadic. Older compilers do not know the lint that says so.
            #[allow(unknown_lints, invalid_runtime_symbol_definitions)]
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
                if !observing_this_process() {
                    // SAFETY: the program's own call.
                    return unsafe { real($($arg),*) };
                }
                let start = ticks();
                // SAFETY: the program's own call.
                let fd = unsafe { real($($arg),*) };
                if fd >= 0 {
                    opened(fd, $path, $directory, $flags, start);
                } else {
                    not_opened(&OP, $path, $directory, $flags, start);
                }
                fd
            }
        }
    )+};
}

// The mode is there only when the flags create; reading a register that was not set harms nobody.
open_calls! {
    open(path: *const c_char, flags: c_int, mode: mode_t): path, None, flags;
    open64(path: *const c_char, flags: c_int, mode: mode_t): path, None, flags;
    __open_2(path: *const c_char, flags: c_int): path, None, flags;
    __open64_2(path: *const c_char, flags: c_int): path, None, flags;
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t): path, Some(directory), flags;
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t): path, Some(directory), flags;
    __openat_2(directory: c_int, path: *const c_char, flags: c_int): path, Some(directory), flags;
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int): path, Some(directory), flags;
    creat(path: *const c_char, mode: mode_t): path, None, libc::O_CREAT;
    creat64(path: *const c_char, mode: mode_t): path, None, libc::O_CREAT;
}

/// A descriptor was opened: from now on it is known which file it is, or that it is none of ours.
fn opened(fd: c_int, path: *const c_char, directory: Option<c_int>, flags: c_int, start: u64) {
    let end = ticks();
    let thread = Thread::current();
    let by_mpi = thread.caller.get().is_mpi();
    let block = shield(None, || {
        // A file without a name, in the directory that the path names; of the flag, O_DIRECTORY is a part.
        let unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let path = if unnamed {
            files::path_of(fd)
        } else if flags & (libc::O_DIRECTORY | libc::O_PATH) != 0 {
            None
        } else {
            // SAFETY: the program's path; the call with it succeeded.
            unsafe { files::absolute(path, directory) }
        };
        let block = path
            .filter(|p| if by_mpi { files::is_mpi_file(p) } else { files::wanted(p, false) })
            .and_then(|p| files::block(&p, Module::Posix));
        files::forget_fd(fd);
        if by_mpi {
            files::note_mpi_fd(fd, block)
        } else {
            files::note_fd(Module::Posix, fd, block)
        }
        block
    });
    if let Some(block) = block {
        data::meta(thread, block, OPEN, start, end);
        data::set_position(thread, block, 0);
    }
}

/// An open failed. One that asks whether a file is there is answered; any other may be what the program fails of.
#[cold]
#[inline(never)]
fn not_opened(op: &Name, path: *const c_char, directory: Option<c_int>, flags: c_int, start: u64) {
    let (error, end) = (Error::last(), ticks());
    let thread = Thread::current();
    let is_answered = match error {
        Error::Errno(libc::ENOENT | libc::ENOTDIR) => flags & libc::O_CREAT == 0,
        Error::Errno(libc::EEXIST) => flags & libc::O_EXCL != 0,
        _ => flags & (libc::O_DIRECTORY | libc::O_PATH) != 0,
    };
    if is_answered || thread.caller.get() != Caller::App {
        return;
    }
    if matches!(error, Error::Errno(libc::EFAULT)) {
        return;
    }
    let block = shield(None, || {
        // SAFETY: the program's path, which the system could read.
        let path = unsafe { files::absolute(path, directory) };
        path.filter(|path| files::wanted(path, false)).and_then(|path| files::block(&path, Module::Posix))
    });
    if let Some(block) = block {
        data::meta(thread, block, Meta { counter: NONE, ..OPEN }, start, end);
        errors::note(thread, block, POSIX_ERRORS, op, error, start);
    }
}

/// Rows `function(descriptor, …) -> answer: whether it waits at the gate, what to count, and what else follows
/// from the answer`. A sync moves data, so it waits.
macro_rules! fd_calls {
    ($($name:ident ($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $answer:ty: $waits:literal, $meta:expr, $then:expr;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($fd: c_int $(, $arg: $type)*) -> $answer, missing());
            static OP: Name = Name::new(stringify!($name));

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($fd: c_int $(, $arg: $type)*) -> $answer {
                if observing() && let Some(block) = files::of_fd(Module::Posix, $fd) {
                    let _caller = by_whom(Thread::current(), $fd);
                    let _pass = ($waits && gate::is_on()).then(|| gate::admit_sync(Thread::current(), block, $fd));
                    let start = ticks();
                    // SAFETY: the program's own call.
                    let answer = unsafe { real($fd $(, $arg)*) };
                    let end = ticks();
                    let thread = Thread::current();
                    let began = if $waits { data::began(thread, start) } else { start };
                    if answer >= 0 {
                        data::held_back_meta(thread, block, $meta, began, start, end);
                        let then: fn(&Thread, &'static Block, $answer) = $then;
                        then(thread, block, answer);
                    } else {
                        let error = Error::last();
                        data::held_back_meta(thread, block, Meta::timed(POSIX_F_META_TIME), began, start, end);
                        errors::note(thread, block, POSIX_ERRORS, &OP, error, start);
                    }
                    return answer;
                }
                // SAFETY: the program's own call.
                unsafe { real($fd $(, $arg)*) }
            }
        }
    )+};
}

fd_calls! {
    lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t: false,
        counted(POSIX_SEEKS), |thread, block, at| data::set_position(thread, block, at as u64);
    lseek64(fd: c_int, offset: off64_t, whence: c_int) -> off64_t: false,
        counted(POSIX_SEEKS), |thread, block, at| data::set_position(thread, block, at as u64);
    fsync(fd: c_int) -> c_int: true, sync(POSIX_FSYNCS), |_, _, _| ();
    fdatasync(fd: c_int) -> c_int: true, sync(POSIX_FDSYNCS), |_, _, _| ();
    ftruncate(fd: c_int, size: off_t) -> c_int: false, counted(POSIX_TRUNCATES), |_, _, _| ();
    ftruncate64(fd: c_int, size: off64_t) -> c_int: false, counted(POSIX_TRUNCATES), |_, _, _| ();
}

mod close {
    use super::*;
    c_function!(c"close", fn(fd: c_int) -> c_int, missing());

    #[unsafe(no_mangle)]
    unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
        if !observing_this_process() {
            // SAFETY: the program's own call.
            return unsafe { real(fd) };
        }
        let block = files::known_fd(fd);
        // Before the call: afterwards the number may be another thread's file.
        files::forget_fd(fd);
        let start = ticks();
        // SAFETY: the program's own call.
        let answer = unsafe { real(fd) };
        if let Some(block) = block {
            closed(Thread::current(), block, answer, start);
        }
        answer
    }
}

/// A file system may tell only now that it could not write.
fn closed(thread: &Thread, block: &'static Block, answer: c_int, start: u64) {
    static OP: Name = Name::new("close");
    let error = Error::last();
    data::meta(thread, block, CLOSE, start, ticks());
    if answer < 0 {
        errors::note(thread, block, POSIX_ERRORS, &OP, error, start);
    }
}

/// Ranges of descriptors that are closed at once.
mod close_range {
    use super::*;
    c_function!(c"close_range", fn(first: c_uint, last: c_uint, flags: c_int) -> c_int, missing());

    #[unsafe(no_mangle)]
    unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // With CLOSE_RANGE_CLOEXEC they stay open.
        if observing_this_process() && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
            files::forget_fds(first as usize, last as usize);
        }
        // SAFETY: the program's own call.
        unsafe { real(first, last, flags) }
    }
}

mod closefrom {
    use super::*;
    c_function!(c"closefrom", fn(first: c_int) -> c_int, 0);

    #[unsafe(no_mangle)]
    unsafe extern "C-unwind" fn closefrom(first: c_int) -> c_int {
        if observing_this_process() {
            files::forget_fds(first.max(0) as usize, usize::MAX);
        }
        // SAFETY: the program's own call; it answers nothing.
        unsafe { real(first) }
    }
}

/// Rows `function(arguments): from, to or the answer`.
macro_rules! dup_calls {
    ($($name:ident ($($arg:ident: $type:ty),*): $from:expr, if $when:expr;)+) => {$(
        mod $name {
            use super::*;
            c_function!(c_name!(stringify!($name)), fn($($arg: $type),*) -> c_int, missing());

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
                // SAFETY: the program's own call.
                let answer = unsafe { real($($arg),*) };
                if $when && answer >= 0 && answer != $from && observing_this_process() {
                    duplicated($from, answer);
                }
                answer
            }
        }
    )+};
}

dup_calls! {
    dup(fd: c_int): fd, if true;
    dup2(fd: c_int, to: c_int): fd, if true;
    dup3(fd: c_int, to: c_int, flags: c_int): fd, if true;
    fcntl(fd: c_int, command: c_int, argument: usize): fd,
        if command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC;
    fcntl64(fd: c_int, command: c_int, argument: usize): fd,
        if command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC;
}

fn duplicated(from: c_int, to: c_int) {
    shield((), || {
        if let Some(block) = files::copy_fd(from, to) {
            data::count(Thread::current(), block, POSIX_DUPS);
        }
    });
}

/// Rows of `mmap`: a mapping of a file is counted; what is read or written through it cannot be seen.
macro_rules! map_calls {
    ($($name:ident $offset:ty;)+) => {$(
        mod $name {
            use super::*;
            c_function!(
                c_name!(stringify!($name)),
                fn(at: *mut c_void, n: size_t, prot: c_int, flags: c_int, fd: c_int, offset: $offset) -> *mut c_void,
                libc::MAP_FAILED
            );

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(
                at: *mut c_void, n: size_t, prot: c_int, flags: c_int, fd: c_int, offset: $offset,
            ) -> *mut c_void {
                // SAFETY: the program's own call.
                let answer = unsafe { real(at, n, prot, flags, fd, offset) };
                if observing()
                    && fd >= 0
                    && answer != libc::MAP_FAILED
                    && let Some(block) = files::known_fd(fd)
                {
                    data::count(Thread::current(), block, POSIX_MMAPS);
                }
                answer
            }
        }
    )+};
}

map_calls! {
    mmap off_t;
    mmap64 off64_t;
}
