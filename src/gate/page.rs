//! What the ranks of a job share on a node: how much they may still move, and what they have.
//!
//! Bytes are counted from the beginning of the job and never go back; the leader of the node knows where
//! the phase began. A request may start while less was spent than the credit says, however long it is.

use super::bell::{self, Bell};
use super::desk::Desk;
use super::reads::Readers;
use crate::profile;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;
use weir_coord::place::Place;

/// Ranks beyond this many share the last slot.
pub(super) const SLOTS: usize = 1023;

const MAGIC: u64 = u64::from_le_bytes(*b"WEIRGAT\x04");

/// The credit of a gate that is open.
pub(super) const OPEN: u64 = u64::MAX;
/// The same before a phase: whoever comes first is let through, and says that a phase has begun.
pub(super) const AHEAD: u64 = u64::MAX - 1;
/// The credit of a gate that lets nobody through.
pub(super) const CLOSED: u64 = 0;

/// A leader that has not looked for this long is gone or stopped.
pub(super) const SILENT_NS: u64 = 500_000_000;

/// Everything starts as zero: closed, and without a leader.
#[repr(C)]
pub(super) struct Page {
    magic: AtomicU64,
    /// When the leader last looked, on the clock that never goes back.
    pub(super) beat_ns: AtomicU64,
    /// Ranks that use the page.
    attached: AtomicU32,
    /// Slots handed out.
    slots: AtomicU32,
    /// A wait reached its limit: the rest of the phase is not held back.
    pub(super) limit_reached: AtomicU32,
    /// How long a turn should take to come, while held.
    pub(super) expected_ns: AtomicU64,
    /// Rank 0 is here: what there is to say is said on this node.
    pub(super) is_home: AtomicU32,
    pub(super) bell: Line<Bell>,
    credit: Line<Credit>,
    spent_bytes: Line<AtomicU64>,
    pub(super) desk: Line<Desk>,
    pub(super) readers: Line<Readers>,
    slot: [Slot; SLOTS],
}

/// In a cache line of its own.
#[repr(C, align(64))]
pub(super) struct Line<T>(T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[repr(C)]
struct Credit {
    bytes: AtomicU64,
    /// Grows with each change of the credit: what waits, waits on it.
    news: AtomicU32,
    sleepers: AtomicU32,
}

/// What one rank does.
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) pid: AtomicU32,
    /// Requests that have started and not ended.
    pub(super) in_flight: AtomicU32,
    /// MPI files that are open.
    pub(super) open_files: AtomicU32,
    /// Phases that the program says it is in.
    pub(super) marks: AtomicU32,
    pub(super) done_bytes: AtomicU64,
    /// Of requests that wait.
    pub(super) waiting: AtomicU32,
    /// The process was stopped (SIGSTOP, a debugger): what it has under way holds nobody up.
    stopped: AtomicU32,
    pub(super) waiting_bytes: AtomicU64,
    /// Since the last phase ended.
    pub(super) waited_ns: AtomicU64,
    pub(super) last_end_ns: AtomicU64,
    /// The one in which `pid` is its number: a container may have its own.
    pid_namespace: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Page>() < 88 << 10);

/// All slots together at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) in_flight: u32,
    pub(super) waiting: u32,
    pub(super) open_files: u32,
    pub(super) marks: u32,
    pub(super) spent_bytes: u64,
    pub(super) done_bytes: u64,
    pub(super) waiting_bytes: u64,
    /// Of the rank that has waited longest in this phase: the others wait for it in the end.
    pub(super) waited_ns: u64,
    pub(super) last_end_ns: u64,
    /// How long who waits should have to.
    pub(super) expected_ns: u64,
}

impl Page {
    /// Charges a request if it may start; the answer is the credit that lets it.
    #[inline]
    pub(super) fn spend(&self, bytes: u64) -> Option<u64> {
        let mut spent = self.spent_bytes.load(Relaxed);
        loop {
            let credit = self.credit.bytes.load(Acquire);
            if spent >= credit {
                return None;
            }
            match self.spent_bytes.compare_exchange_weak(spent, spent.saturating_add(bytes), AcqRel, Relaxed)
            {
                Ok(_) => return Some(credit),
                Err(now) => spent = now,
            }
        }
    }

    /// The first request of a phase was let through ahead: those that follow it have nothing to say.
    pub(super) fn phase_began_ahead(&self) {
        let _ = self.credit.bytes.compare_exchange(AHEAD, OPEN, AcqRel, Relaxed);
    }

    /// Charges a request that starts without being allowed to.
    pub(super) fn charge(&self, bytes: u64) {
        self.spent_bytes.fetch_add(bytes, AcqRel);
    }

    pub(super) fn credit_bytes(&self) -> u64 {
        self.credit.bytes.load(Relaxed)
    }

    /// Sets the credit and wakes who waits for it.
    pub(super) fn set_credit(&self, bytes: u64) {
        let credit = &self.credit;
        if credit.bytes.swap(bytes, AcqRel) == bytes {
            return;
        }
        // In one order with who goes to sleep: either it sees the news, or it is seen.
        credit.news.fetch_add(1, SeqCst);
        if credit.sleepers.load(SeqCst) > 0 {
            bell::wake(&credit.news);
        }
    }

    /// How long the leader has not looked.
    #[inline]
    pub(super) fn silent_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.beat_ns.load(Acquire))
    }

    /// What [`Page::sleep`] takes: to be read before the credit is looked at.
    pub(super) fn news(&self) -> u32 {
        self.credit.news.load(Acquire)
    }

    /// Until the credit is another than when `news` was read, or for some time, or less.
    pub(super) fn sleep(&self, news: u32, limit: Duration) {
        let credit = &self.credit;
        credit.sleepers.fetch_add(1, SeqCst);
        bell::sleep(&credit.news, news, limit);
        credit.sleepers.fetch_sub(1, AcqRel);
    }

    /// A slot for this process.
    fn take_slot(&self) -> &Slot {
        let taken = (self.slots.fetch_add(1, AcqRel) as usize).min(SLOTS - 1);
        let slot = &self.slot[taken];
        // Whether the processes that share the last one are alive cannot be told.
        let pid = if taken == SLOTS - 1 { 0 } else { std::process::id() };
        slot.pid_namespace.store(pid_namespace(), Release);
        slot.pid.store(pid, Release);
        slot
    }

    fn used_slots(&self) -> &[Slot] {
        &self.slot[..(self.slots.load(Acquire) as usize).min(SLOTS)]
    }

    pub(super) fn sum(&self) -> Sum {
        let mut sum = Sum {
            spent_bytes: self.spent_bytes.load(Acquire),
            expected_ns: self.expected_ns.load(Acquire),
            ..Sum::default()
        };
        for slot in self.used_slots() {
            if slot.stopped.load(Relaxed) == 0 {
                // In this order: who stops waiting has started before.
                sum.waiting += slot.waiting.load(Acquire);
                sum.in_flight += slot.in_flight.load(Acquire);
                sum.marks += slot.marks.load(Relaxed);
                sum.waiting_bytes = sum.waiting_bytes.saturating_add(slot.waiting_bytes.load(Relaxed));
            }
            sum.open_files += slot.open_files.load(Relaxed);
            sum.done_bytes = sum.done_bytes.saturating_add(slot.done_bytes.load(Relaxed));
            sum.waited_ns = sum.waited_ns.max(slot.waited_ns.load(Relaxed));
            sum.last_end_ns = sum.last_end_ns.max(slot.last_end_ns.load(Relaxed));
        }
        // Nothing is under way, so all that started has ended, whatever a rank that died did not say.
        if sum.in_flight == 0 {
            sum.done_bytes = sum.spent_bytes;
        }
        sum
    }

    /// A phase is over: what is waited for from now on belongs to the next.
    pub(super) fn forget_waits(&self) {
        self.used_slots().iter().for_each(|slot| slot.waited_ns.store(0, Relaxed));
    }

    /// Takes out of the sum what ranks that died or were stopped have under way.
    pub(super) fn call_roll(&self) {
        let namespace = pid_namespace();
        let is_known = |slot: &Slot| slot.pid_namespace.load(Acquire) == namespace;
        self.readers.call_roll(|pid| {
            let is_rank = |slot: &Slot| slot.pid.load(Acquire) == pid && is_known(slot);
            self.used_slots().iter().any(is_rank) && is_dead(pid, profile::stat_field(pid, 0))
        });
        for slot in self.used_slots().iter().filter(|slot| is_known(slot)) {
            let pid = slot.pid.load(Acquire);
            if pid == 0 {
                continue;
            }
            let state = if slot.is_up_to_something() { profile::stat_field(pid, 0) } else { None };
            if is_dead(pid, state) {
                if slot.pid.compare_exchange(pid, 0, AcqRel, Relaxed).is_err() {
                    // It has just left by itself.
                    continue;
                }
                slot.in_flight.store(0, Release);
                slot.waiting.store(0, Release);
                slot.waiting_bytes.store(0, Release);
                slot.open_files.store(0, Release);
                slot.marks.store(0, Release);
                self.attached.fetch_sub(1, AcqRel);
            } else if let Some(state) = state {
                // By a signal, or by a debugger.
                slot.stopped.store(u32::from(matches!(state, 'T' | 't')), Relaxed);
            }
        }
    }
}

impl Slot {
    fn is_up_to_something(&self) -> bool {
        [&self.in_flight, &self.waiting, &self.marks].iter().any(|count| count.load(Relaxed) > 0)
    }

    /// Who says so is not stopped, whatever the last roll call found.
    pub(super) fn is_here(&self) {
        self.stopped.store(0, Relaxed);
    }
}

/// 0 where that cannot be told: then there is one for all.
fn pid_namespace() -> u64 {
    static NAMESPACE: OnceLock<u64> = OnceLock::new();
    *NAMESPACE.get_or_init(|| fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino()))
}

fn is_dead(pid: u32, state: Option<char>) -> bool {
    !is_there(pid) || matches!(state, Some('Z' | 'X'))
}

fn is_there(pid: u32) -> bool {
    // SAFETY: signal 0 only asks whether the process is there.
    let answer = unsafe { libc::kill(pid as i32, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The page as one process has it. It stays mapped: another thread may be waiting in it.
#[derive(Clone, Copy)]
pub(super) struct Attached {
    pub(super) page: &'static Page,
    pub(super) slot: &'static Slot,
    inode: u64,
}

impl Attached {
    /// Opens the page of the job, or makes it. No descriptor is kept.
    pub(super) fn to(place: &Place) -> Result<Attached, String> {
        let path = place.page();
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let length = size_of::<Page>();
        // Reserved now: a full memory shows here and not in the middle of a request.
        // SAFETY: an open descriptor.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length as i64) } {
            0 => {}
            error => return Err(failed(io::Error::from_raw_os_error(error))),
        }
        let inode = file.metadata().map_err(failed)?.ino();
        // SAFETY: a fresh shared mapping of a file that is as long as said.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: mapped, as long as a page, never unmapped; zeros are a valid page.
        let page: &'static Page = unsafe { &*at.cast::<Page>() };
        if let Err(other) = page.magic.compare_exchange(0, MAGIC, AcqRel, Acquire)
            && other != MAGIC
        {
            return Err(format!("{}: made by another version of Weir", path.display()));
        }
        page.attached.fetch_add(1, AcqRel);
        Ok(Attached { page, slot: page.take_slot(), inode })
    }

    /// The place of this rank's slot among all.
    pub(super) fn slot_number(&self) -> usize {
        let slots = std::ptr::from_ref(&self.page.slot).addr();
        (std::ptr::from_ref(self.slot).addr() - slots) / size_of::<Slot>()
    }

    /// Whether this is the page that others find at the place now.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        fs::metadata(place.page()).is_ok_and(|about| about.ino() == self.inode)
    }

    /// This process is done with it; the last one takes the files away.
    pub(super) fn leave(&self, place: &Place) {
        self.slot.open_files.store(0, Release);
        self.slot.marks.store(0, Release);
        // Nobody took it for dead, who would have counted it out; the last slot is no one's.
        let is_shared = std::ptr::eq(self.slot, &self.page.slot[SLOTS - 1]);
        let is_counted = is_shared || self.slot.pid.swap(0, AcqRel) != 0;
        if is_counted && self.page.attached.fetch_sub(1, AcqRel) == 1 && self.is_at(place) {
            place.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn page() -> &'static Page {
        // SAFETY: zeros are a valid page.
        Box::leak(unsafe { Box::<Page>::new_zeroed().assume_init() })
    }

    /// A process in whose name a slot is taken, with a request under way.
    fn rank(page: &'static Page) -> (Child, &'static Slot) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let slot = page.take_slot();
        slot.pid.store(child.id(), Release);
        slot.in_flight.store(1, Release);
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
            if page.sum().in_flight == in_flight {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} requests are under way instead of {in_flight}", page.sum().in_flight);
    }

    #[test]
    fn of_each_phase_the_longest_wait_counts() {
        let page = page();
        let (one, other) = (page.take_slot(), page.take_slot());
        one.waited_ns.store(10, Relaxed);
        assert_eq!(page.sum().waited_ns, 10);
        page.forget_waits();
        other.waited_ns.store(7, Relaxed);
        assert_eq!(page.sum().waited_ns, 7, "of another rank, and less than the one before");
    }

    #[test]
    fn who_comes_first_says_that_a_phase_has_begun() {
        let page = page();
        page.set_credit(AHEAD);
        assert_eq!(page.spend(5), Some(AHEAD));
        page.phase_began_ahead();
        assert_eq!(page.spend(5), Some(OPEN));
        page.set_credit(CLOSED);
        page.phase_began_ahead();
        assert_eq!(page.spend(5), None, "what was taken back stays so");
    }

    #[test]
    fn ranks_in_another_container_are_not_looked_for() {
        let page = page();
        let slot = page.take_slot();
        slot.pid.store(u32::MAX >> 1, Release);
        slot.in_flight.store(1, Release);
        slot.pid_namespace.store(pid_namespace() + 1, Release);
        page.call_roll();
        assert_eq!(page.sum().in_flight, 1);
        slot.pid_namespace.store(pid_namespace(), Release);
        page.call_roll();
        assert_eq!(page.sum().in_flight, 0);
    }

    #[test]
    fn who_is_stopped_or_dead_has_nothing_under_way() {
        let page = page();
        page.attached.store(2, Release);
        let (mut stopped, slot) = rank(page);
        let (mut killed, _) = rank(page);
        page.call_roll();
        assert_eq!(page.sum().in_flight, 2);
        signal(&stopped, libc::SIGSTOP);
        soon(page, 1);
        killed.kill().unwrap();
        killed.wait().unwrap();
        soon(page, 0);
        assert_eq!(page.attached.load(Acquire), 1);
        signal(&stopped, libc::SIGCONT);
        soon(page, 1);
        signal(&stopped, libc::SIGSTOP);
        soon(page, 0);
        slot.is_here();
        assert_eq!(page.sum().in_flight, 1);
        stopped.kill().unwrap();
        stopped.wait().unwrap();
    }
}
