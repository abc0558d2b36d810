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
use std::ffi::{CStr, c_char, c_double, c_int};
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
        gate::phase_begins();
        0
    })
}

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
