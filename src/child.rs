//! A child that a rank has forked and that goes on as the same program: its I/O is counted in a record of its own, as its parent's
//! rank, and never held back.
//!
//! Only if no other thread of the parent was within one of Weir's locks when it forked: nobody would ever unlock it in the child, which
//! is inert then. A child that becomes another program (`exec`) before it does any I/O leaves nothing.

use crate::lifecycle::{self, INERT, STATE};
use crate::shim::caller::{Caller, Thread};
use crate::shim::shield::keeping_errno;
use crate::{config, gate, heap, measure, profile, shim};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use std::sync::{Mutex, RwLock, TryLockError};

/// The process of the rank that forked this one, or one of its parents; 0 in a rank.
static RANK: AtomicU32 = AtomicU32::new(0);

/// The process of the rank that forked this one, or one of its parents; 0 in a rank.
pub(crate) fn rank_process() -> u32 {
    RANK.load(Relaxed)
}

pub(crate) fn is_one() -> bool {
    rank_process() != 0
}

/// A page that a rank shares with all it forks: 1 when the rank has come to `MPI_Finalize`. Null before the first `fork`.
static SHARED: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

fn shared() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a page that is never unmapped.
    unsafe { SHARED.load(Acquire).as_ref() }
}

/// Runs in the parent before `fork`.
pub(crate) extern "C" fn about_to_fork() {
    if lifecycle::armed() && shared().is_none() {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // By the system call itself: `mmap` may be somebody's.
        // SAFETY: new memory, of nobody's before.
        let page = keeping_errno(|| unsafe {
            libc::syscall(libc::SYS_mmap, 0usize, 4096usize, access, flags, -1, 0usize)
        });
        if page != -1 {
            SHARED.store(std::ptr::with_exposed_provenance_mut(page as usize), Release);
        }
    }
}

/// The rank is about to finalise MPI: its records will be merged.
pub(crate) fn rank_ends() {
    if let Some(ended) = shared() {
        ended.store(1, Release);
    }
}

/// Whether this process may begin a record: a child whose rank is at its end would leave one that nobody merges.
pub(crate) fn may_begin() -> bool {
    let rank_lives = || {
        // SAFETY: sends nothing.
        keeping_errno(|| unsafe { libc::kill(rank_process() as libc::pid_t, 0) == 0 })
    };
    !is_one() || shared().is_some_and(|ended| ended.load(Acquire) == 0) && rank_lives()
}

/// This process is about to become a rank of its own, or once more a rank.
pub(crate) fn becomes_rank() {
    if let Some(ended) = shared().filter(|_| !is_one()) {
        ended.store(0, Release);
    }
    if RANK.swap(0, Relaxed) != 0 {
        SHARED.store(std::ptr::null_mut(), Release);
        STATE.store(INERT, Release);
    }
}

/// Runs in the child before `fork` returns there. The MPI library's own children are not the program's.
pub(crate) extern "C" fn forked() {
    let goes_on = lifecycle::armed() && Thread::current().caller.get() == Caller::App;
    STATE.store(INERT, Relaxed);
    heap::after_fork();
    lifecycle::forget_inits();
    gate::forget();
    measure::forget();
    if goes_on && are_locks_free() {
        measure::leave_parent();
        shim::posix::forget_asynchronous();
        profile::is_forked();
        if !is_one() {
            // SAFETY: asks for a number.
            RANK.store(u32::try_from(unsafe { libc::getppid() }).unwrap_or(1), Relaxed);
        }
        lifecycle::rearm();
    }
}

/// Whether nobody is within any of the locks that a process without gate may take.
fn are_locks_free() -> bool {
    measure::are_locks_free()
        && config::is_lock_free()
        && profile::is_lock_free()
        && lifecycle::are_locks_free()
        && shim::posix::is_lock_free()
}

pub(crate) fn is_free<T>(lock: &Mutex<T>) -> bool {
    !matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

/// Whether it is neither read nor written.
pub(crate) fn is_unused<T>(lock: &RwLock<T>) -> bool {
    !matches!(lock.try_write(), Err(TryLockError::WouldBlock))
}
