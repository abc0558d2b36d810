//! Bandwidth as a function of the number of I/O resources: measured, or drawn like the measured ones.

use super::BadInput;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The four behaviours of Figures 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Behaviour {
    /// More resources, more bandwidth.
    Ascent,
    /// More resources, less bandwidth.
    Descent,
    /// More resources help up to a number, and harm beyond it.
    Peak,
    /// The number of resources hardly matters.
    Neutral,
}

/// How far below its best a curve may fall and still be [`Behaviour::Neutral`].
const NEUTRAL_WITHIN: f64 = 0.2;

impl Behaviour {
    pub const ALL: [Behaviour; 4] =
        [Behaviour::Ascent, Behaviour::Descent, Behaviour::Peak, Behaviour::Neutral];

    pub fn name(self) -> &'static str {
        match self {
            Behaviour::Ascent => "ascent",
            Behaviour::Descent => "descent",
            Behaviour::Peak => "peak",
            Behaviour::Neutral => "neutral",
        }
    }

    /// The behaviour of a curve: by where its best bandwidth is, unless it hardly varies.
    pub fn of(curve: &[f64]) -> Self {
        let (mut best, mut least) = (0, f64::INFINITY);
        for (i, &bandwidth) in curve.iter().enumerate() {
            least = least.min(bandwidth);
            if bandwidth > curve[best] {
                best = i;
            }
        }
        if least >= (1.0 - NEUTRAL_WITHIN) * curve[best] {
            Behaviour::Neutral
        } else if best == 0 {
            Behaviour::Descent
        } else if best == curve.len() - 1 {
            Behaviour::Ascent
        } else {
            Behaviour::Peak
        }
    }
}

/// Where a set of synthetic curves is drawn: how often each behaviour occurs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Shares of ascent, descent, peak; what is left is neutral.
    pub ascent: f64,
    pub descent: f64,
    pub peak: f64,
    /// Exponents `a` of `n^a` for curves that rise.
    pub rise: (f64, f64),
    pub curves: usize,
}

/// Like the 189 access patterns through I/O nodes of Figure 1: many peaks at two to four nodes, and
/// rises that can be steeper than the number of nodes.
pub const IO_NODES: Mix = Mix { ascent: 0.38, descent: 0.05, peak: 0.51, rise: (0.3, 1.3), curves: 189 };

/// Like the 301 configurations on storage targets of Figure 2: mostly the more the better, at less than
/// linear gain.
pub const STORAGE_TARGETS: Mix = Mix { ascent: 0.6, descent: 0.1, peak: 0.1, rise: (0.2, 0.9), curves: 301 };

/// How many resources synthetic curves go to, as the measured ones do.
const WIDTH: usize = 8;

/// Synthetic curves for `1 … 8` resources.
pub fn synthetic(mix: &Mix, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Pcg64::seed_from_u64(seed);
    (0..mix.curves).map(|_| draw(mix, &mut rng)).collect()
}

fn draw(mix: &Mix, rng: &mut impl Rng) -> Vec<f64> {
    let kind = rng.random::<f64>();
    let rise = rng.random_range(mix.rise.0..mix.rise.1);
    let fall = rng.random_range(0.2..0.6);
    // Two of three peaks are at two resources, as measured.
    let summit = [2, 2, 2, 2, 3, 4][rng.random_range(0..6)] as f64;
    let shape = |n: f64| {
        if kind < mix.ascent {
            n.powf(rise)
        } else if kind < mix.ascent + mix.descent {
            n.powf(-fall)
        } else if kind < mix.ascent + mix.descent + mix.peak {
            if n <= summit {
                n.powf(rise.min(0.6))
            } else {
                summit.powf(rise.min(0.6)) * (n / summit).powf(-fall)
            }
        } else {
            1.0
        }
    };
    // 100 MB/s to 4 GB/s at one resource, evenly by order of magnitude; 3 % of measurement noise.
    let scale = 100.0 * 40_f64.powf(rng.random());
    (1..=WIDTH).map(|n| scale * shape(n as f64) * rng.random_range(0.97..1.03)).collect()
}

/// Measured curves from a CSV: a heading such as `pattern,b1,b2,b4,b8`, where the number is that of the
/// resources, and a line of bandwidths per access pattern. Between measured numbers of resources the
/// bandwidth is interpolated linearly; below the first it is that of the first.
pub fn parse_csv(text: &str) -> Result<Vec<Vec<f64>>, BadInput> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, heading) = lines.next().ok_or_else(|| BadInput::new("line 1", "the file is empty"))?;
    let counts = heading.split(',').skip(1).map(resources_of).collect::<Result<Vec<usize>, _>>()?;
    if counts.is_empty() || counts.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(BadInput::new("line 1", "needs columns b1,b2,… by increasing number of resources"));
    }
    let curves = lines.map(|(i, line)| curve(&counts, line, i + 1)).collect::<Result<Vec<_>, _>>()?;
    if curves.is_empty() {
        return Err(BadInput::new("line 2", "needs at least one curve"));
    }
    Ok(curves)
}

fn resources_of(column: &str) -> Result<usize, BadInput> {
    let number = column.trim().strip_prefix('b').and_then(|n| n.parse().ok());
    number.filter(|n| (1..=super::MAX_RESOURCES).contains(n)).ok_or_else(|| {
        BadInput::new(format!("column {}", column.trim()), "must be b and a number of resources, such as b4")
    })
}

fn curve(counts: &[usize], line: &str, number: usize) -> Result<Vec<f64>, BadInput> {
    let measured: Vec<&str> = line.split(',').skip(1).map(str::trim).collect();
    if measured.len() != counts.len() {
        let reason = format!("has {} bandwidths where the heading has {}", measured.len(), counts.len());
        return Err(BadInput::new(format!("line {number}"), reason));
    }
    let mut points = Vec::with_capacity(counts.len());
    for (value, &n) in measured.iter().zip(counts) {
        match value.parse::<f64>() {
            Ok(bandwidth) if bandwidth.is_finite() && bandwidth > 0.0 => points.push((n, bandwidth)),
            _ => {
                let reason = format!("b{n} must be a positive number, not {value:?}");
                return Err(BadInput::new(format!("line {number}"), reason));
            }
        }
    }
    Ok((1..=counts[counts.len() - 1]).map(|n| interpolate(&points, n)).collect())
}

fn interpolate(points: &[(usize, f64)], n: usize) -> f64 {
    let above = points.partition_point(|&(count, _)| count < n);
    let (right, b_right) = points[above];
    if right == n || above == 0 {
        return b_right;
    }
    let (left, b_left) = points[above - 1];
    b_left + (b_right - b_left) * (n - left) as f64 / (right - left) as f64
}

/// The general curve of each behaviour (section 6.2, Figure 10): the mean of all curves of that behaviour,
/// each divided by its best. `None` where no curve behaves so.
///
/// The paper fits a polynomial and does not say of which degree. One of a low degree moves the summit of
/// the peaks, and with it the `n_perf` of half of the curves; the mean is the fit of the highest degree.
pub fn profiles(curves: &[Vec<f64>]) -> [Option<Vec<f64>>; 4] {
    Behaviour::ALL.map(|behaviour| {
        let alike: Vec<&Vec<f64>> = curves.iter().filter(|c| Behaviour::of(c) == behaviour).collect();
        let width = alike.iter().map(|c| c.len()).min()?;
        let best = |curve: &[f64]| curve.iter().copied().fold(0.0, f64::max);
        let mean = |i: usize| alike.iter().map(|c| c[i] / best(c)).sum::<f64>() / alike.len() as f64;
        Some((0..width).map(mean).collect())
    })
}
