//! The thread that speaks with the coordinator for all ranks of the job on a node. With all signals
//! blocked, it never calls MPI, and it has a table of descriptors of its own.

use super::bell::Ears;
use super::desk::Answer;
use super::page::{AHEAD, CLOSED, OPEN, Page, SILENT_NS, Sum};
use super::thread::{own_descriptors, stack_bytes, with_signals_blocked};
use super::watch::{Change, Watch};
use super::{Presence, explain, note, speak_up};
use crate::config;
use crate::measure;
use crate::profile;
use crate::shim::shield::shield;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use weir_coord::client::{Identity, Word};
use weir_coord::election::{Member, Way};
use weir_coord::history::{Habits, History, Key};
use weir_coord::{Waker, now_ns};

/// Whether this process has the thread, and whether it is to end.
static RUNNING: Mutex<bool> = Mutex::new(false);
static ENDED: Condvar = Condvar::new();
static LEAVING: AtomicBool = AtomicBool::new(false);
/// When it was last tried.
static TRIED_NS: AtomicU64 = AtomicU64::new(0);
const TRY_AGAIN_NS: u64 = 200_000_000;

/// How often it looks at the page: while credit is limited, in a phase, while held, and in between.
const LIMITED: Duration = Duration::from_millis(2);
const IN_PHASE: Duration = Duration::from_millis(5);
const HELD: Duration = Duration::from_millis(50);
const BETWEEN: Duration = Duration::from_millis(100);
/// How long it listens for the answer to a question by itself: one that comes at once need not wake another thread first.
const ANSWER: Duration = Duration::from_millis(1);
/// How often it looks whether all ranks are alive.
const ROLL_CALL_NS: u64 = 250_000_000;

const STACK_BYTES: usize = 1 << 20;

/// Makes this process the leader, unless there is one.
pub(super) fn start(presence: &'static Presence) {
    let now = now_ns();
    let tried_ns = TRIED_NS.swap(now, AcqRel);
    if tried_ns != 0 && now.saturating_sub(tried_ns) < TRY_AGAIN_NS {
        TRIED_NS.store(tried_ns, Release);
        return;
    }
    let mut running = RUNNING.lock().unwrap_or_else(|e| e.into_inner());
    if *running {
        return;
    }
    LEAVING.store(false, Release);
    let builder = std::thread::Builder::new().name("weir".into()).stack_size(stack_bytes(STACK_BYTES));
    let work = move || {
        shield((), || lead(presence));
        *RUNNING.lock().unwrap_or_else(|e| e.into_inner()) = false;
        ENDED.notify_all();
    };
    match with_signals_blocked(|| builder.spawn(work)) {
        Ok(_) => *running = true,
        Err(error) => explain(presence.attached.page, &format!("no thread to coordinate with: {error}")),
    }
}

/// Ends the thread, if there is one, and waits for that for a while.
pub(super) fn stop(presence: &Presence, limit: Duration) {
    // Without waiting: a signal handler that ends the program may have interrupted whoever holds it.
    let Ok(running) = RUNNING.try_lock() else { return };
    if *running {
        LEAVING.store(true, Release);
        presence.attached.page.bell.ring();
        let _ = ENDED.wait_timeout_while(running, limit, |running| *running);
    }
    TRIED_NS.store(0, Release);
}

/// In a forked child there is no such thread.
pub(super) fn forget() {
    TRIED_NS.store(0, Release);
    if let Ok(mut running) = RUNNING.try_lock() {
        *running = false;
    }
}

fn lead(presence: &Presence) {
    let page = presence.attached.page;
    if !own_descriptors() {
        // With the program's table, what it closes and opens would be ours.
        note(|counts| &counts.opens, 1);
        explain(page, "this system does not let a thread have descriptors of its own (unshare, close_range)");
        return stand_open(page);
    }
    // The page that others find is another one: then they lead themselves.
    if !presence.attached.is_at(&presence.place) {
        return;
    }
    let Ok(Some(_lock)) = presence.place.try_lead() else { return };
    page.beat_ns.store(now_ns(), Release);
    match member() {
        Ok((member, waker)) => Leader::new(page, member, waker).serve(),
        Err(reason) => {
            note(|counts| &counts.opens, 1);
            explain(page, &reason);
            stand_open(page);
        }
    }
    speak_up(page);
}

/// Nobody is held back here.
fn stand_open(page: &Page) {
    page.set_credit(OPEN);
    while !LEAVING.load(Acquire) {
        page.beat_ns.store(now_ns(), Release);
        speak_up(page);
        std::thread::sleep(BETWEEN);
    }
}

fn member() -> Result<(Member, Waker), String> {
    let failed = |error: std::io::Error| format!("no descriptors to coordinate with: {error}");
    let (way, identity) = introduction()?;
    let waker = Waker::new().map_err(failed)?;
    Ok((Member::new(way, identity, waker.clone()).map_err(failed)?, waker))
}

/// Where the coordinator is, and who asks.
fn introduction() -> Result<(Way, Identity), String> {
    let way = config::coordinator_way()?;
    let own = profile::identity();
    let habits = history().and_then(|(history, key)| {
        history.look_up(&key).unwrap_or_else(|reason| {
            config::say_verbose(|| reason);
            None
        })
    });
    let here = profile::ranks_on_this_node().unwrap_or(own.nprocs).max(1);
    let identity = Identity {
        job: own.job.clone(),
        application: own.application.clone(),
        host: own.host.clone(),
        pid: std::process::id(),
        ranks: here.try_into().unwrap_or(u32::MAX),
        nodes: own.nprocs.div_ceil(here).try_into().unwrap_or(u32::MAX),
        w_iter_ns: habits.and_then(|habits| habits.w_iter_ns),
        mean_phase_bytes: habits.map(|habits| habits.mean_phase_bytes),
    };
    Ok((way, identity))
}

/// Where what is known of this program stands.
fn history() -> Option<(History, Key)> {
    let own = profile::identity();
    let executable = std::env::current_exe().unwrap_or_default().to_string_lossy().into_owned();
    let key = Key { application: own.application.clone(), executable, ranks: own.nprocs };
    let directory = weir_coord::history::default_directory()?;
    Some((History::in_directory(directory), key))
}

struct Leader {
    page: &'static Page,
    ears: Option<Ears>,
    member: Member,
    watch: Watch,
    gate: State,
}

/// What the coordinator said last.
struct State {
    page: &'static Page,
    /// Nobody coordinates: everybody may go.
    is_open: bool,
    /// The next phase is granted already.
    is_ahead: bool,
    /// The coordinator was asked for a turn and has not answered.
    is_asking: bool,
    /// Allocations that came too late.
    unwanted: Vec<u64>,
}

impl Leader {
    fn new(page: &'static Page, member: Member, waker: Waker) -> Leader {
        let fixed_gap_ns = Some(config::get(|c| c.phase_gap_ns)).filter(|gap_ns| *gap_ns > 0);
        let sum = page.sum();
        let watch = Watch::new(fixed_gap_ns, config::get(|c| c.max_wait_ns), &sum);
        page.limit_reached.store(0, Release);
        page.forget_waits();
        page.set_credit(CLOSED);
        page.desk.open();
        page.readers.open();
        let ears = Ears::open(member.as_raw_fd(), waker, &page.bell);
        let gate = State { page, is_open: false, is_ahead: false, is_asking: false, unwanted: Vec::new() };
        Leader { page, ears, member, watch, gate }
    }

    fn serve(mut self) {
        let (mut roll_call_ns, mut at_desk) = (0, None);
        loop {
            let rings = self.page.bell.rings();
            if LEAVING.load(Acquire) {
                break;
            }
            let now = now_ns();
            self.page.beat_ns.store(now, Release);
            if now >= roll_call_ns {
                self.page.call_roll();
                self.gate.unwanted.extend(self.page.desk.clear(&mut at_desk));
                speak_up(self.page);
                roll_call_ns = now + ROLL_CALL_NS;
            }
            let sum = self.page.sum();
            let change = self.watch.look(now, &sum);
            self.tell(change, &sum);
            if self.gate.is_open || self.member.client().is_joined() {
                self.page.desk.pass_on(self.member.client());
            }
            self.page.readers.pass_on(self.member.client());
            self.hear(Duration::ZERO);
            if self.gate.is_asking {
                self.hear(ANSWER);
            }
            self.gate.unwanted.drain(..).for_each(|request| self.member.client().release(request));
            self.rest(rings);
        }
        self.depart();
    }

    fn hear(&mut self, timeout: Duration) {
        let (gate, watch) = (&mut self.gate, &self.watch);
        self.member.step(timeout, &mut |word| gate.hear(word, watch));
    }

    /// Until the bell rings, or it is time to look anyway.
    fn rest(&mut self, rings: u32) {
        let wait_ns = self.member.deadline_ns().saturating_sub(now_ns());
        let limit = pause(self.page, &self.watch).min(Duration::from_nanos(wait_ns));
        match &self.ears {
            Some(ears) => {
                ears.listen();
                self.page.bell.rest(rings, limit);
            }
            // Then it hears the coordinator, and looks often for what the ranks do.
            None => self.hear(limit.min(LIMITED)),
        }
    }

    /// Tells the coordinator what the ranks do.
    fn tell(&mut self, change: Change, sum: &Sum) {
        match change {
            Change::Began => {
                self.member.client().begin(self.watch.phases(), None);
                let is_granted = self.gate.is_open || self.gate.is_ahead;
                if is_granted {
                    self.page.set_credit(OPEN);
                }
                self.gate.is_asking = !is_granted && self.member.client().is_joined();
            }
            Change::Ended(ended) => {
                self.page.limit_reached.store(0, Release);
                self.page.forget_waits();
                let habits = self.habits();
                self.member.client().end(ended.bytes, ended.io_ns, ended.waited_ns);
                self.member.client().set_habits(habits);
            }
            Change::None => {}
        }
        match self.watch.phase() {
            Some(_) => self.member.client().moved(self.watch.progress(sum)),
            None => self.gate.stand_by(),
        }
    }

    /// What the phases so far have shown.
    fn habits(&self) -> Habits {
        Habits {
            phases: self.watch.phases(),
            w_iter_ns: self.watch.w_iter_ns(),
            mean_phase_bytes: self.watch.mean_phase_bytes(),
        }
    }

    /// The job is over, or this rank's part in it: what was learnt is kept, and others may lead.
    fn depart(mut self) {
        self.gate.is_ahead = false;
        let change = self.watch.end(&self.page.sum());
        self.tell(change, &Sum::default());
        if self.page.is_home.load(Acquire) == 1
            && let Some((history, key)) = history()
            && let Err(reason) = history.learn(&key, self.habits())
        {
            config::say_verbose(|| reason);
        }
        drop(self.ears);
        self.member.leave();
        // Whoever still does I/O here finds that nobody leads, and does so itself.
        self.page.beat_ns.store(now_ns().saturating_sub(SILENT_NS + 1), Release);
    }
}

/// Until when nothing needs to be looked at, unless the bell rings or the coordinator speaks.
fn pause(page: &Page, watch: &Watch) -> Duration {
    match (watch.phase(), page.credit_bytes()) {
        (None, _) => BETWEEN,
        (Some(_), CLOSED) => HELD,
        (Some(_), OPEN) => IN_PHASE,
        _ => LIMITED,
    }
}

impl State {
    fn hear(&mut self, word: Word, watch: &Watch) {
        // Whatever else is said answers the question, or means that nobody will.
        self.is_asking &= matches!(
            word,
            Word::Credit { .. } | Word::Ahead { .. } | Word::Allocated { .. } | Word::Turn { .. }
        );
        match word {
            Word::Joined { policy, orders } => {
                (self.is_open, self.is_ahead) = (false, false);
                self.page.readers.set_ordered(orders);
                measure::with_header(|header| header.policy.set(&policy));
                if watch.phase().is_none() {
                    self.stand_by();
                }
            }
            Word::Ahead { granted } => {
                self.is_ahead = granted;
                if watch.phase().is_none() {
                    self.stand_by();
                }
            }
            Word::Granted { credit_bytes, expected_ns, .. }
            | Word::Credit { credit_bytes, expected_ns, .. } => {
                self.page.expected_ns.store(expected_ns, Release);
                self.allow(watch.base_bytes().saturating_add(credit_bytes));
            }
            Word::Held { expected_ns, .. } => {
                self.page.expected_ns.store(expected_ns, Release);
                note(|counts| &counts.holds, 1);
                self.allow(CLOSED);
            }
            Word::Allocated { request, aggregators, stripes, targets } => {
                let answer = Answer { request, aggregators, stripes, targets };
                if !self.page.desk.answer(&answer) {
                    self.unwanted.push(request);
                }
            }
            Word::Turn { number, call } => self.page.readers.turn(number, call),
            Word::Lost { .. } => note(|counts| &counts.losses, 1),
            Word::Refused { reason } => explain(self.page, &reason),
            Word::Open { reason } => {
                note(|counts| &counts.opens, u64::from(!self.is_open));
                self.is_open = true;
                explain(self.page, &reason);
                self.page.set_credit(OPEN);
            }
        }
    }

    /// What holds between phases.
    fn stand_by(&self) {
        let credit = match self {
            State { is_open: true, .. } => OPEN,
            State { is_ahead: true, .. } => AHEAD,
            _ => CLOSED,
        };
        self.page.set_credit(credit);
    }

    /// A phase whose wait reached its limit is not held back any more.
    fn allow(&self, credit_bytes: u64) {
        if self.page.limit_reached.load(Acquire) == 0 {
            self.page.set_credit(credit_bytes);
        }
        // It may have reached it just now.
        if self.page.limit_reached.load(Acquire) == 1 {
            self.page.set_credit(OPEN);
        }
    }
}
