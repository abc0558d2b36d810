//! The unwinder, found when it is needed.
//!
//! A panic that is to be caught needs libgcc_s. Linked, it would be loaded into every process that has
//! Weir in its `LD_PRELOAD`, into each `ls` and `bash`, which costs them more than the rest of Weir. So the
//! functions Rust wants of it are defined here, for this library alone, and lead to the real ones from the
//! time Weir is armed. Nothing else changes: the same unwinder as everybody's in the process walks the same
//! stack, on which these functions leave no frame.

use super::dlsym::real_dlsym;
use std::arch::global_asm;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// Rows: what Rust's runtime calls. `REAL` holds the functions in this order.
macro_rules! forward {
    ($($name:literal)+) => {
        const NAMES: &[&CStr] = &[$(super::wrap::c_name!($name)),+];
        static REAL: [AtomicPtr<c_void>; NAMES.len()] =
            [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];
        global_asm!(
            ".pushsection .text.weir_unwind,\"ax\",@progbits",
            ".set weir_unwind_at, 0",
            $(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                "cmp qword ptr [rip + {real} + weir_unwind_at], 0",
                "jne 2f",
                // None of them takes more than three arguments.
                "push rdi",
                "push rsi",
                "push rdx",
                "call {find}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "2:",
                "jmp qword ptr [rip + {real} + weir_unwind_at]",
                concat!(".size ", $name, ", . - ", $name),
                ".set weir_unwind_at, weir_unwind_at + 8",
            )+
            ".popsection",
            real = sym REAL,
            find = sym find,
        );
    };
}

forward! {
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
    "_Unwind_SetIP"
}

/// Stands in for each of them where there is no libgcc_s: the answer of a raise that failed
/// (`_URC_FATAL_PHASE1_ERROR`).
extern "C" fn absent() -> c_int {
    3
}

/// Looks for all of them. Cannot panic.
extern "C" fn find() {
    // SAFETY: it stays loaded, like this library.
    let library = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NODELETE) };
    for (name, real) in NAMES.iter().zip(&REAL) {
        // SAFETY: a lookup by name in an open library.
        let found = if library.is_null() { library } else { unsafe { real_dlsym(library, name.as_ptr()) } };
        real.store(if found.is_null() { absent as *mut c_void } else { found }, Release);
    }
}

/// Whether a panic can be caught: without that there is no shield, and Weir stays inert.
pub(crate) fn is_there() -> bool {
    if REAL[0].load(Acquire).is_null() {
        find();
    }
    REAL.iter().all(|real| real.load(Relaxed) != absent as *mut c_void)
}
