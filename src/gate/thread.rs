//! A thread of ours in somebody else's program: its stack, its signals and its descriptors.

use crate::config;
use crate::shim::dlsym::real_dlsym;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// So much for a thread's own use: the C library takes what the program's thread-local variables need off the stack.
pub(super) fn stack_bytes(own_bytes: usize) -> usize {
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> libc::size_t;
    // SAFETY: a name that ends with a zero; the function of the C library has this type, and reads attributes that
    // were made just before.
    unsafe {
        let least = real_dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr());
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if least.is_null() || libc::pthread_attr_init(&mut attributes) != 0 {
            return own_bytes;
        }
        let least_bytes = std::mem::transmute::<*mut libc::c_void, Least>(least)(&attributes);
        libc::pthread_attr_destroy(&mut attributes);
        own_bytes + least_bytes
    }
}

/// The new thread starts with the signals blocked that its maker has blocked.
pub(super) fn with_signals_blocked<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: all-zero is a valid set, and the sets outlive the calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let answer = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        answer
    }
}

/// Gives this thread a table of descriptors of its own: the program may close any number it likes, and
/// its children inherit nothing of ours. Nothing of the program's is in it but standard error, if that is what it
/// was: it would stay open here after the program has closed it.
pub(super) fn own_descriptors() -> bool {
    const LAST: u32 = u32::MAX;
    // SAFETY: concerns this thread's own table alone, in which nothing is used yet.
    unsafe {
        // Where one is forbidden, as in some containers, the other may not be. Nothing is open so high.
        let is_own =
            libc::unshare(libc::CLONE_FILES) == 0 || close_range(LAST, LAST, libc::CLOSE_RANGE_UNSHARE) == 0;
        if !is_own || is_shared() {
            return false;
        }
        if close_range(3, LAST, 0) != 0 {
            // An older system.
            open_descriptors().into_iter().filter(|fd| *fd > 2).for_each(|fd| _ = libc::close(fd));
        }
        libc::close(0);
        libc::close(1);
        if !config::may_speak() {
            libc::close(2);
        }
    }
    true
}

/// Whether what this thread opens is seen in the program's table all the same: an emulator may have promised too much.
fn is_shared() -> bool {
    // Each pipe has a number of its own.
    let Ok((pipe, _)) = std::io::pipe() else { return true };
    let seen = |whose: &str| {
        let file = std::fs::metadata(format!("/proc/{whose}/fd/{}", pipe.as_raw_fd())).ok()?;
        Some((file.dev(), file.ino()))
    };
    seen("thread-self").is_some_and(|own| seen("self") == Some(own))
}

/// # Safety
/// Closes what the caller may close.
unsafe fn close_range(first: u32, last: u32, flags: libc::c_uint) -> libc::c_long {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }
}

fn open_descriptors() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/thread-self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
