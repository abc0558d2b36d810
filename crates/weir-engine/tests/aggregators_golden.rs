//! Golden scenarios of the aggregator policies: an event per line, what the scheduler answered under it.

use std::fmt::Write as _;
use std::path::Path;
use weir_engine::aggregators::{Aggregator, Mode, Options, Policy, Scheduler, Turn};

/// Replays the events of a scenario and writes it down again with the answers given now.
fn replay(scenario: &str) -> String {
    let mut out = String::new();
    let mut policy = Policy::Nio;
    let mut scheduler = Scheduler::new(policy, &Options::default(), 0);
    let mut applications: Vec<String> = Vec::new();
    for line in scenario.lines().filter(|line| !line.starts_with("  ")) {
        out += line;
        out.push('\n');
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] | ["#", ..] => {}
            ["policy", name] => policy = Policy::from_name(name).expect("a policy"),
            ["targets", count] => {
                scheduler = Scheduler::new(policy, &Options::default(), count.parse().expect("a number"));
            }
            [at, "target", target] => {
                let answer = match scheduler.next(time(at), target.parse().expect("a target")) {
                    Turn::Serve(waiting) => format!("serve {}", applications[waiting.application as usize]),
                    Turn::Wait { until_ns } => format!("wait until {until_ns}"),
                    Turn::Idle => "idle".into(),
                };
                let _ = writeln!(out, "  {answer}");
            }
            [at, name, verb @ ("reads" | "writes"), aggregators @ ..] => {
                let known = applications.iter().position(|known| known == name);
                let application = known.unwrap_or_else(|| {
                    applications.push((*name).to_owned());
                    applications.len() - 1
                });
                let mode = if *verb == "reads" { Mode::Read } else { Mode::Write };
                let aggregators: Vec<Aggregator> = aggregators.iter().map(|text| aggregator(text)).collect();
                let finish =
                    scheduler.join(time(at), application as u64, mode, &aggregators).expect("accepted");
                let _ = writeln!(out, "  under SIO it finishes at {finish}");
            }
            _ => panic!("not an event: {line}"),
        }
    }
    out
}

fn time(text: &str) -> u64 {
    text.strip_prefix('@').and_then(|number| number.parse().ok()).expect("@time")
}

/// `target:service+shuffle`
fn aggregator(text: &str) -> Aggregator {
    let numbers: Vec<u64> = text.split([':', '+']).map(|number| number.parse().expect("a number")).collect();
    Aggregator { target: numbers[0] as usize, service_ns: numbers[1], shuffle_ns: numbers[2] }
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let scenario = std::fs::read_to_string(&path).expect("the scenario is there");
    assert_eq!(replay(&scenario), scenario, "{name}");
}

#[test]
fn figure_3() {
    check("collective_figure3.txt");
}

#[test]
fn windows_hold_one_aggregator_per_application() {
    check("collective_hio_windows.txt");
}

#[test]
fn algorithm_1_as_told() {
    check("collective_hio_text.txt");
}

#[test]
fn algorithm_1_as_listed() {
    check("collective_hio_listing.txt");
}

#[test]
fn slack_takes_in_a_newcomer() {
    check("collective_slack.txt");
}

#[test]
fn sio_waits_for_a_write_that_is_still_shuffling() {
    check("collective_write.txt");
}

#[test]
fn slack_does_not_wait_where_it_need_not() {
    check("collective_write_slack.txt");
}
