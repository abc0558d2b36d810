//! The promises, looked at while the world runs.

use crate::network::End;
use crate::node::Node;
use crate::plan::Meeting;
use crate::rank::{Rank, Wait};
use crate::world::World;
use crate::{MS, SECOND};
use std::collections::BTreeSet;
use weir_coord::coordinator::{Coordinator, JobState, JobView};
use weir_coord::session::{Gate, OpenReason};
use weir_coord::wire::Message;
use weir_engine::sharing::PolicyKind;

/// A job that is silent for its lease and the time until somebody looks is gone: within this time, as documented.
const SILENT_JOB_NS: u64 = SECOND;
/// A rank that waits goes on within this time when its job is alone, or when no coordinator can be reached.
const OPENS_NS: u64 = SECOND;
/// A job whose coordinator died has another one within this time.
const TAKEOVER_NS: u64 = 200 * MS;
/// After faults of any kind: a refused job asks again after a second, and so does one that a service did not answer.
const COORDINATED_NS: u64 = 2 * SECOND;
/// A storage is not idle for longer while somebody waits for it: the time until it counts as idle, until somebody looks, and
/// until a job that has its turn has said that it does nothing.
const IDLE_STORAGE_NS: u64 = 20 * MS;
/// A job may be in a phase for this long after its last request, or have been taken for dead.
const AFTERGLOW_NS: u64 = 1_200 * MS;
/// A job and its coordinator may differ by this in how long the job was held, beside the time of their words: from greeting a
/// coordinator that is slow to answer until the gate opens without it, and for as long as one that took over gathers.
const STALLS_NS: u64 = 400 * MS;

impl World {
    /// The worst delay of a thread that is woken, some of them one after the other.
    pub(crate) fn lag_ns(&self) -> u64 {
        8 * self.plan.wake_ns.1 + 4 * self.plan.network_ns.1
    }

    /// Every byte that a rank started to move was charged once.
    pub(crate) fn check_spent(&mut self, node: usize) {
        let (spent_bytes, started_bytes) =
            (self.nodes[node].ledger.sum().spent_bytes, self.nodes[node].started_bytes);
        if spent_bytes != started_bytes {
            self.fail(|| format!("node {node} was charged {spent_bytes} bytes and started {started_bytes}"));
        }
    }

    /// A request has just been let in: the gate was not closed, and there was credit left for it.
    pub(crate) fn check_admitted(&mut self, rank: usize) {
        let node = &self.nodes[self.ranks[rank].node];
        let is_allowed = match node.put {
            _ if node.ledger.sum().limit_reached => true,
            (Gate::Closed, _) => false,
            (Gate::Free { credit_bytes }, _) => {
                node.started_bytes + self.step_of(node.job).request_bytes <= credit_bytes
            }
            // The request is not among the bytes that the world knows of yet.
            (Gate::Granted { credit_bytes }, base_bytes) => {
                node.started_bytes < base_bytes.saturating_add(credit_bytes)
            }
            (Gate::Ahead | Gate::Open { .. }, _) => true,
        };
        if !is_allowed {
            let put = node.put;
            self.fail(|| format!("rank {rank} was let in though the gate holds {put:?}"));
        }
    }

    /// No rank waits for longer than `WEIR_MAX_WAIT` in a phase.
    pub(crate) fn check_wait(&mut self, rank: usize, wait: &Wait) {
        let since_ns = wait.began_ns.max(self.ranks[rank].running_since_ns);
        let waited_ns = wait.waited_before_ns + (self.now_ns - since_ns);
        let max_ns = self.plan.max_wait_ns + self.lag_ns();
        // What was waited before counts only as long as there is something left to wait.
        if waited_ns > max_ns.max(wait.waited_before_ns + self.lag_ns()) {
            self.fail(|| format!("rank {rank} has waited {waited_ns} ns, and {max_ns} are the most"));
        }
    }

    /// A rank that may go on does not sleep.
    pub(crate) fn check_node(&mut self, node: usize) {
        if !self.nodes[node].ledger.is_admitting() {
            return;
        }
        let is_forgotten = |rank: &Rank| {
            rank.node == node
                && rank.is_alive
                && rank.wait.as_ref().is_some_and(|wait| wait.asleep.is_some() && !wait.is_called)
        };
        if let Some(rank) = self.ranks.iter().position(is_forgotten) {
            self.fail(|| format!("rank {rank} sleeps though it may go on"));
        }
    }

    /// What a coordinator decides is within its policy, and what it reckons is what it was told.
    pub(crate) fn check_office(&mut self, office: usize) {
        let Some(service) = self.offices[office].service() else { return };
        let mut wrongs = service.coordinators().filter_map(|(storage, coordinator)| {
            let told = |job: &str| self.offices[office].shadow.reported_bytes(storage, job);
            wrong_grants(coordinator).or_else(|| wrong_charge(coordinator, told))
        });
        if let Some(wrong) = wrongs.next() {
            drop(wrongs);
            self.fail(|| format!("office {office}: {wrong}"));
        }
    }

    /// A job that goes on under a new coordinator says what the one before had said.
    pub(crate) fn check_heard(&mut self, connection: usize, message: &Message) {
        if let Message::Resume { phase, granted, .. } = message
            && let Some(node) = self.connections[connection].node
            && let Some(leader) = &self.nodes[node].leader
            && let Some((told_phase, told_granted)) = leader.told
            && told_phase == *phase
            && leader.session.phase() == Some(*phase)
            && leader.connection == Some(connection)
            && told_granted != *granted
        {
            self.fail(|| {
                format!(
                    "node {node} resumes phase {phase} as granted: {granted}, and was told {told_granted}"
                )
            });
        }
    }

    /// A job that lost its coordinator has joined another.
    pub(crate) fn check_takeover(&mut self, node: usize, lost_ns: u64) {
        let took_ns = self.now_ns - lost_ns.max(self.disturbed_ns);
        let is_calm = self.lasting == 0 && !self.had_recent_faults() && self.plan.meeting != Meeting::Service;
        if is_calm && took_ns > TAKEOVER_NS + self.lag_ns() {
            self.fail(|| format!("node {node} was without a coordinator for {} ms", took_ns / MS));
        }
    }

    /// What depends on time.
    pub(crate) fn check(&mut self) {
        for office in 0..self.offices.len() {
            if self.offices[office].is_alive {
                self.check_leases(office);
            }
        }
        for node in 0..self.nodes.len() {
            self.check_leader(node);
        }
        for rank in 0..self.ranks.len() {
            self.check_waiting(rank);
        }
        self.check_unity();
        for storage in 0..self.storages.len() {
            self.check_idle_storage(storage);
        }
    }

    /// A storage is not idle while a rank waits for it, when nothing has gone wrong for a while.
    fn check_idle_storage(&mut self, storage: usize) {
        let Some(idle_since_ns) = self.storages[storage].idle_since_ns else { return };
        let is_calm = self.lasting == 0 && !self.had_recent_faults();
        let changed_ns = (self.disturbed_ns + COORDINATED_NS).max(self.left_office_ns + 2 * TAKEOVER_NS);
        if !self.plan.backfill || !is_calm || self.now_ns < changed_ns {
            return;
        }
        let limit_ns = IDLE_STORAGE_NS + self.lag_ns();
        let waits_in_vain = |rank: &Rank| {
            let node = &self.nodes[rank.node];
            let is_joined = node.leader.as_ref().is_some_and(|leader| leader.session.is_joined());
            let wait_ns = rank.wait.as_ref().map_or(u64::MAX, |wait| wait.began_ns);
            node.storage == storage
                && is_joined
                && self.now_ns > wait_ns.max(idle_since_ns).saturating_add(limit_ns)
        };
        let rank =
            (0..self.ranks.len()).find(|rank| self.is_running(*rank) && waits_in_vain(&self.ranks[*rank]));
        if let Some(rank) = rank {
            let idle_ms = (self.now_ns - idle_since_ns) / MS;
            self.fail(|| format!("rank {rank} waits, and storage {storage} has been idle for {idle_ms} ms"));
        }
    }

    /// All who meet in a directory have one coordinator, when nothing has gone wrong for a while.
    fn check_unity(&mut self) {
        if self.lasting > 0 || self.now_ns < self.disturbed_ns + COORDINATED_NS {
            return;
        }
        let mut offices = vec![BTreeSet::new(); self.directories.len()];
        for node in &self.nodes {
            if let Some(leader) = node.leader.as_ref().filter(|leader| leader.session.is_joined())
                && let Some(office) = leader.connection.map(|connection| self.connections[connection].office)
                && self.offices[office].is_alive
            {
                offices[self.directory(node.machine)].insert(office);
            }
        }
        if let Some(split) = offices.into_iter().find(|offices| offices.len() > 1) {
            self.fail(|| format!("the jobs of one directory have several coordinators: {split:?}"));
        }
    }

    /// A job that has fallen silent is gone.
    fn check_leases(&mut self, office: usize) {
        let own = &self.offices[office];
        let Some(service) = own.service().filter(|_| self.is_office_running(office)) else { return };
        let silent = own.connections.iter().flatten().find(|connection| {
            let connection = &self.connections[**connection];
            let since_ns = connection.heard_ns.max(own.running_since_ns);
            service.coordinator_of(connection.peer).is_some()
                && self.now_ns > since_ns + SILENT_JOB_NS + self.lag_ns()
                && self.now_ns > self.machines[own.machine].jumped_ns + SILENT_JOB_NS
        });
        if let Some(&connection) = silent {
            self.fail(|| {
                format!("office {office} keeps the lease of connection {connection}, which is silent")
            });
        }
    }

    /// Whether anything but the death of processes has happened lately.
    fn had_recent_faults(&self) -> bool {
        self.troubled_ns.is_some_and(|troubled_ns| self.now_ns < troubled_ns + 2 * COORDINATED_NS)
    }

    /// A leader has a coordinator, and both agree on the phase and on its grant.
    fn check_leader(&mut self, node: usize) {
        let Some(leader) = &self.nodes[node].leader else { return };
        let rank = leader.rank;
        let is_joined = leader.session.is_joined();
        let machine = self.nodes[node].machine;
        let reached = leader.connection.filter(|connection| {
            let connection = &self.connections[*connection];
            self.is_office_running(connection.office) && !self.is_cut_off(connection.machines)
        });
        let now_ns = self.now_ns;
        if leader.session.phase().is_some() {
            let Node { job, storage, .. } = self.nodes[node];
            self.jobs[job].active_ns[storage] = now_ns;
        }
        let is_unwritable = self.directories[self.directory(machine)].unwritable > 0;
        let leader = self.nodes[node].leader.as_mut().expect("just seen");
        let unjoined_ns = mark(&mut leader.unjoined_since_ns, !is_joined, now_ns);
        let is_unreachable = !(is_joined && reached.is_some());
        mark(&mut leader.unreachable_since_ns, is_unreachable, now_ns);
        if !self.is_running(rank) {
            return;
        }
        let calm_ns = now_ns - self.disturbed_ns.max(self.ranks[rank].running_since_ns);
        let is_calm = self.lasting == 0 && !is_unwritable;
        let unjoined_ns = unjoined_ns.min(calm_ns);
        let had_faults = self.had_recent_faults();
        let limit_ns = match self.plan.meeting {
            Meeting::Local | Meeting::Shared if !had_faults => TAKEOVER_NS + self.lag_ns(),
            _ => COORDINATED_NS + self.lag_ns(),
        };
        if is_calm && unjoined_ns > limit_ns {
            self.fail(|| {
                format!("node {node} has had no coordinator for {} ms, without a reason", unjoined_ns / MS)
            });
        }
        self.check_questions(node);
        if let Some(connection) = reached.filter(|_| is_joined) {
            self.check_agreement(node, connection);
        }
    }

    /// Every question is answered: by the coordinator, or because there is none.
    fn check_questions(&mut self, node: usize) {
        let Some(leader) = &self.nodes[node].leader else { return };
        let since_ns = self.disturbed_ns.max(self.ranks[leader.rank].running_since_ns);
        let oldest_ns =
            leader.questions.values().min().map_or(0, |asked_ns| self.now_ns - since_ns.max(*asked_ns));
        if oldest_ns > OPENS_NS + self.lag_ns() && self.hostile_coordinators == 0 {
            self.fail(|| format!("a question of node {node} has had no answer for {} ms", oldest_ns / MS));
        }
    }

    fn check_agreement(&mut self, node: usize, number: usize) {
        let connection = &self.connections[number];
        let is_settled = connection.is_quiet()
            && !connection.is_closed(End::Coordinator)
            && self.now_ns > connection.active_ns + self.lag_ns();
        let Some(service) = self.offices[connection.office].service().filter(|_| is_settled) else { return };
        let coordinator = service.coordinator_of(connection.peer);
        if coordinator.is_some_and(Coordinator::is_gathering) {
            return;
        }
        let session = &self.nodes[node].leader.as_ref().expect("it has one").session;
        let Some((job, phase)) = coordinator.and_then(|own| own.speaks_for(connection.peer)) else {
            return self.fail(|| format!("node {node} has joined a coordinator that does not know it"));
        };
        let gate = session.gate();
        let fits = match (phase, job.state) {
            (None, _) if gate == Gate::Ahead => job.is_ahead,
            (None, _) => matches!(gate, Gate::Closed | Gate::Free { .. }),
            (Some(_), _) if gate == (Gate::Open { reason: OpenReason::Limit }) => true,
            (Some(_), JobState::Granted { .. } | JobState::Backfilled | JobState::Idle) => {
                matches!(gate, Gate::Granted { .. })
            }
            (Some(_), _) => gate == Gate::Closed,
        };
        if phase != session.phase() || !fits {
            let (own, state) = (session.phase(), job.state);
            self.fail(|| {
                format!(
                    "node {node} is in phase {own:?} and {gate:?}, its coordinator says {phase:?}, {state:?}"
                )
            });
        }
        self.check_stalls(node, number);
    }

    /// A coordinator knows how long the job was held, under those before it too: as long as the job says, when nothing has gone
    /// wrong since it joined. Of a job on several nodes each knows its own part, and one that knew the job before it was lost and
    /// came back has counted for itself.
    fn check_stalls(&mut self, node: usize, number: usize) {
        let Node { job, machine, .. } = self.nodes[node];
        let Some(leader) = &self.nodes[node].leader else { return };
        let connection = &self.connections[number];
        let Some(service) = self.offices[connection.office].service() else { return };
        let Some((seen, _)) =
            service.coordinator_of(connection.peer).and_then(|of| of.speaks_for(connection.peer))
        else {
            return;
        };
        let is_calm = self.lasting == 0 && self.disturbed_ns < leader.joined_ns;
        let office_ns = self.clock(self.offices[connection.office].machine);
        let knew_it_before = seen.known_for_ns(office_ns) > self.now_ns - leader.joined_ns + self.lag_ns();
        if !is_calm || knew_it_before || self.plan.jobs[job].machines.len() > 1 {
            return;
        }
        let said_ns = leader.session.stalled_ns(self.clock(machine));
        let seen_ns = seen.stalled_ns(office_ns);
        let limit_ns = STALLS_NS + (2 + leader.words_since) * self.lag_ns();
        if said_ns.abs_diff(seen_ns) > limit_ns {
            let (said_ms, seen_ms) = (said_ns / MS, seen_ns / MS);
            self.fail(|| {
                format!("node {node} was stalled for {said_ms} ms, and its coordinator knows of {seen_ms}")
            });
        }
    }

    /// A rank that waits has a reason to.
    fn check_waiting(&mut self, rank: usize) {
        let Some(wait) = self.ranks[rank].wait.take() else { return };
        if self.is_running(rank) {
            self.check_wait(rank, &wait);
            let (job, node) = (self.ranks[rank].job, self.ranks[rank].node);
            let disturbed_ns = self.disturbed_ns.max(self.ranks[rank].running_since_ns);
            let since_ns = wait.began_ns.max(disturbed_ns);
            let others_ns = self.others_active_ns(job, self.nodes[node].storage);
            let alone_ns = self.now_ns.saturating_sub(since_ns.max(others_ns));
            let limit_ns = OPENS_NS + self.lag_ns();
            if alone_ns > limit_ns && self.hostile_coordinators == 0 {
                self.fail(|| {
                    format!("rank {rank} has waited for {} ms though its job is alone", alone_ns / MS)
                });
            }
            let unreachable = self.nodes[node].leader.as_ref().and_then(|leader| leader.unreachable_since_ns);
            let unreachable_ns = unreachable
                .map_or(0, |began_ns| self.now_ns - began_ns.max(wait.began_ns).max(self.disturbed_ns));
            if unreachable_ns > limit_ns {
                self.fail(|| {
                    format!(
                        "rank {rank} waits, and no coordinator was reached for {} ms",
                        unreachable_ns / MS
                    )
                });
            }
        }
        self.ranks[rank].wait = Some(wait);
    }

    /// When another job than this one last had to do with I/O at the storage, or may have been thought to.
    fn others_active_ns(&self, job: usize, storage: usize) -> u64 {
        let hostile_ns = self.hostile_active_ns();
        let others = self.jobs.iter().enumerate().filter(|(other, _)| *other != job);
        let latest_ns = others.map(|(_, other)| other.active_ns[storage] + AFTERGLOW_NS);
        latest_ns.chain(hostile_ns).max().unwrap_or(0)
    }
}

/// Grants that the policy does not allow. Jobs that are let in beside others because the storage would idle are no such.
fn wrong_grants(coordinator: &Coordinator) -> Option<String> {
    let granted: Vec<(JobView, f64)> = coordinator
        .jobs()
        .filter_map(|job| match job.state {
            JobState::Granted { share } => Some((job, share)),
            _ => None,
        })
        .collect();
    let shares: f64 = granted.iter().map(|(_, share)| share).sum();
    let mut sets = BTreeSet::new();
    let is_alone_in_its_set = |(job, _): &(JobView, f64)| match coordinator.policy() {
        PolicyKind::Exclusive => granted.len() == 1,
        PolicyKind::Set10 => job.set().is_none_or(|set| sets.insert(set)),
        _ => true,
    };
    if shares > 1.0 + 1e-9 {
        return Some(format!("has granted shares of {shares}"));
    }
    (!granted.iter().all(is_alone_in_its_set)).then(|| {
        let names: Vec<&str> = granted.iter().map(|(job, _)| job.name).collect();
        format!("has granted two jobs of a set: {names:?}")
    })
}

/// A job that is charged something else than it has reported.
fn wrong_charge(coordinator: &Coordinator, told: impl Fn(&str) -> u64) -> Option<String> {
    let mut honest = coordinator.jobs().filter(|job| job.name.starts_with("job "));
    if coordinator.is_gathering() {
        return None;
    }
    honest.find(|job| job.done_bytes != told(job.name)).map(|job| {
        format!("{} reported {} bytes and is charged {}", job.name, told(job.name), job.done_bytes)
    })
}

/// Keeps since when something is so; how long that is.
fn mark(since_ns: &mut Option<u64>, is_so: bool, now_ns: u64) -> u64 {
    *since_ns = if is_so { since_ns.or(Some(now_ns)) } else { None };
    since_ns.map_or(0, |since_ns| now_ns - since_ns)
}
