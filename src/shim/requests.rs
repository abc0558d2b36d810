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
use crate::measure::errors::{self, Error};
use crate::measure::pending;
use std::ffi::{c_int, c_void};
use weir_profile::counters::mpiio::MPIIO_ERRORS;

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

/// The call returned an error, of one request or of several. Those that are over are no requests any more; `failed` says
/// which of them were in vain, as far as that can be told.
fn settle_after_error(
    ours: &Ours,
    start: u64,
    answer: c_int,
    requests: *const c_void,
    failed: impl Fn(usize) -> bool,
) {
    let abi = abi::current();
    let is_over = |place: usize| {
        // SAFETY: the program passes an array of requests, and this place is one of it.
        unsafe { abi.load_handle(requests.byte_add(place * abi.handle_bytes)) == abi.request_null }
    };
    shield((), || {
        for (_, request) in ours.iter().filter(|(i, _)| is_over(*i) && failed(*i)) {
            if let Some(pending) = pending::take(*request) {
                let (op, error) = (pending.op.name(), Error::Mpi(answer));
                errors::note(Thread::current(), pending.block, MPIIO_ERRORS, op, error, pending.start_ticks);
            }
        }
    });
    settle(ours, start, |place| is_over(place) && !failed(place));
}

macro_rules! request_call {
    ($p:literal $name:ident ($($arg:ident: $type:ty),*) looks $requests:expr, $count:expr; done($i:ident) $done:expr;
        failed($j:ident) $failed:expr) => {
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
            } else if !ours.is_empty() {
                // SAFETY: those of a request that is over are.
                settle_after_error(&ours, start, answer, $requests, |$j| unsafe { $failed });
            }
            answer
        }
        pub(crate) const ROW: Row = Row { name: NAME, wrapper: wrapper as *const (), slot: &REAL, stub: stub as *const () };
    };
}

macro_rules! request_calls {
    ($($name:ident: $args:tt looks $requests:expr, $count:expr; done($i:ident) $done:expr;
        failed($j:ident) $failed:expr;)+) => {
        $(#[allow(non_snake_case, unused_variables, unused_unsafe)] mod $name {
            pub(super) mod mpi {
                use super::super::*;
                request_call! { "MPI_" $name $args looks $requests, $count; done($i) $done; failed($j) $failed }
            }
            pub(super) mod pmpi {
                use super::super::*;
                request_call! { "PMPI_" $name $args looks $requests, $count; done($i) $done; failed($j) $failed }
            }
        })+
        pub(super) static ROWS: &[Row] = &[$($name::mpi::ROW, $name::pmpi::ROW),+];
    };
}

type Place = *mut c_void;
type Int = *mut c_int;

// `MPI_UNDEFINED` in `index` or `outcount` means that nothing completed; it matches no place. The error of a call that
// completes one request at most is that request's.
request_calls! {
    Wait: (request: Place, status: Place) looks request, 1; done(_i) true; failed(_i) true;
    Test: (request: Place, flag: Int, status: Place) looks request, 1; done(_i) *flag != 0; failed(_i) true;
    Waitall: (count: c_int, requests: Place, statuses: Place) looks requests, count; done(_i) true;
        failed(i) has_error(statuses, i);
    Testall: (count: c_int, requests: Place, flag: Int, statuses: Place) looks requests, count;
        done(_i) *flag != 0; failed(i) has_error(statuses, i);
    Waitany: (count: c_int, requests: Place, index: Int, status: Place) looks requests, count;
        done(i) *index == i as c_int; failed(_i) true;
    Testany: (count: c_int, requests: Place, index: Int, flag: Int, status: Place) looks requests, count;
        done(i) *flag != 0 && *index == i as c_int; failed(_i) true;
    Waitsome: (count: c_int, requests: Place, outcount: Int, indices: Int, statuses: Place) looks requests, count;
        done(i) find(i, *outcount, indices).is_some();
        failed(i) find(i, (*outcount).min(count), indices).is_some_and(|nth| has_error(statuses, nth));
    Testsome: (count: c_int, requests: Place, outcount: Int, indices: Int, statuses: Place) looks requests, count;
        done(i) find(i, *outcount, indices).is_some();
        failed(i) find(i, (*outcount).min(count), indices).is_some_and(|nth| has_error(statuses, nth));
    Request_free: (request: Place) looks request, 1; done(_i) true; failed(_i) true;
}

/// Where among `indices` a place of the array is.
///
/// # Safety
/// `indices` holds `count` values.
unsafe fn find(place: usize, count: c_int, indices: *const c_int) -> Option<usize> {
    // SAFETY: the caller's word; MPI_UNDEFINED is negative.
    (0..count.max(0) as usize).find(|i| unsafe { *indices.add(*i) } == place as c_int)
}

/// Whether the request with this status failed; not, if the program does not want to know.
///
/// # Safety
/// `statuses` says that they are to be ignored, or holds more than `nth`.
unsafe fn has_error(statuses: Place, nth: usize) -> bool {
    let abi = abi::current();
    if statuses.is_null() || statuses.addr() == abi.statuses_ignore {
        return false;
    }
    // SAFETY: the caller's word.
    unsafe { statuses.byte_add(nth * abi.status_bytes + abi.status_error_offset).cast::<c_int>().read() != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_told_by_its_status_unless_that_is_ignored() {
        // As in MPICH, which is taken for granted where there is no MPI: five numbers, the last is MPI_ERROR.
        let mut statuses = [[0, 0, 1, 2, 0], [0, 0, 3, 4, 15]];
        let place: Place = statuses.as_mut_ptr().cast();
        // SAFETY: there are two of each, or none are looked at.
        unsafe {
            assert_eq!([0, 1].map(|nth| has_error(place, nth)), [false, true]);
            let ignored = std::ptr::without_provenance_mut(abi::current().statuses_ignore);
            assert!(!has_error(ignored, 1) && !has_error(std::ptr::null_mut(), 1));
            let indices = [4, 2];
            assert_eq!([2, 4, 0].map(|place| find(place, 2, indices.as_ptr())), [Some(1), Some(0), None]);
            assert_eq!(find(4, abi::current().undefined, indices.as_ptr()), None);
        }
    }
}
