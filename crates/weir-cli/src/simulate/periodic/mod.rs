//! `weir simulate periodic`: a timetable for periodic applications, and what becomes of it when their
//! computing times vary. The format is in `docs/scenarios/periodic.schema.json`.

mod record;
mod scenario;

use super::{Answer, Request};
use record::{Recorder, Window};
use scenario::Scenario;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use weir_engine::sharing::periodic::{Application, Periodic, Plan, Timetable, persched};
use weir_engine::sharing::{ApioBarrier, Policy, PolicyKind};
use weir_engine::sim::{Outcome, Setting, Storage, as_jobs, simulate as drive};

/// The policies that know of nodes and caps, in the order in which they are shown.
pub(crate) const POLICIES: [PolicyKind; 8] = [
    PolicyKind::Periodic,
    PolicyKind::Apio,
    PolicyKind::ApioBarrier,
    PolicyKind::RoundRobin,
    PolicyKind::MinDilation,
    PolicyKind::MaxSysEff,
    PolicyKind::MinMax { gamma: PolicyKind::DEFAULT_GAMMA },
    PolicyKind::Weir,
];

/// Windows listed for a person; `--json` has them all.
const LISTED: usize = 12;

/// A policy that is told beforehand, if it can make use of it, what the applications are on average.
pub(crate) fn informed(
    kind: PolicyKind,
    applications: &[Application],
    bandwidth: f64,
    period_s: Option<f64>,
) -> Box<dyn Policy> {
    let timetable = || Timetable::given(applications, bandwidth, period_s);
    match kind {
        PolicyKind::Periodic => Box::new(Periodic::kept(timetable())),
        PolicyKind::Apio => Box::new(Periodic::moved(timetable())),
        PolicyKind::ApioBarrier => Box::new(ApioBarrier::new(timetable())),
        other => other.build(),
    }
}

/// Runs the applications until all are done. Algorithm 2 assigns bandwidth, no more and no less; the
/// others give what is left to whoever can use it.
pub(crate) fn execute(
    kind: PolicyKind,
    policy: Box<dyn Policy>,
    applications: &[Application],
    bandwidth: f64,
    compute_s: &[Vec<f64>],
) -> Outcome {
    let storage = if kind == PolicyKind::ApioBarrier { Storage::Strict } else { Storage::WorkConserving };
    let setting = Setting { storage, window_ns: None, stop_at_window: false };
    drive(&as_jobs(applications, bandwidth, compute_s), policy, &setting)
}

/// What one policy made of the scenario.
struct Executed {
    kind: PolicyKind,
    outcome: Outcome,
    windows: Vec<Vec<Window>>,
}

pub(super) fn simulate(request: &Request) -> Result<Answer, String> {
    let kinds = chosen(request.policies.as_deref())?;
    let scenario = Scenario::parse(request.scenario)?;
    let plan = persched(&scenario.applications, scenario.bandwidth, &scenario.search);
    if let Some(index) = plan.instances.iter().position(Vec::is_empty) {
        let (name, period_s) = (&scenario.names[index], plan.period_s);
        return Err(format!(
            "period: {period_s} s is too short for {name} to have an instance beside the others"
        ));
    }
    let executed: Vec<Executed> = kinds.into_iter().map(|kind| scenario.execute(kind)).collect();
    Ok(Answer { json: to_json(&scenario, &plan, &executed), text: to_text(&scenario, &plan, &executed) })
}

fn chosen(names: Option<&[&str]>) -> Result<Vec<PolicyKind>, String> {
    let Some(names) = names else { return Ok(POLICIES.to_vec()) };
    let find = |name: &&str| match name.parse::<PolicyKind>() {
        Ok(kind @ PolicyKind::MinMax { .. }) => Ok(kind),
        Ok(kind) if POLICIES.contains(&kind) => Ok(kind),
        Err(error) if name.starts_with("minmax(") => Err(error),
        _ => {
            let known: Vec<String> = POLICIES.iter().map(PolicyKind::to_string).collect();
            Err(format!("policy: there is no \"{name}\" here; there are {}, minmax(GAMMA)", known.join(", ")))
        }
    };
    names.iter().map(find).collect()
}

impl Scenario {
    fn execute(&self, kind: PolicyKind) -> Executed {
        let policy = informed(kind, &self.applications, self.bandwidth, self.search.period_s);
        let (recorder, record) = Recorder::new(policy, self.applications.len());
        let outcome = execute(kind, Box::new(recorder), &self.applications, self.bandwidth, &self.compute_s);
        Executed { kind, outcome, windows: record.take() }
    }

    /// The windows of the plan within one period: what reaches over its end goes on at its beginning.
    fn planned_windows(&self, plan: &Plan) -> Vec<Vec<Window>> {
        let of_application = |instances: &Vec<_>| {
            let mut windows = Vec::new();
            for (instance, planned) in instances.iter().enumerate() {
                add_planned(&mut windows, instance, planned, plan.period_s, self.bandwidth);
            }
            windows.sort_by(|a: &Window, b| a.start_s.total_cmp(&b.start_s));
            windows
        };
        plan.instances.iter().map(of_application).collect()
    }
}

fn add_planned(
    windows: &mut Vec<Window>,
    instance: usize,
    planned: &weir_engine::sharing::periodic::Instance,
    period_s: f64,
    bandwidth: f64,
) {
    for transfer in &planned.transfers {
        let lap_s = (transfer.start_s / period_s).floor() * period_s;
        let (start_s, end_s) = (transfer.start_s - lap_s, transfer.end_s - lap_s);
        let window =
            Window { instance, start_s, end_s: end_s.min(period_s), share: transfer.bandwidth / bandwidth };
        windows.push(window);
        if end_s > period_s {
            windows.push(Window { start_s: 0.0, end_s: end_s - period_s, ..window });
        }
    }
}

fn schedule(scenario: &Scenario, windows: &[Vec<Window>]) -> Vec<Value> {
    let one = |window: &Window| {
        json!({
            "instance": window.instance,
            "start": window.start_s,
            "end": window.end_s,
            "bandwidth": window.share * scenario.bandwidth,
        })
    };
    windows.iter().map(|windows| windows.iter().map(one).collect()).collect()
}

fn finishes(outcome: &Outcome) -> Vec<f64> {
    outcome.jobs.iter().map(|job| job.finish_ns.unwrap_or(u64::MAX) as f64 / 1e9).collect()
}

/// `periodic` answers with its plan, which is what PerSched is judged by; running the plan with the
/// real computing times is told under `executed`. The others are judged by how they ran.
fn to_json(scenario: &Scenario, plan: &Plan, executed: &[Executed]) -> Value {
    let of_policy = |Executed { kind, outcome, windows }: &Executed| {
        let run = json!({
            "sys_efficiency": outcome.sys_efficiency(),
            "dilation": outcome.dilation(),
            "finish": finishes(outcome),
            "schedule": schedule(scenario, windows),
        });
        let answer = if *kind == PolicyKind::Periodic {
            json!({
                "sys_efficiency": plan.sys_efficiency,
                "dilation": plan.dilation,
                "period": plan.period_s,
                "instances": plan.instances.iter().map(Vec::len).collect::<Vec<_>>(),
                "schedule": schedule(scenario, &scenario.planned_windows(plan)),
                "executed": run,
            })
        } else {
            run
        };
        (kind.to_string(), answer)
    };
    let policies: Map<String, Value> = executed.iter().map(of_policy).collect();
    json!({ "applications": scenario.names, "policies": policies })
}

fn to_text(scenario: &Scenario, plan: &Plan, executed: &[Executed]) -> String {
    let mut text = String::new();
    if executed.iter().any(|run| run.kind == PolicyKind::Periodic) {
        let _ = writeln!(
            text,
            "timetable: period {:.3} s, SysEfficiency {:.5}, dilation {:.5}",
            plan.period_s, plan.sys_efficiency, plan.dilation
        );
        let windows = scenario.planned_windows(plan);
        for ((name, instances), windows) in scenario.names.iter().zip(&plan.instances).zip(&windows) {
            let _ = writeln!(text, "  {name}: {} instances in a period, I/O", instances.len());
            for window in windows.iter().take(LISTED) {
                let bandwidth = window.share * scenario.bandwidth;
                let _ = writeln!(
                    text,
                    "    {:>14.3} to {:>14.3} s at {bandwidth:.6}  (instance {})",
                    window.start_s, window.end_s, window.instance
                );
            }
            if windows.len() > LISTED {
                let _ = writeln!(text, "    and {} more (--json has all)", windows.len() - LISTED);
            }
        }
        text.push('\n');
    }
    let _ = writeln!(text, "run with the real computing times:");
    let _ = writeln!(text, "  {:<14} {:>13} {:>9}  finish (s)", "policy", "SysEfficiency", "dilation");
    for Executed { kind, outcome, .. } in executed {
        let finish: Vec<String> = finishes(outcome).iter().take(LISTED).map(|s| format!("{s:.3}")).collect();
        let more = if outcome.jobs.len() > LISTED { " ..." } else { "" };
        let _ = writeln!(
            text,
            "  {:<14} {:>13.5} {:>9.5}  {}{more}",
            kind.to_string(),
            outcome.sys_efficiency(),
            outcome.dilation(),
            finish.join(" ")
        );
    }
    text
}
