//! The gate: a job that shares storage with others waits here for its turn.
//!
//! Only the calls that really move data pass it, one by one: those of the MPI library beneath
//! `MPI_File_*` (the aggregators' in a collective call), and the program's own with `WEIR_GATE=all`. Ranks
//! that wait for an aggregator wait inside MPI as they would for a slow disk, so no rank is ever left
//! outside a collective call that another has entered, and nothing needs to be communicated.
//!
//! The ranks of a node share a [`page::Page`]; one of them, the leader, has a thread ([`leader`]) that
//! speaks with the coordinator for all. Every wait has an end: when the leader or the coordinator is
//! gone, or after `WEIR_MAX_WAIT`, the request goes on without a grant, and that is counted.

mod bell;
mod desk;
pub(crate) mod hints;
mod leader;
mod page;
pub(crate) mod reads;
mod target;
mod thread;
mod watch;

use crate::config::{self, Gate};
use crate::measure;
use crate::profile;
use crate::shim::caller::{Caller, Thread};
use crate::shim::shield::shield;
use crate::{clock, lifecycle};
use page::{AHEAD, Attached, OPEN, SILENT_NS};
use reads::{Read, Reads};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;
use weir_coord::now_ns;
use weir_coord::place::Place;
use weir_profile::layout::{Block, GateCounts};

/// What is held back. Read before anything else; 0 is nothing.
static HELD_BACK: AtomicUsize = AtomicUsize::new(NOTHING);
const NOTHING: usize = 0;
const BY_MPI: usize = 1;
const EVERYTHING: usize = 2;

/// Files that are left alone, by their index in the record: a bit each.
static LEFT_ALONE: [AtomicU64; 1025] = [const { AtomicU64::new(0) }; 1025];

/// The page of the job, once there is one. What was there is never freed: another thread may be waiting.
static PRESENCE: AtomicPtr<Presence> = AtomicPtr::new(std::ptr::null_mut());

struct Presence {
    attached: Attached,
    place: Place,
}

fn presence() -> Option<&'static Presence> {
    // SAFETY: null, or what `join` made and nobody frees.
    unsafe { PRESENCE.load(Acquire).as_ref() }
}

/// A waiter stays awake for this long, and lets others have its core meanwhile: a coordinator that has no reason to hold
/// the job has answered by then, and to be woken would take half as long again.
const AWAKE_NS: u64 = 100_000;
/// Waiters look this often whether there is still a leader.
const LOOK: Duration = Duration::from_millis(100);
/// When the leader has been silent, and nobody could take its place for this long, a request goes on alone.
const ALONE_AFTER_NS: u64 = 300_000_000;

/// The system moves no more with one call, whatever it is asked for. What a call that it refuses asks for must not use up
/// the credit there is.
const MOST_BYTES: u64 = 0x7fff_f000;

/// Weir is armed. Whether anything is held back; the page is made with the first file.
pub(crate) fn arm() -> bool {
    let held_back = match config::get(|c| (c.coordinator.is_some(), c.gate)) {
        (false, _) | (_, Gate::Off) => NOTHING,
        (_, Gate::Mpi) => BY_MPI,
        (_, Gate::All) => EVERYTHING,
    };
    LEFT_ALONE.iter().for_each(|bits| bits.store(0, Relaxed));
    // The first stands for all files that have no place of their own: whether they are named is not known.
    LEFT_ALONE[0].store(u64::from(config::get(|c| !c.gate_paths.is_empty())), Relaxed);
    HELD_BACK.store(held_back, Release);
    held_back != NOTHING
}

#[inline(always)]
pub(crate) fn is_on() -> bool {
    HELD_BACK.load(Relaxed) != NOTHING
}

/// A file of the record is known by this index from now on.
pub(crate) fn note_file(index: u64, path: &str) {
    if is_on()
        && !config::get(|c| {
            c.gate_paths.is_empty() || c.gate_paths.iter().any(|p| measure::files::matches(p, path))
        })
        && let Some(bits) = LEFT_ALONE.get(index as usize / 64)
    {
        bits.fetch_or(1 << (index % 64), Relaxed);
    }
}

/// A request that was let in; it ends when this is dropped.
pub(crate) struct Pass {
    request: Option<(Attached, u64)>,
    read: Option<Read>,
}

impl Pass {
    const FREE: Pass = Pass { request: None, read: None };

    /// A request of which nobody knew how long it would be.
    pub(crate) fn charge(&mut self, more_bytes: u64) {
        if let Some((attached, bytes)) = &mut self.request {
            attached.page.charge(more_bytes);
            *bytes += more_bytes;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some((attached @ Attached { page, slot, .. }, bytes)) = self.request {
            let now = now_ns();
            if let Some(read) = &self.read {
                read.ended(&attached, now);
            }
            slot.done_bytes.fetch_add(bytes, Relaxed);
            slot.last_end_ns.fetch_max(now, Relaxed);
            slot.in_flight.fetch_sub(1, Release);
            // While there is credit nobody waits, and nobody else would find out.
            if page.silent_ns(now) > SILENT_NS {
                replace_leader();
            }
        }
    }
}

#[cold]
fn replace_leader() {
    shield((), || _ = presence().map(leader::start));
}

/// A request of `bytes` bytes on a file is about to start: waits until it may.
pub(crate) fn admit(thread: &Thread, block: &Block, bytes: u64) -> Pass {
    let held_back = HELD_BACK.load(Relaxed);
    let is_held_back = match thread.caller.get() {
        caller if caller.is_mpi() => held_back != NOTHING,
        Caller::App => held_back == EVERYTHING,
        _ => false,
    };
    if !is_held_back || is_left_alone(block) {
        return Pass::FREE;
    }
    let Some(attached) = attached() else { return Pass::FREE };
    let bytes = bytes.min(MOST_BYTES);
    attached.slot.in_flight.fetch_add(1, AcqRel);
    match attached.page.spend(bytes) {
        Some(AHEAD) => begin_ahead(&attached),
        Some(_) => {}
        None => {
            attached.slot.in_flight.fetch_sub(1, AcqRel);
            wait(attached, bytes);
        }
    }
    Pass { request: Some((attached, bytes)), read: None }
}

/// The same for one that reads: an aggregator's may then have to wait for its turn at the storage, which is not
/// kept from others for want of bytes.
pub(crate) fn admit_read(thread: &Thread, block: &Block, descriptor: i32, bytes: u64) -> Pass {
    let reads = Reads::under_way(thread, block);
    if let Some(reads) = reads {
        reads.note_rest(now_ns());
    }
    let mut pass = admit(thread, block, bytes);
    if let (Some(reads), Some((attached, _))) = (reads, &pass.request) {
        pass.read = Some(reads.start(attached, descriptor));
    }
    pass
}

fn is_left_alone(block: &Block) -> bool {
    let file = block.file.load(Relaxed) as usize;
    LEFT_ALONE.get(file / 64).is_none_or(|bits| bits.load(Relaxed) >> (file % 64) & 1 == 1)
}

/// The page; made if need be.
fn attached() -> Option<Attached> {
    presence().or_else(|| shield(None, join)).map(|presence| presence.attached)
}

#[cold]
fn join() -> Option<&'static Presence> {
    static JOINING: Mutex<()> = Mutex::new(());
    let _guard = JOINING.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(presence) = presence() {
        return Some(presence);
    }
    // What happens from here on is kept.
    measure::ensure();
    let identity = profile::identity();
    let found = Place::of_job(&identity.job).and_then(|place| {
        place.sweep();
        Attached::to(&place).map(|attached| Presence { attached, place })
    });
    match found {
        Ok(presence) => {
            let presence: &'static Presence = Box::leak(Box::new(presence));
            let page = presence.attached.page;
            if identity.rank == 0 {
                page.is_home.store(1, Release);
            }
            // A leader that is about to start counts as one that has just looked.
            let fresh = page.beat_ns.compare_exchange(0, now_ns(), AcqRel, Relaxed).is_ok();
            PRESENCE.store(std::ptr::from_ref(presence).cast_mut(), Release);
            if fresh || page.silent_ns(now_ns()) > SILENT_NS {
                leader::start(presence);
            }
            Some(presence)
        }
        Err(reason) => {
            HELD_BACK.store(NOTHING, Release);
            note(|counts| &counts.opens, 1);
            keep_reason(&reason);
            if identity.rank == 0 {
                say_alone(&reason);
            }
            None
        }
    }
}

/// The first request of a phase that was granted before it began: the leader is told, and nobody waits for it.
#[cold]
fn begin_ahead(attached: &Attached) {
    attached.page.phase_began_ahead();
    shield((), || _ = presence().map(call_leader));
}

/// Wakes the leader; if it is gone this process takes its place.
fn call_leader(presence: &'static Presence) {
    if !presence.attached.page.bell.ring() {
        leader::start(presence);
    }
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Turn,
    /// `WEIR_MAX_WAIT`.
    Limit,
    /// There is nobody to ask.
    Alone,
}

#[cold]
#[inline(never)]
fn wait(attached: Attached, bytes: u64) {
    let Attached { page, slot, .. } = attached;
    let (start_ticks, start_ns) = (clock::ticks(), now_ns());
    slot.is_here();
    slot.waiting_bytes.fetch_add(bytes, AcqRel);
    slot.waiting.fetch_add(1, AcqRel);
    let outcome = turn(&attached, bytes, start_ns);
    // Started before it stops waiting: between the two nobody may think that nothing is going on.
    slot.in_flight.fetch_add(1, AcqRel);
    slot.waiting.fetch_sub(1, AcqRel);
    slot.waiting_bytes.fetch_sub(bytes, AcqRel);
    if outcome == Outcome::Limit {
        page.limit_reached.store(1, Release);
        page.set_credit(OPEN);
    }
    if outcome != Outcome::Turn {
        page.charge(bytes);
    }
    let waited_ticks = count_wait(slot, start_ticks, start_ns, outcome);
    note(|counts| &counts.waits, 1);
    note(|counts| &counts.wait_ticks, waited_ticks);
}

/// A wait that began then has ended, for tokens or for a turn. Answers how long it took.
fn count_wait(slot: &page::Slot, start_ticks: u64, start_ns: u64, outcome: Outcome) -> u64 {
    slot.waited_ns.fetch_add(now_ns().saturating_sub(start_ns), Relaxed);
    let waited_ticks = clock::ticks().saturating_sub(start_ticks);
    let thread = Thread::current();
    thread.gate_ticks.set(thread.gate_ticks.get() + waited_ticks);
    note(|counts| &counts.limits, u64::from(outcome == Outcome::Limit));
    note(|counts| &counts.alone, u64::from(outcome == Outcome::Alone));
    waited_ticks
}

/// Waits for the turn of a request, or for a reason to go on without.
fn turn(attached: &Attached, bytes: u64, start_ns: u64) -> Outcome {
    let page = attached.page;
    let look = || {
        let news = page.news();
        if page.spend(bytes).is_some() { None } else { Some(news) }
    };
    let expected_ns = || page.expected_ns.load(Acquire);
    wait_for(attached, start_ns, expected_ns, look, |news, limit| page.sleep(news, limit))
}

/// What somebody who waits does next.
enum Next {
    GoOn(Outcome),
    Yield,
    Sleep(u32, Duration),
}

/// Asks the leader to look, and waits until `look` answers nothing, or for a reason to go on all the same. What it answers is
/// for `sleep`, which ends when that has changed. The limit is beyond the time that others should need.
fn wait_for(
    attached: &Attached,
    start_ns: u64,
    expected_ns: impl Fn() -> u64,
    look: impl Fn() -> Option<u32>,
    sleep: impl Fn(u32, Duration),
) -> Outcome {
    shield((), || _ = presence().map(call_leader));
    loop {
        let next = || match look() {
            None => Next::GoOn(Outcome::Turn),
            Some(seen) => wait_on(attached, start_ns, expected_ns(), seen),
        };
        // In between, who waits is who called: a signal handler may do I/O of its own, or never come back here.
        match shield(Next::GoOn(Outcome::Alone), next) {
            Next::GoOn(outcome) => return outcome,
            // SAFETY: no arguments.
            Next::Yield => _ = unsafe { libc::sched_yield() },
            Next::Sleep(seen, limit) => sleep(seen, limit),
        }
    }
}

/// It has waited in vain so far.
fn wait_on(attached: &Attached, start_ns: u64, expected_ns: u64, seen: u32) -> Next {
    let now = now_ns();
    let patience_ns = config::get(|c| c.max_wait_ns);
    let limit_ns = start_ns.saturating_add(patience_ns).saturating_add(expected_ns);
    let silent_ns = attached.page.silent_ns(now);
    if now >= limit_ns {
        return Next::GoOn(Outcome::Limit);
    }
    let Some(presence) = presence().filter(|_| lifecycle::armed()) else { return Next::GoOn(Outcome::Alone) };
    if silent_ns > SILENT_NS {
        if !attached.is_at(&presence.place) {
            // Somebody took the page away (the system may, at a logout): the next request makes another.
            PRESENCE.store(std::ptr::null_mut(), Release);
            return Next::GoOn(Outcome::Alone);
        }
        leader::start(presence);
    }
    if silent_ns > SILENT_NS + ALONE_AFTER_NS {
        return Next::GoOn(Outcome::Alone);
    }
    if now < start_ns + AWAKE_NS {
        return Next::Yield;
    }
    Next::Sleep(seen, LOOK.min(Duration::from_nanos(limit_ns - now)))
}

/// Adds to what the profile will say of the gate.
fn note(which: impl Fn(&GateCounts) -> &AtomicU64, amount: u64) {
    measure::with_header(|header| _ = which(&header.gate).fetch_add(amount, Relaxed));
}

/// An MPI file was opened, or closed: with the last one the phase is over.
pub(crate) fn file_opened() {
    if is_on()
        && let Some(attached) = attached()
    {
        attached.slot.open_files.fetch_add(1, AcqRel);
    }
}

pub(crate) fn file_closed() {
    let open_files = |slot: &page::Slot| {
        slot.open_files.fetch_update(AcqRel, Relaxed, |open| open.checked_sub(1)).ok() == Some(1)
    };
    tell(open_files);
}

/// `weir_phase_begin`: asks, without waiting. `weir_phase_end`: others may go.
pub(crate) fn phase_begins() {
    if is_on() && attached().is_some() {
        tell(|slot| slot.marks.fetch_add(1, AcqRel) == 0);
    }
}

pub(crate) fn phase_ends() {
    tell(|slot| slot.marks.fetch_update(AcqRel, Relaxed, |marks| marks.checked_sub(1)).ok() == Some(1));
}

/// Changes the slot, and wakes the leader if that is news.
fn tell(change: impl FnOnce(&page::Slot) -> bool) {
    if !is_on() {
        return;
    }
    shield((), || {
        let Some(presence) = presence() else { return };
        if change(presence.attached.slot) {
            presence.attached.page.bell.ring();
        }
    });
}

/// How long the end of the program waits for the leader to say goodbye.
const FAREWELL: Duration = Duration::from_millis(200);

/// No more I/O will come from this process.
pub(crate) fn leave() {
    HELD_BACK.store(NOTHING, Release);
    let Some(presence) = presence() else { return };
    PRESENCE.store(std::ptr::null_mut(), Release);
    leader::stop(presence, FAREWELL);
    presence.attached.leave(&presence.place);
}

/// This is a forked child: the page is its parent's.
pub(crate) fn forget() {
    HELD_BACK.store(NOTHING, Release);
    PRESENCE.store(std::ptr::null_mut(), Release);
    leader::forget();
}

/// Why there is no coordination, until it is said, once per process.
static UNSAID: Mutex<Option<String>> = Mutex::new(None);
static SAID: AtomicBool = AtomicBool::new(false);

/// Keeps for the profile why there is no coordination, and says it.
fn explain(page: &page::Page, reason: &str) {
    keep_reason(reason);
    if !SAID.swap(true, Relaxed) {
        *UNSAID.lock().unwrap_or_else(|e| e.into_inner()) = Some(reason.into());
    }
    speak_up(page);
}

/// For the profile.
fn keep_reason(reason: &str) {
    measure::with_header(|header| header.gate_note.set(reason));
}

/// Says what is to be said, on the node of rank 0, which may come later than the reason.
fn speak_up(page: &page::Page) {
    if page.is_home.load(Acquire) == 1
        && let Some(reason) = UNSAID.lock().unwrap_or_else(|e| e.into_inner()).take()
    {
        say_alone(&reason);
    }
}

fn say_alone(reason: &str) {
    config::say(&format!("no coordination: {reason}; the program runs on by itself"));
}
