//! Phases that the program marked, over all ranks.

use crate::phases::{self, Span};
use crate::profile::Outside;
use std::collections::BTreeMap;

/// Phases of one name that are kept while ranks are merged.
const KEPT_PHASES: usize = 2048;
/// Names beyond these have one list together.
const KEPT_NAMES: usize = 64;
const OTHER_NAMES: &str = "other names";

/// By name, each list in order of starts. Ranks need not mark the same: whatever else a rank marks has another name.
#[derive(Default)]
pub(crate) struct Marked(BTreeMap<Option<String>, Vec<Span>>);

impl Marked {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the phases of one lane that have this name. Returns of how many only sums are left.
    pub(crate) fn add(&mut self, name: Option<String>, mut spans: Vec<Span>) -> u64 {
        let has_room = self.0.len() < KEPT_NAMES || self.0.contains_key(&name);
        let list = self.0.entry(if has_room { name } else { Some(OTHER_NAMES.into()) }).or_default();
        spans.sort_by_key(|span| span.start_ns);
        *list = phases::unite_marked(list, &spans);
        phases::thin(list, KEPT_PHASES)
    }

    /// All phases in order of starts, with their names in the same order.
    pub(crate) fn phases(&self) -> (Vec<Span>, Vec<Option<String>>) {
        let of_name = |(name, list): (_, &Vec<Span>)| list.iter().map(move |span| (*span, name)).collect();
        let mut all: Vec<(Span, &Option<String>)> = self.0.iter().flat_map::<Vec<_>, _>(of_name).collect();
        all.sort_by_key(|(span, _)| span.start_ns);
        all.into_iter().map(|(span, name)| (span, name.clone())).unzip()
    }
}

/// I/O that nobody marked belongs to the phase it overlaps, if that stands alone. Returns what is outside.
pub(crate) fn share_out(found: &[Span], phases: &mut [Span]) -> Outside {
    let mut outside = Outside::default();
    for burst in found {
        let overlaps = |phase: &&mut Span| {
            phase.more == 0 && phase.start_ns <= burst.end_ns && burst.start_ns <= phase.end_ns
        };
        let (read, written, calls) = match phases.iter_mut().find(overlaps) {
            Some(phase) => (&mut phase.bytes_read, &mut phase.bytes_written, &mut phase.calls),
            None => (&mut outside.bytes_read, &mut outside.bytes_written, &mut outside.calls),
        };
        *read = read.saturating_add(burst.bytes_read);
        *written = written.saturating_add(burst.bytes_written);
        *calls = calls.saturating_add(burst.calls);
    }
    outside
}
