//! `weir_*`: what a program that knows of Weir can say and ask. The header and the Fortran module are
//! made for these.

// cbindgen reads what is `pub`.
#![allow(unreachable_pub)]

use crate::lifecycle::armed;
use crate::measure::activity::{self, Mark};
use crate::measure::lane::{Own, Shared};
use crate::shim::caller::Thread;
use crate::shim::shield::shield;
use crate::{abi, gate, measure, profile};
use std::ffi::{CStr, c_char, c_double, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn weir_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Whether Weir is measuring this process now: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn weir_active() -> c_int {
    c_int::from(armed())
}

/// Says that an I/O phase begins. All I/O of this process up to weir_phase_end() belongs to it,
/// whatever pauses there are. Marks do not nest: another weir_phase_begin() before that ends the phase and begins the
/// next, and one weir_phase_end() ends that; what follows is in neither. `name` stands in the profile, the last 48 bytes of it and up to 31 different
/// ones; it may be NULL. Returns 0, or -1 when nothing is being measured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_phase_begin(name: *const c_char) -> c_int {
    // SAFETY: this function's contract is the same.
    unsafe { weir_phase_begin_sized(name, 0) }
}

/// As weir_phase_begin(), and says how many bytes this process will move in the phase; 0 if that is not known. The
/// coordinator takes the sum over all processes for the size of the phase, so one of them may say it for all, if the others say 0.
/// A process that moves more than it said is not held back for it: what it said counts no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_phase_begin_sized(name: *const c_char, bytes: u64) -> c_int {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if !armed() {
        return -1;
    }
    shield(-1, || {
        if !measure::ensure() {
            return -1;
        }
        // SAFETY: a C string by this function's contract.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy());
        let name = name.filter(|name| !name.trim().is_empty()).map_or(0, |name| activity::name_place(&name));
        let mark = Mark { number: NUMBER.fetch_add(1, Relaxed) + 1, name };
        if Thread::current().owns_lane() {
            activity::begin_marked::<Own>(mark);
        } else {
            measure::open_shared_lane();
            activity::begin_marked::<Shared>(mark);
        }
        gate::phase_begins(bytes);
        0
    })
}

/// Says what the I/O phases of this program will be like: `period_s` seconds from the beginning of one to the beginning of
/// the next, as if no other job did I/O, and `bytes` that this process moves in one (as with weir_phase_begin_sized(): one
/// process may say it for all). 0 where that is not known: then it is learnt. What is said here counts until something else is
/// said, and above WEIR_PERIOD. Returns 0, or -1 when nothing is being measured or `period_s` is no time.
#[unsafe(no_mangle)]
pub extern "C" fn weir_expect(period_s: c_double, bytes: u64) -> c_int {
    if !armed() || !(0.0..=MAX_PERIOD_S).contains(&period_s) {
        return -1;
    }
    shield(-1, || {
        gate::expect((period_s * 1e9) as u64, bytes);
        0
    })
}

/// No period is longer than a year.
const MAX_PERIOD_S: f64 = 366.0 * 86400.0;

/// Says that the I/O phase ends. Returns 0, or -1 when nothing is being measured.
#[unsafe(no_mangle)]
pub extern "C" fn weir_phase_end() -> c_int {
    if !armed() || measure::header().is_none() {
        return -1;
    }
    shield(-1, || {
        if Thread::current().owns_lane() {
            activity::end_marked::<Own>();
        } else {
            activity::end_marked::<Shared>();
        }
        gate::phase_ends();
        0
    })
}

/// Names the application in the profile. Returns 0, or -1 when nothing is being measured or the name
/// is NULL or empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_set_application(name: *const c_char) -> c_int {
    if !armed() || name.is_null() {
        return -1;
    }
    // SAFETY: not null, and a C string by this function's contract.
    let name = unsafe { CStr::from_ptr(name) };
    shield(-1, || {
        let name = name.to_string_lossy();
        if name.trim().is_empty() {
            return -1;
        }
        profile::set_application(name.trim());
        0
    })
}

/// Mean time in seconds between the starts of this process's I/O phases so far; negative when there
/// were fewer than two.
#[unsafe(no_mangle)]
pub extern "C" fn weir_characteristic_time() -> c_double {
    shield(-1.0, || measure::live::characteristic_time_s().unwrap_or(-1.0))
}

/// Share of this process's time so far that was I/O, from 0 to 1; negative when nothing is measured.
#[unsafe(no_mangle)]
pub extern "C" fn weir_io_ratio() -> c_double {
    shield(-1.0, || measure::live::io_ratio().unwrap_or(-1.0))
}

/// Share of its storage that this job has now, from 0 to 1: 1 while no other job limits it, 0 while it has no turn. Of several storages,
/// the smallest. Negative when nobody coordinates the job, and before its first I/O of some size.
#[unsafe(no_mangle)]
pub extern "C" fn weir_share() -> c_double {
    shield(-1.0, || gate::prospect().map_or(-1.0, |prospect| prospect.share))
}

/// Seconds until this job should be able to go on, as its coordinator has said last; 0 if it may go, if that cannot be told,
/// and if the time has passed already. While the job has to wait, weir_share() is 0.
#[unsafe(no_mangle)]
pub extern "C" fn weir_expected_wait() -> c_double {
    shield(0.0, gate::expected_wait_s)
}

/// Seconds that this process spent in its latest collective call on the file on neither storage nor waiting for its turn:
/// for exchanging data with other processes, and for waiting for them. After very many calls it is the latest that the
/// profile has listed. `file` is the MPI_File. Negative when there was none.
#[unsafe(no_mangle)]
pub extern "C" fn weir_shuffle_cost(file: *mut c_void) -> c_double {
    shield(-1.0, || exchanged(file).map_or(-1.0, |exchanged| exchanged.latest_s))
}

/// Seconds by which this process could have been later in its latest collective call on the file without making the call
/// longer: by how much weir_shuffle_cost() is longer than in the shortest call alike (the same function and bytes), which is what
/// it waited for others. An estimate of this process alone; the profile compares all processes. Negative when there were fewer
/// than two such calls.
#[unsafe(no_mangle)]
pub extern "C" fn weir_acceptable_delay(file: *mut c_void) -> c_double {
    shield(-1.0, || exchanged(file).and_then(|exchanged| exchanged.beyond_shortest_s).unwrap_or(-1.0))
}

fn exchanged(file: *mut c_void) -> Option<measure::live::Exchanged> {
    let open = measure::handles::find(file.addr()).filter(|_| armed())?;
    // Zero is all files that have no place of their own.
    Some(open.block().file.load(Relaxed)).filter(|file| *file != 0).and_then(measure::live::exchanged)
}

/// How many aggregators and stripes the coordinator has given to the file when it was created (WEIR_HINTS=on), 0 where it had no
/// opinion. `file` is the MPI_File; either pointer may be NULL. Returns 0, or -1 when nothing was given: then both are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_allocation(
    file: *mut c_void,
    aggregators: *mut c_int,
    stripes: *mut c_int,
) -> c_int {
    let granted = shield(None, || gate::hints::granted(file.addr()).filter(|_| armed()));
    for (place, number) in [aggregators, stripes].into_iter().zip(granted.unwrap_or([0; 2])) {
        if !place.is_null() {
            // SAFETY: not null, and a place for an int by this function's contract.
            unsafe { place.write(c_int::try_from(number).unwrap_or(c_int::MAX)) };
        }
    }
    if granted.is_some() { 0 } else { -1 }
}

/// Brings the record on disk up to date, so that `weir report` shows this process as it is now.
/// Returns 0, or -1 when there is no record.
#[unsafe(no_mangle)]
pub extern "C" fn weir_flush() -> c_int {
    shield(-1, || if armed() && profile::flush() { 0 } else { -1 })
}

/// Writes the table of MPI constants that Weir uses, a `NAME value` per line, and returns its length
/// without the final zero; what does not fit is cut off. For tests of the table against an `mpi.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_abi_table(out: *mut c_char, size: usize) -> usize {
    shield(0, || {
        let text = abi::current().describe();
        if !out.is_null() && size > 0 {
            let length = text.len().min(size - 1);
            // SAFETY: `out` has room for `size` bytes by this function's contract.
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), length);
                out.add(length).write(0);
            }
        }
        text.len()
    })
}
