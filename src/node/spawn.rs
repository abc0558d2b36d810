//! Starting the helper process out of a program that is none of ours.
//!
//! The program may be large, with pinned memory and many threads: its page tables are not copied. So the process that becomes the
//! helper shares the program's memory until its `exec`, as a child of `vfork` does, and makes nothing but system calls; the calling
//! thread sleeps meanwhile. The program must not meet a child that it did not make: the child of ours that it could meet ends at
//! once, without a signal, and only a `wait` that asks for such children sees it; the helper is that one's child, and so becomes a
//! child of the system's first process (or of whoever has asked for orphans).
//!
//! The helper's own process makes the socket on which it listens: the program's table of descriptors never has it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use weir_profile::helper::SOCKET_KIND;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It runs, and listens.
    Started,
    /// Somebody else listens at the address.
    Taken,
    Failed,
}

/// What the new process needs, made before it is: it may not allocate.
struct Plan {
    address: libc::sockaddr_un,
    address_bytes: libc::socklen_t,
    programs: Vec<*const c_char>,
    arguments: [*const c_char; 4],
    environment: [*const c_char; 1],
    second_stack: *mut c_void,
    /// Why there is no helper; stored by the process that was to become it.
    failure: c_int,
}

const STACK_BYTES: usize = 64 << 10;
/// The number that the helper expects its socket to have.
const LISTENER: c_int = 3;
/// More than any node has ranks; the system may allow less.
const BACKLOG: c_int = 4096;

/// Exit codes of the processes on the way.
const STARTED: c_int = 0;
const TAKEN: c_int = 1;
const FAILED: c_int = 2;

/// Starts the first of these programs that can be executed as the helper of a job, listening at an address.
pub(super) fn start(
    address: (libc::sockaddr_un, libc::socklen_t),
    programs: &[CString],
    job: &CString,
) -> Outcome {
    let Some(stacks) = Stacks::map() else { return Outcome::Failed };
    let mut plan = Plan {
        address: address.0,
        address_bytes: address.1,
        programs: programs.iter().map(|program| program.as_ptr()).collect(),
        arguments: [c"weir".as_ptr(), c"node-helper".as_ptr(), job.as_ptr(), null()],
        environment: [null()],
        second_stack: stacks.top(2),
        failure: STARTED,
    };
    with_signals_blocked(|| {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        // SAFETY: a function that makes system calls only, on a stack of its own, while this thread sleeps. Without a signal at
        // its end, it is no child that the program waits for.
        let first = unsafe { libc::clone(become_parent, stacks.top(1), flags, (&raw mut plan).cast()) };
        if first < 0 {
            return Outcome::Failed;
        }
        let mut status = 0;
        // SAFETY: our own child; a place for the answer.
        let waited = unsafe { libc::waitpid(first, &mut status, libc::__WCLONE) };
        match libc::WEXITSTATUS(status) {
            // Somebody has waited for all there is, of any kind: what became of it is seen when it is called.
            _ if waited != first => Outcome::Started,
            STARTED if libc::WIFEXITED(status) => Outcome::Started,
            TAKEN => Outcome::Taken,
            _ => Outcome::Failed,
        }
    })
}

/// No handler of the program's may run in a process that shares its memory. By the system call, for the C library never blocks the
/// signals that it uses itself. The helper begins with all of them blocked, and leaves it so.
fn with_signals_blocked<R>(work: impl FnOnce() -> R) -> R {
    let (all, mut before) = (u64::MAX, 0u64);
    let set = |new: *const u64, old: *mut u64| {
        // SAFETY: sets of the kernel's own size.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<u64>()) };
    };
    set(&all, &mut before);
    let answer = work();
    set(&before, null_mut());
    answer
}

/// Two stacks, for as long as there are processes on them.
struct Stacks(*mut c_void);

impl Stacks {
    fn map() -> Option<Stacks> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a fresh mapping.
        let at = unsafe { libc::mmap(null_mut(), 2 * STACK_BYTES, access, flags, -1, 0) };
        (at != libc::MAP_FAILED).then_some(Stacks(at))
    }

    /// Where the first or the second begins: they grow downwards.
    fn top(&self, number: usize) -> *mut c_void {
        self.0.wrapping_byte_add(number * STACK_BYTES)
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // SAFETY: mapped above; nobody is on them any more.
        unsafe { libc::munmap(self.0, 2 * STACK_BYTES) };
    }
}

/// The child that the program could meet: it has one of its own, and ends when that has become the helper.
extern "C" fn become_parent(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes a plan, and sleeps; all else is as there.
    unsafe {
        let stack = (*plan.cast::<Plan>()).second_stack;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let second = libc::clone(become_helper, stack, flags, plan);
        if second < 0 {
            return FAILED;
        }
        // It sleeps no longer than until the other executes or is about to end; where memory is not really shared (emulators),
        // until the other exists.
        let failure = (&raw const (*plan.cast::<Plan>()).failure).read_volatile();
        let flags = if failure == STARTED { libc::WNOHANG } else { 0 };
        let mut status: c_int = 0;
        let nobody = null_mut::<c_void>();
        let gone = libc::syscall(libc::SYS_wait4, second, &raw mut status, flags, nobody);
        if gone == second as libc::c_long { libc::WEXITSTATUS(status) } else { failure }
    }
}

/// Comes back only if it fails.
extern "C" fn become_helper(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes a plan, and sleeps.
    unsafe {
        let failure = execute(&*plan.cast::<Plan>());
        (&raw mut (*plan.cast::<Plan>()).failure).write_volatile(failure);
        failure
    }
}

/// # Safety
/// In a process of its own: its descriptors become the helper's.
unsafe fn execute(plan: &Plan) -> c_int {
    // SAFETY: system calls only; the table of descriptors is this process's own.
    unsafe {
        let socket = libc::syscall(libc::SYS_socket, libc::AF_UNIX, SOCKET_KIND, 0) as c_int;
        if socket < 0 {
            return FAILED;
        }
        if libc::syscall(libc::SYS_bind, socket, &raw const plan.address, plan.address_bytes) != 0 {
            return if *libc::__errno_location() == libc::EADDRINUSE { TAKEN } else { FAILED };
        }
        if libc::syscall(libc::SYS_listen, socket, BACKLOG) != 0 {
            return FAILED;
        }
        // Above all numbers that are about to be taken.
        let socket = libc::syscall(libc::SYS_fcntl, socket, libc::F_DUPFD_CLOEXEC, 16) as c_int;
        let nothing =
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR) as c_int;
        if socket < 0 || nothing < 0 {
            return FAILED;
        }
        for number in 0..LISTENER {
            if number != nothing {
                libc::syscall(libc::SYS_dup3, nothing, number, 0);
            }
        }
        libc::syscall(libc::SYS_dup3, socket, LISTENER, 0);
        // An older system leaves that to the helper.
        libc::syscall(libc::SYS_close_range, LISTENER + 1, u32::MAX, 0);
        for program in &plan.programs {
            libc::syscall(libc::SYS_execve, *program, plan.arguments.as_ptr(), plan.environment.as_ptr());
        }
        FAILED
    }
}
