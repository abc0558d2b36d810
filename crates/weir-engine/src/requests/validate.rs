//! Cross-validation of a tree.

use super::tree::{Examples, Tree};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// Examples misclassified by trees learnt without them: every example is tried once, by the tree learnt
/// from the other folds. Stratified: every class is spread evenly over the folds.
pub fn cross_validation_errors(examples: &Examples, folds: usize, seed: u64) -> usize {
    let mut order: Vec<usize> = (0..examples.rows.len()).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    order.sort_by_key(|&row| examples.rows[row].class);
    let part = |keep: &dyn Fn(usize) -> bool| Examples {
        attributes: examples.attributes.clone(),
        classes: examples.classes.clone(),
        rows: order
            .iter()
            .enumerate()
            .filter(|(place, _)| keep(place % folds.max(1)))
            .map(|(_, &row)| examples.rows[row].clone())
            .collect(),
    };
    let errors_in = |fold: usize| {
        let tried_on = part(&|other| other == fold);
        tried_on.rows.len() - Tree::learn(&part(&|other| other != fold)).correct(&tried_on)
    };
    (0..folds).map(errors_in).sum()
}
