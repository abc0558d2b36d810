//! What holds of every timetable, and of every run under the policies that use one.

use proptest::prelude::*;
use weir_engine::engine::{Desk, JobId};
use weir_engine::sharing::periodic::{
    Application, Objective, Periodic, Plan, Search, Strategy as Order, Timetable, persched, shortest_period_s,
};
use weir_engine::sharing::{ApioBarrier, Policy};
use weir_engine::sim::{Outcome, Setting, Storage, as_jobs, simulate};

const BANDWIDTH: f64 = 3.0;

fn application() -> impl Strategy<Value = Application> {
    (1u32..100, 0.05f64..1.2, 0.5f64..50.0, 0.0f64..60.0).prop_map(|(nodes, part, volume, work_s)| {
        Application { nodes: f64::from(nodes), cap: (part * BANDWIDTH).min(BANDWIDTH), volume, work_s }
    })
}

fn applications() -> impl Strategy<Value = Vec<Application>> {
    prop::collection::vec(application(), 1..7)
}

fn search() -> impl Strategy<Value = Search> {
    let strategies: [&'static [Order]; 3] =
        [&[Order::MinDilation], &[Order::MaxSysEff], &[Order::MinDilation, Order::MaxSysEff]];
    let objectives = [Objective::SysEfficiency, Objective::Dilation, Objective::Both];
    (prop::sample::select(strategies.to_vec()), prop::sample::select(objectives.to_vec()), 0usize..3)
        .prop_map(|(strategies, objective, shrunk)| Search {
            strategies,
            objective,
            shrunk,
            epsilon: 0.1,
            longest: 4.0,
            ..Search::BEST
        })
}

/// The most bandwidth in use at any instant: it can only rise where a transfer begins.
fn peak(plan: &Plan) -> f64 {
    let transfers: Vec<(f64, f64, f64)> = plan
        .instances
        .iter()
        .flatten()
        .flat_map(|instance| &instance.transfers)
        .map(|t| (t.start_s.rem_euclid(plan.period_s), t.end_s - t.start_s, t.bandwidth))
        .collect();
    let slack_s = plan.period_s * 1e-9;
    let covers = |&(start_s, length_s, _): &(f64, f64, f64), at_s: f64| {
        let since_s = (at_s - start_s).rem_euclid(plan.period_s);
        since_s < length_s - slack_s
    };
    let used = |at_s: f64| -> f64 { transfers.iter().filter(|t| covers(t, at_s)).map(|t| t.2).sum() };
    transfers.iter().map(|&(start_s, ..)| used(start_s + 2.0 * slack_s)).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn capacity_is_never_exceeded(applications in applications(), search in search()) {
        let plan = persched(&applications, BANDWIDTH, &search);
        prop_assert!(peak(&plan) <= BANDWIDTH * (1.0 + 1e-9), "{} in use", peak(&plan));
    }

    #[test]
    fn instances_are_complete_in_order_and_within_their_caps(
        applications in applications(), search in search(),
    ) {
        let plan = persched(&applications, BANDWIDTH, &search);
        let slack_s = plan.period_s * 1e-9;
        for (application, instances) in applications.iter().zip(&plan.instances) {
            prop_assert!(!instances.is_empty());
            let first_s = instances[0].compute_s;
            let mut free_s = first_s;
            for instance in instances {
                prop_assert!((instance.compute_s - free_s).abs() <= slack_s, "computes without a gap");
                let mut moved = 0.0;
                let mut at_s = instance.io_s(application);
                for transfer in &instance.transfers {
                    prop_assert!(transfer.start_s >= at_s - slack_s && transfer.end_s > transfer.start_s);
                    prop_assert!(transfer.bandwidth <= application.cap * (1.0 + 1e-12));
                    moved += transfer.bandwidth * (transfer.end_s - transfer.start_s);
                    at_s = transfer.end_s;
                }
                prop_assert!((moved / application.volume - 1.0).abs() < 1e-6, "moved {moved}");
                free_s = instance.end_s();
            }
            prop_assert!(free_s <= first_s + plan.period_s + slack_s, "the chain fits the period");
        }
    }

    #[test]
    fn the_objectives_are_what_the_instances_say(applications in applications(), search in search()) {
        let plan = persched(&applications, BANDWIDTH, &search);
        let nodes: f64 = applications.iter().map(|a| a.nodes).sum();
        let mut busy = 0.0;
        let mut dilation: f64 = 0.0;
        for (application, instances) in applications.iter().zip(&plan.instances) {
            let count = instances.len() as f64;
            busy += application.nodes * count * application.work_s / plan.period_s;
            dilation = dilation.max(plan.period_s / (count * application.alone_s()));
        }
        prop_assert!((plan.sys_efficiency - busy / nodes).abs() < 1e-12);
        prop_assert!((plan.dilation - dilation).abs() < 1e-9);
        prop_assert!(plan.dilation >= 1.0 - 1e-9);
    }

    #[test]
    fn a_given_period_is_kept(applications in applications(), times in 1.0f64..8.0) {
        let period_s = shortest_period_s(&applications) * times;
        let plan = persched(&applications, BANDWIDTH, &Search { period_s: Some(period_s), ..Search::BEST });
        prop_assert_eq!(plan.period_s, period_s);
    }

    #[test]
    fn everybody_finishes_under_every_timetable(
        applications in applications(),
        lengths in prop::collection::vec(prop::collection::vec(0.0f64..2.0, 1..12), 7),
        known in any::<bool>(),
    ) {
        let compute_s: Vec<Vec<f64>> = applications
            .iter()
            .zip(&lengths)
            .map(|(a, lengths)| lengths.iter().map(|length| length * a.work_s).collect())
            .collect();
        let timetable = || match known {
            true => Timetable::given(&applications, BANDWIDTH, None),
            false => Timetable::default(),
        };
        let policies: [(Box<dyn Policy>, bool); 3] = [
            (Box::new(Periodic::kept(timetable())), true),
            (Box::new(Periodic::moved(timetable())), true),
            (Box::new(ApioBarrier::new(timetable())), false),
        ];
        for (policy, work_conserving) in policies {
            let checked = Checked { policy, work_conserving, active: Vec::new() };
            let outcome = run(&applications, &compute_s, Box::new(checked));
            for ((application, compute_s), job) in applications.iter().zip(&compute_s).zip(&outcome.jobs) {
                let alone_s = compute_s.iter().sum::<f64>()
                    + compute_s.len() as f64 * application.io_alone_s();
                let finish_s = job.finish_ns.expect("finishes") as f64 / 1e9;
                prop_assert!(finish_s >= alone_s - 1e-6, "{finish_s} s, alone {alone_s} s");
            }
        }
    }
}

fn run(applications: &[Application], compute_s: &[Vec<f64>], policy: Box<dyn Policy>) -> Outcome {
    let setting = Setting { storage: Storage::Strict, window_ns: None, stop_at_window: false };
    simulate(&as_jobs(applications, BANDWIDTH, compute_s), policy, &setting)
}

/// A policy whose shares are added up after everything it does.
struct Checked {
    policy: Box<dyn Policy>,
    work_conserving: bool,
    active: Vec<JobId>,
}

impl Checked {
    fn check(&self, desk: &Desk) {
        let shares: f64 = self.active.iter().map(|&job| desk.job(job).share()).sum();
        let usable: f64 = self.active.iter().map(|&job| desk.job(job).cap()).sum();
        assert!(shares <= 1.0 + 1e-6, "shares sum to {shares}");
        for &job in &self.active {
            assert!(desk.job(job).share() <= desk.job(job).cap() + 1e-6, "above its cap");
        }
        assert!(!self.work_conserving || shares >= usable.min(1.0) - 1e-6, "{shares} of {usable} in use");
    }
}

impl Policy for Checked {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.active.push(job);
        self.policy.began(job, desk);
        self.check(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        self.active.retain(|&other| other != job);
        self.policy.ended(job, desk);
        self.check(desk);
    }

    fn joined(&mut self, job: JobId, desk: &mut Desk) {
        self.policy.joined(job, desk);
    }

    fn left(&mut self, job: JobId, desk: &mut Desk) {
        self.policy.left(job, desk);
        self.check(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.policy.time_passed(desk);
        self.check(desk);
    }
}
