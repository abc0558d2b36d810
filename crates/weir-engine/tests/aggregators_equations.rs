//! Closed forms: the HIO paper's equations (4) to (7), and the best that any order could do.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use weir_engine::aggregators::{Aggregator, Mode, Options, Outcome, Policy, run};

type Calls = Vec<Vec<Aggregator>>;

/// The `t` of section 5.
const T: u64 = 1000;

/// `m` applications on `n` targets that need `T` each; `shuffle(i, j)` is `s_ij`.
fn uniform(m: usize, n: usize, shuffle: impl Fn(usize, usize) -> u64) -> Calls {
    let aggregator = |i, j| Aggregator { target: j, service_ns: T, shuffle_ns: shuffle(i, j) };
    (0..m).map(|i| (0..n).map(|j| aggregator(i, j)).collect()).collect()
}

fn outcome(policy: Policy, mode: Mode, targets: usize, calls: &Calls) -> Outcome {
    run(policy, &Options::default(), mode, targets, calls).expect("small numbers are accepted")
}

fn mean(policy: Policy, n: usize, calls: &Calls) -> f64 {
    outcome(policy, Mode::Read, n, calls).mean_ns()
}

#[test]
fn equation_4_without_coordination() {
    for (m, n) in [(3, 2), (6, 6), (4, 12)] {
        let calls = uniform(m, n, |_, _| 500);
        let sum: f64 = (1..m).map(|x| (x as f64 / m as f64).powi(n as i32)).sum();
        let expected = (m as f64 - sum) * T as f64 + 500.0;
        let seeds = 3000;
        let mean = (0..seeds)
            .map(|seed| {
                let options = Options { seed, ..Options::default() };
                run(Policy::Nio, &options, Mode::Read, n, &calls).expect("accepted").mean_ns()
            })
            .sum::<f64>()
            / seeds as f64;
        assert!((mean / expected - 1.0).abs() < 0.01, "m {m} n {n}: {mean} for {expected}");
    }
}

#[test]
fn equation_5_one_application_at_a_time() {
    for m in [1, 2, 6, 48] {
        let calls = uniform(m, 6, |i, j| ((7 * i + 3 * j) % 5) as u64 + if j == i % 6 { 10 } else { 0 });
        let sio = outcome(Policy::Sio, Mode::Read, 6, &calls);
        let slowest: f64 =
            calls.iter().map(|call| call.iter().map(|a| a.shuffle_ns).max().unwrap_or(0) as f64).sum::<f64>()
                / m as f64;
        assert!((sio.mean_ns() - ((m + 1) as f64 / 2.0 * T as f64 + slowest)).abs() < 1e-6);
    }
}

#[test]
fn equation_6_the_slowest_aggregators_meet_different_targets() {
    for m in [2, 6, 16] {
        let slowest = m as u64 * T;
        let calls = uniform(m, m, |i, j| if i == j { slowest } else { 0 });
        for policy in [Policy::Hio, Policy::HioListing, Policy::Slack] {
            assert_eq!(mean(policy, m, &calls), (T + slowest) as f64, "{policy:?} {m}");
        }
    }
}

#[test]
fn equation_7_the_slowest_aggregators_meet_one_target() {
    for m in [2, 6, 16] {
        let slowest = m as u64 * T;
        let calls = uniform(m, 4, |_, j| if j == 2 { slowest } else { 0 });
        let expected = (m + 1) as f64 / 2.0 * T as f64 + slowest as f64;
        for policy in [Policy::Sio, Policy::Hio, Policy::HioListing, Policy::Slack] {
            assert_eq!(mean(policy, 4, &calls), expected, "{policy:?} {m}");
        }
    }
}

#[test]
fn hio_with_little_to_shuffle_is_sio() {
    let calls = uniform(6, 6, |i, j| ((i * 5 + j * 11) % 13) as u64);
    let sio = outcome(Policy::Sio, Mode::Read, 6, &calls);
    assert_eq!(sio, outcome(Policy::Hio, Mode::Read, 6, &calls));
    assert_eq!(sio, outcome(Policy::HioListing, Mode::Read, 6, &calls));
}

/// With nothing to shuffle SIO cannot be improved without making somebody wait: the last of the first k
/// applications at a target is served no earlier than its k-th is under SIO.
#[test]
fn slack_without_shuffle_is_sio() {
    let mut random = Pcg64Mcg::seed_from_u64(4);
    for _ in 0..20 {
        let mut cost = || random.random_range(1..100);
        let calls: Calls = (0..6)
            .map(|_| (0..4).map(|target| Aggregator { target, service_ns: cost(), shuffle_ns: 0 }).collect())
            .collect();
        let sio = outcome(Policy::Sio, Mode::Read, 4, &calls);
        assert_eq!(outcome(Policy::Slack, Mode::Read, 4, &calls).finish_ns, sio.finish_ns);
    }
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    let Some(last) = n.checked_sub(1) else { return vec![vec![]] };
    let insert = |shorter: Vec<usize>| {
        (0..=last).map(move |at| {
            let mut longer = shorter.clone();
            longer.insert(at, last);
            longer
        })
    };
    permutations(last).into_iter().flat_map(insert).collect()
}

/// The smallest total finish of any orders at three targets that make nobody later than `limit`.
fn optimum(calls: &Calls, limit: &[u64]) -> u64 {
    let in_time: Vec<Vec<Vec<u64>>> = (0..3)
        .map(|target| {
            let finishes = permutations(calls.len()).into_iter().map(|order| {
                let mut finish = vec![0; calls.len()];
                let mut now = 0;
                for call in order {
                    now += calls[call][target].service_ns;
                    finish[call] = now + calls[call][target].shuffle_ns;
                }
                finish
            });
            finishes
                .filter(|finish| finish.iter().zip(limit).all(|(finish, limit)| finish <= limit))
                .collect()
        })
        .collect();
    let later = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| *a.max(b)).collect::<Vec<u64>>();
    let mut best = u64::MAX;
    for first in &in_time[0] {
        for second in &in_time[1] {
            let two = later(first, second);
            if two.iter().sum::<u64>() < best {
                let totals = in_time[2].iter().map(|third| later(&two, third).iter().sum::<u64>());
                best = best.min(totals.min().unwrap_or(u64::MAX));
            }
        }
    }
    best
}

#[test]
fn slack_is_as_good_as_its_guarantee_allows() {
    let mut random = Pcg64Mcg::seed_from_u64(9);
    let (mut slack_total, mut sio_total, mut best_total) = (0, 0, 0);
    for _ in 0..20 {
        let mut aggregator = |target| Aggregator {
            target,
            service_ns: random.random_range(100..1100),
            shuffle_ns: random.random_range(0..4000),
        };
        let calls: Calls = (0..4).map(|_| (0..3).map(&mut aggregator).collect()).collect();
        let sio = outcome(Policy::Sio, Mode::Read, 3, &calls);
        let slack = outcome(Policy::Slack, Mode::Read, 3, &calls);
        let best = optimum(&calls, &sio.finish_ns);
        let total: u64 = slack.finish_ns.iter().sum();
        assert!(best <= total);
        best_total += best;
        slack_total += total;
        sio_total += sio.finish_ns.iter().sum::<u64>();
    }
    let part = (sio_total - slack_total) as f64 / (sio_total - best_total) as f64;
    assert!(part > 0.97, "{part} of what could be gained");
}

#[test]
fn the_guarantee_outlives_a_wrong_prediction() {
    use weir_engine::aggregators::{Scheduler, Turn};
    let mut scheduler = Scheduler::new(Policy::Slack, &Options::default(), 1);
    let aggregator = |service_ns| [Aggregator { target: 0, service_ns, shuffle_ns: 0 }];
    for application in 0..3 {
        scheduler.join(0, application, Mode::Read, &aggregator(10)).expect("accepted");
    }
    assert!(matches!(scheduler.next(0, 0), Turn::Serve(w) if w.call == 0));
    // What should have taken 10 took 500: every promise is broken, and yet all are served in turn.
    scheduler.join(500, 3, Mode::Read, &aggregator(10)).expect("accepted");
    for call in 1..4 {
        assert!(matches!(scheduler.next(500 + call, 0), Turn::Serve(w) if w.call == call));
    }
    assert_eq!(scheduler.next(600, 0), Turn::Idle);
}

#[test]
fn what_cannot_be_reckoned_with_is_refused_whole() {
    use weir_engine::aggregators::Scheduler;
    let mut scheduler = Scheduler::new(Policy::Slack, &Options::default(), 2);
    let good = Aggregator { target: 0, service_ns: 5, shuffle_ns: 5 };
    for (bad, field) in [
        (Aggregator { target: 2, ..good }, "target"),
        (Aggregator { service_ns: u64::MAX, ..good }, "service_ns"),
        (Aggregator { shuffle_ns: u64::MAX, ..good }, "shuffle_ns"),
    ] {
        let refused = scheduler.join(0, 0, Mode::Write, &[good, bad]).expect_err("refused");
        assert_eq!((refused.aggregator, refused.field), (1, field));
    }
    assert_eq!(scheduler.join(0, 0, Mode::Read, &[good]), Ok(10));
}
