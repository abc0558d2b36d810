//! `weir simulate resources`: how many I/O resources each algorithm gives each application, which, and
//! what comes of it. The format is in `docs/scenarios/resources.schema.json`.

use super::{Answer, Request};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use weir_engine::resources::sim::{self, Length, Outcome};
use weir_engine::resources::{self, Application, BadInput, MAX_APPLICATIONS, Platform, Policy, io_load};

/// Phases of an application that does not say: the mean of the paper's 2 to 20.
const DEFAULT_PHASES: u32 = 11;

struct Scenario {
    platform: Platform,
    applications: Vec<Application>,
}

/// One policy's schedule, and what the simulator made of it.
struct Scheduled {
    /// The policy as it was asked for.
    name: String,
    placement: Vec<Vec<usize>>,
    io_load: f64,
    outcome: Outcome,
}

impl Scheduled {
    fn allocation(&self) -> Vec<usize> {
        self.placement.iter().map(Vec::len).collect()
    }
}

pub(super) fn simulate(request: &Request) -> Result<Answer, String> {
    let scenario = read(request.scenario)?;
    let policies: Result<Vec<(String, Policy)>, BadInput> = match &request.policies {
        None => Ok(Policy::all().into_iter().map(|policy| (policy.name(), policy)).collect()),
        Some(names) => names.iter().map(|&name| Ok((name.to_owned(), Policy::parse(name)?))).collect(),
    };
    let scheduled = policies
        .map_err(|e| e.to_string())?
        .into_iter()
        .map(|(name, policy)| schedule(&scenario, name, policy, request.seed))
        .collect::<Result<Vec<_>, String>>()?;
    Ok(Answer { json: to_json(&scenario, &scheduled), text: to_text(&scheduled) })
}

fn schedule(scenario: &Scenario, name: String, policy: Policy, seed: u64) -> Result<Scheduled, String> {
    let Scenario { platform, applications } = scenario;
    let placement = policy.schedule(platform, applications, seed);
    let allocation: Vec<usize> = placement.iter().map(Vec::len).collect();
    // Few applications meet, or never do, by where each starts: the fewer there are, the more starts.
    let starts = (400 / applications.len()).clamp(1, 8) as u64;
    let outcomes = (0..starts)
        .map(|start| {
            sim::run(platform, applications, &placement, Length::default(), seed.wrapping_add(start))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| e.to_string())?;
    let io_load = io_load(platform.resources, applications, &allocation);
    Ok(Scheduled { name, placement, io_load, outcome: Outcome::mean_of(&outcomes) })
}

fn to_json(scenario: &Scenario, scheduled: &[Scheduled]) -> Value {
    let resources = scenario.platform.resources;
    let characteristic =
        |a: &Application| json!({"n_perf": a.n_perf(resources), "n_sys": a.n_sys(resources)});
    let policies: Map<String, Value> = scheduled.iter().map(|s| (s.name.clone(), policy_json(s))).collect();
    json!({
        "applications": scenario.applications.iter().map(characteristic).collect::<Vec<_>>(),
        "policies": policies,
    })
}

fn policy_json(scheduled: &Scheduled) -> Value {
    let outcome = &scheduled.outcome;
    let applications = outcome.applications.iter().map(|a| {
        json!({
            "io_slowdown": a.slowdown,
            "rho_io": a.slowdown_io,
            "rho_con": a.slowdown_congestion(),
            "io_share": a.io_share,
        })
    });
    json!({
        "allocation": scheduled.allocation(),
        "placement": scheduled.placement,
        "io_load": scheduled.io_load,
        "mean_io_slowdown": outcome.mean_slowdown(),
        "rho_io": outcome.mean(|a| a.slowdown_io),
        "rho_con": outcome.mean(|a| a.slowdown_congestion()),
        "machine_idletime": outcome.machine_idletime,
        "io_spread": outcome.io_spread(),
        "occupancy": outcome.occupancy,
        "applications": applications.collect::<Vec<_>>(),
    })
}

fn to_text(scheduled: &[Scheduled]) -> String {
    let mut text = format!(
        "{:<12} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        "policy", "slowdown", "rho_io", "rho_con", "idle", "io_load", "spread"
    );
    for s in scheduled {
        let o = &s.outcome;
        let _ = writeln!(
            text,
            "{:<12} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>8.3}",
            s.name,
            o.mean_slowdown(),
            o.mean(|a| a.slowdown_io),
            o.mean(|a| a.slowdown_congestion()),
            o.machine_idletime,
            s.io_load,
            o.io_spread(),
        );
    }
    text.push_str("\nresources of each application\n");
    for s in scheduled {
        let _ = writeln!(text, "{:<12} {}", s.name, placement_text(&s.placement));
    }
    text
}

/// `0-3 4,6 1`: the resources of each application, ranges where they are next to each other.
fn placement_text(placement: &[Vec<usize>]) -> String {
    placement.iter().map(|resources| ranges(resources)).collect::<Vec<_>>().join(" ")
}

fn ranges(resources: &[usize]) -> String {
    let neighbours = resources.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[usize]| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    neighbours.map(text).collect::<Vec<_>>().join(",")
}

fn read(text: &str) -> Result<Scenario, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| not_json(text, &e))?;
    let top = Fields::of(&value, "scenario", &["resources", "compute_nodes", "applications"])?;
    let platform = Platform {
        resources: usize::try_from(top.whole("resources")?).unwrap_or(usize::MAX),
        compute_nodes: top.whole("compute_nodes")?,
    };
    let list = top.list("applications")?;
    if list.len() > MAX_APPLICATIONS {
        return Err(format!("applications: must hold from 1 to {MAX_APPLICATIONS} applications"));
    }
    let applications =
        list.iter().enumerate().map(|(i, value)| application(value, i)).collect::<Result<Vec<_>, _>>()?;
    resources::check(&platform, &applications).map_err(|e| e.to_string())?;
    Ok(Scenario { platform, applications })
}

fn application(value: &Value, index: usize) -> Result<Application, String> {
    let path = format!("applications[{index}]");
    let known = ["bandwidth", "volume", "cpu_time", "nodes", "phases"];
    let fields = Fields::of(value, &path, &known)?;
    let bandwidth = fields.list("bandwidth")?;
    let number = |(i, b): (usize, &Value)| {
        b.as_f64().ok_or_else(|| format!("{path}.bandwidth[{i}]: must be a number, not {b}"))
    };
    let phases = match fields.object.get("phases") {
        None => DEFAULT_PHASES,
        Some(_) => u32::try_from(fields.whole("phases")?).map_err(|_| format!("{path}.phases: too many"))?,
    };
    Ok(Application {
        bandwidth: bandwidth.iter().enumerate().map(number).collect::<Result<_, _>>()?,
        volume: fields.number("volume")?,
        cpu_time_s: fields.number("cpu_time")?,
        nodes: fields.whole("nodes")?,
        phases,
    })
}

/// The fields of a JSON object, with errors that say which one is wrong.
struct Fields<'a> {
    object: &'a Map<String, Value>,
    prefix: String,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, path: &str, known: &[&str]) -> Result<Self, String> {
        let object =
            value.as_object().ok_or_else(|| format!("{path}: must be an object, not {}", kind(value)))?;
        let prefix = if path == "scenario" { String::new() } else { format!("{path}.") };
        match object.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("{prefix}{key}: no such field; there are {}", known.join(", "))),
            None => Ok(Fields { object, prefix }),
        }
    }

    fn get(&self, name: &str) -> Result<&'a Value, String> {
        self.object.get(name).ok_or_else(|| format!("{}{name}: missing", self.prefix))
    }

    fn number(&self, name: &str) -> Result<f64, String> {
        let value = self.get(name)?;
        value.as_f64().ok_or_else(|| format!("{}{name}: must be a number, not {}", self.prefix, kind(value)))
    }

    fn whole(&self, name: &str) -> Result<u64, String> {
        let value = self.get(name)?;
        // 4.0 is as good as 4: many programs write JSON numbers that way.
        let whole = value.as_f64().filter(|x| x.fract() == 0.0 && (0.0..=9e15).contains(x)).map(|x| x as u64);
        value.as_u64().or(whole).ok_or_else(|| {
            format!("{}{name}: must be a whole number, zero or above, not {}", self.prefix, kind(value))
        })
    }

    fn list(&self, name: &str) -> Result<&'a Vec<Value>, String> {
        let value = self.get(name)?;
        value.as_array().ok_or_else(|| format!("{}{name}: must be a list, not {}", self.prefix, kind(value)))
    }
}

/// A value as an error message shows it: short.
fn kind(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "a list".into(),
        Value::String(_) => "a string".into(),
        other => other.to_string(),
    }
}

/// What is wrong with the JSON itself, at which field: `NaN` and `1e999` are numbers to some programs.
fn not_json(text: &str, error: &serde_json::Error) -> String {
    let lines = text.split_inclusive('\n').take(error.line()).collect::<Vec<_>>();
    let (last, before) = lines.split_last().unwrap_or((&"", &[]));
    let end: usize = before.iter().map(|line| line.len()).sum::<usize>() + error.column().min(last.len());
    let near = text.as_bytes()[..end].split(|&b| b == b'"').rev().nth(1);
    match near.map(String::from_utf8_lossy) {
        Some(field) => format!("{field}: not JSON: {error}"),
        None => format!("not JSON: {error}"),
    }
}
