//! How fast a coordinator answers, how many it can serve, and how soon another takes its place.
//!
//! `cargo bench -p weir-coord --bench coordinator`. The service is a process of its own, so that ten thousand
//! connections fit into the descriptors of each side. Rates are told by the clock, which is what a quiet machine with
//! a core for each side shows, and per second of the service's processor time, which other work disturbs less.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use weir_coord::Waker;
use weir_coord::address::Address;
use weir_coord::auth::private_directory;
use weir_coord::coordinator::Pace;
use weir_coord::ledger::Sum;
use weir_coord::member::{Member, Way};
use weir_coord::server::{Server, Settings};
use weir_coord::session::{Gate, Input, Limits, Word};
use weir_coord::wire::{Identity, Inbox, Message};
use weir_engine::sharing::PolicyKind;

fn main() {
    raise_descriptor_limit();
    let words: Vec<String> = std::env::args().collect();
    if let [_, serve, address, policy] = &words[..]
        && serve == "serve"
    {
        return be_service(&address.parse().expect("an address"), policy.parse().expect("a policy"));
    }
    let directory = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    private_directory(&directory).expect("a directory");
    own_round_trip(directory.clone());
    let socket = Address::Unix(directory.join("bench.sock"));
    round_trip(&socket);
    println!(
        "\n{:<12} {:>6} {:>14} {:>26} {:>14}",
        "policy", "jobs", "requests/s", "per s of the service's CPU", "slowest round"
    );
    for jobs in [1_000, 10_000] {
        for policy in [PolicyKind::Weir, PolicyKind::Set10, PolicyKind::Exclusive, PolicyKind::Fair] {
            throughput(&socket, policy, jobs);
        }
    }
    println!();
    for policy in [PolicyKind::Weir, PolicyKind::Set10, PolicyKind::Fair] {
        everyday(&socket, policy, 10_000);
    }
    takeover(directory.clone());
    let _ = std::fs::remove_dir_all(directory);
}

fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

fn identity(job: &str) -> Identity {
    Identity {
        job: job.into(),
        host: "here".into(),
        storage: "disk".into(),
        ranks: 1,
        nodes: 1,
        ..Identity::default()
    }
}

/// Median and the worst in a hundred, in microseconds.
fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_nanos() as f64 / 1e3;
    println!("{what:<58} median {:>6.1} µs, 99 % below {:>6.1} µs", at(50), at(99));
}

fn member(way: Way, job: &str) -> Member {
    let limits = Limits { phase_gap_ns: None, max_wait_ns: 60_000_000_000, free_bytes: 0 };
    let waker = Waker::new().expect("a waker");
    Member::new(way, identity(job), limits, &Sum::default(), waker).expect("a member")
}

/// How long it takes the member to begin a phase and have it granted; then the phase ends. The other member, which may be
/// the one that coordinates, goes on meanwhile.
fn ask(member: &mut Member, other: Option<&mut Member>) -> Duration {
    let start = Instant::now();
    let mut other = other;
    member.tell(Input::Look(&Sum { marks: 1, ..Sum::default() }));
    while !matches!(member.session().gate(), Gate::Granted { .. }) {
        let timeout = if other.is_some() { Duration::ZERO } else { Duration::from_secs(1) };
        member.step(timeout, &mut |_| {});
        other.iter_mut().for_each(|other| other.step(Duration::ZERO, &mut |_| {}));
    }
    let taken = start.elapsed();
    member.tell(Input::Look(&Sum::default()));
    member.step(Duration::ZERO, &mut |_| {});
    taken
}

/// Times of one of two members that take turns: each has to ask, for the other was in a phase last.
fn alternate(one: &mut Member, other: &mut Member) -> Vec<Duration> {
    let until = |one: &mut Member, other: &mut Member, is_so: fn(&Member) -> bool| {
        while !is_so(one) {
            one.step(Duration::from_millis(1), &mut |_| {});
            other.step(Duration::ZERO, &mut |_| {});
        }
    };
    until(one, other, |member| member.session().is_joined());
    until(other, one, |member| member.session().is_joined());
    ask(other, Some(one));
    let has_to_ask = |member: &Member| member.session().gate() == Gate::Closed;
    let times = (0..20_000).map(|_| {
        until(one, other, has_to_ask);
        let taken = ask(one, None);
        until(other, one, has_to_ask);
        ask(other, Some(one));
        taken
    });
    times.collect()
}

/// A job that coordinates itself: ask, decide and answer in one thread.
fn own_round_trip(directory: PathBuf) {
    let way =
        || Way::Elect { directory: directory.clone(), network_host: None, settings: Settings::default() };
    let (mut own, mut other) = (member(way(), "own"), member(way(), "other"));
    while !own.is_coordinator() {
        own.step(Duration::from_millis(1), &mut |_| {});
    }
    print_times("ask and grant, coordinator in the asking thread", alternate(&mut own, &mut other));
    other.leave();
    own.leave();
}

/// A service in a process of its own: whenever it is asked, it tells its processor time.
struct Service {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Service {
    fn start(address: &Address, policy: PolicyKind) -> Service {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["serve", &address.to_string(), &policy.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let asks = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut service = Service { child, asks, answers };
        service.processor_time();
        service
    }

    fn processor_time(&mut self) -> Duration {
        self.asks.write_all(b"\n").expect("asks");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("answers");
        Duration::from_nanos(line.trim().parse().expect("nanoseconds"))
    }

    fn stop(mut self) {
        drop(self.asks);
        self.child.wait().expect("ends");
    }
}

/// Serves until nobody can ask any more.
fn be_service(address: &Address, policy: PolicyKind) {
    // Nobody beats while ten thousand connect.
    let pace = Pace { lease_ms: 60_000, ..Pace::default() };
    let settings = Settings { policy, pace, max_connections: 100_000, ..Settings::default() };
    let mut server = Server::new(settings).expect("a server");
    server.listen(address, false).expect("listens");
    let (asked, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (asks, ends, waker) = (asked.clone(), ended.clone(), server.waker());
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines() {
            asks.fetch_add(1, SeqCst);
            waker.wake();
        }
        ends.store(true, SeqCst);
        waker.wake();
    });
    while !ended.load(SeqCst) {
        server.step(Duration::from_secs(1)).expect("steps");
        for _ in 0..asked.swap(0, SeqCst) {
            println!("{}", processor_time().as_nanos());
        }
    }
}

/// Of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn round_trip(address: &Address) {
    let service = Service::start(address, PolicyKind::Weir);
    let way = || Way::Service { address: address.clone(), key: None };
    let (mut one, mut other) = (member(way(), "one"), member(way(), "other"));
    print_times("ask and grant, coordinator in another process", alternate(&mut one, &mut other));
    drop((one, other));
    service.stop();
}

fn begin(phase: u64) -> Message {
    Message::Begin { phase, bytes: Some(1 << 20) }
}

/// A job that asks as soon as it is answered.
struct Load {
    stream: UnixStream,
    inbox: Inbox,
    phase: u64,
    granted: bool,
}

impl Load {
    /// Connected, greeted and in its first phase.
    fn join(address: &Address, job: usize, frames: &mut Vec<u8>, scratch: &mut [u8]) -> Load {
        let Address::Unix(path) = address else { panic!("a Unix socket") };
        let stream = UnixStream::connect(path).expect("connects");
        let mut load = Load { stream, inbox: Inbox::default(), phase: 1, granted: false };
        frames.clear();
        let w_iter_ns = Some(10u64.pow(9 + job as u32 % 4));
        let identity = Identity { w_iter_ns, ..identity(&job.to_string()) };
        Message::Hello { identity: Box::new(identity), rejoins: false, epoch: 0 }.encode(frames);
        begin(1).encode(frames);
        load.stream.write_all(frames).expect("sends");
        load.hear(scratch);
        load
    }

    /// Who was granted ends its phase and asks for the next: two requests. Who waits says that it lives: one.
    fn ask(&mut self, frames: &mut Vec<u8>) -> u64 {
        frames.clear();
        let requests = if std::mem::take(&mut self.granted) {
            Message::End { phase: self.phase, bytes: 1 << 20, io_ns: 1, waited_ns: 0 }.encode(frames);
            self.phase += 1;
            begin(self.phase).encode(frames);
            2
        } else {
            Message::Beat {}.encode(frames);
            1
        };
        self.stream.write_all(frames).expect("sends");
        requests
    }

    /// Waits for at least one answer.
    fn hear(&mut self, scratch: &mut [u8]) {
        while !self.hear_some(scratch) {}
    }

    /// One read; whether there was an answer among it.
    fn hear_some(&mut self, scratch: &mut [u8]) -> bool {
        let length = match self.stream.read(scratch) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            other => other.expect("receives"),
        };
        assert!(length > 0, "the server closed the connection");
        self.inbox.feed(&scratch[..length]);
        let mut answered = false;
        while let Some(message) = self.inbox.take().expect("a good frame") {
            self.granted |= matches!(message, Message::Grant { .. });
            self.granted &= !matches!(message, Message::Hold { .. });
            answered |= !matches!(message, Message::Credit { .. });
        }
        answered
    }
}

/// As many requests as can be answered, each job with one under way.
fn throughput(address: &Address, policy: PolicyKind, jobs: usize) {
    let mut service = Service::start(address, policy);
    let mut frames = Vec::new();
    let mut scratch = vec![0; 16 << 10];
    let mut loads: Vec<Load> =
        (0..jobs).map(|job| Load::join(address, job, &mut frames, &mut scratch)).collect();
    // Each asks again as soon as its answer is read: while some are answered, others are heard.
    loads.iter_mut().for_each(|load| _ = load.ask(&mut frames));
    let (start, spent_before) = (Instant::now(), service.processor_time());
    let mut requests = 0;
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(3) {
        let round = Instant::now();
        for load in &mut loads {
            load.hear(&mut scratch);
            requests += load.ask(&mut frames);
        }
        slowest = slowest.max(round.elapsed());
    }
    let rate = requests as f64 / start.elapsed().as_secs_f64();
    let spent = service.processor_time() - spent_before;
    let per_core = requests as f64 / spent.as_secs_f64();
    println!("{:<12} {jobs:>6} {rate:>14.0} {per_core:>26.0} {slowest:>14.1?}", policy.to_string());
    drop(loads);
    service.stop();
}

const SLOTS: usize = 200;
const SECONDS: usize = 5;

/// Very many jobs as they are every day: each says something every 200 ms, a beat or, if it may do I/O, that its phase
/// is over and the next begins. Printed is how busy the service is, and when those who wait for it are answered.
fn everyday(address: &Address, policy: PolicyKind, jobs: usize) {
    let mut service = Service::start(address, policy);
    let mut frames = Vec::new();
    let mut scratch = vec![0; 16 << 10];
    let mut loads: Vec<Load> =
        (0..jobs).map(|job| Load::join(address, job, &mut frames, &mut scratch)).collect();
    loads.iter().for_each(|load| load.stream.set_nonblocking(true).expect("a socket"));
    let (start, spent_before) = (Instant::now(), service.processor_time());
    let (mut requests, mut times) = (0, Vec::new());
    for slot in 0..SECONDS * 5 * SLOTS {
        let due = start + Duration::from_millis(slot as u64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        for (index, load) in loads.iter_mut().skip(slot % SLOTS).step_by(SLOTS).enumerate() {
            load.hear_some(&mut scratch);
            requests += load.ask(&mut frames);
            // The first of each slot waits for its answer, so that it is known when it came.
            let asked = Instant::now();
            while index == 0 && !load.hear_some(&mut scratch) {
                std::thread::sleep(Duration::from_micros(20));
            }
            if index == 0 {
                times.push(asked.elapsed());
            }
        }
    }
    let rate = requests as f64 / start.elapsed().as_secs_f64();
    let busy = (service.processor_time() - spent_before).as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{policy}: {jobs} jobs, {rate:.0} requests/s, service {:.0} % of a core", 100.0 * busy);
    print_times("  answered", times);
    drop(loads);
    service.stop();
}

/// The time from the end of a coordinator to the welcome of the next, in the life of another job.
fn takeover(directory: PathBuf) {
    let way =
        || Way::Elect { directory: directory.clone(), network_host: None, settings: Settings::default() };
    let join = |name: &str| {
        let mut member = member(way(), name);
        member.step(Duration::ZERO, &mut |_| {});
        member
    };
    let mut coordinator = join("first");
    let times = (0..200).map(|round| {
        let mut next = join(&round.to_string());
        while !next.session().is_joined() {
            coordinator.step(Duration::ZERO, &mut |_| {});
            next.step(Duration::ZERO, &mut |_| {});
        }
        let start = Instant::now();
        std::mem::replace(&mut coordinator, join("unborn")).leave();
        let mut lost = false;
        while !(lost && next.session().is_joined()) {
            next.step(Duration::from_millis(1), &mut |word| lost |= matches!(word, Word::Lost { .. }));
            coordinator.step(Duration::ZERO, &mut |_| {});
        }
        let taken = start.elapsed();
        if next.is_coordinator() {
            coordinator = next;
        }
        taken
    });
    println!();
    print_times("takeover: from the end of one to the welcome of the next", times.collect());
}
