//! `dlsym`: programs that fetch their MPI functions by name (mpi4py's wheel, Julia, ctypes) get ours.

use super::real::{self, Row};
use super::shield::shield;
use crate::arch;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// glibc's `dlsym`; the trampoline jumps through it.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn resolve() -> *mut c_void {
    let real = REAL.load(Relaxed);
    if !real.is_null() {
        return real;
    }
    for version in [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"] {
        // SAFETY: a lookup by name and version.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            REAL.store(found, Relaxed);
            return found;
        }
    }
    std::ptr::null_mut()
}

/// Calls glibc's `dlsym`, for ourselves.
///
/// # Safety
/// As for `dlsym`.
pub(crate) unsafe fn real_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let real = resolve();
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: glibc's dlsym has this type.
    let real: Dlsym = unsafe { std::mem::transmute(real) };
    // SAFETY: passed on.
    unsafe { real(handle, name) }
}

// Exported as `dlsym`. When it is not about MPI it jumps to the real one with the stack as it was:
// RTLD_NEXT looks at the return address to learn who asks.
arch::dlsym!(answer, REAL, NOBODY);

/// A name no library has.
static NOBODY: [u8; 32] = *b"an MPI that has not been loaded\0";

/// Let the real `dlsym` answer.
const PASS: *const () = std::ptr::null();
/// Say that there is no such symbol.
const NONE: *const () = std::ptr::without_provenance(1);

extern "C" fn answer(handle: *mut c_void, name: *const c_char) -> *const () {
    resolve();
    if name.is_null() || handle == libc::RTLD_NEXT {
        return PASS;
    }
    // SAFETY: `dlsym` is called with a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if !bytes.starts_with(b"MPI_") && !bytes.starts_with(b"PMPI_") {
        return PASS;
    }
    shield(PASS, || match row(name) {
        Some(row) => answer_row(row, handle, name),
        None => PASS,
    })
}

fn answer_row(row: &Row, handle: *mut c_void, name: &CStr) -> *const () {
    // SAFETY: as the program asked.
    let theirs = unsafe { real_dlsym(handle, name.as_ptr()) };
    if theirs.is_null() {
        return PASS;
    }
    if std::ptr::eq(theirs, row.wrapper.cast()) {
        // Ours was found because it is preloaded: that alone does not mean that there is an MPI.
        return if real::find(name).is_null() { NONE } else { row.wrapper };
    }
    if std::ptr::eq(row.slot.get(), row.stub.cast()) {
        real::pin(theirs);
        row.slot.set(theirs);
    }
    row.wrapper
}

/// The wrapper of that name.
pub(crate) fn row(name: &CStr) -> Option<&'static Row> {
    [super::mpi::DATA_ROWS, super::mpi::FILE_ROWS, super::requests::ROWS, super::special::ROWS]
        .into_iter()
        .flat_map(|rows| rows.iter())
        .find(|row| row.name == name)
}
