//! `slack`: every call is promised the finish that SIO would give it, and is then brought forward as far as
//! the promises given to the others allow.
//!
//! A plan that keeps every promise is only ever replaced by one that does, and one that does always exists:
//! a newcomer put behind all others, where SIO would put it. So no call finishes later than under SIO.

use super::Waiting;
use super::forward::{Place, Problem};
use std::collections::{BTreeMap, VecDeque};

/// What all targets are going to serve, and in which order.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    effort: u64,
    targets: Vec<Target>,
    promises: BTreeMap<u64, Promise>,
    /// Somebody joined since the sequences were made.
    stale: bool,
}

#[derive(Clone, Debug, Default)]
struct Target {
    /// When what it is serving now will be done.
    free_ns: u64,
    /// When SIO would be done with everything. The sequence ends no later, so that a newcomer put behind it
    /// is in time.
    sio_end_ns: u64,
    sequence: VecDeque<Waiting>,
}

/// What a call that still has aggregators waiting may rely on.
#[derive(Clone, Copy, Debug)]
struct Promise {
    finish_ns: u64,
    waiting: usize,
    /// When the aggregators that have been served will have shuffled.
    settled_ns: u64,
}

impl Plan {
    pub(super) fn new(targets: usize, effort: u64) -> Self {
        Plan { effort, targets: vec![Target::default(); targets], promises: BTreeMap::new(), stale: false }
    }

    /// Takes in a call that finishes at `finish_ns` if it is put behind all others.
    pub(super) fn promise(&mut self, call: u64, finish_ns: u64) {
        self.promises.insert(call, Promise { finish_ns, waiting: 0, settled_ns: 0 });
    }

    /// Puts an aggregator of a call with a promise behind all others of its target.
    pub(super) fn append(&mut self, target: usize, waiting: Waiting, sio_end_ns: u64) {
        let target = &mut self.targets[target];
        target.sio_end_ns = sio_end_ns;
        target.sequence.push_back(waiting);
        self.promises.get_mut(&waiting.call).expect("promised on joining").waiting += 1;
        self.stale = true;
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&Waiting) -> bool) {
        for waiting in self.targets.iter().flat_map(|target| &target.sequence).filter(|w| !stays(w)) {
            self.promises.remove(&waiting.call);
        }
        for target in &mut self.targets {
            target.sequence.retain(&stays);
        }
        self.stale = true;
    }

    pub(super) fn head(&mut self, now_ns: u64, target: usize) -> Option<&Waiting> {
        self.targets[target].free_ns = now_ns;
        if self.stale {
            self.replan(now_ns);
            self.stale = false;
        }
        self.targets[target].sequence.front()
    }

    pub(super) fn serve_head(&mut self, now_ns: u64, target: usize) {
        let target = &mut self.targets[target];
        let Some(served) = target.sequence.pop_front() else { return };
        target.free_ns = now_ns + served.service_ns;
        let promise = self.promises.get_mut(&served.call).expect("kept while somebody waits");
        promise.waiting -= 1;
        promise.settled_ns = promise.settled_ns.max(target.free_ns + served.tail_ns);
        if promise.waiting == 0 {
            self.promises.remove(&served.call);
        }
    }

    /// Makes the sequences anew, from the promises: what an earlier plan gave beyond them is not owed.
    fn replan(&mut self, now_ns: u64) {
        let mut problem = Problem::default();
        let numbers: BTreeMap<u64, usize> = self
            .promises
            .iter()
            .map(|(&call, promise)| (call, problem.add_call(promise.finish_ns, promise.settled_ns)))
            .collect();
        for target in &self.targets {
            let places = target.sequence.iter().map(|waiting| Place {
                call: numbers[&waiting.call],
                ready_ns: waiting.ready_ns,
                service_ns: waiting.service_ns,
                tail_ns: waiting.tail_ns,
            });
            problem.add_target(target.free_ns.max(now_ns), target.sio_end_ns, places);
        }
        let orders = problem.solve(self.effort);
        for (target, order) in self.targets.iter_mut().zip(orders) {
            target.sequence = order.into_iter().map(|index| target.sequence[index]).collect();
        }
    }
}
