//! The application sets: the paper's own, and PerSched's where their files are at hand.

use std::path::Path;
use weir_engine::sharing::periodic::Application;
use weir_engine::sim::Lengths;

/// Applications that run side by side.
pub(super) struct Set {
    pub(super) number: usize,
    pub(super) bandwidth: f64,
    pub(super) applications: Vec<Application>,
    pub(super) published: Option<Published>,
}

/// What was published for a set.
pub(super) struct Published {
    pub(super) sys_efficiency: f64,
    pub(super) dilation: f64,
    pub(super) period_s: f64,
}

impl Set {
    /// `Σ β_i·ρ_i / N`: what SysEfficiency would be without any contention.
    pub(super) fn bound(&self) -> f64 {
        let nodes: f64 = self.applications.iter().map(|a| a.nodes).sum();
        self.applications.iter().map(|a| a.nodes * a.efficiency()).sum::<f64>() / nodes
    }

    /// The part of the bandwidth that the applications would use if each ran as if alone.
    pub(super) fn load(&self) -> f64 {
        let used: f64 = self.applications.iter().map(|a| a.volume / a.alone_s()).sum();
        used / self.bandwidth
    }
}

/// An APEX application (Tables 2 and 4).
pub(super) struct Apex {
    rate_gb_s: f64,
    checkpoint_s: f64,
    mean: f64,
    deviation: f64,
    lowest: f64,
    highest: f64,
}

/// EAP, LAP, Silverton, VPIC.
const APEX: [Apex; 4] = [
    Apex { rate_gb_s: 160.0, checkpoint_s: 20.0, mean: 2.0, deviation: 0.5, lowest: 1.0, highest: 3.0 },
    Apex { rate_gb_s: 80.0, checkpoint_s: 25.0, mean: 4.0, deviation: 1.0, lowest: 2.0, highest: 6.0 },
    Apex { rate_gb_s: 160.0, checkpoint_s: 280.0, mean: 5.0, deviation: 1.0, lowest: 3.0, highest: 7.0 },
    Apex { rate_gb_s: 160.0, checkpoint_s: 23.4, mean: 1.0, deviation: 0.5, lowest: 0.0, highest: 2.0 },
];

/// Table 3: how many of each make up sets 1 to 10.
const COMBINATIONS: [[usize; 4]; 10] = [
    [0, 10, 0, 0],
    [0, 8, 1, 0],
    [0, 6, 2, 0],
    [0, 4, 3, 0],
    [0, 2, 0, 1],
    [0, 2, 4, 0],
    [1, 2, 0, 0],
    [0, 0, 1, 1],
    [0, 0, 5, 0],
    [1, 0, 1, 0],
];

/// `B` of section 5.1.1, and `b`, by which a rate is a number of nodes.
const BANDWIDTH_GB_S: f64 = 100.0;
const NODE_GB_S: f64 = 1.0;

/// The distributions of Table 4.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Uniform,
    TruncatedNormal,
    LogNormal,
}

impl Shape {
    pub(super) const ALL: [Shape; 3] = [Shape::Uniform, Shape::TruncatedNormal, Shape::LogNormal];

    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Uniform => "Uniform",
            Shape::TruncatedNormal => "Truncated Normal",
            Shape::LogNormal => "LogNormal",
        }
    }
}

/// The APEX applications of set `index`, one after the other.
fn members(index: usize) -> impl Iterator<Item = &'static Apex> {
    let counted = APEX.iter().zip(COMBINATIONS[index]);
    counted.flat_map(|(apex, count)| std::iter::repeat_n(apex, count))
}

/// The sets of Table 3. The paper does not say in which unit Table 4 gives computing times, so the
/// unit is `unit_s`. An application has as many nodes as its rate needs, and I/O that takes its
/// checkpoint time at that rate; no rate exceeds `B`.
pub(super) fn apex(unit_s: f64) -> Vec<Set> {
    let application = |apex: &Apex| Application {
        nodes: apex.rate_gb_s / NODE_GB_S,
        cap: apex.rate_gb_s.min(BANDWIDTH_GB_S),
        volume: apex.rate_gb_s * apex.checkpoint_s,
        work_s: apex.mean * unit_s,
    };
    let set = |index: usize| Set {
        number: index + 1,
        bandwidth: BANDWIDTH_GB_S,
        applications: members(index).map(application).collect(),
        published: None,
    };
    (0..COMBINATIONS.len()).map(set).collect()
}

/// Computing times for the applications of set `index`: as many as `counts` says, from streams of
/// random numbers that depend on nothing but the seed and the application's place.
pub(super) fn draw(index: usize, shape: Shape, unit_s: f64, counts: &[usize], seed: u64) -> Vec<Vec<f64>> {
    let lengths = |apex: &Apex| match shape {
        Shape::Uniform => Lengths::Uniform { lowest: apex.lowest * unit_s, highest: apex.highest * unit_s },
        Shape::TruncatedNormal => Lengths::TruncatedNormal {
            mean: apex.mean * unit_s,
            deviation: apex.deviation * unit_s,
            lowest: apex.lowest * unit_s,
            highest: apex.highest * unit_s,
        },
        Shape::LogNormal => {
            Lengths::LogNormal { mean: apex.mean * unit_s, deviation: apex.deviation * unit_s }
        }
    };
    let streams = members(index).zip(counts).enumerate();
    streams.map(|(i, (apex, &count))| lengths(apex).draw(seed.wrapping_mul(1009) + i as u64, count)).collect()
}

/// PerSched's machine: cores are counted in units of 64, computing times grow by as much, and the
/// bandwidths are in GB/s.
const CORES_PER_NODE: f64 = 64.0;
const PERSCHED_GB_S: f64 = 3.0;
const PERSCHED_NODE_GB_S: f64 = 0.01;

/// PerSched's sets under `WEIR_DATA`: files `persched/set<N>` with a line per application (compute
/// seconds, GB per instance, cores), and `persched/published.txt` (set, SysEfficiency, dilation,
/// period). `None` when the variable is not set.
pub(super) fn persched() -> Result<Option<Vec<Set>>, String> {
    let Some(data) = std::env::var_os("WEIR_DATA") else { return Ok(None) };
    let folder = Path::new(&data).join("persched");
    let mut sets = Vec::new();
    for row in numbers::<4>(&folder.join("published.txt"))? {
        let [number, sys_efficiency, dilation, period_s] = row;
        let file = folder.join(format!("set{number}"));
        let application = |[seconds, volume, cores]: [f64; 3]| Application {
            nodes: cores / CORES_PER_NODE,
            cap: (cores / CORES_PER_NODE * PERSCHED_NODE_GB_S).min(PERSCHED_GB_S),
            volume,
            work_s: seconds * CORES_PER_NODE,
        };
        sets.push(Set {
            number: number as usize,
            bandwidth: PERSCHED_GB_S,
            applications: numbers::<3>(&file)?.into_iter().map(application).collect(),
            published: Some(Published { sys_efficiency, dilation, period_s }),
        });
    }
    Ok(Some(sets))
}

/// A file of lines of `N` positive numbers.
fn numbers<const N: usize>(file: &Path) -> Result<Vec<[f64; N]>, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| format!("WEIR_DATA: cannot read {name}: {e}"))?;
    let parse = |(index, line): (usize, &str)| {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers
            .and_then(|numbers| <[f64; N]>::try_from(numbers).ok())
            .filter(|numbers| numbers.iter().all(|&number| number > 0.0 && number.is_finite()))
            .ok_or(format!("WEIR_DATA: {name}, line {}: not {N} positive numbers", index + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}
