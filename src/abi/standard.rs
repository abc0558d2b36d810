//! The ABI of the MPI-5 standard (`libmpi_abi.so`): handles are addresses, the predefined ones small
//! numbers; those of datatypes of a fixed size carry the size in their bits.

use super::{Abi, Handle};
use weir_profile::layout;

pub(super) const ABI: Abi = Abi {
    kind: layout::Abi::Standard,
    handle_bytes: 8,
    status_bytes: 32,
    status_error_offset: 8,
    comm_world: 0x101,
    comm_null: 0x100,
    request_null: 0x180,
    info_null: 0x130,
    file_null: 0x118,
    byte: 0x247,
    status_ignore: 0,
    statuses_ignore: 0,
    undefined: -32766,
    mode_create: 2,
    mode_sequential: 64,
    err_intern: 17,
    predefined_size,
};

/// A predefined datatype of fixed size is `0b10_01sss_xxx`, with `2^sss` bytes (MPI 5.0, appendix A.1.1).
fn predefined_size(datatype: Handle) -> u64 {
    if datatype & !0x3f == 0x240 { 1 << ((datatype >> 3) & 7) } else { 0 }
}
