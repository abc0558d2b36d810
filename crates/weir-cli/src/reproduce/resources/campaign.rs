//! The paper's evaluation (section 5): many application sets, every policy on each, results by I/O-load.

use super::super::study::Context;
use weir_engine::resources::curves::{self, Behaviour};
use weir_engine::resources::sim::{self, Length, Outcome};
use weir_engine::resources::workload::Protocol;
use weir_engine::resources::{Allocator, Application, Platform, Policy, io_load};

/// Section 5.3. The paper does not say how many applications there are; 40 let every load be reached,
/// with 4 large, 12 medium and 24 small ones.
pub(super) const PLATFORM: Platform = Platform { resources: 20, compute_nodes: 480 };
const APPLICATIONS: usize = 40;
/// Wanted I/O-loads `Θ` in tenths, and the sets drawn for each.
const LOADS: usize = 14;
const SETS: usize = 105;
const QUICK_SETS: usize = 12;
/// Results are given by tenths of I/O-load(`π_sys`), as far as there are enough sets.
const BINS: usize = 12;

/// A policy, and whether it knows every application's own curve or only the general one of its behaviour.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Run {
    pub(super) policy: Policy,
    pub(super) exact: bool,
}

impl Run {
    pub(super) fn exact(policy: Policy) -> Self {
        Run { policy, exact: true }
    }

    pub(super) fn general(policy: Policy) -> Self {
        Run { policy, exact: false }
    }
}

/// What one policy made of one application set.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub(super) slowdown: f64,
    pub(super) slowdown_io: f64,
    pub(super) idletime: f64,
    pub(super) spread: f64,
}

impl Measured {
    fn of(outcome: &Outcome) -> Self {
        Measured {
            slowdown: outcome.mean_slowdown(),
            slowdown_io: outcome.mean(|a| a.slowdown_io),
            idletime: outcome.machine_idletime,
            spread: outcome.io_spread(),
        }
    }

    pub(super) fn slowdown_congestion(&self) -> f64 {
        self.slowdown - self.slowdown_io
    }
}

/// One application set.
pub(super) struct Set {
    /// I/O-load(`π_sys`) and I/O-load(`π_perf`).
    pub(super) load_sys: f64,
    pub(super) load_perf: f64,
    pub(super) ta_is_bba: bool,
    /// Applications for which Lemma 1 does not hold.
    pub(super) lemma_broken: usize,
    measured: Vec<Measured>,
}

/// Mean and spread of a value over the sets of a bin.
#[derive(Clone, Copy)]
pub(super) struct Summary {
    /// Middle of the bin.
    pub(super) load: f64,
    pub(super) mean: f64,
    pub(super) p10: f64,
    pub(super) p90: f64,
}

pub(super) struct Campaign {
    runs: Vec<Run>,
    pub(super) sets: Vec<Set>,
    /// Sets by tenth of I/O-load(`π_sys`); only those tenths that have enough.
    bins: Vec<(f64, Vec<usize>)>,
}

impl Campaign {
    pub(super) fn new(
        context: &Context,
        label: &str,
        curves: &[Vec<f64>],
        runs: Vec<Run>,
    ) -> Result<Self, String> {
        let per_load = if context.quick { QUICK_SETS } else { SETS };
        let profiles = curves::profiles(curves);
        let work = |i: usize| {
            let load = (i % LOADS + 1) as f64 / 10.0;
            let seed = context.seed.wrapping_mul(1_000_003).wrapping_add(i as u64);
            let protocol = Protocol { platform: PLATFORM, applications: APPLICATIONS, load, curves };
            evaluate(&protocol, &profiles, &runs, seed)
        };
        let sets = context.map(label, LOADS * per_load, work);
        let sets = sets.into_iter().collect::<Result<Vec<Set>, String>>()?;
        let bins = (0..BINS)
            .map(|bin| {
                let within = |set: &Set| (set.load_sys * 10.0).floor() as usize == bin;
                let members: Vec<usize> = (0..sets.len()).filter(|&i| within(&sets[i])).collect();
                ((bin as f64 + 0.5) / 10.0, members)
            })
            .filter(|(_, members)| members.len() >= per_load / 3)
            .collect();
        Ok(Campaign { runs, sets, bins })
    }

    pub(super) fn applications(&self) -> usize {
        self.sets.len() * APPLICATIONS
    }

    /// The middle of each bin, and how many sets it has.
    pub(super) fn bins(&self) -> impl Iterator<Item = (f64, usize)> {
        self.bins.iter().map(|(load, members)| (*load, members.len()))
    }

    /// A value by I/O-load.
    pub(super) fn by_load(&self, run: Run, value: impl Fn(&Measured) -> f64) -> Vec<Summary> {
        let run = self.index(run);
        self.summaries(|set| value(&set.measured[run]))
    }

    /// By I/O-load, by how much the value of one run is above that of another, as a ratio less 1.
    pub(super) fn above(&self, run: Run, other: Run, value: impl Fn(&Measured) -> f64) -> Vec<Summary> {
        let (run, other) = (self.index(run), self.index(other));
        self.summaries(|set| value(&set.measured[run]) / value(&set.measured[other]) - 1.0)
    }

    /// The values of all sets whose I/O-load(`π_sys`) lies in a range.
    pub(super) fn within(&self, low: f64, high: f64, run: Run, value: impl Fn(&Measured) -> f64) -> Vec<f64> {
        let run = self.index(run);
        let sets = self.sets.iter().filter(|set| (low..high).contains(&set.load_sys));
        sets.map(|set| value(&set.measured[run])).collect()
    }

    fn index(&self, run: Run) -> usize {
        self.runs.iter().position(|r| *r == run).expect("only runs of the campaign are asked for")
    }

    fn summaries(&self, value: impl Fn(&Set) -> f64) -> Vec<Summary> {
        let summary = |(load, members): &(f64, Vec<usize>)| {
            let mut values: Vec<f64> = members.iter().map(|&i| value(&self.sets[i])).collect();
            values.sort_by(f64::total_cmp);
            let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
            Summary { load: *load, mean: mean(&values), p10: at(0.1), p90: at(0.9) }
        };
        self.bins.iter().map(summary).collect()
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn evaluate(
    protocol: &Protocol,
    profiles: &[Option<Vec<f64>>; 4],
    runs: &[Run],
    seed: u64,
) -> Result<Set, String> {
    let applications = protocol.draw(seed).map_err(|e| e.to_string())?;
    let general: Vec<Application> = applications.iter().map(|a| generalised(a, profiles)).collect();
    let resources = PLATFORM.resources;
    let [perf, sys, ta] = [Allocator::Bba, Allocator::Nsysa, Allocator::Ta]
        .map(|allocator| allocator.allocate(&PLATFORM, &applications, seed));
    let measure = |run: &Run| {
        let known = if run.exact { &applications } else { &general };
        let placement = run.policy.schedule(&PLATFORM, known, seed);
        let length = Length { min_phases: 5, ..Length::default() };
        sim::run(&PLATFORM, &applications, &placement, length, seed).map(|outcome| Measured::of(&outcome))
    };
    Ok(Set {
        load_sys: io_load(resources, &applications, &sys),
        load_perf: io_load(resources, &applications, &perf),
        ta_is_bba: ta == perf,
        lemma_broken: sys.iter().zip(&perf).filter(|(sys, perf)| sys > perf).count(),
        measured: runs.iter().map(measure).collect::<Result<_, _>>().map_err(|e| e.to_string())?,
    })
}

/// The application as somebody sees it who knows its best bandwidth, and how bandwidth behaves in
/// general where it behaves alike (section 6.2).
fn generalised(application: &Application, profiles: &[Option<Vec<f64>>; 4]) -> Application {
    let behaviour = Behaviour::of(&application.bandwidth);
    let which = Behaviour::ALL.iter().position(|b| *b == behaviour);
    let Some(profile) = which.and_then(|i| profiles[i].as_ref()) else { return application.clone() };
    let best = |curve: &[f64]| curve.iter().copied().fold(0.0, f64::max);
    let scale = best(&application.bandwidth) / best(profile);
    Application { bandwidth: profile.iter().map(|b| b * scale).collect(), ..application.clone() }
}
