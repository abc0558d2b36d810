//! `weir simulate sharing --live`: the same jobs under coordination as it runs.

use super::scenario::{self, Requests, Scenario};
use super::{Answer, Request, tell};
use weir_engine::sharing::PolicyKind;
use weir_engine::sim::{Job, Phase, SECOND_NS};
use weir_world::live::{LiveJob, LiveSetting, simulate};

/// The name for no coordination at all.
const NONE: &str = "none";
/// What is simulated unless something else is asked for.
const USUAL: [&str; 4] = [NONE, "weir", "set10", "fair"];
/// Each process of each job is simulated, and each request.
const MAX_RANKS: u64 = 10_000;
const MAX_REQUESTS: f64 = 1e7;

pub(in crate::simulate) fn simulate_live(request: &Request) -> Result<Answer, String> {
    let names = request.policies.clone().unwrap_or(USUAL.to_vec());
    let scenario = scenario::parse(request.scenario, request.seed)?;
    let bytes_per_s = scenario.bandwidth.filter(|bandwidth| *bandwidth >= 1.0);
    let bytes_per_s = bytes_per_s.ok_or("bandwidth: --live needs it, in bytes per second")? as u64;
    let jobs: Vec<LiveJob> = scenario
        .jobs
        .iter()
        .zip(&scenario.requests)
        .map(|(job, how)| live_job(job, *how, bytes_per_s))
        .collect();
    check(&scenario, &jobs)?;
    let outcomes = names.into_iter().map(|name| {
        let policy = if name == NONE { None } else { Some(name.parse::<PolicyKind>()?) };
        let setting = LiveSetting {
            policy,
            backfill: true,
            bytes_per_s,
            is_serial: scenario.is_serial,
            window_ns: scenario.window_ns,
            seed: request.seed,
        };
        Ok((name.to_string(), simulate(&jobs, &setting).map_err(|wrong| format!("{name}: {wrong}"))?))
    });
    let outcomes: Vec<_> = outcomes.collect::<Result<_, String>>()?;
    Ok(tell(&scenario, outcomes.into_iter()))
}

fn check(scenario: &Scenario, jobs: &[LiveJob]) -> Result<(), String> {
    let ranks: u64 = jobs.iter().map(|job| u64::from(job.ranks)).sum();
    let bytes = |job: &LiveJob| job.phases.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>();
    let requests: f64 = jobs.iter().map(|job| bytes(job) / job.request_bytes.max(1) as f64).sum();
    let empty = jobs.iter().position(|job| job.phases.is_empty());
    match empty {
        _ if ranks > MAX_RANKS => Err(format!("jobs: more than {MAX_RANKS} ranks in all")),
        _ if requests > MAX_REQUESTS => Err(format!("jobs: more than {MAX_REQUESTS:e} requests in all")),
        Some(job) => Err(format!("jobs[{job}] ({}): has no phases", scenario.names[job])),
        None => Ok(()),
    }
}

fn live_job(job: &Job, how: Requests, bytes_per_s: u64) -> LiveJob {
    let bytes_of = |volume_ns: u64| (volume_ns as f64 * bytes_per_s as f64 / SECOND_NS as f64).round() as u64;
    let (mut phases, mut compute_ns) = (Vec::new(), 0u64);
    for phase in job.program.phases() {
        match phase {
            Phase::Compute { length_ns } => compute_ns = compute_ns.saturating_add(length_ns),
            Phase::Io { volume_ns } => phases.push((std::mem::take(&mut compute_ns), bytes_of(volume_ns))),
        }
    }
    if compute_ns > 0 {
        phases.push((compute_ns, 0));
    }
    // A job that can use a part of the bandwidth pauses between its requests.
    let request_ns = how.bytes as f64 * SECOND_NS as f64 / bytes_per_s as f64;
    let pause_ns = how.pause_ns.unwrap_or((request_ns * (1.0 / job.cap - 1.0)) as u64);
    let with_io = phases.iter().filter(|(_, bytes)| *bytes > 0);
    let (count, bytes) =
        with_io.fold((0u64, 0u64), |(count, sum), (_, bytes)| (count + 1, sum.saturating_add(*bytes)));
    let usual = job.info.w_iter_ns.map(|w_iter_ns| (w_iter_ns, bytes / count.max(1)));
    LiveJob {
        release_ns: job.release_ns,
        ranks: how.ranks,
        request_bytes: how.bytes,
        pause_ns,
        phases,
        usual,
    }
}
