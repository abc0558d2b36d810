//! PerSched: a timetable for periodic applications, made before they run (APIO, Algorithm 1).

mod pattern;

pub use pattern::{Instance, Pattern, Transfer};

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
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// The one with the lowest `ρ̃_i/ρ_i`, of equals the one with the highest `W_i·B_i/IO_i`. This is
    /// how the ten published results were made, whatever Algorithm 1 of the APIO paper prints.
    MinDilation,
    /// The one with the highest `β_i·ρ_i/ρ̃_i`, as Algorithm 1 prints it.
    MaxSysEff,
}

/// How PerSched searches.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    pub strategy: Strategy,
    /// The only period to try, instead of a search.
    pub period_s: Option<f64>,
    /// `K'`: periods up to this many times the shortest are tried.
    pub longest: f64,
    /// `ε`: each period tried is `1 + ε` times the one before.
    pub epsilon: f64,
}

impl Default for Search {
    fn default() -> Self {
        Search { strategy: Strategy::MinDilation, period_s: None, longest: 10.0, epsilon: 0.01 }
    }
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
    let busy: f64 = applications.iter().zip(counts).map(|(a, &n)| a.nodes * n as f64 * a.work_s / period_s).sum();
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
pub fn fill<'a>(applications: &'a [Application], bandwidth: f64, period_s: f64, strategy: Strategy) -> Pattern<'a> {
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

fn plan(applications: &[Application], bandwidth: f64, period_s: f64, strategy: Strategy) -> Plan {
    let pattern = fill(applications, bandwidth, period_s, strategy);
    let counts: Vec<usize> = pattern.instances().iter().map(Vec::len).collect();
    Plan {
        period_s,
        sys_efficiency: sys_efficiency(applications, &counts, period_s),
        dilation: dilation(applications, &counts, period_s),
        instances: pattern.into_instances(),
    }
}

/// Algorithm 1: the best of the patterns for periods from `T_min` to `K'·T_min`.
pub fn persched(applications: &[Application], bandwidth: f64, search: &Search) -> Plan {
    let shortest_s = applications.iter().map(Application::alone_s).fold(0.0, f64::max);
    if let Some(period_s) = search.period_s {
        return plan(applications, bandwidth, period_s, search.strategy);
    }
    let mut best = plan(applications, bandwidth, shortest_s, search.strategy);
    let mut period_s = shortest_s * (1.0 + search.epsilon);
    while period_s <= search.longest * shortest_s {
        let next = plan(applications, bandwidth, period_s, search.strategy);
        if next.sys_efficiency > best.sys_efficiency {
            best = next;
        }
        period_s *= 1.0 + search.epsilon;
    }
    best
}
