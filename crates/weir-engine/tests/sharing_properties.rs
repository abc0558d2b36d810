//! Properties of every sharing policy, under events that make sense and events that do not, and of
//! the simulator that drives them.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_engine::engine::{Action, Engine, Event, JobId, JobInfo};
use weir_engine::sharing::PolicyKind;
use weir_engine::sim::{self, Mix, Phase, Program, SECOND_NS, Setting, Storage};

/// What a host that follows the actions believes.
#[derive(Default)]
struct Host {
    /// Jobs in a phase.
    asking: BTreeSet<JobId>,
    /// With what each said it can use.
    joined: BTreeMap<JobId, Option<f64>>,
    shares: BTreeMap<JobId, f64>,
}

impl Host {
    fn see(&mut self, event: Event, actions: &[Action]) {
        match event {
            Event::JobJoined { job, info } => {
                self.joined.entry(job).or_insert(info.cap);
            }
            Event::PhaseBegan { job, .. } if self.joined.contains_key(&job) => {
                self.asking.insert(job);
            }
            Event::PhaseEnded { job } | Event::JobLeft { job } => {
                self.asking.remove(&job);
                self.shares.remove(&job);
                if matches!(event, Event::JobLeft { .. }) {
                    self.joined.remove(&job);
                }
            }
            _ => {}
        }
        for action in actions {
            match *action {
                Action::Grant { job, share } | Action::Share { job, share } => {
                    self.shares.insert(job, share);
                }
                Action::ShareAll { share } => self.shares.values_mut().for_each(|s| *s = share),
                Action::Hold { job } => {
                    self.shares.remove(&job);
                }
                Action::Timer { .. } => {}
            }
        }
    }
}

impl Host {
    /// What those who ask can use together, at most all; `None` where the policy has to find that out.
    fn usable(&self, kind: PolicyKind) -> Option<f64> {
        let caps = self.asking.iter().map(|job| self.joined[job]);
        match kind {
            PolicyKind::Exclusive | PolicyKind::Fair | PolicyKind::Set10 => Some(1.0),
            PolicyKind::Weir => caps.sum::<Option<f64>>().map(|sum| sum.min(1.0)),
            _ => Some(caps.map(|cap| cap.unwrap_or(1.0)).sum::<f64>().min(1.0)),
        }
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    let job = (0u32..6).prop_map(JobId);
    let cap = prop_oneof![Just(None), Just(Some(1.0)), (0.01f64..1.0).prop_map(Some)];
    let info = (prop::option::of(1u64..2_000_000_000_000), cap, 1u64..100)
        .prop_map(|(w_iter_ns, cap, nodes)| JobInfo { w_iter_ns, cap, nodes, ..JobInfo::default() });
    prop_oneof![
        2 => (job.clone(), info).prop_map(|(job, info)| Event::JobJoined { job, info }),
        4 => (job.clone(), prop::option::of(any::<u64>()))
            .prop_map(|(job, bytes)| Event::PhaseBegan { job, bytes }),
        1 => (job.clone(), prop::option::of(any::<u64>()))
            .prop_map(|(job, bytes)| Event::PhaseAnnounced { job, bytes }),
        1 => (job.clone(), prop::option::of(1u64..2_000_000_000_000))
            .prop_map(|(job, w_iter_ns)| Event::PeriodTold { job, w_iter_ns }),
        3 => (job.clone(), 0u64..10_000_000_000).prop_map(|(job, bytes)| Event::BytesMoved { job, bytes }),
        4 => job.clone().prop_map(|job| Event::PhaseEnded { job }),
        1 => job.prop_map(|job| Event::JobLeft { job }),
        1 => Just(Event::TimePassed),
    ]
}

fn any_policy() -> impl Strategy<Value = PolicyKind> {
    prop::sample::select(PolicyKind::ALL.to_vec())
}

/// Times mostly go on; now and then they go back.
fn any_history() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let step = prop_oneof![9 => 0i64..100_000_000_000, 1 => -50_000_000_000i64..0];
    prop::collection::vec((step, any_event()), 1..200).prop_map(|steps| {
        let mut now_ns = 0i64;
        let at = |(step, event): (i64, Event)| {
            now_ns = (now_ns + step).max(0);
            (now_ns as u64, event)
        };
        steps.into_iter().map(at).collect()
    })
}

#[test]
fn the_end_of_time() {
    for kind in PolicyKind::ALL {
        let (mut engine, mut actions) = (Engine::new(kind.build()), Vec::new());
        let jobs = || (0..9).map(JobId);
        let about_all = |event: fn(JobId) -> Event| jobs().map(event).collect::<Vec<_>>();
        let events = [
            about_all(|job| Event::JobJoined { job, info: JobInfo::default() }),
            about_all(|job| Event::PhaseBegan { job, bytes: None }),
            about_all(|job| Event::BytesMoved { job, bytes: u64::MAX }),
            vec![Event::TimePassed],
            about_all(|job| Event::PhaseEnded { job }),
            about_all(|job| Event::JobLeft { job }),
        ];
        for (at, event) in events.into_iter().flatten().enumerate() {
            engine.step(if at == 0 { 0 } else { u64::MAX }, event, &mut actions);
        }
        assert!(jobs().all(|job| engine.job(job).is_none()), "{kind}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// No panic; shares sum to at most one and are held only by those who ask; everybody who asks
    /// is answered; and nothing is left that those who ask can use.
    #[test]
    fn shares(kind in any_policy(), history in any_history()) {
        let (mut engine, mut actions, mut host) = (Engine::new(kind.build()), Vec::new(), Host::default());
        for (now_ns, event) in history {
            engine.step(now_ns, event, &mut actions);
            host.see(event, &actions);
            let sum: f64 = host.shares.values().sum();
            prop_assert!(sum <= 1.0 + 1e-9, "{kind}: shares sum to {sum}");
            prop_assert!(host.shares.keys().all(|job| host.asking.contains(job)), "{kind}: {:?}", host.shares);
            prop_assert!(host.shares.values().all(|&share| share > 0.0));
            if let Event::PhaseBegan { job, .. } = event
                && host.joined.contains_key(&job)
            {
                let answers = actions.iter().filter(
                    |action| matches!(action, Action::Grant { job: j, .. } | Action::Hold { job: j } if *j == job));
                prop_assert_eq!(answers.count(), 1, "{}: {:?}", kind, actions);
            }
            if kind.serves_who_is_alone() && !host.asking.is_empty() {
                prop_assert!(!host.shares.is_empty(), "{kind}: nobody is served, {:?} ask", host.asking);
                let usable = host.usable(kind).unwrap_or(0.0);
                prop_assert!(sum >= usable - 1e-6, "{kind}: {sum} of {usable}, {:?} ask", host.asking);
            }
        }
    }

    /// IO-SETS: at most one job of a set at a time, and the first that came.
    #[test]
    fn one_of_a_set(history in any_history()) {
        let (mut engine, mut actions, mut host) =
            (Engine::new(PolicyKind::Set10.build()), Vec::new(), Host::default());
        let mut set_of = BTreeMap::new();
        for (now_ns, mut event) in history {
            // A job whose time is not known is in no set until it is.
            match &mut event {
                Event::JobJoined { info: JobInfo { w_iter_ns, .. }, .. } | Event::PeriodTold { w_iter_ns, .. } => {
                    w_iter_ns.get_or_insert(SECOND_NS);
                }
                _ => {}
            }
            engine.step(now_ns, event, &mut actions);
            if let Event::PhaseBegan { job, .. } = event
                && let Some(entry) = engine.job(job)
                && !host.asking.contains(&job)
            {
                let set = (entry.w_iter_ns().max(1.0) * 1e-9).log10().round() as i32;
                set_of.insert(job, (set, entry.arrival()));
            }
            host.see(event, &actions);
            let mut first: BTreeMap<i32, (u64, JobId)> = BTreeMap::new();
            for job in &host.asking {
                let (set, arrival) = set_of[job];
                let one = first.entry(set).or_insert((arrival, *job));
                *one = (*one).min((arrival, *job));
            }
            let expected: BTreeSet<JobId> = first.values().map(|&(_, job)| job).collect();
            prop_assert_eq!(host.shares.keys().copied().collect::<BTreeSet<_>>(), expected);
        }
    }

    /// Whatever the policy, all bytes are moved, nobody is faster than alone, all finish, the storage
    /// is never idle for longer than it must be, and the same jobs give the same answer.
    #[test]
    fn conservation(kind in any_policy(), jobs in prop::collection::vec(any_job(), 1..8)) {
        let setting = Setting { storage: Storage::WorkConserving, window_ns: None, stop_at_window: false };
        let outcome = sim::simulate(&jobs, kind.build(), &setting);
        prop_assert_eq!(&outcome, &sim::simulate(&jobs, kind.build(), &setting));
        for (job, result) in jobs.iter().zip(&outcome.jobs) {
            let Program::Listed(phases) = &job.program else { unreachable!("listed above") };
            let (mut compute_ns, mut io_ns) = (0.0, 0.0);
            for phase in phases {
                match phase {
                    Phase::Compute { length_ns } => compute_ns += *length_ns as f64,
                    Phase::Io { volume_ns } => io_ns += *volume_ns as f64 / job.cap,
                }
            }
            let finish_ns = result.finish_ns.expect("nobody waits for ever") as f64;
            prop_assert!((result.compute_ns - compute_ns).abs() < 1.0);
            prop_assert!((result.io_ns - io_ns).abs() < 1e-6 * io_ns + 1.0, "{} {}", result.io_ns, io_ns);
            let alone_ns = job.release_ns as f64 + compute_ns + io_ns;
            prop_assert!(finish_ns >= alone_ns - 1e-6 * alone_ns - 10.0, "{finish_ns} {alone_ns}");
        }
    }
}

fn any_job() -> impl Strategy<Value = sim::Job> {
    let phase = prop_oneof![
        (0u64..100 * SECOND_NS).prop_map(|length_ns| Phase::Compute { length_ns }),
        (0u64..20 * SECOND_NS).prop_map(|volume_ns| Phase::Io { volume_ns }),
    ];
    let phases = prop::collection::vec(phase, 0..12);
    (phases, 0.05f64..=1.0, any::<bool>(), 0u64..50 * SECOND_NS).prop_map(
        |(phases, cap, told, release_ns)| {
            let info = JobInfo { cap: told.then_some(cap), ..JobInfo::default() };
            sim::Job { info, cap, release_ns, program: Program::Listed(phases) }
        },
    )
}

/// Fifty small jobs that keep the storage busy without pause, and one large one, which a rule of "shortest first" would never
/// serve: no phase of its, though nobody knows their sizes, takes longer than twice what it would take in fair sharing with what came.
#[test]
fn nobody_starves() {
    let small = sim::Job {
        info: JobInfo { w_iter_ns: Some(SECOND_NS), cap: Some(1.0), ..JobInfo::default() },
        cap: 1.0,
        release_ns: 0,
        program: Program::Iterations {
            compute_ns: SECOND_NS / 2,
            volume_ns: SECOND_NS / 2,
            count: 1000,
            noise: 0.0,
            seed: 0,
        },
    };
    let large = sim::Job {
        info: JobInfo { w_iter_ns: Some(1000 * SECOND_NS), cap: Some(1.0), ..JobInfo::default() },
        program: Program::Listed(vec![
            Phase::Io { volume_ns: 10 * SECOND_NS },
            Phase::Compute { length_ns: SECOND_NS },
            Phase::Io { volume_ns: 50 * SECOND_NS },
        ]),
        ..small.clone()
    };
    let jobs: Vec<sim::Job> = std::iter::once(large).chain(std::iter::repeat_n(small, 50)).collect();
    let setting = Setting { storage: Storage::WorkConserving, window_ns: None, stop_at_window: false };
    let (outcome, phases) = sim::simulate_phases(&jobs, PolicyKind::Weir.build(), &setting);
    let finish = |index: usize| outcome.jobs[index].finish_ns.expect("all finish") as f64 / 1e9;
    let last = (1..jobs.len()).map(finish).fold(0.0, f64::max);
    assert!(last > 24_000.0, "the small ones are an overload of 25 times: {last}");
    assert!(finish(0) < 0.3 * last, "{} of {last}", finish(0));
    let fair_ns = sim::fair_ends_ns(&phases, &vec![1.0; jobs.len()]);
    for (phase, fair_ns) in phases.iter().zip(fair_ns).filter(|(phase, _)| phase.job == 0) {
        let length_ns = |end_ns: u64| (end_ns - phase.began_ns) as f64;
        let (took_ns, fair_ns) = (length_ns(phase.ended_ns.expect("all finish")), length_ns(fair_ns));
        assert!(took_ns <= 2.0 * fair_ns + 5e7, "{took_ns} ns, fairly {fair_ns}");
    }
}

/// However long a phase, and however long somebody waits for it, it takes few steps.
#[test]
fn long_phases_take_few_looks() {
    let long = Program::Listed(vec![Phase::Io { volume_ns: 1_000_000_000 * SECOND_NS }]);
    let job = sim::Job { info: JobInfo::default(), cap: 1.0, release_ns: 0, program: long };
    let setting = Setting { storage: Storage::WorkConserving, window_ns: None, stop_at_window: false };
    for kind in PolicyKind::ALL {
        let outcome = sim::simulate(&[job.clone(), job.clone()], kind.build(), &setting);
        assert!(outcome.jobs.iter().all(|job| job.finish_ns.is_some()), "{kind}");
        assert!(outcome.steps < 1_000_000, "{kind}: {} steps", outcome.steps);
    }
}

/// Jobs come until they are more than a timetable is made for, all in their phase, and go again.
#[test]
fn a_crowd_comes_and_goes() {
    for kind in [PolicyKind::Periodic, PolicyKind::Apio, PolicyKind::ApioBarrier] {
        let (mut engine, mut actions, mut host) = (Engine::new(kind.build()), Vec::new(), Host::default());
        let mut now_ns = 0;
        let mut tell = |event: Event, host: &mut Host| {
            now_ns += SECOND_NS;
            engine.step(now_ns, event, &mut actions);
            host.see(event, &actions);
            let sum: f64 = host.shares.values().sum();
            assert!(sum <= 1.0 + 1e-9, "{kind}: shares sum to {sum}");
            assert!(host.shares.keys().all(|job| host.asking.contains(job)), "{kind}: {:?}", host.shares);
            sum
        };
        for round in 0..3 {
            for job in (0..100).map(JobId) {
                tell(Event::JobJoined { job, info: JobInfo::default() }, &mut host);
                let sum = tell(Event::PhaseBegan { job, bytes: None }, &mut host);
                let bound = kind == PolicyKind::ApioBarrier && job.0 < 64;
                assert!(bound || sum > 0.999, "{kind}: {sum} is used by {} in round {round}", job.0 + 1);
            }
            for job in (0..100).map(JobId) {
                tell(Event::PhaseEnded { job }, &mut host);
                tell(Event::PhaseBegan { job, bytes: None }, &mut host);
                tell(Event::PhaseEnded { job }, &mut host);
                tell(Event::JobLeft { job }, &mut host);
            }
            assert!(host.shares.is_empty(), "{kind}: {:?}", host.shares);
        }
    }
}

/// A served job that hangs does not keep the others from the storage.
#[test]
fn a_hung_job_is_overtaken() {
    let (mut engine, mut actions) = (Engine::new(PolicyKind::Weir.build()), Vec::new());
    let mut timer_ns = None;
    let mut served = None;
    let mut tell = |now_ns: u64, event: Event, timer_ns: &mut Option<u64>, served: &mut Option<JobId>| {
        engine.step(now_ns, event, &mut actions);
        for action in &actions {
            match *action {
                Action::Timer { at_ns } => *timer_ns = Some(at_ns),
                Action::Grant { job, .. } => *served = Some(job),
                _ => {}
            }
        }
    };
    let info = JobInfo { cap: Some(1.0), ..JobInfo::default() };
    for job in [JobId(0), JobId(1)] {
        tell(0, Event::JobJoined { job, info }, &mut timer_ns, &mut served);
        tell(SECOND_NS, Event::PhaseBegan { job, bytes: None }, &mut timer_ns, &mut served);
    }
    assert_eq!(served, Some(JobId(0)));
    for _ in 0..1000 {
        let Some(at_ns) = timer_ns.take() else { break };
        tell(at_ns, Event::TimePassed, &mut timer_ns, &mut served);
        if served == Some(JobId(1)) {
            return;
        }
    }
    panic!("job 1 was never served");
}

/// IO-SETS eq. (1): k jobs of equal volume that begin together under fair-share all take k times as
/// long; exclusively, the i-th takes i times as long.
#[test]
fn closed_forms() {
    let setting = Setting { storage: Storage::WorkConserving, window_ns: None, stop_at_window: false };
    for k in 1..=10u64 {
        let job = sim::Job {
            info: JobInfo { w_iter_ns: Some(7 * SECOND_NS), ..JobInfo::default() },
            cap: 1.0,
            release_ns: 0,
            program: Program::Listed(vec![
                Phase::Compute { length_ns: SECOND_NS },
                Phase::Io { volume_ns: 6 * SECOND_NS },
            ]),
        };
        let jobs = vec![job; k as usize];
        let finishes = |kind: PolicyKind| -> Vec<u64> {
            let outcome = sim::simulate(&jobs, kind.build(), &setting);
            outcome.jobs.iter().map(|job| job.finish_ns.expect("all finish")).collect()
        };
        let second = |s: u64| s * SECOND_NS;
        assert_eq!(finishes(PolicyKind::Fair), vec![second(1 + 6 * k); k as usize]);
        let in_turn: Vec<u64> = (1..=k).map(|i| second(1 + 6 * i)).collect();
        for kind in [PolicyKind::Exclusive, PolicyKind::Set10, PolicyKind::RoundRobin] {
            assert_eq!(finishes(kind), in_turn, "{kind}");
        }
    }
}

/// The generator keeps what section 4 of IO-SETS promises: N, n_H, n_M, n_L and the I/O stress.
#[test]
fn workloads_have_the_stress_asked_for() {
    for high in [0, 17, 40] {
        let jobs = sim::iosets(&Mix::paper(high), 7);
        assert_eq!(jobs, sim::iosets(&Mix::paper(high), 7));
        assert_eq!(jobs.len(), 60);
        let (mut stress, mut fast) = (0.0, 0);
        for job in &jobs {
            let Program::Iterations { compute_ns, volume_ns, .. } = job.program else { panic!("iterations") };
            stress += volume_ns as f64 / (compute_ns + volume_ns) as f64;
            fast += u64::from(compute_ns + volume_ns < 20 * SECOND_NS);
        }
        assert!((stress - 0.8).abs() < 1e-6, "{stress}");
        assert_eq!(fast, high);
    }
}
