//! The coordinator's front without its sockets: who is connected, who may speak and how much, and whose lease is over.
//! Pure: time and messages come in, messages and peers to close go out.

use crate::auth::Nonce;
use crate::coordinator::{Coordinator, Peer};
use crate::server::Settings;
use crate::site::{ApplicationInfo, Site};
use crate::status::{Totals, Traffic};
use crate::storage::{Storage, holding};
use crate::wire::{Identity, Message};
use std::collections::{HashMap, VecDeque};
use weir_engine::aggregators;
use weir_engine::sharing::PolicyKind;
use weir_engine::sharing::periodic::Planning;

/// A peer that has not said hello after this long is closed.
const HANDSHAKE_NS: u64 = 1_000_000_000;

/// A peer that only looks on may be silent for this long.
const ONLOOKER_NS: u64 = 30_000_000_000;

/// A connection may say this much in a slice of time; then it waits for the next one.
pub(crate) const SLICE_NS: u64 = 10_000_000;
const MESSAGES_PER_SLICE: u32 = 1_000;
/// A status, and a place for a file, is so much work that it counts for this many messages more.
const HARD_MESSAGES: u32 = 100;
/// And a reader, with whom those of its call before are expected again.
const READER_MESSAGES: u32 = 5;

/// Storages that are told apart: every node's disk is one. When there are more, those that nobody uses any more are forgotten.
const MAX_STORAGES: usize = 4096;

/// The coordinators, one for each storage, and those who are connected to them.
pub struct Service {
    settings: Settings,
    storages: Vec<SharedStorage>,
    /// By name, the places of the storages.
    places: HashMap<String, usize>,
    /// By place, when the coordinator has something to do; 0 if it was told something since. Apart from the coordinators, for all of
    /// them are looked at in every round.
    due_ns: Vec<u64>,
    /// Places of the coordinators that may have something to say.
    stirred: Vec<usize>,
    guests: Vec<Option<Guest>>,
    connections: usize,
    /// Peers that had to prove something when they came, and when that was, the latest last.
    challenged: VecDeque<(Peer, u64)>,
    stepped_ns: u64,
    leases_checked_ns: u64,
    closing: Vec<Peer>,
    pub(crate) traffic: Traffic,
}

/// A storage and the coordinator of the jobs that share it.
struct SharedStorage {
    name: String,
    coordinator: Coordinator,
    /// Its place is among those that were stirred.
    is_stirred: bool,
}

struct Guest {
    trust: Trust,
    /// The place of its storage among all, once it has said hello.
    storage: Option<usize>,
    accepted_ns: u64,
    heard_ns: u64,
    slice_ns: u64,
    messages: u32,
    /// Is heard again when the next slice begins.
    is_parked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// It has to prove that it has the key.
    Challenged(Nonce),
    Trusted,
}

/// Whether a peer is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    Free,
    /// From now on the peer is not heard until the next slice of time.
    ParkedNow,
    Parked,
}

/// What a message comes to, beside what the coordinator has to say.
#[derive(Debug, PartialEq)]
pub enum Heard {
    Nothing,
    /// This is the answer.
    Answer(Box<Message>),
    /// The peer wants to see the status.
    WantsStatus,
    /// The peer has said goodbye.
    Bye,
}

impl Service {
    pub fn new(now_ns: u64, settings: Settings) -> Service {
        Service {
            settings,
            storages: Vec::new(),
            places: HashMap::new(),
            due_ns: Vec::new(),
            stirred: Vec::new(),
            guests: Vec::new(),
            connections: 0,
            challenged: VecDeque::new(),
            stepped_ns: now_ns,
            leases_checked_ns: now_ns,
            closing: Vec::new(),
            traffic: Traffic::new(now_ns),
        }
    }

    /// The storages that jobs have named, each with its coordinator.
    pub fn coordinators(&self) -> impl Iterator<Item = (&str, &Coordinator)> {
        self.storages.iter().map(|storage| (storage.name.as_str(), &storage.coordinator))
    }

    /// The coordinator at a place, which is about to be told something: it may have something to say, and something to do.
    fn stir(&mut self, place: usize) -> &mut Coordinator {
        self.due_ns[place] = 0;
        let storage = &mut self.storages[place];
        if !std::mem::replace(&mut storage.is_stirred, true) {
            self.stirred.push(place);
        }
        &mut storage.coordinator
    }

    fn stir_all(&mut self, mut tell: impl FnMut(&mut Coordinator)) {
        for place in 0..self.storages.len() {
            tell(self.stir(place));
        }
    }

    /// The coordinator of the storage that the peer speaks about, once it has said hello.
    pub fn coordinator_of(&self, peer: Peer) -> Option<&Coordinator> {
        let storage = self.guests.get(peer)?.as_ref()?.storage?;
        Some(&self.storages[storage].coordinator)
    }

    /// What is to be sent, in the order in which each coordinator has said it.
    pub fn drain_outbox(&mut self, mut send: impl FnMut(Peer, Message)) {
        for place in self.stirred.drain(..) {
            let storage = &mut self.storages[place];
            storage.is_stirred = false;
            storage.coordinator.outbox().drain(..).for_each(|(peer, message)| send(peer, message));
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn policy(&self) -> PolicyKind {
        self.settings.policy
    }

    /// Goes on under another policy, at all storages.
    pub fn set_policy(&mut self, now_ns: u64, policy: PolicyKind) {
        self.settings.policy = policy;
        self.stir_all(|coordinator| coordinator.set_policy(now_ns, policy));
    }

    pub fn order(&self) -> aggregators::Policy {
        self.settings.order
    }

    pub fn set_order(&mut self, order: aggregators::Policy) {
        self.settings.order = order;
        self.stir_all(|coordinator| coordinator.set_order(order));
    }

    /// What the site says of its storages and applications from now on.
    pub fn set_site(
        &mut self,
        now_ns: u64,
        storages: Vec<Storage>,
        planning: Planning,
        applications: Vec<ApplicationInfo>,
    ) {
        self.settings.storages = storages;
        self.settings.planning = planning;
        self.settings.applications = applications;
        for place in 0..self.storages.len() {
            self.stir(place);
            let SharedStorage { name, coordinator, .. } = &mut self.storages[place];
            coordinator.set_storages(&self.settings.storages);
            coordinator.set_site(now_ns, site_of(&self.settings, name));
        }
    }

    /// Since the service began, of all storages.
    pub(crate) fn totals(&self) -> Totals {
        let totals = self.storages.iter().map(|storage| storage.coordinator.totals);
        totals.fold(Totals::default(), |sum, of| Totals {
            decisions: sum.decisions.saturating_add(of.decisions),
            done_bytes: sum.done_bytes.saturating_add(of.done_bytes),
        })
    }

    /// The place of the storage that a job speaks about: as the site calls it, else as the job does.
    fn storage_of(&mut self, now_ns: u64, identity: &Identity) -> Result<usize, String> {
        let said = holding(self.settings.storages.iter(), &identity.mount);
        let name =
            said.map_or_else(|| identity.storage.clone(), |of| self.settings.storages[of].path.clone());
        if name.is_empty() {
            return Err(format!("it is not known on which storage {:?} lies", identity.mount));
        }
        if let Some(&place) = self.places.get(&name) {
            return Ok(place);
        }
        let place = self.free_place()?;
        let Settings { policy, pace, epoch, order, storages, backfill, .. } = &self.settings;
        let mut coordinator = Coordinator::new(now_ns, *policy, *pace);
        coordinator.set_epoch(*epoch);
        coordinator.set_order(*order);
        coordinator.set_backfill(*backfill);
        coordinator.set_storages(storages);
        coordinator.set_site(now_ns, site_of(&self.settings, &name));
        self.places.insert(name.clone(), place);
        let storage = SharedStorage { name, coordinator, is_stirred: false };
        if place == self.storages.len() {
            self.storages.push(storage);
            self.due_ns.push(0);
        } else {
            self.stirred.retain(|stirred| *stirred != place);
            let before = std::mem::replace(&mut self.storages[place], storage);
            self.places.remove(&before.name);
        }
        self.stir(place);
        Ok(place)
    }

    /// A place for one more storage: that of one that nobody uses any more, if there are too many.
    fn free_place(&self) -> Result<usize, String> {
        if self.storages.len() < MAX_STORAGES {
            return Ok(self.storages.len());
        }
        let unused = self.storages.iter().position(|storage| storage.coordinator.is_unused());
        unused.ok_or_else(|| format!("there are {MAX_STORAGES} storages already"))
    }

    /// Peers that are to be closed; [`Service::gone`] must follow for each. The caller empties it.
    pub fn closing(&mut self) -> &mut Vec<Peer> {
        &mut self.closing
    }

    /// Somebody has connected; an error is the reason to turn them away. `nonce`: they have to prove that they have the
    /// key, and the answer is the challenge. For these, room is made by closing the longest unproven.
    pub fn arrive(
        &mut self,
        now_ns: u64,
        peer: Peer,
        nonce: Option<Nonce>,
    ) -> Result<Option<Message>, String> {
        if nonce.is_some() {
            self.make_room();
        }
        if self.connections >= self.settings.max_connections + self.closing.len() {
            return Err("too many connections".into());
        }
        self.seat(now_ns, peer, nonce);
        Ok(nonce.map(|nonce| Message::Challenge { nonce }))
    }

    /// The job whose thread this is has connected: for it there is always room.
    pub fn arrive_own(&mut self, now_ns: u64, peer: Peer) {
        self.seat(now_ns, peer, None);
    }

    fn seat(&mut self, now_ns: u64, peer: Peer, nonce: Option<Nonce>) {
        if self.guests.len() <= peer {
            self.guests.resize_with(peer + 1, || None);
        }
        self.connections += usize::from(self.guests[peer].is_none());
        self.guests[peer] = Some(Guest {
            trust: nonce.map_or(Trust::Trusted, Trust::Challenged),
            storage: None,
            accepted_ns: now_ns,
            heard_ns: now_ns,
            slice_ns: now_ns,
            messages: 0,
            is_parked: false,
        });
        if nonce.is_some() {
            self.challenged.push_back((peer, now_ns));
        }
    }

    /// Those without the key must not take the place of those who have it: a peer that has proven nothing when a quarter
    /// of all connections came after it is closed.
    fn make_room(&mut self) {
        while self.challenged.len() >= self.settings.max_connections.div_ceil(4) {
            let Some((peer, came_ns)) = self.challenged.pop_front() else { return };
            let guest = self.guests.get(peer).and_then(Option::as_ref);
            if guest.is_some_and(|guest| guest.accepted_ns == came_ns && guest.trust != Trust::Trusted) {
                self.traffic.refused += 1;
                self.closing.push(peer);
            }
        }
    }

    /// A round of the service begins. One that was stopped for a while must not blame the silence on the others.
    pub fn begin_round(&mut self, now_ns: u64) {
        if now_ns > self.stepped_ns + 4 * self.lease_check_ns() {
            for guest in self.guests.iter_mut().flatten() {
                guest.heard_ns = now_ns;
                guest.accepted_ns = now_ns;
            }
        }
    }

    /// Something came from the peer.
    #[inline]
    pub fn note_sign_of_life(&mut self, now_ns: u64, peer: Peer) {
        if let Some(Some(guest)) = self.guests.get_mut(peer) {
            guest.heard_ns = now_ns;
        }
    }

    /// Whether the peer may say something more in this slice of time. If not it is parked, until [`Service::unpark`].
    #[inline]
    pub fn may_speak(&mut self, now_ns: u64, peer: Peer) -> Speech {
        let Some(Some(guest)) = self.guests.get_mut(peer) else { return Speech::Parked };
        if now_ns >= guest.slice_ns + SLICE_NS {
            guest.slice_ns = now_ns;
            guest.messages = 0;
        }
        if guest.messages < MESSAGES_PER_SLICE {
            return Speech::Free;
        }
        if std::mem::replace(&mut guest.is_parked, true) {
            return Speech::Parked;
        }
        self.traffic.slowed += 1;
        Speech::ParkedNow
    }

    pub fn is_parked(&self, peer: Peer) -> bool {
        matches!(self.guests.get(peer), Some(Some(guest)) if guest.is_parked)
    }

    /// Whether the peer is heard again from now on: its slice is over.
    pub fn unpark(&mut self, now_ns: u64, peer: Peer) -> bool {
        let Some(Some(guest)) = self.guests.get_mut(peer) else { return false };
        if now_ns >= guest.slice_ns + SLICE_NS {
            guest.is_parked = false;
        }
        !guest.is_parked
    }

    /// A message of the peer. An error is the reason to refuse and to close it; [`Service::gone`] must follow. What the
    /// coordinator has to say about it is in its outbox.
    pub fn hear(&mut self, now_ns: u64, peer: Peer, message: Message) -> Result<Heard, String> {
        let Some(Some(guest)) = self.guests.get_mut(peer) else { return Ok(Heard::Nothing) };
        guest.messages += weight(&message);
        self.traffic.messages += 1;
        if let Trust::Challenged(server) = guest.trust {
            let Message::Proof { nonce, mac } = message else { return Err("no proof of the key".into()) };
            let key = self.settings.key.as_ref().ok_or("there is no key")?;
            if !key.is_client_mac(&server, &nonce, &mac) {
                return Err("wrong key".into());
            }
            guest.trust = Trust::Trusted;
            return Ok(Heard::Answer(Box::new(Message::Proven { mac: key.server_mac(&server, &nonce) })));
        }
        match message {
            Message::StatusQuery {} => Ok(Heard::WantsStatus),
            Message::Bye {} => Ok(Heard::Bye),
            message => self.pass_on(now_ns, peer, message).map(|()| Heard::Nothing),
        }
    }

    /// To the coordinator of the storage that the peer speaks about.
    fn pass_on(&mut self, now_ns: u64, peer: Peer, message: Message) -> Result<(), String> {
        let seated = self.guests.get(peer).and_then(Option::as_ref).and_then(|guest| guest.storage);
        let place = match (&message, seated) {
            (_, Some(place)) => place,
            (Message::Hello { identity, .. }, None) => self.storage_of(now_ns, identity)?,
            (_, None) => return Err("says something before hello".into()),
        };
        self.stir(place).handle(now_ns, peer, message)?;
        if let Some(Some(guest)) = self.guests.get_mut(peer) {
            guest.storage = Some(place);
        }
        Ok(())
    }

    /// The connection is closed, by whomever.
    pub fn gone(&mut self, now_ns: u64, peer: Peer) {
        if let Some(slot) = self.guests.get_mut(peer)
            && let Some(guest) = slot.take()
        {
            self.connections -= 1;
            if let Some(place) = guest.storage {
                self.stir(place).gone(now_ns, peer);
            }
        }
    }

    /// A round ends: does what is due, and finds those whose lease is over.
    pub fn end_round(&mut self, now_ns: u64) {
        for place in 0..self.due_ns.len() {
            if self.due_ns[place] <= now_ns {
                let coordinator = self.stir(place);
                coordinator.tick(now_ns);
                let due_ns = coordinator.deadline_ns();
                self.due_ns[place] = due_ns.unwrap_or(u64::MAX);
            }
        }
        self.check_leases(now_ns);
        if self.traffic.is_due(now_ns) {
            self.traffic.look(now_ns, self.totals());
        }
        self.stepped_ns = now_ns;
    }

    /// When the next round is due even if nothing comes.
    pub fn deadline_ns(&self) -> u64 {
        let lease_ns = self.leases_checked_ns + self.lease_check_ns();
        self.due_ns.iter().copied().fold(lease_ns, u64::min)
    }

    /// When the latest round ended.
    pub fn stepped_ns(&self) -> u64 {
        self.stepped_ns
    }

    fn lease_check_ns(&self) -> u64 {
        self.lease_ns() / 8
    }

    fn lease_ns(&self) -> u64 {
        u64::from(self.settings.pace.lease_ms) * 1_000_000
    }

    fn check_leases(&mut self, now_ns: u64) {
        if now_ns < self.leases_checked_ns + self.lease_check_ns() {
            return;
        }
        self.leases_checked_ns = now_ns;
        for (peer, guest) in self.guests.iter().enumerate() {
            let Some(guest) = guest else { continue };
            // A peer that is parked is loud, not silent.
            let silent_ns = if guest.is_parked { 0 } else { now_ns.saturating_sub(guest.heard_ns) };
            let is_late = match guest.trust {
                Trust::Challenged(_) => now_ns > guest.accepted_ns + HANDSHAKE_NS,
                Trust::Trusted if guest.storage.is_some() => silent_ns > self.lease_ns(),
                // It may have sent half a hello and no more; a peer that asked for the status has time.
                Trust::Trusted if guest.messages == 0 => now_ns > guest.accepted_ns + HANDSHAKE_NS,
                Trust::Trusted => silent_ns > ONLOOKER_NS,
            };
            if is_late {
                self.traffic.expired += 1;
                self.closing.push(peer);
            }
        }
    }
}

/// What is known beforehand of a storage that the site calls so, and of the applications that use it.
fn site_of(settings: &Settings, name: &str) -> Site {
    let storage = settings.storages.iter().find(|storage| storage.path == name);
    Site {
        planning: settings.planning,
        applications: settings.applications.clone(),
        node_part: storage.and_then(Storage::node_part),
    }
}

/// How many plain messages this one is as much work as.
fn weight(message: &Message) -> u32 {
    match message {
        Message::StatusQuery {} | Message::Ask { .. } | Message::Claim { .. } => HARD_MESSAGES,
        Message::Read { .. } => READER_MESSAGES,
        _ => 1,
    }
}
