//! What holds for every instance of aggregator scheduling.

use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_engine::aggregators::{Aggregator, Mode, Options, Outcome, Policy, Scheduler, Turn, run};

type Calls = Vec<Vec<Aggregator>>;

/// Calls with an aggregator at most targets. Small whole numbers make ties.
fn instance() -> impl Strategy<Value = (Mode, usize, Calls)> {
    calls_with(Just(1))
}

/// Calls with up to three aggregators at a target.
fn crowded_instance() -> impl Strategy<Value = (Mode, usize, Calls)> {
    calls_with(1..4usize)
}

fn calls_with(per_target: impl Strategy<Value = usize>) -> impl Strategy<Value = (Mode, usize, Calls)> {
    let cost = prop_oneof![4 => 0..20u64, 1 => 0..200u64];
    let cell = proptest::option::weighted(0.9, (cost.clone(), cost));
    let mode = prop_oneof![Just(Mode::Read), Just(Mode::Write)];
    (mode, 1..6usize, 1..9usize, per_target).prop_flat_map(move |(mode, targets, calls, per_target)| {
        let row = proptest::collection::vec(cell.clone(), targets * per_target);
        let call = row.prop_map(move |row| to_call(targets, row));
        (Just(mode), Just(targets), proptest::collection::vec(call, calls))
    })
}

fn to_call(targets: usize, row: Vec<Option<(u64, u64)>>) -> Vec<Aggregator> {
    let aggregator = |(number, cell): (usize, Option<(u64, u64)>)| {
        cell.map(|(service_ns, shuffle_ns)| Aggregator { target: number % targets, service_ns, shuffle_ns })
    };
    row.into_iter().enumerate().filter_map(aggregator).collect()
}

fn outcome(policy: Policy, mode: Mode, targets: usize, calls: &Calls) -> Outcome {
    run(policy, &Options::default(), mode, targets, calls).expect("small numbers are accepted")
}

/// When each call finishes if the targets serve in this order: the model, written down a second time.
fn finish_of(order: &[Vec<usize>], mode: Mode, calls: &Calls) -> Vec<u64> {
    let mut finish = vec![0; calls.len()];
    for (target, order) in order.iter().enumerate() {
        let mut now = 0;
        for &call in order {
            let aggregator = calls[call].iter().find(|a| a.target == target).expect("served where it is");
            let (ready, tail) =
                if mode == Mode::Read { (0, aggregator.shuffle_ns) } else { (aggregator.shuffle_ns, 0) };
            now = now.max(ready) + aggregator.service_ns;
            finish[call] = finish[call].max(now + tail);
        }
    }
    finish
}

proptest! {
    #[test]
    fn every_aggregator_is_served_exactly_once((mode, targets, calls) in crowded_instance()) {
        for policy in Policy::ALL {
            let mut order = outcome(policy, mode, targets, &calls).order;
            for (target, order) in order.iter_mut().enumerate() {
                order.sort_unstable();
                let here = |call: &Vec<Aggregator>| call.iter().filter(|a| a.target == target).count();
                let expected: Vec<usize> =
                    (0..calls.len()).flat_map(|call| std::iter::repeat_n(call, here(&calls[call]))).collect();
                prop_assert_eq!(&*order, &expected);
            }
        }
    }

    #[test]
    fn the_finish_follows_from_the_order((mode, targets, calls) in instance()) {
        for policy in Policy::ALL {
            let outcome = outcome(policy, mode, targets, &calls);
            prop_assert_eq!(&outcome.finish_ns, &finish_of(&outcome.order, mode, &calls));
        }
    }

    #[test]
    fn slack_is_never_later_than_sio((mode, targets, calls) in crowded_instance()) {
        let sio = outcome(Policy::Sio, mode, targets, &calls);
        for effort in [0, 30, Options::default().effort] {
            let options = Options { effort, ..Options::default() };
            let slack = run(Policy::Slack, &options, mode, targets, &calls).expect("accepted");
            for call in 0..calls.len() {
                prop_assert!(slack.finish_ns[call] <= sio.finish_ns[call], "call {call}, effort {effort}");
            }
        }
    }

    #[test]
    fn a_write_under_hio_is_a_write_under_sio((_, targets, calls) in crowded_instance()) {
        let sio = outcome(Policy::Sio, Mode::Write, targets, &calls);
        prop_assert_eq!(&sio, &outcome(Policy::Hio, Mode::Write, targets, &calls));
        prop_assert_eq!(&sio, &outcome(Policy::HioListing, Mode::Write, targets, &calls));
    }

    #[test]
    fn the_names_of_targets_do_not_matter((mode, targets, calls) in instance(), by in 0..6usize) {
        let turned: Calls = calls
            .iter()
            .map(|call| {
                let turn = |a: &Aggregator| Aggregator { target: (a.target + by) % targets, ..*a };
                let mut call: Vec<Aggregator> = call.iter().map(turn).collect();
                call.sort_by_key(|a| a.target);
                call
            })
            .collect();
        for policy in [Policy::Sio, Policy::Hio, Policy::HioListing, Policy::Slack] {
            let (here, there) = (outcome(policy, mode, targets, &calls), outcome(policy, mode, targets, &turned));
            prop_assert_eq!(here.finish_ns, there.finish_ns);
        }
    }

    #[test]
    fn the_unit_of_time_does_not_matter((mode, targets, calls) in instance()) {
        let scale = |a: &Aggregator| Aggregator {
            service_ns: a.service_ns * 1000, shuffle_ns: a.shuffle_ns * 1000, ..*a
        };
        let scaled: Calls = calls.iter().map(|call| call.iter().map(scale).collect()).collect();
        for policy in Policy::ALL {
            let (fine, coarse) = (outcome(policy, mode, targets, &scaled), outcome(policy, mode, targets, &calls));
            prop_assert_eq!(fine.order, coarse.order);
        }
    }

    #[test]
    fn one_application_finishes_as_if_alone((mode, targets, calls) in instance()) {
        let alone: Calls = calls[..1].to_vec();
        let expected = alone[0].iter().map(|a| a.service_ns + a.shuffle_ns).max().unwrap_or(0);
        for policy in Policy::ALL {
            prop_assert_eq!(&outcome(policy, mode, targets, &alone).finish_ns, &vec![expected]);
        }
    }

    #[test]
    fn one_target_is_never_idle_while_reads_wait((_, _, calls) in instance()) {
        let calls: Calls = calls.iter().map(|call| call.iter().filter(|a| a.target == 0).copied().collect()).collect();
        let total: u64 = calls.iter().flatten().map(|a| a.service_ns).sum();
        let without_shuffle: Calls =
            calls.iter().map(|call| call.iter().map(|a| Aggregator { shuffle_ns: 0, ..*a }).collect()).collect();
        for policy in Policy::ALL {
            prop_assert_eq!(outcome(policy, Mode::Read, 1, &without_shuffle).makespan_ns(), total);
        }
    }

    /// Calls that join at any time, several of one application among them.
    #[test]
    fn what_join_answers_is_kept((mode, targets, calls) in crowded_instance(), gaps in proptest::collection::vec(0..40u64, 8)) {
        for policy in Policy::ALL {
            let live = Live::drive(policy, mode, targets, &calls, &gaps, None);
            match policy {
                Policy::Sio => prop_assert_eq!(&live.finish, &live.promised),
                Policy::Slack => {
                    prop_assert!(live.finish.iter().zip(&live.promised).all(|(finish, by)| finish <= by), "{live:?}");
                }
                _ => {}
            }
            prop_assert_eq!(live.served, calls.iter().map(Vec::len).sum::<usize>());
            prop_assert!(policy == Policy::Nio || policy == Policy::Slack || live.in_turn, "{:?}", policy);
        }
    }

    /// An application that leaves takes everything it waited for with it, and makes nobody later.
    #[test]
    fn whoever_leaves_is_forgotten((mode, targets, calls) in crowded_instance(), gaps in proptest::collection::vec(0..40u64, 8), at in 0..200u64) {
        for policy in Policy::ALL {
            let live = Live::drive(policy, mode, targets, &calls, &gaps, Some((at, 0)));
            prop_assert!(!live.haunted, "{:?}", policy);
            if policy == Policy::Sio || policy == Policy::Slack {
                let mut others = live.finish.iter().zip(&live.promised).skip(1).step_by(2);
                prop_assert!(others.all(|(finish, promised)| finish <= promised), "{:?} {live:?}", policy);
            }
        }
    }

    #[test]
    fn nobody_waits_at_a_target_that_is_not_there(target in 3..usize::MAX) {
        for policy in Policy::ALL {
            prop_assert_eq!(Scheduler::new(policy, &Options::default(), 3).next(0, target), Turn::Idle);
        }
    }
}

/// A live run: calls join one after the other, two applications taking turns.
#[derive(Debug)]
struct Live {
    promised: Vec<u64>,
    finish: Vec<u64>,
    served: usize,
    /// No aggregator was served before an earlier one of the same application at the same target.
    in_turn: bool,
    /// An aggregator of a call that had left was served.
    haunted: bool,
}

impl Live {
    /// `leaving`: when an application leaves, and which; what it does after that is a new application's.
    fn drive(
        policy: Policy,
        mode: Mode,
        targets: usize,
        calls: &Calls,
        gaps: &[u64],
        leaving: Option<(u64, u64)>,
    ) -> Live {
        let mut scheduler = Scheduler::new(policy, &Options::default(), targets);
        let mut live =
            Live { promised: vec![], finish: vec![0; calls.len()], served: 0, in_turn: true, haunted: false };
        let mut latest = vec![[0; 2]; targets];
        let mut busy_until = vec![0; targets];
        // At the same instant calls join, then applications leave, then targets ask.
        let mut events = BinaryHeap::new();
        let mut joins = 0;
        for call in 0..calls.len() {
            joins += gaps[call % gaps.len()];
            events.push(Reverse((joins, 0, call)));
        }
        events.extend(leaving.map(|(at, application)| Reverse((at, 1, application as usize))));
        let mut gone = 0;
        while let Some(Reverse((now, kind, number))) = events.pop() {
            if kind == 1 {
                scheduler.leave(number as u64);
                gone = live.promised.len();
                events.extend((0..targets).map(|target| Reverse((now, 2, target))));
                continue;
            }
            if kind == 0 {
                let application = number as u64 % 2;
                let promised = scheduler.join(now, application, mode, &calls[number]).expect("accepted");
                live.promised.push(promised);
                live.finish[number] = now;
                events.extend((0..targets).map(|target| Reverse((now, 2, target))));
                continue;
            }
            if now < busy_until[number] {
                continue;
            }
            match scheduler.next(now, number) {
                Turn::Serve(waiting) => {
                    let served = now + waiting.service_ns;
                    let call = waiting.call as usize;
                    live.finish[call] = live.finish[call].max(served + waiting.tail_ns);
                    live.served += 1;
                    live.haunted |=
                        call < gone && leaving.is_some_and(|(_, left)| left == waiting.application);
                    let latest = &mut latest[number][waiting.application as usize];
                    live.in_turn &= *latest <= call;
                    *latest = call;
                    busy_until[number] = served;
                    events.push(Reverse((served, 2, number)));
                }
                Turn::Wait { until_ns } => events.push(Reverse((until_ns, 2, number))),
                Turn::Idle => {}
            }
        }
        live
    }
}
