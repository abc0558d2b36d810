//! `weir simulate resources`: how many I/O resources each algorithm gives each application, which, and
//! what comes of it. The format is in `docs/scenarios/resources.schema.json`.

use super::fields::{self, Fields, list, number_in, whole};
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
            shown(o.mean(|a| a.slowdown_congestion())),
            shown(o.machine_idletime),
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

/// A difference of equals may come out a hair below zero; nobody wants to read "-0.000".
fn shown(value: f64) -> f64 {
    if value.abs() < 0.0005 { 0.0 } else { value }
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
    let value = fields::parse(text, &[("applications", MAX_APPLICATIONS)])?;
    let top = Fields::of_scenario(&value, &["resources", "compute_nodes", "applications"])?;
    let platform = Platform {
        resources: usize::try_from(top.read("resources", number)?).unwrap_or(usize::MAX),
        compute_nodes: top.read("compute_nodes", number)?,
    };
    let listed = top.read("applications", list)?.iter().enumerate();
    let applications = listed.map(|(i, value)| application(value, i)).collect::<Result<Vec<_>, _>>()?;
    resources::check(&platform, &applications).map_err(|e| e.to_string())?;
    Ok(Scenario { platform, applications })
}

fn application(value: &Value, index: usize) -> Result<Application, String> {
    let path = format!("applications[{index}]");
    let fields = Fields::of(value, &path, &["bandwidth", "volume", "cpu_time", "nodes", "phases"])?;
    let bandwidth = fields.read("bandwidth", list)?.iter().enumerate();
    let phases = match fields.read_if_given("phases", number)? {
        None => DEFAULT_PHASES,
        Some(phases) => u32::try_from(phases).map_err(|_| format!("{path}.phases: too many"))?,
    };
    Ok(Application {
        bandwidth: bandwidth
            .map(|(i, value)| quantity(value, &format!("{path}.bandwidth[{i}]")))
            .collect::<Result<_, _>>()?,
        volume: fields.read("volume", quantity)?,
        cpu_time_s: fields.read("cpu_time", quantity)?,
        nodes: fields.read("nodes", number)?,
        phases,
    })
}

/// What sense the numbers make together is for the engine to say.
fn quantity(value: &Value, path: &str) -> Result<f64, String> {
    number_in(value, path, f64::MIN..=f64::MAX)
}

fn number(value: &Value, path: &str) -> Result<u64, String> {
    whole(value, path, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = r#"{"resources": 4, "compute_nodes": 100, "applications": [
        {"bandwidth": [10, 18, 20, 15], "volume": 1000, "cpu_time": 50, "nodes": 10},
        {"bandwidth": [10, 9, 8, 7], "volume": 500, "cpu_time": 100, "nodes": 50, "phases": 3}]}"#;

    fn answer(scenario: &str, policies: Option<Vec<&str>>) -> Result<Answer, String> {
        simulate(&Request { scenario, policies, seed: 1, train: None })
    }

    /// The scenario with one thing changed, as JSON and as text.
    fn changed(pointer: &str, value: Value) -> (Value, String) {
        let mut scenario: Value = serde_json::from_str(SCENARIO).expect("the scenario is JSON");
        *scenario.pointer_mut(pointer).expect("the scenario has this field") = value;
        (scenario.clone(), scenario.to_string())
    }

    fn schema() -> jsonschema::Validator {
        let text = include_str!("../../../../docs/scenarios/resources.schema.json");
        let schema = serde_json::from_str(text).expect("the schema is JSON");
        jsonschema::validator_for(&schema).expect("the schema is one")
    }

    #[test]
    fn every_policy_answers_under_the_name_it_was_asked_by() {
        let json = answer(SCENARIO, None).expect("a sound scenario").json;
        assert_eq!(json["policies"].as_object().map(Map::len), Some(Policy::all().len()));
        let json = answer(SCENARIO, Some(vec!["bba", "weir"])).expect("a sound scenario").json;
        let bba = &json["policies"]["bba"];
        assert_eq!(bba["allocation"], json!([3, 1]));
        assert_eq!(bba["placement"], json!([[0, 1, 2], [3]]));
        assert_eq!(bba["rho_io"], json!(1.0));
        assert!(bba["rho_con"].as_f64().is_some_and(|rho| rho.abs() < 1e-9), "nobody meets");
        assert!(json["policies"]["weir"].is_object());
        assert_eq!(json["applications"][0], json!({"n_perf": 3, "n_sys": 1}));
    }

    #[test]
    fn same_seed_same_bytes() {
        let bytes = || answer(SCENARIO, None).expect("a sound scenario").json.to_string();
        assert_eq!(bytes(), bytes());
    }

    #[test]
    fn bad_fields_are_named_and_the_schema_agrees() {
        let schema = schema();
        assert!(schema.is_valid(&serde_json::from_str(SCENARIO).expect("the scenario is JSON")));
        let cases = [
            ("/resources", json!(0), "resources"),
            ("/resources", json!(1.5), "resources"),
            ("/resources", json!("4"), "resources"),
            ("/resources", json!(10_000_000), "resources"),
            ("/compute_nodes", json!(-1), "compute_nodes"),
            ("/applications", json!([]), "applications"),
            ("/applications", json!({}), "applications"),
            ("/applications/1", json!(7), "applications[1]"),
            ("/applications/1", json!({}), "applications[1].bandwidth"),
            ("/applications/1/bandwidth", json!([]), "applications[1].bandwidth"),
            ("/applications/1/bandwidth/2", json!(0), "applications[1].bandwidth[2]"),
            ("/applications/1/bandwidth/2", json!(null), "applications[1].bandwidth[2]"),
            ("/applications/1/volume", json!(-1), "applications[1].volume"),
            ("/applications/1/volume", json!("much"), "applications[1].volume"),
            ("/applications/1/cpu_time", json!(-0.5), "applications[1].cpu_time"),
            ("/applications/1/nodes", json!(0), "applications[1].nodes"),
            ("/applications/1/phases", json!(0), "applications[1].phases"),
        ];
        for (pointer, value, field) in cases {
            let (json, text) = changed(pointer, value);
            let complaint = answer(&text, None).err().unwrap_or_default();
            assert!(complaint.starts_with(&format!("{field}:")), "{text}: {complaint}");
            assert!(!schema.is_valid(&json), "the schema takes {text}");
        }
    }

    #[test]
    fn what_is_no_json_is_told_by_the_field_before_it() {
        let not_a_number = SCENARIO.replacen("1000", "NaN", 1);
        assert!(
            answer(&not_a_number, None)
                .err()
                .unwrap_or_default()
                .starts_with("applications[0].volume: not JSON")
        );
        let too_large = SCENARIO.replacen("\"cpu_time\": 50", "\"cpu_time\": 1e999", 1);
        assert!(
            answer(&too_large, None)
                .err()
                .unwrap_or_default()
                .starts_with("applications[0].cpu_time: not JSON")
        );
        assert!(answer("", None).err().unwrap_or_default().starts_with("not JSON"));
        assert!(answer("\u{e9}", None).err().unwrap_or_default().starts_with("not JSON"));
    }

    #[test]
    fn unknown_fields_and_policies_are_errors() {
        let extra = SCENARIO.replacen("\"nodes\"", "\"nods\"", 1);
        assert!(answer(&extra, None).err().unwrap_or_default().starts_with("applications[0].nods:"));
        let complaint = answer(SCENARIO, Some(vec!["ta", "best"])).err().unwrap_or_default();
        assert!(complaint.starts_with("policy:") && complaint.contains("\"best\""), "{complaint}");
    }

    #[test]
    fn neighbouring_resources_are_shown_as_ranges() {
        assert_eq!(placement_text(&[vec![0, 1, 2], vec![3], vec![0, 2, 3]]), "0-2 3 0,2-3");
    }
}
