//! Golden scenarios: `data/requests_*.txt` say what happens and what the scheduler answers.
//!
//! `NS add FILE OPERATION OFFSET BYTES`, `NS next`, `complete`; under a question, after `->`, the answer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use weir_engine::requests::select::Selector;
use weir_engine::requests::{Algorithm, Device, Next, Operation, Request, Scheduler, Settings};

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
}

struct Player {
    settings: Settings,
    scheduler: Option<Scheduler>,
    name: String,
    files: BTreeMap<String, u64>,
}

impl Player {
    fn scheduler(&mut self) -> &mut Scheduler {
        let pastel =
            Device { bandwidth_bytes_s: 1e8, read_ratio: 38.91, write_ratio: 21.29, cost_per_request_s: 0.0 };
        self.scheduler.get_or_insert_with(|| match Algorithm::named(&self.name) {
            Some(algorithm) => Scheduler::new(algorithm, self.settings),
            None => Scheduler::auto(Selector::of_the_paper(), pastel, self.settings),
        })
    }

    fn add(&mut self, now_ns: u64, words: &[&str]) {
        let next = self.files.len() as u64;
        let file = *self.files.entry(words[0].to_string()).or_insert(next);
        let operation = if words[1] == "write" { Operation::Write } else { Operation::Read };
        let request = Request { file, operation, offset: number(words[2]), bytes: number(words[3]) };
        self.scheduler().add(now_ns, request);
    }

    fn render(&self, next: &Next) -> String {
        match next {
            Next::Nothing => "-> nothing".into(),
            Next::WaitUntil(until_ns) => format!("-> wait until {until_ns}"),
            Next::Dispatch(served) => {
                let file = self.files.iter().find(|(_, number)| **number == served.file).unwrap().0;
                let ids: Vec<String> = served.ids().map(|id| id.to_string()).collect();
                let (operation, ids) = (served.operation.name(), ids.join(","));
                format!("-> dispatch {operation} {file} {}+{} of {ids}", served.offset, served.bytes)
            }
        }
    }
}

fn play(text: &str) -> String {
    let mut player = Player {
        settings: Settings::default(),
        scheduler: None,
        name: String::new(),
        files: BTreeMap::new(),
    };
    let mut told = String::new();
    for line in text.lines().filter(|line| !line.starts_with("->")) {
        let mut answer = None;
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["scheduler", name] => player.name = name.to_string(),
            ["patience", dispatches] => player.settings.patience_dispatches = number(dispatches),
            ["complete"] => player.scheduler().complete(),
            ["algorithm", expected] => assert_eq!(player.scheduler().algorithm().name(), *expected),
            [now, "add", request @ ..] => player.add(number(now), request),
            [now, "next"] => answer = Some(player.scheduler().next(number(now))),
            [now, "next-without-waiting"] => {
                answer = Some(player.scheduler().next_without_waiting(number(now)));
            }
            words => assert!(words.first().is_none_or(|word| word.starts_with('#')), "what is {line}?"),
        }
        told.push_str(line);
        told.push('\n');
        if let Some(answer) = answer {
            told.push_str(&player.render(&answer));
            told.push('\n');
        }
    }
    told
}

#[test]
fn scenarios_play_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut played = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("requests_") && name.ends_with(".txt") {
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(play(&text), text, "{name}");
            played += 1;
        }
    }
    assert_eq!(played, 9, "a scenario was not found");
}
