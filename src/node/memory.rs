//! Memory that others can share, in which no store can fail.
//!
//! It has no name in any file system: nothing there can become full, be shut down, frozen or emptied beneath it. Its size is
//! sealed, so that nobody who has a descriptor of it can take pages away, and pages are given to it before they are used.

use crate::profile;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};

/// New memory of that many bytes, a multiple of the page's: zeros, none of which has a page yet.
pub(crate) fn sealed(bytes: usize) -> Result<OwnedFd> {
    // The limit on file sizes counts here too, and exceeding it would end the process.
    if profile::file_size_limit() < bytes as u64 {
        return Err(Error::from_raw_os_error(libc::EFBIG));
    }
    weir_profile::memory::sealed(bytes as u64)
}

/// Maps so much of it, to read and to write; or memory of this process alone. It is never unmapped.
pub(crate) fn map(memory: Option<&OwnedFd>, bytes: usize) -> Option<*mut u8> {
    let flags = match memory {
        Some(_) => libc::MAP_SHARED | libc::MAP_NORESERVE,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    };
    let fd = memory.map_or(-1, AsRawFd::as_raw_fd);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// 4 KiB on x86-64, up to 64 KiB on aarch64.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: asks for a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(64 << 10)
}

/// Has the system give pages to a part that begins and ends with one. Where there is no memory, a store of this process's would
/// end it (SIGBUS); one that the kernel makes for it only fails.
///
/// # Safety
/// The part is mapped, and nobody has used it yet: it is zero, and is zero again afterwards.
pub(crate) unsafe fn back(start: *mut u8, bytes: usize) -> bool {
    let page = page_bytes();
    (0..bytes / page).all(|number| {
        // The kernel stores which signals are blocked: a call that does nothing else, and that is never forbidden.
        // SAFETY: within the part, which has room for it.
        unsafe {
            let at = start.add(number * page).cast::<u64>();
            let none = std::ptr::null::<u64>();
            let stored =
                libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, at, size_of::<u64>()) == 0;
            if stored {
                at.write_volatile(0);
            }
            stored
        }
    })
}

/// Whether the system has pages for so much of memory that others may use already. What is there stays as it is.
pub(crate) fn has_room(memory: &OwnedFd, bytes: usize) -> bool {
    // SAFETY: our own descriptor. Pages that are there keep what is in them.
    let has_room = || unsafe { libc::fallocate(memory.as_raw_fd(), 0, 0, bytes as libc::off_t) == 0 };
    // A signal may interrupt it.
    has_room() || (Error::last_os_error().kind() == ErrorKind::Interrupted && has_room())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_take_pages_away() {
        let page = page_bytes();
        let memory = sealed(4 * page).unwrap();
        let at = map(Some(&memory), 4 * page).unwrap();
        // SAFETY: mapped just now.
        unsafe {
            assert!(back(at.add(page), 2 * page));
            assert!(std::slice::from_raw_parts(at, 4 * page).iter().all(|byte| *byte == 0));
            for bytes in [0, 8 * page] {
                assert!(libc::ftruncate(memory.as_raw_fd(), bytes as libc::off_t) != 0);
            }
        }
    }

    #[test]
    fn where_there_is_no_page_to_be_had_the_answer_is_no() {
        let page = page_bytes();
        // A mapping that is longer than what is behind it: stores beyond the end raise SIGBUS.
        let memory = sealed(page).unwrap();
        let at = map(Some(&memory), 2 * page).unwrap();
        // SAFETY: mapped just now.
        unsafe {
            assert!(back(at, page));
            assert!(!back(at, 2 * page));
        }
    }
}
