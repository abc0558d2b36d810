//! What `weir` promises to single jobs, against fair sharing on the same jobs.

use weir_engine::engine::{Action, Engine, Event, JobId, JobInfo, Past, SeenAlone};
use weir_engine::sharing::PolicyKind;
use weir_engine::sim::{self, Mix, Phase, Program, SECOND_NS, Setting, Storage, fair_ends_ns, iosets};

fn job(cap: f64, release_s: u64, phases: impl IntoIterator<Item = (f64, f64)>) -> sim::Job {
    let ns = |seconds: f64| (seconds * SECOND_NS as f64).round() as u64;
    let both =
        |(compute_s, io_s)| [Phase::Compute { length_ns: ns(compute_s) }, Phase::Io { volume_ns: ns(io_s) }];
    sim::Job {
        info: JobInfo { cap: Some(cap), ..JobInfo::default() },
        cap,
        release_ns: release_s * SECOND_NS,
        program: Program::Listed(phases.into_iter().flat_map(both).collect()),
    }
}

/// By job: the progress under `weir`, as a part of that under fair sharing.
fn against_fair(jobs: &[sim::Job], from_s: u64, to_s: u64) -> Vec<f64> {
    let window_ns = (from_s * SECOND_NS, to_s * SECOND_NS);
    let setting =
        Setting { storage: Storage::WorkConserving, window_ns: Some(window_ns), stop_at_window: true };
    let progress = |kind: PolicyKind| {
        let outcome = sim::simulate(jobs, kind.build(), &setting);
        outcome.jobs.into_iter().map(|job| job.compute_ns + job.io_ns)
    };
    progress(PolicyKind::Weir).zip(progress(PolicyKind::Fair)).map(|(weir, fair)| weir / fair).collect()
}

#[track_caller]
fn assert_nobody_below(least: f64, jobs: &[sim::Job], from_s: u64, to_s: u64) {
    let progress = against_fair(jobs, from_s, to_s);
    assert!(progress.iter().all(|&part| part >= least), "{progress:.3?}");
}

/// A job that always wrote for a tenth of a second writes its last checkpoint, for up to a thousand.
#[test]
fn a_phase_that_outgrows_its_past_holds_nobody_up() {
    for io_s in [30, 100, 1000] {
        let mut jobs: Vec<sim::Job> =
            (0..5).map(|i| job(1.0, 0, vec![(9.0 + 0.1 * f64::from(i), 0.15); 400])).collect();
        jobs.push(job(1.0, 0, [vec![(10.0, 0.1); 20], vec![(10.0, io_s as f64)]].concat()));
        assert_nobody_below(0.98, &jobs, 212, 212 + io_s);
    }
}

/// A job comes that begins with a read of a thousand seconds.
#[test]
fn a_newcomer_that_reads_for_long_holds_nobody_up() {
    let jobs = [job(1.0, 0, vec![(9.0, 1.0); 300]), job(1.0, 20, [(0.0, 1000.0)])];
    assert_nobody_below(0.98, &jobs, 20, 1020);
}

/// Jobs that can use one or two per cent of the storage do not wait for those that can use all of it.
#[test]
fn small_caps_run_beside_not_after() {
    let mut jobs: Vec<sim::Job> = (0..4).map(|i| job(1.0, 0, vec![(9.0 + f64::from(i), 1.0); 300])).collect();
    jobs.push(job(0.01, 0, vec![(1.0, 0.1); 300]));
    jobs.push(job(0.02, 0, vec![(1.0, 2.0); 300]));
    assert_nobody_below(0.98, &jobs, 50, 1050);
}

/// With node seconds counted, a large job is not held up for small ones that wait anyway (PerSched's set 2).
#[test]
fn nodes_count() {
    let with_nodes = |nodes: u64, job: sim::Job| sim::Job { info: JobInfo { nodes, ..job.info }, ..job };
    let mut jobs = vec![with_nodes(128, job(0.427, 0, vec![(15360.0, 141.0); 50]))];
    let small = with_nodes(64, job(0.213, 0, vec![(76.8, 78.6); 5000]));
    jobs.extend(std::iter::repeat_n(small, 8));
    let setting = Setting {
        storage: Storage::WorkConserving,
        window_ns: Some((100_000 * SECOND_NS, 600_000 * SECOND_NS)),
        stop_at_window: true,
    };
    let efficiency = |kind: PolicyKind| sim::simulate(&jobs, kind.build(), &setting).sys_efficiency();
    let (weir, round_robin) = (efficiency(PolicyKind::Weir), efficiency(PolicyKind::RoundRobin));
    assert!(weir > 0.99 * round_robin, "{weir} {round_robin}");
}

/// A job that leaves in the middle of a huge phase does not change what others are expected to move.
#[test]
fn a_phase_cut_short_is_no_example() {
    let answers = |cut_short: bool| {
        let (mut engine, mut actions) = (Engine::new(PolicyKind::Weir.build()), Vec::new());
        let mut all: Vec<Action> = Vec::new();
        let mut tell = |at_s: u64, event: Event| {
            engine.step(at_s * SECOND_NS, event, &mut actions);
            all.extend(&actions);
        };
        let info = JobInfo { cap: Some(1.0), ..JobInfo::default() };
        let phase = |tell: &mut dyn FnMut(u64, Event), job: JobId, at_s: u64, bytes: u64| {
            tell(at_s, Event::PhaseBegan { job, bytes: None });
            tell(at_s + 1, Event::BytesMoved { job, bytes });
        };
        let [known, guest, new] = [0, 1, 2].map(JobId);
        tell(0, Event::JobJoined { job: known, info });
        phase(&mut tell, known, 10, 1_000_000_000);
        tell(11, Event::PhaseEnded { job: known });
        tell(12, Event::JobJoined { job: guest, info });
        if cut_short {
            phase(&mut tell, guest, 13, 1 << 50);
        }
        tell(15, Event::JobLeft { job: guest });
        tell(16, Event::JobJoined { job: new, info });
        tell(30, Event::PhaseBegan { job: known, bytes: None });
        tell(30, Event::PhaseBegan { job: new, bytes: None });
        all.into_iter().filter(|action| matches!(action, Action::Hold { .. })).collect::<Vec<_>>()
    };
    assert_eq!(answers(true), answers(false));
}

/// Steps an engine and answers what it did.
fn step(engine: &mut Engine, now_s: u64, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    engine.step(now_s * SECOND_NS, event, &mut actions);
    actions
}

fn join(engine: &mut Engine, now_s: u64, job: JobId, past: Past) {
    let info = JobInfo { past, ..JobInfo::default() };
    assert_eq!(step(engine, now_s, Event::JobJoined { job, info }), []);
}

/// Another engine takes over: the job that was stalled before goes first there too, though the other one asked before it.
#[test]
fn stalls_from_before_a_job_joined_count() {
    let first_served = |past: Past| {
        let mut engine = Engine::new(PolicyKind::Weir.build());
        let [served, early, stalled] = [0, 1, 2].map(JobId);
        for (job, past) in [(served, Past::default()), (early, Past::default()), (stalled, past)] {
            join(&mut engine, 10_000, job, past);
        }
        for (job, bytes) in [(served, 1), (early, 1000), (stalled, 1000)] {
            step(&mut engine, 10_010, Event::PhaseBegan { job, bytes: Some(bytes) });
        }
        let actions = step(&mut engine, 10_010, Event::PhaseEnded { job: served });
        actions.into_iter().find_map(|action| match action {
            Action::Grant { job, .. } => Some(job),
            _ => None,
        })
    };
    let past = |life_s: u64, stalled_s: u64| Past {
        life_ns: life_s * SECOND_NS,
        stalled_ns: stalled_s * SECOND_NS,
        ..Past::default()
    };
    assert_eq!(first_served(past(0, 0)), Some(JobId(1)), "nobody was stalled before");
    assert_eq!(first_served(past(5_000, 1_000)), Some(JobId(2)));
    assert_eq!(first_served(past(500_000, 100_000)), Some(JobId(2)), "a life longer than the clock's");
}

/// What an engine has seen a job do alone, another one takes for what the job can use.
#[test]
fn caps_learnt_by_another_engine_count() {
    let [slow, fast] = [0, 1].map(JobId);
    let mut before = Engine::new(PolicyKind::Weir.build());
    for (began_s, job, bytes) in [(10, slow, 1_000_000), (20, fast, 10_000_000)] {
        join(&mut before, 0, job, Past::default());
        step(&mut before, began_s, Event::PhaseBegan { job, bytes: None });
        step(&mut before, began_s + 5, Event::BytesMoved { job, bytes });
        step(&mut before, began_s + 5, Event::PhaseEnded { job });
    }
    let seen = |job| before.seen_alone(job).expect("the policy keeps it");
    assert_eq!(seen(slow), SeenAlone { ns: 5 * SECOND_NS, bytes: 1_000_000 });
    let shares = |of: &dyn Fn(JobId) -> SeenAlone| {
        let mut after = Engine::new(PolicyKind::Weir.build());
        for job in [slow, fast] {
            join(&mut after, 100, job, Past { alone: of(job), ..Past::default() });
            assert_eq!(after.seen_alone(job), Some(of(job)));
        }
        for job in [slow, fast] {
            step(&mut after, 101, Event::PhaseBegan { job, bytes: None });
        }
        [slow, fast].map(|job| after.job(job).expect("joined").share())
    };
    assert_eq!(shares(&|_| SeenAlone::default()), [1.0, 0.0], "nothing is known");
    let [slow_share, fast_share] = shares(&seen);
    assert!((0.1..0.11).contains(&slow_share) && fast_share > 0.89, "{slow_share} {fast_share}");
}

/// The jobs of a workload, each of which has shown its volume once, with the storage to itself, before all begin.
fn known(mix: &Mix, seed: u64) -> Vec<sim::Job> {
    let mut jobs = iosets(mix, seed);
    let introduced = |job: &sim::Job| job.program.phases().nth(1);
    let lengths_ns: Vec<u64> = jobs
        .iter()
        .map(|job| match introduced(job) {
            Some(Phase::Io { volume_ns }) => volume_ns + SECOND_NS,
            _ => 0,
        })
        .collect();
    let all_ns: u64 = lengths_ns.iter().sum();
    let mut before_ns = 0;
    for (job, length_ns) in jobs.iter_mut().zip(lengths_ns) {
        let wait = |length_ns: u64| Phase::Compute { length_ns };
        let first = [Some(wait(before_ns)), introduced(job), Some(wait(all_ns - before_ns - length_ns))];
        before_ns += length_ns;
        let phases = first.into_iter().flatten().chain(job.program.phases());
        job.program = Program::Listed(phases.take(400).collect());
    }
    jobs
}

/// Where sizes are known, no phase ends later than it would have if the storage had been shared fairly from its beginning on,
/// in overload neither.
#[test]
fn no_phase_of_known_size_ends_later_than_fairly() {
    let setting = Setting { storage: Storage::WorkConserving, window_ns: None, stop_at_window: false };
    for (high, stress, seed) in
        [(0, 0.8, 1), (20, 0.8, 2), (40, 0.8, 3), (0, 1.2, 4), (20, 1.2, 5), (40, 1.2, 6)]
    {
        let jobs = known(&Mix { stress, ..Mix::paper(high) }, seed);
        let caps = vec![1.0; jobs.len()];
        let (_, phases) = sim::simulate_phases(&jobs, PolicyKind::Weir.build(), &setting);
        let fair_ns = fair_ends_ns(&phases, &caps);
        let late_s = |(phase, fair_ns): (&sim::PhaseOutcome, &u64)| {
            (phase.ended_ns.unwrap_or(u64::MAX) as f64 - *fair_ns as f64) / SECOND_NS as f64
        };
        let latest_s = phases.iter().zip(&fair_ns).map(late_s).fold(0.0, f64::max);
        assert!(latest_s <= 0.05, "{high} of high frequency, load {stress}: {latest_s} s late");
        let (_, phases) = sim::simulate_phases(&jobs, PolicyKind::Set10.build(), &setting);
        let set10_s = phases.iter().zip(fair_ends_ns(&phases, &caps).iter()).map(late_s).fold(0.0, f64::max);
        assert!(set10_s > 1.0, "a policy that promises nothing shows what would be seen: {set10_s}");
    }
}
