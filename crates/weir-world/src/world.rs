//! The event loop: what happens next, who is stopped or dead, and which faults come when.

use crate::network::{Connection, End};
use crate::node::Node;
use crate::office::Office;
use crate::plan::{Habit, Meeting, Plan};
use crate::rank::{Rank, Task};
use crate::storage::Storage;
use crate::{MS, SECOND};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use weir_coord::auth::Key;
use weir_engine::sim::JobOutcome;

pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) plan: Plan,
    pub(crate) rng: Pcg64,
    queue: BinaryHeap<Reverse<Due>>,
    events: u64,
    pub(crate) machines: Vec<Machine>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) offices: Vec<Office>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) directories: Vec<Directory>,
    pub(crate) storages: Vec<Storage>,
    pub(crate) hostile_jobs: Vec<HostileJob>,
    /// The key that coordinators and jobs have in common.
    pub(crate) key: Key,
    pub(crate) epoch: u64,
    pub(crate) slow_network: u32,
    /// Faults that last, at the moment.
    pub(crate) lasting: u32,
    pub(crate) hostile_coordinators: u32,
    /// When a fault other than the death of a process last began or ended.
    pub(crate) troubled_ns: Option<u64>,
    /// When a coordinator last left, for whatever reason.
    pub(crate) left_office_ns: u64,
    /// When a fault last began or ended.
    pub(crate) disturbed_ns: u64,
    pub(crate) failure: Option<String>,
    /// Used by one message after the other.
    pub(crate) frame: Vec<u8>,
    pub(crate) trace: bool,
}

pub(crate) struct Machine {
    /// What its clock is ahead.
    pub(crate) offset_ns: u64,
    pub(crate) partitioned: u32,
    pub(crate) stops: u32,
    /// When its clock last jumped.
    pub(crate) jumped_ns: u64,
}

pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) ranks: Vec<usize>,
    /// Ranks at the barrier.
    pub(crate) arrived: Vec<usize>,
    pub(crate) phases: u64,
    pub(crate) is_over: bool,
    /// When one of its ranks last had something to do with I/O, at each storage.
    pub(crate) active_ns: [u64; STORAGES],
    /// When its computing or its phase under way began, and which of the two it is.
    since_ns: Option<u64>,
    is_in_phase: bool,
    /// What it did within the window; its I/O in bytes.
    pub(crate) did: JobOutcome,
}

impl Job {
    /// The first of its ranks computes.
    pub(crate) fn begins_to_compute(&mut self, now_ns: u64) {
        self.since_ns = self.since_ns.or(Some(now_ns));
    }

    /// The last of its ranks has computed.
    pub(crate) fn begins_phase(&mut self, now_ns: u64, window_ns: (u64, u64)) {
        self.did.compute_ns += overlap_ns(self.since_ns.replace(now_ns), now_ns, window_ns);
        self.is_in_phase = true;
    }

    pub(crate) fn ends_phase(&mut self, now_ns: u64, window_ns: (u64, u64)) {
        self.did.in_io_ns += overlap_ns(self.since_ns.take(), now_ns, window_ns);
        self.is_in_phase = false;
    }

    /// A request of so many bytes has ended.
    pub(crate) fn moves(&mut self, now_ns: u64, bytes: u64, (begin_ns, end_ns): (u64, u64)) {
        if (begin_ns..end_ns).contains(&now_ns) {
            self.did.io_ns += bytes as f64;
        }
    }

    /// What it did up to the end, whatever it was at then.
    pub(crate) fn outcome(&self, end_ns: u64, window_ns: (u64, u64)) -> JobOutcome {
        let rest_ns = overlap_ns(self.since_ns, end_ns, window_ns);
        let (compute_ns, in_io_ns) = if self.is_in_phase { (0.0, rest_ns) } else { (rest_ns, 0.0) };
        JobOutcome {
            compute_ns: self.did.compute_ns + compute_ns,
            in_io_ns: self.did.in_io_ns + in_io_ns,
            ..self.did
        }
    }
}

fn overlap_ns(since_ns: Option<u64>, until_ns: u64, (begin_ns, end_ns): (u64, u64)) -> f64 {
    let since_ns = since_ns.unwrap_or(until_ns);
    until_ns.min(end_ns).saturating_sub(since_ns.max(begin_ns)) as f64
}

/// Where the jobs of a machine, or of all, elect their coordinator.
#[derive(Default)]
pub(crate) struct Directory {
    /// The office that holds the lock.
    pub(crate) lock: Option<usize>,
    /// The office behind the socket, alive or not.
    pub(crate) socket: Option<usize>,
    pub(crate) unwritable: u32,
}

pub(crate) struct HostileJob {
    pub(crate) connection: Option<usize>,
    pub(crate) habit: Habit,
    pub(crate) since_ns: u64,
    pub(crate) is_over: bool,
}

/// When something is to happen; what comes first in the queue happens first.
struct Due {
    at_ns: u64,
    number: u64,
    event: Event,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A rank goes on. The number tells it from a date that counts no more.
    Rank(usize, u32),
    Leader(usize, u32),
    Office(usize, u32),
    Arrival(usize, End),
    Storage(usize, u32),
    StartJob(usize),
    KillJob(usize),
    Fault(usize),
    FaultEnds(usize, usize),
    HostileJob(usize),
    Check,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

/// Storages that the jobs share.
pub(crate) const STORAGES: usize = 2;

/// How often what depends on time is checked.
const CHECK_NS: u64 = 40 * MS;

/// More mean that somebody turns in a circle.
const MAX_EVENTS_IN_AN_INSTANT: u32 = 10_000;

impl World {
    pub(crate) fn new(plan: Plan, mut rng: Pcg64, trace: bool) -> World {
        let machine = |rng: &mut Pcg64| Machine {
            offset_ns: rng.random_range(SECOND..100_000 * SECOND),
            partitioned: 0,
            stops: 0,
            jumped_ns: 0,
        };
        let machines = (0..plan.machines).map(|_| machine(&mut rng)).collect();
        let directories = (0..plan.machines).map(|_| Directory::default()).collect();
        let storages = plan.storage_rates.iter().map(|rate| Storage::new(*rate, plan.serves)).collect();
        let mut world = World {
            now_ns: 0,
            rng,
            queue: BinaryHeap::new(),
            events: 0,
            machines,
            jobs: Vec::new(),
            nodes: Vec::new(),
            ranks: Vec::new(),
            offices: Vec::new(),
            connections: Vec::new(),
            directories,
            storages,
            hostile_jobs: Vec::new(),
            key: Key::from_text("a key that all of them have"),
            epoch: 0,
            slow_network: 0,
            lasting: 0,
            hostile_coordinators: 0,
            troubled_ns: None,
            left_office_ns: 0,
            disturbed_ns: 0,
            failure: None,
            frame: Vec::new(),
            trace,
            plan,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        for job in 0..self.plan.jobs.len() {
            let plan = self.plan.jobs[job].clone();
            let mut ranks = Vec::new();
            for &machine in &plan.machines {
                let nodes = std::array::from_fn(|storage| self.nodes.len() + storage);
                self.nodes.extend((0..STORAGES).map(|storage| Node::new(job, machine, storage)));
                for _ in 0..plan.ranks {
                    ranks.push(self.ranks.len());
                    self.ranks.push(Rank::new(job, nodes));
                }
            }
            let name = format!("job {job}");
            let did = JobOutcome {
                release_ns: plan.start_ns,
                nodes: plan.machines.len() as u64,
                ..JobOutcome::default()
            };
            self.jobs.push(Job {
                name,
                ranks,
                arrived: Vec::new(),
                phases: 0,
                is_over: false,
                active_ns: [0; STORAGES],
                since_ns: None,
                is_in_phase: false,
                did,
            });
            self.at(plan.start_ns, Event::StartJob(job));
        }
        for fault in 0..self.plan.faults.len() {
            self.at(self.plan.faults[fault].0, Event::Fault(fault));
        }
        if self.plan.meeting == Meeting::Service {
            self.start_service();
        }
        self.at(CHECK_NS, Event::Check);
    }

    /// Runs until the end, or until something is wrong.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let mut in_this_instant = 0;
        while let Some(Reverse(due)) = self.queue.pop() {
            if due.at_ns > self.plan.end_ns {
                break;
            }
            in_this_instant = if due.at_ns == self.now_ns { in_this_instant + 1 } else { 0 };
            if in_this_instant > MAX_EVENTS_IN_AN_INSTANT {
                self.fail(|| format!("time stands still: {:?} and others again and again", due.event));
            }
            self.now_ns = due.at_ns;
            self.happen(due.event);
            if let Some(failure) = self.failure.take() {
                return Err(format!("at {:.6} s: {failure}", self.now_ns as f64 * 1e-9));
            }
        }
        Ok(())
    }

    pub(crate) fn at(&mut self, at_ns: u64, event: Event) {
        self.events += 1;
        self.queue.push(Reverse(Due { at_ns, number: self.events, event }));
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:12.6} {}", self.now_ns as f64 * 1e-9, what());
        }
    }

    pub(crate) fn fail(&mut self, why: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(why());
        }
    }

    /// A delay between a typical and a longest one: mostly near the first.
    fn delay(&mut self, (typical_ns, longest_ns): (u64, u64)) -> u64 {
        let part: f64 = self.rng.random();
        typical_ns / 2 + ((longest_ns - typical_ns / 2) as f64 * part.powi(6)) as u64
    }

    pub(crate) fn wake_delay(&mut self) -> u64 {
        self.delay(self.plan.wake_ns)
    }

    pub(crate) fn network_delay(&mut self, machines: [usize; 2]) -> u64 {
        if machines[0] == machines[1] {
            return self.wake_delay() / 2;
        }
        let slow_ns = if self.slow_network > 0 { self.rng.random_range(0..100 * MS) } else { 0 };
        self.delay(self.plan.network_ns) + slow_ns
    }

    /// The time that the processes of a machine see.
    pub(crate) fn clock(&self, machine: usize) -> u64 {
        self.now_ns + self.machines[machine].offset_ns
    }

    /// Whether the process of the rank runs: it lives, and neither it nor its machine is stopped.
    pub(crate) fn is_running(&self, rank: usize) -> bool {
        let process = &self.ranks[rank];
        process.is_alive && process.stops == 0 && self.machines[self.nodes[process.node].machine].stops == 0
    }

    pub(crate) fn is_office_running(&self, office: usize) -> bool {
        let office = &self.offices[office];
        let host_runs = office.rank.is_none_or(|rank| self.is_running(rank));
        office.is_alive && office.stops == 0 && host_runs && self.machines[office.machine].stops == 0
    }

    pub(crate) fn is_cut_off(&self, machines: [usize; 2]) -> bool {
        machines[0] != machines[1] && machines.iter().any(|machine| self.machines[*machine].partitioned > 0)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Rank(rank, generation) => {
                if self.ranks[rank].generation == generation && self.ranks[rank].is_alive {
                    if self.is_running(rank) {
                        self.run_rank(rank)
                    } else {
                        self.ranks[rank].is_overdue = true
                    }
                }
            }
            Event::Leader(node, generation) => self.leader_is_due(node, generation),
            Event::Office(office, generation) => {
                if self.offices[office].generation == generation && self.is_office_running(office) {
                    self.run_office(office);
                }
            }
            Event::Arrival(connection, to) => self.arrival(connection, to),
            Event::Storage(storage, generation) => {
                if self.storages[storage].generation == generation {
                    let ended = self.storages[storage].ended(self.now_ns);
                    self.schedule_storage(storage);
                    for rank in ended {
                        self.ranks[rank].task = Task::Moved;
                        self.schedule_rank(rank, 0);
                    }
                }
            }
            Event::StartJob(job) => {
                for rank in self.jobs[job].ranks.clone() {
                    let delay_ns = self.wake_delay();
                    self.schedule_rank(rank, delay_ns);
                }
            }
            Event::KillJob(job) => self.jobs[job].ranks.clone().into_iter().for_each(|rank| self.kill(rank)),
            Event::Fault(fault) => self.fault(fault),
            Event::FaultEnds(fault, what) => self.fault_ends(fault, what),
            Event::HostileJob(job) => self.run_hostile_job(job),
            Event::Check => {
                self.check();
                if self.jobs.iter().any(|job| !job.is_over) || !self.plan.faults.is_empty() {
                    self.at(self.now_ns + CHECK_NS, Event::Check);
                }
            }
        }
    }

    pub(crate) fn schedule_storage(&mut self, storage: usize) {
        if let Some(next_ns) = self.storages[storage].next_ns() {
            let generation = self.storages[storage].generation;
            self.at(next_ns, Event::Storage(storage, generation));
        }
    }
}
