//! Memory that processes can share and that has no name in any file system.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// For what nobody executes; older systems do not know it, newer ones may insist on it.
const MFD_NOEXEC_SEAL: libc::c_uint = 8;

/// New memory of that many bytes: zeros, none of which has a page yet. The size is sealed, so that nobody who has a descriptor of it can
/// take pages away from those who have mapped it. A limit on file sizes counts here too (SIGXFSZ).
pub fn sealed(bytes: u64) -> Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let memory = create(flags | MFD_NOEXEC_SEAL).or_else(|_| create(flags))?;
    let fd = memory.as_raw_fd();
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: our own descriptor.
    let is_sealed = unsafe {
        libc::ftruncate(fd, bytes as libc::off_t) == 0 && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
    };
    if is_sealed { Ok(memory) } else { Err(Error::last_os_error()) }
}

fn create(flags: libc::c_uint) -> Result<OwnedFd> {
    // By the system call: the C library's own function is younger than some systems.
    // SAFETY: a name that ends with a zero.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, c"weir".as_ptr(), flags) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: made just now, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
