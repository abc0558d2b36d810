//! Places for files and turns for readers: what jobs ask beside their phases.

use super::{Coordinator, Peer};
use crate::allocation::Demand;
use crate::storage::Storage;
use crate::wire::{FileInfo, Message};
use weir_engine::aggregators;
use weir_engine::engine::JobId;

impl Coordinator {
    /// What is known of the storage from now on. Files keep the places that they were given.
    pub fn set_storages(&mut self, storages: &[Storage]) {
        self.allocations.replace(storages);
    }

    /// In which order targets serve readers from now on. Who waits for a turn need not.
    pub fn set_order(&mut self, order: aggregators::Policy) {
        self.turns.set_order(order);
        self.tell_turns();
        self.welcome_all();
    }

    pub fn order(&self) -> aggregators::Policy {
        self.turns.order()
    }

    /// What is no phase's.
    pub(super) fn handle_errand(&mut self, now_ns: u64, peer: Peer, message: Message) -> Result<(), String> {
        let Some(id) = self.node(peer).map(|node| node.job) else { return Ok(()) };
        match message {
            Message::Ask { request, file } => self.allocate(now_ns, peer, request, &file),
            Message::Release { request } => self.allocations.release(now_ns, id, (peer, request)),
            Message::Claim { request, file, targets } => {
                let demand = self.demand(id);
                self.allocations.adopt(id, (peer, request), &file, &targets, demand);
            }
            Message::Read { reader, .. } => {
                self.turns.read(now_ns, id, peer, reader);
                self.tell_turns();
            }
            Message::Served { number, call } => {
                self.turns.served(now_ns, id, peer, number, call);
                self.tell_turns();
            }
            _ => return Err("says what only a coordinator says, or says it twice".into()),
        }
        Ok(())
    }

    fn allocate(&mut self, now_ns: u64, peer: Peer, request: u64, file: &FileInfo) {
        let Some(id) = self.node(peer).map(|node| node.job) else { return };
        self.totals.decisions += 1;
        let demand = self.demand(id);
        let given = self.allocations.ask(now_ns, id, (peer, request), file, demand);
        let (aggregators, stripes, targets) = (given.aggregators, given.stripes, given.targets);
        self.outbox.push((peer, Message::Allocated { request, aggregators, stripes, targets }));
    }

    /// What the job's own phases, or earlier runs, have shown of it.
    fn demand(&self, id: JobId) -> Demand {
        let Some(job) = self.job(id) else { return Demand::default() };
        let seen = job.phases > 0;
        let w_iter_ns = self.engine.job(id).map(|known| known.w_iter_ns());
        Demand {
            w_iter_ns: w_iter_ns
                .filter(|w_iter_ns| (seen || job.info.usual_w_iter_ns.is_some()) && *w_iter_ns > 0.0),
            phase_bytes: if seen { Some(job.moved_bytes / job.phases) } else { job.mean_phase_bytes },
        }
    }

    pub(super) fn end_turns(&mut self, now_ns: u64, id: JobId) {
        self.turns.leave(now_ns, id);
        self.tell_turns();
    }

    pub(super) fn tell_turns(&mut self) {
        for (peer, number, call) in self.turns.given().drain(..) {
            self.totals.decisions += 1;
            self.outbox.push((peer, Message::Turn { number, call }));
        }
    }
}
