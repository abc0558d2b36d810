//! Jobs that somebody describes, under coordination as it runs live: sessions that find the phases by themselves, gates, messages
//! that take their time, credits with a lead, backfilling, and a coordinator that knows what it was told and no more.

use crate::plan::{Discipline, JobPlan, Meeting, Plan, Program, Step};
use crate::world::World;
use crate::{MS, SECOND};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use weir_engine::sharing::PolicyKind;
use weir_engine::sim::{JobOutcome, Outcome};

/// A job and what it does.
#[derive(Clone, Debug)]
pub struct LiveJob {
    pub release_ns: u64,
    /// Processes that make requests, all on one node.
    pub ranks: u32,
    /// The most that a rank moves with one request.
    pub request_bytes: u64,
    /// Between two requests of a rank.
    pub pause_ns: u64,
    /// Computing, and the bytes of the I/O phase behind it, one after the other.
    pub phases: Vec<(u64, u64)>,
    /// Characteristic time and mean phase of earlier runs, if there were any.
    pub usual: Option<(u64, u64)>,
}

/// The storage, and how it is shared.
#[derive(Clone, Copy, Debug)]
pub struct LiveSetting {
    /// `None`: every request starts at once.
    pub policy: Option<PolicyKind>,
    pub backfill: bool,
    pub bytes_per_s: u64,
    /// Whether the storage serves requests one after the other instead of all at once.
    pub is_serial: bool,
    /// Where jobs are measured; the run ends with it. `None`: from the start to the last finish.
    pub window_ns: Option<(u64, u64)>,
    pub seed: u64,
}

/// What a thread takes to wake another, typically and at most, on one machine that is not idle (`benches/gate.sh` prints the
/// first).
const WAKE_NS: (u64, u64) = (50_000, MS);
/// `WEIR_MAX_WAIT` and `WEIR_FREE_BYTES` by default.
const MAX_WAIT_NS: u64 = 60 * SECOND;
const FREE_BYTES: u64 = 512 << 10;
/// No simulated run is longer: a hundred days.
const MAX_NS: u64 = 100 * 86_400 * SECOND;

/// Runs the jobs. An error is a promise of coordination that was broken.
pub fn simulate(jobs: &[LiveJob], setting: &LiveSetting) -> Result<Outcome, String> {
    let end_ns = setting.window_ns.map_or(MAX_NS, |(_, end_ns)| end_ns);
    let plan = Plan {
        policy: setting.policy.unwrap_or(PolicyKind::Weir),
        is_coordinated: setting.policy.is_some(),
        end_ns,
        window_ns: setting.window_ns.unwrap_or((0, MAX_NS)),
        meeting: Meeting::Local,
        machines: 1,
        jobs: jobs.iter().map(job_plan).collect(),
        faults: Vec::new(),
        max_wait_ns: MAX_WAIT_NS,
        free_bytes: FREE_BYTES,
        backfill: setting.backfill,
        storage_rates: vec![setting.bytes_per_s; 2],
        serves: if setting.is_serial { Discipline::FirstComeFirstServed } else { Discipline::Evenly },
        wake_ns: WAKE_NS,
        network_ns: WAKE_NS,
    };
    let window_ns = plan.window_ns;
    let mut world = World::new(plan, Pcg64::seed_from_u64(setting.seed), false);
    world.run()?;
    let last_ns = world.jobs.iter().filter_map(|job| job.did.finish_ns).max().unwrap_or(0);
    let ns_per_byte = SECOND as f64 / setting.bytes_per_s as f64;
    let outcome = |job: &crate::world::Job| {
        let did = job.outcome(end_ns.min(world.now_ns.max(last_ns)), window_ns);
        JobOutcome { io_ns: did.io_ns * ns_per_byte, ..did }
    };
    Ok(Outcome {
        jobs: world.jobs.iter().map(outcome).collect(),
        window_ns: setting.window_ns.unwrap_or((0, last_ns)),
        steps: world.events(),
    })
}

fn job_plan(job: &LiveJob) -> JobPlan {
    let step = |&(compute_ns, bytes): &(u64, u64)| {
        let ranks = u64::from(job.ranks.max(1));
        let requests = bytes.div_ceil(ranks * job.request_bytes.max(1)).min(u64::from(u32::MAX));
        let request_bytes = bytes.div_ceil(ranks * requests.max(1));
        Step { compute_ns, requests: requests as u32, request_bytes }
    };
    JobPlan {
        start_ns: job.release_ns,
        machines: vec![0],
        ranks: job.ranks.max(1) as usize,
        program: Program::Listed(job.phases.iter().map(step).collect()),
        pause_ns: job.pause_ns,
        storage: 0,
        alternates: false,
        is_marked: false,
        waits_for: None,
        w_iter_ns: job.usual.map(|(w_iter_ns, _)| w_iter_ns),
        mean_phase_bytes: job.usual.map(|(_, bytes)| bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn job(compute_ms: u64, bytes: u64, phases: usize) -> LiveJob {
        LiveJob {
            release_ns: 0,
            ranks: 1,
            request_bytes: 4 * MB,
            pause_ns: 0,
            phases: vec![(compute_ms * MS, bytes); phases],
            usual: None,
        }
    }

    fn setting(policy: Option<PolicyKind>) -> LiveSetting {
        LiveSetting {
            policy,
            backfill: true,
            bytes_per_s: 100 * MB,
            is_serial: true,
            window_ns: None,
            seed: 1,
        }
    }

    #[test]
    fn a_job_alone_takes_as_long_with_coordination_as_without() {
        for policy in [None, Some(PolicyKind::Weir), Some(PolicyKind::Set10), Some(PolicyKind::Fair)] {
            let outcome = simulate(&[job(500, 20 * MB, 10)], &setting(policy)).unwrap();
            let finish_s = outcome.jobs[0].finish_ns.unwrap() as f64 * 1e-9;
            assert!((7.0..7.05).contains(&finish_s), "{policy:?}: {finish_s}");
            assert!((outcome.jobs[0].io_ns - 2e9).abs() < 1.0, "{}", outcome.jobs[0].io_ns);
        }
    }

    #[test]
    fn who_is_held_computes_later_and_nothing_is_lost() {
        let jobs = [job(300, 50 * MB, 10), job(300, 50 * MB, 10), job(3000, 100 * MB, 2)];
        for policy in [None, Some(PolicyKind::Weir), Some(PolicyKind::Exclusive), Some(PolicyKind::Fair)] {
            let outcome = simulate(&jobs, &setting(policy)).unwrap();
            for (job, did) in jobs.iter().zip(&outcome.jobs) {
                let bytes: u64 = job.phases.iter().map(|(_, bytes)| bytes).sum();
                assert!((did.io_ns - bytes as f64 * 10.0).abs() < 1e3, "{policy:?}: {did:?}");
                let compute_ns: u64 = job.phases.iter().map(|(compute_ns, _)| compute_ns).sum();
                assert!((did.compute_ns - compute_ns as f64).abs() < 2e7, "{policy:?}: {did:?}");
            }
        }
    }
}
