//! How long the job was held in its life: a coordinator that takes over hears it from the job.

use super::{Gate, OpenReason, Session};
use weir_engine::engine::Past;

/// How long the job's phases were held, by the word of its coordinators.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stalls {
    past_ns: u64,
    /// Since when the phase under way is held.
    since_ns: Option<u64>,
}

impl Stalls {
    /// From now on the job is held, or not.
    pub(super) fn note(&mut self, now_ns: u64, is_stalled: bool) {
        self.past_ns = self.sum_ns(now_ns);
        self.since_ns = is_stalled.then_some(now_ns);
    }

    fn sum_ns(&self, now_ns: u64) -> u64 {
        self.past_ns + self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }
}

impl Session {
    /// Whether the phase under way has no turn, by the latest word of a coordinator. One that is backfilled has none.
    pub(super) fn is_stalled(&self) -> bool {
        let is_open = self.gate == Gate::Open { reason: OpenReason::NoCoordinator };
        self.phase.is_some_and(|phase| !phase.granted) && !is_open
    }

    /// How long the job's phases were held so far, whoever coordinated.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        self.stalls.sum_ns(now_ns)
    }

    /// What a coordinator that takes over has to hear of the job.
    pub(super) fn past(&self, now_ns: u64) -> Past {
        let life_ns = now_ns.saturating_sub(self.began_ns);
        Past { life_ns, stalled_ns: self.stalled_ns(now_ns), alone: self.alone }
    }
}
