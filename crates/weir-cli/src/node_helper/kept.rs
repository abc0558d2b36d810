//! A record that the helper keeps, and the process it belongs to.

use std::fs::File;
use std::io::{Error, Result};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::*};
use weir_profile::layout::{Ended, Header, Kept as Stage, UMASK_KNOWN};
use weir_profile::node::{Leaf, Process};
use weir_profile::process_start;

/// Which file a record goes to: one for each launch and `WEIR_DIR`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sheet {
    pub(super) directory: PathBuf,
    pub(super) launch: u64,
}

pub(super) struct Kept {
    memory: File,
    name: String,
    pub(super) sheet: Sheet,
    pub(super) process: Process,
    /// Becomes readable when the process is gone; older systems have none.
    watch: Option<OwnedFd>,
    is_gone: AtomicBool,
    is_on_disk: AtomicBool,
    /// The process of the rank that forked this one; 0 for a rank.
    child_of: u64,
}

/// `SO_PEERPIDFD`, which `libc` does not know yet.
const SO_PEERPIDFD: libc::c_int = 77;

impl Kept {
    /// `socket` is the connection of the process that hands the memory over, `umask` what the helper has inherited from the program.
    pub(super) fn new(
        memory: OwnedFd,
        name: String,
        sheet: Sheet,
        pid: libc::pid_t,
        socket: &OwnedFd,
        umask: u32,
    ) -> Result<Kept> {
        let memory = File::from(memory);
        let process = Process { pid: pid as u64, start: process_start(pid as u64) };
        let watch = watch_peer(socket).or_else(|| watch_process(pid));
        let (is_gone, is_on_disk) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut kept = Kept { memory, name, sheet, process, watch, is_gone, is_on_disk, child_of: 0 };
        kept.child_of = kept.load(offset_of!(Header, child_of))?;
        kept.store(offset_of!(Header, umask), UMASK_KNOWN | u64::from(umask))?;
        kept.tell(Stage::InMemory)?;
        Ok(kept)
    }

    fn store(&self, at: usize, word: u64) -> Result<()> {
        self.memory.write_all_at(&word.to_le_bytes(), at as u64)
    }

    fn load(&self, at: usize) -> Result<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, at as u64)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Whether a rank has forked the process.
    pub(super) fn is_child(&self) -> bool {
        self.child_of != 0
    }

    /// Whether the helper stays for it: for a rank that lives, and for the rank of a child, which may fork others. Not for a child that has
    /// outlived its rank.
    pub(super) fn is_waited_for(&self) -> bool {
        if self.is_child() { exists(self.child_of) } else { !self.is_gone() }
    }

    /// Notes how many children of ranks left records that were not kept.
    pub(super) fn note_lost_children(&self, count: u64) {
        // Memory of this process's own: it does not fail.
        let _ = self.store(offset_of!(Header, lost_children), count);
    }

    /// Tells the process how far its record has got.
    pub(super) fn tell(&self, stage: Stage) -> Result<()> {
        self.is_on_disk.store(stage == Stage::OnDisk, Release);
        self.store(offset_of!(Header, kept), stage as u64)
    }

    /// Whether `WEIR_DIR` has seen it.
    pub(super) fn is_on_disk(&self) -> bool {
        self.is_on_disk.load(Acquire)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The record as it is now.
    pub(super) fn read(&self) -> std::result::Result<Leaf, String> {
        // In this order: what a process did before it was seen to be gone is in the record.
        let is_gone = self.is_gone();
        Leaf::read(self.name.clone(), &self.memory, is_gone)
    }

    pub(super) fn watch(&self) -> Option<RawFd> {
        self.watch.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Acquire)
    }

    /// Looks whether the process is gone; `true` when that is news.
    pub(super) fn look(&self) -> bool {
        if self.is_gone() {
            return false;
        }
        let is_gone = match self.watch() {
            Some(fd) => is_readable(fd),
            // One that had ended before it could be looked at has no start.
            None if self.process.start == 0 => !exists(self.process.pid),
            None => process_start(self.process.pid) != self.process.start,
        };
        self.is_gone.store(is_gone, Release);
        is_gone
    }

    /// Whether nothing more will come: its process has marked its end, or is gone.
    pub(super) fn is_over(&self) -> bool {
        self.is_gone() || self.load(offset_of!(Header, ended)).ok() != Some(Ended::Running as u64)
    }
}

fn watch_peer(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut fd: RawFd = -1;
    let mut length = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: a place for the answer, and its size; the descriptor is new, and nobody else's.
    unsafe {
        let place = (&raw mut fd).cast();
        let answer = libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, place, &mut length);
        (answer == 0 && fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// The process is alive as long as it waits in a connection; it may have ended since.
fn watch_process(pid: libc::pid_t) -> Option<OwnedFd> {
    // SAFETY: no pointers; the descriptor is new, and nobody else's.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as RawFd;
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

fn exists(pid: u64) -> bool {
    // SAFETY: sends nothing.
    let answer = unsafe { libc::kill(pid as libc::pid_t, 0) };
    answer == 0 || Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

pub(super) fn is_readable(fd: RawFd) -> bool {
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut wanted, 1, 0) > 0 }
}

/// A pair of which one end wakes the other.
pub(super) fn wake_pair() -> Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are new.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
            return Err(Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}
