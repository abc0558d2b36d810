//! A job's node at one storage: the ledger that its ranks share, and the leader among them.

use crate::leader::Leader;
use weir_coord::ledger::Ledger;
use weir_coord::session::Gate;

pub(crate) struct Node {
    pub(crate) job: usize,
    pub(crate) machine: usize,
    pub(crate) storage: usize,
    pub(crate) ledger: Box<Ledger>,
    pub(crate) leader: Option<Box<Leader>>,
    /// What the leader's bell says in shared memory, whoever is there.
    pub(crate) bell_is_asleep: bool,
    /// What was last put before the ranks, and what they had spent before the phase.
    pub(crate) put: (Gate, u64),
    /// Bytes of all requests that have started.
    pub(crate) started_bytes: u64,
}

impl Node {
    pub(crate) fn new(job: usize, machine: usize, storage: usize) -> Node {
        Node {
            job,
            machine,
            storage,
            ledger: Ledger::boxed(),
            leader: None,
            bell_is_asleep: false,
            put: (Gate::Closed, 0),
            started_bytes: 0,
        }
    }
}
