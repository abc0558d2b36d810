//! How many targets the files of a job get, and which, as long as the job is there. Pure.
//!
//! The engine's [`Arbiter`] decides over the jobs that have asked. A job has one set of targets at a time: files
//! that it opens while others of its are open go to the same ones. When it opens one with none open, it is
//! decided anew, with what was learnt of it meanwhile. A job that has closed its files still counts for
//! [`LINGER_NS`]: it computes, and will be back.

use crate::coordinator::Peer;
use crate::storage::{Storage, holding};
use crate::wire::FileInfo;
use std::collections::{BTreeMap, BTreeSet};
use weir_engine::engine::JobId;
use weir_engine::resources::Application;
use weir_engine::resources::arbiter::Arbiter;

/// How long a job without open files counts as one that uses its targets.
pub(crate) const LINGER_NS: u64 = 600_000_000_000;

/// With more jobs on one storage, newcomers get no opinion: deciding would take too long.
const MAX_CLAIMS: usize = 128;

/// More open files of a job are not counted. They get the same targets.
const MAX_FILES: usize = 4096;

/// The part of its time that a job spends in I/O, when nothing is known of it.
const ASSUMED_IO_RATIO: f64 = 0.1;

/// What is known of a job that asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    pub(crate) w_iter_ns: Option<f64>,
    pub(crate) phase_bytes: Option<u64>,
}

/// Zero and empty: no opinion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allotment {
    pub(crate) aggregators: u32,
    pub(crate) stripes: u32,
    pub(crate) targets: Vec<u32>,
}

/// A file by the number that a node gave it.
pub(crate) type File = (Peer, u64);

#[derive(Default)]
pub(crate) struct Allocations {
    storages: Vec<AtStorage>,
}

struct AtStorage {
    storage: Storage,
    arbiter: Arbiter,
    claims: BTreeMap<JobId, Claim>,
}

#[derive(Default)]
struct Claim {
    files: BTreeSet<File>,
    closed_ns: u64,
}

impl Allocations {
    /// Storages that make no sense are left out.
    pub(crate) fn new(storages: &[Storage]) -> Allocations {
        Allocations { storages: storages.iter().filter_map(AtStorage::new).collect() }
    }
    /// Other storages from now on. Where nothing has changed, what was decided stays known.
    pub(crate) fn replace(&mut self, storages: &[Storage]) {
        let before = std::mem::replace(self, Allocations::new(storages));
        for old in before.storages {
            if let Some(new) = self.storages.iter_mut().find(|new| new.storage == old.storage) {
                *new = old;
            }
        }
    }

    /// A file of the job is about to be made.
    pub(crate) fn ask(
        &mut self,
        now_ns: u64,
        job: JobId,
        file: File,
        info: &FileInfo,
        demand: Demand,
    ) -> Allotment {
        let Some(at) = self.holding(&info.path) else { return Allotment::default() };
        let most = at.storage.targets as u32;
        // A file whose stripes are the program's own is not ours to place.
        let targets = if info.fixed_stripes > 0 {
            Vec::new()
        } else {
            at.claim(now_ns, job, file, info, demand).unwrap_or_default()
        };
        let stripes = targets.len() as u32;
        // One aggregator per target keeps them out of each other's way there.
        let width = if info.fixed_stripes > 0 { info.fixed_stripes.min(most) } else { stripes };
        let aggregators = if info.fixed_aggregators > 0 { 0 } else { width.min(info.ranks) };
        Allotment { aggregators, stripes, targets }
    }

    /// A file that was placed before this coordinator was there.
    pub(crate) fn adopt(&mut self, job: JobId, file: File, info: &FileInfo, targets: &[u32], demand: Demand) {
        let Some(at) = self.holding(&info.path) else { return };
        let targets: Vec<usize> = targets.iter().map(|&target| target as usize).collect();
        if !at.claims.contains_key(&job) {
            let application = at.application(info, demand);
            let full = at.claims.len() == MAX_CLAIMS;
            if full || at.arbiter.adopt(u64::from(job.0), application, &targets).is_err() {
                return;
            }
        }
        at.claims.entry(job).or_default().open(file);
    }

    /// The file is closed.
    pub(crate) fn release(&mut self, now_ns: u64, job: JobId, file: File) {
        for claim in self.storages.iter_mut().filter_map(|at| at.claims.get_mut(&job)) {
            claim.close(now_ns, |of| *of == file);
        }
    }

    /// The node is gone, and its files with it.
    pub(crate) fn node_gone(&mut self, now_ns: u64, job: JobId, peer: Peer) {
        for claim in self.storages.iter_mut().filter_map(|at| at.claims.get_mut(&job)) {
            claim.close(now_ns, |(of, _)| *of == peer);
        }
    }

    pub(crate) fn job_gone(&mut self, job: JobId) {
        for at in &mut self.storages {
            at.forget(job);
        }
    }

    /// What the job has: the storage, the targets there, the number of its open files.
    pub(crate) fn of_job(&self, job: JobId) -> impl Iterator<Item = (&str, &[usize], usize)> {
        self.storages.iter().filter_map(move |at| {
            let claim = at.claims.get(&job)?;
            let targets = at.arbiter.resources_of(u64::from(job.0))?;
            Some((at.storage.path.as_str(), targets, claim.files.len()))
        })
    }

    fn holding(&mut self, path: &str) -> Option<&mut AtStorage> {
        let index = holding(self.storages.iter().map(|at| &at.storage), path)?;
        self.storages.get_mut(index)
    }
}

impl AtStorage {
    fn new(storage: &Storage) -> Option<AtStorage> {
        storage.check().ok()?;
        let arbiter = Arbiter::new(storage.platform(), storage.allocation, 1).ok()?;
        Some(AtStorage { storage: storage.clone(), arbiter, claims: BTreeMap::new() })
    }

    /// The targets of the job from now on; `None` if it has to do without.
    fn claim(
        &mut self,
        now_ns: u64,
        job: JobId,
        file: File,
        info: &FileInfo,
        demand: Demand,
    ) -> Option<Vec<u32>> {
        self.forget_those_who_left(now_ns, job);
        if !self.claims.contains_key(&job) {
            if self.claims.len() == MAX_CLAIMS {
                return None;
            }
            self.arbiter.join(u64::from(job.0), self.application(info, demand)).ok()?;
        }
        self.claims.entry(job).or_default().open(file);
        let targets = self.arbiter.resources_of(u64::from(job.0))?;
        Some(targets.iter().map(|&target| target as u32).collect())
    }

    /// Those without open files: who asks is decided anew, others when they have been away for long.
    fn forget_those_who_left(&mut self, now_ns: u64, asks: JobId) {
        let gone = |(&job, claim): (&JobId, &Claim)| {
            let away = job == asks || now_ns >= claim.closed_ns.saturating_add(LINGER_NS);
            (claim.files.is_empty() && away).then_some(job)
        };
        let gone: Vec<JobId> = self.claims.iter().filter_map(gone).collect();
        gone.into_iter().for_each(|job| self.forget(job));
    }

    fn forget(&mut self, job: JobId) {
        if self.claims.remove(&job).is_some() {
            self.arbiter.leave(u64::from(job.0));
        }
    }

    /// One period of the job, as the engine wants it: loads are parts of time, so one stands for all.
    fn application(&self, info: &FileInfo, demand: Demand) -> Application {
        let best = self.storage.bandwidth.iter().copied().fold(0.0, f64::max);
        let bytes = demand.phase_bytes.or((info.bytes > 0).then_some(info.bytes));
        let (volume, cpu_time_s) = match (bytes, demand.w_iter_ns) {
            (Some(bytes), Some(w_iter_ns)) if bytes > 0 => {
                (bytes as f64, (w_iter_ns * 1e-9 - bytes as f64 / best).max(0.0))
            }
            _ => (ASSUMED_IO_RATIO * best, 1.0 - ASSUMED_IO_RATIO),
        };
        Application {
            bandwidth: self.storage.bandwidth.clone(),
            volume,
            cpu_time_s,
            nodes: u64::from(info.nodes).clamp(1, self.storage.compute_nodes),
            phases: 1,
        }
    }
}

impl Claim {
    fn open(&mut self, file: File) {
        if self.files.len() < MAX_FILES {
            self.files.insert(file);
        }
    }

    fn close(&mut self, now_ns: u64, is_closed: impl Fn(&File) -> bool) {
        let before = self.files.len();
        self.files.retain(|file| !is_closed(file));
        if self.files.len() < before {
            self.closed_ns = now_ns;
        }
    }
}

#[cfg(test)]
mod tests;
