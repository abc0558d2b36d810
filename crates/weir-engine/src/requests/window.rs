//! What the latest requests say about the access pattern, for `auto`.
//!
//! The paper detects spatiality and request size with a classifier that is "out of this article's scope"
//! (section 4) and takes the majority over files. Here, a client's request is put together from what
//! arrived contiguously and at nearly the same time, the way a transfer limit takes it apart; a file is
//! contiguous if most requests after the first moment begin where an earlier one ended.

use super::select::{RequestSize, Situation, Spatiality};
use super::{Device, Operation, Request, Settings};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) struct Window {
    latest: VecDeque<(u64, Request)>,
    capacity: usize,
    stripe_bytes: u64,
    moment_ns: u64,
}

/// What is seen of one file.
#[derive(Default)]
struct Trace {
    /// Clients' requests that may still be growing, by where they end: when the last piece arrived.
    growing: BTreeMap<u64, u64>,
    /// Where others ended.
    ends: BTreeSet<u64>,
    first_arrival_ns: u64,
    requests: u64,
    bytes: u64,
    later: u64,
    continuing: u64,
}

impl Trace {
    fn add(&mut self, now_ns: u64, request: &Request, moment_ns: u64) {
        if self.requests == 0 {
            self.first_arrival_ns = now_ns;
        }
        let grows = self.growing.remove(&request.offset);
        if grows.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) > moment_ns) {
            self.requests += 1;
            let continues = grows.is_some() || self.ends.remove(&request.offset);
            if now_ns.saturating_sub(self.first_arrival_ns) > moment_ns {
                self.later += 1;
                self.continuing += u64::from(continues);
            }
        }
        self.bytes = self.bytes.saturating_add(request.bytes);
        let end = request.offset.saturating_add(request.bytes);
        if self.growing.insert(end, now_ns).is_some() {
            self.ends.insert(end);
        }
    }

    fn contiguous(&self) -> bool {
        2 * self.continuing >= self.later
    }

    fn large(&self, stripe_bytes: u64) -> bool {
        self.bytes / self.requests.max(1) > stripe_bytes
    }
}

impl Window {
    pub(super) fn new(settings: &Settings) -> Self {
        Window {
            latest: VecDeque::new(),
            capacity: settings.selection_requests.max(1),
            stripe_bytes: settings.stripe_bytes,
            moment_ns: settings.waiting_ns,
        }
    }

    pub(super) fn add(&mut self, now_ns: u64, request: Request) {
        if self.latest.len() == self.capacity {
            self.latest.pop_front();
        }
        self.latest.push_back((now_ns, request));
    }

    /// `None` before the first request. Ties are contiguous, small, and the operation that came first.
    pub(super) fn situation(&self, device: &Device) -> Option<Situation> {
        let (_, first) = self.latest.front()?;
        let mut traces: BTreeMap<u64, Trace> = BTreeMap::new();
        for (arrival_ns, request) in &self.latest {
            traces.entry(request.file).or_default().add(*arrival_ns, request, self.moment_ns);
        }
        let most = |count: usize, of: usize| 2 * count > of;
        let writes = self.latest.iter().filter(|(_, request)| request.operation == Operation::Write).count();
        let operation = match 2 * writes {
            double if double > self.latest.len() => Operation::Write,
            double if double < self.latest.len() => Operation::Read,
            _ => first.operation,
        };
        let scattered = traces.values().filter(|trace| !trace.contiguous()).count();
        let large = traces.values().filter(|trace| trace.large(self.stripe_bytes)).count();
        let bytes: u128 = traces.values().map(|trace| u128::from(trace.bytes)).sum();
        let files = traces.len();
        Some(Situation {
            operation,
            files: files as u64,
            bytes_per_file: u64::try_from(bytes / files as u128).unwrap_or(u64::MAX),
            spatiality: if most(scattered, files) {
                Spatiality::NonContiguous
            } else {
                Spatiality::Contiguous
            },
            request_size: if most(large, files) { RequestSize::Large } else { RequestSize::Small },
            seq_to_random: device.ratio(operation),
        })
    }
}
