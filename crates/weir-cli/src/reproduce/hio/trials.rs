//! The same collective calls under every policy, many times.

use super::super::study::Context;
use weir_engine::aggregators::workload::{self, Slowest, Testbed};
use weir_engine::aggregators::{self, Aggregator, Mode, Options, Outcome, Policy};

pub(super) const POLICIES: usize = Policy::ALL.len();
/// The mean time of a read of the synthetic calls.
const READ_NS: u64 = 1_000_000_000;

/// One point of a figure or row of a table.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) mode: Mode,
    pub(super) applications: usize,
    pub(super) targets: usize,
    pub(super) workload: Workload,
}

#[derive(Clone, Copy)]
pub(super) enum Workload {
    /// The paper's cluster.
    Testbed { aggregators: usize, request_bytes: f64, spread: f64 },
    /// `dominance`: how long the slowest aggregator shuffles, in units of the `(m − 1)·t` that the others would
    /// have to wait at worst. Above 1 it dominates in the sense of the paper's section 5.
    Synthetic { slowest: Slowest, dominance: f64 },
}

impl Case {
    fn calls(&self, seed: u64) -> Vec<Vec<Aggregator>> {
        let Case { applications, targets, .. } = *self;
        match self.workload {
            Workload::Testbed { aggregators, request_bytes, spread } => {
                Testbed::PAPER.calls(seed, applications, targets, aggregators, request_bytes, spread)
            }
            Workload::Synthetic { slowest, dominance } => {
                let slowest_ns = dominance * (applications - 1) as f64 * READ_NS as f64;
                workload::calls(seed, applications, targets, READ_NS, slowest_ns as u64, slowest)
            }
        }
    }
}

/// What came out of all trials of a case; arrays are in the order of [`Policy::ALL`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Summary {
    trials: u64,
    mean_sum_ns: [f64; POLICIES],
    /// The share of the shuffle in an aggregator's total cost, summed over the trials.
    shuffle_share_sum: f64,
    pub(super) applications: u64,
    /// Applications that finished later than under SIO.
    pub(super) later: [u64; POLICIES],
    /// The most that any of them was later, as a fraction of its finish under SIO.
    pub(super) latest: [f64; POLICIES],
    /// Trials with a mean worse than SIO's, and better.
    pub(super) worse: [u64; POLICIES],
    pub(super) better: [u64; POLICIES],
    /// Trials in which a policy had every application finish exactly as under SIO.
    pub(super) same: [u64; POLICIES],
    /// Trials in which the mean of `slack` was worse than that of `hio`.
    pub(super) slack_behind_hio: u64,
    /// The largest gain of `hio` over NIO in one trial.
    pub(super) hio_best_over_nio: f64,
}

pub(super) fn index(policy: Policy) -> usize {
    Policy::ALL.iter().position(|other| *other == policy).expect("all policies are there")
}

impl Summary {
    fn of(case: &Case, seed: u64) -> Result<Summary, String> {
        let calls = case.calls(seed);
        let options = Options { seed, ..Options::default() };
        let run = |policy| {
            aggregators::run(policy, &options, case.mode, case.targets, &calls)
                .map_err(|(call, refused)| format!("application {call}: {refused}"))
        };
        let mut outcomes = Vec::with_capacity(POLICIES);
        for policy in Policy::ALL {
            outcomes.push(run(policy)?);
        }
        let cost = |of: fn(&Aggregator) -> u64| calls.iter().flatten().map(of).sum::<u64>() as f64;
        let (service, shuffle) = (cost(|a| a.service_ns), cost(|a| a.shuffle_ns));
        let mut summary =
            Summary { trials: 1, shuffle_share_sum: shuffle / (service + shuffle), ..Summary::default() };
        summary.applications = calls.len() as u64;
        summary.compare(&outcomes);
        Ok(summary)
    }

    fn compare(&mut self, outcomes: &[Outcome]) {
        let sio = &outcomes[index(Policy::Sio)];
        for (i, outcome) in outcomes.iter().enumerate() {
            let mean = outcome.mean_ns();
            self.mean_sum_ns[i] = mean;
            self.worse[i] = u64::from(mean > sio.mean_ns());
            self.better[i] = u64::from(mean < sio.mean_ns());
            self.same[i] = u64::from(outcome.finish_ns == sio.finish_ns);
            for (&finish, &promised) in outcome.finish_ns.iter().zip(&sio.finish_ns) {
                if finish > promised {
                    self.later[i] += 1;
                    self.latest[i] = self.latest[i].max(finish as f64 / promised as f64 - 1.0);
                }
            }
        }
        let mean = |policy| outcomes[index(policy)].mean_ns();
        self.slack_behind_hio = u64::from(mean(Policy::Slack) > mean(Policy::Hio));
        self.hio_best_over_nio = 1.0 - mean(Policy::Hio) / mean(Policy::Nio);
    }

    pub(super) fn add(&mut self, other: &Summary) {
        self.trials += other.trials;
        self.shuffle_share_sum += other.shuffle_share_sum;
        self.applications += other.applications;
        self.slack_behind_hio += other.slack_behind_hio;
        self.hio_best_over_nio = self.hio_best_over_nio.max(other.hio_best_over_nio);
        for i in 0..POLICIES {
            self.mean_sum_ns[i] += other.mean_sum_ns[i];
            self.later[i] += other.later[i];
            self.latest[i] = self.latest[i].max(other.latest[i]);
            self.worse[i] += other.worse[i];
            self.better[i] += other.better[i];
            self.same[i] += other.same[i];
        }
    }

    pub(super) fn trials(&self) -> u64 {
        self.trials
    }

    pub(super) fn mean_s(&self, policy: Policy) -> f64 {
        self.mean_sum_ns[index(policy)] / self.trials as f64 / 1e9
    }

    /// How much smaller the mean finish is than that of `base`, in per cent.
    pub(super) fn gain(&self, policy: Policy, base: Policy) -> f64 {
        100.0 * (1.0 - self.mean_s(policy) / self.mean_s(base))
    }

    pub(super) fn shuffle_share(&self) -> f64 {
        self.shuffle_share_sum / self.trials as f64
    }
}

/// Runs every case `trials` times; the summaries are in the order of the cases.
pub(super) fn run(context: &Context, trials: usize, cases: &[Case]) -> Result<Vec<Summary>, String> {
    let parts = context.map("hio", cases.len() * trials, |number| {
        Summary::of(&cases[number / trials], seed(context.seed, number as u64))
    });
    let mut summaries = vec![Summary::default(); cases.len()];
    for (number, part) in parts.into_iter().enumerate() {
        summaries[number / trials].add(&part?);
    }
    Ok(summaries)
}

/// Trials of one seed share nothing with those of the next.
pub(super) fn seed(seed: u64, number: u64) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number
}
