//! The page that the ranks of a job share on a node: their [`Ledger`], and where they ask the leader.

use super::bell::{self, Bell};
use super::desk::Desk;
use super::lane::Lane;
use super::reads::Readers;
use super::storage::StorageName;
use crate::node::{self, memory};
use crate::profile;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;
use weir_coord::election;
use weir_coord::ledger::{Fate, Ledger, Line, Slot};

const MAGIC: u64 = u64::from_le_bytes(*b"WEIRGAT\x08");

/// Everything starts as zero: closed, and without a leader.
#[repr(C)]
pub(super) struct Page {
    magic: AtomicU64,
    /// Rank 0 is here: what there is to say is said on this node.
    pub(super) is_home: AtomicU32,
    pub(super) bell: Line<Bell>,
    pub(super) desk: Line<Desk>,
    pub(super) readers: Line<Readers>,
    pub(super) ledger: Ledger,
}

const _: () = assert!(size_of::<Page>() < 152 << 10);

impl Page {
    /// Wakes the ranks that wait for credit.
    pub(super) fn wake_ranks(&self) {
        bell::wake(self.ledger.word());
    }

    /// Sleeps until the credit is another than when `news` was read, or for some time, or less.
    pub(super) fn sleep(&self, news: u32, limit: Duration) {
        self.ledger.falls_asleep();
        bell::sleep(self.ledger.word(), news, limit);
        self.ledger.wakes_up();
    }

    /// A slot for this process.
    fn take_slot(&self) -> &Slot {
        self.ledger.take_slot(std::process::id(), pid_namespace())
    }

    /// Takes out of the sum what ranks that died or were stopped have under way.
    pub(super) fn call_roll(&self) {
        let namespace = pid_namespace();
        let is_known = |slot: &Slot| slot.pid_namespace.load(Acquire) == namespace;
        self.readers.call_roll(|pid| {
            let is_rank = |slot: &Slot| slot.pid.load(Acquire) == pid && is_known(slot);
            self.ledger.used_slots().iter().any(is_rank) && is_dead(pid, profile::stat_field(pid, 0))
        });
        let fate = |slot: &Slot| if is_known(slot) { fate(slot) } else { Fate::Unknown };
        self.ledger.call_roll(fate);
    }
}

/// What became of the rank that has the slot.
fn fate(slot: &Slot) -> Fate {
    let pid = slot.pid.load(Acquire);
    let state = if slot.is_busy() { profile::stat_field(pid, 0) } else { None };
    match state {
        _ if is_dead(pid, state) => Fate::Dead,
        // By a signal, or by a debugger.
        Some('T' | 't') => Fate::Stopped,
        Some('S' | 'D') if is_frozen(pid) => Fate::Stopped,
        Some(_) => Fate::Alive,
        None => Fate::Unknown,
    }
}

/// Whether a control group keeps the process from running, which its state does not show.
fn is_frozen(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().any(|line| {
        let says = |file: String, word: &str| fs::read_to_string(file).is_ok_and(|text| text.contains(word));
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next(), parts.next()) {
            (Some(""), Some(group)) => says(format!("/sys/fs/cgroup{group}/cgroup.events"), "frozen 1"),
            (Some(kinds), Some(group)) if kinds.split(',').any(|kind| kind == "freezer") => {
                says(format!("/sys/fs/cgroup/freezer{group}/freezer.state"), "FROZEN")
            }
            _ => false,
        }
    })
}

/// 0 where that cannot be told: then there is one for all.
fn pid_namespace() -> u32 {
    static NAMESPACE: OnceLock<u32> = OnceLock::new();
    *NAMESPACE.get_or_init(|| fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino() as u32))
}

fn is_dead(pid: u32, state: Option<char>) -> bool {
    !is_there(pid) || matches!(state, Some('Z' | 'X'))
}

fn is_there(pid: u32) -> bool {
    // SAFETY: signal 0 only asks whether the process is there.
    let answer = unsafe { libc::kill(pid as i32, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The page that a job has for a storage on this node: memory that the helper process of the node keeps. No file system is behind
/// it, so that nothing can take a page of it away beneath a rank.
pub(super) struct Place {
    name: String,
}

impl Place {
    /// The place of the page for the storage. One without a name is known by its mount.
    pub(super) fn of(storage: &StorageName) -> Place {
        let StorageName { name, mount } = storage;
        let known_by = if name.is_empty() { mount } else { name };
        Place { name: format!("gate of {known_by}") }
    }

    fn open(&self) -> Result<OwnedFd, String> {
        node::shared_memory(&self.name, Page::bytes())
    }

    /// Makes the caller the leader for as long as it keeps the descriptor; `None` if there is one.
    pub(super) fn try_lead(&self) -> Option<File> {
        let page = File::from(self.open().ok()?);
        election::set_record_lock(&page).ok()?.then_some(page)
    }
}

impl Page {
    /// As much memory as a page takes: whole pages of the system's.
    fn bytes() -> usize {
        size_of::<Page>().next_multiple_of(memory::page_bytes())
    }
}

/// The page as one process has it. It stays mapped: another thread may be waiting in it.
#[derive(Clone, Copy)]
pub(super) struct Attached {
    pub(super) page: &'static Page,
    pub(super) slot: &'static Slot,
    pub(super) lane: &'static Lane,
    inode: u64,
}

impl Attached {
    /// Opens the page of the job, or makes it. No descriptor is kept.
    pub(super) fn to(place: &Place, lane: &'static Lane) -> Result<Attached, String> {
        let descriptor = place.open()?;
        let inode = inode_of(&descriptor).ok_or("the memory for coordination cannot be looked at")?;
        let none = || "there is no memory for coordination".to_string();
        let at = memory::map(Some(&descriptor), Page::bytes()).ok_or_else(none)?;
        if !memory::has_room(&descriptor, Page::bytes()) {
            return Err(none());
        }
        // SAFETY: mapped, as long as a page, never unmapped; zeros are a valid page.
        let page: &'static Page = unsafe { &*at.cast::<Page>() };
        if let Err(other) = page.magic.compare_exchange(0, MAGIC, AcqRel, Acquire)
            && other != MAGIC
        {
            return Err("the memory for coordination was made by another version of Weir".into());
        }
        Ok(Attached { page, slot: page.take_slot(), lane, inode })
    }

    /// The place of this rank's slot among all.
    pub(super) fn slot_number(&self) -> usize {
        self.page.ledger.number(self.slot)
    }

    /// Whether this is the page that others find at the place now, as far as can be told.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        place.open().ok().and_then(|page| inode_of(&page)).is_none_or(|inode| inode == self.inode)
    }

    /// This process is done with the page.
    pub(super) fn leave(&self) {
        self.slot.open_files.store(0, Release);
        self.slot.marks.store(0, Release);
        self.slot.end_call();
        self.slot.expect(0, 0);
        if self.page.ledger.is_own(self.slot) {
            self.slot.pid.store(0, Release);
        }
    }
}

fn inode_of(descriptor: &OwnedFd) -> Option<u64> {
    // SAFETY: zeros are a valid description, which outlives the call.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor.as_raw_fd(), &mut about) == 0).then_some(about.st_ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use weir_coord::ledger::Outcome;

    fn page() -> &'static Page {
        // SAFETY: zeros are a valid page.
        Box::leak(unsafe { Box::<Page>::new_zeroed().assume_init() })
    }

    /// A process in whose name a slot is taken, with a request under way.
    fn rank(page: &'static Page) -> (Child, &'static Slot) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let slot = page.take_slot();
        slot.pid.store(child.id(), Release);
        page.ledger.start_waiting(slot, 0);
        let _ = page.ledger.stop_waiting(slot, 0, Outcome::Alone);
        (child, slot)
    }

    fn signal(child: &Child, number: i32) {
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(child.id() as i32, number) };
    }

    /// Signals take their time.
    fn soon(page: &Page, in_flight: u32) {
        for _ in 0..1000 {
            page.call_roll();
            if page.ledger.sum().in_flight == in_flight {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} requests are under way instead of {in_flight}", page.ledger.sum().in_flight);
    }

    #[test]
    fn ranks_in_another_container_are_not_looked_for() {
        let page = page();
        let slot = page.take_slot();
        slot.pid.store(u32::MAX >> 1, Release);
        page.ledger.start_waiting(slot, 1);
        slot.pid_namespace.store(pid_namespace() + 1, Release);
        page.call_roll();
        assert_eq!(page.ledger.sum().waiting, 1);
        slot.pid_namespace.store(pid_namespace(), Release);
        page.call_roll();
        assert_eq!(page.ledger.sum().waiting, 0);
    }

    /// Where a control group of one's own can be had (as root).
    #[test]
    fn a_frozen_rank_has_nothing_under_way() {
        let group = format!("/sys/fs/cgroup/freezer/weir-test-{}", std::process::id());
        let put = |file: &str, text: &str| fs::write(format!("{group}/{file}"), text);
        if fs::create_dir(&group).is_err() || put("freezer.state", "THAWED").is_err() {
            eprintln!("no control group can be made here: nothing was tried");
            return;
        }
        let page = page();
        let (mut frozen, _) = rank(page);
        put("cgroup.procs", &frozen.id().to_string()).unwrap();
        page.call_roll();
        assert_eq!(page.ledger.sum().in_flight, 1);
        put("freezer.state", "FROZEN").unwrap();
        soon(page, 0);
        put("freezer.state", "THAWED").unwrap();
        soon(page, 1);
        frozen.kill().unwrap();
        frozen.wait().unwrap();
        let _ = fs::remove_dir(&group);
    }

    #[test]
    fn a_stopped_or_dead_rank_has_nothing_under_way() {
        let page = page();
        let (mut stopped, slot) = rank(page);
        let (mut killed, _) = rank(page);
        page.call_roll();
        assert_eq!(page.ledger.sum().in_flight, 2);
        signal(&stopped, libc::SIGSTOP);
        soon(page, 1);
        killed.kill().unwrap();
        killed.wait().unwrap();
        soon(page, 0);
        signal(&stopped, libc::SIGCONT);
        soon(page, 1);
        signal(&stopped, libc::SIGSTOP);
        soon(page, 0);
        page.ledger.start_waiting(slot, 0);
        assert_eq!(page.ledger.sum().in_flight, 1, "a rank that begins to wait runs");
        stopped.kill().unwrap();
        stopped.wait().unwrap();
    }
}
