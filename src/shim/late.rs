//! Functions of libraries that are loaded when they are needed.
//!
//! What is linked is loaded into every process that has Weir in its `LD_PRELOAD`, into each `ls` and `bash`,
//! and would cost them more than the rest of Weir. Rust needs libgcc_s to catch a panic, and a coordinator
//! computes powers and logarithms. So these functions are defined here, for this library alone, and lead
//! to the real ones. Nothing else changes: the same unwinder as everybody's in the process walks the same stack,
//! on which they leave no frame.

use super::dlsym::real_dlsym;
use super::wrap::c_name;
use crate::arch;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// Rows `module library: functions`, each such as [`arch::jumps`] can stand in for. `REAL` holds them in this order.
macro_rules! late {
    ($($module:ident $library:literal: $($name:literal)+;)+) => {$(
        mod $module {
            use super::*;
            const NAMES: &[&CStr] = &[$(c_name!($name)),+];
            pub(super) static REAL: [AtomicPtr<c_void>; NAMES.len()] =
                [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

            pub(super) extern "C" fn find() {
                find_all($library, NAMES, &REAL);
            }

            arch::jumps!(REAL, find, $($name)+);
        }
    )+};
}

late! {
    unwinder c"libgcc_s.so.1":
        "_Unwind_Backtrace"
        "_Unwind_DeleteException"
        "_Unwind_GetDataRelBase"
        "_Unwind_GetIP"
        "_Unwind_GetIPInfo"
        "_Unwind_GetLanguageSpecificData"
        "_Unwind_GetRegionStart"
        "_Unwind_GetTextRelBase"
        "_Unwind_RaiseException"
        "_Unwind_Resume"
        "_Unwind_SetGR"
        "_Unwind_SetIP";
    mathematics c"libm.so.6":
        "log10"
        "pow";
}

/// Stands in for what is not there: the answer of a raise that failed (`_URC_FATAL_PHASE1_ERROR`).
extern "C" fn absent() -> c_int {
    3
}

/// Cannot panic.
fn find_all(library: &CStr, names: &[&CStr], places: &[AtomicPtr<c_void>]) {
    // SAFETY: it stays loaded, like this library.
    let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NODELETE) };
    for (name, place) in names.iter().zip(places) {
        // SAFETY: a lookup by name in an open library.
        let found = if library.is_null() { library } else { unsafe { real_dlsym(library, name.as_ptr()) } };
        place.store(if found.is_null() { absent as *mut c_void } else { found }, Release);
    }
}

/// Whether a panic can be caught: without that there is no shield, and Weir stays inert.
pub(crate) fn unwinder_is_there() -> bool {
    if unwinder::REAL[0].load(Acquire).is_null() {
        unwinder::find();
    }
    unwinder::REAL.iter().all(|real| real.load(Relaxed) != absent as *mut c_void)
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_pass_unharmed() {
        // Opaque, so that the compiler does not compute them itself.
        let (two, ten) = (std::hint::black_box(2.0f64), std::hint::black_box(10.0f64));
        assert_eq!(two.powf(ten), 1024.0);
        assert_eq!(ten.powf(two).log10(), 2.0);
    }
}
