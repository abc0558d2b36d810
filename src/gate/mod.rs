//! The gate: a job that shares storage with others waits here for its turn.
//!
//! Only the calls that really move data pass it, one by one: those of the MPI library beneath
//! `MPI_File_*` (the aggregators' in a collective call), and the program's own where they move much ([`own`]). Ranks
//! that wait for an aggregator wait inside MPI as they would for a slow disk, so no rank is ever left
//! outside a collective call that another has entered, and nothing needs to be communicated.
//!
//! Jobs take turns at a storage; each that a job uses is a [`lane`]. The ranks of a node share a [`page::Page`] for it; one of
//! them, the leader, has a thread ([`leader`]) that speaks with the coordinator for all. Every wait has an end: when the leader or the coordinator is
//! gone, or after `WEIR_MAX_WAIT`, the request goes on without a grant, and that is counted.

mod bell;
mod desk;
pub(crate) mod hints;
mod lane;
mod leader;
mod own;
mod page;
pub(crate) mod reads;
mod storage;
mod target;
mod thread;

use crate::config::{self, Gate};
use crate::measure::{self, files};
use crate::shim::caller::{Caller, Thread};
use crate::shim::shield::shield;
use crate::{clock, lifecycle};
use lane::{Lane, Presence};
use page::Attached;
use reads::{Read, Reads};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;
use weir_coord::ledger::{self, Entry, Outcome, Patience, Prospect, SILENT_NS, Slot};
use weir_coord::now_ns;
use weir_profile::layout::{Block, GateCounts, Header, gate_seen};

/// What is held back. Read before anything else; 0 is nothing.
static HELD_BACK: AtomicUsize = AtomicUsize::new(NOTHING);
const NOTHING: usize = 0;
const BY_MPI: usize = 1;
/// What the MPI library moves, and what the program itself moves to or from regular files.
const LARGE: usize = 2;
const EVERYTHING: usize = 3;

/// The system moves no more with one call, whatever it is asked for. What a call that it refuses asks for must not use up
/// the credit there is.
const MAX_BYTES: u64 = 0x7fff_f000;

/// A smaller request needs no turn: to ask for it would take longer than to make it. With `WEIR_FREE_BYTES=0` every request
/// takes its turn.
static MIN_BYTES: AtomicU64 = AtomicU64::new(0);
const USUAL_MIN_BYTES: u64 = 4096;

/// Weir is armed. Whether anything is held back; the page is made with the first file.
pub(crate) fn arm() -> bool {
    let held_back = match config::get(|c| (c.coordinator.is_some(), c.gate)) {
        (false, _) | (_, Gate::Off) => NOTHING,
        (_, Gate::Mpi) => BY_MPI,
        (_, Gate::Auto) => LARGE,
        (_, Gate::All) => EVERYTHING,
    };
    if held_back != NOTHING {
        lane::reset();
        own::reset();
        let is_small_free = config::get(|c| c.free_bytes > 0);
        MIN_BYTES.store(if is_small_free { USUAL_MIN_BYTES } else { 0 }, Relaxed);
    }
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
    {
        lane::leave_alone(index);
    }
}

/// A request that was let in; it ends when this is dropped.
pub(crate) struct Pass {
    request: Option<Admitted>,
    read: Option<Read>,
}

struct Admitted {
    attached: Attached,
    bytes: u64,
    start_ns: u64,
}

impl Pass {
    const FREE: Pass = Pass { request: None, read: None };

    /// A request of which nobody knew how long it would be.
    pub(crate) fn charge(&mut self, more_bytes: u64) {
        if let Some(Admitted { attached, bytes, .. }) = &mut self.request {
            attached.page.ledger.charge(more_bytes);
            *bytes += more_bytes;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(Admitted { attached, bytes, start_ns }) = &self.request {
            let Attached { page, slot, lane, .. } = *attached;
            let now = now_ns();
            if let Some(read) = &self.read {
                read.ended(attached, now);
            }
            if page.ledger.leave(slot, *bytes, *start_ns, now) {
                page.bell.ring();
            }
            // While there is credit nobody waits, and nobody else would find out.
            if page.ledger.silent_ns(now) > SILENT_NS {
                replace_leader(lane);
            }
        }
    }
}

#[cold]
fn replace_leader(lane: &'static Lane) {
    shield((), || _ = lane.presence().map(|presence| lane.thread.start(presence)));
}

/// A request of `bytes` bytes on a file is about to start: waits until it may. `descriptor` tells where the file lies.
pub(crate) fn admit(thread: &Thread, block: &Block, descriptor: i32, bytes: u64) -> Pass {
    let is_own = thread.caller.get() == Caller::App;
    if !is_held_back(thread, descriptor) {
        saw(gate_seen::PASSED);
        return Pass::FREE;
    }
    if (1..MIN_BYTES.load(Relaxed)).contains(&bytes) {
        saw(gate_seen::SMALL);
        return Pass::FREE;
    }
    let Some(attached) = lane::of_file(block, || Some(descriptor)) else { return Pass::FREE };
    saw(gate_seen::ADMITTED);
    let bytes = bytes.min(MAX_BYTES);
    if is_own {
        own::note(bytes);
    }
    match attached.page.ledger.enter(attached.slot, bytes) {
        Entry::Admitted => {}
        Entry::AdmittedAhead => begin_ahead(attached.lane),
        Entry::MustWait if is_own && own::is_in_signal_handler() => go_on(attached, bytes),
        Entry::MustWait => wait(attached, bytes),
    }
    Pass { request: Some(Admitted { attached, bytes, start_ns: now_ns() }), read: None }
}

/// Whether the call of this thread on a file may have to wait for its turn.
fn is_held_back(thread: &Thread, descriptor: i32) -> bool {
    let held_back = HELD_BACK.load(Relaxed);
    match thread.caller.get() {
        caller if caller.is_mpi() => held_back != NOTHING,
        Caller::App => held_back == EVERYTHING || held_back == LARGE && own::is_data(descriptor),
        _ => false,
    }
}

/// The same for a sync, which moves what was written before.
pub(crate) fn admit_sync(thread: &Thread, block: &Block, descriptor: i32) -> Pass {
    let is_own = thread.caller.get() == Caller::App && HELD_BACK.load(Relaxed) == LARGE;
    if is_own && !own::is_much_to_sync() {
        saw(gate_seen::SMALL);
        return Pass::FREE;
    }
    admit(thread, block, descriptor, 0)
}

/// The same for a call on a stream, which moves so many bytes or, if that is not known, 0.
pub(crate) fn admit_stream(
    thread: &Thread,
    block: &'static Block,
    descriptor: i32,
    bytes: u64,
) -> StreamPass {
    if HELD_BACK.load(Relaxed) != LARGE {
        return StreamPass { pass: admit(thread, block, descriptor, 0), gathers: None, charged_bytes: 0 };
    }
    match own::gathered_bytes(block, bytes) {
        Some(all_bytes) => {
            let pass = admit(thread, block, descriptor, all_bytes);
            StreamPass { pass, gathers: None, charged_bytes: bytes }
        }
        None => {
            saw(gate_seen::SMALL);
            StreamPass { pass: Pass::FREE, gathers: Some(block), charged_bytes: 0 }
        }
    }
}

/// A call on a stream that was let in; it ends when this is dropped.
pub(crate) struct StreamPass {
    pass: Pass,
    /// What it moves is kept in mind until it is enough for a turn.
    gathers: Option<&'static Block>,
    /// What it was charged with before it moved anything.
    charged_bytes: u64,
}

impl StreamPass {
    /// The call has moved so much.
    pub(crate) fn moved(&mut self, bytes: u64) {
        match self.gathers {
            Some(block) => own::gather(block, bytes),
            None => self.pass.charge(bytes.saturating_sub(self.charged_bytes)),
        }
    }
}

/// The same for one that reads: an aggregator's may then have to wait for its turn at the storage, which is not
/// kept from others for want of bytes.
pub(crate) fn admit_read(thread: &Thread, block: &Block, descriptor: i32, bytes: u64) -> Pass {
    let reads = Reads::under_way(thread, block);
    if let Some(reads) = reads {
        reads.note_rest(now_ns());
    }
    let mut pass = admit(thread, block, descriptor, bytes);
    if let (Some(reads), Some(Admitted { attached, .. })) = (reads, &pass.request) {
        pass.read = Some(reads.start(attached, descriptor));
    }
    pass
}

/// The first request of a phase that was granted before it began: the leader is told, and nobody waits for it.
#[cold]
fn begin_ahead(lane: &'static Lane) {
    shield((), || call_leader(lane));
}

/// Wakes the leader; if it is gone this process takes its place.
fn call_leader(lane: &'static Lane) {
    if let Some(presence) = lane.presence()
        && !presence.attached.page.bell.ring()
    {
        lane.thread.start(presence);
    }
}

/// The request goes on without its turn: where it is made nothing may be waited for.
#[cold]
fn go_on(attached: Attached, bytes: u64) {
    let Attached { page, slot, .. } = attached;
    page.ledger.start_waiting(slot, bytes);
    if page.ledger.stop_waiting(slot, bytes, Outcome::Alone) {
        page.wake_ranks();
    }
}

#[cold]
#[inline(never)]
fn wait(attached: Attached, bytes: u64) {
    let Attached { page, slot, .. } = attached;
    let (start_ticks, start_ns) = (clock::ticks(), now_ns());
    let waited_ns = page.ledger.start_waiting(slot, bytes);
    // Waits for the turn of the request, or for a reason to go on without.
    let look = || page.ledger.try_again(bytes).err();
    let outcome =
        wait_for(&attached, patience(start_ns, waited_ns), look, |news, limit| page.sleep(news, limit));
    if page.ledger.stop_waiting(slot, bytes, outcome) {
        page.wake_ranks();
    }
    let waited_ticks = count_wait(slot, start_ticks, start_ns, outcome);
    note(|counts| &counts.waits, 1);
    note(|counts| &counts.wait_ticks, waited_ticks);
}

/// A wait that began then has ended, for tokens or for a turn. Answers how long it took.
fn count_wait(slot: &Slot, start_ticks: u64, start_ns: u64, outcome: Outcome) -> u64 {
    slot.add_wait(now_ns().saturating_sub(start_ns));
    let waited_ticks = clock::ticks().saturating_sub(start_ticks);
    let thread = Thread::current();
    thread.gate_ticks.set(thread.gate_ticks.get() + waited_ticks);
    note(|counts| &counts.limits, u64::from(outcome == Outcome::Limit));
    note(|counts| &counts.alone, u64::from(outcome == Outcome::Alone));
    waited_ticks
}

/// How long a wait that began then may last, of a rank that has waited so long before in the phase.
fn patience(start_ns: u64, waited_ns: u64) -> Patience {
    Patience::new(start_ns, config::get(|c| c.max_wait_ns), waited_ns)
}

/// What a waiting rank does next.
enum Next {
    GoOn(Outcome),
    Yield,
    Sleep(u32, Duration),
}

/// Asks the leader to look, then polls `look` until it returns `None` (admitted), the limit passes, or there is nobody to
/// ask; otherwise sleeps on the value that it returned.
fn wait_for(
    attached: &Attached,
    patience: Patience,
    look: impl Fn() -> Option<u32>,
    sleep: impl Fn(u32, Duration),
) -> Outcome {
    shield((), || call_leader(attached.lane));
    loop {
        let next = || match look() {
            None => Next::GoOn(Outcome::Turn),
            Some(seen) => wait_on(attached, &patience, seen),
        };
        // Outside the shield, so that I/O in a signal handler counts as the program's, and a `longjmp` leaves no lock.
        match shield(Next::GoOn(Outcome::Alone), next) {
            Next::GoOn(outcome) => return outcome,
            // SAFETY: no arguments.
            Next::Yield => _ = unsafe { libc::sched_yield() },
            Next::Sleep(seen, limit) => sleep(seen, limit),
        }
    }
}

/// The rank has waited in vain so far.
fn wait_on(attached: &Attached, patience: &Patience, seen: u32) -> Next {
    let now = now_ns();
    let silent_ns = attached.page.ledger.silent_ns(now);
    let lane = attached.lane;
    let Some(presence) = lane.presence().filter(|_| lifecycle::armed()) else {
        return Next::GoOn(Outcome::Alone);
    };
    if silent_ns > SILENT_NS {
        if !attached.is_at(&presence.place) {
            // Somebody took the page away (the system may, at a logout): the next request makes another.
            lane.forget_page();
            return Next::GoOn(Outcome::Alone);
        }
        lane.thread.start(presence);
    }
    match patience.next(now, silent_ns) {
        ledger::Next::GoOn(outcome) => Next::GoOn(outcome),
        ledger::Next::Yield => Next::Yield,
        ledger::Next::Sleep { limit_ns } => Next::Sleep(seen, Duration::from_nanos(limit_ns)),
    }
}

/// Adds to what the profile will say of the gate.
fn note(which: impl Fn(&GateCounts) -> &AtomicU64, amount: u64) {
    record(|header| _ = which(&header.gate).fetch_add(amount, Relaxed));
}

/// Keeps for the profile what was seen of the program's I/O: bits of [`gate_seen`].
fn saw(bits: u64) {
    record(|header| {
        if header.gate_seen.load(Relaxed) & bits != bits {
            header.gate_seen.fetch_or(bits, Relaxed);
        }
    });
}

/// Changes the record's header, unless the program has begun to end: the helper process may have written the record for good by
/// then, and what the gate sees of the end (its coordinator leaves, too) is nothing to tell.
fn record(change: impl FnOnce(&Header)) {
    if lifecycle::armed() {
        measure::with_header(change);
    }
}

/// An MPI file was opened, or closed: with the last one the phase is over.
pub(crate) fn file_opened() {
    if is_on() {
        lane::file_opened();
    }
}

pub(crate) fn file_closed() {
    if is_on() {
        shield((), lane::file_closed);
    }
}

/// A rank is about to make a collective call that moves so many bytes of its own. Whoever moves them, its node hears of them
/// before: they are the least that the phase will move. (A read may ask for the same bytes on every rank.)
pub(crate) fn collective_begins(thread: &Thread, block: &Block, writes: bool, bytes: u64) {
    let foretold_bytes = if writes && bytes >= MIN_BYTES.load(Relaxed) { bytes } else { 0 };
    // A rank that moves nothing itself has a page only if it has something to say.
    if foretold_bytes == 0 && !lane::has_something_to_say() {
        return;
    }
    let file = block.file.load(Relaxed);
    let Some(attached) = lane::of_file(block, || files::mpi_fd_of(file)) else { return };
    if foretold_bytes > 0 {
        attached.slot.begin_call(foretold_bytes);
        thread.announced_at.set(Some(attached.slot));
    }
}

/// Whatever call the thread was in has ended.
#[inline(always)]
pub(crate) fn collective_ends(thread: &Thread) {
    if let Some(slot) = thread.announced_at.take() {
        slot.end_call();
    }
}

/// `weir_phase_begin`: asks, without waiting; `bytes` is what the program says that it will move, or 0.
/// `weir_phase_end`: others may go.
pub(crate) fn phase_begins(bytes: u64) {
    if is_on() {
        shield((), || lane::phase_begins(bytes));
    }
}

/// `weir_expect`: what the program says of its phases; 0 is unknown.
pub(crate) fn expect(period_ns: u64, bytes: u64) {
    if is_on() {
        lane::expect(period_ns, bytes);
    }
}

/// What the job has of its storages now: of the one where it has least, or has to wait longest. `None`: nobody coordinates.
pub(crate) fn prospect() -> Option<Prospect> {
    let now = now_ns();
    let all = lane::present().filter_map(|presence| presence.attached.page.ledger.prospect(now));
    all.reduce(|one, other| Prospect {
        share: one.share.min(other.share),
        go_on_ns: one.go_on_ns.max(other.go_on_ns),
    })
}

/// Seconds until the job may go on, as its coordinator has said; 0 if it may go.
pub(crate) fn expected_wait_s() -> f64 {
    let go_on_ns = prospect().map_or(0, |prospect| prospect.go_on_ns);
    go_on_ns.saturating_sub(now_ns()) as f64 * 1e-9
}

pub(crate) fn phase_ends() {
    if is_on() {
        shield((), lane::phase_ends);
    }
}

/// How long the end of the program waits for the leader to say goodbye.
const FAREWELL: Duration = Duration::from_millis(200);

/// No more I/O will come from this process.
pub(crate) fn leave() {
    HELD_BACK.store(NOTHING, Release);
    for (lane, presence) in lane::take_all() {
        lane.thread.stop(presence, FAREWELL);
        presence.attached.leave();
    }
}

/// This is a forked child: the page is its parent's.
pub(crate) fn forget() {
    HELD_BACK.store(NOTHING, Release);
    lane::take_all().for_each(drop);
    lane::forget_threads();
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
    record(|header| header.gate_note.set(reason));
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
