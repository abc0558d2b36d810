//! Elections among real processes: races, kills, stops, directories that go away.
//!
//! This program runs itself as the jobs: `election member DIRECTORY NAME` reads commands (`begin`, `end`, `leave`) and
//! prints every word that it hears, and what its gate holds when that changes.

mod common;

use common::{Directory, LIMITS, identity};
use libtest_mimic::{Arguments, Trial};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use weir_coord::Waker;
use weir_coord::election::Office;
use weir_coord::ledger::Sum;
use weir_coord::member::{Member, Way};
use weir_coord::server::Settings;
use weir_coord::session::{Gate, Input, Word};
use weir_engine::sharing::PolicyKind;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, role, directory, name, network @ ..] = &words[..]
        && role == "member"
    {
        return member(Path::new(directory), name, network.first().cloned());
    }
    let trials: [(&str, fn()); 11] = [
        ("two_elect_at_the_same_instant_a_hundred_times", race),
        ("another_takes_over_when_the_coordinator_is_killed", takeover),
        ("another_takes_over_when_the_coordinator_leaves", handover),
        ("a_takeover_disturbs_no_phase", continuity),
        ("a_stopped_coordinator_holds_up_nobody", stopped),
        ("a_directory_that_disappears_is_made_again", vanished),
        ("a_socket_that_disappears_is_made_again", unlinked),
        ("a_predecessor_leaves_what_its_successor_published", replaced),
        ("a_directory_that_is_none_opens_the_gate", no_directory),
        ("threads_of_one_process_elect_one", threads),
        ("other_nodes_find_the_coordinator_by_what_it_published", network),
    ];
    let trial = |(name, test): (&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), trials.map(trial).into()).exit();
}

fn way(directory: &Path, network_host: Option<String>) -> Way {
    let settings = Settings { policy: PolicyKind::Exclusive, ..Settings::default() };
    Way::Elect { directory: directory.into(), network_host, settings }
}

/// The life of a job.
fn member(directory: &Path, name: &str, network_host: Option<String>) {
    let waker = Waker::new().expect("a waker");
    let mut sum = Sum::default();
    let way = way(directory, network_host);
    let mut member = Member::new(way, identity(name), LIMITS, &sum, waker.clone()).expect("a member");
    let (send, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = send.send(line);
            waker.wake();
        }
        std::process::exit(0);
    });
    let (mut coordinates, mut held) = (false, Gate::Closed);
    loop {
        while let Ok(command) = commands.try_recv() {
            match command.as_str() {
                "begin" => sum.marks = 1,
                "end" => sum.marks = 0,
                _ => {
                    member.tell(Input::Leave(&sum));
                    return member.leave();
                }
            }
            member.tell(Input::Look(&sum));
        }
        member.step(Duration::from_secs(1), &mut |word| match word {
            Word::Joined { .. } => println!("joined"),
            Word::Held => println!("held"),
            Word::Lost { reason } => println!("lost: {reason}"),
            Word::Opened { reason } => println!("open: {reason}"),
            Word::Refused { reason } => println!("refused: {reason}"),
            Word::Backfilled | Word::PhaseEnded | Word::Allocated { .. } | Word::Turn { .. } => {}
        });
        let gate = member.session().gate();
        if gate != held && matches!(gate, Gate::Granted { .. }) {
            println!("granted");
        }
        held = gate;
        if member.is_coordinator() != coordinates {
            coordinates = !coordinates;
            println!("{}", if coordinates { "coordinates" } else { "resigned" });
        }
    }
}

/// A job as its parent sees it.
struct Process {
    child: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Process {
    fn start(directory: &Path, name: &str, more: &[&str]) -> Process {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("member")
            .arg(directory)
            .arg(name)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let (send, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let commands = child.stdin.take().expect("a pipe");
        Process { child, commands, lines, seen: Vec::new() }
    }

    fn say(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("is heard");
    }

    /// Waits for a line that begins so; those before it are dropped from what is looked at, not from `seen`.
    fn expect(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("waits for {wanted:?} and saw {:?}", self.seen);
            };
            self.seen.push(line.clone());
            if line.starts_with(wanted) {
                return line;
            }
        }
    }

    fn is_coordinator(&mut self) -> bool {
        self.seen.extend(self.lines.try_iter());
        let last = self.seen.iter().rev().find(|line| ["coordinates", "resigned"].contains(&line.as_str()));
        last.is_some_and(|line| line == "coordinates")
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for yet, so that its number is nobody else's.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts some and waits until all have joined; the coordinator is the first of the answer.
fn start(directory: &Path, names: &[&str]) -> Vec<Process> {
    let mut processes: Vec<Process> = names.iter().map(|name| Process::start(directory, name, &[])).collect();
    processes.iter_mut().for_each(|process| drop(process.expect("joined")));
    settle();
    let at = processes.iter_mut().position(Process::is_coordinator).expect("one coordinates");
    processes.swap(0, at);
    assert_eq!(processes.iter_mut().filter_map(|p| p.is_coordinator().then_some(())).count(), 1);
    processes
}

/// A moment for what was printed last.
fn settle() {
    std::thread::sleep(Duration::from_millis(30));
}

fn race() {
    for round in 0..100 {
        let directory = Directory::new();
        let mut pair = [Process::start(&directory.0, "a", &[]), Process::start(&directory.0, "b", &[])];
        pair.iter_mut().for_each(|process| drop(process.expect("joined")));
        // The one that joined may still have to print that it coordinates.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !pair.iter_mut().any(Process::is_coordinator) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let coordinators =
            pair.iter_mut().filter_map(|process| process.is_coordinator().then_some(())).count();
        assert_eq!(coordinators, 1, "round {round}");
    }
}

fn takeover() {
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let directory = Directory::new();
        let mut processes = start(&directory.0, &["a", "b", "c"]);
        let killed = Instant::now();
        processes[0].signal(libc::SIGKILL);
        processes[1..].iter_mut().for_each(|process| drop(process.expect("joined")));
        slowest = slowest.max(killed.elapsed());
        settle();
        assert_eq!(processes[1..].iter_mut().filter_map(|p| p.is_coordinator().then_some(())).count(), 1);
    }
    println!("slowest of 10 takeovers after SIGKILL: {slowest:?}");
}

fn handover() {
    let directory = Directory::new();
    let mut processes = start(&directory.0, &["a", "b"]);
    processes[0].say("leave");
    processes[1].expect("joined");
    processes[1].say("begin");
    processes[1].expect("granted");
    drop(processes);
    assert!(directory.0.join("coordinator.lock").exists());
}

fn continuity() {
    let directory = Directory::new();
    let mut processes = start(&directory.0, &["a", "b", "c", "d"]);
    let (coordinator, jobs) = processes.split_at_mut(1);
    let [waits, holds, _] = jobs else { panic!("three jobs") };
    holds.say("begin");
    holds.expect("granted");
    waits.say("begin");
    waits.expect("held");
    coordinator[0].signal(libc::SIGKILL);
    holds.expect("joined");
    waits.expect("joined");
    waits.expect("held");
    assert!(!holds.seen.iter().any(|line| line == "held"), "{:?}", holds.seen);
    holds.signal(libc::SIGKILL);
    waits.expect("granted");
}

fn stopped() {
    let directory = Directory::new();
    let mut processes = start(&directory.0, &["a", "b"]);
    let since = Instant::now();
    processes[0].signal(libc::SIGSTOP);
    processes[1].expect("lost");
    processes[1].expect("open");
    println!("the gate opened {:?} after the coordinator was stopped", since.elapsed());
    processes[0].signal(libc::SIGCONT);
    processes[1].expect("joined");
}

fn vanished() {
    let directory = Directory::new();
    let mut processes = start(&directory.0, &["a", "b"]);
    std::fs::remove_dir_all(&directory.0).expect("removed");
    for process in &mut processes {
        process.expect("lost");
        process.expect("joined");
    }
    assert!(directory.0.join("coordinator.sock").exists());
}

/// Whoever comes later must find the coordinator as well.
fn unlinked() {
    let directory = Directory::new();
    let mut processes = start(&directory.0, &["a", "b"]);
    std::fs::remove_file(directory.0.join("coordinator.sock")).expect("removed");
    processes.iter_mut().for_each(|process| drop(process.expect("joined")));
    let mut late = Process::start(&directory.0, "late", &[]);
    late.expect("joined");
    processes[1].say("begin");
    processes[1].expect("granted");
    late.say("begin");
    late.expect("held");
}

fn replaced() {
    let directory = Directory::new();
    let take = || Office::take(&directory.0, Some("127.0.0.1"), &Settings::default());
    let first = take().expect("a place").expect("that is free");
    std::fs::remove_dir_all(&directory.0).expect("removed");
    assert!(!first.is_in(&directory.0));
    let second = take().expect("a place").expect("that is free");
    let published = directory.0.join("coordinator.at");
    drop(first);
    assert!(published.exists() && second.is_in(&directory.0));
    drop(second);
    assert!(!published.exists());
    let third = take().expect("a place").expect("that is free");
    std::fs::remove_file(&published).expect("removed");
    assert!(!third.is_in(&directory.0), "other nodes do not find it");
}

fn no_directory() {
    let directory = Directory::new();
    let file = directory.0.join("a file");
    std::fs::write(&file, "").expect("written");
    let mut process = Process::start(&file, "a", &[]);
    let line = process.expect("open");
    assert!(line.contains("a file: is none"), "{line}");
    let mut process = Process::start(&directory.0.join("no/such"), "a", &[]);
    let line = process.expect("open");
    assert!(line.contains("no/such: No such file"), "{line}");
}

fn threads() {
    static COORDINATE_NOW: AtomicU32 = AtomicU32::new(0);
    let directory = Directory::new();
    // Longer than a socket's address can be.
    let long: PathBuf = directory.0.join("x".repeat(120));
    let live = |index: usize| {
        let long = long.clone();
        move || {
            let name = index.to_string();
            let mut member = common::member(way(&long, None), identity(&name));
            let (mut joined, mut coordinates, mut most) = (false, false, 0);
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                member.step(Duration::from_millis(20), &mut |word| {
                    joined |= matches!(word, Word::Joined { .. })
                });
                if member.is_coordinator() && !coordinates {
                    coordinates = true;
                    most = COORDINATE_NOW.fetch_add(1, SeqCst) + 1;
                }
            }
            COORDINATE_NOW.fetch_sub(u32::from(coordinates), SeqCst);
            member.leave();
            (joined, most)
        }
    };
    let threads: Vec<_> = (0..8).map(|index| std::thread::spawn(live(index))).collect();
    let outcomes: Vec<(bool, u32)> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(outcomes.iter().all(|(joined, _)| *joined), "{outcomes:?}");
    assert_eq!(outcomes.iter().map(|(_, most)| *most).max(), Some(1), "{outcomes:?}");
}

fn network() {
    let directory = Directory::new();
    let mut near = Process::start(&directory.0, "near", &["127.0.0.1"]);
    near.expect("joined");
    settle();
    assert!(near.is_coordinator());
    let elsewhere = directory.seen_from_another_node();
    let mut far = Process::start(&elsewhere.0, "far", &["127.0.0.1"]);
    far.expect("joined");
    far.say("begin");
    far.expect("granted");
    near.say("begin");
    near.expect("held");
    far.signal(libc::SIGKILL);
    near.expect("granted");
}
