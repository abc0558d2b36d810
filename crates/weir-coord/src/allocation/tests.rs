use super::*;
use weir_engine::resources::Policy;

const SECOND_NS: u64 = 1_000_000_000;

/// Eight targets, on which a job gains up to four.
fn scratch() -> Storage {
    let bandwidth = vec![1e9, 1.9e9, 2.7e9, 3.4e9, 3.3e9, 3.2e9];
    Storage { targets: 8, bandwidth, compute_nodes: 100, ..Storage::new("/scratch") }
}

fn info() -> FileInfo {
    FileInfo { path: "/scratch/run/out".into(), ranks: 64, nodes: 4, ..FileInfo::default() }
}

/// Half of its time in I/O on a single target.
fn busy() -> Demand {
    Demand { w_iter_ns: Some(2e9), phase_bytes: Some(1_000_000_000) }
}

fn ask(allocations: &mut Allocations, job: u32, demand: Demand) -> Allotment {
    allocations.ask(0, JobId(job), (job as Peer, 1), &info(), demand)
}

#[test]
fn without_a_description_there_is_no_opinion() {
    let nowhere = FileInfo { path: "/home/out".into(), ..info() };
    for mut allocations in [Allocations::default(), Allocations::new(&[scratch()])] {
        let given = allocations.ask(0, JobId(0), (0, 1), &nowhere, busy());
        assert_eq!(given, Allotment::default());
    }
}

#[test]
fn a_job_alone_gets_what_it_gains_from() {
    let mut allocations = Allocations::new(&[scratch()]);
    let given = ask(&mut allocations, 0, busy());
    assert_eq!((given.aggregators, given.stripes, &given.targets[..]), (4, 4, &[0, 1, 2, 3][..]));
    assert_eq!(ask(&mut allocations, 1, Demand::default()).targets, [4, 5, 6, 7], "nothing known of it");
}

#[test]
fn what_the_program_has_said_is_not_decided() {
    let mut allocations = Allocations::new(&[scratch()]);
    let mut given = |ranks, fixed_aggregators, fixed_stripes| {
        let file = FileInfo { ranks, fixed_aggregators, fixed_stripes, ..info() };
        let given = allocations.ask(0, JobId(0), (0, 1), &file, busy());
        (given.aggregators, given.stripes, given.targets.len())
    };
    assert_eq!(given(64, 0, 0), (4, 4, 4));
    assert_eq!(given(3, 0, 0), (3, 4, 4), "no more aggregators than ranks");
    assert_eq!(given(64, 7, 0), (0, 4, 4));
    assert_eq!(given(64, 0, 6), (6, 0, 0), "as many aggregators as its own stripes");
    assert_eq!(given(64, 0, u32::MAX), (8, 0, 0), "on all targets that there are");
    assert_eq!(given(64, 7, 6), (0, 0, 0));
}

#[test]
fn files_of_a_job_go_to_the_same_targets_until_all_are_closed() {
    let allocation = Policy::parse("ta+gc").unwrap();
    let mut allocations = Allocations::new(&[Storage { allocation, ..scratch() }]);
    let job = JobId(0);
    let first = ask(&mut allocations, 0, Demand::default());
    // What is known by now would make it narrow: it is nearly always in I/O.
    let greedy = Demand { w_iter_ns: Some(1.0), phase_bytes: Some(1 << 40) };
    for other in 1..20 {
        allocations.ask(0, JobId(other), (other as Peer, 1), &info(), greedy);
    }
    assert_eq!(allocations.ask(0, job, (0, 2), &info(), greedy).targets, first.targets);
    allocations.release(0, job, (0, 1));
    assert_eq!(allocations.ask(0, job, (0, 3), &info(), greedy).targets, first.targets);
    for request in [2, 3, 3, 77] {
        allocations.release(0, job, (0, request));
    }
    assert_eq!(allocations.of_job(job).map(|(_, _, files)| files).collect::<Vec<_>>(), [0]);
    assert!(allocations.ask(0, job, (0, 4), &info(), greedy).stripes < first.stripes);
}

#[test]
fn who_leaves_makes_room_and_who_closes_does_after_a_while() {
    let always = Demand { w_iter_ns: Some(1.0), phase_bytes: Some(1_000_000_000) };
    for (away, later_ns, room) in [("gone", 0, true), ("closed", 0, false), ("closed", LINGER_NS, true)] {
        let mut allocations = Allocations::new(&[scratch()]);
        let first = ask(&mut allocations, 0, always);
        let second = ask(&mut allocations, 1, busy());
        assert!(first.targets.iter().all(|target| !second.targets.contains(target)), "{first:?} {second:?}");
        match away {
            "gone" => allocations.job_gone(JobId(0)),
            _ => allocations.node_gone(0, JobId(0), 0),
        }
        let third = allocations.ask(later_ns, JobId(2), (2, 1), &info(), always);
        assert_eq!(third.targets == first.targets, room, "{away} for {later_ns} ns: {third:?}");
        assert_eq!(allocations.of_job(JobId(0)).count(), usize::from(!room));
    }
}

#[test]
fn what_another_coordinator_decided_stays() {
    let mut allocations = Allocations::new(&[scratch()]);
    for targets in [&[][..], &[3, 3], &[8], &[0, 1, 2, 3, 4, 5, 6]] {
        allocations.adopt(JobId(0), (0, 1), &info(), targets, busy());
        assert_eq!(allocations.of_job(JobId(0)).count(), 0, "{targets:?}");
    }
    allocations.adopt(JobId(0), (0, 1), &info(), &[2, 5], busy());
    allocations.adopt(JobId(0), (0, 2), &info(), &[1], busy());
    assert_eq!(allocations.of_job(JobId(0)).collect::<Vec<_>>(), [("/scratch", &[2, 5][..], 2)]);
    assert_eq!(allocations.ask(0, JobId(0), (0, 3), &info(), busy()).targets, [2, 5]);
    let given = ask(&mut allocations, 1, busy());
    assert!(!given.targets.contains(&2) && !given.targets.contains(&5), "{given:?}");
}

#[test]
fn another_description_keeps_what_it_does_not_change() {
    let home = Storage { path: "/home".into(), ..scratch() };
    let mut allocations = Allocations::new(&[scratch(), home.clone()]);
    ask(&mut allocations, 0, busy());
    let at_home = FileInfo { path: "/home/out".into(), ..info() };
    allocations.ask(0, JobId(0), (0, 2), &at_home, busy());
    allocations.replace(&[Storage { targets: 9, ..scratch() }, home]);
    assert_eq!(allocations.of_job(JobId(0)).map(|(path, _, _)| path).collect::<Vec<_>>(), ["/home"]);
    allocations.replace(&[Storage::new("/nonsense")]);
    assert_eq!(allocations.of_job(JobId(0)).count(), 0);
}

#[test]
fn jobs_and_files_are_bounded() {
    let mut allocations = Allocations::new(&[scratch()]);
    for job in 0..MAX_CLAIMS as u32 {
        assert!(ask(&mut allocations, job, busy()).stripes > 0);
    }
    assert_eq!(ask(&mut allocations, MAX_CLAIMS as u32, busy()), Allotment::default());
    for request in 0..2 * MAX_FILES as u64 {
        allocations.ask(SECOND_NS, JobId(0), (0, request), &info(), busy());
    }
    assert_eq!(allocations.of_job(JobId(0)).map(|(_, _, files)| files).collect::<Vec<_>>(), [MAX_FILES]);
}

#[test]
fn numbers_without_sense_do_no_harm() {
    let mut allocations = Allocations::new(&[scratch()]);
    for (job, (bytes, w_iter_ns)) in
        [(0, 0.0), (u64::MAX, 1.0), (1, f64::MAX), (1, f64::NAN), (1, f64::INFINITY)].into_iter().enumerate()
    {
        let demand = Demand { w_iter_ns: Some(w_iter_ns), phase_bytes: Some(bytes) };
        let file = FileInfo { nodes: u32::MAX, ranks: 0, bytes, ..info() };
        let given = allocations.ask(0, JobId(job as u32), (job, 1), &file, demand);
        assert_eq!(given.aggregators, 0, "no ranks");
    }
}
