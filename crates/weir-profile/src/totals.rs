//! Sums of counters: a lane's, a rank's or a job's, by the rule of each counter.

use crate::counters::{Counter, Merge, Module};
use crate::layout::COUNTERS_PER_BLOCK;
use crate::profile::{Counters, Value};
use crate::record::Clock;
use std::borrow::Cow;

/// Counters of one module. Times are nanoseconds, moments nanoseconds since 1970.
#[derive(Clone, Debug)]
pub(crate) struct Totals {
    module: Module,
    values: [u64; COUNTERS_PER_BLOCK],
}

impl Totals {
    pub(crate) fn new(module: Module) -> Self {
        Totals { module, values: [0; COUNTERS_PER_BLOCK] }
    }

    /// Counters as a process left them, in ticks where they are times.
    pub(crate) fn from_ticks(module: Module, words: &[u64; COUNTERS_PER_BLOCK], clock: &Clock) -> Self {
        let mut totals = Totals::new(module);
        for (index, counter) in module.counters().iter().enumerate() {
            totals.values[index] = match (counter.merge, words[index]) {
                (Merge::State, _) => 0,
                (Merge::First | Merge::Last, 0) => 0,
                (Merge::First | Merge::Last, ticks) => clock.moment_ns(ticks),
                (Merge::Seconds | Merge::Longest, ticks) => clock.duration_ns(ticks),
                (Merge::Sum | Merge::Max, count) => count,
            };
        }
        totals
    }

    pub(crate) fn get(&self, index: usize) -> u64 {
        self.values[index]
    }

    /// Adds the counters of the same module of another lane, rank or file.
    pub(crate) fn absorb(&mut self, other: &Totals) {
        debug_assert_eq!(self.module, other.module);
        for (index, counter) in self.module.counters().iter().enumerate() {
            let (mine, theirs) = (self.values[index], other.values[index]);
            self.values[index] = match counter.merge {
                Merge::Sum | Merge::Seconds => mine.saturating_add(theirs),
                Merge::Max | Merge::Longest | Merge::Last => mine.max(theirs),
                Merge::First if mine == 0 || theirs == 0 => mine.max(theirs),
                Merge::First => mine.min(theirs),
                Merge::State => 0,
            };
        }
    }

    /// All counters for the profile; moments count from the job's start.
    pub(crate) fn counters(&self, start_ns: u64) -> Counters {
        self.entries(start_ns).collect()
    }

    /// Only those that are not zero.
    pub(crate) fn counters_in_use(&self, start_ns: u64) -> Counters {
        self.entries(start_ns).filter(|(_, value)| value.as_f64() != 0.0).collect()
    }

    fn entries(&self, start_ns: u64) -> impl Iterator<Item = (Cow<'static, str>, Value)> + '_ {
        let public = |(_, counter): &(usize, &Counter)| counter.merge != Merge::State;
        self.module.counters().iter().enumerate().filter(public).map(move |(index, counter)| {
            let value = self.values[index];
            let value = match counter.merge {
                Merge::Sum | Merge::Max | Merge::State => Value::Count(value),
                Merge::Seconds | Merge::Longest => Value::Seconds(seconds(value)),
                Merge::First | Merge::Last => Value::Seconds(seconds(value.saturating_sub(start_ns))),
            };
            (Cow::Borrowed(counter.name), value)
        })
    }
}

pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
