//! What goes wrong, and what becomes of it.

use crate::MS;
use crate::leader::storage_name;
use crate::network::{End, Packet};
use crate::office::{self, Office, Who};
use crate::plan::{Fault, Habit, Meeting};
use crate::world::STORAGES;
use crate::world::{Directory, Event, HostileJob, World};
use rand::RngExt;
use weir_coord::wire::{Identity, Message};

impl World {
    pub(crate) fn fault(&mut self, number: usize) {
        let fault = self.plan.faults[number].1;
        self.say(|| format!("FAULT {fault:?}"));
        self.disturbed_ns = self.now_ns;
        if !matches!(fault, Fault::Kill { .. } | Fault::KillCoordinator) {
            self.troubled_ns = Some(self.now_ns);
        }
        let ends = |world: &mut World, for_ns: u64, what: usize| {
            world.lasting += 1;
            world.at(world.now_ns + for_ns, Event::FaultEnds(number, what));
        };
        match fault {
            Fault::Kill { rank, rest_after_ns } => {
                self.kill(rank);
                let job = self.ranks[rank].job;
                self.at(self.now_ns + rest_after_ns, Event::KillJob(job));
            }
            Fault::KillCoordinator => {
                let Some(office) = self.some_office() else { return };
                match self.offices[office].rank {
                    Some(rank) => {
                        let job = self.ranks[rank].job;
                        self.kill(rank);
                        self.at(self.now_ns + 200 * MS, Event::KillJob(job));
                    }
                    None => {
                        self.end_office(office);
                        // It is a service, and started again by its supervisor.
                        ends(self, self.plan.wake_ns.1 + 500 * MS, office);
                    }
                }
            }
            Fault::Stop { rank, for_ns, is_seen } => {
                self.ranks[rank].stops += 1;
                self.ranks[rank].seen_stops += u32::from(is_seen);
                ends(self, for_ns, rank);
            }
            Fault::StopCoordinator { for_ns } => {
                let Some(office) = self.some_office() else { return };
                match self.offices[office].rank {
                    Some(rank) => {
                        self.ranks[rank].stops += 1;
                        self.ranks[rank].seen_stops += 1;
                    }
                    None => self.offices[office].stops += 1,
                }
                ends(self, for_ns, office);
            }
            Fault::StopMachine { machine, for_ns } => {
                self.machines[machine].stops += 1;
                ends(self, for_ns, machine);
            }
            Fault::Partition { machine, for_ns } => {
                self.machines[machine].partitioned += 1;
                ends(self, for_ns, machine);
            }
            Fault::Cut { machine } => {
                for connection in 0..self.connections.len() {
                    let machines = self.connections[connection].machines;
                    if machines.contains(&machine) && machines[0] != machines[1] {
                        self.post(connection, End::Coordinator, Packet::Closed);
                        self.post(connection, End::Job, Packet::Closed);
                    }
                }
            }
            Fault::SlowNetwork { for_ns } => {
                self.slow_network += 1;
                ends(self, for_ns, 0);
            }
            Fault::ClockJump { machine, by_ns } => {
                self.machines[machine].offset_ns += by_ns;
                self.machines[machine].jumped_ns = self.now_ns;
            }
            Fault::StorageHangs { storage, for_ns } => {
                self.storages[storage].hang(self.now_ns, true);
                ends(self, for_ns, storage);
            }
            Fault::DirectoryRemoved => {
                let directory = self.some_directory();
                let unwritable = self.directories[directory].unwritable;
                if self.plan.meeting != Meeting::Service {
                    self.directories[directory] = Directory { unwritable, ..Directory::default() };
                }
            }
            Fault::DirectoryUnwritable { for_ns } => {
                let directory = self.some_directory();
                self.directories[directory].unwritable += 1;
                ends(self, for_ns, directory);
            }
            Fault::HostileCoordinator { for_ns, habit } => {
                // It has the place only if nobody else has it.
                let directory = self.some_directory();
                let machine = if self.plan.meeting == Meeting::Service { 0 } else { directory };
                if let Some(office) = self.directories[directory].socket {
                    match self.offices[office].rank {
                        Some(rank) if self.ranks[rank].is_alive => self.kill(rank),
                        _ => self.end_office(office),
                    }
                }
                self.offices.push(Office::new(machine, None, Who::Hostile(habit), self.now_ns));
                let office = self.offices.len() - 1;
                self.directories[directory].lock = Some(office);
                self.directories[directory].socket = Some(office);
                self.hostile_coordinators += 1;
                ends(self, for_ns, office);
            }
            Fault::HostileJob { for_ns, habit } => {
                self.hostile_jobs.push(HostileJob {
                    connection: None,
                    habit,
                    since_ns: self.now_ns,
                    is_over: false,
                });
                let job = self.hostile_jobs.len() - 1;
                self.at(self.now_ns, Event::HostileJob(job));
                ends(self, for_ns, job);
            }
            Fault::OtherPolicy { policy } => {
                for office in 0..self.offices.len() {
                    let clock_ns = self.clock(self.offices[office].machine);
                    if self.offices[office].is_alive
                        && let Who::Real(service) = &mut self.offices[office].who
                    {
                        service.set_policy(clock_ns, policy);
                        self.deliver(office);
                    }
                }
                self.plan.policy = policy;
            }
        }
    }

    pub(crate) fn fault_ends(&mut self, number: usize, what: usize) {
        self.lasting -= 1;
        self.disturbed_ns = self.now_ns;
        self.troubled_ns = Some(self.now_ns);
        let fault = self.plan.faults[number].1;
        self.say(|| format!("ENDS {fault:?}"));
        match fault {
            Fault::KillCoordinator => self.restart_service(),
            Fault::Stop { is_seen, .. } => self.go_on(what, is_seen),
            Fault::StopCoordinator { .. } => match self.offices[what].rank {
                Some(rank) => self.go_on(rank, true),
                None => {
                    self.offices[what].stops -= 1;
                    self.office_goes_on(what);
                }
            },
            Fault::StopMachine { .. } => {
                self.machines[what].stops -= 1;
                for rank in 0..self.ranks.len() {
                    if self.nodes[self.ranks[rank].node].machine == what {
                        self.process_goes_on(rank);
                    }
                }
                for office in 0..self.offices.len() {
                    if self.offices[office].machine == what && self.offices[office].rank.is_none() {
                        self.office_goes_on(office);
                    }
                }
            }
            Fault::Partition { .. } => self.machines[what].partitioned -= 1,
            Fault::SlowNetwork { .. } => self.slow_network -= 1,
            Fault::StorageHangs { .. } => {
                self.storages[what].hang(self.now_ns, false);
                self.schedule_storage(what);
            }
            Fault::DirectoryUnwritable { .. } => self.directories[what].unwritable -= 1,
            Fault::HostileCoordinator { .. } => {
                self.hostile_coordinators -= 1;
                self.end_office(what);
                if self.plan.meeting == Meeting::Service {
                    self.restart_service();
                }
            }
            Fault::HostileJob { .. } => {
                self.hostile_jobs[what].is_over = true;
                if let Some(connection) = self.hostile_jobs[what].connection {
                    self.close(connection, End::Job);
                }
            }
            _ => {}
        }
    }

    /// The supervisor starts the service again, unless somebody listens at its address.
    fn restart_service(&mut self) {
        if !self.directories[0].socket.is_some_and(|office| self.offices[office].is_alive) {
            self.start_service();
        }
    }

    /// A directory in which somebody meets.
    fn some_directory(&mut self) -> usize {
        let machine = self.rng.random_range(0..self.machines.len());
        self.directory(machine)
    }

    fn go_on(&mut self, rank: usize, is_seen: bool) {
        self.ranks[rank].stops -= 1;
        self.ranks[rank].seen_stops -= u32::from(is_seen);
        self.process_goes_on(rank);
    }

    /// A process that was stopped does what it missed.
    fn process_goes_on(&mut self, rank: usize) {
        if !self.is_running(rank) {
            return;
        }
        if std::mem::take(&mut self.ranks[rank].is_overdue) {
            self.schedule_rank(rank, 0);
        }
        self.ranks[rank].running_since_ns = self.now_ns;
        for node in self.led_by(rank) {
            for office in 0..self.offices.len() {
                if self.offices[office].rank == Some(rank) {
                    self.offices[office].running_since_ns = self.now_ns;
                }
            }
            self.wake_leader(node);
        }
    }

    fn office_goes_on(&mut self, office: usize) {
        if self.is_office_running(office) {
            self.offices[office].running_since_ns = self.now_ns;
            self.offices[office].next_ns = u64::MAX;
            self.wake_office(office);
        }
    }

    /// A coordinator is gone, and with it its connections and its lock. Its socket stays behind.
    pub(crate) fn end_office(&mut self, office: usize) {
        if !std::mem::replace(&mut self.offices[office].is_alive, false) {
            return;
        }
        self.left_office_ns = self.now_ns;
        self.say(|| format!("office {office} ends"));
        for peer in 0..self.offices[office].connections.len() {
            if let Some(connection) = self.offices[office].connections[peer] {
                self.close(connection, End::Coordinator);
            }
        }
        for directory in &mut self.directories {
            if directory.lock == Some(office) {
                directory.lock = None;
            }
        }
    }

    pub(crate) fn run_hostile_job(&mut self, number: usize) {
        let HostileJob { connection, habit, is_over, .. } = self.hostile_jobs[number];
        if is_over {
            return;
        }
        let connection = match connection {
            Some(connection) => Some(connection),
            None => {
                let found = self.directories[0].socket.filter(|office| self.offices[*office].is_alive);
                found.map(|office| {
                    // On the machine of the coordinator, as its own user.
                    let machine = self.offices[office].machine;
                    let connection = self.open(None, machine, office);
                    self.introduce(connection, true);
                    self.hostile_jobs[number].connection = Some(connection);
                    self.hostile_jobs[number].since_ns = self.now_ns;
                    let identity = Identity {
                        job: format!("hostile {number}"),
                        ranks: 1,
                        nodes: 1,
                        storage: storage_name(number % STORAGES),
                        ..Identity::default()
                    };
                    self.send(
                        connection,
                        End::Coordinator,
                        Message::Hello { identity: Box::new(identity), rejoins: true, epoch: 0 },
                    );
                    let begin = Message::Begin { phase: 1, bytes: Some(1) };
                    self.send(connection, End::Coordinator, begin);
                    connection
                })
            }
        };
        if let Some(connection) = connection {
            while self.connections[connection].take(End::Job).is_some() {}
            if !self.connections[connection].is_closed(End::Coordinator) {
                for message in office::hostile_job_says(habit, &mut self.rng) {
                    self.send(connection, End::Coordinator, message);
                }
            } else {
                self.hostile_jobs[number].connection = None;
            }
        }
        let pause_ns = self.rng.random_range(5 * MS..150 * MS);
        self.at(self.now_ns + pause_ns, Event::HostileJob(number));
    }

    /// When a hostile job may last have kept others out: one that only says that it lives does so for two seconds.
    pub(crate) fn hostile_active_ns(&self) -> Option<u64> {
        let active = self.hostile_jobs.iter().map(|job| match job.habit {
            _ if job.is_over => 0,
            Habit::Keeps => self.now_ns.min(job.since_ns + 2_500 * MS),
            _ => self.now_ns,
        });
        active.max()
    }
}
