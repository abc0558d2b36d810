//! Single calls of a job: its collective calls, rank by rank, and its slowest calls.

use crate::layout::SLOWEST;
use crate::profile::{self, LISTED_RANKS};
use crate::record;
use crate::totals::seconds;
use std::collections::BTreeMap;

/// Collective calls with an entry of their own.
const LISTED_CALLS: usize = 256;

struct RankPart {
    rank: u64,
    time_ns: u64,
    file_ns: u64,
}

struct Call {
    op: String,
    start_ns: u64,
    end_ns: u64,
    bytes: u64,
    file_bytes: u64,
    max_rank_ns: u64,
    nranks: u64,
    parts: Vec<RankPart>,
}

impl Call {
    fn add(&mut self, rank: u64, call: &record::Collective) {
        let time_ns = call.end_ns - call.start_ns;
        self.start_ns = self.start_ns.min(call.start_ns);
        self.end_ns = self.end_ns.max(call.end_ns);
        self.bytes = self.bytes.saturating_add(call.bytes);
        self.file_bytes = self.file_bytes.saturating_add(call.file_bytes);
        self.max_rank_ns = self.max_rank_ns.max(time_ns);
        self.nranks += 1;
        self.parts.push(RankPart { rank, time_ns, file_ns: call.file_ns });
        if self.parts.len() > LISTED_RANKS {
            // The rank that says least goes: aggregators stay, then the slow.
            let weight = |part: &RankPart| (part.file_ns, part.time_ns);
            let least = (0..self.parts.len()).min_by_key(|index| weight(&self.parts[*index]));
            self.parts.remove(least.unwrap_or(0));
        }
    }
}

/// Collective calls, put together from what each rank saw of them. Ranks count the collective calls on
/// a file alike, so file and number name the call.
#[derive(Default)]
pub(crate) struct Calls {
    by_file_and_sequence: BTreeMap<(String, u64), Call>,
    dropped: u64,
}

impl Calls {
    pub(crate) fn add(&mut self, rank: u64, file: &str, call: &record::Collective) {
        let key = (file.to_string(), call.sequence);
        if !self.by_file_and_sequence.contains_key(&key) && self.by_file_and_sequence.len() >= LISTED_CALLS {
            self.dropped += 1;
            return;
        }
        let entry = self.by_file_and_sequence.entry(key).or_insert_with(|| Call {
            op: call.op.clone(),
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            bytes: 0,
            file_bytes: 0,
            max_rank_ns: 0,
            nranks: 0,
            parts: Vec::new(),
        });
        entry.add(rank, call);
    }

    /// The list in order of time, and how many calls of ranks are not in it.
    pub(crate) fn finish(self, start_ns: u64) -> (Vec<profile::Call>, u64) {
        let since = |moment_ns: u64| seconds(moment_ns.saturating_sub(start_ns));
        let mut calls: Vec<_> = self.by_file_and_sequence.into_iter().collect();
        calls.sort_by_key(|(_, call)| call.start_ns);
        let list = calls
            .into_iter()
            .map(|((file, sequence), call)| profile::Call {
                file,
                op: call.op,
                sequence,
                start_s: since(call.start_ns),
                end_s: since(call.end_ns),
                bytes: call.bytes,
                file_bytes: call.file_bytes,
                max_rank_s: seconds(call.max_rank_ns),
                nranks: call.nranks,
                ranks: call
                    .parts
                    .iter()
                    .map(|part| profile::RankCall {
                        rank: part.rank,
                        time_s: seconds(part.time_ns),
                        file_s: seconds(part.file_ns),
                        rest_s: seconds(part.time_ns - part.file_ns),
                    })
                    .collect(),
            })
            .collect();
        (list, self.dropped)
    }
}

/// The slowest calls of the job, slowest first; ties go to the earlier call.
#[derive(Default)]
pub(crate) struct Slowest(Vec<(u64, record::Slow, String)>);

impl Slowest {
    pub(crate) fn add(&mut self, rank: u64, file: &str, slow: record::Slow) {
        if self.0.len() == SLOWEST && self.0[SLOWEST - 1].1.duration_ns >= slow.duration_ns {
            return;
        }
        self.0.push((rank, slow, file.to_string()));
        self.0.sort_by_key(|(rank, slow, _)| (u64::MAX - slow.duration_ns, slow.start_ns, *rank));
        self.0.truncate(SLOWEST);
    }

    pub(crate) fn finish(self, start_ns: u64) -> Vec<profile::Slow> {
        let entry = |(rank, slow, file): (u64, record::Slow, String)| profile::Slow {
            op: slow.op,
            file,
            rank,
            start_s: seconds(slow.start_ns.saturating_sub(start_ns)),
            duration_s: seconds(slow.duration_ns),
            bytes: slow.bytes,
        };
        self.0.into_iter().map(entry).collect()
    }
}
