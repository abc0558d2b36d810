//! Compares what a preloaded `libweir.so` takes for granted with rsmpi's view of this MPI.

use mpi::ffi;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::process::ExitCode;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A handle or an address as a number, whatever its size.
fn word<T: Copy>(value: T) -> i64 {
    let mut bytes = [0u8; 8];
    let size = size_of::<T>();
    assert!(size <= 8);
    // SAFETY: `size` bytes of a plain value, into a buffer that holds them.
    unsafe { std::ptr::copy_nonoverlapping((&raw const value).cast(), bytes.as_mut_ptr(), size) };
    i64::from_le_bytes(bytes)
}

/// What rsmpi knows. MPI_BYTE and the error classes it leaves to the header.
fn known() -> Vec<(&'static str, i64)> {
    // SAFETY: constants that the C side of rsmpi has initialised.
    unsafe {
        vec![
            ("sizeof_MPI_Request", size_of::<ffi::MPI_Request>() as i64),
            ("sizeof_MPI_Comm", size_of::<ffi::MPI_Comm>() as i64),
            ("sizeof_MPI_Status", size_of::<ffi::MPI_Status>() as i64),
            ("MPI_COMM_WORLD", word(ffi::RSMPI_COMM_WORLD)),
            ("MPI_COMM_NULL", word(ffi::RSMPI_COMM_NULL)),
            ("MPI_REQUEST_NULL", word(ffi::RSMPI_REQUEST_NULL)),
            ("MPI_INFO_NULL", word(ffi::RSMPI_INFO_NULL)),
            ("MPI_FILE_NULL", word(ffi::RSMPI_FILE_NULL)),
            ("MPI_STATUS_IGNORE", word(ffi::RSMPI_STATUS_IGNORE)),
            ("MPI_STATUSES_IGNORE", word(ffi::RSMPI_STATUSES_IGNORE)),
            ("MPI_UNDEFINED", ffi::RSMPI_UNDEFINED as i64),
            ("MPI_ERR_INTERN", ffi::MPI_ERR_INTERN as i64),
        ]
    }
}

fn parse(value: &str) -> Option<i64> {
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(|v| v as i64),
        None => value.parse().ok(),
    }
}

fn main() -> ExitCode {
    let _universe = mpi::initialize().expect("MPI was not initialised before");
    // SAFETY: a lookup by name in the default scope.
    let found = unsafe { dlsym(std::ptr::null_mut(), c"weir_abi_table".as_ptr()) };
    if found.is_null() {
        eprintln!("abi: libweir.so is not here");
        return ExitCode::FAILURE;
    }
    let mut text = [0u8; 8192];
    // SAFETY: the library's function of this name has this type.
    unsafe {
        let describe: extern "C" fn(*mut c_char, usize) -> c_int = std::mem::transmute(found);
        describe(text.as_mut_ptr().cast(), text.len());
    }
    let table = CStr::from_bytes_until_nul(&text).expect("the table ends").to_string_lossy().into_owned();
    let theirs =
        |name: &str| table.lines().find_map(|line| parse(line.strip_prefix(name)?.strip_prefix(' ')?));
    let mut wrong = 0;
    for (name, ours) in known() {
        if theirs(name) != Some(ours) {
            eprintln!("abi: {name} is {ours:#x}, Weir has {:x?}", theirs(name));
            wrong += 1;
        }
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
