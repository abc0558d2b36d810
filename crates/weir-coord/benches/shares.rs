//! Whether bytes follow shares over real sockets and in real time: jobs against a storage that is only a clock.
//!
//! `cargo bench -p weir-coord --bench shares`. The storage serves one request after the other, so that without credits all jobs
//! would move the same. Shares come from the policies: equal ones from `fair`, powers of ten from `set10`. Printed is the
//! worst deviation from its share, of any job over any two seconds, next to what a single request makes of it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_coord::address::Address;
use weir_coord::auth::private_directory;
use weir_coord::ledger::Sum;
use weir_coord::member::{Member, Way};
use weir_coord::server::{Server, Settings};
use weir_coord::session::{Gate, Input, Limits};
use weir_coord::wire::Identity;
use weir_coord::{Waker, now_ns};
use weir_engine::sharing::PolicyKind;

const SECONDS: usize = 6;
const SAMPLES_PER_SECOND: usize = 10;
/// Not looked at: the lead is still that of an unknown storage.
const FIRST_SAMPLE: usize = 10;

/// Busy until then.
type Storage = Arc<Mutex<Instant>>;

#[derive(Clone)]
struct Case {
    policy: PolicyKind,
    /// The order of magnitude of each job's characteristic time, in seconds.
    orders: Vec<u32>,
    request_bytes: u64,
    bandwidth: f64,
    /// Every second job makes a phase of each request, as one that writes file after file.
    brief: bool,
}

fn main() {
    let directory = std::env::temp_dir().join(format!("weir-shares-{}", std::process::id()));
    private_directory(&directory).expect("a directory");
    let address = Address::Unix(directory.join("shares.sock"));
    println!(
        "{:<8} {:>5} {:>8} {:>7} {:>12} {:>10} {:>12} {:>12}",
        "policy", "jobs", "shares", "phases", "request", "used", "worst", "one request"
    );
    let case = |policy, orders: &[u32], request_bytes, bandwidth| Case {
        policy,
        orders: orders.to_vec(),
        request_bytes,
        bandwidth,
        brief: false,
    };
    let brief = |case: Case| Case { brief: true, ..case };
    for case in [
        case(PolicyKind::Fair, &[0; 2], 1 << 20, 200e6),
        case(PolicyKind::Fair, &[0; 4], 1 << 20, 200e6),
        case(PolicyKind::Fair, &[0; 16], 256 << 10, 200e6),
        case(PolicyKind::Set10, &[0, 1], 1 << 20, 200e6),
        case(PolicyKind::Set10, &[0, 2], 256 << 10, 200e6),
        case(PolicyKind::Set10, &[0, 1, 2], 256 << 10, 200e6),
        case(PolicyKind::Set10, &[0, 1], 256 << 20, 50e9),
        // Whose phases show what its characteristic time is: by `set10` it would not stay in the set it is said to be in.
        brief(case(PolicyKind::Fair, &[0; 2], 1 << 20, 200e6)),
    ] {
        measure(&address, &case);
    }
    let _ = std::fs::remove_dir_all(directory);
}

fn measure(address: &Address, case: &Case) {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, served, policy) = (stop.clone(), address.clone(), case.policy);
    let (tell, told) = channel();
    let server = std::thread::spawn(move || {
        let mut server = Server::new(Settings { policy, ..Settings::default() }).expect("a server");
        server.listen(&served, false).expect("listens");
        tell.send(()).expect("is heard");
        while !stopped.load(SeqCst) {
            server.step(Duration::from_millis(100)).expect("steps");
        }
    });
    told.recv().expect("a server");
    let start = Instant::now();
    let storage: Storage = Arc::new(Mutex::new(start));
    let jobs: Vec<_> = (0..case.orders.len())
        .map(|index| {
            let (address, storage, case) = (address.clone(), storage.clone(), case.clone());
            std::thread::spawn(move || job(&address, &case, index, &storage, start))
        })
        .collect();
    let histories: Vec<Vec<u64>> = jobs.into_iter().map(|job| job.join().expect("ends")).collect();
    stop.store(true, SeqCst);
    server.join().expect("ends");
    print_case(case, &histories);
}

/// One rank that does nothing but I/O. What it had moved at each sample.
fn job(address: &Address, case: &Case, index: usize, storage: &Storage, start: Instant) -> Vec<u64> {
    let Case { request_bytes, bandwidth, .. } = *case;
    let brief = case.brief && index % 2 == 1;
    let identity = Identity {
        storage: "disk".into(),
        job: index.to_string(),
        ranks: 1,
        nodes: 1,
        w_iter_ns: Some(10u64.pow(9 + case.orders[index])),
        ..Identity::default()
    };
    let limits = Limits { phase_gap_ns: None, max_wait_ns: 60_000_000_000, free_bytes: 0 };
    let way = Way::Service { address: address.clone(), key: None };
    let waker = Waker::new().expect("a waker");
    let mut sum = Sum { marks: 1, ..Sum::default() };
    let mut member = Member::new(way, identity, limits, &sum, waker).expect("a member");
    let mut history = Vec::new();
    while history.len() < SECONDS * SAMPLES_PER_SECOND {
        sum.waiting = 1;
        sum.waiting_bytes = request_bytes;
        while !may_start(&member, &sum) && history.len() < SECONDS * SAMPLES_PER_SECOND {
            step(&mut member, &sum, Duration::from_millis(5));
            sample(&mut history, start, sum.done_bytes);
        }
        sum = Sum { in_flight: 1, waiting: 0, waiting_bytes: 0, ..sum };
        sum.spent_bytes += request_bytes;
        member.tell(Input::Look(&sum));
        let done_at = {
            let mut busy_until = storage.lock().expect("never poisoned");
            *busy_until =
                (*busy_until).max(Instant::now()) + Duration::from_secs_f64(request_bytes as f64 / bandwidth);
            *busy_until
        };
        loop {
            let left = done_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // The poller counts in milliseconds.
            std::thread::sleep(left.min(Duration::from_millis(1)));
            step(&mut member, &sum, Duration::ZERO);
            sample(&mut history, start, sum.done_bytes);
        }
        sum = Sum { in_flight: 0, done_bytes: sum.spent_bytes, last_end_ns: now_ns(), ..sum };
        if brief {
            // The phase ends, and the next one begins.
            step(&mut member, &Sum { marks: 0, ..sum }, Duration::ZERO);
        }
        step(&mut member, &sum, Duration::ZERO);
        sample(&mut history, start, sum.done_bytes);
    }
    history
}

/// Whether the gate lets another request through.
fn may_start(member: &Member, sum: &Sum) -> bool {
    match member.session().gate() {
        Gate::Granted { credit_bytes } => sum.spent_bytes - member.session().base_bytes() < credit_bytes,
        Gate::Ahead | Gate::Open { .. } => true,
        Gate::Closed | Gate::Free { .. } => false,
    }
}

fn step(member: &mut Member, sum: &Sum, timeout: Duration) {
    member.tell(Input::Look(sum));
    member.step(timeout, &mut |_| {});
}

fn sample(history: &mut Vec<u64>, start: Instant, done_bytes: u64) {
    let due = (start.elapsed().as_secs_f64() * SAMPLES_PER_SECOND as f64) as usize;
    while history.len() < due {
        history.push(done_bytes);
    }
}

fn print_case(case: &Case, histories: &[Vec<u64>]) {
    let weight = |order: &u32| match case.policy {
        PolicyKind::Set10 => 0.1f64.powi(*order as i32),
        _ => 1.0,
    };
    let sum: f64 = case.orders.iter().map(weight).sum();
    let window = 2 * SAMPLES_PER_SECOND;
    let (mut worst, mut granule) = (0.0f64, 0.0f64);
    for begin in FIRST_SAMPLE..SECONDS * SAMPLES_PER_SECOND - window {
        let moved: Vec<f64> = histories.iter().map(|h| (h[begin + window] - h[begin]) as f64).collect();
        let all: f64 = moved.iter().sum();
        for (order, moved) in case.orders.iter().zip(moved) {
            let due = all * weight(order) / sum;
            worst = worst.max((moved - due).abs() / due);
            granule = granule.max(case.request_bytes as f64 / due);
        }
    }
    let last = SECONDS * SAMPLES_PER_SECOND - 1;
    let moved: f64 = histories.iter().map(|h| (h[last] - h[FIRST_SAMPLE]) as f64).sum();
    let used = moved / case.bandwidth / ((last - FIRST_SAMPLE) as f64 / SAMPLES_PER_SECOND as f64);
    let highest = case.orders.iter().max().map_or(1, |order| 10u32.pow(*order));
    println!(
        "{:<8} {:>5} {:>6}:1 {:>7} {:>8} KiB {:>8.1} % {:>10.1} % {:>10.1} %",
        case.policy.to_string(),
        case.orders.len(),
        highest,
        if case.brief { "brief" } else { "long" },
        case.request_bytes >> 10,
        100.0 * used,
        100.0 * worst,
        100.0 * granule
    );
}
