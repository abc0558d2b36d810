//! Two queues per file, one for reads and one for writes, in offset order; contiguous neighbours become
//! one virtual request (section 2.1). What the algorithms that reorder or aggregate have in common.

use super::{Operation, Request, RequestId};
use std::collections::{BTreeMap, VecDeque};

/// A request inside a virtual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub id: RequestId,
    pub bytes: u64,
}

/// Contiguous requests of one queue that are served at once; a lone request is one too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualRequest {
    pub file: u64,
    pub operation: Operation,
    pub offset: u64,
    pub bytes: u64,
    /// In offset order, each beginning where the one before ends.
    pub parts: VecDeque<Part>,
    /// The part that arrived first.
    pub oldest: RequestId,
    quantum: Quantum,
}

/// Bytes a request may move, of use to aIOLi and MLF: what it had when the queue's credit was
/// `credit_bytes`, and from then on what the queue's credit grows by. Credits add up over all steps
/// ever taken, which 64 bits need not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Quantum {
    bytes: u128,
    credit_bytes: u128,
}

impl Quantum {
    fn at(self, credit_bytes: u128) -> u128 {
        self.bytes + credit_bytes - self.credit_bytes
    }
}

impl VirtualRequest {
    pub(super) fn lone(id: RequestId, request: &Request, credit_bytes: u128) -> Self {
        VirtualRequest {
            file: request.file,
            operation: request.operation,
            offset: request.offset,
            bytes: request.bytes,
            parts: VecDeque::from([Part { id, bytes: request.bytes }]),
            oldest: id,
            quantum: Quantum { bytes: 0, credit_bytes },
        }
    }

    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    pub fn ids(&self) -> impl Iterator<Item = RequestId> {
        self.parts.iter().map(|part| part.id)
    }

    fn key(&self) -> Key {
        (self.offset, self.parts.front().map_or(self.oldest, |part| part.id))
    }

    /// `self` and `next`, which begins where `self` ends. The shorter list of parts moves.
    fn join(mut self, mut next: VirtualRequest, credit_bytes: u128) -> VirtualRequest {
        let quantum_bytes = self.quantum.at(credit_bytes) + next.quantum.at(credit_bytes);
        if self.parts.len() >= next.parts.len() {
            self.parts.append(&mut next.parts);
        } else {
            while let Some(part) = self.parts.pop_back() {
                next.parts.push_front(part);
            }
            self.parts = next.parts;
        }
        self.bytes = self.bytes.saturating_add(next.bytes);
        self.oldest = self.oldest.min(next.oldest);
        self.quantum = Quantum { bytes: quantum_bytes, credit_bytes };
        self
    }
}

/// Offset, then the first part's id: two requests may begin at the same offset.
type Key = (u64, RequestId);

/// Queues are numbered in the order in which they first got a request.
pub(super) type QueueIndex = u64;

/// `H` is what an algorithm remembers about a queue.
#[derive(Default)]
pub(super) struct Queue<H> {
    pending: BTreeMap<Key, VirtualRequest>,
    /// The sum of its requests' sizes.
    pub(super) bytes: u64,
    /// What each request of the queue has been granted since the queue exists.
    pub(super) credit_bytes: u128,
    pub(super) history: H,
}

impl<H> Queue<H> {
    /// The one of lowest offset.
    pub(super) fn head(&self) -> Option<&VirtualRequest> {
        self.pending.first_key_value().map(|(_, head)| head)
    }

    /// The one that begins at `offset`, if any.
    fn starting_at(&self, offset: u64) -> Option<&VirtualRequest> {
        self.pending
            .range((offset, 0)..)
            .next()
            .map(|(_, found)| found)
            .filter(|found| found.offset == offset)
    }

    pub(super) fn quantum_bytes(&self, request: &VirtualRequest) -> u128 {
        request.quantum.at(self.credit_bytes)
    }

    /// The neighbours of `new` in offset order that touch it.
    fn contiguous(&self, new: &VirtualRequest) -> (Option<Key>, Option<Key>) {
        let before = self.pending.range(..new.key()).next_back().map(|(_, before)| before);
        let before = before.filter(|before| before.end() == new.offset).map(VirtualRequest::key);
        (before, self.starting_at(new.end()).map(VirtualRequest::key).filter(|&after| Some(after) != before))
    }
}

/// All queues, and all virtual requests by age.
pub(super) struct Queues<H> {
    index: BTreeMap<(u64, Operation), QueueIndex>,
    queues: BTreeMap<QueueIndex, Queue<H>>,
    ages: BTreeMap<RequestId, (QueueIndex, Key)>,
    created: QueueIndex,
}

/// Queues that may be idle before they are forgotten, however few are busy.
const IDLE_QUEUES: usize = 1024;

impl<H: Default> Queues<H> {
    pub(super) fn new() -> Self {
        Queues { index: BTreeMap::new(), queues: BTreeMap::new(), ages: BTreeMap::new(), created: 0 }
    }

    pub(super) fn get(&self, queue: QueueIndex) -> Option<&Queue<H>> {
        self.queues.get(&queue)
    }

    pub(super) fn get_mut(&mut self, queue: QueueIndex) -> Option<&mut Queue<H>> {
        self.queues.get_mut(&queue)
    }

    /// The queue of a request, made if it is the first.
    pub(super) fn queue_of(&mut self, request: &Request) -> QueueIndex {
        let of = (request.file, request.operation);
        if let Some(&queue) = self.index.get(&of) {
            return queue;
        }
        self.forget_idle();
        self.index.insert(of, self.created);
        self.queues.insert(self.created, Queue::default());
        self.created += 1;
        self.created - 1
    }

    /// Keeps memory proportional to what is pending, at a constant cost per new queue.
    fn forget_idle(&mut self) {
        if self.queues.len() > 2 * self.ages.len() + IDLE_QUEUES {
            self.queues.retain(|_, queue| !queue.pending.is_empty());
            self.index.retain(|_, queue| self.queues.contains_key(queue));
        }
    }

    /// Puts a request in its place; neighbours that touch it become one virtual request with it.
    pub(super) fn add(&mut self, id: RequestId, request: &Request) -> QueueIndex {
        let index = self.queue_of(request);
        let Some(queue) = self.queues.get_mut(&index) else { return index };
        let mut new = VirtualRequest::lone(id, request, queue.credit_bytes);
        queue.bytes = queue.bytes.saturating_add(request.bytes);
        let (before, after) = queue.contiguous(&new);
        if let Some(before) = before.and_then(|key| queue.pending.remove(&key)) {
            self.ages.remove(&before.oldest);
            new = before.join(new, queue.credit_bytes);
        }
        if let Some(after) = after.and_then(|key| queue.pending.remove(&key)) {
            self.ages.remove(&after.oldest);
            new = new.join(after, queue.credit_bytes);
        }
        self.ages.insert(new.oldest, (index, new.key()));
        queue.pending.insert(new.key(), new);
        index
    }

    /// The queue of the oldest pending request, and the virtual request it is part of.
    pub(super) fn oldest(&self) -> Option<(QueueIndex, RequestId)> {
        self.ages.first_key_value().map(|(&oldest, &(queue, _))| (queue, oldest))
    }

    /// Takes the virtual request whose oldest part is `oldest` out of its queue.
    pub(super) fn take(&mut self, oldest: RequestId) -> Option<VirtualRequest> {
        let (index, key) = self.ages.remove(&oldest)?;
        let queue = self.queues.get_mut(&index)?;
        let taken = queue.pending.remove(&key)?;
        queue.bytes = queue.bytes.saturating_sub(taken.bytes);
        Some(taken)
    }
}
