//! As much of MPI-IO as a checkpoint needs, over the C functions that rsmpi exposes.

use mpi::ffi::{self, MPI_File, MPI_Offset};
use mpi::traits::{AsRaw, Communicator, Equivalence};
use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;

/// An MPI error code.
#[derive(Debug)]
pub struct Error(c_int);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
        let mut length = 0;
        // SAFETY: the buffer is as large as MPI asks for.
        unsafe { ffi::MPI_Error_string(self.0, text.as_mut_ptr().cast(), &mut length) };
        f.write_str(&String::from_utf8_lossy(&text[..length as usize]))
    }
}

fn check(code: c_int) -> Result<(), Error> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(Error(code)) }
}

/// A file opened by all processes of a communicator.
pub struct File(MPI_File);

impl File {
    pub fn create(comm: &impl Communicator, name: &str) -> Result<Self, Error> {
        Self::open_with(comm, name, ffi::MPI_MODE_CREATE | ffi::MPI_MODE_WRONLY)
    }

    pub fn open(comm: &impl Communicator, name: &str) -> Result<Self, Error> {
        Self::open_with(comm, name, ffi::MPI_MODE_RDONLY)
    }

    fn open_with(comm: &impl Communicator, name: &str, mode: u32) -> Result<Self, Error> {
        let name = CString::new(name).expect("a file name has no zero bytes");
        let mut file = MaybeUninit::uninit();
        // SAFETY: `file` is set when the call succeeds.
        unsafe {
            check(ffi::MPI_File_open(
                comm.as_raw(),
                name.as_ptr(),
                mode as c_int,
                ffi::RSMPI_INFO_NULL,
                file.as_mut_ptr(),
            ))?;
            Ok(File(file.assume_init()))
        }
    }

    /// By this process alone.
    pub fn write_at<T: Equivalence>(&self, offset: u64, data: &[T]) -> Result<(), Error> {
        let (buffer, count) = (data.as_ptr().cast::<c_void>(), data.len() as c_int);
        // SAFETY: the buffer holds `count` elements of T, and the type is T's.
        check(unsafe {
            ffi::MPI_File_write_at(
                self.0,
                offset as MPI_Offset,
                buffer,
                count,
                T::equivalent_datatype().as_raw(),
                ffi::RSMPI_STATUS_IGNORE,
            )
        })
    }

    /// By all processes together.
    pub fn write_at_all<T: Equivalence>(&self, offset: u64, data: &[T]) -> Result<(), Error> {
        let (buffer, count) = (data.as_ptr().cast::<c_void>(), data.len() as c_int);
        // SAFETY: the buffer holds `count` elements of T, and the type is T's.
        check(unsafe {
            ffi::MPI_File_write_at_all(
                self.0,
                offset as MPI_Offset,
                buffer,
                count,
                T::equivalent_datatype().as_raw(),
                ffi::RSMPI_STATUS_IGNORE,
            )
        })
    }

    /// By all processes together.
    pub fn read_at_all<T: Equivalence>(&self, offset: u64, data: &mut [T]) -> Result<(), Error> {
        let (buffer, count) = (data.as_mut_ptr().cast::<c_void>(), data.len() as c_int);
        // SAFETY: the buffer has room for `count` elements of T, and the type is T's.
        check(unsafe {
            ffi::MPI_File_read_at_all(
                self.0,
                offset as MPI_Offset,
                buffer,
                count,
                T::equivalent_datatype().as_raw(),
                ffi::RSMPI_STATUS_IGNORE,
            )
        })
    }

    /// Closing can fail, and is collective: it is not left to the end of a scope.
    pub fn close(mut self) -> Result<(), Error> {
        // SAFETY: open, and not used again.
        check(unsafe { ffi::MPI_File_close(&mut self.0) })
    }
}
