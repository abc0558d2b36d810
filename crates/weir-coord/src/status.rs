//! What `weir status` shows, as JSON.

use crate::coordinator::Coordinator;
use crate::jobs::{Job, Standing};
use crate::server::Settings;
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

    pub(crate) fn look(&mut self, now_ns: u64, totals: Totals) {
        let passed_ns = now_ns.saturating_sub(self.looked_ns);
        if passed_ns >= SECOND_NS {
            let rate = |now: u64, then: u64| (now - then) as f64 * 1e9 / passed_ns as f64;
            self.rates.decisions_per_s = rate(totals.decisions, self.then.decisions);
            self.rates.bytes_per_s = rate(totals.done_bytes, self.then.done_bytes);
            self.then = totals;
            self.looked_ns = now_ns;
        }
    }
}

pub(crate) fn json(
    now_ns: u64,
    coordinator: &Coordinator,
    traffic: &Traffic,
    settings: &Settings,
    addresses: &[String],
) -> String {
    let jobs =
        coordinator.jobs.iter().enumerate().filter_map(|(index, job)| {
            Some(job_json(now_ns, coordinator, JobId(index as u32), job.as_ref()?))
        });
    let storages = coordinator.allocations.storages().map(|path| json!({ "path": path }));
    let name = |id: &JobId| coordinator.jobs[id.0 as usize].as_ref().map(|job| job.name.as_str());
    let names = |jobs: &[JobId]| jobs.iter().map(name).collect::<Value>();
    let targets = coordinator.turns.queues().map(|queue| {
        json!({
            "target": format!("{:016x}", queue.target),
            "reading": names(&queue.reading),
            "waiting": names(&queue.waiting),
            "turns": queue.turns,
            "overdue": queue.overdue,
        })
    });
    let connections = coordinator.nodes.iter().flatten().count();
    json!({
        "coordinator": settings.title,
        "pid": std::process::id(),
        "listens_on": addresses,
        "policy": coordinator.policy().to_string(),
        "order": coordinator.order().to_string(),
        "up_s": seconds(now_ns.saturating_sub(coordinator.began_ns)),
        "bandwidth_bytes_per_s": traffic.rates.bytes_per_s,
        "decisions": coordinator.totals.decisions,
        "decisions_per_s": traffic.rates.decisions_per_s,
        "messages": traffic.messages,
        "connections": connections,
        "refused": traffic.refused,
        "leases_expired": traffic.expired,
        "slowed": traffic.slowed,
        "storages": storages.collect::<Vec<Value>>(),
        "targets": targets.collect::<Vec<Value>>(),
        "jobs": jobs.collect::<Vec<Value>>(),
    })
    .to_string()
}

fn job_json(now_ns: u64, coordinator: &Coordinator, id: JobId, job: &Job) -> Value {
    let (state, share) = match job.standing {
        Standing::Outside => ("computing", 0.0),
        Standing::Held => ("waiting", 0.0),
        Standing::Granted { share } => ("in I/O", coordinator.common_share.unwrap_or(share)),
    };
    let since_ns = now_ns.saturating_sub(job.since_ns);
    let waiting_ns = if state == "waiting" { since_ns } else { 0 };
    let w_iter_ns = coordinator.engine.job(id).map_or(0.0, |known| known.w_iter_ns());
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
        "application": job.application,
        "nodes": nodes,
        "state": state,
        "state_s": seconds(since_ns),
        "share": share,
        // The sum makes a zero of a negative zero.
        "set": (w_iter_ns > 0.0).then(|| (w_iter_ns * 1e-9).log10().round() + 0.0),
        "characteristic_time_s": w_iter_ns * 1e-9,
        "allocations": allocations.collect::<Vec<Value>>(),
        "phases": job.phases,
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
