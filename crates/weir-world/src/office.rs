//! Coordinators of a world: real ones, which run the service as it is, and hostile ones, which say what they like.

use crate::plan::Habit;
use rand::RngExt;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use weir_coord::service::{Heard, Service};
use weir_coord::wire::Message;
use weir_engine::engine::SeenAlone;

pub(crate) struct Office {
    pub(crate) machine: usize,
    /// The rank in whose process it lives; none for a service and for a hostile one.
    pub(crate) rank: Option<usize>,
    /// The node whose leader has it.
    pub(crate) node: Option<usize>,
    pub(crate) who: Who,
    pub(crate) is_alive: bool,
    /// How often it is stopped at the moment.
    pub(crate) stops: u32,
    /// Connections by the numbers of their peers.
    pub(crate) connections: Vec<Option<usize>>,
    /// When it runs next, and which of its dates counts.
    pub(crate) next_ns: u64,
    pub(crate) generation: u32,
    /// Since when it has run without being stopped.
    pub(crate) running_since_ns: u64,
    pub(crate) shadow: Shadow,
}

pub(crate) enum Who {
    Real(Box<Service>),
    Hostile(Habit),
}

/// What a coordinator must know of the bytes that were reported to it, reckoned without it.
#[derive(Default)]
pub(crate) struct Shadow {
    /// Bytes done by each job since its first connection, by storage and name.
    jobs: BTreeMap<(String, String), u64>,
    /// By connection.
    speakers: BTreeMap<usize, Speaker>,
    /// Those that are gone, in the middle of a phase.
    lost: Vec<Speaker>,
}

struct Speaker {
    job: (String, String),
    pid: u32,
    /// The phase under way, and the bytes that were reported as done in it.
    phase: Option<(u64, u64)>,
}

impl Shadow {
    pub(crate) fn hear(&mut self, connection: usize, message: &Message) {
        match message {
            Message::Hello { identity, .. } => {
                let job = (identity.storage.clone(), identity.job.clone());
                self.jobs.entry(job.clone()).or_default();
                self.speakers.insert(connection, Speaker { job, pid: identity.pid, phase: None });
            }
            Message::Begin { phase, .. } => self.begin(connection, *phase, 0),
            Message::Resume { phase, progress, .. } => self.begin(connection, *phase, progress.done_bytes),
            Message::Moved { phase, progress, .. } => self.report(connection, *phase, progress.done_bytes),
            Message::End { phase, bytes, .. } => {
                self.report(connection, *phase, *bytes);
                if let Some(speaker) = self.speakers.get_mut(&connection) {
                    speaker.phase = speaker.phase.filter(|(own, _)| own != phase);
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, connection: usize, phase: u64, done_bytes: u64) {
        if let Some(speaker) = self.speakers.get_mut(&connection) {
            speaker.phase = Some((phase, 0));
            // One that was lost says again what it has done.
            let is_it = |lost: &Speaker| (&lost.job, lost.pid) == (&speaker.job, speaker.pid);
            if let Some(place) = self.lost.iter().position(is_it)
                && let Some((number, bytes)) = self.lost.swap_remove(place).phase
                && number == phase
                && let Some(all_bytes) = self.jobs.get_mut(&speaker.job)
            {
                *all_bytes = all_bytes.wrapping_sub(bytes);
            }
            self.report(connection, phase, done_bytes);
        }
    }

    fn report(&mut self, connection: usize, phase: u64, done_bytes: u64) {
        if let Some(Speaker { job, phase: Some((own, bytes)), .. }) = self.speakers.get_mut(&connection)
            && *own == phase
            && let Some(all_bytes) = self.jobs.get_mut(job)
        {
            *all_bytes = all_bytes.wrapping_add(done_bytes).wrapping_sub(*bytes);
            *bytes = done_bytes;
        }
    }

    /// The connection is gone; when it was the last of its job, the coordinator forgets the job.
    pub(crate) fn gone(&mut self, connection: usize) {
        let Some(speaker) = self.speakers.remove(&connection) else { return };
        if self.speakers.values().any(|other| other.job == speaker.job) {
            if speaker.phase.is_some() {
                self.lost.push(speaker);
            }
        } else {
            self.lost.retain(|lost| lost.job != speaker.job);
            self.jobs.remove(&speaker.job);
        }
    }

    /// Bytes that the job has reported as done.
    pub(crate) fn reported_bytes(&self, storage: &str, job: &str) -> u64 {
        self.jobs.get(&(storage.into(), job.into())).copied().unwrap_or(0)
    }
}

impl Office {
    /// `host`: the rank in whose process it lives, and the node that this rank leads.
    pub(crate) fn new(machine: usize, host: Option<(usize, usize)>, who: Who, now_ns: u64) -> Office {
        Office {
            machine,
            rank: host.map(|(rank, _)| rank),
            node: host.map(|(_, node)| node),
            who,
            is_alive: true,
            stops: 0,
            connections: Vec::new(),
            next_ns: u64::MAX,
            generation: 0,
            running_since_ns: now_ns,
            shadow: Shadow::default(),
        }
    }

    pub(crate) fn service(&self) -> Option<&Service> {
        match &self.who {
            Who::Real(service) => Some(service),
            Who::Hostile(_) => None,
        }
    }

    pub(crate) fn free_peer(&mut self) -> usize {
        match self.connections.iter().position(Option::is_none) {
            Some(peer) => peer,
            None => {
                self.connections.push(None);
                self.connections.len() - 1
            }
        }
    }

    /// What it answers to a message of a peer; `Err`: refuses and closes.
    pub(crate) fn hear(
        &mut self,
        clock_ns: u64,
        peer: usize,
        message: Message,
        rng: &mut Pcg64,
    ) -> Result<(Vec<Message>, bool), String> {
        match &mut self.who {
            Who::Real(service) => {
                service.note_sign_of_life(clock_ns, peer);
                match service.hear(clock_ns, peer, message)? {
                    Heard::Nothing | Heard::WantsStatus => Ok((Vec::new(), false)),
                    Heard::Answer(answer) => Ok((vec![*answer], false)),
                    Heard::Bye => Ok((Vec::new(), true)),
                }
            }
            Who::Hostile(habit) => Ok((hostile_answers(*habit, &message, rng), false)),
        }
    }
}

fn hostile_answers(habit: Habit, message: &Message, rng: &mut Pcg64) -> Vec<Message> {
    match (habit, message) {
        // Something else than a welcome, or something before it.
        (Habit::Babbles, Message::Hello { .. }) if rng.random_bool(0.3) => {
            (0..3).map(|_| babble(1, rng)).collect()
        }
        (Habit::Babbles, Message::Hello { .. }) if rng.random_bool(0.2) => {
            vec![Message::Refuse { reason: "\u{1b}[2J".into() }]
        }
        (_, Message::Hello { epoch, .. }) => {
            // Of the epoch that the job has obeyed, or of an older one.
            let mut welcome = hostile_welcome(if rng.random_bool(0.9) { *epoch } else { 0 });
            if let Message::Welcome { lease_ms, beat_ms, report_ms, .. } = &mut welcome
                && habit == Habit::Babbles
            {
                let mut number = || [0, 1, 200, u32::MAX][rng.random_range(0..4)];
                (*lease_ms, *beat_ms, *report_ms) = (number(), number(), number());
            }
            vec![welcome]
        }
        (Habit::Silent, _) => Vec::new(),
        (_, Message::Begin { phase, .. } | Message::Resume { phase, .. }) => match habit {
            Habit::Babbles => (0..4).map(|_| babble(*phase, rng)).collect(),
            _ => vec![Message::Hold { phase: *phase, expected_ns: u64::MAX }],
        },
        (Habit::Babbles, Message::Moved { phase, .. }) if rng.random_bool(0.1) => vec![babble(*phase, rng)],
        (_, Message::Beat {}) => vec![Message::Beat {}],
        _ => Vec::new(),
    }
}

/// A welcome like any other.
pub(crate) fn hostile_welcome(epoch: u64) -> Message {
    let policy = "\u{1b}fair".into();
    Message::Welcome { lease_ms: 800, beat_ms: 200, report_ms: 2, policy, orders: true, epoch }
}

/// Anything that a coordinator may say, about this phase or another.
fn babble(phase: u64, rng: &mut Pcg64) -> Message {
    let phase = if rng.random_bool(0.7) { phase } else { rng.random_range(0..5) };
    let number = [0, 1, 4096, u64::MAX - 1, u64::MAX][rng.random_range(0..5)];
    match rng.random_range(0..9) {
        0 => Message::Grant { phase, share: 1.0, credit_bytes: number, expected_ns: number },
        1 => Message::Hold { phase, expected_ns: number },
        2 => Message::Credit { phase, share: 0.5, credit_bytes: number, expected_ns: number },
        3 => Message::Ahead { granted: rng.random_bool(0.5) },
        4 => Message::Turn { number: 0, call: number },
        5 => Message::Allocated { request: number, aggregators: 1, stripes: 0, targets: Vec::new() },
        6 if rng.random_bool(0.2) => Message::Refuse { reason: "\u{1b}[2J".into() },
        7 => Message::Challenge { nonce: [0; 32] },
        8 => Message::Seen { alone: SeenAlone { ns: number, bytes: number } },
        _ => Message::Beat {},
    }
}

/// Anything that a job may say.
pub(crate) fn hostile_job_says(habit: Habit, rng: &mut Pcg64) -> Vec<Message> {
    let number = [0, 1, 4096, u64::MAX / 2, u64::MAX][rng.random_range(0..5)];
    let phase = rng.random_range(0..4);
    let progress =
        weir_coord::wire::Progress { done_bytes: number / 4, spent_bytes: number / 2, wanted_bytes: number };
    match habit {
        Habit::Silent => Vec::new(),
        Habit::Keeps => vec![Message::Beat {}],
        Habit::Babbles => vec![match rng.random_range(0..6) {
            0 => Message::Begin { phase, bytes: Some(number) },
            1 => Message::Moved {
                phase,
                progress,
                in_flight: number as u32,
                busy_ns: number,
                is_resting: rng.random(),
            },
            2 => Message::End { phase, bytes: number, io_ns: number, waited_ns: number },
            3 => Message::Resume { phase, bytes: None, age_ns: number, granted: true, progress },
            4 => Message::Release { request: number },
            _ => Message::Beat {},
        }],
    }
}
