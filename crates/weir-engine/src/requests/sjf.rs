//! SJF (section 2.3): requests of the queue with the smallest total size, in offset order.

use super::queues::{QueueIndex, Queues, VirtualRequest};
use super::scheduler::{Next, Order};
use super::{Request, RequestId};
use std::collections::BTreeSet;

/// Total size, then the age of the first request to be served.
type Rank = (u64, RequestId);

/// The paper goes through all queues to select one (equation 2); here they are kept in order of size.
pub(super) struct Sjf {
    queues: Queues<Option<Rank>>,
    by_size: BTreeSet<(Rank, QueueIndex)>,
}

impl Sjf {
    pub(super) fn new() -> Self {
        Sjf { queues: Queues::new(), by_size: BTreeSet::new() }
    }

    /// Puts a queue that has changed where it now belongs.
    fn rank(&mut self, index: QueueIndex) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        let rank = queue.head().map(|head| (queue.bytes, head.oldest));
        if let Some(old) = std::mem::replace(&mut queue.history, rank) {
            self.by_size.remove(&(old, index));
        }
        self.by_size.extend(rank.map(|rank| (rank, index)));
    }

    fn take(&mut self, oldest: RequestId, queue: QueueIndex) -> Option<VirtualRequest> {
        let taken = self.queues.take(oldest);
        self.rank(queue);
        taken
    }
}

impl Order for Sjf {
    fn add(&mut self, id: RequestId, request: &Request) {
        let queue = self.queues.add(id, request);
        self.rank(queue);
    }

    fn next(&mut self, _now_ns: u64, _may_wait: bool) -> Next {
        let smallest = self.by_size.first().copied();
        let taken = smallest.and_then(|((_, oldest), queue)| self.take(oldest, queue));
        taken.map_or(Next::Nothing, Next::Dispatch)
    }

    fn take_oldest(&mut self) -> Option<VirtualRequest> {
        let (queue, oldest) = self.queues.oldest()?;
        self.take(oldest, queue)
    }
}
