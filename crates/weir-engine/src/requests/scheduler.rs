//! What the device's side sees: requests go in, virtual requests come out.

use super::feedback::Feedback;
use super::queues::VirtualRequest;
use super::select::Selector;
use super::sjf::Sjf;
use super::time_order::{To, ToAgg};
use super::window::Window;
use super::{Algorithm, Device, Request, RequestId, Settings};
use std::collections::BTreeMap;

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Serve this, and tell [`Scheduler::complete`] when it is done.
    Dispatch(VirtualRequest),
    /// Ask again at this time in ns, or when a request arrives or completes.
    WaitUntil(u64),
    /// Ask again when a request arrives or completes.
    Nothing,
}

/// One scheduling algorithm.
pub(super) trait Order {
    fn add(&mut self, id: RequestId, request: &Request);
    /// Without `may_wait`, something is dispatched if anything is pending.
    fn next(&mut self, now_ns: u64, may_wait: bool) -> Next;
    /// The oldest pending request, with what it is aggregated with, whatever the algorithm prefers.
    fn take_oldest(&mut self) -> Option<VirtualRequest>;
}

fn order(algorithm: Algorithm, settings: &Settings) -> Box<dyn Order + Send> {
    match algorithm {
        Algorithm::To => Box::new(To::default()),
        Algorithm::ToAgg => Box::new(ToAgg::new()),
        Algorithm::Sjf => Box::new(Sjf::new()),
        Algorithm::Mlf => Box::new(Feedback::mlf(settings)),
        Algorithm::Aioli => Box::new(Feedback::aioli(settings)),
    }
}

/// Five algorithms behind one interface, usable live: nothing here knows what will arrive.
pub struct Scheduler {
    settings: Settings,
    algorithm: Algorithm,
    order: Box<dyn Order + Send>,
    selection: Option<Selection>,
    pending: BTreeMap<RequestId, Pending>,
    added: RequestId,
    in_flight: usize,
    overtaken: u64,
}

#[derive(Clone, Copy)]
struct Pending {
    arrival_ns: u64,
    request: Request,
}

/// How `auto` chooses, and when it does so next.
struct Selection {
    selector: Selector,
    device: Device,
    window: Window,
    at_requests: RequestId,
}

impl Scheduler {
    pub fn new(algorithm: Algorithm, settings: Settings) -> Self {
        Scheduler {
            settings,
            algorithm,
            order: order(algorithm, &settings),
            selection: None,
            pending: BTreeMap::new(),
            added: 0,
            in_flight: 0,
            overtaken: 0,
        }
    }

    /// `auto`: the algorithm that `selector` says for the pattern of the latest requests on `device`.
    pub fn auto(selector: Selector, device: Device, settings: Settings) -> Self {
        let window = Window::new(&settings);
        let selection = Some(Selection { selector, device, window, at_requests: 1 });
        Scheduler { selection, ..Scheduler::new(Algorithm::To, settings) }
    }

    /// The algorithm in use.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// A request has arrived.
    pub fn add(&mut self, now_ns: u64, request: Request) -> RequestId {
        let id = self.added;
        self.added += 1;
        self.pending.insert(id, Pending { arrival_ns: now_ns, request });
        self.order.add(id, &request);
        if let Some(selection) = &mut self.selection {
            selection.window.add(now_ns, request);
        }
        id
    }

    /// What a dispatch asked for is done.
    pub fn complete(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// What to serve next. May be asked again before the last is complete, to keep several in flight;
    /// aIOLi is synchronous and answers `Nothing` until then.
    pub fn next(&mut self, now_ns: u64) -> Next {
        self.decide(now_ns, true)
    }

    /// As [`Self::next`], but waits for nothing: who calls knows that every client is waiting for a
    /// request that is already here, so that no better aggregation can come.
    pub fn next_without_waiting(&mut self, now_ns: u64) -> Next {
        self.decide(now_ns, false)
    }

    fn decide(&mut self, now_ns: u64, may_wait: bool) -> Next {
        self.select();
        if self.algorithm == Algorithm::Aioli && self.in_flight > 0 {
            return Next::Nothing;
        }
        let next = if self.overtaken >= self.settings.patience_dispatches {
            self.order.take_oldest().map_or(Next::Nothing, Next::Dispatch)
        } else {
            self.order.next(now_ns, may_wait)
        };
        if let Next::Dispatch(dispatched) = &next {
            self.dispatched(dispatched);
        }
        next
    }

    /// Counts how often the oldest request has seen a later one go first.
    fn dispatched(&mut self, dispatched: &VirtualRequest) {
        self.in_flight += 1;
        let arrival_ns = self.pending.get(&dispatched.oldest).map_or(0, |pending| pending.arrival_ns);
        match self.pending.first_key_value() {
            Some((&oldest, _)) if oldest == dispatched.oldest => self.overtaken = 0,
            Some((_, oldest)) if oldest.arrival_ns < arrival_ns => self.overtaken += 1,
            _ => {}
        }
        for part in &dispatched.parts {
            self.pending.remove(&part.id);
        }
    }

    /// `auto` looks again when it has seen twice as many requests, and then at regular intervals.
    /// What is pending moves to the new algorithm in the order of arrival, so an interval is no shorter
    /// than that takes.
    fn select(&mut self) {
        let Some(selection) = &mut self.selection else { return };
        if self.added < selection.at_requests {
            return;
        }
        let regular = self.settings.selection_requests.max(1) as u64;
        selection.at_requests = self.added + self.added.min(regular).max(self.pending.len() as u64);
        let Some(situation) = selection.window.situation(&selection.device) else { return };
        let choice = selection.selector.choose(&situation);
        if choice != self.algorithm {
            self.algorithm = choice;
            self.order = order(choice, &self.settings);
            for (&id, pending) in &self.pending {
                self.order.add(id, &pending.request);
            }
        }
    }
}
