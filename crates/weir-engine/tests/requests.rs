//! What holds for every request scheduler, and makespans that can be told in closed form.

use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use weir_engine::requests::select::Selector;
use weir_engine::requests::{
    Algorithm, Clients, Device, Next, Operation, Outlook, Request, Run, Scheduler, Settings, VirtualRequest,
    simulate, table3,
};

const DEVICE: Device =
    Device { bandwidth_bytes_s: 1e6, read_ratio: 20.0, write_ratio: 8.0, cost_per_request_s: 0.001 };

/// The five algorithms and `auto`, in this order.
fn scheduler(policy: usize, settings: Settings) -> Scheduler {
    match Algorithm::ALL.get(policy) {
        Some(&algorithm) => Scheduler::new(algorithm, settings),
        None => Scheduler::auto(Selector::of_the_paper(), DEVICE, settings),
    }
}

const POLICIES: usize = 6;
const REORDERING: [Algorithm; 3] = [Algorithm::Sjf, Algorithm::Mlf, Algorithm::Aioli];

fn read(file: u64, offset: u64, bytes: u64) -> Request {
    Request { file, operation: Operation::Read, offset, bytes }
}

/// Few files and few offsets, so that requests touch, overlap and coincide.
fn any_request() -> impl Strategy<Value = Request> {
    (0_u64..4, any::<bool>(), 0_u64..40, 1_u64..12).prop_map(|(file, write, offset, length)| Request {
        file,
        operation: if write { Operation::Write } else { Operation::Read },
        offset: offset * 4096,
        bytes: length * 4096,
    })
}

/// Requests with their times of arrival, in order; several at a time.
fn any_arrivals() -> impl Strategy<Value = Vec<(f64, Request)>> {
    prop::collection::vec((0_u32..3, any_request()), 1..80).prop_map(|gaps| {
        let mut now = 0.0;
        let at = |(gap, request): (u32, Request)| {
            now += f64::from(gap) * 0.0007;
            (now, request)
        };
        gaps.into_iter().map(at).collect()
    })
}

fn run(policy: usize, arrivals: &[(f64, Request)], in_flight: usize, outlook: Outlook) -> Run {
    let mut workload: VecDeque<(f64, Request)> = arrivals.iter().copied().collect();
    simulate(&mut scheduler(policy, Settings::default()), &DEVICE, &mut workload, in_flight, outlook)
}

/// A virtual request is made of requests of its file and operation that follow each other without a gap.
fn is_sound(virtual_request: &VirtualRequest, requests: &[Request]) -> bool {
    let mut offset = virtual_request.offset;
    let sound = virtual_request.parts.iter().all(|part| {
        let request = &requests[part.id as usize];
        let follows = request.offset == offset && request.bytes == part.bytes;
        offset += part.bytes;
        follows
            && request.file == virtual_request.file
            && request.operation == virtual_request.operation
            && part.id >= virtual_request.oldest
    });
    sound && offset == virtual_request.end() && virtual_request.ids().any(|id| id == virtual_request.oldest)
}

proptest! {
    #[test]
    fn every_request_is_served_once_and_no_byte_is_lost(
        policy in 0..POLICIES,
        arrivals in any_arrivals(),
        in_flight in 1_usize..4,
        blind in any::<bool>(),
    ) {
        let outlook = if blind { Outlook::Blind } else { Outlook::SeesBlockedClients };
        let run = run(policy, &arrivals, in_flight, outlook);
        let requests: Vec<Request> = arrivals.iter().map(|&(_, request)| request).collect();
        let mut served: Vec<u64> = run.services.iter().flat_map(|s| s.request.ids()).collect();
        served.sort_unstable();
        prop_assert_eq!(served, (0..requests.len() as u64).collect::<Vec<_>>());
        prop_assert!(run.services.iter().all(|s| is_sound(&s.request, &requests)));
        let bytes = |total: u64, more: u64| total + more;
        prop_assert_eq!(
            run.services.iter().map(|s| s.request.bytes).fold(0, bytes),
            requests.iter().map(|r| r.bytes).fold(0, bytes)
        );
        for service in &run.services {
            prop_assert!(service.request.ids().all(|id| arrivals[id as usize].0 <= service.start));
        }
        prop_assert!(run.services.windows(2).all(|pair| pair[0].finish <= pair[1].start));
    }

    #[test]
    fn the_same_requests_give_the_same_run(policy in 0..POLICIES, arrivals in any_arrivals()) {
        let again = || run(policy, &arrivals, 1, Outlook::Blind);
        prop_assert_eq!(again(), again());
    }

    /// Among requests that are there together; what comes later may begin anywhere.
    #[test]
    fn a_queue_is_served_in_offset_order(
        which in 0..REORDERING.len(),
        requests in prop::collection::vec(any_request(), 1..60),
    ) {
        let mut scheduler = Scheduler::new(REORDERING[which], Settings::default());
        for request in &requests {
            scheduler.add(0, *request);
        }
        let mut reached: BTreeMap<(u64, Operation), u64> = BTreeMap::new();
        while let Next::Dispatch(served) = scheduler.next_without_waiting(0) {
            scheduler.complete();
            let before = reached.insert((served.file, served.operation), served.offset);
            prop_assert!(before.is_none_or(|before| before <= served.offset));
        }
        prop_assert_eq!(scheduler.pending(), 0);
    }

    #[test]
    fn time_order_is_kept(arrivals in any_arrivals()) {
        let to = run(0, &arrivals, 1, Outlook::Blind);
        prop_assert!(to.services.windows(2).all(|pair| pair[0].request.oldest < pair[1].request.oldest));
        prop_assert!(to.services.iter().all(|service| service.request.parts.len() == 1));
    }

    /// Nothing is left lying, and no wait is longer than the waiting time.
    #[test]
    fn something_is_served_or_soon_will_be(
        policy in 0..POLICIES,
        requests in prop::collection::vec(any_request(), 1..40),
    ) {
        let settings = Settings::default();
        let mut scheduler = scheduler(policy, settings);
        let mut now_ns = 0;
        for request in &requests {
            now_ns += 1000;
            scheduler.add(now_ns, *request);
            match scheduler.next(now_ns) {
                Next::Dispatch(_) => scheduler.complete(),
                Next::WaitUntil(until_ns) => {
                    prop_assert!(now_ns < until_ns && until_ns <= now_ns + settings.waiting_ns);
                }
                Next::Nothing => prop_assert_eq!(scheduler.pending(), 0),
            }
        }
        while scheduler.pending() > 0 {
            let next = scheduler.next_without_waiting(now_ns);
            prop_assert!(matches!(next, Next::Dispatch(_)));
            scheduler.complete();
        }
    }

    /// While short requests keep coming, two per dispatch, every early one is served within the patience
    /// that it and those before it have.
    #[test]
    fn nobody_starves(
        policy in 0..POLICIES,
        early in prop::collection::vec(any_request(), 1..10),
        low_offsets in any::<bool>(),
    ) {
        let settings = Settings { patience_dispatches: 5, ..Settings::default() };
        let mut scheduler = scheduler(policy, settings);
        let mut open: Vec<u64> = early.iter().map(|request| scheduler.add(0, *request)).collect();
        let limit = early.len() as u64 * (settings.patience_dispatches + 1);
        for dispatch in 0.. {
            if open.is_empty() {
                break;
            }
            prop_assert!(dispatch < limit, "{:?} still wait after {} dispatches", open, dispatch);
            for newcomer in 0..2 {
                let offset = if low_offsets { 3 * newcomer } else { (3 * dispatch + newcomer) << 20 };
                scheduler.add(dispatch + 1, read(if low_offsets { 0 } else { 100 + dispatch }, offset, 1));
            }
            let Next::Dispatch(served) = scheduler.next_without_waiting(dispatch + 1) else {
                panic!("requests are pending")
            };
            scheduler.complete();
            open.retain(|&id| served.ids().all(|other| other != id));
        }
    }

    #[test]
    fn aioli_serves_one_at_a_time(requests in prop::collection::vec(any_request(), 2..20)) {
        let mut scheduler = Scheduler::new(Algorithm::Aioli, Settings::default());
        for request in &requests {
            scheduler.add(0, *request);
        }
        while let Next::Dispatch(_) = scheduler.next_without_waiting(0) {
            prop_assert_eq!(scheduler.next(0), Next::Nothing);
            prop_assert_eq!(scheduler.in_flight(), 1);
            scheduler.complete();
        }
        prop_assert_eq!(scheduler.pending(), 0);
    }
}

fn makespan(algorithm: Algorithm, requests: &[Request]) -> f64 {
    let mut workload: VecDeque<(f64, Request)> = requests.iter().map(|&request| (0.0, request)).collect();
    let mut scheduler = Scheduler::new(algorithm, Settings::default());
    simulate(&mut scheduler, &DEVICE, &mut workload, 1, Outlook::SeesBlockedClients).makespan
}

#[track_caller]
fn assert_close(ours: f64, expected: f64) {
    assert!((ours - expected).abs() <= 1e-9 * expected, "{ours} is not {expected}");
}

/// Two files read in turns, `n` requests of `s` bytes each: time order jumps every time and pays for
/// every request; aggregation pays and jumps once per file.
#[test]
fn interleaved_files_in_closed_form() {
    let (n, s) = (50_u64, 8192_u64);
    let requests: Vec<Request> = (0..2 * n).map(|i| read(i % 2, i / 2 * s, s)).collect();
    let (per_request, transfer, jump) = (0.001, s as f64 / 1e6, 20.0 * s as f64 / 1e6);
    assert_close(makespan(Algorithm::To, &requests), 2.0 * n as f64 * (per_request + jump));
    let once_per_file = 2.0 * (per_request + jump + (n - 1) as f64 * transfer);
    for algorithm in Algorithm::ALL.into_iter().skip(1) {
        assert_close(makespan(algorithm, &requests), once_per_file);
    }
}

/// In one contiguous file aggregation saves the cost of all requests but one, and no jump.
#[test]
fn a_sequential_file_in_closed_form() {
    let requests: Vec<Request> = (0..100).map(|i| read(0, i * 1000, 1000)).collect();
    let transfer = (100.0 + 19.0) * 1000.0 / 1e6;
    assert_close(makespan(Algorithm::To, &requests), 100.0 * 0.001 + transfer);
    assert_close(makespan(Algorithm::ToAgg, &requests), 0.001 + transfer);
}

/// Every other block, in descending order: only offset order helps against jumps, and only where it makes
/// accesses contiguous, which it cannot here.
#[test]
fn a_file_with_gaps_in_closed_form() {
    let requests: Vec<Request> = (0..10).rev().map(|i| read(0, i * 2000, 1000)).collect();
    for algorithm in Algorithm::ALL {
        assert_close(makespan(algorithm, &requests), 10.0 * (0.001 + 20.0 * 1000.0 / 1e6));
    }
}

/// A lone request of k quanta needs k steps: each step of aIOLi serves a queue, so that it is served as
/// the k-th, or earlier for want of others.
#[test]
fn quanta_grow_by_steps() {
    let sizes = [5_u64, 1, 3, 1, 2, 1];
    let mut scheduler = Scheduler::new(Algorithm::Aioli, Settings::default());
    for (file, quanta) in sizes.iter().enumerate() {
        scheduler.add(0, read(file as u64, 0, quanta * 8192));
    }
    let mut order = Vec::new();
    while let Next::Dispatch(served) = scheduler.next(0) {
        order.push(served.file);
        scheduler.complete();
    }
    // Step 1: files 1, 3 and 5 are ripe, the first come is 1. Step 2: 3, 5 and 4; step 3: 2, 5 and 4, …
    assert_eq!(order, [1, 3, 2, 4, 0, 5]);
}

/// A service that never ends: files come and go, and what is remembered about them is bounded.
#[test]
fn many_files_one_after_the_other() {
    for algorithm in Algorithm::ALL {
        let mut scheduler = Scheduler::new(algorithm, Settings::default());
        for file in 0..5000 {
            scheduler.add(file, read(file, 8192, 8192));
            scheduler.add(file, read(file, 0, 8192));
            let mut bytes = 0;
            while let Next::Dispatch(served) = scheduler.next(file) {
                assert_eq!(served.file, file);
                bytes += served.bytes;
                scheduler.complete();
            }
            assert_eq!(bytes, 16384);
        }
    }
}

/// Sizes and offsets at the end of the range neither overflow nor hang.
#[test]
fn enormous_requests() {
    for policy in 0..POLICIES {
        let mut scheduler = scheduler(policy, Settings { quantum_bytes: 1, ..Settings::default() });
        for file in 0..6 {
            scheduler.add(0, read(file, 0, u64::MAX));
            scheduler.add(0, read(file, u64::MAX - 5, 5));
        }
        while let Next::Dispatch(_) = scheduler.next_without_waiting(u64::MAX) {
            scheduler.complete();
        }
        assert_eq!(scheduler.pending(), 0);
    }
}

/// The clients of the experiments move every byte of their files once, whatever the order of service.
#[test]
fn clients_move_their_files_once() {
    let (processes, bytes_per_process) = (3, 256 << 10);
    for (index, pattern) in table3::patterns().enumerate() {
        let mut clients = Clients::new(pattern, processes, bytes_per_process, 0.0003, 7);
        let mut scheduler = scheduler(index % POLICIES, Settings::default());
        let run = simulate(&mut scheduler, &DEVICE, &mut clients, 1, Outlook::Blind);
        let mut files: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for service in &run.services {
            files
                .entry(service.request.file)
                .or_default()
                .push((service.request.offset, service.request.end()));
        }
        assert_eq!(files.len() as u64, pattern.files(processes));
        let file_bytes = bytes_per_process * pattern.applications * processes / pattern.files(processes);
        for pieces in files.values_mut() {
            pieces.sort_unstable();
            assert_eq!((pieces[0].0, pieces[pieces.len() - 1].1), (0, file_bytes));
            assert!(pieces.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
    }
}
