//! How fast a coordinator answers, how many it can serve, and how soon another takes its place.
//!
//! `cargo bench -p weir-coord`. Requests are answered in full: every connection says something in every round
//! and waits for its answer. What the server could do with a core of its own is told by the processor time of its thread,
//! which other work on the machine disturbs least.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use weir_coord::Waker;
use weir_coord::address::Address;
use weir_coord::auth::private_directory;
use weir_coord::client::{Client, Identity, Word};
use weir_coord::coordinator::Pace;
use weir_coord::election::{Member, Way};
use weir_coord::server::{Server, Settings};
use weir_coord::wire::{Inbox, Message};
use weir_engine::sharing::PolicyKind;

fn main() {
    let directory = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    private_directory(&directory).expect("a directory");
    let most_jobs = (raise_descriptor_limit().saturating_sub(100) / 2) as usize;
    own_round_trip(directory.clone());
    let socket = Address::Unix(directory.join("bench.sock"));
    round_trip(&socket);
    println!(
        "\n{:<12} {:>6} {:>12} {:>22} {:>14}",
        "policy", "jobs", "requests/s", "per core of the server", "slowest round"
    );
    for jobs in [1_000, 10_000] {
        for policy in [PolicyKind::Weir, PolicyKind::Set10, PolicyKind::Exclusive, PolicyKind::Fair] {
            throughput(&socket, policy, most_jobs.min(jobs));
        }
    }
    takeover(directory.clone());
    let _ = std::fs::remove_dir_all(directory);
}

/// Both ends of ten thousand connections are in this process: how many descriptors it may have.
fn raise_descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    limit.rlim_cur
}

fn identity(job: &str) -> Identity {
    Identity { job: job.into(), host: "here".into(), ranks: 1, nodes: 1, ..Identity::default() }
}

/// Median and the worst in a hundred, in microseconds.
fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_nanos() as f64 / 1e3;
    println!("{what:<58} median {:>6.1} µs, 99 % below {:>6.1} µs", at(50), at(99));
}

/// A job that coordinates itself: ask, decide and answer in one thread.
fn own_round_trip(directory: PathBuf) {
    let way = Way::Elect { directory, network_host: None, settings: Settings::default() };
    let mut member = Member::new(way, identity("own"), Waker::new().expect("a waker")).expect("a member");
    let mut joined = false;
    while !joined {
        member.step(Duration::from_millis(10), &mut |word| joined |= matches!(word, Word::Joined { .. }));
    }
    let times = (0..20_000).map(|phase| {
        let start = Instant::now();
        member.client().begin(phase, None);
        let mut granted = false;
        while !granted {
            member.step(Duration::from_secs(1), &mut |word| granted |= matches!(word, Word::Granted { .. }));
        }
        let taken = start.elapsed();
        member.client().end(1, 1, 0);
        taken
    });
    print_times("ask and grant, coordinator in the asking thread", times.collect());
    member.leave();
}

/// A server in a thread; its processor time comes back when it is stopped.
struct Service {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: std::thread::JoinHandle<Duration>,
}

impl Service {
    fn start(address: &Address, policy: PolicyKind) -> Service {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, address) = (stop.clone(), address.clone());
        let (tell, told) = channel();
        // By a name, so that a profiler tells it from those who ask.
        let builder = std::thread::Builder::new().name("coordinator".into());
        let serve = move || {
            // Nobody beats while ten thousand connect.
            let pace = Pace { lease_ms: 60_000, ..Pace::default() };
            let settings = Settings { policy, pace, max_connections: 100_000, ..Settings::default() };
            let mut server = Server::new(settings).expect("a server");
            server.listen(&address, false).expect("listens");
            tell.send(server.waker()).expect("is heard");
            let mut began = None;
            while !stopped.load(SeqCst) {
                server.step(Duration::from_secs(1)).expect("steps");
                began.get_or_insert_with(processor_time);
            }
            processor_time() - began.unwrap_or_default()
        };
        let thread = builder.spawn(serve).expect("a thread");
        let waker = told.recv().expect("a server");
        Service { stop, waker, thread }
    }

    fn stop(self) -> Duration {
        self.stop.store(true, SeqCst);
        self.waker.wake();
        self.thread.join().expect("ends")
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
    let mut client = Client::new(identity("one"), None, Waker::new().expect("a waker")).expect("a client");
    client.connect(address).expect("connects");
    let times = (0..20_000).map(|phase| {
        while !client.is_joined() {
            client.step(Duration::from_millis(10), &mut |_| {});
        }
        let start = Instant::now();
        client.begin(phase, None);
        let mut granted = false;
        while !granted {
            client.step(Duration::from_secs(1), &mut |word| granted |= matches!(word, Word::Granted { .. }));
        }
        let taken = start.elapsed();
        client.end(1, 1, 0);
        taken
    });
    print_times("ask and grant, coordinator in another thread", times.collect());
    drop(client);
    service.stop();
}

/// A job that asks as soon as it is answered.
struct Load {
    stream: UnixStream,
    inbox: Inbox,
    phase: u64,
    granted: bool,
}

impl Load {
    /// Who was granted ends its phase and asks for the next: two requests. Who waits says that it lives: one.
    fn ask(&mut self, frames: &mut Vec<u8>) -> u64 {
        frames.clear();
        let requests = if std::mem::take(&mut self.granted) {
            Message::End { phase: self.phase, bytes: 1 << 20, io_ns: 1, waited_ns: 0 }.encode(frames);
            self.phase += 1;
            Message::Begin { phase: self.phase, bytes: Some(1 << 20) }.encode(frames);
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
        let mut answered = false;
        while !answered {
            let length = self.stream.read(scratch).expect("receives");
            assert!(length > 0, "the server closed the connection");
            self.inbox.feed(&scratch[..length]);
            while let Some(message) = self.inbox.take().expect("a good frame") {
                self.granted |= matches!(message, Message::Grant { .. });
                self.granted &= !matches!(message, Message::Hold { .. });
                answered |= !matches!(message, Message::Credit { .. });
            }
        }
    }
}

fn throughput(address: &Address, policy: PolicyKind, jobs: usize) {
    let Address::Unix(path) = address else { return };
    let service = Service::start(address, policy);
    let mut frames = Vec::new();
    let mut scratch = vec![0; 16 << 10];
    let mut loads: Vec<Load> = Vec::with_capacity(jobs);
    for job in 0..jobs {
        let stream = UnixStream::connect(path).expect("connects");
        let mut load = Load { stream, inbox: Inbox::default(), phase: 1, granted: false };
        frames.clear();
        Message::Hello {
            job: job.to_string(),
            application: "bench".into(),
            host: "here".into(),
            pid: 1,
            ranks: 1,
            nodes: 1,
            w_iter_ns: Some(10u64.pow(9 + job as u32 % 4)),
            mean_phase_bytes: None,
            rejoins: false,
        }
        .encode(&mut frames);
        Message::Begin { phase: 1, bytes: Some(1 << 20) }.encode(&mut frames);
        load.stream.write_all(&frames).expect("sends");
        load.hear(&mut scratch);
        loads.push(load);
    }
    // Each asks again as soon as its answer is read: while some are answered, others are heard.
    loads.iter_mut().for_each(|load| _ = load.ask(&mut frames));
    let start = Instant::now();
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
    drop(loads);
    let per_core = requests as f64 / service.stop().as_secs_f64();
    println!("{:<12} {jobs:>6} {rate:>12.0} {per_core:>22.0} {slowest:>14.1?}", policy.to_string());
}

/// The time from the end of a coordinator to the welcome of the next, in the life of another job.
fn takeover(directory: PathBuf) {
    let way =
        || Way::Elect { directory: directory.clone(), network_host: None, settings: Settings::default() };
    let join = |name: &str| {
        let mut member =
            Member::new(way(), identity(name), Waker::new().expect("a waker")).expect("a member");
        member.step(Duration::ZERO, &mut |_| {});
        member
    };
    let mut coordinator = join("first");
    let times = (0..200).map(|round| {
        let mut next = join(&round.to_string());
        while !next.client().is_joined() {
            coordinator.step(Duration::ZERO, &mut |_| {});
            next.step(Duration::ZERO, &mut |_| {});
        }
        let start = Instant::now();
        std::mem::replace(&mut coordinator, join("unborn")).leave();
        let mut lost = false;
        while !(lost && next.client().is_joined()) {
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
