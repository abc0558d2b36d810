//! How ranks ended, as far as it can be told from here.

use crate::layout::Ended;
use crate::node::Process;
use crate::profile::{Fate, Rank};
use crate::record::Head;
use std::borrow::Cow;
use std::fs;

/// Where the question is asked from, and what is known about the job as a whole.
pub(crate) struct Observer {
    host: String,
    /// The launcher has ended: whoever did not say how it ended was killed.
    job_over: bool,
}

impl Observer {
    pub(crate) fn new(job_over: bool) -> Self {
        Observer { host: host(), job_over }
    }

    /// How the process of a record ended, and whether more is to be expected of the record: the process lives, or the helper
    /// process of its node has not said its last word.
    pub(crate) fn fate(&self, head: &Head, kept_by: Option<KeptBy>) -> (Fate, bool) {
        let (fate, is_open) = self.fate_of_process(head, kept_by);
        // Nobody waits for the children of ranks, which may outlive them.
        (fate, is_open && !head.is_child)
    }

    fn fate_of_process(&self, head: &Head, kept_by: Option<KeptBy>) -> (Fate, bool) {
        let is_here = head.host == self.host;
        let lives = || is_here && lives(Process { pid: head.pid, start: head.process_start });
        let fate = match head.ended {
            Ended::Finalized => Fate::Finalized,
            Ended::Exited => Fate::Exited,
            Ended::Aborted => Fate::Aborted,
            Ended::Signalled => Fate::Signalled,
            Ended::Replaced => Fate::Replaced,
            Ended::Running => match kept_by {
                Some(KeptBy { is_gone: true, .. }) => Fate::Killed,
                _ if lives() => return (Fate::Running, true),
                Some(KeptBy { helper, .. }) if is_here => return (Fate::Killed, crate::fate::lives(helper)),
                None if is_here => Fate::Killed,
                _ => {
                    let fate = if self.job_over { Fate::Killed } else { Fate::Unknown };
                    return (fate, kept_by.is_some());
                }
            },
        };
        (fate, false)
    }
}

/// Where a record of a node's file comes from.
#[derive(Clone, Copy)]
pub(crate) struct KeptBy {
    pub(crate) helper: Process,
    /// The helper process saw that the record's process was gone.
    pub(crate) is_gone: bool,
}

/// The name of this machine.
pub fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: a buffer and its size.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Whether the process lives on this machine. One that has ended but was not waited for does not.
fn lives(process: Process) -> bool {
    let Some((state, start)) = stat(process.pid) else { return false };
    !matches!(state, b'Z' | b'X') && (process.start == 0 || process.start == start)
}

/// When a process started, in the kernel's ticks since boot; 0 when that cannot be told.
pub fn start_of(pid: u64) -> u64 {
    stat(pid).map_or(0, |(_, start)| start)
}

/// State and start of a process.
fn stat(pid: u64) -> Option<(u8, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((*fields.next()?.as_bytes().first()?, fields.nth(18)?.parse().ok()?))
}

/// Name of a signal as `kill -l` gives it.
pub(crate) fn signal_name(number: i32) -> Cow<'static, str> {
    Cow::Borrowed(match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        other => return Cow::Owned(format!("SIG{other}")),
    })
}

/// What a person is told about how a rank ended.
pub fn describe(rank: &Rank) -> String {
    let mut text = format!("rank {}", rank.rank);
    if let Some(signal) = &rank.signal {
        text += &format!(", {signal}");
    }
    if let Some(code) = rank.code {
        text += &format!(", code {code}");
    }
    text
}

/// How the job ended: `finalized` if all that did I/O did, or the worst end of a rank with whose it was. When one rank fails
/// the launcher ends the others with SIGTERM or SIGKILL, so a fault of the program's own outweighs
/// those, and of equals the one that ended first is the cause.
pub(crate) fn job_ended(ranks: &[(Rank, u64)]) -> String {
    let severity = |rank: &Rank| {
        let fault = matches!(
            rank.signal.as_deref(),
            Some("SIGSEGV" | "SIGBUS" | "SIGFPE" | "SIGILL" | "SIGABRT" | "SIGSYS" | "SIGXCPU" | "SIGXFSZ")
        );
        (fault, rank.ended)
    };
    let worst = ranks.iter().max_by(|(a, a_end), (b, b_end)| {
        severity(a).cmp(&severity(b)).then(b_end.cmp(a_end)).then(b.rank.cmp(&a.rank))
    });
    let Some((worst, _)) = worst.filter(|(worst, _)| worst.ended > Fate::Idle) else {
        return Fate::Finalized.name().into();
    };
    let alike = ranks.iter().filter(|(rank, _)| rank.ended == worst.ended).count();
    let of_all = format!("{alike} of {} ranks", ranks.len());
    match (worst.ended, alike) {
        (_, 1) => format!("{}: {}", worst.ended.name(), describe(worst)),
        // Who was killed first cannot be told.
        (Fate::Killed, _) => format!("{}: {of_all}", worst.ended.name()),
        _ => format!("{}: {} ({of_all})", worst.ended.name(), describe(worst)),
    }
}
