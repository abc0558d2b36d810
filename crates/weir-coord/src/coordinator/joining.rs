//! Jobs that come and go.

use super::{Coordinator, Pace, Peer};
use crate::jobs::{Job, LostNode, Node, Standing};
use crate::wire::{Identity, Message};
use weir_engine::aggregators;
use weir_engine::engine::{Event, JobId, JobInfo, MAX_JOBS};

/// A job that had another coordinator makes one that is younger than this gather.
const YOUNG_NS: u64 = 1_000_000_000;

/// A job hears what was seen of it when that is a quarter more than it has heard, and at least this much.
const MIN_SEEN_NS: u64 = 250_000_000;

/// Names longer than this are no names.
const MAX_NAME_BYTES: usize = 255;

impl Coordinator {
    pub(super) fn join(&mut self, now_ns: u64, peer: Peer, hello: Message) -> Result<(), String> {
        let Message::Hello { identity, rejoins, epoch } = hello else { return Err("no hello".into()) };
        if epoch > self.epoch {
            return Err(format!(
                "this job has obeyed epoch {epoch}, and the coordinator is of epoch {}",
                self.epoch
            ));
        }
        let Identity { job, application, host, account, ranks, nodes, pid, .. } = &*identity;
        let (host, pid, ranks, nodes) = (host.clone(), *pid, *ranks, *nodes);
        let period_ns = identity.period_ns.filter(|period_ns| *period_ns > 0);
        if self.is_node(peer) {
            return Err("says hello twice".into());
        }
        for (field, text) in
            [("job", job), ("application", application), ("host", &host), ("account", account)]
        {
            if text.len() > MAX_NAME_BYTES || text.contains(char::is_control) {
                return Err(format!("{field}: more than {MAX_NAME_BYTES} bytes, or control characters"));
            }
        }
        for (field, bad) in [("job", job.is_empty()), ("ranks", ranks == 0), ("nodes", nodes == 0)] {
            if bad {
                return Err(format!("{field}: none"));
            }
        }
        let id = match self.by_name.get(job) {
            Some(&id) => {
                if self.job_mut(id).is_some_and(|job| job.learn_past(identity.past)) {
                    self.step(now_ns, Event::JobLeft { job: id });
                    self.join_engine(now_ns, id);
                }
                id
            }
            None => {
                let nodes = u64::from(nodes);
                let instance = self.site.instance_of(application);
                let given_ns = instance.map(|instance| ((instance.work_s + instance.io_s) * 1e9) as u64);
                let (w_iter_ns, usual_w_iter_ns) = (period_ns.or(given_ns), identity.w_iter_ns);
                let cap = self.site.cap(nodes);
                let past = identity.past;
                let info = JobInfo { w_iter_ns, usual_w_iter_ns, nodes, cap, instance, past };
                self.new_job(now_ns, *identity, info)?
            }
        };
        if self.nodes.len() <= peer {
            self.nodes.resize_with(peer + 1, || None);
        }
        self.nodes[peer] = Some(Node { job: id, host, pid, ranks, phase: None, has_part: false });
        if period_ns.is_some() {
            self.expect(id, period_ns);
        }
        if let Some(job) = self.job_mut(id) {
            job.peers.push(peer);
        }
        if rejoins && now_ns < self.began_ns + YOUNG_NS {
            self.gather(now_ns);
        }
        self.welcome(peer);
        if self.ahead.contains(&id) {
            self.outbox.push((peer, Message::Ahead { granted: true }));
        }
        self.let_ahead();
        Ok(())
    }

    /// Everybody hears how things are done from now on; until then nobody's next phase is granted.
    pub(super) fn welcome_all(&mut self) {
        self.ahead.clear();
        for peer in 0..self.nodes.len() {
            if self.is_node(peer) {
                self.welcome(peer);
            }
        }
    }

    pub(super) fn welcome(&mut self, peer: Peer) {
        let Pace { lease_ms, beat_ms, report_ms } = self.pace;
        let policy = self.policy.to_string();
        let orders = self.order() != aggregators::Policy::Nio;
        let epoch = self.epoch;
        self.outbox.push((peer, Message::Welcome { lease_ms, beat_ms, report_ms, policy, orders, epoch }));
    }

    fn new_job(&mut self, now_ns: u64, identity: Identity, info: JobInfo) -> Result<JobId, String> {
        let id = self.free.pop().unwrap_or(JobId(self.jobs.len() as u32));
        if id.0 >= MAX_JOBS {
            return Err(format!("there are {MAX_JOBS} jobs already"));
        }
        if self.jobs.len() <= id.0 as usize {
            self.jobs.push(None);
        }
        self.by_name.insert(identity.job.clone(), id);
        self.jobs[id.0 as usize] = Some(Job::new(now_ns, identity, info));
        self.join_engine(now_ns, id);
        Ok(id)
    }

    /// The jobs are about to join another engine: what this one has seen of them becomes their past.
    pub(super) fn keep_past(&mut self, now_ns: u64) {
        for index in 0..self.jobs.len() {
            let alone = self.engine.seen_alone(JobId(index as u32));
            if let Some(job) = &mut self.jobs[index] {
                job.info.past = job.past(now_ns, alone);
                job.joined_ns = now_ns;
            }
        }
    }

    fn join_engine(&mut self, now_ns: u64, id: JobId) {
        let Some(info) = self.job(id).map(|job| job.info) else { return };
        self.step(now_ns, Event::JobJoined { job: id, info });
    }

    /// The job hears what was seen of it, when that is much more than before: it tells the next coordinator, for this one may go.
    pub(super) fn tell_seen(&mut self, id: JobId) {
        let alone = self.engine.seen_alone(id).unwrap_or_default();
        let Some(job) = self.job_mut(id) else { return };
        let told_ns = job.told_alone.ns;
        if alone.ns < told_ns.saturating_add(told_ns / 4).saturating_add(MIN_SEEN_NS) {
            return;
        }
        job.told_alone = alone;
        self.for_peers(id, |own, peer| own.outbox.push((peer, Message::Seen { alone })));
    }

    /// The connection is closed, by whomever: what the node held is free.
    pub fn gone(&mut self, now_ns: u64, peer: Peer) {
        let gathered = self.gathered.iter().find(|(of, _)| *of == peer).map(|(_, phase)| *phase);
        if let Some(phase) = gathered {
            self.end_gathered(peer, phase.progress.done_bytes, 0, 0);
        }
        let Some(node) = self.nodes.get_mut(peer).and_then(Option::take) else { return };
        let Some(job) = self.jobs[node.job.0 as usize].as_mut() else { return };
        job.peers.retain(|of| *of != peer);
        if !job.peers.is_empty() {
            self.allocations.node_gone(now_ns, node.job, peer);
            self.turns.node_gone(now_ns, node.job, peer);
            self.tell_turns();
            let (id, Node { host, pid, phase, .. }) = (node.job, node);
            let was_gathered = gathered.map(|phase| phase.on_its_node());
            if let Some((phase, is_counted)) =
                phase.map(|phase| (phase, false)).or(was_gathered.map(|phase| (phase, true)))
                && let Some(job) = self.job_mut(id)
            {
                job.lose(LostNode { host, pid, phase, is_counted });
            }
            if let Some(phase) = phase {
                self.node_ended(now_ns, id, phase.progress.done_bytes);
            }
            return;
        }
        let name = std::mem::take(&mut job.name);
        let (was_in_phase, was_idle) = (job.is_in_phase(), job.standing == Standing::Idle);
        self.idle -= u64::from(was_idle);
        self.in_phase = self.in_phase.saturating_sub(u64::from(was_in_phase));
        self.by_name.remove(&name);
        self.ahead.retain(|ahead| *ahead != node.job);
        self.tokens.forget(node.job);
        self.backfill.forget(node.job);
        self.allocations.job_gone(node.job);
        self.jobs[node.job.0 as usize] = None;
        self.turns.job_gone(now_ns, node.job);
        self.tell_turns();
        self.free.push(node.job);
        self.step(now_ns, Event::JobLeft { job: node.job });
        self.let_ahead();
    }
}
