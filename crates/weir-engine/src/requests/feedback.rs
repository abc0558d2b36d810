//! aIOLi (section 2.1) and MLF (section 2.2): a request is served once its quantum has grown to its size.
//!
//! Every step grants each request of a queue more bytes, so that short requests go first and long ones
//! are served in the end; a virtual request has the sum of its parts' quanta. The two algorithms differ
//! in what lies between queues: aIOLi takes the queue whose head came first and is synchronous, MLF goes
//! round and takes the next queue whose head may be served.
//!
//! Where the paper leaves room, this is the reading:
//! - "a value that depends on its queue's past quanta usage": a step grants `quantum_bytes` times
//!   (1 + the share of its quantum that the queue used in its last turn).
//! - "a shift phenomenon is suspected": a queue's head lies beyond the point where the queue's last
//!   request ended, as if the process between were late. If it does not come within the waiting time,
//!   the queue is not suspected again until a request does begin where the last one ended.
//! - "better aggregations were recently achieved": the head has fewer parts than the last virtual
//!   request of its queue. A queue waits at most once between two of its dispatches.

use super::queues::{Queue, QueueIndex, Queues, VirtualRequest};
use super::scheduler::{Next, Order};
use super::{Request, RequestId, Settings};
use std::collections::{BTreeSet, VecDeque};

pub(super) struct Feedback {
    between: Between,
    quantum_bytes: u64,
    waiting_ns: u64,
    queues: Queues<History>,
    /// Steps taken so far; MLF's step is a round.
    step: u128,
    /// Queues whose head's quantum suffices, in the order of `between`.
    ripe: BTreeSet<(u64, QueueIndex)>,
    /// The others, by the step at which it will.
    unripe: BTreeSet<(u128, QueueIndex)>,
    /// Queues that wait, by the end of it. Entries outlive waits that ended early.
    waiting: VecDeque<(u64, QueueIndex)>,
    turn: Option<Turn>,
}

/// How one of the queues is chosen.
enum Between {
    FirstCome,
    RoundRobin { last: Option<QueueIndex> },
}

/// The queue being served, and what of its quantum is left for requests that follow contiguously.
struct Turn {
    queue: QueueIndex,
    quantum_bytes: u128,
    used_bytes: u128,
}

/// What is remembered about a queue.
#[derive(Default)]
struct History {
    /// Granted per step beyond the quantum, from the last turn's usage.
    bonus_bytes: u64,
    /// The step up to which grants are in the queue's credit.
    settled_step: u128,
    /// Where its last dispatch ended, and how many requests were in it.
    end: Option<u64>,
    parts: usize,
    wait: Option<Wait>,
    waited: bool,
    /// Its last suspicion of a shift was wrong.
    trusts_no_shift: bool,
    place: Option<Place>,
}

#[derive(Clone, Copy)]
enum Place {
    Ripe(u64),
    Unripe(u128),
}

#[derive(Clone, Copy, PartialEq)]
struct Wait {
    until_ns: u64,
    hope: Hope,
}

#[derive(Clone, Copy, PartialEq)]
enum Hope {
    /// That a request begins here.
    Offset(u64),
    /// That as many requests become one.
    Parts(usize),
}

impl Hope {
    fn came_true(self, head: &VirtualRequest) -> bool {
        match self {
            Hope::Offset(offset) => head.offset <= offset,
            Hope::Parts(parts) => head.parts.len() >= parts,
        }
    }
}

impl Feedback {
    pub(super) fn aioli(settings: &Settings) -> Self {
        Feedback::new(Between::FirstCome, settings)
    }

    pub(super) fn mlf(settings: &Settings) -> Self {
        Feedback::new(Between::RoundRobin { last: None }, settings)
    }

    fn new(between: Between, settings: &Settings) -> Self {
        Feedback {
            between,
            quantum_bytes: settings.quantum_bytes.max(1),
            waiting_ns: settings.waiting_ns,
            queues: Queues::new(),
            step: 0,
            ripe: BTreeSet::new(),
            unripe: BTreeSet::new(),
            waiting: VecDeque::new(),
            turn: None,
        }
    }

    /// Brings a queue's credit up to the present step.
    fn settle(&mut self, index: QueueIndex) -> Option<&mut Queue<History>> {
        let queue = self.queues.get_mut(index)?;
        let grant_bytes = u128::from(self.quantum_bytes) + u128::from(queue.history.bonus_bytes);
        queue.credit_bytes += grant_bytes * (self.step - queue.history.settled_step);
        queue.history.settled_step = self.step;
        Some(queue)
    }

    /// Puts a queue that has changed where it now belongs.
    fn place(&mut self, index: QueueIndex) {
        let first_come = matches!(self.between, Between::FirstCome);
        let (quantum_bytes, step) = (self.quantum_bytes, self.step);
        let Some(queue) = self.settle(index) else { return };
        let old = queue.history.place.take();
        let new = queue.head().filter(|_| queue.history.wait.is_none()).map(|head| {
            let missing_bytes = u128::from(head.bytes).saturating_sub(queue.quantum_bytes(head));
            let grant_bytes = u128::from(quantum_bytes) + u128::from(queue.history.bonus_bytes);
            match missing_bytes.div_ceil(grant_bytes) {
                0 => Place::Ripe(if first_come { head.oldest } else { index }),
                steps => Place::Unripe(step + steps),
            }
        });
        queue.history.place = new;
        match old {
            Some(Place::Ripe(rank)) => self.ripe.remove(&(rank, index)),
            Some(Place::Unripe(step)) => self.unripe.remove(&(step, index)),
            None => false,
        };
        match new {
            Some(Place::Ripe(rank)) => self.ripe.insert((rank, index)),
            Some(Place::Unripe(step)) => self.unripe.insert((step, index)),
            None => false,
        };
    }

    /// Takes steps until a queue may be served, all at once if many are needed.
    fn choose(&mut self) -> Option<QueueIndex> {
        if let Between::RoundRobin { last: Some(last) } = self.between
            && let Some(&(_, index)) = self.ripe.range((last + 1, 0)..).next()
        {
            return Some(index);
        }
        let ripening = self.unripe.first().map(|&(step, _)| step);
        self.step = match ripening {
            Some(step) if self.ripe.is_empty() => step,
            _ => self.step + 1,
        };
        while let Some(&(step, index)) = self.unripe.first()
            && step <= self.step
        {
            self.place(index);
        }
        self.ripe.first().map(|&(_, index)| index)
    }

    /// Whether the chosen queue should rather wait for a better aggregation.
    fn waits(&mut self, index: QueueIndex, now_ns: u64) -> bool {
        let until_ns = now_ns.saturating_add(self.waiting_ns);
        let Some(queue) = self.queues.get_mut(index) else { return false };
        let Some(head) = queue.head() else { return false };
        let history = &queue.history;
        let hope = match history.end {
            _ if history.waited || until_ns <= now_ns => return false,
            Some(end) if head.offset > end && !history.trusts_no_shift => Hope::Offset(end),
            _ if head.parts.len() < history.parts => Hope::Parts(history.parts),
            _ => return false,
        };
        queue.history.wait = Some(Wait { until_ns, hope });
        queue.history.waited = true;
        self.waiting.push_back((until_ns, index));
        self.place(index);
        true
    }

    /// Ends the waits that are over; all of them if there is nothing to wait for.
    fn wake(&mut self, now_ns: u64, may_wait: bool) {
        while let Some(&(until_ns, index)) = self.waiting.front() {
            let wait = self.queues.get(index).and_then(|queue| queue.history.wait);
            let stale = wait.is_none_or(|wait| wait.until_ns != until_ns);
            if !stale && may_wait && until_ns > now_ns {
                break;
            }
            self.waiting.pop_front();
            if let Some(queue) = self.queues.get_mut(index).filter(|_| !stale) {
                let shift = wait.is_some_and(|wait| matches!(wait.hope, Hope::Offset(_)));
                queue.history.trusts_no_shift |= shift && until_ns <= now_ns;
                queue.history.wait = None;
                self.place(index);
            }
        }
    }

    /// Takes a virtual request out of its queue, which then has had its dispatch.
    fn take(&mut self, index: QueueIndex, oldest: RequestId) -> Option<VirtualRequest> {
        let taken = self.queues.take(oldest)?;
        let history = &mut self.queues.get_mut(index)?.history;
        history.end = Some(taken.end());
        history.parts = taken.parts.len();
        history.wait = None;
        history.waited = false;
        self.place(index);
        Some(taken)
    }

    /// Begins a queue's turn with its head.
    fn serve(&mut self, index: QueueIndex) -> Option<VirtualRequest> {
        let queue = self.settle(index)?;
        let head = queue.head()?;
        let (quantum_bytes, used_bytes, oldest) =
            (queue.quantum_bytes(head), u128::from(head.bytes), head.oldest);
        self.turn = Some(Turn { queue: index, quantum_bytes, used_bytes });
        if let Between::RoundRobin { last } = &mut self.between {
            *last = Some(index);
        }
        self.take(index, oldest)
    }

    /// What follows contiguously is served in the same turn if it fits the quantum that is left.
    fn continue_turn(&mut self) -> Option<VirtualRequest> {
        let turn = self.turn.as_mut()?;
        let left_bytes = turn.quantum_bytes - turn.used_bytes;
        let index = turn.queue;
        let queue = self.queues.get(index)?;
        let next = queue.head().filter(|head| queue.history.end == Some(head.offset));
        match next.filter(|next| u128::from(next.bytes) <= left_bytes) {
            Some(next) => {
                turn.used_bytes += u128::from(next.bytes);
                let oldest = next.oldest;
                self.take(index, oldest)
            }
            None => {
                self.end_turn();
                None
            }
        }
    }

    /// The more of its quantum a queue has used, the more its next steps grant.
    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let usage = turn.used_bytes as f64 / turn.quantum_bytes.max(1) as f64;
        let bonus_bytes = (self.quantum_bytes as f64 * usage) as u64;
        if let Some(queue) = self.settle(turn.queue) {
            queue.history.bonus_bytes = bonus_bytes;
        }
        self.place(turn.queue);
    }
}

impl Order for Feedback {
    fn add(&mut self, id: RequestId, request: &Request) {
        let index = self.queues.queue_of(request);
        // A new request begins with a quantum of 0: what was granted before it came is not its own.
        self.settle(index);
        self.queues.add(id, request);
        if let Some(queue) = self.queues.get_mut(index) {
            if queue.history.end == Some(request.offset) {
                queue.history.trusts_no_shift = false;
            }
            let came_true = |wait: Wait| queue.head().is_some_and(|head| wait.hope.came_true(head));
            if queue.history.wait.is_some_and(came_true) {
                queue.history.wait = None;
            }
        }
        self.place(index);
    }

    fn next(&mut self, now_ns: u64, may_wait: bool) -> Next {
        if let Some(next) = self.continue_turn() {
            return Next::Dispatch(next);
        }
        self.wake(now_ns, may_wait);
        while let Some(index) = self.choose() {
            if !(may_wait && self.waits(index, now_ns)) {
                return self.serve(index).map_or(Next::Nothing, Next::Dispatch);
            }
        }
        self.waiting.front().map_or(Next::Nothing, |&(until_ns, _)| Next::WaitUntil(until_ns))
    }

    fn take_oldest(&mut self) -> Option<VirtualRequest> {
        self.end_turn();
        let (index, oldest) = self.queues.oldest()?;
        self.take(index, oldest)
    }
}
