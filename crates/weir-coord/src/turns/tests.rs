use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use weir_engine::aggregators::{Policy, run};

/// A byte takes a nanosecond on one target.
fn scratch(order: Policy) -> Storage {
    Storage { targets: 4, bandwidth: vec![1e9], compute_nodes: 100, order, ..Storage::new("/scratch") }
}

fn part(target: u32, bytes: u64, shuffle_ns: u64) -> Part {
    Part { target, bytes, shuffle_ns }
}

fn collect(turns: &mut Turns, job: u32, call: u64, parts: &[Part]) -> Vec<(u32, u64, u32)> {
    turns.collect(0, JobId(job), call, "/scratch/in", parts);
    given(turns)
}

fn served(turns: &mut Turns, job: u32, call: u64, aggregator: u32) -> Vec<(u32, u64, u32)> {
    turns.served(0, JobId(job), call, aggregator);
    given(turns)
}

fn given(turns: &mut Turns) -> Vec<(u32, u64, u32)> {
    turns.given().drain(..).map(|(job, call, aggregator)| (job.0, call, aggregator)).collect()
}

#[test]
fn who_reads_alone_never_waits() {
    let mut turns = Turns::new(&[scratch(Policy::Hio)]);
    let all = collect(&mut turns, 0, 1, &[part(0, 1, 0), part(0, 1, 0), part(1, 1, 0)]);
    assert_eq!(all.len(), 3);
    assert_eq!(collect(&mut turns, 0, 2, &[part(0, 1, 0)]), [(0, 2, 0)]);
    assert_eq!(collect(&mut turns, 0, 2, &[part(0, 1, 0)]), [], "told twice");
}

#[test]
fn another_job_waits_for_the_target_and_no_longer() {
    let mut turns = Turns::new(&[scratch(Policy::Hio)]);
    collect(&mut turns, 0, 1, &[part(0, 1, 0), part(1, 1, 0)]);
    assert_eq!(collect(&mut turns, 1, 1, &[part(0, 1, 0), part(2, 1, 0)]), [(1, 1, 1)], "target 2 is free");
    assert_eq!(served(&mut turns, 0, 1, 1), []);
    assert_eq!(served(&mut turns, 0, 1, 0), [(1, 1, 0)]);
    assert_eq!(served(&mut turns, 0, 1, 0), [], "told twice");
}

#[test]
fn who_is_gone_or_stuck_or_has_gone_ahead_is_not_waited_for() {
    let blocked = |turns: &mut Turns| {
        collect(turns, 0, 1, &[part(0, 1_000, 0)]);
        collect(turns, 1, 1, &[part(0, 1, 0)]);
        collect(turns, 2, 1, &[part(0, 1, 0)]);
    };
    let mut turns = Turns::new(&[scratch(Policy::Hio)]);
    blocked(&mut turns);
    turns.leave(0, JobId(0));
    assert_eq!(given(&mut turns), [(1, 1, 0)]);

    let mut turns = Turns::new(&[scratch(Policy::Hio)]);
    blocked(&mut turns);
    let at_ns = turns.deadline_ns().unwrap();
    assert_eq!(at_ns, PATIENCE * 1_000 + PATIENCE_NS);
    turns.tick(at_ns - 1);
    assert_eq!(given(&mut turns), []);
    turns.tick(at_ns);
    assert_eq!(given(&mut turns), [(1, 1, 0)]);
    assert_eq!(served(&mut turns, 0, 1, 0), [], "late, and of no consequence");

    let mut turns = Turns::new(&[scratch(Policy::Hio)]);
    blocked(&mut turns);
    assert_eq!(served(&mut turns, 1, 1, 0), []);
    assert_eq!(served(&mut turns, 0, 1, 0), [(2, 1, 0)]);
    turns.leave(0, JobId(2));
    assert_eq!(turns.deadline_ns(), None);
}

#[test]
fn what_makes_no_sense_is_not_ordered() {
    let mut turns = Turns::new(&[scratch(Policy::Hio)]);
    collect(&mut turns, 0, 1, &[part(0, 1, 0), part(1, 1, 0)]);
    assert_eq!(collect(&mut turns, 1, 1, &[part(0, 1, 0), part(4, 1, 0)]).len(), 2, "no such target");
    assert_eq!(collect(&mut turns, 1, 2, &[]), []);
    turns.collect(0, JobId(1), 3, "/home/in", &[part(0, 1, 0)]);
    assert_eq!(given(&mut turns).len(), 1, "no such storage");
    let endless = [part(0, u64::MAX, u64::MAX)];
    for call in 10..10 + MAX_CALLS as u64 {
        assert_eq!(collect(&mut turns, 2, call, &endless), []);
    }
    assert_eq!(collect(&mut turns, 2, 99, &endless).len(), 1, "too many calls");
    turns.give_all();
    assert_eq!(given(&mut turns).len(), MAX_CALLS);
    assert_eq!(turns.deadline_ns(), None);
}

/// Calls of several jobs that all wait for a first one, which holds every target.
fn calls() -> impl Strategy<Value = Vec<Vec<Part>>> {
    let part = (0u32..4, 1u64..1000, 0u64..1000);
    let part = part.prop_map(|(target, bytes, shuffle_ns)| Part { target, bytes, shuffle_ns });
    prop::collection::vec(prop::collection::vec(part, 1..6), 1..6)
}

proptest! {
    /// Live, the targets serve in the order in which the engine's own simulation does.
    #[test]
    fn the_order_is_the_engines(calls in calls()) {
        for policy in [Policy::Hio, Policy::HioListing, Policy::Sio] {
            let blocker: Vec<Part> = (0..4).map(|target| part(target, 1, 0)).collect();
            let mut turns = Turns::new(&[scratch(policy)]);
            collect(&mut turns, 99, 0, &blocker);
            for (job, parts) in calls.iter().enumerate() {
                prop_assert_eq!(collect(&mut turns, job as u32, 0, parts), []);
            }
            let mut order = vec![Vec::new(); 4];
            let mut next: Vec<_> = (0..4).map(|aggregator| (99, 0, aggregator)).collect();
            while let Some((job, call, aggregator)) = next.pop() {
                if job != 99 {
                    let target = calls[job as usize][aggregator as usize].target as usize;
                    order[target].push(job as usize);
                }
                next.splice(0..0, served(&mut turns, job, call, aggregator));
            }
            let aggregators = |parts: &Vec<Part>| -> Vec<Aggregator> {
                let to = |p: &Part| Aggregator {
                    target: p.target as usize,
                    service_ns: p.bytes,
                    shuffle_ns: p.shuffle_ns,
                };
                parts.iter().map(to).collect()
            };
            let simulated: Vec<Vec<Aggregator>> = calls.iter().map(aggregators).collect();
            let expected = run(policy, &Options::default(), Mode::Read, 4, &simulated).unwrap().order;
            prop_assert_eq!(order, expected, "{:?}", policy);
        }
    }

    /// Whoever leaves, is stuck or goes ahead: every aggregator gets one turn, and targets have one job at a time
    /// unless somebody overstays.
    #[test]
    fn everybody_gets_one_turn(deeds in prop::collection::vec((0u8..4, 0u32..3, 0u64..3, calls()), 1..60)) {
        let mut turns = Turns::new(&[scratch(Policy::Hio)]);
        let mut owed: BTreeSet<(u32, u64, u32)> = BTreeSet::new();
        let mut inside: BTreeSet<(u32, u64, u32)> = BTreeSet::new();
        let mut now_ns = 0;
        for (deed, job, call, calls) in deeds {
            let known = |set: &BTreeSet<(u32, u64, u32)>| set.iter().any(|(j, c, _)| (*j, *c) == (job, call));
            match deed {
                0 if !known(&owed) && !known(&inside) => {
                    owed.extend((0..calls[0].len() as u32).map(|aggregator| (job, call, aggregator)));
                    turns.collect(now_ns, JobId(job), call, "/scratch/in", &calls[0]);
                }
                1 => if let Some((job, call, aggregator)) = inside.pop_first() {
                    turns.served(now_ns, JobId(job), call, aggregator);
                },
                2 => {
                    owed.retain(|(of, ..)| *of != job);
                    inside.retain(|(of, ..)| *of != job);
                    turns.leave(now_ns, JobId(job));
                }
                _ => {
                    now_ns += 200_000_000;
                    turns.tick(now_ns);
                }
            }
            for turn in given(&mut turns) {
                prop_assert!(owed.remove(&turn), "{turn:?} twice or for nobody");
                inside.insert(turn);
            }
        }
        for _ in 0..1000 {
            now_ns += PATIENCE * 1_000 + PATIENCE_NS;
            turns.tick(now_ns);
            given(&mut turns).iter().for_each(|turn| assert!(owed.remove(turn)));
        }
        prop_assert!(owed.is_empty(), "still waiting: {owed:?}");
    }
}
