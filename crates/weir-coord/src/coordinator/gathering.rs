//! A coordinator that took over gathers for a moment what the jobs say of themselves, before it decides.

use super::{Coordinator, Peer};
use crate::jobs::Resumption;
use std::cmp::Reverse;

/// How long a coordinator that took over listens before it decides, at most …
const GATHER_NS: u64 = 60_000_000;
/// … and after the latest job that came back. Jobs hear at once that their coordinator is gone.
const QUIET_NS: u64 = 15_000_000;

impl Coordinator {
    /// Whether it still gathers what jobs that had another coordinator say of themselves.
    pub fn is_gathering(&self) -> bool {
        self.gather_until_ns.is_some()
    }

    /// A job that had another coordinator has come. Once: jobs that come back later are not waited for by all others again.
    pub(super) fn gather(&mut self, now_ns: u64) {
        if self.gather_began_ns.is_some() && !self.is_gathering() {
            return;
        }
        let began_ns = *self.gather_began_ns.get_or_insert(now_ns);
        self.gather_until_ns = Some((began_ns + GATHER_NS).min(now_ns + QUIET_NS));
    }

    pub(super) fn begin_or_gather(&mut self, now_ns: u64, peer: Peer, phase: Resumption) {
        self.take_back_lost(peer, phase.phase);
        if self.gather_until_ns.is_some() {
            self.gathered.retain(|(of, _)| *of != peer);
            self.gathered.push((peer, phase));
        } else {
            self.begin(now_ns, peer, phase);
        }
    }

    /// Those who held grants first, in the order in which their phases began: the engine, asked in this order,
    /// grants what the one before had granted, as far as the policy is one that comes first, serves first.
    pub(super) fn resume_gathered(&mut self, now_ns: u64) {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.sort_by_key(|(peer, phase)| (!phase.granted, Reverse(phase.age_ns), *peer));
        for (peer, phase) in gathered {
            self.begin(now_ns, peer, phase);
        }
    }

    /// A phase that was to be resumed is over before it was: the engine need not hear of it, and what it moved counts. False:
    /// there is none.
    pub(super) fn end_gathered(&mut self, peer: Peer, bytes: u64, io_ns: u64, waited_ns: u64) -> bool {
        let Some(at) = self.gathered.iter().position(|(of, _)| *of == peer) else { return false };
        let (_, phase) = self.gathered.remove(at);
        let Some(id) = self.node(peer).map(|node| node.job) else { return true };
        // The coordinator before has seen the rest.
        self.totals.add(bytes.saturating_sub(phase.progress.done_bytes));
        let is_of_job = |(of, _): &(Peer, Resumption)| self.node(*of).is_some_and(|node| node.job == id);
        let is_last = !self.gathered.iter().any(is_of_job);
        if let Some(job) = self.job_mut(id) {
            job.phases += u64::from(is_last);
            job.moved_bytes = job.moved_bytes.saturating_add(bytes);
            job.io_ns = job.io_ns.saturating_add(io_ns);
            job.waited_ns = job.waited_ns.saturating_add(waited_ns);
        }
        true
    }
}
