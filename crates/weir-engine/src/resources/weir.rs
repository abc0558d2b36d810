//! `weir`, our own: how many resources and which, decided together.
//!
//! TA keeps the I/O-load below 1 and leaves the rest to a placement that balances. But a balanced
//! load is not the least slowdown: on a resource with `k` applications whose presences add up to `P`,
//! each is slowed by the others, which makes `(k - 1)·P` in all. So applications that are nearly always
//! in I/O are better off in the company of few, and those that seldom are can share by many, as long
//! as none of the former is among them. Coordinate descent on the estimate of `mean_field.rs`
//! finds such schedules: each application in turn is put where the cost to all is least, until nobody
//! moves.

use super::mean_field::MeanField;
use super::{Application, Platform};

/// Rounds after which the descent ends even if somebody would still move. Most end within ten;
/// since the estimate of who is present changes along the way, two applications can chase each other.
const MAX_ROUNDS: usize = 20;

/// The resources of each application.
pub fn schedule(platform: &Platform, applications: &[Application]) -> Vec<Vec<usize>> {
    let resources = platform.resources;
    let ratio: Vec<f64> = applications.iter().map(|a| a.io_ratio(a.n_perf(resources))).collect();
    let mut order: Vec<usize> = (0..applications.len()).collect();
    order.sort_by(|&a, &b| ratio[b].total_cmp(&ratio[a]));
    let mut field = MeanField::new(*platform, applications);
    for _ in 0..MAX_ROUNDS {
        let moved = order.iter().filter(|&&i| field.settle(i)).count();
        if moved == 0 {
            break;
        }
    }
    field.placement()
}

/// The resources of the last application, when the others keep theirs.
pub fn join(platform: &Platform, applications: &[Application], others: &[&[usize]]) -> Vec<usize> {
    let mut field = MeanField::new(*platform, applications);
    for (i, resources) in others.iter().enumerate() {
        field.fix(i, resources.to_vec());
    }
    field.settle(others.len());
    field.placement().swap_remove(others.len())
}
