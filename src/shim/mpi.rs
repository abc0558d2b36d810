//! The calls of `MPI_File_*`: one row per function, from which come its wrapper, its `PMPI_` twin, their
//! large-count forms, the real slots and what `dlsym` answers.

use super::caller::{Caller, Thread};
use super::real::{Row, Slot};
use super::shield::shield;
use super::wrap::{c_name, real_function};
use crate::abi::{self, Handle};
use crate::arch;
use crate::clock::ticks;
use crate::config;
use crate::lifecycle::armed;
use crate::measure::data::{self, Call, Class, Direction, Meta, Op};
use crate::measure::exchange::{self, Place};
use crate::measure::files;
use crate::measure::handles::{self, Open};
use crate::measure::pending::{self, Pending};
use crate::measure::steady::{self, Same};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use weir_profile::counters::{Module, mpiio::*};
use weir_profile::layout::Block;

/// An `MPI_File`: an address in every ABI.
type File = usize;
type Buffer = *mut c_void;
/// Of an `MPI_Status`, an `MPI_Request` or a handle of any size.
type Address = *mut c_void;

/// What a function that this MPI does not have answers.
#[cold]
pub(super) fn missing(name: &CStr) -> c_int {
    shield((), || config::say(&format!("{} is not in this MPI library", name.to_string_lossy())));
    abi::current().err_intern
}

/// What the small-count forms have in place of a smaller one.
mod small {
    pub(super) const IS_LARGE: bool = false;
    pub(super) static SMALL: super::Slot = super::Slot::new(std::ptr::null());
}

/// One exported function: `$fh`, … name the arguments that `$finish` needs.
macro_rules! data_call {
    (plain $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty last Place::Pointer] (fh: File, buf: Buffer, n: $count, ty: Handle, last: Address)
            $p $name $s $($how)* }
    };
    (shared $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty last Place::Shared] (fh: File, buf: Buffer, n: $count, ty: Handle, last: Address)
            $p $name $s $($how)* }
    };
    (at $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty last Place::At(offset)]
            (fh: File, offset: i64, buf: Buffer, n: $count, ty: Handle, last: Address) $p $name $s $($how)* }
    };
    (begin $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty ty Place::Pointer] (fh: File, buf: Buffer, n: $count, ty: Handle) $p $name $s $($how)* }
    };
    (shared_begin $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty ty Place::Shared] (fh: File, buf: Buffer, n: $count, ty: Handle) $p $name $s $($how)* }
    };
    (at_begin $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty ty Place::At(offset)] (fh: File, offset: i64, buf: Buffer, n: $count, ty: Handle)
            $p $name $s $($how)* }
    };
    (@ [$fh:ident $n:ident $ty:ident $last:ident $place:expr] ($($arg:ident: $type:ty),*)
        $p:literal $name:ident $s:literal $finish:ident $direction:ident $class:ident) => {
        real_function!(c_name!($p, stringify!($name), $s), fn($($arg: $type),*) -> c_int, {
            match i32::try_from($n) {
                // SAFETY: the small form of the function, which takes the same arguments in the same
                // registers and reads the lower half of the count.
                Ok(_) if IS_LARGE => unsafe { std::mem::transmute::<*mut c_void, Function>(SMALL.get())($($arg),*) },
                _ => missing(NAME),
            }
        });
        static OP: Op = Op::new(concat!("MPI_File_", stringify!($name), $s), Direction::$direction);

        #[unsafe(export_name = concat!($p, stringify!($name), $s))]
        pub(crate) unsafe extern "C" fn wrapper($($arg: $type),*) -> c_int {
            // SAFETY: the program's own call.
            if armed() { unsafe { measured($($arg),*) } } else { unsafe { real($($arg),*) } }
        }

        measured_call! { $finish [$fh $n $ty $last] ($($arg: $type),*) $direction $class }

        /// Any thread and any caller.
        #[inline(never)]
        unsafe extern "C" fn looked_at($($arg: $type),*) -> c_int {
            if !Thread::current().app_calls() {
                // SAFETY: the program's own call.
                return unsafe { real($($arg),*) };
            }
            let start = enter_data_call(Class::$class, &OP, $fh, $place);
            // SAFETY: the program's own call.
            let answer = unsafe { real($($arg),*) };
            $finish::<{ Class::$class as usize }>(start, answer, &OP, $fh, $n as u64, $ty, $last as usize)
        }
        pub(crate) const ROW: Row = Row { name: NAME, wrapper: wrapper as *const (), slot: &REAL, stub: stub as *const () };
    };
}

/// What an armed wrapper does: for a blocking call of the owner of the first lane, nothing before the
/// real call but to say who is calling and to read the clock.
macro_rules! measured_call {
    (blocking [$fh:ident $n:ident $ty:ident $last:ident] ($($arg:ident: $type:ty),*) $direction:ident $class:ident) => {
        #[inline(never)]
        unsafe extern "C" fn measured($($arg: $type),*) -> c_int {
            let thread = Thread::current();
            if thread.owner_calls() != 0 || !steady::needs_no_look(Class::$class, &OP, $fh) {
                // SAFETY: the program's own call.
                return unsafe { looked_at($($arg),*) };
            }
            thread.enter_mpi();
            let start_ticks = arch::cycles();
            // SAFETY: the program's own call.
            let answer = unsafe { real($($arg),*) };
            let end_ticks = arch::cycles();
            let thread = Thread::current();
            thread.caller.set(Caller::App);
            if answer != 0 {
                return failed($fh, answer);
            }
            let same = Same { fh: $fh, datatype: $ty, count: $n as u64 };
            if steady::mpiio(thread, Class::$class, &OP, start_ticks, end_ticks, same) {
                return answer;
            }
            done::<{ Class::$class as usize }>(start_ticks, end_ticks, &OP, $fh, $n as u64, $ty)
        }
    };
    ($finish:ident $roles:tt ($($arg:ident: $type:ty),*) $direction:ident $class:ident) => {
        #[inline(always)]
        unsafe extern "C" fn measured($($arg: $type),*) -> c_int {
            // SAFETY: the program's own call.
            unsafe { looked_at($($arg),*) }
        }
    };
}

/// Rows `name: shape, how it ends, direction, class`.
macro_rules! data_calls {
    ($($name:ident: $shape:ident, $finish:ident $direction:ident $class:ident;)+) => {
        $(mod $name {
            pub(super) mod mpi {
                use super::super::*;
                use super::super::small::*;
                data_call! { $shape "MPI_File_" $name "" c_int, $finish $direction $class }
            }
            pub(super) mod pmpi {
                use super::super::*;
                use super::super::small::*;
                data_call! { $shape "PMPI_File_" $name "" c_int, $finish $direction $class }
            }
            // An MPI before version 4 has no large-count forms. A program that looks whether they are
            // there, by a weak reference as mpi4py does, finds ours, so they must work.
            pub(super) mod mpi_c {
                use super::super::*;
                use super::mpi::REAL as SMALL;
                const IS_LARGE: bool = true;
                data_call! { $shape "MPI_File_" $name "_c" i64, $finish $direction $class }
            }
            pub(super) mod pmpi_c {
                use super::super::*;
                use super::pmpi::REAL as SMALL;
                const IS_LARGE: bool = true;
                data_call! { $shape "PMPI_File_" $name "_c" i64, $finish $direction $class }
            }
        })+
        pub(super) static DATA_ROWS: &[Row] = &[$($name::mpi::ROW, $name::pmpi::ROW, $name::mpi_c::ROW, $name::pmpi_c::ROW),+];
    };
}

data_calls! {
    read: plain, blocking Read Independent;
    write: plain, blocking Write Independent;
    read_at: at, blocking Read Independent;
    write_at: at, blocking Write Independent;
    read_shared: shared, blocking Read Independent;
    write_shared: shared, blocking Write Independent;
    read_all: plain, blocking Read Collective;
    write_all: plain, blocking Write Collective;
    read_at_all: at, blocking Read Collective;
    write_at_all: at, blocking Write Collective;
    read_ordered: shared, blocking Read Collective;
    write_ordered: shared, blocking Write Collective;
    iread: plain, nonblocking Read Nonblocking;
    iwrite: plain, nonblocking Write Nonblocking;
    iread_at: at, nonblocking Read Nonblocking;
    iwrite_at: at, nonblocking Write Nonblocking;
    iread_shared: shared, nonblocking Read Nonblocking;
    iwrite_shared: shared, nonblocking Write Nonblocking;
    iread_all: plain, nonblocking Read Nonblocking;
    iwrite_all: plain, nonblocking Write Nonblocking;
    iread_at_all: at, nonblocking Read Nonblocking;
    iwrite_at_all: at, nonblocking Write Nonblocking;
    read_all_begin: begin, split_begin Read Split;
    write_all_begin: begin, split_begin Write Split;
    read_at_all_begin: at_begin, split_begin Read Split;
    write_at_all_begin: at_begin, split_begin Write Split;
    read_ordered_begin: shared_begin, split_begin Read Split;
    write_ordered_begin: shared_begin, split_begin Write Split;
}

/// A call that has a file and other arguments but moves no data itself: `$finish` gets the file and
/// whatever argument it is told about.
macro_rules! file_call {
    ($p:literal $name:ident, [$fh:ident $extra:expr] ($($arg:ident: $type:ty),*), $finish:ident) => {
        real_function!(c_name!($p, stringify!($name)), fn($($arg: $type),*) -> c_int, missing(NAME));

        #[unsafe(export_name = concat!($p, stringify!($name)))]
        pub(crate) unsafe extern "C" fn wrapper($($arg: $type),*) -> c_int {
            if !armed() || !Thread::current().app_calls() {
                // SAFETY: the program's own call.
                return unsafe { real($($arg),*) };
            }
            let start = enter();
            // SAFETY: the program's own call.
            let answer = unsafe { real($($arg),*) };
            $finish(Thread::current(), start, answer, $fh, $extra);
            answer
        }
        pub(crate) const ROW: Row = Row { name: NAME, wrapper: wrapper as *const (), slot: &REAL, stub: stub as *const () };
    };
}

/// Rows `name: (arguments), the file and an extra value for the function that counts the call`.
macro_rules! file_calls {
    ($($name:ident: $args:tt, $roles:tt $finish:ident;)+) => {
        $(mod $name {
            pub(super) mod mpi {
                use super::super::*;
                file_call! { "MPI_File_" $name, $roles $args, $finish }
            }
            pub(super) mod pmpi {
                use super::super::*;
                file_call! { "PMPI_File_" $name, $roles $args, $finish }
            }
        })+
        pub(super) static FILE_ROWS: &[Row] = &[$($name::mpi::ROW, $name::pmpi::ROW),+];
    };
}

/// The second half of a split collective as it is named among the slowest calls.
macro_rules! op {
    ($name:literal $direction:ident) => {{
        static OP: Op = Op::new(concat!("MPI_File_", $name), Direction::$direction);
        &OP
    }};
}

file_calls! {
    read_all_end: (fh: File, buf: Buffer, st: Address), [fh op!("read_all_end" Read)] split_end;
    write_all_end: (fh: File, buf: Buffer, st: Address), [fh op!("write_all_end" Write)] split_end;
    read_at_all_end: (fh: File, buf: Buffer, st: Address), [fh op!("read_at_all_end" Read)] split_end;
    write_at_all_end: (fh: File, buf: Buffer, st: Address), [fh op!("write_at_all_end" Write)] split_end;
    read_ordered_end: (fh: File, buf: Buffer, st: Address), [fh op!("read_ordered_end" Read)] split_end;
    write_ordered_end: (fh: File, buf: Buffer, st: Address), [fh op!("write_ordered_end" Write)] split_end;
    sync: (fh: File), [fh 0] synced;
    set_size: (fh: File, size: i64), [fh 0] resized;
    preallocate: (fh: File, size: i64), [fh 0] resized;
    set_view: (fh: File, displacement: i64, etype: Handle, filetype: Handle, datarep: *const c_char, info: Handle),
        [fh ViewArguments { displacement, etype, filetype, datarep, info }] view_set;
    set_info: (fh: File, info: Handle), [fh info] info_set;
    // Not counted, but what they do to files is the MPI library's doing.
    seek: (fh: File, offset: i64, whence: c_int), [fh 0] passed;
    seek_shared: (fh: File, offset: i64, whence: c_int), [fh 0] passed;
    get_position_shared: (fh: File, offset: Address), [fh 0] passed;
    get_size: (fh: File, size: Address), [fh 0] passed;
    set_atomicity: (fh: File, flag: c_int), [fh 0] passed;
}

/// The program is about to enter MPI.
#[inline(always)]
pub(super) fn enter() -> u64 {
    Thread::current().enter_mpi();
    ticks()
}

/// The program is about to make a data call; a collective one that will be in the list is looked at. Inlined: where the
/// stack is must be read in the frame that makes the call.
#[inline(always)]
fn enter_data_call(class: Class, op: &'static Op, fh: File, place: Place) -> u64 {
    let thread = Thread::current();
    let collective = class == Class::Collective || class == Class::Split;
    if !collective {
        return enter();
    }
    let listed = exchange::begin(thread, fh, place, op.writes());
    let start_ticks = enter();
    if listed {
        thread.caller.set(Caller::MpiListed);
        exchange::started(thread, start_ticks);
    }
    start_ticks
}

/// It is back.
#[inline(always)]
fn leave(thread: &Thread) -> u64 {
    let end = ticks();
    thread.caller.set(Caller::App);
    end
}

const fn class(index: usize) -> Class {
    if index == Class::Collective as usize { Class::Collective } else { Class::Independent }
}

/// Counters of a file: those of its handle, or of "other files" when the handle is not known.
#[inline(always)]
fn block_of(fh: File) -> Option<&'static Block> {
    match handles::find(fh) {
        Some(open) => Some(open.block()),
        None => unknown_file(),
    }
}

#[cold]
#[inline(never)]
fn unknown_file() -> Option<&'static Block> {
    shield(None, || {
        crate::measure::with_header(|h| _ = h.dropped.handles.fetch_add(1, Relaxed));
        files::other(Module::Mpiio)
    })
}

/// A call returned an error; passes it on.
#[cold]
#[inline(never)]
fn failed(fh: File, answer: c_int) -> c_int {
    if let Some(open) = handles::find(fh) {
        data::count(Thread::current(), open.block(), MPIIO_ERRORS);
    }
    answer
}

/// A blocking data call returned.
#[allow(clippy::too_many_arguments)]
fn blocking<const CLASS: usize>(
    start_ticks: u64,
    answer: c_int,
    op: &'static Op,
    fh: File,
    count: u64,
    datatype: Handle,
    _status: usize,
) -> c_int {
    let thread = Thread::current();
    let end_ticks = leave(thread);
    if answer != 0 {
        exchange::take(thread, start_ticks);
        failed(fh, answer)
    } else {
        done::<CLASS>(start_ticks, end_ticks, op, fh, count, datatype)
    }
}

/// The general way; answers that the call succeeded. Its arguments fit into registers, so that the hot
/// path need not keep anything for it.
#[cold]
#[inline(never)]
fn done<const CLASS: usize>(
    start_ticks: u64,
    end_ticks: u64,
    op: &'static Op,
    fh: File,
    count: u64,
    datatype: Handle,
) -> c_int {
    let thread = Thread::current();
    if let Some(block) = block_of(fh) {
        let bytes = count.wrapping_mul(type_size(datatype));
        let end_ticks = end_ticks.max(start_ticks);
        let call = Call { op, start_ticks, end_ticks, bytes };
        data::mpiio(thread, block, class(CLASS), &call, end_ticks - start_ticks);
        if thread.owns_lane() {
            steady::remember(class(CLASS), op, Same { fh, datatype, count }, block);
        }
    }
    std::hint::black_box(0)
}

/// A nonblocking call was issued; it is counted when it completes.
#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn nonblocking<const CLASS: usize>(
    start_ticks: u64,
    answer: c_int,
    op: &'static Op,
    fh: File,
    count: u64,
    datatype: Handle,
    request: usize,
) -> c_int {
    let thread = Thread::current();
    let issued_ticks = leave(thread);
    if answer != 0 {
        return failed(fh, answer);
    }
    let Some(block) = block_of(fh) else { return answer };
    let bytes = count.wrapping_mul(type_size(datatype));
    // SAFETY: the call succeeded, so the program's place holds a request.
    let request = unsafe { abi::current().load_handle(std::ptr::with_exposed_provenance(request)) };
    let issue_ticks = issued_ticks.wrapping_sub(start_ticks);
    shield((), || {
        let pending = Pending::new(block, op, bytes, start_ticks, issue_ticks);
        let untracked = if request == abi::current().request_null {
            Some(pending)
        } else {
            pending::issue(request, pending)
        };
        if let Some(pending) = untracked {
            pending.complete(thread, issued_ticks, 0);
        }
    });
    answer
}

/// The first half of a split collective returned.
#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn split_begin<const CLASS: usize>(
    start_ticks: u64,
    answer: c_int,
    _op: &'static Op,
    fh: File,
    count: u64,
    datatype: Handle,
    _: usize,
) -> c_int {
    let thread = Thread::current();
    let end_ticks = leave(thread);
    if answer != 0 {
        exchange::take(thread, start_ticks);
        return failed(fh, answer);
    }
    if let Some(Open { split, .. }) = handles::find(fh) {
        split.start_ticks.store(start_ticks, Relaxed);
        split.inside_ticks.store(end_ticks.wrapping_sub(start_ticks), Relaxed);
        split.bytes.store(count.wrapping_mul(type_size(datatype)), Relaxed);
        split.file_ticks.store(thread.file_ticks.get(), Relaxed);
        split.file_bytes.store(thread.file_bytes.get(), Relaxed);
        shield((), || {
            let noted = exchange::take(thread, start_ticks).map(Box::new);
            *split.noted.lock().unwrap_or_else(|e| e.into_inner()) = noted;
        });
    }
    answer
}

/// The second half returned: now the call is complete.
fn split_end(thread: &Thread, second_ticks: u64, answer: c_int, fh: File, op: &'static Op) {
    let end_ticks = leave(thread);
    if answer != 0 {
        failed(fh, answer);
        return;
    }
    let Some(open) = handles::find(fh) else { return };
    let split = &open.split;
    let start_ticks = split.start_ticks.swap(0, Relaxed);
    if start_ticks == 0 {
        return;
    }
    shield((), || {
        let noted = split.noted.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(mut noted) = noted {
            if thread.file_bytes.get() > 0 {
                noted.forget_transfers();
            }
            exchange::resume(thread, start_ticks, *noted);
        }
    });
    // A split collective counts among the blocking ones on its file.
    steady::forget();
    thread.file_ticks.set(thread.file_ticks.get() + split.file_ticks.load(Relaxed));
    thread.file_bytes.set(thread.file_bytes.get() + split.file_bytes.load(Relaxed));
    let bytes = split.bytes.load(Relaxed);
    let inside = split.inside_ticks.load(Relaxed) + end_ticks.wrapping_sub(second_ticks);
    let call = Call { op, start_ticks, end_ticks, bytes };
    data::mpiio(thread, open.block(), Class::Split, &call, inside);
}

const TIMED: Meta = Meta::timed(MPIIO_F_META_TIME);

const fn counted(counter: usize) -> Meta {
    Meta::counted(counter, MPIIO_F_META_TIME)
}

/// Counts a call that is not about data.
fn noted(thread: &Thread, start: u64, answer: c_int, fh: File, meta: Meta) -> Option<u64> {
    let end = leave(thread);
    if answer != 0 {
        failed(fh, answer);
        return None;
    }
    let block = block_of(fh)?;
    data::meta(thread, block, meta, start, end);
    Some(end)
}

fn synced(thread: &Thread, start: u64, answer: c_int, fh: File, _: usize) {
    if let Some(end) = noted(thread, start, answer, fh, counted(MPIIO_SYNCS)) {
        data::activity(thread, start, end);
    }
}

fn resized(thread: &Thread, start: u64, answer: c_int, fh: File, _: usize) {
    noted(thread, start, answer, fh, counted(MPIIO_RESIZES));
}

fn passed(thread: &Thread, start: u64, answer: c_int, fh: File, _: usize) {
    noted(thread, start, answer, fh, TIMED);
}

struct ViewArguments {
    displacement: i64,
    etype: Handle,
    filetype: Handle,
    datarep: *const c_char,
    info: Handle,
}

fn view_set(thread: &Thread, start: u64, answer: c_int, fh: File, view: ViewArguments) {
    if noted(thread, start, answer, fh, counted(MPIIO_VIEWS)).is_some() {
        note_hints(thread, fh, view.info);
        if let Some(open) = handles::find(fh) {
            shield((), || open.view.set(view.displacement, view.etype, view.filetype, view.datarep));
        }
    }
}

fn info_set(thread: &Thread, start: u64, answer: c_int, fh: File, info: Handle) {
    if noted(thread, start, answer, fh, TIMED).is_some() {
        note_hints(thread, fh, info);
    }
}

pub(super) fn note_hints(thread: &Thread, fh: File, info: Handle) {
    let abi = abi::current();
    if abi.argument(info) != abi.info_null
        && let Some(open) = handles::find(fh)
    {
        data::count(thread, open.block(), MPIIO_HINTS);
    }
}

/// Size of a datatype.
fn type_size(datatype: Handle) -> u64 {
    let abi = abi::current();
    let predefined = (abi.predefined_size)(abi.argument(datatype));
    if predefined > 0 { predefined } else { shield(0, || abi::ask_type_size(datatype)) }
}
