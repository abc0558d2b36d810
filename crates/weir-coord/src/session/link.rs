//! The connection to a coordinator: greeting, being joined, leases, losses, takeovers.

use super::{Gate, OpenReason, Output, Phase, PhaseState, Session, Volume, Word};
use crate::auth::{Handshake, Key, Nonce};
use crate::text::printable;
use crate::wire::{Identity, Message};

/// A connection that takes longer than this to answer is of no use.
const HANDSHAKE_NS: u64 = 500_000_000;

/// Without a coordinator for this long, the gate opens.
pub(super) const OPEN_AFTER_NS: u64 = 300_000_000;

/// A coordinator that has not answered this many beats is lost. Its lease for the job is longer.
const BEATS_MISSED: u64 = 3;

/// Shortest and longest time between two beats, whatever the coordinator wants: a silent one must be noticed in time, and
/// one that is a little late must not be taken for silent.
const MIN_BEAT_NS: u64 = 20_000_000;
const MAX_BEAT_NS: u64 = 200_000_000;

/// Longest time between two reports of progress, whatever the coordinator wants.
const MAX_REPORT_NS: u64 = 1_000_000_000;

/// The other end of a new connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it was found, as a sentence about it begins: "the coordinator at unix:/…: ". Empty: this node itself.
    pub name: String,
    /// What both ends have to prove that they know, and random bytes for that. `None`: the peer is trusted already.
    pub secret: Option<(Key, Nonce)>,
}

/// The coordinator's word on a phase.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Granted { credit_bytes: u64 },
    Backfilled { credit_bytes: u64 },
    Held,
}

/// How far the connection is.
#[derive(Debug)]
pub(super) enum Link {
    Down,
    /// Connected, and the coordinator has not welcomed the job yet.
    Greeting {
        since_ns: u64,
        peer: String,
        trust: Trust,
    },
    Up {
        peer: String,
        heard_ns: u64,
        beat_sent_ns: u64,
        beat_ns: u64,
        report_ns: u64,
        /// This node coordinates itself: it is as silent as the session.
        is_own: bool,
        /// The coordinator has said something after its welcome. One that can do no more is none.
        is_proven: bool,
        /// Since when there was no coordinator before this one; taken up again if this one never proves itself.
        down_before_ns: Option<u64>,
    },
}

/// What is known of the peer during the greeting.
#[derive(Debug)]
pub(super) enum Trust {
    /// It has to prove that it has the key.
    Needed(Handshake),
    Proven,
}

impl Session {
    /// When the connection wants [`super::Input::Tick`].
    pub(super) fn link_deadline_ns(&self) -> u64 {
        match &self.link {
            Link::Down => u64::MAX,
            Link::Greeting { since_ns, .. } => since_ns + HANDSHAKE_NS,
            Link::Up { heard_ns, beat_sent_ns, beat_ns, report_ns, is_own, .. } => {
                let untold = self.phase.filter(Phase::is_news);
                let told_ns = untold.map_or(u64::MAX, |phase| phase.told_ns.saturating_add(*report_ns));
                let silent_ns = if *is_own { u64::MAX } else { heard_ns + BEATS_MISSED * beat_ns };
                (beat_sent_ns + beat_ns).min(silent_ns).min(told_ns)
            }
        }
    }

    /// There is a connection: says hello, or waits to be challenged.
    pub(super) fn greet(&mut self, now_ns: u64, peer: Peer, out: &mut Vec<Output>) {
        let Peer { name, secret } = peer;
        self.failure = format!("{name}it does not answer");
        let trust = match secret {
            None => {
                out.push(self.hello(now_ns));
                Trust::Proven
            }
            Some((key, nonce)) => {
                branch!("a peer has to prove itself");
                Trust::Needed(Handshake::new(key, nonce))
            }
        };
        self.link = Link::Greeting { since_ns: now_ns, peer: name, trust };
    }

    fn hello(&self, now_ns: u64) -> Output {
        let identity = Box::new(Identity { past: self.past(now_ns), ..self.identity.clone() });
        let (rejoins, epoch) = (self.rejoins, self.epoch);
        Output::Send(Message::Hello { identity, rejoins, epoch })
    }

    /// What the other end says.
    pub(super) fn hear(&mut self, now_ns: u64, message: Message, out: &mut Vec<Output>) {
        match &mut self.link {
            Link::Down => {}
            Link::Greeting { .. } => self.hear_greeting(now_ns, message, out),
            Link::Up { heard_ns, is_proven, .. } => {
                *heard_ns = now_ns;
                if !std::mem::replace(is_proven, true) {
                    self.seeker.found();
                }
                self.hear_coordinator(now_ns, message, out);
            }
        }
    }

    /// Over TCP anybody may have answered: until it is known who, nothing is obeyed.
    fn hear_greeting(&mut self, now_ns: u64, message: Message, out: &mut Vec<Output>) {
        let Link::Greeting { trust, .. } = &mut self.link else { return };
        match (message, trust) {
            (Message::Challenge { nonce }, Trust::Needed(handshake)) => {
                branch!("the peer challenges");
                out.push(Output::Send(handshake.prove(nonce)));
            }
            (Message::Challenge { .. }, Trust::Proven) => {
                branch!("the peer wants a key and there is none");
                self.refuse(now_ns, "it wants a key and there is none", out);
            }
            (Message::Proven { mac }, Trust::Needed(handshake)) => {
                if handshake.is_proven_by(&mac) {
                    branch!("the peer has the key");
                    *trust_of(&mut self.link) = Trust::Proven;
                    out.push(self.hello(now_ns));
                } else {
                    branch!("the peer does not have the key");
                    self.refuse(now_ns, "it does not have the key", out);
                }
            }
            (Message::Welcome { .. }, Trust::Needed(_)) => {
                branch!("a welcome without proof");
                self.refuse(now_ns, "it has not proven that it has the key", out);
            }
            (welcome @ Message::Welcome { .. }, Trust::Proven) => self.joined(now_ns, welcome, out),
            (Message::Refuse { reason }, _) => {
                branch!("refused instead of welcomed");
                self.refuse(now_ns, &printable(&reason), out);
            }
            _ => branch!("no greeting"),
        }
    }

    /// The coordinator knows the job from now on: it hears of the phase under way and of the files that are open.
    fn joined(&mut self, now_ns: u64, welcome: Message, out: &mut Vec<Output>) {
        if self.is_older(&welcome) {
            branch!("a coordinator of an older epoch");
            return self.refuse(now_ns, "it was replaced by another coordinator", out);
        }
        let Link::Greeting { peer, .. } = std::mem::replace(&mut self.link, Link::Down) else { return };
        self.link = Link::Up {
            peer,
            heard_ns: now_ns,
            beat_sent_ns: 0,
            beat_ns: MAX_BEAT_NS,
            report_ns: 0,
            is_own: self.seeker.is_trying_itself(),
            is_proven: false,
            down_before_ns: self.down_since_ns.take(),
        };
        self.rejoins = true;
        self.welcomed(welcome, out);
        if let Some(phase) = &mut self.phase {
            branch!("a phase goes on under a new coordinator");
            let Phase { number, volume, granted, state: PhaseState { progress, .. }, .. } = *phase;
            phase.told = PhaseState { progress, ..PhaseState::default() };
            phase.told_volume = Volume { known_bytes: 0, ..volume };
            let bytes = volume.said_bytes;
            let age_ns = now_ns.saturating_sub(phase.began_ns);
            out.push(Output::Send(Message::Resume { phase: number, bytes, age_ns, granted, progress }));
        }
        out.extend(self.errands.claims().map(Output::Send));
    }

    fn is_older(&self, welcome: &Message) -> bool {
        matches!(welcome, Message::Welcome { epoch, .. } if *epoch < self.epoch)
    }

    /// How the coordinator does things from now on.
    fn welcomed(&mut self, welcome: Message, out: &mut Vec<Output>) {
        let Message::Welcome { beat_ms, report_ms, policy, orders, epoch, .. } = welcome else { return };
        if let Link::Up { beat_ns, report_ns, .. } = &mut self.link {
            *beat_ns = (u64::from(beat_ms) * 1_000_000).clamp(MIN_BEAT_NS, MAX_BEAT_NS);
            *report_ns = (u64::from(report_ms) * 1_000_000).min(MAX_REPORT_NS);
        }
        // Coordinators that jobs elect among them have none.
        if self.seeker.is_for_service() {
            self.epoch = epoch;
        }
        self.rest = Gate::Closed;
        match &mut self.phase {
            // The coordinator's word on it follows; until then what was said last holds.
            Some(phase) => phase.is_asking = false,
            None => self.gate = self.resting_gate(),
        }
        out.push(Output::Word(Word::Joined { policy: printable(&policy), orders }));
    }

    fn hear_coordinator(&mut self, now_ns: u64, message: Message, out: &mut Vec<Output>) {
        match message {
            Message::Grant { phase, share, credit_bytes, expected_ns } => {
                self.note_prospect(now_ns, phase, share, expected_ns);
                let answer = if share > 0.0 {
                    Answer::Granted { credit_bytes }
                } else {
                    Answer::Backfilled { credit_bytes }
                };
                self.answered(phase, answer, out);
            }
            Message::Hold { phase, expected_ns } => {
                self.note_prospect(now_ns, phase, 0.0, expected_ns);
                self.answered(phase, Answer::Held, out);
            }
            Message::Credit { phase, share, credit_bytes, expected_ns } => {
                self.note_prospect(now_ns, phase, share, expected_ns);
                // Without a grant a credit is worth nothing: it crossed a hold under way.
                let may_go = |own: &Phase| own.number == phase && (own.granted || own.is_backfilled);
                if self.phase.as_ref().is_some_and(may_go) {
                    branch!("another credit");
                    self.let_through(Gate::Granted { credit_bytes });
                }
            }
            Message::Ahead { granted, .. } => {
                branch!("the next phase is granted, or has to ask again");
                self.rest = if granted { Gate::Ahead } else { Gate::Closed };
                if self.phase.is_none() {
                    self.gate = self.resting_gate();
                }
            }
            Message::Seen { alone } => {
                branch!("what was seen of the job");
                self.alone = alone;
            }
            Message::Allocated { request, aggregators, stripes, targets }
                if self.errands.allocated(request, &targets) =>
            {
                out.push(Output::Word(Word::Allocated { request, aggregators, stripes, targets }));
            }
            Message::Turn { number, call } if self.errands.turn(number, call) => {
                out.push(Output::Word(Word::Turn { number, call }));
            }
            welcome @ Message::Welcome { .. } => {
                branch!("another policy under way");
                if self.is_older(&welcome) {
                    return self.refuse(now_ns, "it was replaced by another coordinator", out);
                }
                self.welcomed(welcome, out);
            }
            Message::Refuse { reason } => {
                branch!("refused after the welcome");
                self.refuse(now_ns, &printable(&reason), out);
            }
            // Beats are heard by being received; what is not ours to hear changes nothing.
            _ => {}
        }
    }

    /// What the coordinator says of a phase beside whether it may go on.
    fn note_prospect(&mut self, now_ns: u64, phase: u64, share: f64, expected_ns: u64) {
        if let Some(own) = self.phase.as_mut().filter(|own| own.number == phase) {
            (own.share, own.go_on_ns) = (share, now_ns.saturating_add(expected_ns));
        }
    }

    /// The coordinator's word on a phase. Words on earlier phases change nothing.
    fn answered(&mut self, phase: u64, answer: Answer, out: &mut Vec<Output>) {
        let Some(own) = self.phase.as_mut().filter(|own| own.number == phase) else {
            branch!("a word on another phase");
            return;
        };
        let was_backfilled = own.is_backfilled;
        own.granted = matches!(answer, Answer::Granted { .. });
        own.is_backfilled = matches!(answer, Answer::Backfilled { .. });
        own.is_asking = false;
        match answer {
            Answer::Granted { credit_bytes } => {
                branch!("granted");
                self.let_through(Gate::Granted { credit_bytes });
            }
            Answer::Backfilled { credit_bytes } => {
                branch!("backfilled");
                self.let_through(Gate::Granted { credit_bytes });
                out.push(Output::Word(Word::Backfilled));
            }
            Answer::Held => {
                branch!("held");
                self.let_through(Gate::Closed);
                if !was_backfilled {
                    out.push(Output::Word(Word::Held));
                }
            }
        }
    }

    /// A phase whose wait reached its limit is not held back any more.
    fn let_through(&mut self, gate: Gate) {
        if self.gate != (Gate::Open { reason: OpenReason::Limit }) {
            self.gate = gate;
        }
    }

    /// Beats, missed beats, and a gate that opens when nobody coordinates.
    pub(super) fn keep_time(&mut self, now_ns: u64, out: &mut Vec<Output>) {
        match &mut self.link {
            Link::Greeting { since_ns, .. } if now_ns >= *since_ns + HANDSHAKE_NS => {
                branch!("a greeting without an answer");
                self.lose(now_ns, "it does not answer", out);
            }
            Link::Up { heard_ns, beat_ns, is_own: false, .. }
                if now_ns >= *heard_ns + BEATS_MISSED * *beat_ns =>
            {
                branch!("beats without an answer");
                self.lose(now_ns, "it has fallen silent", out);
            }
            Link::Up { beat_sent_ns, beat_ns, .. } => {
                if now_ns >= *beat_sent_ns + *beat_ns {
                    *beat_sent_ns = now_ns;
                    out.push(Output::Send(Message::Beat {}));
                }
                self.report(now_ns, out);
            }
            _ => {}
        }
        if self.down_since_ns.is_some_and(|since_ns| now_ns >= since_ns + OPEN_AFTER_NS) {
            branch!("nobody coordinates for too long");
            self.open(self.failure.clone(), out);
        }
    }

    /// Everybody may go, until there is a coordinator.
    fn open(&mut self, reason: String, out: &mut Vec<Output>) {
        let open = Gate::Open { reason: OpenReason::NoCoordinator };
        self.down_since_ns = None;
        if self.rest != open {
            (self.rest, self.gate) = (open, open);
            out.push(Output::Word(Word::Opened { reason }));
        }
        if let Some(phase) = &mut self.phase {
            phase.is_asking = false;
        }
    }

    /// The connection is of no use any more. What the coordinator said last holds for a while.
    pub(super) fn lose(&mut self, now_ns: u64, reason: &str, out: &mut Vec<Output>) {
        self.failure = match &self.link {
            Link::Greeting { peer, .. } => format!("{peer}{reason}"),
            _ => format!("the coordinator is lost: {reason}"),
        };
        let down_before_ns = match &self.link {
            Link::Up { is_proven: false, down_before_ns, .. } => Some(down_before_ns.unwrap_or(now_ns)),
            Link::Up { .. } => Some(now_ns),
            _ => None,
        };
        self.hang_up(out);
        if let Some(since_ns) = down_before_ns {
            branch!("the coordinator is lost");
            self.down_since_ns = Some(since_ns);
            out.push(Output::Word(Word::Lost { reason: reason.into() }));
        }
    }

    /// The other end will not have this job, or is none that may coordinate it.
    pub(super) fn refuse(&mut self, now_ns: u64, reason: &str, out: &mut Vec<Output>) {
        let peer = match &self.link {
            Link::Greeting { peer, .. } | Link::Up { peer, .. } => peer.as_str(),
            Link::Down => "",
        };
        let reason = format!("{peer}{reason}");
        self.hang_up(out);
        self.seeker.refused(now_ns);
        out.push(Output::Word(Word::Refused { reason: reason.clone() }));
        self.open(reason, out);
    }

    /// Closes the connection, if there is one: whoever waits for an answer need not.
    pub(super) fn hang_up(&mut self, out: &mut Vec<Output>) {
        if !matches!(self.link, Link::Down) {
            self.link = Link::Down;
            out.push(Output::HangUp);
            self.errands.let_go(out);
        }
    }
}

/// The trust of a greeting that is under way.
fn trust_of(link: &mut Link) -> &mut Trust {
    match link {
        Link::Greeting { trust, .. } => trust,
        _ => unreachable!("only asked during a greeting"),
    }
}
