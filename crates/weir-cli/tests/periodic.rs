//! `weir simulate periodic`, as it is called.

mod common;

use common::{schema, weir};
use serde_json::{Value, json};

fn answer(scenario: &Value, more: &[&str]) -> Value {
    common::answer("periodic", scenario, more)
}

fn refusal(scenario: &str, more: &[&str]) -> String {
    common::refusal("periodic", scenario, more)
}

/// Two applications that fit beside each other: 30 s hold one instance of `x` and two of the other.
fn two() -> Value {
    json!({
        "bandwidth": 10,
        "applications": [
            {"name": "x", "nodes": 4, "cap": 6, "volume": 60, "compute": [20, 25, 15, 20], "mean": 20},
            {"nodes": 2, "cap": 6, "volume": 30, "compute": [10, 5, 12, 13, 9], "mean": 10},
        ],
    })
}

#[test]
fn the_timetable_and_how_each_policy_ran() {
    let policies = answer(&two(), &[]);
    let names: Vec<&String> = policies.as_object().unwrap().keys().collect();
    let all =
        ["apio", "apio-barrier", "maxsyseff", "mindilation", "minmax", "periodic", "roundrobin", "weir"];
    assert_eq!(names, all);
    let periodic = &policies["periodic"];
    assert_eq!(periodic["period"], json!(30.0));
    assert_eq!(periodic["dilation"], json!(1.0));
    assert_eq!(periodic["sys_efficiency"], json!(2.0 / 3.0));
    assert_eq!(periodic["instances"], json!([1, 2]));
    assert_eq!(
        periodic["schedule"][1],
        json!([
            {"instance": 0, "start": 10.0, "end": 15.0, "bandwidth": 6.0},
            {"instance": 1, "start": 25.0, "end": 30.0, "bandwidth": 6.0},
        ])
    );
    for name in all {
        let run = if name == "periodic" { &periodic["executed"] } else { &policies[name] };
        assert!(run["dilation"].as_f64().unwrap() >= 1.0, "{name}");
        for (index, volume) in [(0, 4.0 * 60.0), (1, 5.0 * 30.0)] {
            let windows = run["schedule"][index].as_array().unwrap();
            let moved = |w: &Value| {
                let [start, end, bandwidth] =
                    ["start", "end", "bandwidth"].map(|key| w[key].as_f64().unwrap());
                (end - start) * bandwidth
            };
            let moved: f64 = windows.iter().map(moved).sum();
            assert!((moved / volume - 1.0).abs() < 1e-6, "{name} moved {moved} of {volume}");
            assert_eq!(windows.last().unwrap()["end"], run["finish"][index], "{name}");
        }
    }
}

#[test]
fn a_given_period_is_the_period() {
    let mut scenario = two();
    scenario["period"] = json!(45);
    assert_eq!(answer(&scenario, &["--policy", "periodic"])["periodic"]["period"], json!(45.0));
}

#[test]
fn alone_there_is_no_dilation() {
    let scenario = json!({"bandwidth": 2, "applications": [{"volume": 4, "compute": [6, 6, 6]}]});
    for (name, answer) in answer(&scenario, &[]).as_object().unwrap() {
        assert!((answer["dilation"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{name}");
        assert!((answer["sys_efficiency"].as_f64().unwrap() - 0.75).abs() < 1e-9, "{name}");
    }
}

#[test]
fn people_are_answered_in_words() {
    let output = weir(&["simulate", "periodic", "-", "--policy", "periodic,apio,apio"], &two().to_string());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("timetable: period 30.000 s, SysEfficiency 0.66667, dilation 1.00000\n"),
        "{text}"
    );
    assert!(text.contains("x: 1 instances in a period"), "{text}");
    assert_eq!(text.matches("apio ").count(), 1, "{text}");
}

#[test]
fn what_is_wrong_is_named() {
    let one = |application: &str| format!("{{\"bandwidth\":1,\"applications\":[{application}]}}");
    for (scenario, field) in [
        ("{\"bandwidth\":1}".to_owned(), "applications: missing"),
        ("{\"applications\":[{\"volume\":1,\"mean\":1}]}".to_owned(), "bandwidth: missing"),
        (
            "{\"bandwidth\":-1,\"applications\":[]}".to_owned(),
            "bandwidth: must be a number above 0, such as 1 or 2.5e9, not -1",
        ),
        (one(""), "applications: empty"),
        (one("{\"mean\":1}"), "applications[0].volume: missing"),
        (one("{\"volume\":1}"), "applications[0].compute: missing"),
        (one("{\"volume\":1,\"compute\":[]}"), "applications[0].compute: empty"),
        (
            one("{\"volume\":1,\"compute\":[1,-2]}"),
            "applications[0].compute[1]: must be a number of seconds from 0 to 1e9, such as 12.5, not -2",
        ),
        (
            one("{\"volume\":1,\"mean\":1,\"nodes\":0.5}"),
            "applications[0].nodes: must be a whole number, 1 or more, not 0.5",
        ),
        (
            one("{\"volume\":1,\"mean\":1,\"node\":1}"),
            "applications[0].node: no such field; there are name, nodes",
        ),
        (one("{\"volume\":1,\"mean\":1}],\"period\":[1"), "period: must be a number above 0"),
        (
            one(
                "{\"volume\":1,\"mean\":1}],\"applications\":[{\"volume\":1e-5,\"mean\":0},{\"volume\":9e8,\"mean\":0}",
            ),
            "applications: one period would hold",
        ),
    ] {
        assert!(!schema_accepts(&scenario) || field.contains("would hold"), "{scenario}");
        let message = refusal(&scenario, &[]);
        assert!(message.contains(field), "{scenario}: {message}");
    }
    assert!(refusal(&two().to_string(), &["--policy", "fair"]).contains("there is no \"fair\""));
}

fn schema_accepts(scenario: &str) -> bool {
    serde_json::from_str(scenario).is_ok_and(|scenario| jsonschema::is_valid(&schema("periodic"), &scenario))
}

#[test]
fn the_schema_accepts_what_is_accepted() {
    assert!(schema_accepts(&two().to_string()));
    assert!(schema_accepts("{\"bandwidth\":1,\"applications\":[{\"volume\":1,\"mean\":1}],\"period\":9}"));
}
