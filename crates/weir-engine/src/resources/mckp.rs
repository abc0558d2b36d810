//! MCKP: resources as a multiple-choice knapsack (J. L. Bez et al., "Arbitration policies for on-demand
//! user-level I/O forwarding on HPC platforms"), the state of the art the paper compares with.

use super::Application;

/// The numbers of resources with the largest sum of bandwidths when no resource is shared: one choice
/// per application, `N` the capacity of the knapsack.
///
/// With more applications than resources somebody has to share. Then one resource is set aside for
/// all who are left out (0 in the answer) and the rest of the knapsack goes to those who bring most:
/// exclusive access for as many as the sum of bandwidths wants, as the paper describes MCKP.
pub fn allocate(resources: usize, applications: &[Application]) -> Vec<usize> {
    let fewest = usize::from(applications.len() <= resources);
    let capacity = if fewest == 1 { resources } else { resources - 1 };
    let row = capacity + 1;
    // best[c]: the largest sum within capacity c of the applications so far, minus infinity for none.
    let mut best = vec![0.0; row];
    let mut choice = vec![0_u16; applications.len() * row];
    for (i, application) in applications.iter().enumerate() {
        let mut next = vec![f64::NEG_INFINITY; row];
        for c in 0..row {
            for n in fewest..=application.widest(c) {
                let bandwidth = if n == 0 { 0.0 } else { application.bandwidth[n - 1] };
                let sum = best[c - n] + bandwidth;
                if sum > next[c] {
                    (next[c], choice[i * row + c]) = (sum, n as u16);
                }
            }
        }
        best = next;
    }
    let mut left = capacity;
    let mut allocation = vec![0; applications.len()];
    for i in (0..applications.len()).rev() {
        allocation[i] = usize::from(choice[i * row + left]);
        left -= allocation[i];
    }
    allocation
}

/// MCKP's own placement: resources one after the other for those who have some to themselves, and the
/// last resource for all who have none.
pub fn place(resources: usize, allocation: &[usize]) -> Vec<Vec<usize>> {
    let mut free = 0..resources;
    allocation
        .iter()
        .map(|&n| if n == 0 { vec![resources - 1] } else { free.by_ref().take(n).collect() })
        .collect()
}
