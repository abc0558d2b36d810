//! How ranks ended, as far as it can be told from here.

use crate::layout::Ended;
use crate::profile::{Fate, Rank};
use crate::record::Head;
use std::borrow::Cow;
use std::fs;
use std::path::Path;

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

    pub(crate) fn fate(&self, head: &Head, record: &Path) -> Fate {
        match head.ended {
            Ended::Finalized => Fate::Finalized,
            Ended::Exited => Fate::Exited,
            Ended::Aborted => Fate::Aborted,
            Ended::Signalled => Fate::Signalled,
            Ended::Replaced => Fate::Replaced,
            Ended::Running if head.host == self.host => {
                if has_mapped(head.pid, record) {
                    Fate::Running
                } else {
                    Fate::Killed
                }
            }
            Ended::Running if self.job_over => Fate::Killed,
            Ended::Running => Fate::Unknown,
        }
    }
}

/// The name of this machine.
pub fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: a buffer and its size.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Whether the process lives and has the record mapped; a process that got the same number later has
/// not. One whose mappings may not be read is taken to be the one.
fn has_mapped(pid: u64, record: &Path) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    match (fs::read(process.join("maps")), record.file_name()) {
        (Ok(maps), Some(name)) => {
            let name = name.as_encoded_bytes();
            // A process that has ended but was not waited for has no mappings left.
            maps.windows(name.len()).any(|window| window == name)
        }
        _ => process.exists(),
    }
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
