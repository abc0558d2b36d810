//! What happens in a world, drawn from its seed: machines, jobs and their programs, and faults.

use crate::{MS, SECOND};
use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use weir_engine::sharing::PolicyKind;

/// Length of a world with faults, and when its jobs begin their last phases.
const END_NS: u64 = 60 * SECOND;
const LAST_PHASE_NS: u64 = 58 * SECOND;
/// All faults are over by then.
pub(crate) const CALM_NS: u64 = 50 * SECOND;

pub(crate) struct Plan {
    pub(crate) policy: PolicyKind,
    /// Without, every request starts at once.
    pub(crate) is_coordinated: bool,
    pub(crate) end_ns: u64,
    /// What jobs do is measured from the first to the second.
    pub(crate) window_ns: (u64, u64),
    pub(crate) meeting: Meeting,
    pub(crate) machines: usize,
    pub(crate) jobs: Vec<JobPlan>,
    pub(crate) faults: Vec<(u64, Fault)>,
    /// `WEIR_MAX_WAIT`.
    pub(crate) max_wait_ns: u64,
    /// What a job may move without a turn.
    pub(crate) free_bytes: u64,
    /// Whether jobs may go out of turn while the storage is idle.
    pub(crate) backfill: bool,
    /// Bytes per second of each storage, and in which order it serves.
    pub(crate) storage_rates: Vec<u64>,
    pub(crate) serves: Discipline,
    /// Typical and longest delay between two threads that wake each other, and between machines.
    pub(crate) wake_ns: (u64, u64),
    pub(crate) network_ns: (u64, u64),
}

/// How jobs find their coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// The jobs of each machine elect one among them.
    Local,
    /// The machines share a directory, and the coordinator is published there.
    Shared,
    /// A service of its own on the first machine.
    Service,
}

#[derive(Clone, Debug)]
pub(crate) struct JobPlan {
    pub(crate) start_ns: u64,
    /// Machines that it runs on, and ranks on each.
    pub(crate) machines: Vec<usize>,
    pub(crate) ranks: usize,
    pub(crate) program: Program,
    /// Between two requests.
    pub(crate) pause_ns: u64,
    pub(crate) storage: usize,
    /// Every other phase goes to the other storage.
    pub(crate) alternates: bool,
    /// The program says where its phases begin and end.
    pub(crate) is_marked: bool,
    /// In the middle of each phase it waits until this job has made as many phases.
    pub(crate) waits_for: Option<usize>,
    /// Characteristic time and mean phase of earlier runs.
    pub(crate) w_iter_ns: Option<u64>,
    pub(crate) mean_phase_bytes: Option<u64>,
}

/// What the ranks of a job do, over and over or one after the other.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// The compute time varies by a tenth; no phase begins after the given time.
    Forever {
        step: Step,
        last_ns: u64,
    },
    Listed(Vec<Step>),
}

/// Computing and the I/O phase behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) compute_ns: u64,
    /// Requests of each rank, and their size.
    pub(crate) requests: u32,
    pub(crate) request_bytes: u64,
}

impl Program {
    /// The step of this number; of a list that is over, the last.
    pub(crate) fn step(&self, number: u64) -> Step {
        match self {
            Program::Forever { step, .. } => *step,
            Program::Listed(steps) => steps[(number as usize).min(steps.len() - 1)],
        }
    }

    pub(crate) fn is_over(&self, number: u64, now_ns: u64) -> bool {
        match self {
            Program::Forever { last_ns, .. } => now_ns > *last_ns,
            Program::Listed(steps) => number >= steps.len() as u64,
        }
    }
}

/// In which order a storage serves the requests under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// All at once, each with an equal part of the bandwidth.
    Evenly,
    FirstComeFirstServed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A rank dies, and the rest of its job after a while.
    Kill {
        rank: usize,
        rest_after_ns: u64,
    },
    /// The process in which the coordinator lives dies.
    KillCoordinator,
    /// SIGSTOP, or a freezer that the system does not show.
    Stop {
        rank: usize,
        for_ns: u64,
        is_seen: bool,
    },
    StopCoordinator {
        for_ns: u64,
    },
    StopMachine {
        machine: usize,
        for_ns: u64,
    },
    /// Nothing passes between the machines; connections stay.
    Partition {
        machine: usize,
        for_ns: u64,
    },
    /// The connections of a machine break.
    Cut {
        machine: usize,
    },
    SlowNetwork {
        for_ns: u64,
    },
    ClockJump {
        machine: usize,
        by_ns: u64,
    },
    StorageHangs {
        storage: usize,
        for_ns: u64,
    },
    /// The directory in which the jobs meet is removed and made anew.
    DirectoryRemoved,
    DirectoryUnwritable {
        for_ns: u64,
    },
    /// Somebody else takes the coordinator's place and says what it likes.
    HostileCoordinator {
        for_ns: u64,
        habit: Habit,
    },
    /// A connection that keeps to no rule.
    HostileJob {
        for_ns: u64,
        habit: Habit,
    },
    OtherPolicy {
        policy: PolicyKind,
    },
}

/// What somebody hostile does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Keeps what it has for ever: a hold, a phase.
    Keeps,
    /// Says nothing after the greeting.
    Silent,
    /// Says anything.
    Babbles,
}

const POLICIES: [PolicyKind; 9] = [
    PolicyKind::Exclusive,
    PolicyKind::Set10,
    PolicyKind::Weir,
    PolicyKind::Fair,
    PolicyKind::RoundRobin,
    PolicyKind::MinDilation,
    PolicyKind::MaxSysEff,
    PolicyKind::MinMax { gamma: PolicyKind::DEFAULT_GAMMA },
    PolicyKind::Apio,
];

impl Plan {
    pub(crate) fn draw(seed: u64) -> (Plan, Pcg64) {
        let mut rng = Pcg64::seed_from_u64(seed);
        let policy = draw_policy(&mut rng);
        let meeting = [Meeting::Local, Meeting::Shared, Meeting::Service][rng.random_range(0..3)];
        let machines = rng.random_range(2..=3);
        let storage_rates: Vec<u64> = (0..2).map(|_| log_uniform(&mut rng, 50 << 20, 1 << 30)).collect();
        let job_count = rng.random_range(4..=6);
        let jobs =
            (0..job_count).map(|job| draw_job(&mut rng, job, machines, &storage_rates)).collect::<Vec<_>>();
        let ranks = jobs.iter().map(|job| job.machines.len() * job.ranks).sum();
        let mut faults: Vec<(u64, Fault)> = (0..rng.random_range(5..=9))
            .map(|_| {
                let at_ns = rng.random_range(2 * SECOND..44 * SECOND);
                (at_ns, draw_fault(&mut rng, machines, ranks, CALM_NS - at_ns))
            })
            .collect();
        faults.sort_by_key(|(at_ns, _)| *at_ns);
        let is_busy = rng.random_bool(0.2);
        let plan = Plan {
            policy,
            is_coordinated: true,
            end_ns: END_NS,
            window_ns: (0, END_NS),
            serves: Discipline::Evenly,
            meeting,
            machines,
            jobs,
            faults,
            backfill: rng.random_bool(0.8),
            free_bytes: if rng.random_bool(0.5) { 0 } else { 512 << 10 },
            max_wait_ns: log_uniform(&mut rng, SECOND, 20 * SECOND),
            storage_rates,
            wake_ns: if is_busy { (300_000, 8 * MS) } else { (20_000, 300_000) },
            network_ns: if is_busy { (MS, 20 * MS) } else { (50_000, 2 * MS) },
        };
        (plan, rng)
    }
}

fn draw_policy(rng: &mut Pcg64) -> PolicyKind {
    // The three that matter most come up most often.
    if rng.random_bool(0.5) {
        POLICIES[rng.random_range(0..3)]
    } else {
        POLICIES[rng.random_range(0..POLICIES.len())]
    }
}

fn draw_job(rng: &mut Pcg64, number: usize, machines: usize, rates: &[u64]) -> JobPlan {
    let first = rng.random_range(0..machines);
    let is_wide = number < 2 || rng.random_bool(0.5);
    let storage = usize::from(rng.random_bool(0.25));
    let requests = rng.random_range(1..=12);
    let ranks = rng.random_range(1..=2);
    let width = if is_wide { 2 } else { 1 };
    // How long the phase takes on the idle storage.
    let phase_ns = log_uniform(rng, 5 * MS, 1500 * MS);
    let per_request = u128::from(requests) * ranks as u128 * width as u128 * u128::from(SECOND);
    let request_bytes = (u128::from(phase_ns) * u128::from(rates[storage]) / per_request) as u64;
    JobPlan {
        start_ns: if rng.random_bool(0.7) {
            rng.random_range(0..SECOND)
        } else {
            rng.random_range(0..40 * SECOND)
        },
        machines: (0..width).map(|step| (first + step) % machines).collect(),
        ranks,
        program: Program::Forever {
            step: Step {
                compute_ns: log_uniform(rng, 600 * MS, 15 * SECOND),
                requests,
                request_bytes: if rng.random_bool(0.05) { 0 } else { request_bytes.max(1) },
            },
            last_ns: LAST_PHASE_NS,
        },
        pause_ns: if rng.random_bool(0.5) { 0 } else { log_uniform(rng, MS / 10, 30 * MS) },
        storage,
        alternates: rng.random_bool(0.15),
        is_marked: rng.random_bool(0.15),
        waits_for: (number > 0 && rng.random_bool(0.15)).then(|| rng.random_range(0..number)),
        w_iter_ns: rng.random_bool(0.5).then(|| log_uniform(rng, 100 * MS, 100 * SECOND)),
        mean_phase_bytes: None,
    }
}

fn draw_fault(rng: &mut Pcg64, machines: usize, ranks: usize, left_ns: u64) -> Fault {
    let for_ns = log_uniform(rng, 20 * MS, 6 * SECOND.min(left_ns / 6));
    let (rank, machine) = (rng.random_range(0..ranks), rng.random_range(0..machines));
    let habit = [Habit::Keeps, Habit::Silent, Habit::Babbles][rng.random_range(0..3)];
    match rng.random_range(0..19) {
        0 | 1 => Fault::Kill { rank, rest_after_ns: log_uniform(rng, MS, 3 * SECOND) },
        2 | 3 => Fault::KillCoordinator,
        4 => Fault::Stop { rank, for_ns, is_seen: true },
        5 => Fault::Stop { rank, for_ns, is_seen: false },
        6 | 7 => Fault::StopCoordinator { for_ns },
        8 => Fault::StopMachine { machine, for_ns },
        9 | 10 => Fault::Partition { machine, for_ns },
        11 => Fault::Cut { machine },
        12 => Fault::SlowNetwork { for_ns },
        13 => Fault::ClockJump { machine, by_ns: log_uniform(rng, MS, 100 * SECOND) },
        14 => Fault::StorageHangs { storage: rng.random_range(0..2), for_ns },
        15 if rng.random_bool(0.5) => Fault::DirectoryRemoved,
        15 => Fault::DirectoryUnwritable { for_ns },
        16 => Fault::HostileCoordinator { for_ns, habit },
        17 => Fault::HostileJob { for_ns, habit },
        _ => Fault::OtherPolicy { policy: draw_policy(rng) },
    }
}

/// Every order of magnitude is as likely.
pub(crate) fn log_uniform(rng: &mut Pcg64, least: u64, most: u64) -> u64 {
    let (least, most) = ((least.max(1) as f64).ln(), (most.max(least + 1) as f64).ln());
    rng.random_range(least..most).exp() as u64
}
