//! Who is let in: those who knock, and the job whose thread this is.

use super::{Connection, FIRST_LISTENER, SLICE_NS, Server, State};
use crate::auth;
use crate::coordinator::Peer;
use crate::pipe::Pipe;
use crate::socket::{Channel, Interest, Stream, now_ns};
use crate::wire::Message;
use std::io;

impl Server {
    pub(super) fn accept(&mut self, now: u64) {
        for index in 0..self.listeners.len() {
            // At most this many at once, so that a storm of them does not stop the rest.
            for _ in 0..256 {
                match self.listeners[index].accept() {
                    Ok(stream) => self.admit(now, stream),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // No descriptors, no memory: those who knock would wake us in vain.
                    Err(_) => return self.be_deaf(now),
                }
            }
        }
    }

    /// Lets those who knock wait for a moment.
    fn be_deaf(&mut self, now: u64) {
        self.deaf_until_ns = Some(now + 10 * SLICE_NS);
        self.watch_listeners(Interest::NONE);
    }

    pub(super) fn watch_listeners(&self, interest: Interest) {
        for (index, listener) in self.listeners.iter().enumerate() {
            let _ = self.poller.change(listener, FIRST_LISTENER + index as u64, interest);
        }
    }

    fn admit(&mut self, now: u64, stream: Stream) {
        let mut channel = Channel::new(stream);
        if let Stream::Tcp(_) = channel.stream {
            self.make_room(now);
        }
        let open = self.connections.len() - self.free.len();
        let state = match self.first_state(&channel.stream) {
            Ok(_) if open >= self.settings.max_connections => Err("too many connections".to_string()),
            state => state,
        };
        let state = match state {
            Ok(state) => state,
            Err(reason) => {
                self.traffic.refused += 1;
                channel.queue(&Message::Refuse { reason });
                let _ = channel.flush();
                return;
            }
        };
        if let State::Challenged(nonce) = state {
            channel.queue(&Message::Challenge { nonce });
        }
        if let Some(peer) = self.seat(now, channel, state)
            && state != State::Trusted
        {
            self.challenged.push_back((peer, now));
        }
    }

    /// A connection of the job whose thread this is, which lives as long as this server.
    pub(crate) fn own_connection(&mut self) -> Stream {
        let (near, far) = Pipe::pair();
        self.own = self.seat(now_ns(), Channel::new(Stream::Own(near)), State::Trusted);
        Stream::Own(far)
    }

    pub(super) fn own_input(&self) -> bool {
        let own = self.own.and_then(|own| self.connections[own].as_ref()).filter(|own| !own.parked);
        own.is_some_and(|own| matches!(&own.channel.stream, Stream::Own(pipe) if pipe.is_ready()))
    }

    fn seat(&mut self, now: u64, mut channel: Channel, state: State) -> Option<Peer> {
        let peer = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest { once: true, ..Interest::READ };
        if self.poller.add(&channel.stream, peer as u64, interest).is_err() || channel.flush().is_err() {
            self.free.push(peer);
            return None;
        }
        self.connections[peer] = Some(Connection {
            channel,
            state,
            accepted_ns: now,
            heard_ns: now,
            interest,
            slice_ns: now,
            messages: 0,
            parked: false,
            dirty: false,
        });
        Some(peer)
    }

    /// Those without the key must not take the place of those who have it: who has proven nothing when a quarter of
    /// all connections came after it is closed.
    fn make_room(&mut self, now: u64) {
        while self.challenged.len() >= self.settings.max_connections.div_ceil(4) {
            let Some((peer, came_ns)) = self.challenged.pop_front() else { return };
            let slot = self.connections.get(peer).and_then(Option::as_ref);
            if slot.is_some_and(|peer| peer.accepted_ns == came_ns && peer.state != State::Trusted) {
                self.traffic.refused += 1;
                self.close(now, peer);
            }
        }
    }

    /// Who has come: another user gets nothing over a Unix socket (not root's either: root has its own);
    /// over TCP everybody is a stranger.
    fn first_state(&self, stream: &Stream) -> Result<State, String> {
        match stream {
            Stream::Unix(stream) => match auth::peer_user(stream) {
                Ok(user) if user == auth::user() => Ok(State::Trusted),
                _ => Err("this coordinator is another user's".into()),
            },
            Stream::Tcp(_) => auth::nonce().map(State::Challenged).map_err(|error| error.to_string()),
            Stream::Own(_) => Ok(State::Trusted),
        }
    }
}
