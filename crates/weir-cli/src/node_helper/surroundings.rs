//! What a process inherits from the program that started it, and must not keep.
//!
//! All signals came blocked and stay so: launchers send them to whatever is left of a job.

use std::os::fd::RawFd;

/// Lets go of the program's session, descriptors, directory, limits, processors and priority. The descriptors up to `last` are the
/// helper's own.
pub(super) fn leave_behind(last: RawFd) {
    // Not before: the rank waits until this program is executed, and the system may weigh sessions against each other.
    // SAFETY: no arguments.
    unsafe { libc::setsid() };
    close_all_behind(last);
    let _ = std::env::set_current_dir("/");
    for limit in [libc::RLIMIT_FSIZE, libc::RLIMIT_NOFILE, libc::RLIMIT_CPU, libc::RLIMIT_AS] {
        raise(limit);
    }
    // Where memory runs out, this is the process that can be done without.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // SAFETY: numbers for which zero is a value, that outlive the calls; what fails is left as it is.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut all));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &all);
        let ordinary = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary);
        libc::prctl(libc::PR_SET_NAME, c"weir-helper".as_ptr());
    }
}

/// The file mode creation mask, which can only be asked for by setting it.
pub(super) fn umask() -> u32 {
    // SAFETY: takes numbers; files that another thread makes in between are for the user alone.
    unsafe {
        let found = libc::umask(0o077);
        libc::umask(found);
        found
    }
}

fn close_all_behind(last: RawFd) {
    // SAFETY: descriptors that nobody in this process uses.
    if unsafe { libc::syscall(libc::SYS_close_range, last + 1, u32::MAX, 0) } == 0 {
        return;
    }
    // An older system.
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > last) {
        // SAFETY: as above; the directory that was read is closed already.
        unsafe { libc::close(fd) };
    }
}

/// To what this process may raise it to.
fn raise(limit: libc::__rlimit_resource_t) {
    // SAFETY: a valid place for the answer, and a valid limit.
    unsafe {
        let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(limit, &mut found) == 0 {
            found.rlim_cur = found.rlim_max;
            libc::setrlimit(limit, &found);
        }
    }
}
