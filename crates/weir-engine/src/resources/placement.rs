//! Which resources each application gets (section 4.2).

use super::Application;
use rand::{SeedableRng, seq::index};
use rand_pcg::Pcg64;

/// The placement algorithms. Each gives an application distinct resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placer {
    /// Random-Placement.
    Rand,
    /// Greedy-Non-Clairvoyant: as many applications on one resource as on the next.
    Gnc,
    /// Greedy-Clairvoyant: as much I/O-Stress on one resource as on the next.
    Gc,
}

impl Placer {
    pub const ALL: [Placer; 3] = [Placer::Rand, Placer::Gnc, Placer::Gc];

    pub fn name(self) -> &'static str {
        match self {
            Placer::Rand => "rand",
            Placer::Gnc => "gnc",
            Placer::Gc => "gc",
        }
    }

    /// The resources of each application, ascending; `allocation` says how many. The seed matters to
    /// `rand` alone.
    pub fn place(
        self,
        resources: usize,
        applications: &[Application],
        allocation: &[usize],
        seed: u64,
    ) -> Vec<Vec<usize>> {
        match self {
            Placer::Rand => at_random(resources, allocation, seed),
            Placer::Gnc => round_robin(resources, allocation),
            Placer::Gc => least_stressed(resources, applications, allocation),
        }
    }

    /// `n` resources for the last application, when the others keep theirs: the same aim (as few
    /// applications, as little I/O-Stress on each), without the order.
    pub(crate) fn join(
        self,
        resources: usize,
        applications: &[Application],
        others: &[&[usize]],
        n: usize,
        seed: u64,
    ) -> Vec<usize> {
        let weight: &dyn Fn(usize) -> f64 = match self {
            Placer::Rand => return at_random(resources, &[n], seed).swap_remove(0),
            Placer::Gnc => &|_| 1.0,
            Placer::Gc => &|i| applications[i].io_ratio(others[i].len()),
        };
        let mut load = vec![0.0; resources];
        for (i, theirs) in others.iter().enumerate() {
            theirs.iter().for_each(|&r| load[r] += weight(i));
        }
        least(&load, n)
    }
}

fn at_random(resources: usize, allocation: &[usize], seed: u64) -> Vec<Vec<usize>> {
    let mut rng = Pcg64::seed_from_u64(seed);
    allocation.iter().map(|&n| ascending(index::sample(&mut rng, resources, n).into_vec())).collect()
}

/// By decreasing number of resources, each application takes the next ones round the platform.
fn round_robin(resources: usize, allocation: &[usize]) -> Vec<Vec<usize>> {
    let mut placement = vec![Vec::new(); allocation.len()];
    let mut next = 0;
    for i in order_by(allocation.len(), |i| -(allocation[i] as f64)) {
        placement[i] = ascending((next..next + allocation[i]).map(|r| r % resources).collect());
        next = (next + allocation[i]) % resources;
    }
    placement
}

/// By decreasing I/O ratio, each application takes the resources with the least I/O-Stress so far.
fn least_stressed(resources: usize, applications: &[Application], allocation: &[usize]) -> Vec<Vec<usize>> {
    let ratio: Vec<f64> = applications.iter().zip(allocation).map(|(a, &n)| a.io_ratio(n)).collect();
    let mut stress = vec![0.0; resources];
    let mut placement = vec![Vec::new(); allocation.len()];
    for i in order_by(allocation.len(), |i| -ratio[i]) {
        placement[i] = least(&stress, allocation[i]);
        placement[i].iter().for_each(|&r| stress[r] += ratio[i]);
    }
    placement
}

/// The `n` resources with the least load, the lower index first among equals; ascending.
fn least(load: &[f64], n: usize) -> Vec<usize> {
    ascending(order_by(load.len(), |r| load[r]).into_iter().take(n).collect())
}

/// `0 … count - 1` by increasing key; equals keep their order, which is that of arrival.
fn order_by(count: usize, key: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
    order
}

fn ascending(mut resources: Vec<usize>) -> Vec<usize> {
    resources.sort_unstable();
    resources
}
