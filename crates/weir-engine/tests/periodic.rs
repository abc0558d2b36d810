//! Timetables in closed form, golden ones, and those published for PerSched.

use std::fmt::Write as _;
use std::path::Path;
use weir_engine::engine::InstanceInfo;
use weir_engine::sharing::periodic::{
    Application, Periodic, Plan, Planning, Search, Timetable, persched, shortest_period_s,
};
use weir_engine::sharing::{ApioBarrier, Policy, PolicyKind};
use weir_engine::sim::{Lengths, Outcome, Setting, Storage, as_jobs, simulate};

fn application(nodes: f64, cap: f64, volume: f64, work_s: f64) -> Application {
    Application { nodes, cap, volume, work_s }
}

fn counts(plan: &Plan) -> Vec<usize> {
    plan.instances.iter().map(Vec::len).collect()
}

#[test]
fn one_application_is_as_if_alone() {
    let alone = [application(8.0, 2.0, 10.0, 15.0)];
    let plan = persched(&alone, 3.0, &Search::BEST);
    assert_eq!(shortest_period_s(&alone), 20.0);
    assert!((plan.dilation - 1.0).abs() < 1e-12);
    assert!((plan.sys_efficiency - 0.75).abs() < 1e-12);
}

#[test]
fn two_that_fit_beside_each_other_do_not_wait() {
    // Each does I/O while the other computes: 5 s of every 10 at the whole bandwidth.
    let both = [application(1.0, 1.0, 5.0, 5.0), application(3.0, 1.0, 5.0, 5.0)];
    let plan = persched(&both, 1.0, &Search { period_s: Some(10.0), ..Search::BEST });
    assert_eq!(counts(&plan), [1, 1]);
    assert!((plan.dilation - 1.0).abs() < 1e-12);
    assert!((plan.sys_efficiency - 0.5).abs() < 1e-12);
}

#[test]
fn caps_that_add_up_to_the_bandwidth_let_all_run_at_once() {
    let four = [application(1.0, 0.25, 1.0, 6.0); 4];
    let plan = persched(&four, 1.0, &Search { period_s: Some(10.0), ..Search::BEST });
    assert_eq!(counts(&plan), [1; 4]);
    assert!((plan.dilation - 1.0).abs() < 1e-12);
}

#[test]
fn a_saturated_storage_bounds_the_instances() {
    // Ten applications of 1 s of I/O and no computing to speak of: nobody can do better than 10 s each.
    let ten = [application(1.0, 1.0, 1.0, 0.001); 10];
    let plan = persched(&ten, 1.0, &Search::BEST);
    let instances: usize = counts(&plan).iter().sum();
    assert!(instances as f64 <= plan.period_s + 1e-9, "{instances} in {} s", plan.period_s);
    assert!(plan.dilation >= 10.0 / 1.001 - 1e-9);
}

fn run(applications: &[Application], compute_s: &[Vec<f64>], policy: Box<dyn Policy>) -> Outcome {
    let setting = Setting { storage: Storage::Strict, window_ns: None, stop_at_window: false };
    simulate(&as_jobs(applications, 1.0, compute_s), policy, &setting)
}

#[test]
fn whoever_is_due_first_goes_first() {
    // Both ask at 10 s. The timetable has the long one's I/O take longer, so the short one goes first.
    let two = [application(1.0, 1.0, 8.0, 10.0), application(1.0, 1.0, 2.0, 10.0)];
    let compute_s = [vec![10.0], vec![10.0]];
    let policy = Periodic::moved(Timetable::given(&two, 1.0, None));
    let finish: Vec<_> = run(&two, &compute_s, Box::new(policy)).jobs.iter().map(|j| j.finish_ns).collect();
    assert_eq!(finish, [Some(20_000_000_000), Some(12_000_000_000)]);
}

/// A coordinator does not know its jobs' numbers beforehand: what is said of a job when it joins makes the same timetable.
#[test]
fn what_is_told_when_a_job_joins_is_planned_with() {
    let two = [application(1.0, 1.0, 8.0, 10.0), application(1.0, 1.0, 2.0, 10.0)];
    let mut jobs = as_jobs(&two, 1.0, &[vec![10.0], vec![10.0]]);
    for (job, known) in jobs.iter_mut().zip(&two) {
        job.info.instance = Some(InstanceInfo { work_s: known.work_s, io_s: known.volume });
    }
    let setting = Setting { storage: Storage::Strict, window_ns: None, stop_at_window: false };
    let finish = |planning: Planning| -> Vec<_> {
        let outcome = simulate(&jobs, PolicyKind::Apio.build_with(planning), &setting);
        outcome.jobs.iter().map(|job| job.finish_ns).collect()
    };
    let short_first = [Some(20_000_000_000), Some(12_000_000_000)];
    assert_eq!(finish(Planning::default()), short_first);
    // A period in which nobody has a place is not kept to.
    assert_eq!(finish(Planning { period_s: Some(1.0), ..Planning::default() }), short_first);
}

#[test]
fn the_barrier_makes_the_quick_wait_for_the_slow() {
    // One instance of each in a period. The first is done after 4 s and computes again until 7 s,
    // but its second I/O belongs to the next period, which begins when the other is done, at 21 s.
    let two = [application(1.0, 0.5, 0.5, 3.0), application(1.0, 0.5, 0.5, 3.0)];
    let compute_s = [vec![3.0, 3.0], vec![20.0]];
    let timetable = || Timetable::given(&two, 1.0, Some(4.0));
    let held = run(&two, &compute_s, Box::new(ApioBarrier::new(timetable())));
    let free = run(&two, &compute_s, Box::new(Periodic::moved(timetable())));
    let finish_s = |outcome: &Outcome| outcome.jobs[0].finish_ns.map_or(f64::NAN, |ns| ns as f64 / 1e9);
    assert!((finish_s(&held) - 22.0).abs() < 1e-6, "{}", finish_s(&held));
    assert!((finish_s(&free) - 8.0).abs() < 1e-6, "{}", finish_s(&free));
}

#[test]
fn lengths_have_the_mean_they_are_drawn_from() {
    let shapes = [
        Lengths::Uniform { lowest: 2.0, highest: 6.0 },
        Lengths::TruncatedNormal { mean: 4.0, deviation: 1.0, lowest: 2.0, highest: 6.0 },
        Lengths::LogNormal { mean: 4.0, deviation: 1.0 },
    ];
    for shape in shapes {
        let drawn = shape.draw(7, 20_000);
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - 4.0).abs() < 0.05, "{shape:?}: {mean}");
        assert_eq!(drawn, shape.draw(7, 20_000));
        assert_ne!(drawn, shape.draw(8, 20_000));
    }
}

/// A timetable that reads as one: who computes from when, and who transfers from when to when.
fn written(plan: &Plan) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "period {:.3} s", plan.period_s);
    let _ = writeln!(text, "SysEfficiency {:.6}, dilation {:.6}", plan.sys_efficiency, plan.dilation);
    for (index, instances) in plan.instances.iter().enumerate() {
        let _ = writeln!(text, "application {index}");
        for instance in instances {
            let _ = write!(text, "  computes from {:.3}, transfers", instance.compute_s);
            for transfer in &instance.transfers {
                let _ = write!(
                    text,
                    " {:.3}-{:.3} at {:.3}",
                    transfer.start_s, transfer.end_s, transfer.bandwidth
                );
            }
            text.push('\n');
        }
    }
    text
}

/// Three applications on a storage that none of them saturates alone but any two of them do.
#[test]
fn golden_timetable() {
    let three =
        [application(4.0, 2.0, 12.0, 10.0), application(2.0, 2.0, 6.0, 4.0), application(1.0, 1.0, 2.0, 6.0)];
    let plan = persched(&three, 3.0, &Search { longest: 3.0, ..Search::BEST });
    assert_eq!(written(&plan), include_str!("data/periodic_three.txt"));
}

/// The sets of PerSched's authors with what they published: both objectives within 1 % or better.
#[test]
fn the_published_sets_are_reached() {
    let Some(data) = std::env::var_os("WEIR_DATA") else {
        use std::io::Write as _;
        // `eprintln!` of a test that passes is not seen.
        let why = "WEIR_DATA is not set, so PerSched's published sets are not at hand";
        let _ = writeln!(std::io::stderr(), "SKIPPED the_published_sets_are_reached: {why}");
        return;
    };
    let folder = Path::new(&data).join("persched");
    let published = numbers(&folder.join("published.txt"));
    assert_eq!(published.len(), 10);
    for row in published {
        let lines = numbers(&folder.join(format!("set{}", row[0])));
        let set: Vec<Application> = lines
            .iter()
            .map(|line| application(line[2] / 64.0, (line[2] / 6400.0).min(3.0), line[1], line[0] * 64.0))
            .collect();
        let plan = persched(&set, 3.0, &Search::BEST);
        assert!(
            plan.sys_efficiency >= 0.99 * row[1],
            "set {}: SysEfficiency {}",
            row[0],
            plan.sys_efficiency
        );
        assert!(plan.dilation <= 1.01 * row[2], "set {}: dilation {}", row[0], plan.dilation);
    }
}

fn numbers(file: &Path) -> Vec<Vec<f64>> {
    let text = std::fs::read_to_string(file).expect("WEIR_DATA holds persched/");
    let row = |line: &str| line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    text.lines().filter(|line| !line.trim().is_empty()).map(row).collect()
}
