//! PerSched: a timetable for periodic applications, made before they run (APIO, Algorithm 1).

mod pattern;
mod policy;
mod timetable;

pub use pattern::{Instance, Pattern, Transfer};
pub use policy::Periodic;
pub use timetable::{Planning, Timetable};

pub(super) use timetable::MOST_JOBS;

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What PerSched knows of an application `A_i`. Volumes are in any unit; bandwidths are in that
/// unit per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Application {
    /// Computing nodes `β_i`.
    pub nodes: f64,
    /// The most bandwidth it can use, `B_i`.
    pub cap: f64,
    /// What one instance transfers, `IO_i`.
    pub volume: f64,
    /// What one instance computes, `W_i` (for a stochastic application its mean, `μ_i`).
    pub work_s: f64,
}

impl Application {
    /// An instance alone on the platform: `W_i + IO_i / B_i`.
    pub fn alone_s(&self) -> f64 {
        self.work_s + self.io_alone_s()
    }

    pub fn io_alone_s(&self) -> f64 {
        self.volume / self.cap
    }

    /// The optimal application efficiency `ρ_i`.
    pub fn efficiency(&self) -> f64 {
        self.work_s / self.alone_s()
    }
}

/// Which application gets the next instance of a pattern (Algorithm 1, line 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The one with the lowest `ρ̃_i/ρ_i`, of equals the one with the highest `W_i·B_i/IO_i`: how the
    /// published results of PerSched were made, whatever Algorithm 1 of the APIO paper prints.
    MinDilation,
    /// The one with the highest `β_i·ρ_i/ρ̃_i`, as Algorithm 1 prints it.
    MaxSysEff,
}

/// What makes one pattern better than another (Algorithm 1, line 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The highest SysEfficiency, as Algorithm 1 has it.
    SysEfficiency,
    /// The lowest dilation.
    Dilation,
    /// The highest SysEfficiency per dilation: SysEfficiency alone would buy its last tenth of a per
    /// cent with several per cent of somebody's dilation.
    Both,
}

/// How PerSched searches.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Every period is tried with each of these.
    pub strategies: &'static [Strategy],
    pub objective: Objective,
    /// The only period to try, instead of a search.
    pub period_s: Option<f64>,
    /// `K'`: periods up to this many times the shortest are tried.
    pub longest: f64,
    /// `ε`: each period tried is `1 + ε` times the one before.
    pub epsilon: f64,
    /// How many of the best patterns are tried again with a shorter period.
    pub shrunk: usize,
    /// No further period is tried once the instances inserted, times the applications among which
    /// they find their place, exceed this.
    pub most_work: u64,
}

impl Search {
    /// Algorithm 1 as it is printed.
    pub const PRINTED: Search = Search {
        strategies: &[Strategy::MaxSysEff],
        objective: Objective::SysEfficiency,
        period_s: None,
        longest: 10.0,
        epsilon: 0.01,
        shrunk: 0,
        most_work: 100_000_000,
    };

    /// Both strategies, both objectives, and the best patterns tightened.
    pub const BEST: Search = Search {
        strategies: &[Strategy::MinDilation, Strategy::MaxSysEff],
        objective: Objective::Both,
        shrunk: 12,
        ..Search::PRINTED
    };
}

/// A periodic schedule: `instances[i]` are those of application `i` in one period.
#[derive(Clone, Debug)]
pub struct Plan {
    pub period_s: f64,
    pub instances: Vec<Vec<Instance>>,
    pub sys_efficiency: f64,
    pub dilation: f64,
}

/// `(1/N)·Σ β_i·ρ̃_i` with `ρ̃_i = n_i·W_i/T`, where N is the number of nodes in use.
fn sys_efficiency(applications: &[Application], counts: &[usize], period_s: f64) -> f64 {
    let nodes: f64 = applications.iter().map(|a| a.nodes).sum();
    let busy: f64 =
        applications.iter().zip(counts).map(|(a, &n)| a.nodes * n as f64 * a.work_s / period_s).sum();
    busy / nodes
}

/// `max ρ_i/ρ̃_i`: infinite when an application has no instance.
fn dilation(applications: &[Application], counts: &[usize], period_s: f64) -> f64 {
    applications.iter().zip(counts).map(|(a, &n)| period_s / (n as f64 * a.alone_s())).fold(0.0, f64::max)
}

/// An application that may get another instance; the greatest is served first.
#[derive(PartialEq)]
struct Turn {
    merit: f64,
    /// `W_i·B_i/IO_i`: computing per I/O, which decides between equals.
    ratio: f64,
    index: usize,
}

impl Eq for Turn {}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        let merit = self.merit.total_cmp(&other.merit).then(self.ratio.total_cmp(&other.ratio));
        merit.then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Algorithm 1, lines 5-10: the pattern of one period.
pub fn fill<'a>(
    applications: &'a [Application],
    bandwidth: f64,
    period_s: f64,
    strategy: Strategy,
) -> Pattern<'a> {
    let mut pattern = Pattern::new(applications, bandwidth, period_s);
    let turn = |index: usize, instances: usize| {
        let application: &Application = &applications[index];
        let dilation = period_s / (instances as f64 * application.alone_s());
        let merit = match strategy {
            Strategy::MinDilation => dilation,
            Strategy::MaxSysEff => application.nodes * dilation,
        };
        Turn { merit, ratio: application.work_s / application.io_alone_s(), index }
    };
    let mut turns: BinaryHeap<Turn> = (0..applications.len()).map(|index| turn(index, 0)).collect();
    while let Some(Turn { index, .. }) = turns.pop() {
        if pattern.insert(index) {
            turns.push(turn(index, pattern.instances()[index].len()));
        }
    }
    pattern
}

/// A pattern that was tried: all of it but the instances, which are quickly made again.
#[derive(Clone)]
struct Trial {
    period_s: f64,
    strategy: Strategy,
    counts: Vec<usize>,
    sys_efficiency: f64,
    dilation: f64,
}

/// Algorithm 1 at work.
struct PerSched<'a> {
    applications: &'a [Application],
    bandwidth: f64,
    search: &'a Search,
    inserted: u64,
}

impl PerSched<'_> {
    fn attempt(&mut self, period_s: f64, strategy: Strategy) -> Trial {
        let pattern = fill(self.applications, self.bandwidth, period_s, strategy);
        let counts: Vec<usize> = pattern.instances().iter().map(Vec::len).collect();
        self.inserted += counts.iter().sum::<usize>() as u64;
        Trial {
            period_s,
            strategy,
            sys_efficiency: sys_efficiency(self.applications, &counts, period_s),
            dilation: dilation(self.applications, &counts, period_s),
            counts,
        }
    }

    fn work(&self) -> u64 {
        self.inserted * self.applications.len() as u64
    }

    /// A pattern in which somebody has no instance is worse than any in which everybody has one.
    fn merit(&self, trial: &Trial) -> f64 {
        match self.search.objective {
            _ if trial.dilation.is_infinite() => -1.0,
            Objective::SysEfficiency => trial.sys_efficiency,
            Objective::Dilation => 1.0 / trial.dilation,
            // Where nobody computes, dilation alone is left to decide.
            Objective::Both => trial.sys_efficiency.max(f64::MIN_POSITIVE) / trial.dilation,
        }
    }

    /// Best first; of equals the one tried first, which has the shorter period.
    fn rank(&self, trials: &mut [Trial]) {
        trials.sort_by(|a, b| self.merit(b).total_cmp(&self.merit(a)));
    }

    /// The same instances in a shorter period make both objectives better. The period that the
    /// search skipped over lies within `1 + ε`: it is halved in on.
    fn shrink(&mut self, trial: Trial) -> Trial {
        let mut too_short_s = trial.period_s / (1.0 + self.search.epsilon);
        let mut best = trial;
        for _ in 0..7 {
            let period_s = (too_short_s + best.period_s) / 2.0;
            let shorter = self.attempt(period_s, best.strategy);
            if shorter.counts.iter().zip(&best.counts).all(|(now, before)| now >= before) {
                best = shorter;
            } else {
                too_short_s = period_s;
            }
        }
        best
    }

    /// The periods from `T_min` to `K'·T_min`, or to the one in which everybody fits: as long as the
    /// longest instance would take if all the others did their I/O first.
    fn run(&mut self) -> Trial {
        let shortest_s = self.search.period_s.unwrap_or_else(|| shortest_period_s(self.applications));
        let all_io_s: f64 = self.applications.iter().map(Application::io_alone_s).sum();
        let enough_s = shortest_s + all_io_s;
        let longest_s = self.search.period_s.unwrap_or(enough_s.max(self.search.longest * shortest_s));
        let mut trials = Vec::new();
        let mut period_s = shortest_s;
        while trials.is_empty() || (period_s <= longest_s && self.work() < self.search.most_work) {
            for &strategy in self.search.strategies {
                trials.push(self.attempt(period_s, strategy));
            }
            period_s *= 1.0 + self.search.epsilon;
        }
        if self.search.period_s.is_none() && trials.iter().all(|trial| trial.dilation.is_infinite()) {
            trials.push(self.attempt(enough_s, self.search.strategies[0]));
        }
        self.rank(&mut trials);
        if self.search.period_s.is_none() && self.search.shrunk > 0 {
            trials.truncate(self.search.shrunk);
            trials = trials.into_iter().map(|trial| self.shrink(trial)).collect();
            self.rank(&mut trials);
        }
        trials.swap_remove(0)
    }
}

/// `T_min`: the longest instance alone.
pub fn shortest_period_s(applications: &[Application]) -> f64 {
    applications.iter().map(Application::alone_s).fold(0.0, f64::max)
}

/// Algorithm 1: the best of the patterns for periods from `T_min` to `K'·T_min`.
///
/// Nodes, caps and volumes must be above zero and caps at most the bandwidth. Everybody has an
/// instance unless a given period is too short for that; then the dilation is infinite.
pub fn persched(applications: &[Application], bandwidth: f64, search: &Search) -> Plan {
    let trial = PerSched { applications, bandwidth, search, inserted: 0 }.run();
    Plan {
        period_s: trial.period_s,
        instances: fill(applications, bandwidth, trial.period_s, trial.strategy).into_instances(),
        sys_efficiency: trial.sys_efficiency,
        dilation: trial.dilation,
    }
}
