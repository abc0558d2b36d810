//! How fast granted jobs move their bytes.

/// One granted job: what it was given and what it can use, as parts of the storage's bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    pub share: f64,
    pub cap: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// What one job cannot use goes to the others that hold a grant, in proportion to their shares
    /// (eq. 1 of IO-SETS where everybody can use all). This is what bandwidth tokens do.
    #[default]
    WorkConserving,
    /// Nobody gets more than its share, used by others or not. This is what a timetable assumes.
    Strict,
}

impl Storage {
    /// The rate of every demand, in the same order. Rates sum to at most one.
    pub fn rates(self, demands: &[Demand], rates: &mut Vec<f64>) {
        rates.clear();
        match self {
            Storage::Strict => rates.extend(demands.iter().map(|d| d.share.min(d.cap))),
            Storage::WorkConserving => fill(demands, rates),
        }
    }
}

/// Weighted max-min fairness by filling: those who can use less than their part take what they can,
/// and the rest is divided anew among the others.
fn fill(demands: &[Demand], rates: &mut Vec<f64>) {
    rates.resize(demands.len(), f64::NAN);
    let mut left = 1.0;
    loop {
        let open = || demands.iter().zip(rates.iter()).filter(|(_, rate)| rate.is_nan());
        let shares: f64 = open().map(|(demand, _)| demand.share).sum();
        let part = |demand: &Demand| left * demand.share / shares;
        if !open().any(|(demand, _)| demand.cap < part(demand)) {
            for (demand, rate) in demands.iter().zip(rates.iter_mut()).filter(|(_, rate)| rate.is_nan()) {
                *rate = part(demand);
            }
            return;
        }
        let mut taken = 0.0;
        for (demand, rate) in demands.iter().zip(rates.iter_mut()).filter(|(_, rate)| rate.is_nan()) {
            if demand.cap < part(demand) {
                *rate = demand.cap;
                taken += demand.cap;
            }
        }
        left -= taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_rates(storage: Storage, demands: &[(f64, f64)], expected: &[f64]) {
        let demands: Vec<Demand> = demands.iter().map(|&(share, cap)| Demand { share, cap }).collect();
        let mut rates = Vec::new();
        storage.rates(&demands, &mut rates);
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(
            rates.len() == expected.len() && rates.iter().zip(expected).all(close),
            "{rates:?} {expected:?}"
        );
    }

    #[test]
    fn shares_are_relative_where_everybody_can_use_all() {
        assert_rates(Storage::WorkConserving, &[(0.25, 1.0)], &[1.0]);
        assert_rates(Storage::WorkConserving, &[(0.1, 1.0), (0.3, 1.0)], &[0.25, 0.75]);
    }

    #[test]
    fn what_one_cannot_use_goes_to_the_others() {
        assert_rates(Storage::WorkConserving, &[(0.5, 0.1), (0.25, 1.0), (0.25, 1.0)], &[0.1, 0.45, 0.45]);
        // Two rounds: once the first is capped, the second turns out to be capped as well.
        assert_rates(Storage::WorkConserving, &[(0.5, 0.1), (0.25, 0.3), (0.25, 1.0)], &[0.1, 0.3, 0.6]);
        assert_rates(Storage::WorkConserving, &[(0.5, 0.1), (0.5, 0.2)], &[0.1, 0.2]);
    }

    #[test]
    fn a_timetable_gives_no_more_than_it_says() {
        assert_rates(Storage::Strict, &[(0.25, 1.0), (0.5, 0.1)], &[0.25, 0.1]);
    }
}
