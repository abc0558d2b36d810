//! Places for files and turns for readers, over real sockets.

mod common;

use common::{Directory, Job, Running, identity, serve, settings};
use std::time::Duration;
use weir_coord::Waker;
use weir_coord::client::{Client, Word};
use weir_coord::query::query_status;
use weir_coord::server::Settings;
use weir_coord::storage::Storage;
use weir_coord::wire::{FileInfo, MAX_LIST, Part};
use weir_engine::sharing::PolicyKind;

fn scratch() -> Storage {
    Storage { targets: 4, bandwidth: vec![1e9, 1.9e9], compute_nodes: 16, ..Storage::new("/scratch") }
}

fn coordinator(directory: &Directory) -> Running {
    let settings = Settings { storages: vec![scratch()], ..settings(PolicyKind::Fair) };
    serve(&directory.socket(), settings)
}

fn file(path: &str) -> FileInfo {
    FileInfo { path: path.into(), ranks: 8, nodes: 2, ..FileInfo::default() }
}

fn part(target: u32) -> Part {
    Part { target, bytes: 1 << 20, shuffle_ns: 1_000 }
}

/// Aggregators, stripes and targets.
fn allocated(job: &mut Job, wanted: u64) -> (u32, u32, Vec<u32>) {
    let answer = |word: &Word| matches!(word, Word::Allocated { request, .. } if *request == wanted);
    match job.until("an allocation", answer) {
        Word::Allocated { aggregators, stripes, targets, .. } => (aggregators, stripes, targets),
        _ => unreachable!("only allocations are let through"),
    }
}

fn turn(job: &mut Job, call: u64, aggregator: u32) {
    job.until("a turn", |word| *word == Word::Turn { call, aggregator });
}

#[test]
fn files_get_places_and_the_status_shows_them() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut first = Job::join("first", &server.address);
    let mut second = Job::join("second", &server.address);
    first.tell(|client| client.ask(7, file("/scratch/a")));
    assert_eq!(allocated(&mut first, 7), (2, 2, vec![0, 1]));
    second.tell(|client| client.ask(1, file("/scratch/b")));
    assert_eq!(allocated(&mut second, 1), (2, 2, vec![2, 3]));
    second.tell(|client| client.ask(2, file("/elsewhere")));
    assert_eq!(allocated(&mut second, 2), (0, 0, vec![]), "no opinion");
    let status = query_status(&server.address, None, Duration::from_secs(5)).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let of_first = &status["jobs"][0]["allocations"][0];
    assert_eq!(of_first["storage"], "/scratch", "{status:#}");
    assert_eq!(of_first["targets"], serde_json::json!([0, 1]));
    assert_eq!(of_first["files"], 1);
    drop(first);
    let mut third = Job::join("third", &server.address);
    third.tell(|client| client.ask(1, file("/scratch/c")));
    assert_eq!(allocated(&mut third, 1).2, [0, 1], "the first is gone");
}

#[test]
fn a_new_coordinator_hears_which_places_are_taken() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut job = Job::join("job", &server.address);
    job.tell(|client| client.ask(1, file("/scratch/a")));
    assert_eq!(allocated(&mut job, 1).2, [0, 1]);
    drop(server);
    job.until("the end", |word| matches!(word, Word::Lost { .. }));
    let server = coordinator(&directory);
    job.client.connect(&server.address).unwrap();
    job.until("welcome", |word| matches!(word, Word::Joined { .. }));
    job.tell(|client| client.ask(2, file("/scratch/b")));
    assert_eq!(allocated(&mut job, 2).2, [0, 1], "with the file that is open");
    let mut other = Job::join("other", &server.address);
    other.tell(|client| client.ask(1, file("/scratch/c")));
    assert_eq!(allocated(&mut other, 1).2, [2, 3]);
}

#[test]
fn readers_of_one_target_take_turns() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut first = Job::join("first", &server.address);
    let mut second = Job::join("second", &server.address);
    first.tell(|client| client.collect(1, "/scratch/a", vec![part(0), part(1)]));
    turn(&mut first, 1, 0);
    turn(&mut first, 1, 1);
    second.tell(|client| client.collect(1, "/scratch/b", vec![part(0), part(3)]));
    turn(&mut second, 1, 1);
    second.never("target 0 is taken", |word| matches!(word, Word::Turn { aggregator: 0, .. }));
    first.tell(|client| client.served(1, 0));
    turn(&mut second, 1, 0);
    // A phase that ends takes its reads with it.
    first.tell(|client| client.begin(1, None));
    first.granted(1);
    first.tell(|client| client.collect(2, "/scratch/a", vec![part(3)]));
    second.tell(|client| client.collect(2, "/scratch/b", vec![part(3)]));
    second.tell(|client| client.served(1, 1));
    turn(&mut first, 2, 0);
    first.tell(|client| client.end(1, 1, 0));
    turn(&mut second, 2, 0);
}

/// Two nodes of a job: either may tell of the call, and both hear of the turns.
#[test]
fn all_nodes_of_a_job_hear_its_turns() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut near = Job::join("wide", &server.address);
    let mut far = Job::join("wide", &server.address);
    for node in [&mut near, &mut far] {
        node.tell(|client| client.collect(5, "/scratch/a", vec![part(0), part(1)]));
    }
    for node in [&mut near, &mut far] {
        turn(node, 5, 0);
        turn(node, 5, 1);
    }
    near.never("each turn comes once", |word| matches!(word, Word::Turn { .. }));
}

/// A reader that is killed hands its target on at once; one that only falls silent, after a while.
#[test]
fn who_dies_or_falls_silent_is_not_waited_for() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut first = Job::join("first", &server.address);
    let mut second = Job::join("second", &server.address);
    let mut third = Job::join("third", &server.address);
    first.tell(|client| client.collect(1, "/scratch/a", vec![part(0)]));
    turn(&mut first, 1, 0);
    second.tell(|client| client.collect(1, "/scratch/b", vec![part(0)]));
    second.never("taken", |word| matches!(word, Word::Turn { .. }));
    third.tell(|client| client.collect(1, "/scratch/c", vec![part(0)]));
    third.never("taken", |word| matches!(word, Word::Turn { .. }));
    drop(first);
    turn(&mut second, 1, 0);
    turn(&mut third, 1, 0);
}

#[test]
fn nobody_waits_for_an_answer_that_cannot_come() {
    let mut lonely = Job {
        client: Client::new(identity("lonely"), None, Waker::new().unwrap()).unwrap(),
        heard: Vec::new(),
    };
    lonely.tell(|client| client.ask(1, file("/scratch/a")));
    lonely.tell(|client| client.collect(1, "/scratch/a", vec![part(0), part(1)]));
    lonely.tell(|client| client.collect(2, "/scratch/a", vec![]));
    lonely.step(Duration::ZERO);
    let turn = |aggregator| Word::Turn { call: 1, aggregator };
    let none = Word::Allocated { request: 1, aggregators: 0, stripes: 0, targets: vec![] };
    assert_eq!(lonely.heard, [none.clone(), turn(0), turn(1)]);

    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut holder = Job::join("holder", &server.address);
    holder.tell(|client| client.collect(1, "/scratch/a", vec![part(0)]));
    turn_of(&mut holder);
    let mut waiter = Job::join("waiter", &server.address);
    waiter.tell(|client| client.collect(1, "/scratch/a", vec![part(0)]));
    waiter.never("taken", |word| matches!(word, Word::Turn { .. }));
    drop(server);
    waiter.until("to be let go", |word| *word == turn(0));
    let endless = vec![part(0); MAX_LIST + 1];
    waiter.tell(|client| client.collect(2, "/scratch/a", endless));
    let last = MAX_LIST as u32;
    waiter.until("the last turn", |word| *word == Word::Turn { call: 2, aggregator: last });
}

fn turn_of(job: &mut Job) {
    job.until("a turn", |word| matches!(word, Word::Turn { .. }));
}
