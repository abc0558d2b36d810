//! What `weir status` shows, as JSON.

use crate::coordinator::{Coordinator, JobState};
use crate::jobs::Job;
use crate::service::Service;
use serde_json::{Value, json};
use weir_engine::engine::JobId;

/// Counters of a server, and rates made of them once a second.
pub(crate) struct Traffic {
    pub(crate) messages: u64,
    pub(crate) refused: u64,
    pub(crate) expired: u64,
    pub(crate) slowed: u64,
    rates: Rates,
    /// What was so many in all when the rates were made.
    then: Totals,
    looked_ns: u64,
}

/// Of the latest second.
#[derive(Default)]
struct Rates {
    decisions_per_s: f64,
    bytes_per_s: f64,
}

/// Since the coordinator began.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) decisions: u64,
    /// Of requests that completed.
    pub(crate) done_bytes: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, done_bytes: u64) {
        self.done_bytes = self.done_bytes.saturating_add(done_bytes);
    }
}

const SECOND_NS: u64 = 1_000_000_000;

impl Traffic {
    pub(crate) fn new(now_ns: u64) -> Traffic {
        Traffic {
            messages: 0,
            refused: 0,
            expired: 0,
            slowed: 0,
            rates: Rates::default(),
            then: Totals::default(),
            looked_ns: now_ns,
        }
    }

    /// Whether it is time to [`Traffic::look`].
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.looked_ns) >= SECOND_NS
    }

    pub(crate) fn look(&mut self, now_ns: u64, totals: Totals) {
        if self.is_due(now_ns) {
            let passed_ns = now_ns - self.looked_ns;
            // What a storage did that is forgotten is not among the totals any more.
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 * 1e9 / passed_ns as f64;
            self.rates.decisions_per_s = rate(totals.decisions, self.then.decisions);
            self.rates.bytes_per_s = rate(totals.done_bytes, self.then.done_bytes);
            self.then = totals;
            self.looked_ns = now_ns;
        }
    }
}

pub(crate) fn json(now_ns: u64, service: &Service, addresses: &[String]) -> String {
    let (settings, traffic, totals) = (service.settings(), &service.traffic, service.totals());
    let (mut jobs, mut targets, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    let (mut connections, mut began_ns) = (0, now_ns);
    for (storage, coordinator) in service.coordinators() {
        let before = jobs.len();
        for (index, job) in coordinator.jobs.iter().enumerate() {
            jobs.extend(
                job.as_ref().map(|job| job_json(now_ns, storage, coordinator, JobId(index as u32), job)),
            );
        }
        targets.extend(targets_json(coordinator));
        connections += coordinator.nodes.iter().flatten().count();
        began_ns = began_ns.min(coordinator.began_ns);
        shared.push(json!({ "storage": storage, "jobs": jobs.len() - before }));
    }
    let storages: Vec<Value> =
        settings.storages.iter().map(|storage| json!({ "path": storage.path })).collect();
    json!({
        "coordinator": settings.title,
        "pid": std::process::id(),
        "listens_on": addresses,
        "epoch": settings.epoch,
        "policy": settings.policy.to_string(),
        "order": settings.order.to_string(),
        "up_s": seconds(now_ns.saturating_sub(began_ns)),
        "bandwidth_bytes_per_s": traffic.rates.bytes_per_s,
        "decisions": totals.decisions,
        "decisions_per_s": traffic.rates.decisions_per_s,
        "messages": traffic.messages,
        "connections": connections,
        "refused": traffic.refused,
        "leases_expired": traffic.expired,
        "slowed": traffic.slowed,
        "storages": storages,
        "shared": shared,
        "targets": targets,
        "jobs": jobs,
    })
    .to_string()
}

/// The queues of readers at the targets of a storage.
fn targets_json(coordinator: &Coordinator) -> impl Iterator<Item = Value> + '_ {
    let name = |id: &JobId| coordinator.jobs[id.0 as usize].as_ref().map(|job| job.name.as_str());
    let names = move |jobs: &[JobId]| jobs.iter().map(name).collect::<Value>();
    coordinator.turns.queues().map(move |queue| {
        json!({
            "target": format!("{:016x}", queue.target),
            "reading": names(&queue.reading),
            "waiting": names(&queue.waiting),
            "turns": queue.turns,
            "overdue": queue.overdue,
        })
    })
}

fn job_json(now_ns: u64, storage: &str, coordinator: &Coordinator, id: JobId, job: &Job) -> Value {
    let view = coordinator.view(id, job);
    let (state, share) = match view.state {
        JobState::Computing => ("computing", 0.0),
        JobState::Held => ("waiting", 0.0),
        JobState::Granted { share } => ("in I/O", share),
        JobState::Backfilled => ("backfilled", 0.0),
        JobState::Idle => ("idle", 0.0),
    };
    let since_ns = now_ns.saturating_sub(job.since_ns);
    let waiting_ns = if state == "waiting" { since_ns } else { 0 };
    let nodes: Vec<Value> = job
        .peers
        .iter()
        .filter_map(|&peer| coordinator.nodes[peer].as_ref())
        .map(|node| json!({ "host": node.host, "pid": node.pid, "ranks": node.ranks }))
        .collect();
    let allocations = coordinator
        .allocations
        .of_job(id)
        .map(|(storage, targets, files)| json!({ "storage": storage, "targets": targets, "files": files }));
    json!({
        "job": job.name,
        "storage": storage,
        "application": job.application,
        "user": job.user,
        "account": job.account,
        "weight": job.weight,
        "nodes": nodes,
        "state": state,
        "state_s": seconds(since_ns),
        "share": share,
        "set": view.set().map(f64::from),
        "characteristic_time_s": view.w_iter_ns() * 1e-9,
        "allocations": allocations.collect::<Vec<Value>>(),
        "phases": job.phases,
        "backfills": job.backfills,
        "announced_bytes": view.announced_bytes,
        "phase_bytes": coordinator.progress(id).done_bytes,
        "moved_bytes": job.moved_bytes,
        "held_s": seconds(job.held_ns + waiting_ns),
        "waited_s": seconds(job.waited_ns),
        "io_s": seconds(job.io_ns),
    })
}

fn seconds(ns: u64) -> f64 {
    ns as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_latest_second() {
        let mut traffic = Traffic::new(0);
        let totals = |decisions, done_bytes| Totals { decisions, done_bytes };
        traffic.look(SECOND_NS / 2, totals(100, 1 << 20));
        assert_eq!(traffic.rates.bytes_per_s, 0.0, "not for a second yet");
        traffic.look(2 * SECOND_NS, totals(100, 1 << 20));
        assert_eq!((traffic.rates.decisions_per_s, traffic.rates.bytes_per_s), (50.0, f64::from(1 << 19)));
        traffic.look(3 * SECOND_NS, totals(100, 1 << 20));
        assert_eq!((traffic.rates.decisions_per_s, traffic.rates.bytes_per_s), (0.0, 0.0));
    }
}
