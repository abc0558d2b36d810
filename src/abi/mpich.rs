//! The MPICH ABI: MPICH 3 and later, Intel MPI, MVAPICH, Cray MPICH. Handles are `int`s whose bits tell
//! kind and, for predefined datatypes, size.

use super::{Abi, Handle};
use weir_profile::layout;

pub(super) const ABI: Abi = Abi {
    kind: layout::Abi::Mpich,
    handle_bytes: 4,
    status_bytes: 20,
    status_error_offset: 16,
    comm_world: 0x4400_0000,
    comm_null: 0x0400_0000,
    request_null: 0x2c00_0000,
    info_null: 0x1c00_0000,
    file_null: 0,
    byte: 0x4c00_010d,
    status_ignore: 1,
    statuses_ignore: 1,
    undefined: -32766,
    mode_create: 1,
    mode_sequential: 256,
    err_intern: 16,
    predefined_size,
};

/// A builtin datatype is `0x4c00SSii`, with its size in the second byte.
fn predefined_size(datatype: Handle) -> u64 {
    if datatype & 0xffff_0000 == 0x4c00_0000 { (datatype as u64 >> 8) & 0xff } else { 0 }
}
