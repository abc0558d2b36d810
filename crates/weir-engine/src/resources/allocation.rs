//! How many resources each application gets (section 4.1).

use super::{Application, Platform};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The allocation algorithms, by how much they know about the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allocator {
    /// A number drawn at random: knows nothing.
    Random,
    /// In proportion to the compute nodes: knows `Q`.
    Static,
    /// BestBdw, the shortest I/O for everybody: knows `n_perf`.
    Bba,
    /// Nsys-Allocator, the least I/O-load: knows `V_io`, `T_cpu` and `b`.
    Nsysa,
    /// TCPU-Allocator, a compromise of the two (Algorithm 1): knows all of the above.
    Ta,
}

impl Allocator {
    pub const ALL: [Allocator; 5] =
        [Allocator::Random, Allocator::Static, Allocator::Bba, Allocator::Nsysa, Allocator::Ta];

    pub fn name(self) -> &'static str {
        match self {
            Allocator::Random => "random",
            Allocator::Static => "static",
            Allocator::Bba => "bba",
            Allocator::Nsysa => "nsysa",
            Allocator::Ta => "ta",
        }
    }

    /// How many resources each application gets: at least 1, at most what its curve and the platform
    /// have. The seed matters to `random` alone.
    pub fn allocate(self, platform: &Platform, applications: &[Application], seed: u64) -> Vec<usize> {
        let resources = platform.resources;
        let each = |count: &dyn Fn(&Application) -> usize| applications.iter().map(count).collect();
        match self {
            Allocator::Random => random(resources, applications, seed),
            Allocator::Static => each(&|a| in_proportion(platform, a)),
            Allocator::Bba => each(&|a| a.n_perf(resources)),
            Allocator::Nsysa => each(&|a| a.n_sys(resources)),
            Allocator::Ta => tcpu(resources, applications),
        }
    }
}

fn random(resources: usize, applications: &[Application], seed: u64) -> Vec<usize> {
    let mut rng = Pcg64::seed_from_u64(seed);
    applications.iter().map(|a| rng.random_range(1..=a.widest(resources))).collect()
}

/// `Q·N / Q^cpu` to the nearest positive integer, as far as the application's curve goes.
fn in_proportion(platform: &Platform, application: &Application) -> usize {
    let (nodes, all) = (u128::from(application.nodes), u128::from(platform.compute_nodes));
    let rounded = (2 * nodes * platform.resources as u128 + all) / (2 * all);
    usize::try_from(rounded).unwrap_or(usize::MAX).clamp(1, application.widest(platform.resources))
}

/// TCPU-Allocator (Algorithm 1): from the least I/O-load, widen the application that keeps most compute
/// nodes computing, as long as the I/O-load stays at most 1.
///
/// Line 12 as printed measures a gain against the last candidate tried, so that after a dip of the curve
/// a number of resources worse than the present one counts as a gain. The text says that what is widened
/// adds CPU load: gains are measured against the present allocation here. With this reading TA is
/// exactly BBA whenever the I/O-load of BBA is at most 1, as the paper says it is.
fn tcpu(resources: usize, applications: &[Application]) -> Vec<usize> {
    let n_perf: Vec<usize> = applications.iter().map(|a| a.n_perf(resources)).collect();
    let mut allocation: Vec<usize> = applications.iter().map(|a| a.n_sys(resources)).collect();
    loop {
        let stress: f64 = applications.iter().zip(&allocation).map(|(a, &n)| a.io_stress(n)).sum();
        let mut best: Option<(usize, usize, f64)> = None;
        for (i, application) in applications.iter().enumerate() {
            let present = allocation[i];
            let fits = |n: usize| {
                let widened = stress + application.io_stress(n) - application.io_stress(present);
                widened <= resources as f64
            };
            let gain = |n: usize| application.cpu_load(n) - application.cpu_load(present);
            let Some(n) = (present + 1..=n_perf[i]).find(|&n| fits(n) && gain(n) >= 0.0) else { continue };
            if best.is_none_or(|(_, _, most)| gain(n) > most) {
                best = Some((i, n, gain(n)));
            }
        }
        match best {
            Some((i, n, _)) => allocation[i] = n,
            None => return allocation,
        }
    }
}
