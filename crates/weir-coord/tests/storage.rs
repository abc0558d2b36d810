//! Places for files and turns for readers, over real sockets.

mod common;

use common::{Directory, Job, Running, identity, serve, settings};
use std::time::Duration;
use weir_coord::member::Way;
use weir_coord::query::query_status;
use weir_coord::server::Settings;
use weir_coord::session::{Input, Word};
use weir_coord::storage::Storage;
use weir_coord::wire::{FileInfo, Reader};
use weir_engine::aggregators::Policy;
use weir_engine::sharing::PolicyKind;

fn scratch() -> Storage {
    Storage { targets: 4, bandwidth: vec![1e9, 1.9e9], compute_nodes: 16, ..Storage::new("/scratch") }
}

fn coordinator(directory: &Directory) -> Running {
    let settings = Settings { storages: vec![scratch()], order: Policy::Hio, ..settings(PolicyKind::Fair) };
    serve(&directory.socket(), settings)
}

fn file(path: &str) -> FileInfo {
    FileInfo { path: path.into(), ranks: 8, nodes: 2, ..FileInfo::default() }
}

/// Aggregators, stripes and targets.
fn allocated(job: &mut Job, wanted: u64) -> (u32, u32, Vec<u32>) {
    let answer = |word: &Word| matches!(word, Word::Allocated { request, .. } if *request == wanted);
    match job.until("an allocation", answer) {
        Word::Allocated { aggregators, stripes, targets, .. } => (aggregators, stripes, targets),
        _ => unreachable!("only allocations are let through"),
    }
}

fn read(job: &mut Job, number: u32, call: u64, target: u64) {
    let reader = Reader { number, file: 7, call, target, service_ns: 1_000_000, shuffle_ns: 1_000 };
    job.tell(Input::Read(reader));
}

fn turn(job: &mut Job, number: u32, call: u64) {
    job.until("a turn", |word| *word == Word::Turn { number, call });
}

#[test]
fn files_get_places_and_the_status_shows_them() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut first = Job::join("first", &server.address);
    let mut second = Job::join("second", &server.address);
    first.tell(Input::Ask { request: 7, file: file("/scratch/a") });
    assert_eq!(allocated(&mut first, 7), (2, 2, vec![0, 1]));
    second.tell(Input::Ask { request: 1, file: file("/scratch/b") });
    assert_eq!(allocated(&mut second, 1), (2, 2, vec![2, 3]));
    second.tell(Input::Ask { request: 2, file: file("/elsewhere") });
    assert_eq!(allocated(&mut second, 2), (0, 0, vec![]), "no opinion");
    let status = query_status(&server.address, None, Duration::from_secs(5)).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let of_first = &status["jobs"][0]["allocations"][0];
    assert_eq!(of_first["storage"], "/scratch", "{status:#}");
    assert_eq!(of_first["targets"], serde_json::json!([0, 1]));
    assert_eq!(of_first["files"], 1);
    drop(first);
    let mut third = Job::join("third", &server.address);
    third.tell(Input::Ask { request: 1, file: file("/scratch/c") });
    assert_eq!(allocated(&mut third, 1).2, [0, 1], "the first is gone");
}

#[test]
fn a_new_coordinator_hears_which_places_are_taken() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut job = Job::join("job", &server.address);
    job.tell(Input::Ask { request: 1, file: file("/scratch/a") });
    assert_eq!(allocated(&mut job, 1).2, [0, 1]);
    drop(server);
    job.until("the end", |word| matches!(word, Word::Lost { .. }));
    let server = coordinator(&directory);
    job.until("welcome", |word| matches!(word, Word::Joined { .. }));
    job.tell(Input::Ask { request: 2, file: file("/scratch/b") });
    assert_eq!(allocated(&mut job, 2).2, [0, 1], "with the file that is open");
    let mut other = Job::join("other", &server.address);
    other.tell(Input::Ask { request: 1, file: file("/scratch/c") });
    assert_eq!(allocated(&mut other, 1).2, [2, 3]);
}

#[test]
fn readers_of_one_target_take_turns() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut first = Job::join("first", &server.address);
    let mut second = Job::join("second", &server.address);
    read(&mut first, 0, 1, 70);
    turn(&mut first, 0, 1);
    read(&mut first, 1, 1, 71);
    turn(&mut first, 1, 1);
    read(&mut second, 0, 1, 70);
    read(&mut second, 1, 1, 73);
    turn(&mut second, 1, 1);
    second.never("target 70 is taken", |word| matches!(word, Word::Turn { number: 0, .. }));
    let status = query_status(&server.address, None, Duration::from_secs(5)).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["order"], "hio");
    assert_eq!(status["targets"][0]["reading"], serde_json::json!(["first"]), "{status:#}");
    assert_eq!(status["targets"][0]["waiting"], serde_json::json!(["second"]), "{status:#}");
    first.tell(Input::Served { number: 0, call: 1 });
    turn(&mut second, 0, 1);
    // A phase that ends takes its readers with it.
    first.begin();
    first.granted();
    second.tell(Input::Served { number: 1, call: 1 });
    read(&mut first, 0, 2, 73);
    turn(&mut first, 0, 2);
    read(&mut second, 1, 2, 73);
    second.never("taken", |word| matches!(word, Word::Turn { .. }));
    first.end(1);
    turn(&mut second, 1, 2);
}

/// Two nodes of a job: who asks is answered, and a node that is gone is not waited for.
#[test]
fn each_node_hears_of_its_own_readers() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut near = Job::join("wide", &server.address);
    let mut far = Job::join("wide", &server.address);
    let mut other = Job::join("other", &server.address);
    read(&mut near, 0, 5, 70);
    turn(&mut near, 0, 5);
    read(&mut far, 9, 5, 70);
    turn(&mut far, 9, 5);
    near.never("its own turn was the only one", |word| matches!(word, Word::Turn { .. }));
    read(&mut other, 0, 1, 70);
    near.tell(Input::Served { number: 0, call: 5 });
    other.never("the far node reads", |word| matches!(word, Word::Turn { .. }));
    drop(far);
    turn(&mut other, 0, 1);
}

/// A reader that is killed hands its target on at once; one that only falls silent, after a while.
#[test]
fn who_dies_or_falls_silent_is_not_waited_for() {
    let directory = Directory::new();
    let server = coordinator(&directory);
    let mut first = Job::join("first", &server.address);
    let mut second = Job::join("second", &server.address);
    let mut third = Job::join("third", &server.address);
    read(&mut first, 0, 1, 70);
    turn(&mut first, 0, 1);
    read(&mut second, 0, 1, 70);
    second.never("taken", |word| matches!(word, Word::Turn { .. }));
    read(&mut third, 0, 1, 70);
    third.never("taken", |word| matches!(word, Word::Turn { .. }));
    drop(first);
    turn(&mut second, 0, 1);
    turn(&mut third, 0, 1);
}

#[test]
fn nobody_waits_for_an_answer_that_cannot_come() {
    let directory = Directory::new();
    let way = Way::Service { address: directory.socket(), key: None };
    let mut lonely = Job::new(way, identity("lonely"));
    lonely.tell(Input::Ask { request: 1, file: file("/scratch/a") });
    read(&mut lonely, 3, 1, 70);
    lonely.step(Duration::ZERO);
    let none = Word::Allocated { request: 1, aggregators: 0, stripes: 0, targets: vec![] };
    assert_eq!(lonely.heard, [none, Word::Turn { number: 3, call: 1 }]);

    let server = coordinator(&directory);
    let mut holder = Job::join("holder", &server.address);
    read(&mut holder, 0, 1, 70);
    turn(&mut holder, 0, 1);
    let mut waiter = Job::join("waiter", &server.address);
    read(&mut waiter, 0, 1, 70);
    waiter.never("taken", |word| matches!(word, Word::Turn { .. }));
    drop(server);
    turn(&mut waiter, 0, 1);
}
