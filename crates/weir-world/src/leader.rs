//! The rank that leads its node: the loop of `src/gate/leader.rs` and the member beneath it, without threads and sockets.

use crate::MS;
use crate::network::{End, Packet};
use crate::node::Node;
use crate::office::{Office, Who};
use crate::plan::Meeting;
use crate::world::{Event, World};
use rand::RngExt;
use std::collections::BTreeMap;
use weir_coord::ledger::{Fate, Slot};
use weir_coord::service::Service;
use weir_coord::session::{Gate, Input, Limits, Output, Peer, Route, Session, Wanted, Word};
use weir_coord::wire::{FileInfo, Identity, Message, Reader};

/// The thread of a rank that speaks for its node.
pub(crate) struct Leader {
    pub(crate) rank: usize,
    pub(crate) session: Session,
    pub(crate) connection: Option<usize>,
    pub(crate) office: Option<usize>,
    next_ns: u64,
    generation: u32,
    roll_call_ns: u64,
    /// The latest connection was closed though a message had come that nobody had read.
    dropped_unread: bool,
    /// When the coordinator was lost, until there is another.
    lost_ns: Option<u64>,
    /// Since when no coordinator has known the job.
    pub(crate) unjoined_since_ns: Option<u64>,
    /// Since when there is no coordinator that could be reached.
    pub(crate) unreachable_since_ns: Option<u64>,
    /// The coordinator's latest word on the phase, by its number: granted or held.
    pub(crate) told: Option<(u64, bool)>,
    /// When the job joined its coordinator, and how many words on its phases came since.
    pub(crate) joined_ns: u64,
    pub(crate) words_since: u64,
    words: Vec<Word>,
    /// Questions beside the phase that have not been answered, and when they were asked.
    pub(crate) questions: BTreeMap<Question, u64>,
    asked: u64,
    /// Readers that have had their turn, of which the coordinator has to hear.
    served: Vec<(u32, u64)>,
}

/// Where a file shall lie, or when a reader may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    File(u64),
    Reader(u64),
}

/// What all call the storage.
pub(crate) fn storage_name(storage: usize) -> String {
    format!("storage {storage}")
}

const TRY_AGAIN_NS: u64 = 200 * MS;
const ROLL_CALL_NS: u64 = 250 * MS;

impl World {
    /// Makes the process the leader of its node, unless there is one.
    pub(crate) fn start_leader(&mut self, rank: usize) {
        let tried_ns = self.ranks[rank].tried_ns;
        if tried_ns.is_some_and(|tried_ns| self.now_ns - tried_ns < TRY_AGAIN_NS) {
            return;
        }
        self.ranks[rank].tried_ns = Some(self.now_ns);
        let node = self.ranks[rank].node;
        if self.nodes[node].leader.is_some() {
            return;
        }
        let Node { job, machine, storage, .. } = self.nodes[node];
        let clock_ns = self.clock(machine);
        let plan = &self.plan.jobs[job];
        let identity = Identity {
            job: self.jobs[job].name.clone(),
            pid: rank as u32 + 1,
            ranks: plan.ranks as u32,
            nodes: plan.machines.len() as u32,
            w_iter_ns: plan.w_iter_ns,
            mean_phase_bytes: plan.mean_phase_bytes,
            weight: 1,
            storage: storage_name(storage),
            ..Identity::default()
        };
        let wanted = match self.plan.meeting {
            Meeting::Local => Wanted::Election { network: false },
            Meeting::Shared => Wanted::Election { network: true },
            Meeting::Service => Wanted::Service,
        };
        let limits = Limits {
            phase_gap_ns: None,
            max_wait_ns: self.plan.max_wait_ns,
            free_bytes: self.plan.free_bytes,
        };
        let ledger = &self.nodes[node].ledger;
        ledger.beat(clock_ns);
        ledger.begin_to_lead();
        let session = Session::new(clock_ns, identity, wanted, limits, &ledger.sum());
        self.say(|| format!("rank {rank} leads node {node} of job {job}"));
        self.nodes[node].leader = Some(Box::new(Leader {
            rank,
            session,
            connection: None,
            office: None,
            next_ns: u64::MAX,
            generation: 0,
            roll_call_ns: 0,
            dropped_unread: false,
            lost_ns: None,
            unjoined_since_ns: None,
            unreachable_since_ns: None,
            told: None,
            joined_ns: 0,
            words_since: 0,
            words: Vec::new(),
            questions: BTreeMap::new(),
            asked: 0,
            served: Vec::new(),
        }));
        self.hold(node);
        self.wake_leader(node);
    }

    pub(crate) fn wake_leader(&mut self, node: usize) {
        let at_ns = self.now_ns + self.wake_delay();
        self.schedule_leader(node, at_ns);
    }

    fn schedule_leader(&mut self, node: usize, at_ns: u64) {
        let Some(leader) = &mut self.nodes[node].leader else { return };
        if at_ns < leader.next_ns {
            leader.next_ns = at_ns;
            leader.generation += 1;
            let generation = leader.generation;
            self.at(at_ns, Event::Leader(node, generation));
        }
    }

    pub(crate) fn leader_is_due(&mut self, node: usize, generation: u32) {
        let Some(leader) = &mut self.nodes[node].leader else { return };
        if leader.generation != generation {
            return;
        }
        leader.next_ns = u64::MAX;
        let rank = leader.rank;
        if self.is_running(rank) {
            self.run_leader(node);
        }
    }

    /// Once around the loop of `src/gate/leader.rs`.
    fn run_leader(&mut self, node: usize) {
        let mut leader = self.nodes[node].leader.take().expect("it is due");
        let clock_ns = self.clock(self.nodes[node].machine);
        self.nodes[node].bell_is_asleep = false;
        self.nodes[node].ledger.beat(clock_ns);
        if self.now_ns >= leader.roll_call_ns {
            leader.roll_call_ns = self.now_ns + ROLL_CALL_NS;
            self.nodes[node].ledger.call_roll(|slot| self.fate(slot));
        }
        let sum = self.nodes[node].ledger.sum();
        self.tell(node, &mut leader, Input::Look(&sum));
        self.ask(node, &mut leader);
        self.put(node, &leader);
        self.tell(node, &mut leader, Input::Seek);
        if let Some(office) = leader.office {
            self.office_round(office);
        }
        self.receive(node, &mut leader);
        self.tell(node, &mut leader, Input::Tick);
        for word in std::mem::take(&mut leader.words) {
            self.hear_word(node, &mut leader, word);
        }
        self.put(node, &leader);
        let office_ns =
            leader.office.and_then(|office| self.offices[office].service().map(Service::deadline_ns));
        let due_ns = leader.session.deadline_ns().min(office_ns.unwrap_or(u64::MAX)).saturating_sub(clock_ns);
        let wait_ns = due_ns.min(leader.session.look_again_ns()).max(1_000);
        let has_input =
            leader.connection.is_some_and(|connection| self.connections[connection].has_input(End::Job));
        self.nodes[node].leader = Some(leader);
        self.nodes[node].bell_is_asleep = true;
        self.check_node(node);
        self.schedule_leader(node, self.now_ns + if has_input { 1_000 } else { wait_ns });
    }

    fn hear_word(&mut self, node: usize, leader: &mut Leader, word: Word) {
        let answered = match word {
            Word::PhaseEnded => return self.nodes[node].ledger.end_phase(),
            Word::Lost { reason } => {
                if reason.contains("silent") && leader.dropped_unread {
                    self.fail(|| {
                        format!("node {node} takes its coordinator for silent and has not read its answer")
                    });
                }
                return leader.lost_ns = Some(self.now_ns);
            }
            Word::Joined { .. } => {
                // It is heard again when the policy changes.
                if leader.lost_ns.is_some() || leader.joined_ns == 0 {
                    (leader.joined_ns, leader.words_since) = (self.now_ns, 0);
                }
                return leader
                    .lost_ns
                    .take()
                    .into_iter()
                    .for_each(|lost_ns| self.check_takeover(node, lost_ns));
            }
            Word::Allocated { request, .. } => Question::File(request),
            Word::Turn { number, call } => {
                leader.served.push((number, call));
                Question::Reader(call)
            }
            _ => return,
        };
        if leader.questions.remove(&answered).is_none() {
            self.fail(|| {
                format!("node {node} has an answer to {answered:?}, which was answered or never asked")
            });
        }
    }

    /// Now and then a rank asks where a file shall lie, or for a turn to read; a file is closed some questions later.
    fn ask(&mut self, node: usize, leader: &mut Leader) {
        for (number, call) in std::mem::take(&mut leader.served) {
            self.tell(node, leader, Input::Served { number, call });
        }
        if leader.session.phase().is_none() || !self.rng.random_bool(0.02) {
            return;
        }
        leader.asked += 1;
        let number = leader.asked;
        if number.is_multiple_of(2) {
            let request = number.saturating_sub(8);
            leader.questions.remove(&Question::File(request));
            self.tell(node, leader, Input::Release { request });
            leader.questions.insert(Question::File(number), self.now_ns);
            let file = FileInfo { path: "/scratch/file".into(), ranks: 1, nodes: 1, ..FileInfo::default() };
            self.tell(node, leader, Input::Ask { request: number, file });
        } else {
            leader.questions.insert(Question::Reader(number), self.now_ns);
            let reader = Reader { number: number as u32, call: number, service_ns: MS, ..Reader::default() };
            self.tell(node, leader, Input::Read(reader));
        }
    }

    /// What the system says of the process that has a slot.
    fn fate(&self, slot: &Slot) -> Fate {
        let rank = slot.pid.load(std::sync::atomic::Ordering::Relaxed) as usize - 1;
        let process = &self.ranks[rank];
        match slot.is_busy() {
            _ if !process.is_alive => Fate::Dead,
            false => Fate::Unknown,
            true if process.seen_stops > 0 => Fate::Stopped,
            true => Fate::Alive,
        }
    }

    fn put(&mut self, node: usize, leader: &Leader) {
        let (gate, base_bytes) = (leader.session.gate(), leader.session.base_bytes());
        self.nodes[node].put = (gate, base_bytes);
        self.nodes[node].ledger.call_at(leader.session.call_at_bytes());
        if self.nodes[node].ledger.hold(&gate, base_bytes) {
            self.wake_ranks(node);
        }
    }

    /// Puts what the gate of the leader holds before its ranks.
    fn hold(&mut self, node: usize) {
        if let Some(leader) = self.nodes[node].leader.take() {
            self.put(node, &leader);
            self.nodes[node].leader = Some(leader);
        }
    }

    /// Tells the session something, and does what it wants.
    pub(crate) fn tell(&mut self, node: usize, leader: &mut Leader, input: Input) {
        let clock_ns = self.clock(self.nodes[node].machine);
        let mut outputs = Vec::new();
        leader.session.step(clock_ns, input, &mut outputs);
        let mut more = Vec::new();
        while !outputs.is_empty() {
            for output in outputs.drain(..) {
                if let Some(answer) = self.perform(node, leader, output) {
                    leader.session.step(clock_ns, answer, &mut more);
                }
            }
            std::mem::swap(&mut outputs, &mut more);
        }
    }

    fn perform(&mut self, node: usize, leader: &mut Leader, output: Output) -> Option<Input<'static>> {
        match output {
            Output::Send(message) => {
                if let Message::Begin { phase, .. } = message {
                    leader.told =
                        matches!(leader.session.gate(), Gate::Granted { .. }).then_some((phase, true));
                }
                if let Some(connection) = leader.connection {
                    self.send(connection, End::Coordinator, message);
                }
                None
            }
            Output::HangUp => {
                if let Some(connection) = leader.connection.take() {
                    leader.dropped_unread = self.connections[connection].has_message(End::Job);
                    self.close(connection, End::Job);
                }
                None
            }
            Output::TakeOffice => Some(Input::Office(self.take_office(node, leader))),
            Output::CheckOffice => {
                let directory = self.directory(self.nodes[node].machine);
                let is_found = leader.office.is_some() && self.directories[directory].socket == leader.office;
                if is_found {
                    return None;
                }
                if let Some(office) = leader.office.take() {
                    self.end_office(office);
                }
                Some(Input::OfficeLost)
            }
            Output::Connect(route) => Some(match self.connect(node, leader, route) {
                Ok(peer) => Input::Connected(peer),
                Err(reason) => Input::NotConnected { reason: reason.into() },
            }),
            Output::Word(word) => {
                self.say(|| format!("node {node} hears {word:?}"));
                leader.words.push(word);
                None
            }
        }
    }

    fn take_office(&mut self, node: usize, leader: &mut Leader) -> Result<bool, String> {
        let machine = self.nodes[node].machine;
        let directory = self.directory(machine);
        if self.directories[directory].unwritable > 0 {
            return Err("the directory cannot be written to".into());
        }
        if self.directories[directory].lock.is_some() {
            return Ok(false);
        }
        let service = Service::new(self.clock(machine), self.settings());
        let host = Some((leader.rank, node));
        self.offices.push(Office::new(machine, host, Who::Real(Box::new(service)), self.now_ns));
        let office = self.offices.len() - 1;
        self.say(|| format!("node {node} takes office {office}"));
        self.directories[directory].lock = Some(office);
        self.directories[directory].socket = Some(office);
        leader.office = Some(office);
        Ok(true)
    }

    fn connect(&mut self, node: usize, leader: &mut Leader, route: Route) -> Result<Peer, &'static str> {
        let machine = self.nodes[node].machine;
        let found = self.directories[self.directory(machine)].socket;
        let office = match route {
            Route::Own => leader.office.ok_or("not in office")?,
            Route::Socket => found
                .filter(|office| self.offices[*office].is_alive && self.offices[*office].machine == machine)
                .ok_or("nobody is there")?,
            Route::Published | Route::Service => {
                found.filter(|office| self.offices[*office].is_alive).ok_or("connection refused")?
            }
        };
        let is_trusted = matches!(route, Route::Own | Route::Socket);
        let connection = self.open(Some(node), machine, office);
        self.introduce(connection, is_trusted);
        leader.connection = Some(connection);
        let secret = (!is_trusted).then(|| (self.key.clone(), self.rng.random::<[u8; 32]>()));
        Ok(Peer { name: String::new(), secret })
    }

    /// Hears all that has come.
    fn receive(&mut self, node: usize, leader: &mut Leader) {
        while let Some(connection) = leader.connection
            && let Some(packet) = self.connections[connection].take(End::Job)
        {
            match packet {
                Packet::Closed => self.tell(node, leader, Input::Broken { reason: "closed".into() }),
                Packet::Message(message) => {
                    let is_word = matches!(*message, Message::Grant { .. } | Message::Hold { .. });
                    leader.words_since += u64::from(is_word);
                    match *message {
                        // Words before the welcome, and on other phases, are not obeyed.
                        _ if !leader.session.is_joined() => {}
                        Message::Grant { phase, share, .. } if leader.session.phase() == Some(phase) => {
                            leader.told = Some((phase, share > 0.0));
                        }
                        Message::Hold { phase, .. } if leader.session.phase() == Some(phase) => {
                            leader.told = Some((phase, false));
                        }
                        _ => {}
                    }
                    self.tell(node, leader, Input::Received(*message));
                }
            }
        }
    }
}
