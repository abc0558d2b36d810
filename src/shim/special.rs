//! The few functions that need a hand: the life of MPI, opening and closing files, freeing a datatype,
//! and the ways a process can end.

use super::around::{Inside, enter, missing, note_hints};
use super::caller::{Caller, Thread};
use super::real::Row;
use super::shield::shield;
use super::wrap::{c_function, c_name, real_function};
use crate::abi::{self, Handle};
use crate::clock::ticks;
use crate::lifecycle::{self, Model, armed};
use crate::measure::data::{self, Meta};
use crate::measure::errors::{self, Error};
use crate::measure::lane::Name;
use crate::measure::{files, handles, pending, steady};
use crate::{gate, measure, profile};
use std::ffi::{c_char, c_int, c_void};
use weir_profile::counters::{Module, mpiio::*};
use weir_profile::layout::{Block, Ended};

type Place = *mut c_void;

/// An exported function whose body is written by hand; `$body` makes the real call. With `{with …}` the body gets
/// the function itself, for it may call it with other arguments.
macro_rules! special {
    ($($module:ident: [$($symbol:literal as $form:ident),+] $args:tt $body:tt;)+) => {
        $(mod $module {
            $(pub(super) mod $form {
                use super::super::*;
                special! { @ $symbol $args $body }
            })+
        })+
        pub(super) static ROWS: &[Row] = &[$($($module::$form::ROW),+),+];
    };
    (@ $symbol:literal ($($arg:ident: $type:ty),*) $body:ident) => {
        real_function!(c_name!($symbol), fn($($arg: $type),*) -> c_int, missing(NAME));

        #[unsafe(export_name = $symbol)]
        pub(crate) unsafe extern "C-unwind" fn wrapper($($arg: $type),*) -> c_int {
            // SAFETY: the program's own call, made once by `$body`.
            $body($($arg,)* || unsafe { real($($arg),*) })
        }
        special! { @row }
    };
    (@ $symbol:literal ($($arg:ident: $type:ty),*) {with $body:ident}) => {
        real_function!(c_name!($symbol), fn($($arg: $type),*) -> c_int, missing(NAME));

        #[unsafe(export_name = $symbol)]
        pub(crate) unsafe extern "C-unwind" fn wrapper($($arg: $type),*) -> c_int {
            $body($($arg,)* real)
        }
        special! { @row }
    };
    (@row) => {
        pub(crate) const ROW: Row = Row { name: NAME, wrapper: wrapper as *const (), slot: &REAL, stub: stub as *const () };
    };
}

special! {
    init: ["MPI_Init" as mpi, "PMPI_Init" as pmpi] (argc: *mut c_int, argv: Place) init;
    init_thread: ["MPI_Init_thread" as mpi, "PMPI_Init_thread" as pmpi]
        (argc: *mut c_int, argv: Place, required: c_int, provided: *mut c_int) init_thread;
    finalize: ["MPI_Finalize" as mpi, "PMPI_Finalize" as pmpi] () finalize;
    session_init: ["MPI_Session_init" as mpi, "PMPI_Session_init" as pmpi]
        (info: Handle, errhandler: Handle, session: Place) session_init;
    session_finalize: ["MPI_Session_finalize" as mpi, "PMPI_Session_finalize" as pmpi]
        (session: Place) session_finalize;
    abort: ["MPI_Abort" as mpi, "PMPI_Abort" as pmpi] (comm: Handle, code: c_int) abort;
    open: ["MPI_File_open" as mpi, "PMPI_File_open" as pmpi]
        (comm: Handle, name: *const c_char, mode: c_int, info: Handle, fh: *mut usize) {with open};
    close: ["MPI_File_close" as mpi, "PMPI_File_close" as pmpi] (fh: *mut usize) close;
    delete: ["MPI_File_delete" as mpi, "PMPI_File_delete" as pmpi] (name: *const c_char, info: Handle) delete;
    type_free: ["MPI_Type_free" as mpi, "PMPI_Type_free" as pmpi] (datatype: Place) type_free;
}

/// Runs the real call as the MPI library. Also when it began and ended.
fn timed_as_mpi(real: impl FnOnce() -> c_int) -> (c_int, u64, u64) {
    let start = enter();
    let inside = Inside(start);
    let answer = real();
    let end = ticks();
    std::mem::forget(inside);
    Thread::current().caller.set(Caller::App);
    (answer, start, end)
}

fn as_mpi(real: impl FnOnce() -> c_int) -> c_int {
    timed_as_mpi(real).0
}

fn from_app() -> bool {
    Thread::current().app_calls()
}

fn initialise(model: Model, real: impl FnOnce() -> c_int) -> c_int {
    if !from_app() {
        return real();
    }
    let answer = as_mpi(real);
    if answer == 0 {
        shield((), || lifecycle::initialised(model));
    }
    answer
}

fn init(_: *mut c_int, _: Place, real: impl FnOnce() -> c_int) -> c_int {
    initialise(Model::World, real)
}

fn init_thread(_: *mut c_int, _: Place, _: c_int, _: *mut c_int, real: impl FnOnce() -> c_int) -> c_int {
    initialise(Model::World, real)
}

fn session_init(_: Handle, _: Handle, _: Place, real: impl FnOnce() -> c_int) -> c_int {
    initialise(Model::Session, real)
}

/// The record is complete before MPI goes down; the profile is written after, when every process has
/// got this far.
fn finalise(real: impl FnOnce() -> c_int) -> c_int {
    if !from_app() {
        return real();
    }
    let last = shield(false, || {
        if armed() {
            let thread = Thread::current();
            let now = ticks();
            pending::take_all().iter().for_each(|pending| pending.complete(thread, now, 0));
        }
        lifecycle::finalising()
    });
    let answer = as_mpi(real);
    if last {
        shield((), lifecycle::finalised);
    }
    answer
}

fn finalize(real: impl FnOnce() -> c_int) -> c_int {
    finalise(real)
}

fn session_finalize(_: Place, real: impl FnOnce() -> c_int) -> c_int {
    finalise(real)
}

fn abort(_: Handle, code: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if armed() {
        shield((), || {
            profile::mark_end(Ended::Aborted, code);
            measure::save();
        });
        lifecycle::switch_off();
    }
    real()
}

fn open(
    comm: Handle,
    name: *const c_char,
    mode: c_int,
    info: Handle,
    fh: *mut usize,
    real: unsafe fn(Handle, *const c_char, c_int, Handle, *mut usize) -> c_int,
) -> c_int {
    let thread = Thread::current();
    if !thread.app_calls() {
        // SAFETY: the program's own call.
        return unsafe { real(comm, name, mode, info, fh) };
    }
    // Registered first, so that the POSIX calls beneath are known to be about this file.
    let (block, hints) = shield((None, None), || {
        lifecycle::ensure_armed_late();
        // Whatever else is the case: all ranks take part in it.
        let hints = gate::hints::for_file(comm, || mpi_path(name), mode, info);
        (if armed() { mpi_block(name) } else { None }, hints)
    });
    let hinted_info = hints.as_ref().map_or(info, |hints| hints.info());
    // SAFETY: the program's own call, or with an info that says more.
    let real = || unsafe { real(comm, name, mode, hinted_info, fh) };
    let Some(block) = block else {
        let answer = as_mpi(real);
        if answer == 0 && armed() {
            // SAFETY: the call succeeded, so the handle is there.
            shield((), || leave_out(name, unsafe { *fh }));
        }
        return answer;
    };
    let (answer, start, end) = timed_as_mpi(real);
    if answer != 0 {
        let probes = mode & abi::current().mode_create == 0;
        failed(block, "MPI_File_open", answer, probes, start, end);
        return answer;
    }
    let size = shield(1, || {
        let mut size = 1;
        // SAFETY: the communicator the program just used.
        unsafe { abi::comm_size(comm, &mut size) };
        size
    });
    let meta = Meta {
        counter: if size > 1 { MPIIO_COLL_OPENS } else { MPIIO_INDEP_OPENS },
        first: MPIIO_F_OPEN_START_TIMESTAMP,
        last: MPIIO_F_OPEN_END_TIMESTAMP,
        ..OPEN_CLOSE
    };
    data::meta(thread, block, meta, start, end);
    shield((), || {
        let thread = Thread::current();
        // SAFETY: the call succeeded, so the handle is there.
        let handle = unsafe { *fh };
        handles::insert(handle, block, size.max(0) as u64, mode & abi::current().mode_sequential != 0);
        gate::file_opened();
        if let Some(hints) = &hints {
            hints.opened(handle);
        }
        note_hints(thread, handle, info);
    });
    answer
}

const OPEN_CLOSE: Meta = Meta::timed(MPIIO_F_META_TIME).of_kind(MPIIO_F_OPEN_CLOSE_TIME);

/// A call that opens, closes or deletes a file returned an error. `probes` says that a program that calls this way reckons with
/// a file that is not there.
#[cold]
fn failed(block: &'static Block, name: &str, answer: c_int, probes: bool, start: u64, end: u64) {
    let thread = Thread::current();
    data::meta(thread, block, OPEN_CLOSE, start, end);
    let error = if probes { Error::MpiProbe(answer) } else { Error::Mpi(answer) };
    errors::note(thread, block, MPIIO_ERRORS, &Name::new(name), error, start);
}

/// Prefixes by which ROMIO's drivers are asked for.
const DRIVERS: &[&str] = &[
    "ufs", "nfs", "xfs", "pfs", "panfs", "pvfs2", "lustre", "gpfs", "testfs", "daos", "ime", "quobyte",
    "unifyfs",
];

/// The path of a file that MPI opens; a prefix such as `ufs:` names the driver, not the file.
fn mpi_path(name: *const c_char) -> Option<String> {
    // SAFETY: MPI takes a C string.
    let path = unsafe { std::ffi::CStr::from_ptr(name.as_ref()?) }.to_string_lossy();
    let plain = match path.split_once(':') {
        Some((driver, rest)) if DRIVERS.contains(&driver) => rest,
        _ => &path,
    };
    let plain = std::ffi::CString::new(plain).ok()?;
    // SAFETY: a C string.
    unsafe { files::absolute(plain.as_ptr(), None) }
}

/// Counters of a file that MPI opens.
fn mpi_block(name: *const c_char) -> Option<&'static Block> {
    let path = mpi_path(name)?;
    files::wanted(&path, true).then(|| files::block(&path, Module::Mpiio)).flatten()
}

/// Calls on a file that `WEIR_EXCLUDE` names are not to be counted as those of an unknown one.
fn leave_out(name: *const c_char, handle: usize) {
    if mpi_path(name).is_some_and(|path| !files::wanted(&path, true)) {
        handles::leave_out(handle);
    }
}

fn close(fh: *mut usize, real: impl FnOnce() -> c_int) -> c_int {
    let thread = Thread::current();
    if !armed() || !thread.app_calls() || fh.is_null() {
        return real();
    }
    // SAFETY: not null, and MPI takes the address of a handle.
    let handle = unsafe { *fh };
    let block = handles::find(handle).map(|open| open.block());
    // The handle may be used again by another thread as soon as the real call is done with it.
    steady::forget();
    shield((), || handles::remove(handle));
    let (answer, start, end) = timed_as_mpi(real);
    if let Some(block) = block {
        gate::file_closed();
        shield((), || gate::hints::closed(handle));
        let meta =
            Meta { first: MPIIO_F_CLOSE_START_TIMESTAMP, last: MPIIO_F_CLOSE_END_TIMESTAMP, ..OPEN_CLOSE };
        data::meta(thread, block, meta, start, end);
        if answer != 0 {
            let name = Name::new("MPI_File_close");
            errors::note(thread, block, MPIIO_ERRORS, &name, Error::Mpi(answer), start);
        }
    }
    answer
}

fn delete(name: *const c_char, _: Handle, real: impl FnOnce() -> c_int) -> c_int {
    let thread = Thread::current();
    if !armed() || !thread.app_calls() {
        return real();
    }
    let (answer, start, end) = timed_as_mpi(real);
    if let Some(block) = shield(None, || mpi_block(name)) {
        if answer == 0 {
            let meta = Meta::counted(MPIIO_DELETES, MPIIO_F_META_TIME);
            data::meta(thread, block, meta, start, end);
        } else {
            failed(block, "MPI_File_delete", answer, true, start, end);
        }
    }
    answer
}

fn type_free(_: Place, real: impl FnOnce() -> c_int) -> c_int {
    // The handle may come back as another type.
    if armed() {
        steady::forget();
    }
    real()
}

/// Ends that skip `exit`'s handlers.
macro_rules! sudden_ends {
    ($($module:ident $symbol:literal;)+) => {$(
        mod $module {
            use super::*;
            c_function!(c_name!($symbol), fn(code: c_int) -> c_int, 0);

            #[unsafe(export_name = $symbol)]
            unsafe extern "C-unwind" fn wrapper(code: c_int) -> c_int {
                if armed() && profile::is_recorded_process() {
                    lifecycle::exiting(code);
                }
                // SAFETY: the program's own call; it does not return.
                unsafe { real(code) }
            }
        }
    )+};
}

sudden_ends! {
    exit_now "_exit";
    exit_now_c99 "_Exit";
    exit_quickly "quick_exit";
}
