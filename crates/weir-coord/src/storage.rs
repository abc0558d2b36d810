//! What a site says of its storage, so that files can be placed.

use crate::wire::MAX_LIST;
use std::path::Path;
use weir_engine::resources::{self, Platform};

/// A file system with several storage targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    /// Where it is mounted, on all nodes.
    pub path: String,
    pub targets: usize,
    /// What one application moves on 1, 2, 3 … targets when it is alone, in bytes per second. None uses more
    /// targets than this has values.
    pub bandwidth: Vec<f64>,
    /// Of the machine whose jobs use it.
    pub compute_nodes: u64,
    /// How many targets a file gets, and which.
    pub allocation: resources::Policy,
    /// What all its jobs together move at most, and what one node does, in bytes per second; 0: not said.
    pub total_bandwidth: f64,
    pub node_bandwidth: f64,
}

/// The coordinator decides in the thread in which it answers everybody: within these bounds the slowest policy
/// (`ta`) does in some tens of milliseconds, `weir` in some.
pub const MAX_STORAGES: usize = 16;
pub const MAX_TARGETS: usize = MAX_LIST;
pub const MAX_CURVE: usize = 64;

impl Storage {
    /// With everything that need not be said.
    pub fn new(path: &str) -> Storage {
        Storage {
            path: path.into(),
            targets: 0,
            bandwidth: Vec::new(),
            compute_nodes: 0,
            allocation: resources::Policy::Weir,
            total_bandwidth: 0.0,
            node_bandwidth: 0.0,
        }
    }

    /// `B_i / B`: the part of the bandwidth that a node can use, if that was said.
    pub(crate) fn node_part(&self) -> Option<f64> {
        let is_said = self.total_bandwidth > 0.0 && self.node_bandwidth > 0.0;
        is_said.then(|| (self.node_bandwidth / self.total_bandwidth).min(1.0))
    }

    /// Whether files can be placed there; else only that it is one storage is known.
    pub(crate) fn has_targets(&self) -> bool {
        self.targets > 0
    }

    pub(crate) fn platform(&self) -> Platform {
        Platform { resources: self.targets, compute_nodes: self.compute_nodes }
    }

    /// What is wrong with it, by the name of the key.
    pub fn check(&self) -> Result<(), String> {
        if !Path::new(&self.path).is_absolute() {
            return Err(format!("storage {:?}: must be the path where it is mounted", self.path));
        }
        if (self.total_bandwidth > 0.0) != (self.node_bandwidth > 0.0) {
            return Err(
                "node_bandwidth_mb_per_s and total_bandwidth_mb_per_s: one is of no use without the other"
                    .into(),
            );
        }
        if !self.has_targets() && self.bandwidth.is_empty() && self.compute_nodes == 0 {
            return Ok(());
        }
        if !(1..=MAX_TARGETS).contains(&self.targets) {
            return Err(format!("targets: must be from 1 to {MAX_TARGETS}"));
        }
        if self.compute_nodes == 0 {
            return Err("compute_nodes: must be at least 1".into());
        }
        let most = self.targets.min(MAX_CURVE);
        if !(1..=most).contains(&self.bandwidth.len()) {
            return Err(format!(
                "bandwidth_mb_per_s: must have from 1 to {most} values, for so many targets"
            ));
        }
        if !self.bandwidth.iter().all(|value| value.is_finite() && *value >= 1.0) {
            return Err("bandwidth_mb_per_s: every value must be a positive number".into());
        }
        Ok(())
    }
}

/// The storage that a path is on: of those that hold it the innermost.
pub(crate) fn holding<'a>(storages: impl Iterator<Item = &'a Storage>, path: &str) -> Option<usize> {
    let path = Path::new(path);
    let holding = storages.enumerate().filter(|(_, storage)| path.starts_with(&storage.path));
    holding.max_by_key(|(_, storage)| storage.path.len()).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_holds_a_file() {
        let storages = ["/", "/scratch", "/scratch/fast"].map(Storage::new);
        let place = |path| holding(storages.iter(), path).map(|index| storages[index].path.as_str());
        assert_eq!(place("/scratch/fast/a"), Some("/scratch/fast"));
        assert_eq!(place("/scratch/faster/a"), Some("/scratch"));
        assert_eq!(place("/scratch"), Some("/scratch"));
        assert_eq!(place("/home/a"), Some("/"));
        assert_eq!(place("relative"), None);
        assert_eq!(holding(storages[1..].iter(), "/home/a"), None);
    }

    #[test]
    fn what_is_wrong_with_a_description_is_named() {
        let good =
            Storage { targets: 4, bandwidth: vec![1e9, 2e9], compute_nodes: 8, ..Storage::new("/scratch") };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(Storage::new("/scratch").check(), Ok(()), "a name alone");
        for (bad, key) in [
            (Storage { path: "scratch".into(), ..good.clone() }, "storage \"scratch\""),
            (Storage { targets: 0, ..good.clone() }, "targets: "),
            (Storage { targets: MAX_TARGETS + 1, ..good.clone() }, "targets: "),
            (Storage { compute_nodes: 0, ..good.clone() }, "compute_nodes: "),
            (Storage { bandwidth: vec![], ..good.clone() }, "bandwidth_mb_per_s: "),
            (
                Storage { bandwidth: vec![1e9; 5], ..good.clone() },
                "bandwidth_mb_per_s: must have from 1 to 4",
            ),
            (Storage { bandwidth: vec![1e9, f64::NAN], ..good.clone() }, "bandwidth_mb_per_s: every"),
            (Storage { bandwidth: vec![0.0], ..good }, "bandwidth_mb_per_s: every"),
        ] {
            let said = bad.check().unwrap_err();
            assert!(said.starts_with(key), "{said}");
        }
    }
}
