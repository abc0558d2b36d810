//! Connections between sessions and coordinators: messages arrive in order, late, or not before a partition is over.

use std::collections::VecDeque;
use weir_coord::wire::Message;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Job,
    Coordinator,
}

impl End {
    pub(crate) fn other(self) -> End {
        match self {
            End::Job => End::Coordinator,
            End::Coordinator => End::Job,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Packet {
    Message(Box<Message>),
    Closed,
}

pub(crate) struct Connection {
    /// The session's node, or nobody for a hostile job.
    pub(crate) node: Option<usize>,
    pub(crate) office: usize,
    /// The number that the coordinator's side has given it.
    pub(crate) peer: usize,
    pub(crate) machines: [usize; 2],
    /// Toward each end: what is on its way, and what has arrived.
    ways: [Way; 2],
    /// When something last arrived at the coordinator.
    pub(crate) heard_ns: u64,
    /// When anything last happened on it.
    pub(crate) active_ns: u64,
}

#[derive(Default)]
struct Way {
    flying: VecDeque<(u64, Packet)>,
    arrived: VecDeque<Packet>,
    /// This end is closed: nothing arrives any more.
    is_closed: bool,
}

impl Connection {
    pub(crate) fn new(
        node: Option<usize>,
        office: usize,
        peer: usize,
        machines: [usize; 2],
        now_ns: u64,
    ) -> Self {
        let ways = Default::default();
        Connection { node, office, peer, machines, ways, heard_ns: now_ns, active_ns: now_ns }
    }

    fn way(&mut self, to: End) -> &mut Way {
        &mut self.ways[to as usize]
    }

    /// Sends toward an end; answers when it will arrive.
    pub(crate) fn send(&mut self, to: End, at_ns: u64, packet: Packet) -> u64 {
        let flying = &mut self.way(to).flying;
        let at_ns = flying.back().map_or(at_ns, |(last_ns, _)| at_ns.max(*last_ns));
        flying.push_back((at_ns, packet));
        at_ns
    }

    /// What has come by now may be taken. False: nothing has, or nobody is there.
    pub(crate) fn arrive(&mut self, to: End, now_ns: u64) -> bool {
        let way = self.way(to);
        let before = way.arrived.len();
        while way.flying.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
            let packet = way.flying.pop_front().expect("just seen").1;
            if !way.is_closed {
                way.arrived.push_back(packet);
            }
        }
        let has_come = way.arrived.len() > before;
        if has_come {
            self.active_ns = now_ns;
            if to == End::Coordinator {
                self.heard_ns = now_ns;
            }
        }
        has_come
    }

    /// Everything on its way waits until then.
    pub(crate) fn delay(&mut self, to: End, until_ns: u64) {
        self.way(to).flying.iter_mut().for_each(|(at_ns, _)| *at_ns = (*at_ns).max(until_ns));
    }

    pub(crate) fn take(&mut self, at: End) -> Option<Packet> {
        self.way(at).arrived.pop_front()
    }

    pub(crate) fn has_input(&self, at: End) -> bool {
        !self.ways[at as usize].arrived.is_empty()
    }

    /// A message has come that nobody has read.
    pub(crate) fn has_message(&self, at: End) -> bool {
        self.ways[at as usize].arrived.iter().any(|packet| matches!(packet, Packet::Message(_)))
    }

    /// This end will not be read any more.
    pub(crate) fn close(&mut self, end: End) {
        let way = self.way(end);
        way.is_closed = true;
        way.arrived.clear();
        way.flying.clear();
    }

    pub(crate) fn is_closed(&self, end: End) -> bool {
        self.ways[end as usize].is_closed
    }

    /// Nothing is on its way and nothing waits to be read.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ways.iter().all(|way| way.flying.is_empty() && way.arrived.is_empty())
    }
}
