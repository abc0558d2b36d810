//! `weir simulate collective`: one collective call of each application, all begun at once on shared storage.

use super::fields::{self, Fields, count, list, number_in, seconds as in_seconds, word};
use super::{Answer, Request};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use weir_engine::aggregators::{self, Aggregator, Mode, Options, Outcome, Policy};

/// Nobody waits for this plan as they would for a coordinator's: ten times its effort.
const EFFORT: u64 = 20_000_000;
const FIELDS: [&str; 5] = ["mode", "read", "shuffle", "threshold", "window"];
const MAX_APPLICATIONS: usize = 10_000;
const MAX_AGGREGATORS: usize = 100_000;
const MODES: [(&str, Mode); 2] = [("read", Mode::Read), ("write", Mode::Write)];

struct Scenario {
    mode: Mode,
    nodes: usize,
    /// Per application.
    calls: Vec<Vec<Aggregator>>,
    options: Options,
}

pub(super) fn simulate(request: &Request) -> Result<Answer, String> {
    answer(request.scenario, request.policies.as_deref(), request.seed)
}

fn answer(scenario: &str, policies: Option<&[&str]>, seed: u64) -> Result<Answer, String> {
    let policies = chosen(policies)?;
    let scenario = Scenario::parse(scenario, seed)?;
    let outcomes = policies
        .into_iter()
        .map(|policy| {
            let Scenario { mode, nodes, calls, options } = &scenario;
            aggregators::run(policy, options, *mode, *nodes, calls).map(|outcome| (policy, outcome)).map_err(
                |(application, refused)| {
                    let field = if refused.field == "service_ns" { "read" } else { "shuffle" };
                    let node = calls[application][refused.aggregator].target;
                    format!("{field}[{application}][{node}]: {}", refused.problem)
                },
            )
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Answer { json: to_json(&scenario, &outcomes), text: to_text(&outcomes) })
}

fn chosen(names: Option<&[&str]>) -> Result<Vec<Policy>, String> {
    let Some(names) = names else { return Ok(Policy::ALL.to_vec()) };
    let find = |name: &&str| {
        let known = || Policy::ALL.map(Policy::name).join(", ");
        Policy::from_name(name)
            .ok_or_else(|| format!("policy: there is no \"{name}\"; there are {}", known()))
    };
    names.iter().map(find).collect()
}

impl Scenario {
    fn parse(text: &str, seed: u64) -> Result<Scenario, String> {
        let value = fields::parse(text, &[("read", MAX_APPLICATIONS), ("shuffle", MAX_APPLICATIONS)])?;
        let fields = Fields::of_scenario(&value, &FIELDS)?;
        let mode = fields.read("mode", |value, path| word(value, path, &MODES))?;
        let read = fields.read("read", matrix)?;
        let shuffle = fields.read("shuffle", matrix)?;
        if shuffle.len() != read.len() {
            return Err(format!("shuffle: {} applications, but read has {}", shuffle.len(), read.len()));
        }
        let nodes = read[0].len();
        let calls = (0..read.len())
            .map(|i| aggregators_of(i, nodes, read[i], shuffle[i]))
            .collect::<Result<_, _>>()?;
        Ok(Scenario { mode, nodes, calls, options: options(&fields, seed)? })
    }
}

/// A row per application, in it a value per storage node.
fn matrix<'a>(value: &'a Value, path: &str) -> Result<Vec<&'a [Value]>, String> {
    let rows = list(value, path)?;
    let row = |(i, row): (usize, &'a Value)| {
        let row = list(row, &format!("{path}[{i}]"))?;
        if row.len() > MAX_AGGREGATORS / rows.len() {
            return Err(format!("{path}[{i}]: more than {MAX_AGGREGATORS} aggregators in all"));
        }
        Ok(row)
    };
    rows.iter().enumerate().map(row).collect()
}

/// The aggregators of one application. Where both costs are null it has none at that storage node.
fn aggregators_of(
    i: usize,
    nodes: usize,
    read: &[Value],
    shuffle: &[Value],
) -> Result<Vec<Aggregator>, String> {
    for (name, row) in [("read", read), ("shuffle", shuffle)] {
        if row.len() != nodes {
            return Err(format!("{name}[{i}]: {} storage nodes, but read[0] has {nodes}", row.len()));
        }
    }
    let mut aggregators = Vec::with_capacity(nodes);
    for (target, (read, shuffle)) in read.iter().zip(shuffle).enumerate() {
        if read.is_null() && shuffle.is_null() {
            continue;
        }
        let service_ns = nanoseconds(read, &format!("read[{i}][{target}]"))?;
        let shuffle_ns = nanoseconds(shuffle, &format!("shuffle[{i}][{target}]"))?;
        aggregators.push(Aggregator { target, service_ns, shuffle_ns });
    }
    if aggregators.is_empty() {
        return Err(format!("read[{i}]: no aggregator at any storage node"));
    }
    Ok(aggregators)
}

fn nanoseconds(value: &Value, path: &str) -> Result<u64, String> {
    Ok((in_seconds(value, path)? * 1e9).round() as u64)
}

fn options(fields: &Fields, seed: u64) -> Result<Options, String> {
    let mut options = Options { seed, effort: EFFORT, ..Options::default() };
    let threshold = |value: &Value, path: &str| number_in(value, path, 0.0..=f64::MAX);
    if let Some(threshold) = fields.read_if_given("threshold", threshold)? {
        options.threshold = threshold;
    }
    if let Some(window) = fields.read_if_given("window", count)? {
        options.window = usize::try_from(window).unwrap_or(usize::MAX);
    }
    Ok(options)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn to_json(scenario: &Scenario, outcomes: &[(Policy, Outcome)]) -> Value {
    let policies: Map<String, Value> = outcomes
        .iter()
        .map(|(policy, outcome)| {
            let finish: Vec<f64> = outcome.finish_ns.iter().copied().map(seconds).collect();
            let answer = json!({
                "finish": finish,
                "mean": outcome.mean_ns() / 1e9,
                "makespan": seconds(outcome.makespan_ns()),
                "order": outcome.order,
            });
            (policy.name().to_owned(), answer)
        })
        .collect();
    let mode = if scenario.mode == Mode::Read { "read" } else { "write" };
    json!({ "mode": mode, "policies": policies })
}

fn to_text(outcomes: &[(Policy, Outcome)]) -> String {
    let mut text = String::new();
    for (policy, outcome) in outcomes {
        let (mean, makespan) = (outcome.mean_ns() / 1e9, seconds(outcome.makespan_ns()));
        let _ = writeln!(text, "{}: mean {mean:.6} s, makespan {makespan:.6} s", policy.name());
        let finish: Vec<String> =
            outcome.finish_ns.iter().map(|&finish| format!("{:.6}", seconds(finish))).collect();
        let _ = writeln!(text, "  applications finish at  {}", finish.join(" "));
        for (node, order) in outcome.order.iter().enumerate() {
            let order: Vec<String> = order.iter().map(usize::to_string).collect();
            let _ = writeln!(text, "  storage node {node} serves  {}", order.join(" "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = include_str!("../../../../docs/scenarios/collective.schema.json");
    const FIGURE_3: &str = include_str!("../../tests/data/collective_figure3.json");

    fn error(scenario: &str) -> String {
        answer(scenario, Some(&["sio"]), 1).err().expect("an error")
    }

    fn valid(scenario: &str) -> bool {
        let schema = serde_json::from_str(SCHEMA).expect("the schema is JSON");
        let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
        validator.is_valid(&serde_json::from_str(scenario).expect("JSON"))
    }

    #[test]
    fn figure_3_of_the_paper() {
        assert!(valid(FIGURE_3));
        let answer = answer(FIGURE_3, Some(&["sio", "hio", "slack"]), 1).expect("an answer");
        assert_eq!(answer.text, include_str!("../../tests/data/collective_figure3.txt"));
        assert_eq!(answer.json["policies"]["slack"]["finish"], json!([12.0, 24.0]));
        assert_eq!(answer.json["policies"]["hio"]["order"][2], json!([1, 0]));
    }

    #[test]
    fn tenths_add_up() {
        let scenario = r#"{"mode":"read","read":[[0.1],[0.2]],"shuffle":[[0],[0.0]]}"#;
        assert_eq!(
            answer(scenario, Some(&["sio"]), 1).expect("an answer").json["policies"]["sio"]["finish"][1],
            0.3
        );
    }

    #[test]
    fn an_application_need_not_use_every_storage_node() {
        let scenario = r#"{"mode":"read","read":[[1,null],[1,1]],"shuffle":[[0,null],[0,9]]}"#;
        assert!(valid(scenario));
        let answer = answer(scenario, Some(&["sio"]), 1).expect("an answer");
        assert_eq!(answer.json["policies"]["sio"]["order"], json!([[0, 1], [1]]));
        assert_eq!(answer.json["policies"]["sio"]["finish"], json!([1.0, 10.0]));
    }

    #[test]
    fn only_nio_hears_of_the_seed() {
        let all = |seed| answer(FIGURE_3, None, seed).expect("an answer").json["policies"].clone();
        let nio: Vec<Value> = (0..20).map(|seed| all(seed)["nio"].clone()).collect();
        assert!(nio.iter().any(|answer| *answer != nio[0]));
        assert!((0..20).all(|seed| all(seed)["slack"] == all(0)["slack"]));
        assert_eq!(all(7), all(7));
    }

    #[test]
    fn what_the_schema_refuses_the_command_refuses_by_name() {
        for (scenario, field) in [
            (r#"{"read":[[1]],"shuffle":[[1]]}"#, "mode:"),
            (r#"{"mode":"append","read":[[1]],"shuffle":[[1]]}"#, "mode:"),
            (r#"{"mode":"read","shuffle":[[1]]}"#, "read:"),
            (r#"{"mode":"read","read":[[1]]}"#, "shuffle:"),
            (r#"{"mode":"read","read":[],"shuffle":[]}"#, "read:"),
            (r#"{"mode":"read","read":[[]],"shuffle":[[]]}"#, "read[0]:"),
            (r#"{"mode":"read","read":[[1]],"shuffle":[["1"]]}"#, "shuffle[0][0]:"),
            (r#"{"mode":"read","read":[[1],[-1]],"shuffle":[[1],[1]]}"#, "read[1][0]:"),
            (r#"{"mode":"read","read":[[1]],"shuffle":[[2e9]]}"#, "shuffle[0][0]:"),
            (r#"{"mode":"read","read":[1],"shuffle":[[1]]}"#, "read[0]:"),
            (r#"{"mode":"read","read":[[1]],"shuffle":[[1]],"window":0}"#, "window:"),
            (r#"{"mode":"read","read":[[1]],"shuffle":[[1]],"threshold":-1}"#, "threshold:"),
            (r#"{"mode":"read","read":[[1]],"shuffle":[[1]],"readd":[[1]]}"#, "readd:"),
            ("[]", "the scenario"),
        ] {
            assert!(!valid(scenario), "{scenario}");
            assert!(error(scenario).starts_with(field), "{scenario}: {}", error(scenario));
        }
    }

    #[test]
    fn what_a_schema_cannot_say_is_refused_by_name_too() {
        for (scenario, field) in [
            (r#"{"mode":"read","read":[[1,2],[1]],"shuffle":[[1,2],[1,2]]}"#, "read[1]:"),
            (r#"{"mode":"read","read":[[1,2]],"shuffle":[[1]]}"#, "shuffle[0]:"),
            (r#"{"mode":"read","read":[[1]],"shuffle":[[1],[1]]}"#, "shuffle:"),
            (r#"{"mode":"read","read":[[null]],"shuffle":[[1]]}"#, "read[0][0]:"),
            (r#"{"mode":"read","read":[[null]],"shuffle":[[null]]}"#, "read[0]:"),
            (r#"{"mode":"read","read":[[1]],"shuffle":[[NaN]]}"#, "shuffle[0][0]:"),
            (r#"{"mode":"read","read":[[1e999]],"shuffle":[[1]]}"#, "read[0][0]:"),
            ("", "not JSON"),
        ] {
            assert!(error(scenario).starts_with(field), "{scenario}: {}", error(scenario));
        }
        let thirty_years =
            json!({"mode": "read", "read": vec![[1e9]; 10], "shuffle": vec![[0]; 10]}).to_string();
        assert!(error(&thirty_years).starts_with("read[4][0]:"));
    }

    #[test]
    fn too_many_applications_are_refused_by_name() {
        let rows = vec![[1]; MAX_APPLICATIONS + 1];
        let scenario = json!({"mode": "read", "read": rows, "shuffle": rows}).to_string();
        assert!(!valid(&scenario));
        assert!(error(&scenario).starts_with("read:"));
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_known_ones() {
        let error = answer(FIGURE_3, Some(&["hoi"]), 1).err().expect("an error");
        assert!(error.starts_with("policy:") && error.contains("hio-listing"), "{error}");
    }
}
