//! Golden scenarios: an event per line, what the engine answered under it.
//!
//! `WEIR_BLESS=1 cargo test -p weir-engine --test sharing_golden` writes the answers anew.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use weir_engine::engine::{Action, Engine, Event, JobId, JobInfo};
use weir_engine::sharing::PolicyKind;

fn nanoseconds(text: &str) -> u64 {
    (text.parse::<f64>().expect("a time in seconds") * 1e9).round() as u64
}

#[derive(Default)]
struct Names {
    ids: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    fn id(&mut self, name: &str) -> JobId {
        let next = self.names.len() as u32;
        let id = *self.ids.entry(name.to_owned()).or_insert(next);
        if id == next {
            self.names.push(name.to_owned());
        }
        JobId(id)
    }

    fn describe(&self, action: &Action) -> String {
        let name = |job: &JobId| &self.names[job.0 as usize];
        let share =
            |share: &f64| format!("{share:.4}").trim_end_matches('0').trim_end_matches('.').to_owned();
        match action {
            Action::Grant { job, share: s } => format!("grant {} {}", name(job), share(s)),
            Action::Share { job, share: s } => format!("share {} {}", name(job), share(s)),
            Action::ShareAll { share: s } => format!("share everyone {}", share(s)),
            Action::Hold { job } => format!("hold {}", name(job)),
            Action::Timer { at_ns } => format!("timer {}", *at_ns as f64 / 1e9),
        }
    }
}

fn info(settings: &[&str]) -> JobInfo {
    let mut info = JobInfo::default();
    for setting in settings {
        match setting.split_once('=') {
            Some(("w_iter", value)) => info.w_iter_ns = Some(nanoseconds(value)),
            Some(("cap", value)) => info.cap = Some(value.parse().expect("a part of one")),
            Some(("nodes", value)) => info.nodes = value.parse().expect("a number of nodes"),
            _ => panic!("setting {setting}"),
        }
    }
    info
}

fn event(words: &[&str], names: &mut Names) -> Event {
    match *words {
        ["join", name, ref settings @ ..] => Event::JobJoined { job: names.id(name), info: info(settings) },
        ["begin", name] => Event::PhaseBegan { job: names.id(name), bytes: None },
        ["begin", name, bytes] => Event::PhaseBegan { job: names.id(name), bytes: bytes.parse().ok() },
        ["move", name, bytes] => {
            Event::BytesMoved { job: names.id(name), bytes: bytes.parse().expect("bytes") }
        }
        ["end", name] => Event::PhaseEnded { job: names.id(name) },
        ["leave", name] => Event::JobLeft { job: names.id(name) },
        ["time"] => Event::TimePassed,
        _ => panic!("event {words:?}"),
    }
}

/// The scenario with its answers replaced by those of the engine.
fn answered(scenario: &str) -> String {
    let (mut names, mut actions, mut engine) = (Names::default(), Vec::new(), None);
    let mut out = String::new();
    for line in scenario.lines().filter(|line| !line.starts_with(' ')) {
        writeln!(out, "{line}").expect("a string can be written to");
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        match words[..] {
            [] => {}
            ["policy", name] => {
                engine = Some(Engine::new(name.parse::<PolicyKind>().expect("a policy").build()))
            }
            [at, ref rest @ ..] => {
                let engine: &mut Engine = engine.as_mut().expect("the policy comes first");
                engine.step(nanoseconds(at), event(rest, &mut names), &mut actions);
                for action in &actions {
                    writeln!(out, "    {}", names.describe(action)).expect("a string can be written to");
                }
            }
        }
    }
    out
}

#[test]
fn golden_scenarios() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut seen = 0;
    for entry in std::fs::read_dir(&data).expect("tests/data is there") {
        let path = entry.expect("a directory entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with("sharing_") {
            continue;
        }
        seen += 1;
        let scenario = std::fs::read_to_string(&path).expect("a scenario");
        let answered = answered(&scenario);
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(&path, answered).expect("tests/data can be written");
        } else {
            assert_eq!(answered, scenario, "{name}");
        }
    }
    assert!(seen >= 8, "only {seen} scenarios");
}
