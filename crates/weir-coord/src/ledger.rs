//! What the ranks of a job share on a node: how much they may still move, and what they have moved.
//!
//! The ledger lies in memory that all ranks of the node have mapped; it is made of atomics alone, and all zeros are a
//! ledger that lets nobody through. This module is its protocol without the system: mapping the memory, sleeping and
//! waking are its users'. Bytes count from the beginning of the job and never go back; the session knows where the phase
//! began. A request may start while less was spent than the credit says, however long it is; between phases it may start only
//! if all of it is within what the job may move without a turn ([`Gate::Free`]).

use crate::session::Gate;
use crate::tokens::UNLIMITED;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Ranks beyond this many share the last slot.
pub const SLOTS: usize = 1023;

/// The credit of a gate that is open.
const OPEN: u64 = u64::MAX;
/// The credit before a phase that is granted already: the first request is let through, and says that a phase began.
const AHEAD: u64 = u64::MAX - 1;
/// The largest credit with a limit.
const MAX_CREDIT: u64 = WITHIN - 1;
/// Marks a credit that a request must keep within as a whole.
const WITHIN: u64 = 1 << 62;
/// The credit of a gate that lets nobody through.
const CLOSED: u64 = 0;

/// A leader that has not looked for this long is gone or stopped.
pub const SILENT_NS: u64 = 500_000_000;
/// When the leader has been silent, and nobody could take its place for this long, a request goes on alone.
const ALONE_AFTER_NS: u64 = 300_000_000;
/// A waiting rank stays awake for this long, and lets others have its core meanwhile: a coordinator that has no reason
/// to hold the job has answered by then, and waking up would take half as long again.
const AWAKE_NS: u64 = 100_000;
/// A waiting rank looks this often whether there is still a leader.
const LOOK_NS: u64 = 100_000_000;

/// In the place of a process in a slot that is being cleared.
const NOBODY: u32 = u32::MAX;

#[repr(C)]
pub struct Ledger {
    /// When the leader last looked, on the clock that never goes back; 0 before the first.
    beat_ns: AtomicU64,
    /// Slots handed out.
    slots: AtomicU32,
    /// A wait reached its limit: the rest of the phase is not held back.
    limit_reached: AtomicU32,
    outlook: Outlook,
    credit: Line<Credit>,
    spent_bytes: Line<AtomicU64>,
    slot: [Slot; SLOTS],
}

/// A part of shared memory in a cache line of its own.
#[repr(C, align(64))]
pub struct Line<T>(T);

impl<T> std::ops::Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[repr(C)]
struct Credit {
    bytes: AtomicU64,
    /// Grows with each change of the credit: waiting ranks sleep on it.
    news: AtomicU32,
    sleepers: AtomicU32,
    /// The first rank that has nothing under way any more when so much was spent calls the leader; 0: nobody does.
    call_at_bytes: AtomicU64,
}

/// What the ranks can ask of their coordination, as the leader knows it.
#[repr(C)]
struct Outlook {
    /// The bits of [`Prospect::share`]; of a share below zero if nobody coordinates.
    share: AtomicU64,
    go_on_ns: AtomicU64,
}

/// What the job has of its storage now, and what it may expect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// Share of the storage, from 0 to 1: 0 while the job has to wait, 1 while nobody limits it.
    pub share: f64,
    /// When the job may go on, as its coordinator has said, on the clock that never goes back; 0 if it may go now.
    pub go_on_ns: u64,
}

/// What one rank does, and what it has said of itself.
#[repr(C, align(128))]
pub struct Slot {
    /// 0 if whether the rank lives cannot be told.
    pub pid: AtomicU32,
    /// Requests that have started and not ended.
    in_flight: AtomicU32,
    /// MPI files that are open.
    pub open_files: AtomicU32,
    /// Phases that the program says it is in.
    pub marks: AtomicU32,
    done_bytes: AtomicU64,
    /// Requests that wait.
    waiting: AtomicU32,
    /// The process was stopped (SIGSTOP, a debugger): its requests hold nobody up.
    stopped: AtomicU32,
    waiting_bytes: AtomicU64,
    /// Time that the rank has waited since the last phase ended.
    waited_ns: AtomicU64,
    last_end_ns: AtomicU64,
    /// The namespace in which `pid` is the rank's number: a container may have its own.
    pub pid_namespace: AtomicU32,
    /// Time that the rank's requests have taken, in units of [`BUSY_UNIT_NS`]. Wraps around.
    busy: AtomicU32,
    /// What the program has announced of its phases so far.
    announced_bytes: AtomicU64,
    /// What its collective writes were to move so far.
    foretold_bytes: AtomicU64,
    /// 1 while the rank is in a collective write.
    is_calling: AtomicU32,
    /// What the program expects of its phases: from the beginning of one to the next, and what one moves. 0: not said.
    period_ns: AtomicU64,
    usual_bytes: AtomicU64,
}

/// Unit of the time that requests take.
pub(crate) const BUSY_UNIT_NS: u64 = 1 << 10;

const _: () = assert!(size_of::<Slot>() == 128);

/// All slots together at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    pub in_flight: u32,
    pub waiting: u32,
    pub open_files: u32,
    pub marks: u32,
    pub spent_bytes: u64,
    pub done_bytes: u64,
    pub waiting_bytes: u64,
    /// Wait of the rank that has waited longest in this phase: the others wait for it in the end.
    pub waited_ns: u64,
    pub last_end_ns: u64,
    /// Time that requests have taken, all together, in units of 1024 ns. Wraps around.
    pub busy: u32,
    /// A wait has reached its limit in this phase.
    pub limit_reached: bool,
    /// What the programs have announced of their phases, since the beginning of the job.
    pub announced_bytes: u64,
    /// What collective writes were to move, since the beginning of the job, and ranks that are in one.
    pub foretold_bytes: u64,
    pub calling: u32,
    /// What the program expects of its phases; 0 if it has not said. The longest period of the ranks', and the bytes of all.
    pub period_ns: u64,
    pub usual_bytes: u64,
}

/// Whether a request that has come to the gate may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Admitted,
    /// Admitted as the first of a phase that was granted before it began: the leader must hear of it.
    AdmittedAhead,
    MustWait,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Turn,
    /// `WEIR_MAX_WAIT`.
    Limit,
    /// There is nobody to ask.
    Alone,
}

/// What the leader finds out about the process of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Alive,
    Stopped,
    Dead,
    Unknown,
}

impl Ledger {
    /// A ledger in memory of its own, for a node that is simulated.
    pub fn boxed() -> Box<Ledger> {
        let slot = [const { Slot::new() }; SLOTS];
        let credit = Credit {
            bytes: AtomicU64::new(CLOSED),
            news: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            call_at_bytes: AtomicU64::new(0),
        };
        Box::new(Ledger {
            beat_ns: AtomicU64::new(0),
            slots: AtomicU32::new(0),
            limit_reached: AtomicU32::new(0),
            outlook: Outlook { share: AtomicU64::new(0), go_on_ns: AtomicU64::new(0) },
            credit: Line(credit),
            spent_bytes: Line(AtomicU64::new(0)),
            slot,
        })
    }

    /// A request of so many bytes is about to start.
    #[inline]
    pub fn enter(&self, slot: &Slot, bytes: u64) -> Entry {
        slot.in_flight.fetch_add(1, AcqRel);
        match self.spend(bytes) {
            Some(AHEAD) => {
                // The requests that follow have nothing to say.
                let _ = self.credit.bytes.compare_exchange(AHEAD, OPEN, AcqRel, Relaxed);
                Entry::AdmittedAhead
            }
            Some(_) => Entry::Admitted,
            None => {
                slot.in_flight.fetch_sub(1, AcqRel);
                Entry::MustWait
            }
        }
    }

    /// Charges a request if it may start; the answer is the credit that lets it.
    #[inline]
    fn spend(&self, bytes: u64) -> Option<u64> {
        let mut spent = self.spent_bytes.load(Relaxed);
        loop {
            let credit = self.credit.bytes.load(Acquire);
            let after = spent.saturating_add(bytes);
            let is_within = if is_free(credit) { after <= credit - WITHIN } else { spent < credit };
            if !is_within {
                return None;
            }
            match self.spent_bytes.compare_exchange_weak(spent, after, AcqRel, Relaxed) {
                Ok(_) => return Some(credit),
                Err(now) => spent = now,
            }
        }
    }

    /// Charges bytes that nobody foresaw, or that move without being allowed to.
    pub fn charge(&self, bytes: u64) {
        self.spent_bytes.fetch_add(bytes, AcqRel);
    }

    /// The request waits from now on. Time that the rank waited earlier in this phase, for [`Patience::new`].
    pub fn start_waiting(&self, slot: &Slot, bytes: u64) -> u64 {
        slot.is_here();
        slot.waiting_bytes.fetch_add(bytes, AcqRel);
        slot.waiting.fetch_add(1, AcqRel);
        // The ranks that share the last slot would lose their patience for each other.
        if self.is_own(slot) { slot.waited_ns() } else { 0 }
    }

    /// Whether the waiting request may start now; then it is charged. Else the value that [`Ledger::news`] had before.
    pub fn try_again(&self, bytes: u64) -> Result<(), u32> {
        let news = self.news();
        self.spend(bytes).map(|_| ()).ok_or(news)
    }

    /// The request starts, whatever the outcome. True: [`Ledger::word`] must be woken.
    #[must_use]
    pub fn stop_waiting(&self, slot: &Slot, bytes: u64, outcome: Outcome) -> bool {
        // Started before it stops waiting: between the two nobody may think that nothing is going on.
        slot.in_flight.fetch_add(1, AcqRel);
        slot.waiting.fetch_sub(1, AcqRel);
        slot.waiting_bytes.fetch_sub(bytes, AcqRel);
        if outcome != Outcome::Turn {
            self.charge(bytes);
        }
        if outcome != Outcome::Limit {
            return false;
        }
        self.limit_reached.store(1, Release);
        self.set_credit(OPEN)
    }

    /// A request that was let in at `start_ns` has ended. True: the leader must be called, for the phase may be over.
    #[inline]
    #[must_use]
    pub fn leave(&self, slot: &Slot, bytes: u64, start_ns: u64, now_ns: u64) -> bool {
        slot.busy.fetch_add((now_ns.saturating_sub(start_ns) / BUSY_UNIT_NS) as u32, Relaxed);
        slot.done_bytes.fetch_add(bytes, Relaxed);
        slot.last_end_ns.fetch_max(now_ns, Relaxed);
        let is_last = slot.in_flight.fetch_sub(1, AcqRel) == 1;
        let call_at_bytes = self.credit.call_at_bytes.load(Relaxed);
        is_last
            && call_at_bytes != 0
            && self.spent_bytes.load(Relaxed) >= call_at_bytes
            && self.credit.call_at_bytes.swap(0, Relaxed) != 0
    }

    /// Puts what the session decided before the ranks. `base_bytes` were spent before the phase under way.
    /// True: [`Ledger::word`] must be woken.
    #[must_use]
    pub fn hold(&self, gate: &Gate, base_bytes: u64) -> bool {
        let credit = match gate {
            Gate::Closed => CLOSED,
            Gate::Free { credit_bytes } => WITHIN | (*credit_bytes).min(MAX_CREDIT),
            Gate::Ahead => AHEAD,
            Gate::Open { .. } | Gate::Granted { credit_bytes: UNLIMITED } => OPEN,
            Gate::Granted { credit_bytes } => base_bytes.saturating_add(*credit_bytes).min(MAX_CREDIT),
        };
        // A phase whose wait reached its limit is not held back any more; it may have reached it just now.
        let is_set = self.limit_reached.load(Acquire) == 0 && self.set_credit(credit);
        is_set | (self.limit_reached.load(Acquire) == 1 && self.set_credit(OPEN))
    }

    /// The leader wants to be called when a rank has nothing under way any more and so much was spent; 0: not at all.
    pub fn call_at(&self, spent_bytes: u64) {
        self.credit.call_at_bytes.store(spent_bytes, Relaxed);
    }

    /// True: somebody sleeps until the credit changes, and it has.
    fn set_credit(&self, bytes: u64) -> bool {
        let credit = &self.credit;
        if credit.bytes.swap(bytes, AcqRel) == bytes {
            return false;
        }
        // In one order with a rank that goes to sleep: either it sees the news, or it is seen.
        credit.news.fetch_add(1, SeqCst);
        credit.sleepers.load(SeqCst) > 0
    }

    /// Puts before the ranks what they may ask for. `None`: nobody coordinates.
    pub fn set_prospect(&self, prospect: Option<Prospect>) {
        let Prospect { share, go_on_ns } = prospect.unwrap_or(Prospect { share: -1.0, go_on_ns: 0 });
        self.outlook.share.store(share.to_bits(), Relaxed);
        self.outlook.go_on_ns.store(go_on_ns, Relaxed);
    }

    /// What the leader said last of how the job stands; `None`: nobody coordinates, or the leader is gone.
    pub fn prospect(&self, now_ns: u64) -> Option<Prospect> {
        let share = f64::from_bits(self.outlook.share.load(Relaxed));
        let go_on_ns = self.outlook.go_on_ns.load(Relaxed);
        (share >= 0.0 && self.silent_ns(now_ns) <= SILENT_NS).then_some(Prospect { share, go_on_ns })
    }

    /// Changes whenever the credit does.
    pub fn news(&self) -> u32 {
        self.credit.news.load(Acquire)
    }

    /// The word on which waiting ranks sleep while it is [`Ledger::news`].
    pub fn word(&self) -> &AtomicU32 {
        &self.credit.news
    }

    /// A rank is about to sleep on [`Ledger::word`], or has slept.
    pub fn falls_asleep(&self) {
        self.credit.sleepers.fetch_add(1, SeqCst);
    }

    pub fn wakes_up(&self) {
        self.credit.sleepers.fetch_sub(1, AcqRel);
    }

    /// Whether every request may start, without limit.
    pub fn is_open(&self) -> bool {
        self.credit.bytes.load(Relaxed) == OPEN
    }

    /// Whether a request may start now, however long it is.
    pub fn is_admitting(&self) -> bool {
        let credit = self.credit.bytes.load(Acquire);
        !is_free(credit) && self.spent_bytes.load(Acquire) < credit
    }

    /// The leader looks, at this time.
    pub fn beat(&self, now_ns: u64) {
        self.beat_ns.store(now_ns, Release);
    }

    /// A leader that is about to start counts as one that has just looked. False: there has been one.
    pub fn first_beat(&self, now_ns: u64) -> bool {
        self.beat_ns.compare_exchange(0, now_ns, AcqRel, Relaxed).is_ok()
    }

    /// How long the leader has not looked.
    #[inline]
    pub fn silent_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.beat_ns.load(Acquire))
    }

    /// A slot for the process.
    pub fn take_slot(&self, pid: u32, pid_namespace: u32) -> &Slot {
        let taken = self.take_used_slot(pid).unwrap_or_else(|| self.take_new_slot(pid));
        let slot = &self.slot[taken];
        slot.pid_namespace.store(pid_namespace, Release);
        slot
    }

    /// A slot that nobody has had, or the last one, which all have for whom there is no other: its number of the process stays 0, for
    /// whether those that share it are alive cannot be told.
    fn take_new_slot(&self, pid: u32) -> usize {
        let add = |taken: u32| (taken < SLOTS as u32).then_some(taken + 1);
        loop {
            let taken =
                self.slots.fetch_update(AcqRel, Relaxed, add).map_or(SLOTS - 1, |taken| taken as usize);
            // Between the two another process may have found it unused.
            let is_own = || self.slot[taken].pid.compare_exchange(0, pid, AcqRel, Relaxed).is_ok();
            if taken == SLOTS - 1 || is_own() {
                return taken;
            }
        }
    }

    /// The slot of a rank that has left or died, if there is one: jobs may start any number of programs one after the other.
    fn take_used_slot(&self, pid: u32) -> Option<usize> {
        let is_taken =
            |slot: &Slot| !slot.is_busy() && slot.pid.compare_exchange(0, pid, AcqRel, Relaxed).is_ok();
        let own = self.used_slots().len().min(SLOTS - 1);
        let taken = self.used_slots()[..own].iter().position(is_taken)?;
        self.slot[taken].clear();
        Some(taken)
    }

    /// Index of the slot.
    pub fn number(&self, slot: &Slot) -> usize {
        (std::ptr::from_ref(slot).addr() - std::ptr::from_ref(&self.slot).addr()) / size_of::<Slot>()
    }

    /// Whether the slot belongs to one process alone.
    pub fn is_own(&self, slot: &Slot) -> bool {
        self.number(slot) != SLOTS - 1
    }

    pub fn used_slots(&self) -> &[Slot] {
        &self.slot[..(self.slots.load(Acquire) as usize).min(SLOTS)]
    }

    pub fn sum(&self) -> Sum {
        let mut sum = Sum {
            spent_bytes: self.spent_bytes.load(Acquire),
            limit_reached: self.limit_reached.load(Acquire) == 1,
            ..Sum::default()
        };
        for slot in self.used_slots() {
            if slot.stopped.load(Relaxed) == 0 {
                // In this order: a rank that stops waiting has started before.
                sum.waiting += slot.waiting.load(Acquire);
                sum.in_flight += slot.in_flight.load(Acquire);
                sum.marks += slot.marks.load(Relaxed);
                sum.waiting_bytes = sum.waiting_bytes.saturating_add(slot.waiting_bytes.load(Relaxed));
            }
            sum.open_files += slot.open_files.load(Relaxed);
            sum.done_bytes = sum.done_bytes.saturating_add(slot.done_bytes.load(Relaxed));
            sum.waited_ns = sum.waited_ns.max(slot.waited_ns.load(Relaxed));
            sum.last_end_ns = sum.last_end_ns.max(slot.last_end_ns.load(Relaxed));
            sum.busy = sum.busy.wrapping_add(slot.busy.load(Relaxed));
            sum.announced_bytes = sum.announced_bytes.wrapping_add(slot.announced_bytes.load(Relaxed));
            // In this order: a rank is in its call before it says what that will move.
            sum.foretold_bytes = sum.foretold_bytes.wrapping_add(slot.foretold_bytes.load(Acquire));
            sum.calling += slot.is_calling.load(Relaxed);
            sum.period_ns = sum.period_ns.max(slot.period_ns.load(Relaxed));
            sum.usual_bytes = sum.usual_bytes.saturating_add(slot.usual_bytes.load(Relaxed));
        }
        // Nothing is under way, so all that started has ended, whatever a rank that died did not say.
        if sum.in_flight == 0 {
            sum.done_bytes = sum.spent_bytes;
        }
        sum
    }

    /// A leader begins: what ranks have waited so far counts on, unless nothing is under way.
    pub fn begin_to_lead(&self) {
        let sum = self.sum();
        if sum.in_flight == 0 && sum.waiting == 0 {
            self.end_phase();
        }
    }

    /// A phase is over: what is waited for from now on belongs to the next.
    pub fn end_phase(&self) {
        self.limit_reached.store(0, Release);
        self.used_slots().iter().for_each(|slot| slot.waited_ns.store(0, Relaxed));
    }

    /// Takes out of the sum what ranks that died or were stopped have under way.
    pub fn call_roll(&self, fate: impl Fn(&Slot) -> Fate) {
        for slot in self.used_slots() {
            let pid = slot.pid.load(Acquire);
            if pid == 0 || pid == NOBODY {
                continue;
            }
            match fate(slot) {
                // Unless it has just left by itself. Nobody takes the slot before it is clear.
                Fate::Dead if slot.pid.compare_exchange(pid, NOBODY, AcqRel, Relaxed).is_ok() => {
                    slot.clear();
                    slot.pid.store(0, Release);
                }
                Fate::Stopped => slot.stopped.store(1, Relaxed),
                Fate::Alive => slot.stopped.store(0, Relaxed),
                Fate::Dead | Fate::Unknown => {}
            }
        }
    }
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            pid: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            open_files: AtomicU32::new(0),
            marks: AtomicU32::new(0),
            done_bytes: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
            waiting_bytes: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            last_end_ns: AtomicU64::new(0),
            pid_namespace: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            announced_bytes: AtomicU64::new(0),
            foretold_bytes: AtomicU64::new(0),
            is_calling: AtomicU32::new(0),
            period_ns: AtomicU64::new(0),
            usual_bytes: AtomicU64::new(0),
        }
    }

    /// The program announces what a phase that it begins will move.
    pub fn announce(&self, bytes: u64) {
        self.announced_bytes.fetch_add(bytes, Relaxed);
    }

    /// The rank is about to make a collective write of so many bytes of its own.
    pub fn begin_call(&self, bytes: u64) {
        self.is_calling.store(1, Relaxed);
        self.foretold_bytes.fetch_add(bytes, Release);
    }

    pub fn end_call(&self) {
        self.is_calling.store(0, Relaxed);
    }

    /// The program says what its phases are like; 0 is unknown.
    pub fn expect(&self, period_ns: u64, bytes: u64) {
        self.period_ns.store(period_ns, Relaxed);
        self.usual_bytes.store(bytes, Relaxed);
    }

    /// Nothing is under way any more of the rank that had the slot. What it has done stays counted.
    fn clear(&self) {
        self.stopped.store(0, Release);
        self.in_flight.store(0, Release);
        self.waiting.store(0, Release);
        self.waiting_bytes.store(0, Release);
        self.open_files.store(0, Release);
        self.marks.store(0, Release);
        self.end_call();
        self.expect(0, 0);
    }

    /// Whether the rank has something under way.
    pub fn is_busy(&self) -> bool {
        [&self.in_flight, &self.waiting, &self.marks].iter().any(|count| count.load(Relaxed) > 0)
    }

    /// A rank that says so is not stopped, whatever the last roll call found.
    fn is_here(&self) {
        self.stopped.store(0, Relaxed);
    }

    /// The rank has waited this long, for credit or for a turn.
    pub fn add_wait(&self, waited_ns: u64) {
        self.waited_ns.fetch_add(waited_ns, Relaxed);
    }

    /// Time that the rank has waited since the last phase ended.
    pub fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Relaxed)
    }
}

/// Whether the credit is one that a request must keep within as a whole.
#[inline]
fn is_free(credit: u64) -> bool {
    (WITHIN..AHEAD).contains(&credit)
}

/// How long a rank waits: no longer than `WEIR_MAX_WAIT` in one phase, all its waits together, whatever anybody expects.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    start_ns: u64,
    limit_ns: u64,
}

/// What a waiting rank does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn(Outcome),
    Yield,
    Sleep { limit_ns: u64 },
}

impl Patience {
    /// A wait that begins now, by a rank that has waited before in the phase.
    pub fn new(start_ns: u64, max_wait_ns: u64, waited_ns: u64) -> Patience {
        Patience { start_ns, limit_ns: start_ns.saturating_add(max_wait_ns.saturating_sub(waited_ns)) }
    }

    /// The rank has waited in vain so far, and the leader has not looked for `silent_ns`.
    pub fn next(&self, now_ns: u64, silent_ns: u64) -> Next {
        if now_ns >= self.limit_ns {
            Next::GoOn(Outcome::Limit)
        } else if silent_ns > SILENT_NS + ALONE_AFTER_NS {
            Next::GoOn(Outcome::Alone)
        } else if now_ns < self.start_ns + AWAKE_NS {
            Next::Yield
        } else {
            Next::Sleep { limit_ns: LOOK_NS.min(self.limit_ns - now_ns) }
        }
    }
}
