//! What passes between jobs and coordinators, and the rounds of these.

use crate::MS;
use crate::network::{Connection, End, Packet};
use crate::office::{self, Office, Who};
use crate::plan::{Habit, Meeting};
use crate::world::{Event, World};
use rand::RngExt;
use weir_coord::server::Settings;
use weir_coord::service::{Service, Speech};
use weir_coord::wire::Message;

impl World {
    /// A connection from a machine to an office.
    pub(crate) fn open(&mut self, node: Option<usize>, machine: usize, office: usize) -> usize {
        let number = self.connections.len();
        let peer = self.offices[office].free_peer();
        let machines = [machine, self.offices[office].machine];
        self.connections.push(Connection::new(node, office, peer, machines, self.now_ns));
        self.offices[office].connections[peer] = Some(number);
        number
    }

    /// The office hears of a connection: it may want a proof.
    pub(crate) fn introduce(&mut self, connection: usize, is_trusted: bool) {
        let Connection { office, peer, .. } = self.connections[connection];
        let nonce = (!is_trusted).then(|| self.rng.random::<[u8; 32]>());
        let clock_ns = self.clock(self.offices[office].machine);
        match &mut self.offices[office].who {
            Who::Real(service) => match service.arrive(clock_ns, peer, nonce) {
                Ok(Some(challenge)) => self.send(connection, End::Job, challenge),
                Ok(None) => {}
                Err(_) => self.close(connection, End::Coordinator),
            },
            // It may have the key all the same, or go on as if it had.
            Who::Hostile(habit) => {
                let habit = *habit;
                if nonce.is_some() && habit == Habit::Babbles && self.rng.random_bool(0.3) {
                    self.send(connection, End::Job, office::hostile_welcome(self.epoch));
                } else if nonce.is_some() {
                    self.send(connection, End::Job, Message::Challenge { nonce: [0; 32] });
                }
            }
        }
    }

    /// Every eighth message goes as bytes: what arrives is what can be read from them.
    pub(crate) fn send(&mut self, connection: usize, to: End, message: Message) {
        if !self.events().is_multiple_of(8) {
            return self.post(connection, to, Packet::Message(Box::new(message)));
        }
        self.frame.clear();
        message.encode(&mut self.frame);
        match Message::decode(&self.frame) {
            Ok(Some((message, _))) => self.post(connection, to, Packet::Message(Box::new(message))),
            other => self.fail(|| format!("{message:?} is read as {other:?}")),
        }
    }

    pub(crate) fn post(&mut self, connection: usize, to: End, packet: Packet) {
        let machines = self.connections[connection].machines;
        let at_ns = self.now_ns + self.network_delay(machines);
        let at_ns = self.connections[connection].send(to, at_ns, packet);
        self.connections[connection].active_ns = self.now_ns;
        self.at(at_ns, Event::Arrival(connection, to));
    }

    /// One end closes the connection; the other hears of it.
    pub(crate) fn close(&mut self, connection: usize, end: End) {
        if self.connections[connection].is_closed(end) {
            return;
        }
        self.connections[connection].close(end);
        if !self.connections[connection].is_closed(end.other()) {
            self.post(connection, end.other(), Packet::Closed);
        }
        if end == End::Coordinator {
            self.leave_office(connection);
        }
    }

    fn leave_office(&mut self, connection: usize) {
        let Connection { office, peer, .. } = self.connections[connection];
        let clock_ns = self.clock(self.offices[office].machine);
        if let Who::Real(service) = &mut self.offices[office].who {
            service.gone(clock_ns, peer);
        }
        self.offices[office].shadow.gone(connection);
        self.offices[office].connections[peer] = None;
    }

    pub(crate) fn arrival(&mut self, connection: usize, to: End) {
        if self.is_cut_off(self.connections[connection].machines) {
            // Delivered after all when the partition is over.
            let until_ns = self.now_ns + 50 * MS;
            self.connections[connection].delay(to, until_ns);
            return self.at(until_ns, Event::Arrival(connection, to));
        }
        if self.connections[connection].arrive(to, self.now_ns) {
            match to {
                End::Coordinator => self.wake_office(self.connections[connection].office),
                End::Job => {
                    if let Some(node) = self.connections[connection].node {
                        self.wake_leader(node);
                    }
                }
            }
        }
    }

    pub(crate) fn wake_office(&mut self, office: usize) {
        match self.offices[office].rank {
            Some(_) => self.wake_leader(self.offices[office].node.expect("a rank has it there")),
            None => {
                let at_ns = self.now_ns + self.wake_delay();
                self.schedule_office(office, at_ns);
            }
        }
    }

    pub(crate) fn schedule_office(&mut self, office: usize, at_ns: u64) {
        let own = &mut self.offices[office];
        if at_ns < own.next_ns {
            own.next_ns = at_ns;
            own.generation += 1;
            let generation = own.generation;
            self.at(at_ns, Event::Office(office, generation));
        }
    }

    /// A service, or somebody hostile, runs.
    pub(crate) fn run_office(&mut self, office: usize) {
        self.offices[office].next_ns = u64::MAX;
        self.office_round(office);
        let machine = self.offices[office].machine;
        if let Some(service) = self.offices[office].service() {
            let wait_ns = service.deadline_ns().saturating_sub(self.clock(machine)).max(1_000);
            self.schedule_office(office, self.now_ns + wait_ns);
        }
    }

    /// One round of a coordinator: hears all that has come, does what is due, and answers.
    pub(crate) fn office_round(&mut self, office: usize) {
        let clock_ns = self.clock(self.offices[office].machine);
        if let Who::Real(service) = &mut self.offices[office].who {
            service.begin_round(clock_ns);
        }
        let mut is_news = false;
        for peer in 0..self.offices[office].connections.len() {
            while self.may_speak(office, peer, clock_ns)
                && let Some(connection) = self.offices[office].connections[peer]
                && let Some(packet) = self.connections[connection].take(End::Coordinator)
            {
                self.office_hears(office, connection, peer, packet, clock_ns);
                is_news = true;
            }
        }
        if let Who::Real(service) = &mut self.offices[office].who {
            service.end_round(clock_ns);
            for peer in std::mem::take(service.closing()) {
                if let Some(connection) = self.offices[office].connections[peer] {
                    self.say(|| format!("office {office} closes connection {connection}: its lease is over"));
                    self.close(connection, End::Coordinator);
                }
            }
        }
        if self.deliver(office) || is_news {
            self.check_office(office);
        }
    }

    /// Whether the peer has not said too much in this slice of time.
    fn may_speak(&mut self, office: usize, peer: usize, clock_ns: u64) -> bool {
        let is_there = self.offices[office].connections[peer].is_some();
        let Who::Real(service) = &mut self.offices[office].who else { return is_there };
        service.unpark(clock_ns, peer);
        is_there && service.may_speak(clock_ns, peer) == Speech::Free
    }

    fn office_hears(&mut self, office: usize, connection: usize, peer: usize, packet: Packet, clock_ns: u64) {
        let message = match packet {
            Packet::Closed => return self.close(connection, End::Coordinator),
            Packet::Message(message) => *message,
        };
        self.say(|| format!("office {office} hears on {connection}: {message:?}"));
        self.check_heard(connection, &message);
        if let (Who::Hostile(_), Message::Proof { nonce, .. }) = (&self.offices[office].who, &message) {
            let has_key = self.rng.random_bool(0.8);
            let mac = if has_key { self.key.server_mac(&[0; 32], nonce) } else { [0; 32] };
            return self.send(connection, End::Job, Message::Proven { mac });
        }
        self.offices[office].shadow.hear(connection, &message);
        match self.offices[office].hear(clock_ns, peer, message, &mut self.rng) {
            Ok((answers, is_bye)) => {
                answers.into_iter().for_each(|answer| self.send(connection, End::Job, answer));
                if is_bye {
                    self.close(connection, End::Coordinator);
                }
            }
            Err(reason) => {
                self.send(connection, End::Job, Message::Refuse { reason });
                self.close(connection, End::Coordinator);
            }
        }
    }

    /// Sends what the coordinator has to say; whether there was something.
    pub(crate) fn deliver(&mut self, office: usize) -> bool {
        let Who::Real(service) = &mut self.offices[office].who else { return false };
        let mut outbox = Vec::new();
        service.drain_outbox(|peer, message| outbox.push((peer, message)));
        let is_news = !outbox.is_empty();
        for (peer, message) in outbox {
            if let Some(Some(connection)) = self.offices[office].connections.get(peer).copied() {
                self.say(|| format!("office {office} says on {connection}: {message:?}"));
                self.send(connection, End::Job, message);
            }
        }
        is_news
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            policy: self.plan.policy,
            key: Some(self.key.clone()),
            title: String::new(),
            epoch: self.epoch,
            backfill: self.plan.backfill,
            ..Settings::default()
        }
    }

    pub(crate) fn start_service(&mut self) {
        self.epoch += 1;
        let service = Service::new(self.clock(0), self.settings());
        self.offices.push(Office::new(0, None, Who::Real(Box::new(service)), self.now_ns));
        let office = self.offices.len() - 1;
        self.directories[0].socket = Some(office);
        self.schedule_office(office, self.now_ns);
    }

    /// The directory in which the jobs of a machine meet.
    pub(crate) fn directory(&self, machine: usize) -> usize {
        if self.plan.meeting == Meeting::Local { machine } else { 0 }
    }

    /// The coordinator of the jobs, or one of those there are.
    pub(crate) fn some_office(&mut self) -> Option<usize> {
        let is_real =
            |office: &usize| self.offices[*office].is_alive && self.offices[*office].service().is_some();
        let alive: Vec<usize> = (0..self.offices.len()).filter(is_real).collect();
        (!alive.is_empty()).then(|| alive[self.rng.random_range(0..alive.len())])
    }
}
