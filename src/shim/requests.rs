//! `MPI_Wait*`, `MPI_Test*` and `MPI_Request_free`: where nonblocking I/O completes.
//!
//! With no I/O pending a wrapper is a load and a jump. Otherwise it looks which of the requests are ours
//! before the real call (which turns them into `MPI_REQUEST_NULL`) and counts those that completed after.

use super::around::{Inside, enter, missing};
use super::caller::{Caller, Thread};
use super::real::Row;
use super::shield::shield;
use super::wrap::{c_name, real_function};
use crate::abi::{self, Handle};
use crate::clock::ticks;
use crate::measure::pending;
use std::ffi::{c_int, c_void};

/// The program's requests that are I/O, with their place in its array.
type Ours = Vec<(usize, Handle)>;

fn look(requests: *const c_void, count: c_int) -> Ours {
    let abi = abi::current();
    if requests.is_null() {
        return Vec::new();
    }
    shield(Vec::new(), || {
        (0..count.max(0) as usize)
            // SAFETY: the program passes an array of `count` requests.
            .map(|i| (i, unsafe { abi.load_handle(requests.byte_add(i * abi.handle_bytes)) }))
            .filter(|(_, request)| pending::contains(*request))
            .collect()
    })
}

/// Counts those of `ours` that `completed` says are done. The time of the call is shared among them.
fn settle(ours: &Ours, start: u64, completed: impl Fn(usize) -> bool) {
    let end = ticks();
    shield((), || {
        let done: Vec<Handle> = ours.iter().filter(|(i, _)| completed(*i)).map(|(_, r)| *r).collect();
        let share = end.wrapping_sub(start) / (done.len().max(1) as u64);
        for request in done {
            if let Some(pending) = pending::take(request) {
                pending.complete(Thread::current(), end, share);
            }
        }
    });
}

macro_rules! request_call {
    ($p:literal $name:ident ($($arg:ident: $type:ty),*) looks $requests:expr, $count:expr; done($i:ident) $done:expr) => {
        real_function!(c_name!($p, stringify!($name)), fn($($arg: $type),*) -> c_int, missing(NAME));

        #[unsafe(export_name = concat!($p, stringify!($name)))]
        pub(crate) unsafe extern "C-unwind" fn wrapper($($arg: $type),*) -> c_int {
            if pending::none() {
                // SAFETY: the program's own call.
                return unsafe { real($($arg),*) };
            }
            // SAFETY: as above.
            unsafe { observed($($arg),*) }
        }

        #[cold]
        unsafe fn observed($($arg: $type),*) -> c_int {
            let thread = Thread::current();
            if !thread.app_calls() {
                // SAFETY: the program's own call.
                return unsafe { real($($arg),*) };
            }
            let ours = look($requests, $count);
            let start = enter();
            let inside = Inside(start);
            // SAFETY: the program's own call.
            let answer = unsafe { real($($arg),*) };
            std::mem::forget(inside);
            thread.caller.set(Caller::App);
            if answer == 0 && !ours.is_empty() {
                // SAFETY: after a call that succeeded its out-parameters are set.
                settle(&ours, start, |$i| unsafe { $done });
            }
            answer
        }
        pub(crate) const ROW: Row = Row { name: NAME, wrapper: wrapper as *const (), slot: &REAL, stub: stub as *const () };
    };
}

macro_rules! request_calls {
    ($($name:ident: $args:tt looks $requests:expr, $count:expr; done($i:ident) $done:expr;)+) => {
        $(#[allow(non_snake_case, unused_variables, unused_unsafe)] mod $name {
            pub(super) mod mpi {
                use super::super::*;
                request_call! { "MPI_" $name $args looks $requests, $count; done($i) $done }
            }
            pub(super) mod pmpi {
                use super::super::*;
                request_call! { "PMPI_" $name $args looks $requests, $count; done($i) $done }
            }
        })+
        pub(super) static ROWS: &[Row] = &[$($name::mpi::ROW, $name::pmpi::ROW),+];
    };
}

type Place = *mut c_void;
type Int = *mut c_int;

// `MPI_UNDEFINED` in `index` or `outcount` means that nothing completed; it matches no place.
request_calls! {
    Wait: (request: Place, status: Place) looks request, 1; done(_i) true;
    Test: (request: Place, flag: Int, status: Place) looks request, 1; done(_i) *flag != 0;
    Waitall: (count: c_int, requests: Place, statuses: Place) looks requests, count; done(_i) true;
    Testall: (count: c_int, requests: Place, flag: Int, statuses: Place) looks requests, count;
        done(_i) *flag != 0;
    Waitany: (count: c_int, requests: Place, index: Int, status: Place) looks requests, count;
        done(i) *index == i as c_int;
    Testany: (count: c_int, requests: Place, index: Int, flag: Int, status: Place) looks requests, count;
        done(i) *flag != 0 && *index == i as c_int;
    Waitsome: (count: c_int, requests: Place, outcount: Int, indices: Int, statuses: Place) looks requests, count;
        done(i) is_among(i, *outcount, indices);
    Testsome: (count: c_int, requests: Place, outcount: Int, indices: Int, statuses: Place) looks requests, count;
        done(i) is_among(i, *outcount, indices);
    Request_free: (request: Place) looks request, 1; done(_i) true;
}

/// # Safety
/// `indices` holds `count` values.
unsafe fn is_among(place: usize, count: c_int, indices: *const c_int) -> bool {
    // SAFETY: the caller's word; MPI_UNDEFINED is negative.
    (0..count.max(0) as usize).any(|i| unsafe { *indices.add(i) } == place as c_int)
}
