//! Collective calls to try the policies on, drawn from a seed.

use super::Aggregator;
use super::cost::{Network, shuffle_cost_ns};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_pcg::Pcg64Mcg;

/// A cluster like the one of the HIO paper's section 8.1.
#[derive(Clone, Copy, Debug)]
pub struct Testbed {
    pub network: Network,
    /// What a storage node delivers, and what it needs before the first byte.
    pub storage_bytes_per_s: f64,
    pub storage_latency_ns: u64,
    /// Processes of each application, and how many of them share a compute node.
    pub processes: u64,
    pub cores: u64,
}

impl Testbed {
    /// 7200 RPM disks, gigabit Ethernet, eight cores a node, 50 processes an application. The paper gives the
    /// hardware, not its speed: these are the usual figures of such parts.
    pub const PAPER: Testbed = Testbed {
        network: Network { intra_bytes_per_s: 2e9, inter_bytes_per_s: 117e6, latency_ns: 25_000 },
        storage_bytes_per_s: 100e6,
        storage_latency_ns: 8_000_000,
        processes: 50,
        cores: 8,
    };

    /// One collective call of each application. Its aggregators go round the targets; each moves about
    /// `request_bytes`, of which the processes of the application want uneven shares.
    /// `spread` is the standard deviation of an application's request size, as a fraction of the mean.
    pub fn calls(
        &self,
        seed: u64,
        applications: usize,
        targets: usize,
        aggregators: usize,
        request_bytes: f64,
        spread: f64,
    ) -> Vec<Vec<Aggregator>> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let call = |_| {
            let normal: f64 = StandardNormal.sample(&mut random);
            let bytes = request_bytes * (1.0 + spread * normal).max(0.05);
            (0..aggregators).map(|number| self.aggregator(&mut random, number, targets, bytes)).collect()
        };
        (0..applications).map(call).collect()
    }

    fn aggregator(&self, random: &mut Pcg64Mcg, number: usize, targets: usize, bytes: f64) -> Aggregator {
        // One aggregator per node, as by default; exponential shares are a random division of the whole.
        let own_node = number as u64 % self.processes.div_ceil(self.cores);
        let shares: Vec<f64> = (0..self.processes).map(|_| Exp1.sample(random)).collect();
        let whole: f64 = shares.iter().sum();
        let messages = shares
            .iter()
            .enumerate()
            .map(|(process, share)| (process as u64 / self.cores, (bytes * share / whole) as u64));
        let transfer_ns = bytes / self.storage_bytes_per_s * 1e9;
        Aggregator {
            target: number % targets,
            service_ns: self.storage_latency_ns + transfer_ns as u64,
            shuffle_ns: shuffle_cost_ns(&self.network, own_node, messages),
        }
    }
}

/// Where the slow aggregators of the applications are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slowest {
    /// Each application's at a target of its own, as far as there are enough: the paper's best case.
    Apart,
    /// Each application's at some target.
    Anywhere,
    /// Nobody's stands out: all shuffle costs are drawn alike.
    Nowhere,
}

/// One call of each application with an aggregator at every target. Reads take half to one and a half times
/// `read_ns`. The slowest aggregator of an application shuffles for `slowest_ns`, the others for up to a tenth
/// of that; if none stands out, each shuffles for up to `slowest_ns`.
pub fn calls(
    seed: u64,
    applications: usize,
    targets: usize,
    read_ns: u64,
    slowest_ns: u64,
    slowest: Slowest,
) -> Vec<Vec<Aggregator>> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let call = |application| {
        let slow = match slowest {
            Slowest::Apart => Some(application % targets),
            Slowest::Anywhere => Some(random.random_range(0..targets)),
            Slowest::Nowhere => None,
        };
        let aggregator = |target| {
            let drawn: f64 = random.random();
            let fraction = match slow {
                Some(slow) if slow == target => 1.0,
                Some(_) => drawn / 10.0,
                None => drawn,
            };
            Aggregator {
                target,
                service_ns: (read_ns as f64 * random.random_range(0.5..1.5)) as u64,
                shuffle_ns: (slowest_ns as f64 * fraction) as u64,
            }
        };
        (0..targets).map(aggregator).collect()
    };
    (0..applications).map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shuffle_takes_the_paper_s_share_of_the_cost() {
        // Section 8.2: 0.7 % of the total cost at 64 KB, 5.6 % at 10 MB.
        for (request_bytes, expected) in [(65_536.0, 0.007), (1e7, 0.056)] {
            let calls = Testbed::PAPER.calls(1, 50, 6, 6, request_bytes, 0.0);
            let sum = |cost: fn(&Aggregator) -> u64| calls.iter().flatten().map(cost).sum::<u64>() as f64;
            let (read, shuffle) = (sum(|a| a.service_ns), sum(|a| a.shuffle_ns));
            let share = shuffle / (read + shuffle);
            assert!((expected * 0.7..expected * 1.5).contains(&share), "{request_bytes}: {share}");
        }
    }

    #[test]
    fn slow_aggregators_are_where_they_were_asked_for() {
        let slow = |call: &Vec<Aggregator>| call.iter().position(|a| a.shuffle_ns == 500);
        let apart = calls(3, 4, 4, 100, 500, Slowest::Apart);
        assert_eq!(apart.iter().map(slow).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)]);
        assert!(apart.iter().flatten().all(|a| (50..150).contains(&a.service_ns)));
        assert!(calls(3, 9, 4, 100, 500, Slowest::Anywhere).iter().all(|call| slow(call).is_some()));
        assert_eq!(apart, calls(3, 4, 4, 100, 500, Slowest::Apart));
    }
}
