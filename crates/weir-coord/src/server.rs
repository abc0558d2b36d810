//! The coordinator's sockets: one thread, nothing blocks, everything is bounded.
//!
//! [`Server::step`] waits for something to happen, reads a bounded piece from each connection that has something,
//! lets the [`Service`] decide, and sends what came of it in one go. Whoever sends too much waits for
//! the next slice of time; whoever sends garbage, does not say hello, or is silent for longer than its
//! lease, is closed, and its grant goes to the next in the same step.

use crate::address::Address;
use crate::auth::Key;
use crate::coordinator::{Pace, Peer};
use crate::service::{Heard, SLICE_NS, Service, Speech};
use crate::site::ApplicationInfo;
use crate::socket::{Channel, Input, Interest, Listener, MAX_OUTBOX_BYTES, Poller, Ready, Waker, now_ns};
use crate::status;
use crate::storage::Storage;
use crate::wire::{MAX_TEXT_BYTES, Message};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use weir_engine::aggregators;
use weir_engine::sharing::PolicyKind;
use weir_engine::sharing::periodic::Planning;

mod door;

#[derive(Clone, Debug)]
pub struct Settings {
    pub policy: PolicyKind,
    /// In which order storage targets serve the readers of several jobs.
    pub order: aggregators::Policy,
    /// Whether a job may go out of turn while those whose turn it is leave the storage idle.
    pub backfill: bool,
    pub pace: Pace,
    /// What TCP peers have to prove that they have.
    pub key: Option<Key>,
    /// More are turned away.
    pub max_connections: usize,
    /// As shown by `weir status`.
    pub title: String,
    /// Where files can be placed; elsewhere there is no opinion.
    pub storages: Vec<Storage>,
    /// What timetables are to be like.
    pub planning: Planning,
    /// Applications of which the site knows what they do.
    pub applications: Vec<ApplicationInfo>,
    /// Grows with each coordinator of a service that has several; 0 where there are no epochs.
    pub epoch: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: PolicyKind::Weir,
            order: aggregators::DEFAULT,
            backfill: true,
            pace: Pace::default(),
            key: None,
            max_connections: 16_384,
            title: format!("pid {}", std::process::id()),
            storages: Vec::new(),
            planning: Planning::default(),
            applications: Vec::new(),
            epoch: 0,
        }
    }
}

const READ_BYTES: usize = 16 << 10;

/// When more waits for all who do not read, those for whom more than their part waits are closed.
const MAX_UNSENT_BYTES: usize = 64 << 20;
const FAIR_OUTBOX_BYTES: usize = 64 << 10;

/// Tokens of the poller: listeners and the waker from the top, connections from zero.
const WAKER: u64 = u64::MAX;
const FIRST_LISTENER: u64 = 1 << 32;

struct Connection {
    channel: Channel,
    interest: Interest,
    /// There is something to send.
    dirty: bool,
    /// What was left to send after the latest attempt.
    unsent_bytes: usize,
}

pub struct Server {
    poller: Poller,
    waker: Waker,
    listeners: Vec<Listener>,
    connections: Vec<Option<Connection>>,
    free: Vec<Peer>,
    /// The job whose thread this is.
    own: Option<Peer>,
    service: Service,
    ready: Vec<(u64, Ready)>,
    parked: Vec<Peer>,
    dirty: Vec<Peer>,
    scratch: Box<[u8]>,
    /// Until then nobody is let in, for want of descriptors.
    deaf_until_ns: Option<u64>,
    /// Bytes that wait for all who do not read, as [`Connection::unsent_bytes`].
    unsent_bytes: usize,
}

impl Server {
    pub fn new(settings: Settings) -> io::Result<Server> {
        let poller = Poller::new()?;
        let waker = Waker::new()?;
        poller.add(&waker, WAKER, Interest::READ)?;
        Ok(Server {
            service: Service::new(now_ns(), settings),
            poller,
            waker,
            listeners: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            own: None,
            ready: Vec::new(),
            parked: Vec::new(),
            dirty: Vec::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            deaf_until_ns: None,
            unsent_bytes: 0,
        })
    }

    /// Listens there as well, and says where that is (a port of 0 becomes a real one). A Unix socket's directory is
    /// made if need be and must be this user's alone; TCP needs a key. `replace` takes the place of a
    /// socket that somebody may still listen on: only for those who hold the lock of its directory.
    pub fn listen(&mut self, address: &Address, replace: bool) -> Result<Address, String> {
        if matches!(address, Address::Tcp(_)) && self.service.settings().key.is_none() {
            return Err(format!("cannot listen on {address}: TCP needs a key"));
        }
        let failed = |error: io::Error| format!("cannot listen on {address}: {error}");
        let listener = Listener::bind(address, replace)?;
        let token = FIRST_LISTENER + self.listeners.len() as u64;
        self.poller.add(&listener, token, Interest::READ).map_err(failed)?;
        let bound = listener.address().map_err(failed)?;
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Whether its sockets are where those who look for it find them.
    pub(crate) fn is_in_place(&self) -> bool {
        self.listeners.iter().all(Listener::is_in_place)
    }

    /// Ends a [`Server::step`] from another thread or a signal handler.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub fn policy(&self) -> PolicyKind {
        self.service.policy()
    }

    /// Goes on under another policy.
    pub fn set_policy(&mut self, policy: PolicyKind) {
        self.service.set_policy(now_ns(), policy);
        self.deliver();
    }

    pub fn order(&self) -> aggregators::Policy {
        self.service.order()
    }

    /// Goes on with another order of readers.
    pub fn set_order(&mut self, order: aggregators::Policy) {
        self.service.set_order(order);
        self.deliver();
    }

    /// What the site says of its storages and applications from now on.
    pub fn set_site(
        &mut self,
        storages: Vec<Storage>,
        planning: Planning,
        applications: Vec<ApplicationInfo>,
    ) {
        self.service.set_site(now_ns(), storages, planning, applications);
        self.deliver();
    }

    /// Waits for at most `timeout`, then does all that there is to do.
    pub fn step(&mut self, timeout: Duration) -> io::Result<()> {
        let wait_ns = self.deadline_ns().saturating_sub(now_ns());
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let waited = self.poller.wait(timeout.min(Duration::from_nanos(wait_ns)), &mut ready);
        let now = now_ns();
        self.service.begin_round(now);
        self.unpark(now);
        if self.deaf_until_ns.is_some_and(|until_ns| until_ns <= now) {
            self.deaf_until_ns = None;
            self.watch_listeners(Interest::READ);
        }
        if let Some(own) = self.own.filter(|_| self.own_input()) {
            self.read(now, own, false);
        }
        let mut knocking = false;
        for &(token, is) in &ready {
            match token {
                WAKER => self.waker.clear(),
                FIRST_LISTENER.. => knocking = true,
                _ => self.serve(now, token as Peer, is),
            }
        }
        self.ready = ready;
        // Last, for a number freed in this step must not be taken for the one that was ready.
        if knocking {
            self.accept(now);
        }
        self.service.end_round(now);
        self.close_those_who_must_go(now);
        self.deliver();
        waited
    }

    /// When [`Server::step`] wants to be called even if nothing comes.
    pub fn deadline_ns(&self) -> u64 {
        if self.own_input() {
            return 0;
        }
        let park_ns = if self.parked.is_empty() { u64::MAX } else { self.service.stepped_ns() + SLICE_NS };
        self.service.deadline_ns().min(park_ns)
    }

    fn serve(&mut self, now: u64, peer: Peer, is: Ready) {
        let Some(Some(connection)) = self.connections.get_mut(peer) else { return };
        if is.write {
            mark_dirty(connection, peer, &mut self.dirty);
        }
        if is.read {
            self.read(now, peer, is.ended);
        }
    }

    /// All that has come, as far as a slice of time allows: the poller tells of it once. If the other side has
    /// `ended`, that is found behind what it said last.
    fn read(&mut self, now: u64, peer: Peer, mut ended: bool) {
        loop {
            let Some(Some(connection)) = self.connections.get_mut(peer) else { return };
            if self.service.is_parked(peer) {
                return;
            }
            let input = connection.channel.receive(&mut self.scratch);
            self.service.note_sign_of_life(now, peer);
            if let Err(reason) = self.hear(now, peer) {
                return self.refuse(now, peer, reason);
            }
            match input {
                Input::Closed | Input::Failed(_) => return self.close(now, peer),
                Input::Empty if !std::mem::take(&mut ended) => return,
                _ => {}
            }
        }
    }

    /// All whole messages that are there, up to what a slice of time allows.
    fn hear(&mut self, now: u64, peer: Peer) -> Result<(), String> {
        loop {
            let Some(Some(connection)) = self.connections.get_mut(peer) else { return Ok(()) };
            match self.service.may_speak(now, peer) {
                Speech::Free => {}
                Speech::ParkedNow => {
                    self.park(peer);
                    return Ok(());
                }
                Speech::Parked => return Ok(()),
            }
            let Some(message) = connection.channel.take().map_err(|error| error.to_string())? else {
                return Ok(());
            };
            match self.service.hear(now, peer, message)? {
                Heard::Nothing => self.collect(),
                Heard::Answer(answer) => {
                    connection.channel.queue(&answer);
                    mark_dirty(connection, peer, &mut self.dirty);
                }
                Heard::WantsStatus => self.show_status(now, peer),
                Heard::Bye => self.close(now, peer),
            }
        }
    }

    fn show_status(&mut self, now: u64, peer: Peer) {
        let text = status::json(now, &self.service, &self.addresses());
        let Some(Some(connection)) = self.connections.get_mut(peer) else { return };
        let mut rest = text.as_str();
        loop {
            let mut end = rest.len().min(MAX_TEXT_BYTES);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let (piece, behind) = rest.split_at(end);
            rest = behind;
            connection.channel.queue(&Message::Status { last: rest.is_empty(), text: piece.into() });
            if rest.is_empty() {
                break;
            }
        }
        mark_dirty(connection, peer, &mut self.dirty);
    }

    fn addresses(&self) -> Vec<String> {
        let bound = self.listeners.iter().filter_map(|listener| listener.address().ok());
        bound.map(|address| address.to_string()).collect()
    }

    /// Reads no more from the peer until the next slice.
    fn park(&mut self, peer: Peer) {
        self.parked.push(peer);
        self.watch(peer);
    }

    fn unpark(&mut self, now: u64) {
        let mut parked = std::mem::take(&mut self.parked);
        parked.retain(|&peer| {
            if !self.service.is_parked(peer) {
                return false;
            }
            if !self.service.unpark(now, peer) {
                return true;
            }
            self.watch(peer);
            // What was read already may be all there is.
            if let Err(reason) = self.hear(now, peer) {
                self.refuse(now, peer, reason);
            }
            false
        });
        // Hearing may have parked some again.
        parked.append(&mut self.parked);
        self.parked = parked;
    }

    /// Brings what the poller watches in line with what the connection needs.
    fn watch(&mut self, peer: Peer) {
        let Some(Some(connection)) = self.connections.get_mut(peer) else { return };
        let write = connection.channel.unsent_bytes() > 0;
        let wanted = Interest { read: !self.service.is_parked(peer), write, once: true };
        if wanted != connection.interest {
            connection.interest = wanted;
            let _ = self.poller.change(&connection.channel.stream, peer as u64, wanted);
        }
    }

    /// What the coordinator has to say goes to the connections' own queues.
    fn collect(&mut self) {
        let Server { service, connections, dirty, .. } = self;
        service.drain_outbox(|peer, message| {
            if let Some(Some(connection)) = connections.get_mut(peer) {
                connection.channel.queue(&message);
                mark_dirty(connection, peer, dirty);
            }
        });
    }

    /// Sends all that is queued. Who does not take it is closed, which may make more to send.
    fn deliver(&mut self) {
        self.collect();
        let mut next = 0;
        // In the order in which they asked: closing one may append more.
        while let Some(&peer) = self.dirty.get(next) {
            next += 1;
            let Some(Some(connection)) = self.connections.get_mut(peer) else { continue };
            connection.dirty = false;
            let sent = connection.channel.flush();
            let unsent_bytes = connection.channel.unsent_bytes();
            self.unsent_bytes += unsent_bytes;
            self.unsent_bytes -= std::mem::replace(&mut connection.unsent_bytes, unsent_bytes);
            let is_too_much = unsent_bytes > MAX_OUTBOX_BYTES
                || (self.unsent_bytes > MAX_UNSENT_BYTES && unsent_bytes > FAIR_OUTBOX_BYTES);
            if sent.is_err() || is_too_much {
                self.close(now_ns(), peer);
            } else {
                self.watch(peer);
            }
        }
        self.dirty.clear();
    }

    fn close_those_who_must_go(&mut self, now: u64) {
        while let Some(peer) = self.service.closing().pop() {
            self.close(now, peer);
        }
    }

    fn refuse(&mut self, now: u64, peer: Peer, reason: String) {
        self.service.traffic.refused += 1;
        if let Some(Some(connection)) = self.connections.get_mut(peer) {
            connection.channel.queue(&Message::Refuse { reason });
            let _ = connection.channel.flush();
        }
        self.close(now, peer);
    }

    fn close(&mut self, now: u64, peer: Peer) {
        if let Some(slot) = self.connections.get_mut(peer)
            && let Some(connection) = slot.take()
        {
            self.poller.remove(&connection.channel.stream);
            self.unsent_bytes -= connection.unsent_bytes;
            self.free.push(peer);
            self.service.gone(now, peer);
            self.collect();
        }
    }
}

impl AsRawFd for Server {
    /// Ready to be read when [`Server::step`] has something to do.
    fn as_raw_fd(&self) -> RawFd {
        self.poller.as_raw_fd()
    }
}

fn mark_dirty(connection: &mut Connection, peer: Peer, dirty: &mut Vec<Peer>) {
    if !std::mem::replace(&mut connection.dirty, true) {
        dirty.push(peer);
    }
}
