//! `weir simulate requests` and `weir train`, as they are called.

mod common;

use common::{schema, weir};
use serde_json::{Value, json};

fn answer(scenario: &Value, more: &[&str]) -> Value {
    common::answer("requests", scenario, more)
}

fn refusal(scenario: &str, more: &[&str]) -> String {
    common::refusal("requests", scenario, more)
}

/// Two files read in turns, eight seconds per request in sequence, and ten times that out of it.
fn interleaved() -> Value {
    json!({
        "requests": [
            ["A", "read", 0, 8], ["B", "read", 0, 8], ["A", "read", 8, 8], ["B", "read", 8, 8]
        ],
        "bandwidth": 1,
        "seq_to_random": 10,
        "cost_per_request": 0.5,
    })
}

#[test]
fn order_and_makespan_per_policy() {
    let policies = answer(&interleaved(), &[]);
    let names: Vec<&String> = policies.as_object().unwrap().keys().collect();
    assert_eq!(names, ["aioli", "auto", "mlf", "sjf", "to", "to-agg"]);
    assert_eq!(policies["to"]["order"], json!([0, 1, 2, 3]));
    assert_eq!(policies["to"]["makespan"], json!(4.0 * 80.5));
    for aggregating in ["to-agg", "sjf", "mlf", "aioli"] {
        assert_eq!(policies[aggregating]["order"], json!([0, 2, 1, 3]), "{aggregating}");
        assert_eq!(policies[aggregating]["makespan"], json!(2.0 * 88.5), "{aggregating}");
        assert_eq!(policies[aggregating]["dispatches"][1]["requests"], json!([1, 3]), "{aggregating}");
    }
    assert_eq!(policies["auto"]["algorithm"], json!("mlf"));
}

#[test]
fn arrivals_ratios_and_the_choice_of_policies() {
    let scenario = json!({
        "requests": [["A", "write", 0, 100, 7], ["A", "read", 100, 100], ["A", "write", 100, 100, 2.5]],
        "bandwidth": 100,
        "seq_to_random": { "read": 2, "write": 3 },
        "cost_per_request": 0,
        "in_flight": 2,
    });
    let policies = answer(&scenario, &["--policy", "to, sjf"]);
    assert_eq!(policies.as_object().unwrap().len(), 2);
    assert_eq!(policies["to"]["order"], json!([1, 2, 0]));
    // 2 s from 0; 3 s from 2.5; 3 s from 7: going back to 0 is a jump.
    assert_eq!(policies["to"]["makespan"], json!(10.0));
    assert_eq!(policies["to"]["dispatches"][1]["finish"], json!(5.5));
}

#[test]
fn the_schema_accepts_what_the_command_accepts() {
    let schema = schema("requests");
    let valid = jsonschema::validator_for(&schema).unwrap();
    let examples = schema["examples"].as_array().unwrap();
    assert!(!examples.is_empty());
    for scenario in examples.iter().chain([&interleaved()]) {
        assert!(valid.is_valid(scenario));
        answer(scenario, &[]);
    }
}

#[test]
fn bad_scenarios_name_the_field_and_the_schema_refuses_them_too() {
    let valid = jsonschema::validator_for(&schema("requests")).unwrap();
    let request = |place: usize, value: Value| {
        let mut scenario = interleaved();
        scenario["requests"][1] = json!(["B", "read", 0, 8, 0]);
        scenario["requests"][1][place] = value;
        scenario
    };
    let field = |name: &str, value: Value| {
        let mut scenario = interleaved();
        scenario[name] = value;
        scenario
    };
    for (scenario, named) in [
        (json!([]), "the scenario: must be an object"),
        (json!({}), "requests: missing"),
        (field("requests", json!([])), "requests: "),
        (field("requests", json!([["A", "read", 0]])), "requests[0]: "),
        (request(0, json!(3)), "requests[1][0] (file): "),
        (request(1, json!("append")), "requests[1][1] (operation): "),
        (request(2, json!(-1)), "requests[1][2] (offset): "),
        (request(3, json!(0)), "requests[1][3] (bytes): "),
        (request(3, json!(0.5)), "requests[1][3] (bytes): "),
        (request(4, json!(-0.1)), "requests[1][4] (arrival): "),
        (request(4, json!("now")), "requests[1][4] (arrival): "),
        (field("bandwidth", json!(0)), "bandwidth: "),
        (field("bandwidth", json!(null)), "bandwidth: "),
        (field("seq_to_random", json!(-2)), "seq_to_random: "),
        (field("seq_to_random", json!({ "read": 1 })), "seq_to_random.write: "),
        (field("seq_to_random", json!({ "read": 1, "write": 1, "seek": 1 })), "seq_to_random.seek: "),
        (field("cost_per_request", json!(-1)), "cost_per_request: "),
        (field("in_flight", json!(0)), "in_flight: "),
        (field("quantum", json!(0)), "quantum: "),
        (field("waiting_time", json!(-1)), "waiting_time: "),
        (field("stripe_size", json!("big")), "stripe_size: "),
        (field("speed", json!(1)), "speed: no such field"),
    ] {
        let message = refusal(&scenario.to_string(), &[]);
        assert!(message.contains(named), "{message}");
        assert!(!valid.is_valid(&scenario), "the schema accepts {scenario}");
    }
}

#[test]
fn other_mistakes_are_named_too() {
    let text = interleaved().to_string();
    assert!(
        refusal(&text.replace("\"bandwidth\":1", "\"bandwidth\":NaN"), &[]).contains("bandwidth: not JSON")
    );
    assert!(
        refusal(&text.replace("\"bandwidth\":1", "\"bandwidth\":1e-300"), &[]).contains("bandwidth: too low")
    );
    let end = text.replace("[\"B\",\"read\",8,8]", "[\"B\",\"read\",18446744073709551615,8]");
    assert!(refusal(&end, &[]).contains("requests[3][3] (bytes): "));
    let message = refusal(&text, &["--policy", "fifo"]);
    assert!(
        message.contains("policy: there is no \"fifo\"; there are to, to-agg, sjf, mlf, aioli, auto"),
        "{message}"
    );
    let many = format!("{{\"requests\":[{}]}}", vec!["[\"A\",\"read\",0,1]"; 100_001].join(","));
    assert!(refusal(&many, &[]).contains("requests: more than 100000"));
    assert!(
        refusal(&text, &["--train", "/nonexistent.csv"])
            .contains("cannot read measurements /nonexistent.csv")
    );
}

#[test]
fn auto_follows_measurements_of_ones_own() {
    let path = std::env::temp_dir().join(format!("weir-measurements-{}.csv", std::process::id()));
    let mut text = String::from("operation,files,spatiality,request_size,seq_to_random,to,sjf\n");
    for files in 1..10 {
        text +=
            &format!("read,{files},contiguous,small,10,1.5,2.5\nwrite,{files},contiguous,small,10,2.5,1.5\n");
    }
    std::fs::write(&path, &text).unwrap();
    let name = path.to_str().unwrap();
    assert_eq!(
        answer(&interleaved(), &["--train", name, "--policy", "auto"])["auto"]["algorithm"],
        json!("to")
    );

    let trained = weir(&["train", name, "--json"], "");
    let trained: Value = serde_json::from_slice(&trained.stdout).unwrap();
    assert_eq!(trained["situations"], json!(18));
    assert_eq!((&trained["correct"], &trained["correct_unseen"]), (&json!(18), &json!(18)));
    assert_eq!(trained["tree"], json!("operation = read: to (9)\noperation = write: sjf (9)\n"));

    std::fs::write(&path, text.replace("write,7,", "write,some,")).unwrap();
    let refused = weir(&["train", name], "");
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(
        message.contains("line 15, column files: expected a whole number above 0, found \"some\""),
        "{message}"
    );
    std::fs::remove_file(path).unwrap();
}
