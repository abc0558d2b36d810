//! Open MPI's ABI: handles are addresses of structures, the predefined ones those of public symbols.

use super::{Abi, Handle};
use std::ffi::CStr;
use weir_profile::layout;

/// The table, when the symbols are there: then this is Open MPI.
pub(super) fn abi(address_of: impl Fn(&CStr) -> Handle) -> Option<Abi> {
    let symbol = |name: &CStr| Some(address_of(name)).filter(|address| *address != 0);
    Some(Abi {
        kind: layout::Abi::OpenMpi,
        handle_bytes: 8,
        status_bytes: 24,
        status_error_offset: 8,
        comm_world: symbol(c"ompi_mpi_comm_world")?,
        comm_null: symbol(c"ompi_mpi_comm_null")?,
        request_null: symbol(c"ompi_request_null")?,
        info_null: symbol(c"ompi_mpi_info_null")?,
        file_null: symbol(c"ompi_mpi_file_null")?,
        byte: symbol(c"ompi_mpi_byte")?,
        status_ignore: 0,
        statuses_ignore: 0,
        undefined: -32766,
        mode_create: 1,
        mode_sequential: 256,
        err_intern: 17,
        predefined_size: |_| 0,
    })
}
