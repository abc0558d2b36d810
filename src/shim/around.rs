//! What a call of `MPI_File_*` does before and after the real one, by the way it ends: blocking, nonblocking,
//! in two halves, or moving no data at all.

use super::caller::{Caller, Thread};
use super::shield::shield;
use crate::abi::{self, Handle};
use crate::clock::ticks;
use crate::config;
use crate::gate;
use crate::measure::data::{self, Call, Class, Meta, Op};
use crate::measure::errors::{self, Error};
use crate::measure::exchange::{self, Place};
use crate::measure::files;
use crate::measure::handles::{self, Open};
use crate::measure::lane::Name;
use crate::measure::pending::{self, Pending};
use crate::measure::steady::{self, Same};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_profile::counters::{Module, mpiio::*};
use weir_profile::layout::Block;

/// An `MPI_File`: an address in every ABI.
pub(super) type File = usize;
pub(super) type Buffer = *mut c_void;
/// Of an `MPI_Status`, an `MPI_Request` or a handle of any size.
pub(super) type Address = *mut c_void;

/// What a function that this MPI does not have answers. The first is named: a program may try again and again.
#[cold]
pub(super) fn missing(name: &CStr) -> c_int {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        shield((), || config::say(&format!("{} is not in this MPI library", name.to_string_lossy())));
    }
    abi::current().err_intern
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
pub(super) fn enter_data_call(
    class: Class,
    op: &'static Op,
    fh: File,
    place: Place,
    count: u64,
    datatype: Handle,
) -> u64 {
    let thread = Thread::current();
    let collective = class == Class::Collective || class == Class::Split;
    if !collective {
        return enter();
    }
    let listed = exchange::begin(thread, fh, place, op.writes());
    if gate::is_on()
        && let Some(open) = handles::find(fh)
    {
        if !op.writes() {
            gate::reads::begin(thread, open);
        }
        gate::collective_begins(thread, open.block(), op.writes(), count.wrapping_mul(type_size(datatype)));
    }
    let start_ticks = enter();
    if listed {
        thread.caller.set(Caller::MpiListed);
        exchange::started(thread, start_ticks);
    }
    start_ticks
}

/// The program is in MPI since then. If the call ends by an exception, as C++ programs let their error handlers throw, the
/// program is calling again; one that returns forgets this, and does it itself.
pub(super) struct Inside(pub(super) u64);

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        unwound(self.0);
    }
}

/// Not a Rust function: the compiler need not reckon with a panic while an exception is on its way.
#[cold]
#[inline(never)]
extern "C" fn unwound(start_ticks: u64) {
    let thread = Thread::current();
    leave(thread);
    exchange::take(thread, start_ticks);
}

/// It is back.
#[inline(always)]
fn leave(thread: &Thread) -> u64 {
    let end = ticks();
    thread.caller.set(Caller::App);
    gate::reads::end(thread);
    gate::collective_ends(thread);
    end
}

const fn class(index: usize) -> Class {
    if index == Class::Collective as usize { Class::Collective } else { Class::Independent }
}

/// Counters of a file: those of its handle, or of "other files" when the handle is not known; none if it is left out.
#[inline(always)]
fn block_of(fh: File) -> Option<&'static Block> {
    match handles::find(fh) {
        Some(open) => Some(open.block()),
        None => unknown_file(fh),
    }
}

#[cold]
#[inline(never)]
fn unknown_file(fh: File) -> Option<&'static Block> {
    shield(None, || {
        if handles::is_left_out(fh) {
            return None;
        }
        crate::measure::with_header(|h| _ = h.dropped.handles.fetch_add(1, Relaxed));
        files::other(Module::Mpiio)
    })
}

/// A call that began then returned an error; passes it on. It took its time all the same.
#[cold]
#[inline(never)]
pub(super) fn failed(fh: File, op: &Name, start_ticks: u64, answer: c_int) -> c_int {
    if let Some(open) = handles::find(fh) {
        let (thread, block) = (Thread::current(), open.block());
        data::meta(thread, block, TIMED, start_ticks, ticks());
        errors::note(thread, block, MPIIO_ERRORS, op, Error::Mpi(answer), start_ticks);
    }
    answer
}

/// A blocking data call returned.
#[allow(clippy::too_many_arguments)]
pub(super) fn blocking<const CLASS: usize>(
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
        failed(fh, op.name(), start_ticks, answer)
    } else {
        done::<CLASS>(start_ticks, end_ticks, op, fh, count, datatype)
    }
}

/// The general way; answers that the call succeeded. Its arguments fit into registers, so that the hot
/// path need not keep anything for it.
#[cold]
#[inline(never)]
pub(super) fn done<const CLASS: usize>(
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
pub(super) fn nonblocking<const CLASS: usize>(
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
        return failed(fh, op.name(), start_ticks, answer);
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
pub(super) fn split_begin<const CLASS: usize>(
    start_ticks: u64,
    answer: c_int,
    op: &'static Op,
    fh: File,
    count: u64,
    datatype: Handle,
    _: usize,
) -> c_int {
    let thread = Thread::current();
    let end_ticks = leave(thread);
    if answer != 0 {
        exchange::take(thread, start_ticks);
        return failed(fh, op.name(), start_ticks, answer);
    }
    if let Some(open @ Open { split, .. }) = handles::find(fh) {
        split.start_ticks.store(start_ticks, Relaxed);
        split.inside_ticks.store(end_ticks.wrapping_sub(start_ticks), Relaxed);
        split.bytes.store(count.wrapping_mul(type_size(datatype)), Relaxed);
        split.file_ticks.store(thread.file_ticks.get(), Relaxed);
        split.file_bytes.store(thread.file_bytes.get(), Relaxed);
        shield((), || {
            let noted = exchange::take(thread, start_ticks).map(Box::new);
            *split.noted.lock().unwrap_or_else(|e| e.into_inner()) = noted;
        });
        open.split_begins();
    }
    answer
}

/// The second half returned: now the call is complete.
pub(super) fn split_end(thread: &Thread, second_ticks: u64, answer: c_int, fh: File, op: &'static Op) {
    let end_ticks = leave(thread);
    let Some(open) = handles::find(fh) else { return };
    open.split_ends();
    if answer != 0 {
        failed(fh, op.name(), second_ticks, answer);
        return;
    }
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
fn noted(thread: &Thread, start: u64, answer: c_int, fh: File, op: &Name, meta: Meta) -> bool {
    let end = leave(thread);
    if answer != 0 {
        failed(fh, op, start, answer);
        return false;
    }
    let Some(block) = block_of(fh) else { return false };
    data::meta(thread, block, meta, start, end);
    true
}

pub(super) fn synced(thread: &Thread, start: u64, answer: c_int, fh: File, op: &Name) {
    noted(thread, start, answer, fh, op, counted(MPIIO_SYNCS).of_kind(MPIIO_F_SYNC_TIME));
}

pub(super) fn resized(thread: &Thread, start: u64, answer: c_int, fh: File, op: &Name) {
    noted(thread, start, answer, fh, op, counted(MPIIO_RESIZES));
}

pub(super) fn passed(thread: &Thread, start: u64, answer: c_int, fh: File, op: &Name) {
    noted(thread, start, answer, fh, op, TIMED);
}

pub(super) struct ViewArguments {
    pub(super) displacement: i64,
    pub(super) etype: Handle,
    pub(super) filetype: Handle,
    pub(super) datarep: *const c_char,
    pub(super) info: Handle,
}

pub(super) fn view_set(thread: &Thread, start: u64, answer: c_int, fh: File, view: ViewArguments) {
    static NAME: Name = Name::new("MPI_File_set_view");
    if noted(thread, start, answer, fh, &NAME, counted(MPIIO_VIEWS)) {
        note_hints(thread, fh, view.info);
        if let Some(open) = handles::find(fh) {
            shield((), || open.view.set(view.displacement, view.etype, view.filetype, view.datarep));
        }
    }
}

pub(super) fn info_set(thread: &Thread, start: u64, answer: c_int, fh: File, info: Handle) {
    static NAME: Name = Name::new("MPI_File_set_info");
    if noted(thread, start, answer, fh, &NAME, TIMED) {
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
