//! A rank: its program, and its way through the gate as in `src/gate/mod.rs`.

use crate::MS;
use crate::network::End;
use crate::node::Node;
use crate::plan::{Program, Step};
use crate::world::{Event, STORAGES, World};
use rand::RngExt;
use std::sync::atomic::Ordering::SeqCst;
use weir_coord::ledger::{Entry, Next, Outcome, Patience, SILENT_NS, Slot};
use weir_coord::session::{Gate, Input, OpenReason};

pub(crate) struct Rank {
    pub(crate) job: usize,
    /// Its node at the storage of the phase under way, or of the latest.
    pub(crate) node: usize,
    /// Its node at each storage.
    pub(crate) nodes: [usize; STORAGES],
    pub(crate) is_alive: bool,
    pub(crate) stops: u32,
    /// Of these, how many the system shows.
    pub(crate) seen_stops: u32,
    pub(crate) running_since_ns: u64,
    pub(crate) generation: u32,
    /// Something was due while the process was stopped.
    pub(crate) is_overdue: bool,
    pub(crate) task: Task,
    slots: [Option<usize>; STORAGES],
    requests_left: u32,
    /// When its request under way began, on the clock of its machine.
    request_ns: u64,
    pub(crate) wait: Option<Wait>,
    /// When it last tried to lead.
    pub(crate) tried_ns: Option<u64>,
}

/// What a rank does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Start,
    Compute,
    EnterPhase,
    Request,
    /// Waits at the gate.
    Wait,
    /// Has a request under way.
    Move,
    /// The request has ended.
    Moved,
    WaitForOther,
    LeavePhase,
    Barrier(Gathering),
    Over,
}

/// What the ranks of a job gather for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathering {
    Phase,
    Computing,
}

pub(crate) struct Wait {
    pub(crate) began_ns: u64,
    /// Time that the rank had waited before in the phase.
    pub(crate) waited_before_ns: u64,
    began_clock_ns: u64,
    patience: Patience,
    bytes: u64,
    /// The news on which the rank sleeps.
    pub(crate) asleep: Option<u32>,
    /// The rank was woken, and is about to look.
    pub(crate) is_called: bool,
}

impl Rank {
    pub(crate) fn new(job: usize, nodes: [usize; STORAGES]) -> Rank {
        Rank {
            job,
            node: nodes[0],
            nodes,
            is_alive: true,
            stops: 0,
            seen_stops: 0,
            running_since_ns: 0,
            generation: 0,
            is_overdue: false,
            task: Task::Start,
            slots: [None; STORAGES],
            requests_left: 0,
            request_ns: 0,
            wait: None,
            tried_ns: None,
        }
    }
}

impl World {
    pub(crate) fn schedule_rank(&mut self, rank: usize, delay_ns: u64) {
        self.ranks[rank].generation += 1;
        let generation = self.ranks[rank].generation;
        self.at(self.now_ns + delay_ns, Event::Rank(rank, generation));
    }

    fn slot(&self, rank: usize) -> &Slot {
        let node = &self.nodes[self.ranks[rank].node];
        let slot = self.ranks[rank].slots[node.storage].expect("a rank at the gate has a slot");
        &node.ledger.used_slots()[slot]
    }

    fn rank_clock(&self, rank: usize) -> u64 {
        self.clock(self.nodes[self.ranks[rank].node].machine)
    }

    pub(crate) fn run_rank(&mut self, rank: usize) {
        let job = self.ranks[rank].job;
        match self.ranks[rank].task {
            Task::Start => self.compute(rank),
            Task::Compute => self.gather(rank, Gathering::Phase),
            Task::EnterPhase => {
                self.ranks[rank].node = self.ranks[rank].nodes[self.storage(job)];
                self.attach(rank);
                self.ranks[rank].requests_left = self.step_of(job).requests;
                self.slot(rank).open_files.store(1, SeqCst);
                self.announce(rank);
                if self.plan.jobs[job].is_marked {
                    self.slot(rank).marks.store(1, SeqCst);
                    self.ring(rank);
                }
                self.ranks[rank].task = Task::Request;
                self.request(rank);
            }
            Task::Request => self.request(rank),
            Task::Wait => self.wait_on(rank),
            Task::Moved => self.moved(rank),
            Task::WaitForOther => {
                let other = self.plan.jobs[job].waits_for.expect("only then");
                if self.jobs[other].is_over || self.jobs[other].phases >= self.jobs[job].phases {
                    self.ranks[rank].task = Task::Request;
                    self.request(rank);
                } else {
                    self.schedule_rank(rank, 50 * MS);
                }
            }
            Task::LeavePhase => {
                let files = u32::from(self.step_of(job).requests % 2 == 1);
                self.slot(rank).open_files.store(files, SeqCst);
                self.slot(rank).marks.store(0, SeqCst);
                self.slot(rank).end_call();
                self.ring(rank);
                self.gather(rank, Gathering::Computing);
            }
            Task::Barrier(Gathering::Phase) => {
                self.ranks[rank].task = Task::EnterPhase;
                self.run_rank(rank);
            }
            Task::Barrier(Gathering::Computing) => self.compute(rank),
            Task::Move | Task::Over => {}
        }
    }

    /// What the rank says of the phase that it begins: the truth, half of it, what it expects of all, or what a collective write
    /// is to move.
    fn announce(&self, rank: usize) {
        let job = self.ranks[rank].job;
        if matches!(self.plan.jobs[job].program, Program::Listed(_)) {
            return;
        }
        let Step { requests, request_bytes, compute_ns } = self.step_of(job);
        let is_marked = self.plan.jobs[job].is_marked;
        let bytes = u64::from(requests) * request_bytes;
        let slot = self.slot(rank);
        match requests % 4 {
            0 if is_marked => slot.announce(bytes),
            1 if is_marked => slot.announce(bytes / 2),
            2 => slot.expect(compute_ns, bytes),
            _ => slot.begin_call(bytes),
        }
    }

    fn compute(&mut self, rank: usize) {
        let job = self.ranks[rank].job;
        if self.plan.jobs[job].program.is_over(self.jobs[job].phases, self.now_ns) {
            return self.finish(rank);
        }
        let compute_ns = self.step_of(job).compute_ns;
        let delay_ns = match self.plan.jobs[job].program {
            Program::Forever { .. } => self.rng.random_range(compute_ns * 9 / 10..compute_ns * 11 / 10),
            Program::Listed(_) => compute_ns,
        };
        self.jobs[job].begins_to_compute(self.now_ns);
        self.ranks[rank].task = Task::Compute;
        self.schedule_rank(rank, delay_ns);
    }

    /// The rank waits for all others of its job.
    fn gather(&mut self, rank: usize, what: Gathering) {
        let job = self.ranks[rank].job;
        self.ranks[rank].task = Task::Barrier(what);
        self.jobs[job].arrived.push(rank);
        if self.jobs[job].arrived.len() < self.jobs[job].ranks.len() {
            return;
        }
        match what {
            Gathering::Computing => {
                self.jobs[job].phases += 1;
                self.jobs[job].ends_phase(self.now_ns, self.plan.window_ns);
            }
            Gathering::Phase => self.jobs[job].begins_phase(self.now_ns, self.plan.window_ns),
        }
        for rank in std::mem::take(&mut self.jobs[job].arrived) {
            let delay_ns = self.wake_delay();
            self.schedule_rank(rank, delay_ns);
        }
    }

    /// The end of the program.
    fn finish(&mut self, rank: usize) {
        self.ranks[rank].task = Task::Over;
        let job = self.ranks[rank].job;
        self.jobs[job].is_over = true;
        self.jobs[job].did.finish_ns = Some(self.now_ns);
        for node in self.led_by(rank) {
            let mut leader = self.nodes[node].leader.take().expect("just seen");
            let sum = self.nodes[node].ledger.sum();
            self.tell(node, &mut leader, Input::Leave(&sum));
            if let Some(office) = leader.office {
                self.end_office(office);
            }
            let silent_ns = self.clock(self.nodes[node].machine).saturating_sub(SILENT_NS + 1);
            self.nodes[node].ledger.beat(silent_ns);
        }
        self.ranks[rank].is_alive = false;
    }

    /// The first I/O of the rank: its slot, and a leader if there is none.
    fn attach(&mut self, rank: usize) {
        let Node { storage, ref ledger, .. } = self.nodes[self.ranks[rank].node];
        if self.ranks[rank].slots[storage].is_some() {
            return;
        }
        let clock_ns = self.rank_clock(rank);
        self.ranks[rank].slots[storage] = Some(ledger.number(ledger.take_slot(rank as u32 + 1, 0)));
        if !self.plan.is_coordinated {
            let open = Gate::Open { reason: OpenReason::NoCoordinator };
            let _ = ledger.hold(&open, 0);
            self.nodes[self.ranks[rank].node].put = (open, 0);
            return;
        }
        if ledger.first_beat(clock_ns) || ledger.silent_ns(clock_ns) > SILENT_NS {
            self.start_leader(rank);
        }
    }

    fn request(&mut self, rank: usize) {
        let job = self.ranks[rank].job;
        let Step { requests: all, request_bytes: bytes, .. } = self.step_of(job);
        let left = self.ranks[rank].requests_left;
        if left == 0 {
            self.ranks[rank].task = Task::LeavePhase;
            return self.run_rank(rank);
        }
        self.note_activity(rank);
        self.ranks[rank].requests_left -= 1;
        let (node, slot) = (&self.nodes[self.ranks[rank].node], self.slot(rank));
        match node.ledger.enter(slot, bytes) {
            Entry::Admitted => {
                self.check_admitted(rank);
                self.start_moving(rank, bytes);
            }
            Entry::AdmittedAhead => {
                self.call_leader(rank);
                self.start_moving(rank, bytes);
            }
            Entry::MustWait => {
                let waited_before_ns = node.ledger.start_waiting(slot, bytes);
                let began_clock_ns = self.rank_clock(rank);
                let patience = Patience::new(began_clock_ns, self.plan.max_wait_ns, waited_before_ns);
                let began_ns = self.now_ns;
                let (asleep, is_called) = (None, false);
                self.say(|| format!("rank {rank} of job {job} waits, {left} of {all} left"));
                self.ranks[rank].wait = Some(Wait {
                    began_ns,
                    waited_before_ns,
                    began_clock_ns,
                    patience,
                    bytes,
                    asleep,
                    is_called,
                });
                self.ranks[rank].task = Task::Wait;
                self.call_leader(rank);
                self.wait_on(rank);
            }
        }
    }

    fn wait_on(&mut self, rank: usize) {
        let node = self.ranks[rank].node;
        let clock_ns = self.rank_clock(rank);
        let wait = self.ranks[rank].wait.as_mut().expect("it waits");
        if wait.asleep.take().is_some() {
            self.nodes[node].ledger.wakes_up();
        }
        wait.is_called = false;
        let (bytes, patience) = (wait.bytes, wait.patience);
        let news = match self.nodes[node].ledger.try_again(bytes) {
            Ok(()) => {
                self.check_admitted(rank);
                return self.stop_waiting(rank, Outcome::Turn);
            }
            Err(news) => news,
        };
        let silent_ns = self.nodes[node].ledger.silent_ns(clock_ns);
        if silent_ns > SILENT_NS {
            self.start_leader(rank);
        }
        match patience.next(clock_ns, silent_ns) {
            Next::GoOn(outcome) => self.stop_waiting(rank, outcome),
            Next::Yield => self.schedule_rank(rank, 50_000),
            Next::Sleep { limit_ns } => {
                self.nodes[node].ledger.falls_asleep();
                let is_news = self.nodes[node].ledger.news() != news;
                self.ranks[rank].wait.as_mut().expect("it waits").asleep = Some(news);
                self.schedule_rank(rank, if is_news { 0 } else { limit_ns });
            }
        }
    }

    fn stop_waiting(&mut self, rank: usize, outcome: Outcome) {
        let node = self.ranks[rank].node;
        let wait = self.ranks[rank].wait.take().expect("it waits");
        self.check_wait(rank, &wait);
        let clock_ns = self.rank_clock(rank);
        self.say(|| format!("rank {rank} goes on: {outcome:?}"));
        let wake = self.nodes[node].ledger.stop_waiting(self.slot(rank), wait.bytes, outcome);
        self.slot(rank).add_wait(clock_ns - wait.began_clock_ns);
        if wake {
            self.wake_ranks(node);
        }
        self.start_moving(rank, wait.bytes);
    }

    fn start_moving(&mut self, rank: usize, bytes: u64) {
        let (job, node) = (self.ranks[rank].job, self.ranks[rank].node);
        self.nodes[node].started_bytes += bytes;
        self.check_spent(node);
        self.ranks[rank].task = Task::Move;
        self.ranks[rank].request_ns = self.rank_clock(rank);
        let storage = self.storage(job);
        self.storages[storage].begin(self.now_ns, rank, bytes);
        self.schedule_storage(storage);
    }

    /// What the job does in its phase under way, or before it.
    pub(crate) fn step_of(&self, job: usize) -> Step {
        self.plan.jobs[job].program.step(self.jobs[job].phases)
    }

    fn storage(&self, job: usize) -> usize {
        let plan = &self.plan.jobs[job];
        if plan.alternates && self.jobs[job].phases % 2 == 1 { 1 - plan.storage } else { plan.storage }
    }

    fn note_activity(&mut self, rank: usize) {
        let storage = self.nodes[self.ranks[rank].node].storage;
        self.jobs[self.ranks[rank].job].active_ns[storage] = self.now_ns;
    }

    /// The nodes that the rank leads.
    pub(crate) fn led_by(&self, rank: usize) -> Vec<usize> {
        let leads =
            |node: &usize| self.nodes[*node].leader.as_ref().is_some_and(|leader| leader.rank == rank);
        self.ranks[rank].nodes.into_iter().filter(leads).collect()
    }

    fn moved(&mut self, rank: usize) {
        let (job, node) = (self.ranks[rank].job, self.ranks[rank].node);
        let clock_ns = self.rank_clock(rank);
        let Step { requests, request_bytes: bytes, .. } = self.step_of(job);
        self.jobs[job].moves(self.now_ns, bytes, self.plan.window_ns);
        self.note_activity(rank);
        let request_ns = self.ranks[rank].request_ns;
        if self.nodes[node].ledger.leave(self.slot(rank), bytes, request_ns, clock_ns) {
            self.ring(rank);
        }
        if self.plan.is_coordinated && self.nodes[node].ledger.silent_ns(clock_ns) > SILENT_NS {
            self.start_leader(rank);
        }
        let plan = &self.plan.jobs[job];
        let is_half = self.ranks[rank].requests_left == requests / 2;
        let waits = plan.waits_for.is_some() && is_half;
        self.ranks[rank].task = if waits { Task::WaitForOther } else { Task::Request };
        self.schedule_rank(rank, plan.pause_ns);
    }

    /// Wakes the leader; if it is gone this process takes its place.
    fn call_leader(&mut self, rank: usize) {
        if !self.ring(rank) {
            self.start_leader(rank);
        }
    }

    /// False: the leader should be asleep and is not there.
    fn ring(&mut self, rank: usize) -> bool {
        let node = self.ranks[rank].node;
        let is_there = self.nodes[node].leader.is_some();
        if is_there {
            self.wake_leader(node);
        }
        is_there || !self.nodes[node].bell_is_asleep
    }

    /// Wakes all ranks of the node that wait for credit.
    pub(crate) fn wake_ranks(&mut self, node: usize) {
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].node == node
                && self.ranks[rank].is_alive
                && let Some(wait) = &mut self.ranks[rank].wait
                && wait.asleep.is_some()
            {
                wait.is_called = true;
                let delay_ns = self.wake_delay();
                self.schedule_rank(rank, delay_ns);
            }
        }
    }

    /// The process dies; what it leaves behind is found by others.
    pub(crate) fn kill(&mut self, rank: usize) {
        if !self.ranks[rank].is_alive {
            return;
        }
        self.say(|| format!("rank {rank} dies"));
        let job = self.ranks[rank].job;
        self.ranks[rank].is_alive = false;
        self.ranks[rank].wait = None;
        self.jobs[job].is_over = true;
        for storage in 0..self.storages.len() {
            self.storages[storage].forget(self.now_ns, rank);
            self.schedule_storage(storage);
        }
        for node in self.led_by(rank) {
            let leader = self.nodes[node].leader.take().expect("just seen");
            if let Some(connection) = leader.connection {
                self.close(connection, End::Job);
            }
            if let Some(office) = leader.office {
                self.end_office(office);
            }
            // Killed in its sleep, or while it was at work.
            self.nodes[node].bell_is_asleep = self.rng.random_bool(0.8);
        }
    }
}
