//! Who is let in: those who knock, and the job whose thread this is.

use super::{Connection, FIRST_LISTENER, Server};
use crate::auth::{self, Nonce};
use crate::coordinator::Peer;
use crate::pipe::Pipe;
use crate::service::SLICE_NS;
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
        let peer = self.free_peer();
        let nonce = self.proof_needed(&channel.stream);
        let arrived = nonce.and_then(|nonce| self.service.arrive(now, peer, nonce));
        self.close_those_who_must_go(now);
        match arrived {
            Ok(challenge) => {
                challenge.iter().for_each(|challenge| channel.queue(challenge));
                self.seat(now, peer, channel);
            }
            Err(reason) => {
                self.service.traffic.refused += 1;
                self.free.push(peer);
                channel.queue(&Message::Refuse { reason });
                let _ = channel.flush();
            }
        }
    }

    /// A connection of the job whose thread this is, which lives as long as this server.
    pub(crate) fn own_connection(&mut self) -> Stream {
        let (near, far) = Pipe::pair();
        let now = now_ns();
        // One that there was is looked at by nobody any more.
        if let Some(before) = self.own.take() {
            self.close(now, before);
        }
        let peer = self.free_peer();
        self.service.arrive_own(now, peer);
        self.seat(now, peer, Channel::new(Stream::Own(near)));
        self.own = Some(peer);
        Stream::Own(far)
    }

    pub(super) fn own_input(&self) -> bool {
        let own = self.own.filter(|own| !self.service.is_parked(*own));
        let own = own.and_then(|own| self.connections[own].as_ref());
        own.is_some_and(|own| matches!(&own.channel.stream, Stream::Own(pipe) if pipe.is_ready()))
    }

    fn free_peer(&mut self) -> Peer {
        self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        })
    }

    fn seat(&mut self, now: u64, peer: Peer, mut channel: Channel) {
        let interest = Interest { once: true, ..Interest::READ };
        let is_of_use =
            self.poller.add(&channel.stream, peer as u64, interest).is_ok() && channel.flush().is_ok();
        self.connections[peer] = Some(Connection { channel, interest, dirty: false, unsent_bytes: 0 });
        if !is_of_use {
            self.close(now, peer);
        }
    }

    /// Whether the peer has to prove that it has the key. Another user gets nothing over a Unix socket (not root's either:
    /// root has its own); over TCP everybody is a stranger.
    fn proof_needed(&self, stream: &Stream) -> Result<Option<Nonce>, String> {
        match stream {
            Stream::Unix(stream) => match auth::peer_user(stream) {
                Ok(user) if user == auth::user() => Ok(None),
                _ => Err("this coordinator is another user's".into()),
            },
            Stream::Tcp(_) => auth::nonce().map(Some).map_err(|error| error.to_string()),
            Stream::Own(_) => Ok(None),
        }
    }
}
