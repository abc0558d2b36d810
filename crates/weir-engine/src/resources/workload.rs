//! Application sets of a wanted I/O-load (section 5.3).

use super::{Application, BadInput, Platform};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// `T_cpu + T_io(1)` of every application.
pub const HORIZON_S: f64 = 5_000.0;

/// What a set is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Protocol<'a> {
    pub platform: Platform,
    /// `K`, at least 3: there are large, medium and small applications.
    pub applications: usize,
    /// `Θ`, the I/O-load if every application had one resource.
    pub load: f64,
    pub curves: &'a [Vec<f64>],
}

impl Protocol<'_> {
    /// An application set: a curve, 2 to 20 phases, compute nodes by size class, and a ratio of compute
    /// to I/O time drawn from `[0, b]`, with `b` such that the expected I/O-load is `Θ`.
    pub fn draw(&self, seed: u64) -> Result<Vec<Application>, BadInput> {
        self.platform.check()?;
        if self.applications < 3 {
            return Err(BadInput::new("applications", "must be at least 3"));
        }
        if self.curves.is_empty() {
            return Err(BadInput::new("curves", "needs at least one curve"));
        }
        let stress = self.load * self.platform.resources as f64 / self.applications as f64;
        if !(stress > 0.0 && stress < 1.0) {
            return Err(BadInput::new("load", "must be positive and below applications / resources"));
        }
        let bound = ratio_bound(stress);
        let mut rng = Pcg64::seed_from_u64(seed);
        let application = |i: usize| {
            let bandwidth = self.curves[rng.random_range(0..self.curves.len())].clone();
            let phases = rng.random_range(2..=20);
            let io_share = 1.0 / (1.0 + bound * rng.random::<f64>());
            Application {
                volume: HORIZON_S * bandwidth[0] * io_share,
                cpu_time_s: HORIZON_S * (1.0 - io_share),
                nodes: self.nodes(i),
                bandwidth,
                phases,
            }
        };
        Ok((0..self.applications).map(application).collect())
    }

    /// 10 % of the applications are large and use 75 % of the compute nodes, 30 % are medium and use
    /// 20 %, 60 % are small and use 5 %.
    fn nodes(&self, i: usize) -> u64 {
        let of = |share: f64| ((share * self.applications as f64).round() as usize).max(1);
        let (large, medium) = (of(0.1), of(0.3));
        let (share, alike) = if i < large {
            (0.75, large)
        } else if i < large + medium {
            (0.2, medium)
        } else {
            (0.05, self.applications - large - medium)
        };
        ((share * self.platform.compute_nodes as f64 / alike as f64) as u64).max(1)
    }
}

/// The `b > 0` with `ln(1 + b) = b·stress`: the mean of `1/(1 + X)` over `X` in `[0, b]` is `stress`.
fn ratio_bound(stress: f64) -> f64 {
    let too_low = |b: f64| b.ln_1p() > b * stress;
    let mut high = 1.0;
    while too_low(high) {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if too_low(middle) { low = middle } else { high = middle }
    }
    high
}
