//! The thread that speaks with the coordinator for all ranks of the job on a node. With all signals
//! blocked, it never calls MPI, and it has a table of descriptors of its own.

use super::bell::Ears;
use super::desk::Answer;
use super::page::Page;
use super::storage::StorageName;
use super::thread::{own_descriptors, stack_bytes, with_signals_blocked};
use super::{Presence, explain, note, record, speak_up};
use crate::config;
use crate::profile;
use crate::shim::shield::shield;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use weir_coord::history::{History, Key};
use weir_coord::ledger::SILENT_NS;
use weir_coord::member::{Member, Way};
use weir_coord::session::{Gate, Input, Limits, OpenReason, Word};
use weir_coord::wire::Identity;
use weir_coord::{Waker, now_ns};

const TRY_AGAIN_NS: u64 = 200_000_000;

/// How often a gate that stays open is looked at.
const OPEN_LOOK: Duration = Duration::from_millis(100);
/// How often the page is looked at where nobody listens to the bell.
const DEAF_LOOK: Duration = Duration::from_millis(2);
/// How long it listens for the answer to a question by itself: one that comes at once need not wake another thread first.
const ANSWER: Duration = Duration::from_millis(1);
/// How often it looks whether all ranks are alive.
const ROLL_CALL_NS: u64 = 250_000_000;

const STACK_BYTES: usize = 1 << 20;

/// The thread by which this process leads its node at a storage, if it does.
pub(super) struct LeaderThread {
    is_running: Mutex<bool>,
    ended: Condvar,
    is_leaving: AtomicBool,
    /// When it was last tried.
    tried_ns: AtomicU64,
}

impl LeaderThread {
    pub(super) const fn new() -> LeaderThread {
        LeaderThread {
            is_running: Mutex::new(false),
            ended: Condvar::new(),
            is_leaving: AtomicBool::new(false),
            tried_ns: AtomicU64::new(0),
        }
    }

    /// Makes this process the leader, unless there is one.
    pub(super) fn start(&'static self, presence: &'static Presence) {
        let now = now_ns();
        let tried_ns = self.tried_ns.swap(now, AcqRel);
        if tried_ns != 0 && now.saturating_sub(tried_ns) < TRY_AGAIN_NS {
            self.tried_ns.store(tried_ns, Release);
            return;
        }
        let mut is_running = self.is_running.lock().unwrap_or_else(|e| e.into_inner());
        if *is_running {
            return;
        }
        self.is_leaving.store(false, Release);
        let builder = std::thread::Builder::new().name("weir".into()).stack_size(stack_bytes(STACK_BYTES));
        let work = move || {
            shield((), || lead(presence, &self.is_leaving));
            *self.is_running.lock().unwrap_or_else(|e| e.into_inner()) = false;
            self.ended.notify_all();
        };
        match with_signals_blocked(|| builder.spawn(work)) {
            Ok(_) => *is_running = true,
            Err(error) => explain(presence.attached.page, &format!("no thread to coordinate with: {error}")),
        }
    }

    /// Ends the thread, if there is one, and waits for that for a while.
    pub(super) fn stop(&self, presence: &Presence, limit: Duration) {
        // Without waiting: a signal handler that ends the program may have interrupted whoever holds it.
        let Ok(is_running) = self.is_running.try_lock() else { return };
        if *is_running {
            self.is_leaving.store(true, Release);
            presence.attached.page.bell.ring();
            let _ = self.ended.wait_timeout_while(is_running, limit, |is_running| *is_running);
        }
        self.tried_ns.store(0, Release);
    }

    /// In a forked child there is no such thread.
    pub(super) fn forget(&self) {
        self.tried_ns.store(0, Release);
        if let Ok(mut is_running) = self.is_running.try_lock() {
            *is_running = false;
        }
    }
}

fn lead(presence: &Presence, is_leaving: &'static AtomicBool) {
    let page = presence.attached.page;
    if !own_descriptors() {
        // With the program's table, what it closes and opens would be ours.
        note(|counts| &counts.opens, 1);
        explain(page, "this system does not let a thread have descriptors of its own (unshare, close_range)");
        return stand_open(page, is_leaving);
    }
    // The page that others find is another one: then they lead themselves.
    if !presence.attached.is_at(&presence.place) {
        return;
    }
    let Some(_lock) = presence.place.try_lead() else { return };
    page.ledger.beat(now_ns());
    match member(page, &presence.storage) {
        Ok((member, waker)) => Leader::new(page, member, waker, is_leaving).serve(),
        Err(reason) => {
            note(|counts| &counts.opens, 1);
            explain(page, &reason);
            stand_open(page, is_leaving);
        }
    }
    speak_up(page);
}

/// Nobody is held back here.
fn stand_open(page: &Page, is_leaving: &AtomicBool) {
    while !is_leaving.load(Acquire) {
        page.ledger.beat(now_ns());
        page.ledger.set_prospect(None);
        hold(page, Gate::Open { reason: OpenReason::NoCoordinator }, 0);
        speak_up(page);
        std::thread::sleep(OPEN_LOOK);
    }
}

/// Puts what the gate holds before the ranks.
fn hold(page: &Page, gate: Gate, base_bytes: u64) {
    if page.ledger.hold(&gate, base_bytes) {
        page.wake_ranks();
    }
}

fn member(page: &Page, storage: &StorageName) -> Result<(Member, Waker), String> {
    let failed = |error: std::io::Error| format!("no descriptors to coordinate with: {error}");
    let (way, identity) = introduction(storage)?;
    let waker = Waker::new().map_err(failed)?;
    let limits = config::get(|c| Limits {
        phase_gap_ns: Some(c.phase_gap_ns).filter(|gap_ns| *gap_ns > 0),
        max_wait_ns: c.max_wait_ns,
        free_bytes: c.free_bytes,
    });
    let member = Member::new(way, identity, limits, &page.ledger.sum(), waker.clone());
    Ok((member.map_err(failed)?, waker))
}

/// Where the coordinator is, and who asks.
fn introduction(storage: &StorageName) -> Result<(Way, Identity), String> {
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
        nodes: profile::nodes(own.nprocs).try_into().unwrap_or(u32::MAX),
        w_iter_ns: habits.and_then(|habits| habits.w_iter_ns),
        mean_phase_bytes: habits.map(|habits| habits.mean_phase_bytes),
        period_ns: config::get(|c| c.period_ns),
        weight: 1,
        user: weir_coord::auth::user(),
        account: account(),
        storage: storage.name.clone(),
        mount: storage.mount.clone(),
        // The session adds what it sees of this run.
        ..Identity::default()
    };
    Ok((way, identity))
}

/// The account of the batch system that the job runs for; nothing if there is none, or if it is no name.
fn account() -> String {
    let account = ["SLURM_JOB_ACCOUNT", "PBS_ACCOUNT"].into_iter().find_map(config::variable);
    account.filter(|name| name.len() <= 64 && !name.contains(char::is_control)).unwrap_or_default()
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
    /// Somebody wants the thread to end.
    is_leaving: &'static AtomicBool,
    /// Allocations that came too late.
    unwanted: Vec<u64>,
}

impl Leader {
    fn new(page: &'static Page, member: Member, waker: Waker, is_leaving: &'static AtomicBool) -> Leader {
        page.ledger.begin_to_lead();
        page.desk.open();
        page.readers.open();
        let ears = Ears::open(member.as_raw_fd(), waker, &page.bell);
        let leader = Leader { page, ears, member, is_leaving, unwanted: Vec::new() };
        leader.hold();
        leader
    }

    fn serve(mut self) {
        let (mut roll_call_ns, mut at_desk) = (0, None);
        loop {
            let rings = self.page.bell.rings();
            if self.is_leaving.load(Acquire) {
                break;
            }
            let now = now_ns();
            self.page.ledger.beat(now);
            if now >= roll_call_ns {
                self.page.call_roll();
                self.unwanted.extend(self.page.desk.clear(&mut at_desk));
                speak_up(self.page);
                roll_call_ns = now + ROLL_CALL_NS;
            }
            self.look();
            self.hear(Duration::ZERO);
            if self.member.session().is_asking() {
                self.hear(ANSWER);
            }
            for request in std::mem::take(&mut self.unwanted) {
                self.member.tell(Input::Release { request });
            }
            self.rest(rings);
        }
        self.depart();
    }

    /// Tells the session what the ranks do and ask.
    fn look(&mut self) {
        let (page, member) = (self.page, &mut self.member);
        let sum = page.ledger.sum();
        member.tell(Input::Look(&sum));
        if sum.limit_reached && sum.in_flight == 0 && member.session().phase().is_none() {
            // A wait reached its limit when no phase was known: no other phase shall be open for it.
            page.ledger.end_phase();
        }
        let is_open = member.session().gate() == (Gate::Open { reason: OpenReason::NoCoordinator });
        if is_open || member.session().is_joined() {
            page.desk.pass_on(|input| member.tell(input));
        }
        page.readers.pass_on(|input| member.tell(input));
        self.hold();
    }

    /// Hears what the coordinator has to say, and tells the ranks.
    fn hear(&mut self, timeout: Duration) {
        let (page, unwanted) = (self.page, &mut self.unwanted);
        self.member.step(timeout, &mut |word| pass_on(page, unwanted, word));
        self.hold();
    }

    fn hold(&self) {
        let session = self.member.session();
        self.page.ledger.call_at(session.call_at_bytes());
        self.page.ledger.set_prospect(session.prospect());
        hold(self.page, session.gate(), session.base_bytes());
    }

    /// Until the bell rings, or it is time to look anyway.
    fn rest(&mut self, rings: u32) {
        let wait_ns = self.member.deadline_ns().saturating_sub(now_ns());
        let limit = Duration::from_nanos(wait_ns.min(self.member.session().look_again_ns()));
        match &self.ears {
            Some(ears) => {
                ears.listen();
                self.page.bell.rest(rings, limit);
            }
            // Then it hears the coordinator, and looks often for what the ranks do.
            None => self.hear(limit.min(DEAF_LOOK)),
        }
    }

    /// The job is over, or this rank's part in it: what was learnt is kept, and others may lead.
    fn depart(mut self) {
        self.member.tell(Input::Leave(&self.page.ledger.sum()));
        self.page.ledger.end_phase();
        self.hold();
        if self.page.is_home.load(Acquire) == 1
            && let Some((history, key)) = history()
            && let Err(reason) = history.learn(&key, self.member.session().habits())
        {
            config::say_verbose(|| reason);
        }
        drop(self.ears);
        self.member.leave();
        // A rank that still does I/O here finds that nobody leads, and does so itself.
        self.page.ledger.beat(now_ns().saturating_sub(SILENT_NS + 1));
    }
}

/// What the session has to say beside what the gate holds.
fn pass_on(page: &'static Page, unwanted: &mut Vec<u64>, word: Word) {
    match word {
        Word::Joined { policy, orders } => {
            page.readers.set_ordered(orders);
            record(|header| {
                header.policy.set(&policy);
                // Whatever the reason was, it is coordinated again.
                header.gate_note.set("");
            });
        }
        Word::Held => note(|counts| &counts.holds, 1),
        Word::Backfilled => note(|counts| &counts.backfills, 1),
        Word::PhaseEnded => page.ledger.end_phase(),
        Word::Allocated { request, aggregators, stripes, targets } => {
            let answer = Answer { request, aggregators, stripes, targets };
            if !page.desk.answer(&answer) {
                unwanted.push(request);
            }
        }
        Word::Turn { number, call } => page.readers.turn(number, call),
        Word::Lost { .. } => note(|counts| &counts.losses, 1),
        Word::Refused { reason } => explain(page, &reason),
        Word::Opened { reason } => {
            note(|counts| &counts.opens, 1);
            explain(page, &reason);
        }
    }
}
