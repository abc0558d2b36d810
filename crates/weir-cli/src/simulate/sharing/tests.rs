use super::*;

fn run(scenario: &str, policies: &str) -> Value {
    let request = Request { scenario, policies: Some(policies.split(',').collect()), seed: 1, train: None };
    simulate(&request).map(|answer| answer.json).unwrap_or_else(|e| panic!("{e}"))
}

fn error(scenario: &str) -> String {
    let request = Request { scenario, policies: Some(vec!["fair"]), seed: 1, train: None };
    simulate(&request).err().unwrap_or_else(|| panic!("accepted: {scenario}"))
}

fn finish(answer: &Value, policy: &str, job: usize) -> f64 {
    answer["policies"][policy]["jobs"][job]["finish"].as_f64().unwrap_or(f64::NAN)
}

/// Two jobs of one set and one of another, all asking at second 4.
const THREE: &str = r#"{"jobs":[
    {"name":"a","w_iter":10,"phases":[["compute",4],["io",10]]},
    {"name":"b","w_iter":10,"phases":[["compute",4],["io",10]]},
    {"name":"c","w_iter":100,"phases":[["compute",4],["io",10]]}]}"#;

#[test]
fn closed_forms() {
    let answer = run(THREE, "exclusive,fair,set10,roundrobin");
    for policy in ["exclusive", "roundrobin"] {
        assert_eq!([0, 1, 2].map(|job| finish(&answer, policy, job)), [14.0, 24.0, 34.0]);
    }
    assert_eq!([0, 1, 2].map(|job| finish(&answer, "fair", job)), [34.0, 34.0, 34.0]);
    // Set 1 has 10/11 of the bandwidth (eq. 1 and 5) and takes its two jobs in turn: 11 s each.
    // Set 2 moved 2 s worth by then, and has the storage alone for the other 8.
    let set10 = [0, 1, 2].map(|job| finish(&answer, "set10", job));
    assert!(set10.iter().zip([15.0, 26.0, 34.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{set10:?}");
    let fair = &answer["policies"]["fair"];
    assert!((fair["utilization"].as_f64().unwrap() - 12.0 / (3.0 * 34.0)).abs() < 1e-9);
    assert!((fair["stretch"].as_f64().unwrap() - 34.0 / 14.0).abs() < 1e-9);
    assert!((fair["dilation"].as_f64().unwrap() - 34.0 / 14.0).abs() < 1e-9);
    assert!((fair["io_slowdown"].as_f64().unwrap() - 3.0).abs() < 1e-9);
}

#[test]
fn the_window_cuts_what_is_counted_but_not_the_run() {
    let scenario = r#"{"bandwidth":1,"jobs":[{"compute":5,"io":5,"iterations":100}],"window":[7,40]}"#;
    let answer = run(scenario, "weir");
    let job = &answer["policies"]["weir"]["jobs"][0];
    assert_eq!((job["finish"].as_f64(), job["name"].as_str()), (Some(1000.0), Some("0")));
    assert_eq!((job["compute_done"].as_f64(), job["io_done"].as_f64()), (Some(15.0), Some(18.0)));
}

#[test]
fn bytes_and_caps() {
    let scenario = r#"{"bandwidth":100,"jobs":[
        {"cap":50,"phases":[["bytes",500]]}, {"cap":50,"phases":[["io",10]]}, {"phases":[["bytes",500]]}]}"#;
    let answer = run(scenario, "roundrobin,exclusive");
    // Two jobs at 50 fill the storage; the third follows.
    assert_eq!([0, 1, 2].map(|job| finish(&answer, "roundrobin", job)), [10.0, 10.0, 15.0]);
    assert_eq!([0, 1, 2].map(|job| finish(&answer, "exclusive", job)), [10.0, 20.0, 25.0]);
}

#[test]
fn errors_name_the_field() {
    let job = |fields: &str| format!(r#"{{"jobs":[{{"compute":1,"io":1,"iterations":1}},{{{fields}}}]}}"#);
    for (scenario, names) in [
        (r#"{"jobs":[]}"#.to_owned(), "jobs"),
        (r#"{}"#.to_owned(), "jobs"),
        (r#"{"jobs":7}"#.to_owned(), "jobs"),
        (job(r#""compute":-1,"io":1,"iterations":1"#), "jobs[1].compute"),
        (job(r#""compute":NaN,"io":1,"iterations":1"#), "jobs[1].compute"),
        (job(r#""compute":1e999,"io":1,"iterations":1"#), "jobs[1].compute"),
        (job(r#""compute":"x","io":1,"iterations":1"#), "jobs[1].compute"),
        (job(r#""io":1,"iterations":1"#), "jobs[1].compute"),
        (job(r#""compute":1,"iterations":1"#), "jobs[1].io"),
        (job(r#""compute":1,"io":1"#), "jobs[1].iterations"),
        (job(r#""compute":1,"io":1,"iterations":1.5"#), "jobs[1].iterations"),
        (job(r#""compute":1,"io":1,"iterations":100000000"#), "jobs[1].iterations"),
        (job(r#""compute":1,"io":1,"iterations":1,"w_iter":0"#), "jobs[1].w_iter"),
        (job(r#""compute":1,"io":1,"bytes":1,"iterations":1"#), "jobs[1].bytes"),
        (job(r#""compute":1,"io":1,"iterations":1,"nodes":0"#), "jobs[1].nodes"),
        (job(r#""compute":1,"io":1,"iterations":1,"cap":0"#), "jobs[1].cap"),
        (job(r#""compute":1,"io":1,"iterations":1,"speed":0"#), "jobs[1].speed"),
        (job(r#""compute":1,"io":1,"iterations":1,"name":7"#), "jobs[1].name"),
        (job(r#""phases":7"#), "jobs[1].phases"),
        (job(r#""phases":[]"#), "jobs[1].phases"),
        (job(r#""phases":[["io",1,2]]"#), "jobs[1].phases[0]"),
        (r#"[1]"#.to_owned(), "the scenario"),
        (job(r#""phases":[["compute",1],["io",-2]]"#), "jobs[1].phases[1]"),
        (job(r#""phases":[["wait",1]]"#), "jobs[1].phases[0]"),
        (job(r#""phases":[["io",1]],"io":1"#), "jobs[1].io"),
        (r#"{"jobs":[{"phases":[["io",1]]}],"window":[5,5]}"#.to_owned(), "window"),
        (r#"{"jobs":[{"phases":[["io",1]]}],"window":[-5,5]}"#.to_owned(), "window[0]"),
        (r#"{"jobs":[{"phases":[["io",1]]}],"bandwidth":0}"#.to_owned(), "bandwidth"),
        (r#"{"jobs":[{"phases":[["io",1]]}],"noise":2}"#.to_owned(), "noise"),
    ] {
        let message = error(&scenario);
        assert!(message.starts_with(&format!("{names}:")), "{scenario}: {message}");
    }
}

#[test]
fn an_unknown_policy_is_answered_with_the_valid_ones() {
    let request = Request { scenario: THREE, policies: Some(vec!["set11"]), seed: 1, train: None };
    let message = simulate(&request).err().unwrap_or_default();
    assert!(message.contains("set11") && message.contains("set10") && message.contains("weir"), "{message}");
}

#[test]
fn too_many_jobs_are_refused_before_they_are_all_read() {
    let jobs = vec![r#"{"phases":[]}"#; 100_001].join(",");
    assert!(error(&format!(r#"{{"jobs":[{jobs},"#)).contains("jobs: more than 100000"));
}

#[test]
fn a_window_in_which_a_job_does_nothing_gives_null() {
    let scenario = r#"{"jobs":[{"release":50,"phases":[["compute",1]]}],"window":[0,10]}"#;
    assert!(run(scenario, "fair")["policies"]["fair"]["stretch"].is_null());
}

#[test]
fn the_schema_accepts_what_the_command_accepts() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../../docs/scenarios/sharing.schema.json"))
            .expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let documented = r#"{"bandwidth":1, "jobs":[{"name":"a","w_iter":10,"phases":[["compute",4],["io",10]]},
        {"name":"b","w_iter":10,"compute":5,"io":5,"iterations":100}], "window":[0,40]}"#;
    for good in [THREE, documented] {
        assert!(validator.is_valid(&serde_json::from_str(good).expect("JSON")));
    }
    for bad in [r#"{"jobs":[]}"#, r#"{"jobs":[{"compute":-1,"io":1,"iterations":1}]}"#, r#"{"jobs":[{}]}"#] {
        assert!(!validator.is_valid(&serde_json::from_str(bad).expect("JSON")));
        assert!(!error(bad).is_empty());
    }
}

fn live(scenario: &str, policies: &str) -> Result<Value, String> {
    let request = Request { scenario, policies: Some(policies.split(',').collect()), seed: 1, train: None };
    super::simulate_live(&request).map(|answer| answer.json)
}

/// Two jobs that meet: coordinated or not, everything is computed and moved, and the worst off is better off with `weir`.
#[test]
fn jobs_run_under_coordination_as_it_is() {
    let scenario = r#"{"bandwidth": 60e6, "jobs": [
        {"name": "often", "w_iter": 2, "compute": 1.6, "bytes": 24e6, "iterations": 20, "request": 2097152},
        {"name": "seldom", "w_iter": 10, "compute": 8, "bytes": 240e6, "iterations": 4, "request": 8388608}]}"#;
    let answer = live(scenario, "none,weir").unwrap();
    let of = |policy: &str, figure: &str| answer["policies"][policy][figure].as_f64().unwrap();
    for policy in ["none", "weir"] {
        let jobs = answer["policies"][policy]["jobs"].as_array().unwrap();
        let done: Vec<f64> = jobs.iter().map(|job| job["io_done"].as_f64().unwrap()).collect();
        assert!((done[0] - 8.0).abs() < 0.1 && (done[1] - 16.0).abs() < 0.1, "{policy}: {done:?}");
    }
    assert!(of("weir", "dilation") <= of("none", "dilation"), "{answer}");
}

#[test]
fn what_a_live_simulation_needs_is_named() {
    let refused = |scenario: &str, policies: &str| live(scenario, policies).unwrap_err();
    let jobs = r#""jobs": [{"compute": 1, "io": 1, "iterations": 2}]"#;
    assert!(refused(&format!("{{{jobs}}}"), "weir").starts_with("bandwidth: "));
    assert!(refused(&format!(r#"{{"bandwidth": 1e9, {jobs}}}"#), "wier").contains("wier"));
    let many = r#"{"bandwidth": 1e9, "jobs": [{"compute": 1, "io": 1, "iterations": 2, "ranks": 2000}]}"#;
    assert!(refused(many, "weir").contains("jobs[0].ranks"), "{}", refused(many, "weir"));
    let tiny = r#"{"bandwidth": 1e9, "jobs": [{"compute": 1, "io": 100, "iterations": 2, "request": 1}]}"#;
    assert!(refused(tiny, "weir").contains("requests in all"));
}
