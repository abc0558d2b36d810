//! The coordinator without its sockets: messages in, messages out, time passed in.
//!
//! It joins the connections of a job's nodes to one job, drives the engine with what they say, and turns the
//! engine's shares into credits. A job's phase begins with the first of its nodes and ends with the last. All it
//! knows it was told by those who are connected: a new coordinator that replaces one that died *gathers* for a
//! moment what the jobs say of themselves, then goes on where the other was, those first who held grants.

use crate::allocation::Allocations;
use crate::jobs::{Job, LostNode, Node, NodePhase, Resumption, Standing, Volume};
use crate::site::Site;
use crate::status::Totals;
use crate::tokens::{Tokens, UNLIMITED};
use crate::turns::Turns;
use crate::wire::{Message, Progress};
use std::collections::HashMap;
use weir_engine::aggregators;
use weir_engine::engine::{Action, Engine, Event, JobId};
use weir_engine::sharing::PolicyKind;

mod announcements;
mod backfill;
mod gathering;
mod idle;
mod joining;
mod places;
mod view;

pub(crate) use backfill::Activity;
use backfill::Backfill;
pub use view::{JobState, JobView};

/// At most so many jobs are told that they need not ask: each hears of every phase of the others.
const MAX_AHEAD: usize = 8;

/// A connection's number: small, free again once it is gone.
pub type Peer = usize;

/// Times that the jobs have to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub lease_ms: u32,
    pub beat_ms: u32,
    pub report_ms: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { lease_ms: 800, beat_ms: 200, report_ms: 2 }
    }
}

pub struct Coordinator {
    policy: PolicyKind,
    pace: Pace,
    epoch: u64,
    pub(crate) engine: Engine,
    actions: Vec<Action>,
    timer_ns: Option<u64>,
    pub(crate) jobs: Vec<Option<Job>>,
    free: Vec<JobId>,
    by_name: HashMap<String, JobId>,
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) tokens: Tokens,
    pub(crate) allocations: Allocations,
    site: Site,
    pub(crate) turns: Turns,
    settled_ns: u64,
    /// Used by one settling after the other.
    changed: Vec<(JobId, u64)>,
    pub(crate) began_ns: u64,
    /// When the first job came back from another coordinator.
    gather_began_ns: Option<u64>,
    gather_until_ns: Option<u64>,
    gathered: Vec<(Peer, Resumption)>,
    /// What every job has that was granted one, where the policy treats all alike.
    pub(crate) common_share: Option<f64>,
    pub(crate) totals: Totals,
    outbox: Vec<(Peer, Message)>,
    /// Jobs that are in a phase, whatever their standing, and those of them that are idle.
    in_phase: u64,
    idle: u64,
    /// When grants without progress were last looked for.
    idle_checked_ns: u64,
    backfill: Backfill,
    /// The jobs that were told that their next phase is granted already: nobody uses the storage.
    ahead: Vec<JobId>,
    /// Phases that ended here, and the time that they took of the storage.
    ended_phases: u64,
    ended_io_ns: u64,
}

impl Coordinator {
    pub fn new(now_ns: u64, policy: PolicyKind, pace: Pace) -> Coordinator {
        Coordinator {
            policy,
            pace,
            epoch: 0,
            engine: Engine::new(policy.build()),
            actions: Vec::new(),
            timer_ns: None,
            jobs: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            nodes: Vec::new(),
            tokens: Tokens::default(),
            allocations: Allocations::default(),
            site: Site::default(),
            turns: Turns::new(aggregators::Policy::Nio),
            settled_ns: 0,
            changed: Vec::new(),
            began_ns: now_ns,
            gather_began_ns: None,
            gather_until_ns: None,
            gathered: Vec::new(),
            common_share: None,
            totals: Totals::default(),
            outbox: Vec::new(),
            in_phase: 0,
            idle: 0,
            idle_checked_ns: now_ns,
            backfill: Backfill::default(),
            ahead: Vec::new(),
            ended_phases: 0,
            ended_io_ns: 0,
        }
    }

    /// How long a job that is held should have to wait at most: as if all others in a phase went first, each
    /// for as long as phases took on average.
    fn expected_wait_ns(&self) -> u64 {
        let mean_ns = self.ended_io_ns / self.ended_phases.max(1);
        mean_ns.saturating_mul(self.in_phase.saturating_sub(1))
    }

    pub fn policy(&self) -> PolicyKind {
        self.policy
    }

    /// Told to every job that joins from now on; a job that has obeyed a later one is refused.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether nobody is connected.
    pub fn is_unused(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether the peer speaks for a job.
    pub fn is_node(&self, peer: Peer) -> bool {
        self.node(peer).is_some()
    }

    /// What is to be sent, in order. The caller empties it.
    pub fn outbox(&mut self) -> &mut Vec<(Peer, Message)> {
        &mut self.outbox
    }

    /// What a peer said. An error is the reason to refuse it and to close; [`Coordinator::gone`] must follow.
    pub fn handle(&mut self, now_ns: u64, peer: Peer, message: Message) -> Result<(), String> {
        if let hello @ Message::Hello { .. } = message {
            return self.join(now_ns, peer, hello);
        }
        if !self.is_node(peer) {
            return Err("says something before hello".into());
        }
        match message {
            Message::Begin { phase, bytes, .. } => {
                let progress = Progress::default();
                let began = Resumption { phase, bytes, age_ns: 0, granted: false, progress, reported: None };
                self.begin_or_gather(now_ns, peer, began);
            }
            Message::Resume { phase, bytes, age_ns, granted, progress, .. } => {
                let phase = Resumption { phase, bytes, age_ns, granted, progress, reported: None };
                self.begin_or_gather(now_ns, peer, phase);
            }
            Message::Moved { phase, progress, in_flight, busy_ns, is_resting } => {
                let volume = Volume::default();
                let report = NodePhase { number: phase, progress, in_flight, busy_ns, is_resting, volume };
                self.moved(now_ns, peer, report);
            }
            Message::Announce { phase, bytes, known_bytes } => {
                self.announced(now_ns, peer, phase, Volume { said_bytes: bytes, known_bytes });
            }
            Message::Expect { period_ns } => {
                if let Some(id) = self.node(peer).map(|node| node.job) {
                    self.expect(id, period_ns);
                }
            }
            Message::End { phase, bytes, io_ns, waited_ns } => {
                self.end(now_ns, peer, phase, bytes, io_ns, waited_ns);
            }
            Message::Beat {} => self.outbox.push((peer, Message::Beat {})),
            other => return self.handle_errand(now_ns, peer, other),
        }
        Ok(())
    }

    /// When [`Coordinator::tick`] wants to be called even if nothing comes.
    pub fn deadline_ns(&self) -> Option<u64> {
        let deadlines = [
            self.timer_ns,
            self.gather_until_ns,
            self.settle_ns(),
            self.turns.deadline_ns(),
            self.idle_check_ns(),
            self.backfill_ns(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ns: u64) {
        if self.gather_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.gather_until_ns = None;
            self.resume_gathered(now_ns);
            self.let_ahead();
        }
        if self.timer_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.timer_ns = None;
            self.step(now_ns, Event::TimePassed);
        }
        if self.settle_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.settle(now_ns);
        }
        if self.idle_check_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.end_idle_grants(now_ns);
        }
        if self.backfill_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.look_for_idle_storage(now_ns);
        }
        if self.turns.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.turns.tick(now_ns);
            self.tell_turns();
        }
    }

    /// What the site says beforehand, from now on. A job that is there is known as it was when it joined.
    pub fn set_site(&mut self, now_ns: u64, site: Site) {
        let replans = self.policy.plans() && self.site.planning != site.planning;
        self.site = site;
        if replans {
            self.set_policy(now_ns, self.policy);
        }
    }

    /// Goes on under another policy, which hears how long each job was stalled and learns the rest anew; who holds a grant is asked
    /// first.
    pub fn set_policy(&mut self, now_ns: u64, policy: PolicyKind) {
        self.policy = policy;
        self.welcome_all();
        self.keep_past(now_ns);
        self.engine = Engine::new(policy.build_with(self.site.planning));
        self.timer_ns = None;
        self.common_share = None;
        self.tokens = Tokens::default();
        self.backfill.reset();
        let mut in_phase = Vec::new();
        for index in 0..self.jobs.len() {
            let Some(job) = &mut self.jobs[index] else { continue };
            let (id, info) = (JobId(index as u32), job.info);
            if job.is_in_phase() {
                let granted = matches!(job.standing, Standing::Granted { .. } | Standing::Idle);
                self.idle -= u64::from(job.standing == Standing::Idle);
                job.progressed_ns = now_ns;
                in_phase.push((!granted, job.phase_began_ns, id));
                job.stand(now_ns, Standing::Held);
                job.told_bytes = 0;
            }
            self.step(now_ns, Event::JobJoined { job: id, info });
        }
        in_phase.sort();
        for (_, _, id) in in_phase {
            let bytes = self.job(id).and_then(|job| job.announced_bytes);
            self.tell_period(now_ns, id);
            self.step(now_ns, Event::PhaseBegan { job: id, bytes });
            self.tell_progress(now_ns, id);
        }
    }

    fn node(&self, peer: Peer) -> Option<&Node> {
        self.nodes.get(peer)?.as_ref()
    }

    fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(id.0 as usize)?.as_ref()
    }

    fn job_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(id.0 as usize)?.as_mut()
    }

    fn begin(&mut self, now_ns: u64, peer: Peer, phase: Resumption) {
        let Some(node) = self.nodes.get_mut(peer).and_then(Option::as_mut) else { return };
        let id = node.job;
        node.has_part = true;
        if let Some(before) = node.phase.replace(phase.on_its_node()) {
            // Its end got lost; the job is in a phase all the same.
            self.node_left_phase(id, before.progress.done_bytes);
        }
        let Some(job) = self.job_mut(id) else { return };
        match job.standing {
            Standing::Outside => {
                job.stand(now_ns, Standing::Held);
                self.in_phase += 1;
                let Some(job) = self.job_mut(id) else { return };
                job.phase_began_ns = now_ns.saturating_sub(phase.age_ns);
                job.progressed_ns = now_ns;
                job.activity = Activity::default();
                let bytes = self.announced_bytes(id);
                self.tell_period(now_ns, id);
                let Some(job) = self.job_mut(id) else { return };
                job.announced_bytes = bytes;
                self.step(now_ns, Event::PhaseBegan { job: id, bytes });
                // Who asked hears first.
                self.take_back_ahead(id);
                self.look_soon();
            }
            Standing::Held => {
                let expected_ns = self.expected_wait_ns();
                self.outbox.push((peer, Message::Hold { phase: phase.phase, expected_ns }));
            }
            Standing::Backfilled => self.grant_node(peer, id, 0.0),
            Standing::Granted { share } => self.grant_node(peer, id, self.common_share.unwrap_or(share)),
            Standing::Idle => self.end_idleness(now_ns, id),
        }
        self.announce(now_ns, id);
        if phase.progress != Progress::default() {
            let of_job = self.progress(id);
            self.tokens.report(now_ns, id, of_job);
            self.tell_progress(now_ns, id);
        }
    }

    /// A node that was lost in its phase goes on with it, and says again what it has done so far; or it is in another one.
    fn take_back_lost(&mut self, peer: Peer, phase: u64) {
        let Some(Some(node)) = self.nodes.get(peer) else { return };
        let Some(job) = self.jobs.get_mut(node.job.0 as usize).and_then(Option::as_mut) else { return };
        let is_it = |lost: &LostNode| (&lost.host, lost.pid) == (&node.host, node.pid);
        let Some(place) = job.lost.iter().position(is_it) else { return };
        let Some(LostNode { phase: before, is_counted, .. }) = job.lost.remove(place) else { return };
        let done_bytes = before.progress.done_bytes;
        if before.number != phase {
            return;
        }
        if is_counted {
            job.moved_bytes = job.moved_bytes.saturating_sub(done_bytes);
        } else {
            job.ended_bytes = job.ended_bytes.saturating_sub(done_bytes);
        }
    }

    fn moved(&mut self, now_ns: u64, peer: Peer, report: NodePhase) {
        let NodePhase { number: phase, in_flight, .. } = report;
        let Some(node) = self.nodes.get_mut(peer).and_then(Option::as_mut) else { return };
        let Some(own) = node.phase.as_mut().filter(|own| own.number == phase) else {
            // It may be among those that wait to be resumed.
            let gathered = self.gathered.iter_mut().find(|(of, entry)| *of == peer && entry.phase == phase);
            if let Some((_, entry)) = gathered {
                let NodePhase { volume, progress: before, .. } = entry.on_its_node();
                let progress = report.progress.after(before);
                entry.progress = progress;
                entry.reported = Some(NodePhase { volume, progress, ..report });
            }
            return;
        };
        let progress = report.progress.after(own.progress);
        let done_bytes = progress.done_bytes - own.progress.done_bytes;
        let is_news = (own.progress, own.in_flight) != (progress, in_flight);
        let rests = report.is_resting && !own.is_resting;
        let goes_on = own.is_resting && !report.is_resting;
        *own = NodePhase { volume: own.volume, progress, ..report };
        let id = node.job;
        self.totals.add(done_bytes);
        self.note_activity(now_ns, id, done_bytes);
        if is_news {
            self.note_progress(now_ns, id);
        }
        let of_job = self.progress(id);
        self.tokens.report(now_ns, id, of_job);
        let has_outgrown = |job: &Job| job.announced_bytes.is_some_and(|bytes| of_job.spent_bytes > bytes);
        if self.job(id).is_some_and(has_outgrown) {
            self.announce(now_ns, id);
        }
        if self.engine.wants_progress() {
            self.tell_progress(now_ns, id);
        }
        if rests {
            self.look_soon();
            self.let_ahead();
        } else if goes_on {
            self.look_soon();
            self.take_back_ahead(id);
        }
    }

    fn end(&mut self, now_ns: u64, peer: Peer, phase: u64, bytes: u64, io_ns: u64, waited_ns: u64) {
        if self.end_gathered(peer, bytes, io_ns, waited_ns) {
            return;
        }
        let Some(node) = self.nodes.get_mut(peer).and_then(Option::as_mut) else { return };
        let Some(own) = node.phase.filter(|own| own.number == phase) else { return };
        node.phase = None;
        let id = node.job;
        let bytes = bytes.max(own.progress.done_bytes);
        self.totals.add(bytes - own.progress.done_bytes);
        if let Some(job) = self.job_mut(id) {
            job.io_ns = job.io_ns.saturating_add(io_ns);
            job.waited_ns = job.waited_ns.saturating_add(waited_ns);
        }
        self.node_ended(now_ns, id, bytes);
    }

    /// What a node has done stays with the phase of its job. Nobody waits for what else it had begun.
    fn node_left_phase(&mut self, id: JobId, done_bytes: u64) {
        if let Some(job) = self.job_mut(id) {
            job.ended_bytes = job.ended_bytes.saturating_add(done_bytes);
        }
    }

    fn node_ended(&mut self, now_ns: u64, id: JobId, done_bytes: u64) {
        self.node_left_phase(id, done_bytes);
        let of_job = self.progress(id);
        self.tokens.report(now_ns, id, of_job);
        let Some(job) = self.job(id) else { return };
        let in_phase = |peer: &Peer| self.node(*peer).is_some_and(|node| node.phase.is_some());
        if job.peers.iter().any(in_phase) {
            return self.announce(now_ns, id);
        }
        if !job.is_in_phase() {
            return;
        }
        self.tell_progress(now_ns, id);
        self.tokens.leave(id);
        self.backfill.forget(id);
        self.end_turns(now_ns, id);
        self.in_phase = self.in_phase.saturating_sub(1);
        if let Some(job) = self.jobs.get_mut(id.0 as usize).and_then(Option::as_mut) {
            let was_idle = job.standing == Standing::Idle;
            let granted_ns = match job.standing {
                Standing::Granted { .. } => now_ns.saturating_sub(job.since_ns),
                _ => 0,
            };
            job.stand(now_ns, Standing::Outside);
            job.phases += 1;
            job.moved_bytes = job.moved_bytes.saturating_add(of_job.done_bytes);
            job.ended_bytes = 0;
            job.lost.iter_mut().for_each(|lost| lost.is_counted = true);
            job.told_bytes = 0;
            for &peer in &job.peers {
                self.nodes[peer].iter_mut().for_each(|node| node.has_part = false);
            }
            self.ended_phases += 1;
            self.ended_io_ns = self.ended_io_ns.saturating_add(granted_ns);
            if was_idle {
                // The engine has heard of the end of the phase.
                self.idle -= 1;
                return self.let_ahead();
            }
        }
        self.step(now_ns, Event::PhaseEnded { job: id });
        self.tell_seen(id);
        self.let_ahead();
    }

    /// While nobody uses the storage, jobs need not ask for their next phase: the first that begins would be let in at once. So
    /// jobs that do not meet never wait for an answer; of two that begin in the same moment both are inside until one is stopped.
    fn let_ahead(&mut self) {
        let is_sure = self.gather_until_ns.is_none() && self.policy.serves_who_is_alone();
        if !is_sure || !self.is_storage_free() {
            return;
        }
        for index in 0..self.jobs.len() {
            let id = JobId(index as u32);
            if self.ahead.len() >= MAX_AHEAD {
                break;
            }
            if self.job(id).is_some_and(|job| !job.is_in_phase()) && !self.ahead.contains(&id) {
                self.ahead.push(id);
                self.for_peers(id, |own, peer| own.outbox.push((peer, Message::Ahead { granted: true })));
            }
        }
    }

    /// Whether nobody is in a phase, or everybody who is has done what it wanted to do.
    fn is_storage_free(&self) -> bool {
        let has_rested = |job: &Job| !job.is_in_phase() || self.is_resting(job);
        self.in_phase == 0
            || (self.in_phase <= MAX_AHEAD as u64 && self.jobs.iter().flatten().all(has_rested))
    }

    /// Whether the job's phase is as good as over on all its nodes.
    fn is_resting(&self, job: &Job) -> bool {
        let mut phases = job.peers.iter().filter_map(|&peer| self.node(peer)?.phase);
        phases.all(|phase| phase.is_resting)
    }

    /// A job begins a phase: no other may do so without asking.
    fn take_back_ahead(&mut self, beginner: JobId) {
        for id in std::mem::take(&mut self.ahead) {
            if id == beginner {
                // What it was told holds for its next phase too, until another job begins.
                self.ahead.push(id);
            } else {
                self.for_peers(id, |own, peer| own.outbox.push((peer, Message::Ahead { granted: false })));
            }
        }
    }

    /// Of all nodes of the job, in its phase.
    pub(crate) fn progress(&self, id: JobId) -> Progress {
        let Some(job) = self.job(id) else { return Progress::default() };
        let phases = job.peers.iter().filter_map(|&peer| self.node(peer)?.phase);
        phases.fold(Progress::all_done(job.ended_bytes), |sum, NodePhase { progress, .. }| Progress {
            done_bytes: sum.done_bytes.saturating_add(progress.done_bytes),
            spent_bytes: sum.spent_bytes.saturating_add(progress.spent_bytes),
            wanted_bytes: sum.wanted_bytes.saturating_add(progress.wanted_bytes),
        })
    }

    fn tell_progress(&mut self, now_ns: u64, id: JobId) {
        let done_bytes = self.progress(id).done_bytes;
        let Some(job) = self.job_mut(id).filter(|job| job.standing != Standing::Idle) else { return };
        let bytes = done_bytes.saturating_sub(job.told_bytes);
        if bytes > 0 {
            job.told_bytes = done_bytes;
            self.step(now_ns, Event::BytesMoved { job: id, bytes });
        }
    }

    /// Tells the engine and does what it says.
    fn step(&mut self, now_ns: u64, event: Event) {
        self.totals.decisions += 1;
        let mut actions = std::mem::take(&mut self.actions);
        self.engine.step(now_ns, event, &mut actions);
        for &action in &actions {
            self.obey(now_ns, action);
        }
        self.actions = actions;
    }

    fn obey(&mut self, now_ns: u64, action: Action) {
        match action {
            Action::Grant { job: id, share } => {
                let progress = self.progress(id);
                let Some(job) = self.job_mut(id) else { return };
                job.stand(now_ns, Standing::Granted { share });
                self.turn_begins(now_ns, id);
                self.tokens.enter(now_ns, id, share, progress);
                self.for_peers(id, |own, peer| own.grant_node(peer, id, share));
            }
            Action::Share { job: id, share } => {
                self.common_share = None;
                self.tokens.set_share(id, share);
                if let Some(job) = self.job_mut(id) {
                    job.standing = Standing::Granted { share };
                }
            }
            Action::ShareAll { share } => {
                self.common_share = Some(share);
                self.tokens.set_all_shares(share);
            }
            Action::Hold { job: id } => {
                self.tokens.leave(id);
                let Some(job) = self.job_mut(id) else { return };
                job.stand(now_ns, Standing::Held);
                self.tell_held(id);
            }
            Action::Timer { at_ns } => self.timer_ns = Some(at_ns),
        }
    }

    /// All nodes of the job hear that it has to wait.
    fn tell_held(&mut self, id: JobId) {
        let expected_ns = self.expected_wait_ns();
        self.for_peers(id, |own, peer| {
            if let Some(phase) = own.node(peer).and_then(|node| node.phase) {
                own.outbox.push((peer, Message::Hold { phase: phase.number, expected_ns }));
            }
        });
    }

    /// All nodes of the job, by way of their places: what is done to them may need the coordinator as a whole.
    fn for_peers(&mut self, id: JobId, mut act: impl FnMut(&mut Coordinator, Peer)) {
        let mut place = 0;
        while let Some(&peer) = self.job(id).and_then(|job| job.peers.get(place)) {
            act(self, peer);
            place += 1;
        }
    }

    /// The job's share of the storage now.
    fn share(&self, job: &Job) -> f64 {
        match job.standing {
            Standing::Granted { share } => self.common_share.unwrap_or(share),
            _ => 0.0,
        }
    }

    fn grant_node(&mut self, peer: Peer, id: JobId, share: f64) {
        let Some(phase) = self.node(peer).and_then(|node| node.phase) else { return };
        let credit_bytes = self.node_credit(id, phase.progress, self.credit_bytes(id));
        let expected_ns = self.tokens.expected_wait_ns(id);
        self.outbox.push((peer, Message::Grant { phase: phase.number, share, credit_bytes, expected_ns }));
    }

    /// What a job may still spend is divided evenly among its nodes that are in the phase.
    fn node_credit(&self, id: JobId, node: Progress, credit_bytes: u64) -> u64 {
        if credit_bytes == UNLIMITED {
            return UNLIMITED;
        }
        let Some(job) = self.job(id) else { return 0 };
        if let [_] = job.peers[..] {
            return credit_bytes.saturating_sub(job.ended_bytes);
        }
        let in_phase =
            job.peers.iter().filter(|&&peer| self.node(peer).is_some_and(|node| node.phase.is_some()));
        let left_bytes = credit_bytes.saturating_sub(self.progress(id).spent_bytes);
        node.spent_bytes.saturating_add(left_bytes.div_ceil(in_phase.count().max(1) as u64))
    }

    /// When credits are to be settled. That looks at every job in I/O: with very many, less often.
    fn settle_ns(&self) -> Option<u64> {
        let due_ns = self.settled_ns + 1_000 * self.tokens.len() as u64;
        let wanted_ns = if self.tokens.needs_settling() { Some(0) } else { self.tokens.settle_by_ns() };
        wanted_ns.map(|wanted_ns| wanted_ns.max(due_ns))
    }

    fn settle(&mut self, now_ns: u64) {
        self.settled_ns = now_ns;
        let mut changed = std::mem::take(&mut self.changed);
        self.tokens.settle(now_ns, |job, credit_bytes| changed.push((job, credit_bytes)));
        for (id, credit_bytes) in changed.drain(..) {
            self.tell_credit(id, credit_bytes);
        }
        self.changed = changed;
    }

    /// All nodes of the job hear what they may spend.
    fn tell_credit(&mut self, id: JobId, credit_bytes: u64) {
        let expected_ns = self.tokens.expected_wait_ns(id);
        let share = self.job(id).map_or(0.0, |job| self.share(job));
        self.for_peers(id, |own, peer| {
            let Some(phase) = own.node(peer).and_then(|node| node.phase) else { return };
            let credit_bytes = own.node_credit(id, phase.progress, credit_bytes);
            let credit = Message::Credit { phase: phase.number, share, credit_bytes, expected_ns };
            own.outbox.push((peer, credit));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Identity;

    /// A job that is in its phase on two nodes, one of which is lost with a request inside, does not look served for ever.
    #[test]
    fn what_a_lost_node_had_begun_is_not_waited_for() {
        let mut coordinator = Coordinator::new(0, PolicyKind::Fair, Pace::default());
        for peer in [0, 1] {
            let identity = Identity { job: "job".into(), ranks: 2, nodes: 2, ..Identity::default() };
            let hello = Message::Hello { identity: Box::new(identity), rejoins: false, epoch: 0 };
            coordinator.handle(0, peer, hello).unwrap();
            coordinator.handle(0, peer, Message::Begin { phase: 1, bytes: None }).unwrap();
        }
        let progress = Progress { done_bytes: 10, spent_bytes: 30, wanted_bytes: 50 };
        let moved = Message::Moved { phase: 1, progress, in_flight: 2, busy_ns: 0, is_resting: false };
        coordinator.handle(1, 0, moved).unwrap();
        coordinator.gone(2, 0);
        assert_eq!(coordinator.progress(JobId(0)), Progress::all_done(10));
    }
}
