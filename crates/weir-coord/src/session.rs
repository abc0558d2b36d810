//! The job's side of coordination on one node, as a pure state machine: [`Session::step`] takes the time and one input and
//! appends outputs.
//!
//! The session sees what the ranks do ([`Input::Look`]) and finds the phases of the job in it, speaks with the coordinator
//! in [`Message`]s, looks for one while there is none, and decides what the gate holds ([`Session::gate`]). It reads no
//! clock, opens no socket and knows no thread: [`crate::member::Member`] carries out its outputs with real sockets, and
//! the simulated world of `weir-world` does so in virtual time.
//!
//! ```text
//!               Look                      Received, Broken, Connected, Office
//!  ranks ──▶ ledger ──▶ phase_detector ─┐        │
//!    ▲                                  ▼        ▼
//!    └── ledger ◀── Gate ◀────────── Session ◀──▶ link, seek ──▶ Send, Connect, TakeOffice
//! ```

use crate::history::Habits;
use crate::ledger::{Prospect, Sum};
use crate::tokens::UNLIMITED;
use crate::wire::{FileInfo, Identity, Message, Progress, Reader};
use errands::Errands;
use link::Link;
use phase_detector::{Change, Ended, PhaseDetector, Volume};
use seek::Seeker;
use stalls::Stalls;
use weir_engine::engine::{SeenAlone, mean_with_usual};

mod errands;
mod link;
pub mod phase_detector;
mod seek;
mod stalls;

pub use link::Peer;
pub use seek::{Route, Wanted};

/// What the gate of a node holds: whether requests may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// No request may start: the job has not asked yet, or waits for its turn.
    Closed,
    /// No phase is under way: requests may start without a turn as long as all that was spent, theirs included, is within the
    /// credit. Whoever needs more waits, and so begins a phase.
    Free { credit_bytes: u64 },
    /// A request may start while fewer bytes than the credit were spent in the phase under way.
    Granted { credit_bytes: u64 },
    /// No phase is under way, and the next one is granted already: it may begin, and say so afterwards.
    Ahead,
    /// Every request may start.
    Open { reason: OpenReason },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenReason {
    /// Nobody has coordinated for too long. Until the next coordinator.
    NoCoordinator,
    /// A wait reached `WEIR_MAX_WAIT`. Until the phase ends.
    Limit,
}

/// What happened to the session.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// What the ranks do now.
    Look(&'a Sum),
    /// No more I/O will come: ends the phase under way and says goodbye.
    Leave(&'a Sum),
    /// Time has passed, and all that came was heard before. Due at [`Session::deadline_ns`].
    Tick,
    /// A coordinator may be looked for, if there is none.
    Seek,
    /// A file is about to be created: how wide shall it be, and where? [`Word::Allocated`] is the answer. `request` is the
    /// node's own number of the file. [`Input::Release`] follows when the file is closed or nobody waits for the answer.
    Ask {
        request: u64,
        file: FileInfo,
    },
    Release {
        request: u64,
    },
    /// An aggregator of this node is about to read in a collective call: when may it? [`Word::Turn`] is the answer.
    /// [`Input::Served`] must follow.
    Read(Reader),
    /// The aggregator has read, whether or not it had waited for its turn.
    Served {
        number: u32,
        call: u64,
    },
    /// The answer to [`Output::TakeOffice`]: whether this node coordinates now, or why it cannot.
    Office(Result<bool, String>),
    /// This node coordinates no longer: others do not find it any more, or its sockets failed.
    OfficeLost,
    /// The answers to [`Output::Connect`].
    Connected(Peer),
    NotConnected {
        reason: String,
    },
    Received(Message),
    /// Bytes came that are no message.
    Malformed {
        reason: String,
    },
    /// The connection is of no use any more.
    Broken {
        reason: String,
    },
}

/// What the host of the session has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Sends a message to the coordinator. Messages arrive in the order of these outputs.
    Send(Message),
    /// Closes the connection, if there is one.
    HangUp,
    /// Tries to become the coordinator; [`Input::Office`] is the answer.
    TakeOffice,
    /// Looks whether others still find this coordinator; if not, gives up the office and says [`Input::OfficeLost`].
    CheckOffice,
    /// [`Input::Connected`] or [`Input::NotConnected`] is the answer.
    Connect(Route),
    Word(Word),
}

/// What the ranks of the node have to know, beside [`Session::gate`].
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// There is a coordinator and it knows the job. Without orders no reader needs to ask for its turn.
    Joined { policy: String, orders: bool },
    /// The coordinator made the phase under way wait.
    Held,
    /// The phase under way uses the storage while those whose turn it is do not.
    Backfilled,
    /// The phase is over: waits from now on belong to the next.
    PhaseEnded,
    /// The answer to [`Input::Ask`]. Zero aggregators or stripes, no targets: no opinion on that.
    Allocated { request: u64, aggregators: u32, stripes: u32, targets: Vec<u32> },
    /// This reader may read now.
    Turn { number: u32, call: u64 },
    /// The coordinator is gone. What it said last holds until `Joined` or `Opened`.
    Lost { reason: String },
    /// Nobody has coordinated for too long: everybody may go, until `Joined`.
    Opened { reason: String },
    /// The coordinator will not have this job (another version, a wrong key). The gate is open.
    Refused { reason: String },
}

impl Word {
    fn no_opinion(request: u64) -> Word {
        Word::Allocated { request, aggregators: 0, stripes: 0, targets: Vec::new() }
    }
}

/// How phases are told apart, and how long a request is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest pause within a phase; learnt if not given.
    pub phase_gap_ns: Option<u64>,
    /// `WEIR_MAX_WAIT`.
    pub max_wait_ns: u64,
    /// What the job may move without a turn in [`phase_detector::FREE_WINDOW_NS`], on all its nodes together.
    pub free_bytes: u64,
}

/// The phase under way, as the coordinator has to hear of it.
#[derive(Clone, Copy, Debug)]
struct Phase {
    number: u64,
    began_ns: u64,
    volume: Volume,
    /// Whether it may do I/O, by the latest word of a coordinator.
    granted: bool,
    /// The share that it has of the storage while it may.
    share: f64,
    /// When it should be able to go on, by the latest word of a coordinator.
    go_on_ns: u64,
    /// It may use the storage while those whose turn it is do not.
    is_backfilled: bool,
    /// The coordinator was asked, and has not answered.
    is_asking: bool,
    state: PhaseState,
    /// Time that the requests of the phase have taken.
    busy_ns: u64,
    /// What the coordinator was told last, and when.
    told: PhaseState,
    told_volume: Volume,
    told_ns: u64,
}

/// How far a phase is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PhaseState {
    progress: Progress,
    /// Requests under way, with or without bytes.
    in_flight: u32,
    /// Nothing is under way and nothing more is expected, though the phase has not ended.
    is_resting: bool,
}

impl Phase {
    /// Whether the coordinator has not been told how things are.
    fn is_news(&self) -> bool {
        self.has_moved() || self.is_announcing()
    }

    fn has_moved(&self) -> bool {
        self.told != self.state
    }

    /// Whether the coordinator has to hear of it at once, for others may go on then: a rank begins to wait, or the phase is as
    /// good as over.
    fn is_urgent(&self) -> bool {
        let begins_to_wait = self.state.progress.is_waiting() && !self.told.progress.is_waiting();
        begins_to_wait || (self.state.is_resting && !self.told.is_resting)
    }

    /// Whether the coordinator has to hear what the phase will move. What is merely known grows with every call, and is told
    /// when it has become larger by a quarter.
    fn is_announcing(&self) -> bool {
        let (now, told) = (self.volume, self.told_volume);
        let has_grown = now.known_bytes > told.known_bytes.saturating_add(told.known_bytes / 4);
        now.said_bytes != told.said_bytes || (now.said_bytes.is_none() && has_grown)
    }
}

pub struct Session {
    identity: Identity,
    /// Characteristic time and mean phase of earlier runs.
    usual: (Option<u64>, Option<u64>),
    /// The period that the user has told; what the program says stands above it.
    set_period_ns: Option<u64>,
    detector: PhaseDetector,
    /// What the gate holds now.
    gate: Gate,
    /// What the gate holds between phases: closed, ahead or open.
    rest: Gate,
    phase: Option<Phase>,
    errands: Errands,
    link: Link,
    seeker: Seeker,
    /// Since when there is no coordinator; `None` while there is one, and once the gate has opened for it.
    down_since_ns: Option<u64>,
    /// Why the latest attempt to reach a coordinator failed, or why it was lost.
    failure: String,
    /// Had a coordinator before.
    rejoins: bool,
    /// The highest epoch of a coordinator so far.
    epoch: u64,
    began_ns: u64,
    stalls: Stalls,
    /// What a coordinator has seen of the job.
    alone: SeenAlone,
}

/// How often the ranks are looked at if nothing else happens: while credit is limited, in a phase, while held, and in
/// between.
const LIMITED_NS: u64 = 2_000_000;
const IN_PHASE_NS: u64 = 5_000_000;
const HELD_NS: u64 = 50_000_000;
const BETWEEN_NS: u64 = 100_000_000;

impl Session {
    /// A session that has no coordinator yet, and lets no more than small I/O through until it has one. `sum` is what the ranks do now.
    pub fn new(now_ns: u64, identity: Identity, wanted: Wanted, limits: Limits, sum: &Sum) -> Session {
        let free_bytes = limits.free_bytes / u64::from(identity.nodes.max(1));
        let detector = PhaseDetector::new(limits.phase_gap_ns, limits.max_wait_ns, free_bytes, sum);
        Session {
            usual: (identity.w_iter_ns, identity.mean_phase_bytes),
            set_period_ns: identity.period_ns,
            identity,
            gate: detector.free_gate(),
            detector,
            rest: Gate::Closed,
            phase: None,
            errands: Errands::default(),
            link: Link::Down,
            seeker: Seeker::new(wanted),
            down_since_ns: Some(now_ns),
            failure: "there is no coordinator".into(),
            rejoins: false,
            epoch: 0,
            began_ns: now_ns,
            stalls: Stalls::default(),
            alone: SeenAlone::default(),
        }
    }

    pub fn step(&mut self, now_ns: u64, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Look(sum) => self.look(now_ns, sum, out),
            Input::Leave(sum) => self.leave(sum, out),
            Input::Tick => {
                self.keep_time(now_ns, out);
                self.seek(now_ns, out);
            }
            Input::Seek => self.seek(now_ns, out),
            Input::Ask { request, file } => self.ask(request, file, out),
            Input::Release { request } => {
                if self.errands.release(request) && self.is_joined() {
                    out.push(Output::Send(Message::Release { request }));
                }
            }
            Input::Read(reader) => self.read(reader, out),
            Input::Served { number, call } => {
                self.errands.turn(number, call);
                if self.is_joined() {
                    out.push(Output::Send(Message::Served { number, call }));
                }
            }
            Input::Office(answer) => self.office_answered(now_ns, answer, out),
            Input::OfficeLost => self.seeker.leave_office(),
            Input::Connected(peer) => self.greet(now_ns, peer, out),
            Input::NotConnected { reason } => self.not_connected(reason, out),
            Input::Received(message) => self.hear(now_ns, message, out),
            Input::Malformed { reason } => self.refuse(now_ns, &reason, out),
            Input::Broken { reason } => self.lose(now_ns, &reason, out),
        }
        self.stalls.note(now_ns, self.is_stalled());
    }

    /// What the gate holds now.
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// What the job has of its storage, and when it may go on; `None` if nobody coordinates.
    pub fn prospect(&self) -> Option<Prospect> {
        let is_waiting = |phase: &Phase| phase.state.progress.is_waiting();
        let go_on_ns = self.phase.filter(is_waiting).map_or(0, |phase| phase.go_on_ns);
        let share = match self.gate {
            _ if !self.is_joined() => return None,
            Gate::Closed | Gate::Free { .. } => 0.0,
            Gate::Granted { credit_bytes: UNLIMITED } | Gate::Ahead | Gate::Open { .. } => 1.0,
            Gate::Granted { .. } => self.phase.map_or(0.0, |phase| phase.share),
        };
        Some(Prospect { share, go_on_ns: if share < 1.0 { go_on_ns } else { 0 } })
    }

    /// Bytes that the node had spent when the phase under way began.
    pub fn base_bytes(&self) -> u64 {
        self.detector.base_bytes()
    }

    /// When a rank whose request ends has to call the leader, as bytes spent since the job began; 0: not at all.
    pub fn call_at_bytes(&self) -> u64 {
        self.detector.call_at_bytes()
    }

    /// Number of the phase under way.
    pub fn phase(&self) -> Option<u64> {
        self.phase.map(|phase| phase.number)
    }

    /// Whether a coordinator knows the job.
    pub fn is_joined(&self) -> bool {
        matches!(self.link, Link::Up { .. })
    }

    /// Whether an answer of the coordinator is due at any moment: the phase has just asked.
    pub fn is_asking(&self) -> bool {
        self.is_joined() && self.phase.is_some_and(|phase| phase.is_asking)
    }

    /// What the phases so far have shown.
    pub fn habits(&self) -> Habits {
        Habits {
            phases: self.detector.phases(),
            w_iter_ns: self.detector.w_iter_ns(),
            mean_phase_bytes: self.detector.mean_phase_bytes(),
        }
    }

    /// How long the ranks need not be looked at, unless somebody calls for it.
    pub fn look_again_ns(&self) -> u64 {
        match (self.phase, self.gate) {
            (None, _) => BETWEEN_NS,
            (Some(_), Gate::Closed | Gate::Free { .. } | Gate::Ahead) => HELD_NS,
            (Some(_), Gate::Open { .. } | Gate::Granted { credit_bytes: UNLIMITED }) => IN_PHASE_NS,
            (Some(_), Gate::Granted { .. }) => LIMITED_NS,
        }
    }

    /// When [`Input::Tick`] is due if nothing else comes.
    pub fn deadline_ns(&self) -> u64 {
        let open_ns = self.down_since_ns.map_or(u64::MAX, |since_ns| since_ns + link::OPEN_AFTER_NS);
        open_ns.min(self.link_deadline_ns()).min(self.seek_deadline_ns())
    }

    fn look(&mut self, now_ns: u64, sum: &Sum, out: &mut Vec<Output>) {
        self.expect(sum, out);
        match self.detector.look(now_ns, sum) {
            Change::Began => self.begin(now_ns, sum, out),
            Change::Ended(ended) => self.end(ended, out),
            Change::None => {}
        }
        let busy_ns = self.detector.take_busy_ns(sum);
        if let Some(phase) = &mut self.phase {
            phase.volume = self.detector.volume(sum);
            phase.state = PhaseState {
                progress: self.detector.progress(sum).after(phase.state.progress),
                in_flight: self.detector.in_flight(sum),
                is_resting: self.detector.is_resting(sum),
            };
            phase.busy_ns += busy_ns;
            if sum.limit_reached {
                branch!("a wait reached its limit");
                self.gate = Gate::Open { reason: OpenReason::Limit };
            }
            self.report(now_ns, out);
        } else {
            self.gate = self.resting_gate();
        }
    }

    /// What the gate holds while no phase is under way.
    fn resting_gate(&self) -> Gate {
        if self.rest == Gate::Closed { self.detector.free_gate() } else { self.rest }
    }

    /// The coordinator hears how long the program says it is from phase to phase; one that comes later hears it when the job joins.
    fn expect(&mut self, sum: &Sum, out: &mut Vec<Output>) {
        let period_ns = Some(sum.period_ns).filter(|period_ns| *period_ns > 0).or(self.set_period_ns);
        if period_ns != self.identity.period_ns {
            self.identity.period_ns = period_ns;
            if self.is_joined() {
                branch!("the program says its period");
                out.push(Output::Send(Message::Expect { period_ns }));
            }
        }
    }

    /// The one place where a phase begins.
    fn begin(&mut self, now_ns: u64, sum: &Sum, out: &mut Vec<Output>) {
        let number = self.detector.phases();
        self.gate = match self.rest {
            Gate::Ahead => {
                branch!("a phase begins ahead");
                Gate::Granted { credit_bytes: UNLIMITED }
            }
            Gate::Open { .. } => {
                branch!("a phase begins without a coordinator");
                self.rest
            }
            _ => {
                branch!("a phase begins and asks");
                Gate::Closed
            }
        };
        let volume = self.detector.volume(sum);
        let bytes = volume.said_bytes;
        self.phase = Some(Phase {
            number,
            began_ns: now_ns,
            volume,
            share: 0.0,
            go_on_ns: 0,
            granted: self.rest == Gate::Ahead,
            is_backfilled: false,
            is_asking: self.gate == Gate::Closed,
            state: PhaseState::default(),
            busy_ns: 0,
            told: PhaseState::default(),
            told_volume: Volume { said_bytes: bytes, known_bytes: 0 },
            told_ns: 0,
        });
        if self.is_joined() {
            out.push(Output::Send(Message::Begin { phase: number, bytes }));
        }
    }

    /// The one place where a phase ends.
    fn end(&mut self, ended: Ended, out: &mut Vec<Output>) {
        let Ended { bytes, io_ns, waited_ns } = ended;
        if let Some(phase) = self.phase.take() {
            if self.is_joined() {
                branch!("a phase ends under a coordinator");
                out.push(Output::Send(Message::End { phase: phase.number, bytes, io_ns, waited_ns }));
            } else {
                branch!("a phase ends without a coordinator");
            }
        }
        self.gate = self.resting_gate();
        self.errands.end_phase(out);
        self.learn();
        out.push(Output::Word(Word::PhaseEnded));
    }

    /// What the job has shown of itself so far in this run: the next coordinator hears of it when the job joins.
    fn learn(&mut self) {
        let shown = self.habits();
        let mean = |usual: Option<u64>, now: u64| {
            usual.map_or(now, |usual| mean_with_usual(usual as f64, now as f64, shown.phases) as u64)
        };
        let (usual_ns, usual_bytes) = self.usual;
        self.identity.w_iter_ns = shown.w_iter_ns.map(|shown_ns| mean(usual_ns, shown_ns)).or(usual_ns);
        self.identity.mean_phase_bytes = Some(mean(usual_bytes, shown.mean_phase_bytes));
    }

    /// Sends the progress if there is any and it is time.
    fn report(&mut self, now_ns: u64, out: &mut Vec<Output>) {
        let Link::Up { report_ns, .. } = self.link else { return };
        let Some(phase) = &mut self.phase else { return };
        if !phase.is_news() || !(phase.is_urgent() || now_ns >= phase.told_ns + report_ns) {
            return;
        }
        phase.told_ns = now_ns;
        let Phase { number, state, busy_ns, volume, .. } = *phase;
        if phase.is_announcing() {
            branch!("a phase says what it will move");
            phase.told_volume = volume;
            let Volume { said_bytes: bytes, known_bytes } = volume;
            out.push(Output::Send(Message::Announce { phase: number, bytes, known_bytes }));
        }
        if phase.has_moved() {
            phase.told = state;
            let PhaseState { progress, in_flight, is_resting } = state;
            out.push(Output::Send(Message::Moved {
                phase: number,
                progress,
                in_flight,
                busy_ns,
                is_resting,
            }));
        }
    }

    fn leave(&mut self, sum: &Sum, out: &mut Vec<Output>) {
        if self.rest == Gate::Ahead {
            self.rest = Gate::Closed;
        }
        match self.detector.end(sum) {
            Change::Ended(ended) => self.end(ended, out),
            _ => self.gate = self.resting_gate(),
        }
        if self.is_joined() {
            branch!("a job leaves its coordinator");
            out.push(Output::Send(Message::Bye {}));
        }
        self.hang_up(out);
    }

    fn ask(&mut self, request: u64, file: FileInfo, out: &mut Vec<Output>) {
        if self.is_joined() && self.errands.ask(request, &file) {
            out.push(Output::Send(Message::Ask { request, file }));
        } else {
            out.push(Output::Word(Word::no_opinion(request)));
        }
    }

    fn read(&mut self, reader: Reader, out: &mut Vec<Output>) {
        let Reader { number, call, .. } = reader;
        if self.is_joined() && self.errands.read(number, call) {
            out.push(Output::Send(Message::Read { reader, pieces: Vec::new() }));
        } else {
            out.push(Output::Word(Word::Turn { number, call }));
        }
    }
}

#[cfg(test)]
mod tests;
