//! From a connection to having joined: proofs of the key over TCP, hello, welcome.

use super::{Client, Link, Phase, SOCKET, Word};
use crate::auth::{self, Nonce};
use crate::socket::{Channel, Interest, Stream, now_ns};
use crate::wire::Message;

impl Client {
    /// As [`Client::connect`], with a connection that there is. A TCP peer has to prove itself first.
    pub(crate) fn greet(&mut self, stream: Stream) -> std::io::Result<()> {
        self.hang_up();
        let is_trusted = !matches!(stream, Stream::Tcp(_));
        self.poller.add(&stream, SOCKET, Interest::READ)?;
        let channel = Channel::new(stream);
        self.link = Link::Greeting { channel, since_ns: now_ns(), proof: None, is_trusted };
        if is_trusted {
            let hello = self.hello();
            self.send(&hello);
        }
        Ok(())
    }

    fn hello(&self) -> Message {
        let identity = self.identity.clone();
        Message::Hello {
            job: identity.job,
            application: identity.application,
            host: identity.host,
            pid: identity.pid,
            ranks: identity.ranks,
            nodes: identity.nodes,
            w_iter_ns: identity.w_iter_ns,
            mean_phase_bytes: identity.mean_phase_bytes,
            rejoins: self.rejoins,
        }
    }

    pub(super) fn prove(&mut self, server: Nonce) {
        let (Some(key), Ok(client)) = (&self.key, auth::nonce()) else {
            return self.refuse("it wants a key and there is none".into());
        };
        let mac = key.client_mac(&server, &client);
        if let Link::Greeting { proof, .. } = &mut self.link {
            *proof = Some((server, client));
            self.send(&Message::Proof { nonce: client, mac });
        }
    }

    pub(super) fn check(&mut self, mac: &[u8; 32]) {
        let Link::Greeting { proof: Some((server, client)), is_trusted, .. } = &mut self.link else { return };
        match &self.key {
            Some(key) if key.is_server_mac(server, client, mac) => {
                *is_trusted = true;
                let hello = self.hello();
                self.send(&hello);
            }
            _ => self.refuse("it does not have the key".into()),
        }
    }

    pub(super) fn joined(&mut self, policy: String, orders: bool) {
        self.is_ahead = false;
        match std::mem::replace(&mut self.link, Link::Down) {
            Link::Greeting { channel, is_trusted: true, .. } => self.link = Link::Up { channel },
            Link::Up { channel } => {
                // Under another policy from now on; it knows all the rest.
                self.link = Link::Up { channel };
                return self.words.push(Word::Joined { policy, orders });
            }
            other => {
                self.link = other;
                return self.refuse("it has not proven that it has the key".into());
            }
        }
        self.words.push(Word::Joined { policy, orders });
        self.rejoins = true;
        self.unproven_since_ns = self.down_since_ns.take();
        if let Some(phase) = &mut self.phase {
            phase.told = phase.progress;
            let Phase { number, bytes, granted, progress, .. } = *phase;
            let age_ns = now_ns().saturating_sub(phase.began_ns);
            self.send(&Message::Resume { phase: number, bytes, age_ns, granted, progress });
        }
        for claim in self.errands.claims() {
            self.send(&claim);
        }
    }
}

/// What is said before the job has joined.
pub(super) fn is_greeting(message: &Message) -> bool {
    use Message::{Challenge, Proven, Refuse, Welcome};
    matches!(message, Challenge { .. } | Proven { .. } | Welcome { .. } | Refuse { .. })
}
