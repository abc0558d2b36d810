use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use weir_engine::aggregators::run;

const FILE: u64 = 11;

fn reader(number: u32, call: u64, target: u64) -> Reader {
    Reader { number, file: FILE, call, target, service_ns: 1_000, shuffle_ns: 0 }
}

/// A job's only node is the peer of its number.
fn read(turns: &mut Turns, job: u32, reader: Reader) -> Vec<(u32, u32, u64)> {
    turns.read(0, JobId(job), job as Peer, reader);
    given(turns)
}

fn served(turns: &mut Turns, job: u32, number: u32, call: u64) -> Vec<(u32, u32, u64)> {
    turns.served(0, JobId(job), job as Peer, number, call);
    given(turns)
}

fn given(turns: &mut Turns) -> Vec<(u32, u32, u64)> {
    turns.given().drain(..).map(|(peer, number, call)| (peer as u32, number, call)).collect()
}

#[test]
fn who_reads_alone_never_waits() {
    let mut turns = Turns::new(Policy::Hio);
    for (number, call, target) in [(0, 1, 5), (1, 1, 5), (2, 1, 6), (3, 2, 5)] {
        assert_eq!(read(&mut turns, 0, reader(number, call, target)), [(0, number, call)]);
    }
    assert_eq!(read(&mut turns, 0, reader(0, 2, 5)), [(0, 0, 2)], "the one before is over");
}

#[test]
fn a_target_serves_one_call_at_a_time() {
    let mut turns = Turns::new(Policy::Hio);
    read(&mut turns, 0, reader(0, 1, 5));
    assert_eq!(read(&mut turns, 1, reader(0, 1, 5)), []);
    assert_eq!(read(&mut turns, 1, reader(1, 1, 6)), [(1, 1, 1)], "target 6 is free");
    assert_eq!(read(&mut turns, 0, reader(1, 1, 5)), [(0, 1, 1)], "of the call that is served");
    assert_eq!(read(&mut turns, 0, reader(2, 2, 5)), [], "of the next");
    assert_eq!(served(&mut turns, 0, 0, 1), []);
    assert_eq!(served(&mut turns, 0, 0, 1), [], "told twice");
    assert_eq!(served(&mut turns, 0, 1, 9), [], "of another call");
    assert_eq!(served(&mut turns, 0, 1, 1), [(1, 0, 1)]);
    assert_eq!(served(&mut turns, 1, 0, 1), [(0, 2, 2)]);
}

#[test]
fn who_is_gone_or_stuck_or_has_gone_ahead_is_not_waited_for() {
    let blocked = || {
        let mut turns = Turns::new(Policy::Hio);
        (0..3).for_each(|job| drop(read(&mut turns, job, reader(0, 1, 5))));
        turns
    };
    let mut turns = blocked();
    turns.job_gone(0, JobId(0));
    assert_eq!(given(&mut turns), [(1, 0, 1)]);

    let mut turns = blocked();
    turns.node_gone(0, JobId(0), 0);
    assert_eq!(given(&mut turns), [(1, 0, 1)]);

    let mut turns = blocked();
    let at_ns = turns.deadline_ns().unwrap();
    assert_eq!(at_ns, PATIENCE * 1_000 + PATIENCE_NS);
    turns.tick(at_ns - 1);
    assert_eq!(given(&mut turns), []);
    turns.tick(at_ns);
    assert_eq!(given(&mut turns), [(1, 0, 1)]);
    assert_eq!(turns.queues().next().unwrap().overdue, 1);
    assert_eq!(served(&mut turns, 0, 0, 1), [], "late, and of no consequence");

    let mut turns = blocked();
    assert_eq!(served(&mut turns, 1, 0, 1), []);
    assert_eq!(served(&mut turns, 0, 0, 1), [(2, 0, 1)]);
    turns.leave(0, JobId(2));
    assert_eq!(turns.deadline_ns(), None);
}

#[test]
fn what_is_too_much_is_not_ordered_and_another_order_lets_all_go() {
    let mut turns = Turns::new(Policy::Nio);
    read(&mut turns, 0, reader(0, 1, 5));
    assert_eq!(read(&mut turns, 1, reader(0, 1, 5)), [(1, 0, 1)], "there is no order");

    let mut turns = Turns::new(Policy::Slack);
    let endless = |number| Reader { service_ns: u64::MAX, shuffle_ns: u64::MAX, ..reader(number, 1, 5) };
    read(&mut turns, 0, endless(0));
    for number in 0..MAX_READERS as u32 - 1 {
        assert_eq!(read(&mut turns, 1, endless(number)), []);
    }
    assert_eq!(read(&mut turns, 2, endless(0)).len(), 1, "too many readers");
    turns.set_order(Policy::Sio);
    assert_eq!(given(&mut turns).len(), MAX_READERS - 1);
    assert_eq!(turns.deadline_ns(), None);
    for target in 0..MAX_TARGETS as u64 {
        read(&mut turns, 0, reader(target as u32, 1, target));
    }
    let beyond = MAX_TARGETS as u64;
    read(&mut turns, 0, reader(9_000, 1, beyond));
    assert_eq!(read(&mut turns, 1, reader(0, 1, beyond)).len(), 1, "too many targets");
}

/// Two jobs meet at targets 1 and 2. The slow aggregator of each is at the other's target of call 1; once that
/// is known, each is served first where it is slow, whoever comes first.
#[test]
fn slow_aggregators_go_first_once_the_call_before_is_known() {
    let mut turns = Turns::new(Policy::Hio);
    let part = |job: u32, number: u32, call| {
        let shuffle_ns = if job == number { 50_000 } else { 0 };
        Reader { shuffle_ns, ..reader(number, call, u64::from(number)) }
    };
    for job in 0..2 {
        (0..2).for_each(|number| drop(read(&mut turns, job, part(job, number, 1))));
        (0..2).for_each(|number| drop(served(&mut turns, job, number, 1)));
    }
    (0..2).for_each(|target| drop(read(&mut turns, 9, reader(target, 1, u64::from(target)))));
    // Of each job the one that has time comes first.
    assert_eq!(read(&mut turns, 1, part(1, 0, 2)), []);
    assert_eq!(read(&mut turns, 0, part(0, 1, 2)), []);
    assert_eq!(read(&mut turns, 0, part(0, 0, 2)), []);
    assert_eq!(read(&mut turns, 1, part(1, 1, 2)), []);
    assert_eq!(served(&mut turns, 9, 0, 1), [(0, 0, 2)]);
    assert_eq!(served(&mut turns, 9, 1, 1), [(1, 1, 2)]);
}

#[test]
fn a_target_is_not_idle_for_somebody_who_is_late_and_who_is_late_goes_first() {
    let mut turns = Turns::new(Policy::Sio);
    for number in 0..2 {
        read(&mut turns, 0, reader(number, 1, u64::from(number)));
    }
    (0..2).for_each(|number| drop(served(&mut turns, 0, number, 1)));
    read(&mut turns, 0, reader(0, 2, 0));
    // Rank 1 of job 0 is expected at target 1, and not there.
    assert_eq!(read(&mut turns, 1, reader(0, 1, 1)), [(1, 0, 1)]);
    assert_eq!(read(&mut turns, 2, reader(0, 1, 1)), []);
    assert_eq!(read(&mut turns, 0, reader(1, 2, 1)), []);
    assert_eq!(served(&mut turns, 1, 0, 1), [(0, 1, 2)], "before job 2, which came earlier");
    assert_eq!(served(&mut turns, 0, 1, 2), [(2, 0, 1)]);
}

/// Of several jobs, the aggregators of a call: target, service, shuffle.
fn calls() -> impl Strategy<Value = Vec<Vec<Aggregator>>> {
    let part = (0usize..4, 1u64..1000, 0u64..1000);
    let part =
        part.prop_map(|(target, service_ns, shuffle_ns)| Aggregator { target, service_ns, shuffle_ns });
    prop::collection::vec(prop::collection::vec(part, 1..6), 1..6)
}

/// Who is at the same target reads there together.
fn together(parts: &[Aggregator]) -> Vec<Aggregator> {
    let at = |target| parts.iter().filter(move |part| part.target == target);
    let most = |target, of: fn(&Aggregator) -> u64| at(target).map(of).max().unwrap_or(0);
    let one = |target| Aggregator {
        target,
        service_ns: most(target, |part| part.service_ns),
        shuffle_ns: most(target, |part| part.shuffle_ns),
    };
    (0..4).filter(|target| at(*target).next().is_some()).map(one).collect()
}

proptest! {
    /// Live, once every job has made a call that is known, the targets serve in the order in which the engine's
    /// own simulation does.
    #[test]
    fn the_order_is_the_engines(calls in calls()) {
        let part = |job: usize, number: usize, call| {
            let Aggregator { target, service_ns, shuffle_ns } = calls[job][number];
            Reader { number: number as u32, file: FILE, call, target: target as u64, service_ns, shuffle_ns }
        };
        for policy in [Policy::Hio, Policy::HioListing, Policy::Sio] {
            let mut turns = Turns::new(policy);
            for (job, parts) in calls.iter().enumerate() {
                (0..parts.len()).for_each(|number| drop(read(&mut turns, job as u32, part(job, number, 1))));
                (0..parts.len()).for_each(|number| drop(served(&mut turns, job as u32, number as u32, 1)));
            }
            (0..4).for_each(|target| drop(read(&mut turns, 99, reader(target, 1, u64::from(target)))));
            for (job, parts) in calls.iter().enumerate() {
                for number in 0..parts.len() {
                    prop_assert_eq!(read(&mut turns, job as u32, part(job, number, 2)), []);
                }
            }
            let mut order = vec![Vec::new(); 4];
            let mut next: Vec<_> = (0..4).map(|target| (99, target, 1)).collect();
            while let Some((job, number, call)) = next.pop() {
                if job != 99 {
                    order[calls[job as usize][number as usize].target].push(job as usize);
                }
                next.splice(0..0, served(&mut turns, job, number, call));
            }
            order.iter_mut().for_each(Vec::dedup);
            let simulated: Vec<Vec<Aggregator>> = calls.iter().map(|parts| together(parts)).collect();
            let expected = run(policy, &Options::default(), Mode::Read, 4, &simulated).unwrap().order;
            prop_assert_eq!(order, expected, "{:?}", policy);
        }
    }

    /// Whoever leaves, is stuck, goes ahead or is expected in vain: everybody gets a turn, and targets have one job
    /// at a time.
    #[test]
    fn everybody_gets_a_turn(
        order in prop::sample::select(Policy::ALL.to_vec()),
        deeds in prop::collection::vec((0u8..6, 0u32..3, 0u32..4, 0u64..3, 0u64..3), 1..120),
    ) {
        let mut turns = Turns::new(order);
        let mut owed: BTreeSet<(u32, u32, u64)> = BTreeSet::new();
        let mut now_ns = 0;
        for (deed, job, number, call, target) in deeds {
            match deed {
                0..=2 => {
                    owed.retain(|(of, who, _)| (*of, *who) != (job, number));
                    owed.insert((job, number, call));
                    turns.read(now_ns, JobId(job), job as Peer, reader(number, call, target));
                }
                3 => {
                    owed.remove(&(job, number, call));
                    turns.served(now_ns, JobId(job), job as Peer, number, call);
                }
                4 => {
                    owed.retain(|(of, ..)| *of != job);
                    turns.job_gone(now_ns, JobId(job));
                }
                _ => {
                    now_ns += 100_000_000;
                    turns.tick(now_ns);
                }
            }
            for turn in given(&mut turns) {
                prop_assert!(owed.remove(&turn), "{turn:?} twice or for nobody");
            }
            for queue in turns.queues() {
                prop_assert!(queue.reading.windows(2).all(|pair| pair[0] == pair[1]));
                prop_assert!(queue.waiting.is_empty() || !queue.reading.is_empty(), "an idle target");
            }
        }
        for _ in 0..100 {
            now_ns += PATIENCE * 1_000 + PATIENCE_NS;
            turns.tick(now_ns);
            given(&mut turns).iter().for_each(|turn| assert!(owed.remove(turn)));
        }
        prop_assert!(owed.is_empty(), "still waiting: {owed:?}");
    }
}

/// A file that is opened again counts its calls anew.
#[test]
fn who_asks_with_the_same_number_again_does_not_go_first() {
    let mut turns = Turns::new(Policy::Hio);
    assert_eq!(read(&mut turns, 0, reader(0, 1, 5)), [(0, 0, 1)]);
    assert_eq!(read(&mut turns, 1, reader(0, 1, 5)), []);
    assert_eq!(read(&mut turns, 2, reader(0, 1, 5)), []);
    assert_eq!(served(&mut turns, 0, 0, 1), [(1, 0, 1)]);
    assert_eq!(read(&mut turns, 0, reader(0, 1, 5)), []);
    assert_eq!(served(&mut turns, 1, 0, 1), [(2, 0, 1)]);
    assert_eq!(read(&mut turns, 1, reader(0, 1, 5)), []);
    assert_eq!(served(&mut turns, 2, 0, 1), [(0, 0, 1)]);
}

#[test]
fn nobody_is_waited_for_without_end_and_no_flood_grows_without_end() {
    let mut turns = Turns::new(Policy::Hio);
    read(&mut turns, 0, Reader { service_ns: u64::MAX, ..reader(0, 1, 5) });
    assert_eq!(turns.deadline_ns(), Some(LONGEST_PATIENCE_NS));
    read(&mut turns, 1, reader(0, 0, 5));
    let first_let_go = (1..).find(|&call| !read(&mut turns, 1, reader(0, call, 5)).is_empty()).unwrap();
    assert!(first_let_go <= MAX_JOINED as u64, "{first_let_go}");
}
