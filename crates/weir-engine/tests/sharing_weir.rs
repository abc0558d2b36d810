//! What `weir` promises to single jobs, against fair sharing on the same jobs.

use weir_engine::engine::{Action, Engine, Event, JobId, JobInfo};
use weir_engine::sharing::PolicyKind;
use weir_engine::sim::{self, Phase, Program, SECOND_NS, Setting, Storage};

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
