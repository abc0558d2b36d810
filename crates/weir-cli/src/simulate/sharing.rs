//! `weir simulate sharing`: jobs that compute and do I/O in turn, under each sharing policy.

mod live;
mod scenario;

use super::{Answer, Request};
use crate::reproduce::render::grid;
pub(super) use live::simulate_live;
use scenario::Scenario;
use serde_json::{Value, json};
use weir_engine::sharing::PolicyKind;
use weir_engine::sim::{self, JobOutcome, Outcome, Setting, Storage};

pub(super) fn simulate(request: &Request) -> Result<Answer, String> {
    let kinds = match &request.policies {
        None => PolicyKind::ALL.to_vec(),
        Some(names) => names.iter().map(|name| name.parse()).collect::<Result<Vec<PolicyKind>, _>>()?,
    };
    let scenario = scenario::parse(request.scenario, request.seed)?;
    let setting =
        Setting { storage: Storage::WorkConserving, window_ns: scenario.window_ns, stop_at_window: false };
    let outcome =
        |kind: PolicyKind| (kind.to_string(), sim::simulate(&scenario.jobs, kind.build(), &setting));
    Ok(tell(&scenario, kinds.into_iter().map(outcome)))
}

/// What the policies made of the scenario.
fn tell(scenario: &Scenario, outcomes: impl Iterator<Item = (String, Outcome)>) -> Answer {
    let mut policies = serde_json::Map::new();
    let mut rows = Vec::new();
    let mut finishes: Vec<Vec<String>> = scenario.names.iter().map(|name| vec![name.clone()]).collect();
    for (name, outcome) in outcomes {
        rows.push(summary(&name, &outcome));
        for (row, job) in finishes.iter_mut().zip(&outcome.jobs) {
            row.push(job.finish_ns.map_or("-".into(), |ns| format!("{:.3}", seconds(ns as f64))));
        }
        policies.insert(name, answer(&scenario.names, &outcome));
    }
    let columns = ["policy", "utilization", "stretch", "sys_efficiency", "dilation", "io_slowdown"];
    let names = rows.iter().map(|row| row[0].clone());
    let finish_columns: Vec<String> = std::iter::once("finish (s)".to_owned()).chain(names).collect();
    let text = grid(&columns.map(String::from), &rows) + "\n" + &grid(&finish_columns, &finishes);
    Answer { json: json!({ "policies": policies }), text }
}

fn seconds(ns: f64) -> f64 {
    ns / sim::SECOND_NS as f64
}

fn summary(name: &str, outcome: &Outcome) -> Vec<String> {
    let metrics = [
        outcome.utilization(),
        outcome.stretch(),
        outcome.sys_efficiency(),
        outcome.dilation(),
        outcome.io_slowdown(),
    ];
    std::iter::once(name.to_owned()).chain(metrics.iter().map(|value| format!("{value:.4}"))).collect()
}

/// A number that JSON cannot hold (a job did nothing: infinite stretch) becomes null.
fn answer(names: &[String], outcome: &Outcome) -> Value {
    let job = |(name, job): (&String, &JobOutcome)| {
        json!({
            "name": name,
            "finish": job.finish_ns.map(|ns| seconds(ns as f64)),
            "compute_done": seconds(job.compute_ns),
            "io_done": seconds(job.io_ns),
        })
    };
    json!({
        "jobs": names.iter().zip(&outcome.jobs).map(job).collect::<Vec<_>>(),
        "utilization": outcome.utilization(),
        "stretch": outcome.stretch(),
        "sys_efficiency": outcome.sys_efficiency(),
        "dilation": outcome.dilation(),
        "io_slowdown": outcome.io_slowdown(),
    })
}

#[cfg(test)]
mod tests;
