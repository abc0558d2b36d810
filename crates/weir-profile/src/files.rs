//! The files of a job, bounded in number.

use crate::counters::{Module, mpiio, posix, stdio};
use crate::profile::{self, LISTED_RANKS, OTHER_FILES};
use crate::totals::Totals;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Files with an entry of their own in the profile.
pub(crate) const LISTED_FILES: usize = 1000;
/// Files that are kept while ranks are merged. A thousand ranks may know a thousand files each.
const KEPT_FILES: usize = 8 * LISTED_FILES;

/// Ranks of which the first are listed and all are counted. Ranks come in ascending order.
#[derive(Default)]
struct Ranks {
    count: u64,
    last: Option<u64>,
    listed: Vec<u64>,
}

impl Ranks {
    fn insert(&mut self, rank: u64) {
        if self.last != Some(rank) {
            self.last = Some(rank);
            self.count += 1;
            if self.listed.len() < LISTED_RANKS {
                self.listed.push(rank);
            }
        }
    }
}

#[derive(Default)]
struct File {
    modules: [Option<Box<Totals>>; 3],
    ranks: Ranks,
    aggregators: Ranks,
}

impl File {
    fn add(&mut self, rank: u64, module: Module, totals: &Totals) {
        self.ranks.insert(rank);
        if module == Module::Mpiio && totals.get(mpiio::MPIIO_COLL_FILE_BYTES) > 0 {
            self.aggregators.insert(rank);
        }
        self.absorb(module, totals);
    }

    fn absorb(&mut self, module: Module, totals: &Totals) {
        match &mut self.modules[module as usize] {
            Some(sum) => sum.absorb(totals),
            none => *none = Some(Box::new(totals.clone())),
        }
    }

    /// Bytes moved. What MPI-IO moved shows up again in the POSIX calls beneath, so the larger counts.
    fn bytes(&self) -> u64 {
        let sum = |module: Module, read: usize, written: usize| {
            let totals = self.modules[module as usize].as_ref();
            totals.map_or(0, |totals| totals.get(read).saturating_add(totals.get(written)))
        };
        let mpiio = sum(Module::Mpiio, mpiio::MPIIO_BYTES_READ, mpiio::MPIIO_BYTES_WRITTEN);
        let posix = sum(Module::Posix, posix::POSIX_BYTES_READ, posix::POSIX_BYTES_WRITTEN);
        let stdio = sum(Module::Stdio, stdio::STDIO_BYTES_READ, stdio::STDIO_BYTES_WRITTEN);
        mpiio.max(posix).saturating_add(stdio)
    }

    fn finish(self, name: String, start_ns: u64) -> profile::File {
        let modules = Module::ALL.into_iter().zip(self.modules);
        profile::File {
            name,
            nranks: self.ranks.count,
            ranks: self.ranks.listed,
            naggregators: self.aggregators.count,
            aggregators: self.aggregators.listed,
            modules: modules
                .filter_map(|(module, totals)| {
                    Some((Cow::Borrowed(module.name()), totals?.counters_in_use(start_ns)))
                })
                .collect(),
        }
    }
}

/// All files so far. When there are too many, those with fewest bytes move to "other files" for good:
/// whatever still has an entry of its own is exact.
#[derive(Default)]
pub(crate) struct Files {
    by_name: HashMap<String, File>,
    moved: HashSet<String>,
    other: File,
}

impl Files {
    /// Adds the counters a rank has for a file; `None` is the rank's own "other files".
    pub(crate) fn add(&mut self, name: Option<&str>, rank: u64, module: Module, totals: &Totals) {
        let Some(name) = name.filter(|name| !self.moved.contains(*name)) else {
            return self.other.add(rank, module, totals);
        };
        if let Some(file) = self.by_name.get_mut(name) {
            return file.add(rank, module, totals);
        }
        if self.by_name.len() >= KEPT_FILES {
            self.keep(KEPT_FILES / 2);
        }
        self.by_name.entry(name.to_string()).or_default().add(rank, module, totals);
    }

    /// Keeps the `count` files with most bytes, and returns them in that order, names breaking ties.
    fn keep(&mut self, count: usize) -> Vec<String> {
        let mut order: Vec<(u64, String)> =
            self.by_name.iter().map(|(name, file)| (file.bytes(), name.clone())).collect();
        order.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        for (_, name) in order.drain(count.min(order.len())..) {
            if let Some(file) = self.by_name.remove(&name) {
                for (module, totals) in Module::ALL.into_iter().zip(&file.modules) {
                    if let Some(totals) = totals {
                        self.other.absorb(module, totals);
                    }
                }
            }
            self.moved.insert(name);
        }
        order.into_iter().map(|(_, name)| name).collect()
    }

    /// The list for the profile, "other files" last, and how many files are in there.
    pub(crate) fn finish(mut self, start_ns: u64) -> (Vec<profile::File>, u64) {
        let names = self.keep(LISTED_FILES);
        let mut list = Vec::with_capacity(names.len() + 1);
        for name in names {
            if let Some(file) = self.by_name.remove(&name) {
                list.push(file.finish(name, start_ns));
            }
        }
        if self.other.modules.iter().any(Option::is_some) {
            list.push(self.other.finish(OTHER_FILES.to_string(), start_ns));
        }
        (list, self.moved.len() as u64)
    }
}
