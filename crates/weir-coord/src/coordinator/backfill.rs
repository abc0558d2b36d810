//! Work conservation: while the jobs whose turn it is leave the storage idle, others are let in beside them.
//!
//! The policy decides whose turn it is. This layer only fills what the policy's choice leaves unused: the pauses of a job that
//! computes between its requests, the gap after the last request of a phase, a job that cannot use what it was given. A job that
//! is let in so is *backfilled*: its phase still waits for its turn, and it moves a little at a time, for as long as those
//! whose turn it is do not need the storage.

use super::Coordinator;
use crate::jobs::{Job, Standing};
use crate::tokens::UNLIMITED;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_engine::engine::JobId;

/// Over this time a job's use of the storage is looked at.
const WINDOW_NS: u64 = 20_000_000;
/// A storage that had requests under way for this part of the window is busy.
const BUSY: f64 = 0.5;
/// A storage that had them for less than this is idle, whatever else is known.
const HARDLY_BUSY: f64 = 0.05;
/// How often the storage is looked at, while somebody waits for it …
const LOOK_NS: u64 = 5_000_000;
/// … and at the earliest after the look before, when a job begins to wait or one whose turn it is has nothing under way. Later
/// with very many jobs, for all are looked at.
const LOOK_SOON_NS: u64 = 200_000;
const LOOK_SOON_PER_JOB_NS: u64 = 1_000;
/// What a backfilled job may move before it has to be told again, as a part of what the storage moves in the lead of
/// [`crate::tokens::LEAD_NS`] …
const PORTION: f64 = 0.1;
/// … or, while all together keep the storage busy for less than this, so much …
const QUIET: f64 = 0.25;
const LARGE_PORTION: f64 = 1.0;
/// … where the lead is at least this: what a job that trickles moves is no measure of the storage.
const MIN_LEAD_BYTES: f64 = (2560 << 10) as f64;
/// Beside backfilled jobs those whose turn it is may be slower by this part …
const MAX_SLOWDOWN: f64 = 0.1;
/// … over at least this time …
const COMPARED_NS: u64 = 100_000_000;
/// … else nobody is backfilled for this long, and twice as long each time it happens again.
const FIRST_PAUSE_NS: u64 = 200_000_000;
const MAX_PAUSE_NS: u64 = 10_000_000_000;
/// A pause is forgotten when so many times as long has passed without another.
const FORGIVEN_AFTER: u64 = 4;

/// How much of its time a job has requests under way, while it is let in. The times of a phase in which it is held do not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    /// Since when it would be let in, had it never been held.
    since_ns: u64,
    reported_ns: u64,
    busy_ns: u64,
    in_flight: u32,
    /// Time of requests under way that was counted before they ended.
    counted_ns: u64,
    /// It has said something since it was first let in.
    is_heard: bool,
    /// The part of the latest window in which it had requests under way, or of the time since it was let in.
    level: f64,
}

impl Activity {
    /// The job is let in. It will use the storage, though it has not said so yet; in the middle of a phase, as much as it did
    /// before.
    pub(crate) fn begins(self, now_ns: u64, busy_ns: u64) -> Activity {
        let let_in_ns = if self.is_heard { self.reported_ns.saturating_sub(self.since_ns) } else { 0 };
        Activity {
            since_ns: now_ns.saturating_sub(let_in_ns),
            reported_ns: now_ns,
            busy_ns,
            is_heard: self.is_heard,
            level: if self.is_heard { self.level } else { 1.0 },
            ..Activity::default()
        }
    }

    /// What the job's requests have taken so far, and how many are under way. The part of the time since the last report in which
    /// there were any.
    pub(crate) fn report(&mut self, now_ns: u64, busy_ns: u64, in_flight: u32) -> f64 {
        let elapsed_ns = now_ns.saturating_sub(self.reported_ns);
        let taken_ns = busy_ns.saturating_sub(self.busy_ns).saturating_sub(self.counted_ns);
        let part = match elapsed_ns {
            _ if in_flight > 0 => 1.0,
            0 => self.level,
            _ => (taken_ns as f64 / elapsed_ns as f64).min(1.0),
        };
        self.counted_ns = match in_flight {
            0 => 0,
            _ => self.counted_ns.saturating_add(elapsed_ns).saturating_sub(taken_ns),
        };
        // Before a window is over, all of the time since it was let in counts.
        let window_ns = WINDOW_NS.min(now_ns.saturating_sub(self.since_ns));
        self.level = self.blend(part, elapsed_ns, window_ns);
        self.is_heard = true;
        (self.reported_ns, self.busy_ns, self.in_flight) = (now_ns, busy_ns, in_flight);
        part
    }

    /// The part of the latest window in which the job had requests under way, as far as it has said. What it has not said yet
    /// is not taken for granted: where processors are short a report comes late.
    fn level(&self, now_ns: u64) -> f64 {
        let part = if self.in_flight > 0 { 1.0 } else { 0.0 };
        self.blend(part, now_ns.saturating_sub(self.reported_ns), WINDOW_NS)
    }

    /// The level after some time in which it was another.
    fn blend(&self, part: f64, elapsed_ns: u64, window_ns: u64) -> f64 {
        self.level + (part - self.level) * (elapsed_ns as f64 / window_ns.max(1) as f64).min(1.0)
    }
}

/// What those whose turn it is move alone and beside backfilled jobs.
#[derive(Default)]
pub(crate) struct Backfill {
    /// The jobs that are backfilled, with the bytes that each may have spent in its phase.
    jobs: BTreeMap<JobId, u64>,
    is_off: bool,
    looked_ns: u64,
    /// Something has happened for which the storage is to be looked at soon.
    looks_soon: bool,
    paused_until_ns: u64,
    pause_ns: u64,
    alone: Pace,
    beside: Pace,
}

/// Bytes moved over a time, and the part of it in which requests were under way.
#[derive(Clone, Copy, Default)]
struct Pace {
    bytes: u64,
    ns: u64,
    busy_ns: f64,
}

impl Pace {
    fn add(&mut self, bytes: u64, ns: u64, part: f64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.ns = self.ns.saturating_add(ns);
        self.busy_ns += part * ns as f64;
    }

    fn is_known(&self) -> bool {
        self.ns >= COMPARED_NS && self.bytes > 0
    }

    fn ns_per_byte(&self) -> f64 {
        self.ns as f64 / self.bytes as f64
    }

    fn busy_ns_per_byte(&self) -> f64 {
        self.busy_ns / self.bytes as f64
    }
}

impl Backfill {
    /// Nobody is backfilled, and nothing is known.
    pub(super) fn reset(&mut self) {
        *self = Backfill { is_off: self.is_off, ..Backfill::default() };
    }

    /// The job is not backfilled any more.
    pub(super) fn forget(&mut self, id: JobId) {
        self.jobs.remove(&id);
    }

    /// Others have their turn now: what the ones before moved says nothing of them.
    pub(super) fn turn_changed(&mut self) {
        (self.alone, self.beside) = (Pace::default(), Pace::default());
    }

    /// A job whose turn it is has moved these bytes in this time, in a part of which it had requests under way.
    fn granted_moved(&mut self, bytes: u64, ns: u64, part: f64) {
        // Longer pauses are no measure of what the storage gives.
        let ns = ns.min(WINDOW_NS);
        let pace = if self.jobs.is_empty() { &mut self.alone } else { &mut self.beside };
        pace.add(bytes, ns, part);
    }

    /// Whether those whose turn it is are slower beside backfilled jobs than alone, because their requests take longer. That they
    /// compute for longer between them is nobody's fault.
    fn slows(&self) -> bool {
        if !self.alone.is_known() || !self.beside.is_known() {
            return false;
        }
        let longer_ns = self.beside.busy_ns_per_byte() - self.alone.busy_ns_per_byte();
        longer_ns > MAX_SLOWDOWN / (1.0 - MAX_SLOWDOWN) * self.alone.ns_per_byte()
    }

    fn pause(&mut self, now_ns: u64) {
        let good_ns = now_ns.saturating_sub(self.paused_until_ns);
        let last_ns = if good_ns > FORGIVEN_AFTER * self.pause_ns { 0 } else { self.pause_ns };
        self.pause_ns = (2 * last_ns).clamp(FIRST_PAUSE_NS, MAX_PAUSE_NS);
        self.paused_until_ns = now_ns.saturating_add(self.pause_ns);
        self.beside = Pace::default();
    }
}

impl Coordinator {
    /// Whether jobs may go out of turn while the storage is idle.
    pub fn set_backfill(&mut self, on: bool) {
        self.backfill.is_off = !on;
    }

    /// When the storage is to be looked at: while somebody is held.
    pub(super) fn backfill_ns(&self) -> Option<u64> {
        let is_somebody_held = self.in_phase > self.tokens.len() as u64 + self.idle;
        // A policy that keeps the storage idle on purpose is let.
        let may_fill =
            !self.backfill.is_off && self.policy.serves_who_is_alone() && self.gather_until_ns.is_none();
        let soon_ns = LOOK_SOON_NS.max(LOOK_SOON_PER_JOB_NS * self.in_phase);
        let wait_ns = if self.backfill.looks_soon { soon_ns.min(LOOK_NS) } else { LOOK_NS };
        (is_somebody_held && may_fill).then_some(self.backfill.looked_ns + wait_ns)
    }

    /// Lets in whoever comes next if those whose turn it is leave the storage idle; stops those who were, if not.
    pub(super) fn look_for_idle_storage(&mut self, now_ns: u64) {
        self.backfill.looked_ns = now_ns;
        self.backfill.looks_soon = false;
        let (mut level, mut is_inside, mut is_free) = (0.0, false, true);
        for id in self.tokens.jobs() {
            let Some(job) = self.job(id) else { continue };
            let is_resting = self.is_resting(job);
            level += if is_resting { 0.0 } else { job.activity.level(now_ns) };
            is_inside |= job.activity.in_flight > 0;
            is_free &= is_resting;
        }
        if self.backfill.slows() {
            self.backfill.pause(now_ns);
            return self.stop_backfilling(now_ns);
        }
        // Those who were slowed down may keep the storage to themselves for a while, unless they do nothing with it.
        let busy = if now_ns < self.backfill.paused_until_ns { HARDLY_BUSY } else { BUSY };
        if level >= busy {
            return self.stop_backfilling(now_ns);
        }
        let level_of = |job: Option<&Job>| job.map_or(0.0, |job| job.activity.level(now_ns));
        level += self.backfill.jobs.keys().map(|id| level_of(self.job(*id))).sum::<f64>();
        let portion = match level {
            _ if is_free => f64::INFINITY,
            ..QUIET => LARGE_PORTION,
            _ => PORTION,
        };
        let backfilled: Vec<(JobId, u64)> =
            self.backfill.jobs.iter().map(|(id, bytes)| (*id, *bytes)).collect();
        for (id, credit_bytes) in backfilled {
            if !is_inside || credit_bytes == UNLIMITED {
                self.renew_portion(id, portion);
            }
        }
        if level >= BUSY || is_inside {
            return;
        }
        let mut held = self.held_in_order();
        while level < BUSY
            && let Some(Reverse((_, id))) = held.pop()
        {
            self.start_backfilling(now_ns, id, portion);
            level += level_of(self.job(id));
        }
    }

    /// The held jobs that have a request to make: the one whose phase began first comes first. Few of very many are taken, as a
    /// rule, so that they need not be sorted.
    fn held_in_order(&self) -> BinaryHeap<Reverse<(u64, JobId)>> {
        let jobs = self.jobs.iter().enumerate();
        let jobs = jobs.filter_map(|(index, job)| Some((JobId(index as u32), job.as_ref()?)));
        let held = jobs.filter(|(id, job)| job.standing == Standing::Held && self.progress(*id).is_waiting());
        held.map(|(id, job)| Reverse((job.phase_began_ns, id))).collect()
    }

    fn start_backfilling(&mut self, now_ns: u64, id: JobId, portion: f64) {
        let busy_ns = self.busy_ns(id);
        let Some(job) = self.job_mut(id) else { return };
        job.stand(now_ns, Standing::Backfilled);
        job.activity = job.activity.begins(now_ns, busy_ns);
        job.backfills += 1;
        self.totals.decisions += 1;
        self.backfill.jobs.insert(id, self.portion_bytes(id, portion));
        self.for_peers(id, |own, peer| own.grant_node(peer, id, 0.0));
    }

    /// What the job may have spent in its phase with the next portion, a part of the lead.
    fn portion_bytes(&self, id: JobId, portion: f64) -> u64 {
        let bytes = self.tokens.lead_bytes().max(MIN_LEAD_BYTES) * portion;
        // The cast saturates: infinity is no limit.
        self.progress(id).spent_bytes.saturating_add(bytes as u64)
    }

    fn renew_portion(&mut self, id: JobId, portion: f64) {
        let (credit_bytes, portion_bytes) = (self.credit_bytes(id), self.portion_bytes(id, portion));
        let spent_bytes = self.progress(id).spent_bytes;
        // Told when half of it is used: a message takes its time.
        let is_plenty = credit_bytes.saturating_sub(spent_bytes) > (portion_bytes - spent_bytes) / 2;
        if is_plenty && (credit_bytes == UNLIMITED) == (portion_bytes == UNLIMITED) {
            return;
        }
        if let Some(credit_bytes) = self.backfill.jobs.get_mut(&id) {
            *credit_bytes = portion_bytes;
        }
        self.tell_credit(id, portion_bytes);
    }

    /// What the job may have spent in its phase, granted or backfilled.
    pub(super) fn credit_bytes(&self, id: JobId) -> u64 {
        let backfilled = self.backfill.jobs.get(&id).copied();
        backfilled.unwrap_or_else(|| self.tokens.credit_bytes(id))
    }

    fn stop_backfilling(&mut self, now_ns: u64) {
        for id in std::mem::take(&mut self.backfill.jobs).into_keys() {
            if let Some(job) = self.job_mut(id).filter(|job| job.standing == Standing::Backfilled) {
                job.stand(now_ns, Standing::Held);
                self.tell_held(id);
            }
        }
    }

    /// Time that the job's requests have taken in this phase, on all nodes.
    fn busy_ns(&self, id: JobId) -> u64 {
        let Some(job) = self.job(id) else { return 0 };
        let phases = job.peers.iter().filter_map(|&peer| self.node(peer)?.phase);
        phases.map(|phase| phase.busy_ns).fold(0, u64::saturating_add)
    }

    /// Something has changed for those who wait: the storage is looked at soon.
    pub(super) fn look_soon(&mut self) {
        self.backfill.looks_soon = true;
    }

    /// The job's requests have made progress: how busy it is follows from that.
    pub(super) fn note_activity(&mut self, now_ns: u64, id: JobId, done_bytes: u64) {
        let busy_ns = self.busy_ns(id);
        let is_waiting = self.progress(id).is_waiting();
        let Some(job) = self.job(id) else { return };
        let in_flight = job.peers.iter().filter_map(|&peer| Some(self.node(peer)?.phase?.in_flight));
        let in_flight = in_flight.fold(0, u32::saturating_add);
        let since_ns = now_ns.saturating_sub(job.activity.reported_ns);
        let is_granted = matches!(job.standing, Standing::Granted { .. });
        self.backfill.looks_soon |= if is_granted { in_flight == 0 } else { is_waiting };
        let Some(job) = self.job_mut(id).filter(|job| job.standing != Standing::Held) else { return };
        let part = job.activity.report(now_ns, busy_ns, in_flight);
        if is_granted {
            self.backfill.granted_moved(done_bytes, since_ns, part);
        }
    }

    /// The engine has granted the job its turn.
    pub(super) fn turn_begins(&mut self, now_ns: u64, id: JobId) {
        self.backfill.forget(id);
        self.backfill.turn_changed();
        let busy_ns = self.busy_ns(id);
        if let Some(job) = self.job_mut(id) {
            job.activity = job.activity.begins(now_ns, busy_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Pace as Times;
    use crate::wire::{Identity, Message, Progress};
    use weir_engine::sharing::PolicyKind;

    /// Those whose turn it is move a byte in so many nanoseconds, in which requests are under way for a part, alone and beside another.
    fn slows(alone: (u64, f64), beside: (u64, f64)) -> bool {
        let mut backfill = Backfill::default();
        for _ in 0..100 {
            backfill.granted_moved(WINDOW_NS / alone.0, WINDOW_NS, alone.1);
        }
        backfill.jobs.insert(JobId(1), 0);
        for _ in 0..100 {
            backfill.granted_moved(WINDOW_NS / beside.0, WINDOW_NS, beside.1);
        }
        backfill.slows()
    }

    #[test]
    fn pauses_grow_and_are_forgotten() {
        let mut backfill = Backfill::default();
        let mut pause_at = |now_ns: u64| {
            backfill.pause(now_ns);
            backfill.paused_until_ns - now_ns
        };
        assert_eq!(pause_at(1_000_000_000), FIRST_PAUSE_NS);
        assert_eq!(pause_at(1_500_000_000), 2 * FIRST_PAUSE_NS);
        assert_eq!(pause_at(60_000_000_000), FIRST_PAUSE_NS);
    }

    #[test]
    fn a_job_is_slowed_down_where_its_requests_take_longer() {
        assert!(slows((10, 1.0), (12, 1.0)), "one that does nothing but I/O");
        assert!(!slows((100, 1.0), (105, 1.0)), "a little");
        assert!(slows((100, 0.4), (120, 0.5)), "one that computes as well");
        assert!(!slows((100, 0.02), (150, 0.02)), "one that computes for longer");
        assert!(!slows((100, 0.02), (103, 0.05)), "one that hardly notices");
    }

    /// Of many jobs that wait, those whose phases began first come first; a job without a request to make does not come.
    #[test]
    fn held_jobs_are_let_in_in_the_order_of_their_phases() {
        let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Times::default());
        let order = [3u64, 1, 4, 2, 0];
        for (peer, began_ms) in order.into_iter().enumerate() {
            let identity = Identity { job: peer.to_string(), ranks: 1, nodes: 1, ..Identity::default() };
            let hello = Message::Hello { identity: Box::new(identity), rejoins: false, epoch: 0 };
            coordinator.handle(0, peer, hello).unwrap();
            coordinator.handle(1, peer, Message::Begin { phase: 1, bytes: None }).unwrap();
            let wanted_bytes = u64::from(began_ms != 2);
            let progress = Progress { wanted_bytes, ..Progress::default() };
            let moved = Message::Moved { phase: 1, progress, in_flight: 0, busy_ns: 0, is_resting: false };
            coordinator.handle(2, peer, moved).unwrap();
            coordinator.jobs[peer].as_mut().unwrap().phase_began_ns = began_ms;
        }
        let mut held = coordinator.held_in_order();
        let began_ms: Vec<u64> =
            std::iter::from_fn(|| held.pop().map(|Reverse((began_ms, _))| began_ms)).collect();
        assert_eq!(began_ms, [0, 1, 4], "the first job has its turn");
    }
}
