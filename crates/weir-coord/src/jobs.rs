//! What a coordinator knows of jobs and their nodes.

use crate::coordinator::{Activity, Peer};
use crate::wire::{Identity, Progress};
use weir_engine::engine::{JobId, JobInfo};

/// A job, joined from the connections of its nodes.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) application: String,
    /// For whom it runs, as it says.
    pub(crate) user: u32,
    pub(crate) account: String,
    pub(crate) weight: u32,
    pub(crate) info: JobInfo,
    /// The program has said another period, and the engine has not heard of it.
    pub(crate) has_new_period: bool,
    pub(crate) mean_phase_bytes: Option<u64>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) standing: Standing,
    /// When the standing began.
    pub(crate) since_ns: u64,
    /// Done in this phase by nodes that have ended it.
    pub(crate) ended: Progress,
    /// Nodes that were lost in the middle of a phase, until they come back.
    pub(crate) lost: Vec<LostNode>,
    /// What the engine was told of this phase.
    pub(crate) told_bytes: u64,
    /// When the job's progress in this phase last changed.
    pub(crate) progressed_ns: u64,
    pub(crate) phase_began_ns: u64,
    pub(crate) announced_bytes: Option<u64>,
    pub(crate) phases: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) held_ns: u64,
    pub(crate) io_ns: u64,
    pub(crate) waited_ns: u64,
    /// How busy the job keeps the storage in this phase.
    pub(crate) activity: Activity,
    /// How often it was let in although it was not its turn.
    pub(crate) backfills: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    Outside,
    Held,
    /// Held by the policy, and let in while those whose turn it is leave the storage idle.
    Backfilled,
    Granted {
        share: f64,
    },
    /// Granted, but without progress for so long that the engine has given its place to others. Nobody stops it.
    Idle,
}

/// One connection's part of a job.
pub(crate) struct Node {
    pub(crate) job: JobId,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) ranks: u32,
    pub(crate) phase: Option<NodePhase>,
    /// It is, or was, in the phase that the job is in.
    pub(crate) has_part: bool,
}

/// A node whose connection is gone, and which may come back and say again what it has done.
pub(crate) struct LostNode {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) phase: NodePhase,
    /// The job's phase has ended since, and what the node had done is among what the job has moved.
    pub(crate) is_counted: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct NodePhase {
    pub(crate) number: u64,
    pub(crate) progress: Progress,
    /// Requests under way.
    pub(crate) in_flight: u32,
    /// Time that its requests have taken.
    pub(crate) busy_ns: u64,
    /// Nothing is under way and nothing more is expected.
    pub(crate) is_resting: bool,
    pub(crate) volume: Volume,
}

/// What a phase will move on a node, as the node says.
#[derive(Clone, Copy, Default)]
pub(crate) struct Volume {
    pub(crate) said_bytes: Option<u64>,
    /// At least this much.
    pub(crate) known_bytes: u64,
}

/// A phase as it is told to a coordinator that did not see it begin.
#[derive(Clone, Copy)]
pub(crate) struct Resumption {
    pub(crate) phase: u64,
    pub(crate) bytes: Option<u64>,
    pub(crate) age_ns: u64,
    pub(crate) granted: bool,
    pub(crate) progress: Progress,
    /// What the node has said of it since.
    pub(crate) reported: Option<NodePhase>,
}

impl Resumption {
    /// The part of the node that tells of it.
    pub(crate) fn on_its_node(&self) -> NodePhase {
        if let Some(reported) = self.reported {
            return reported;
        }
        let volume = Volume { said_bytes: self.bytes, known_bytes: 0 };
        let (number, progress) = (self.phase, self.progress);
        NodePhase { number, progress, in_flight: 0, busy_ns: 0, is_resting: false, volume }
    }
}

impl Job {
    pub(crate) fn new(now_ns: u64, identity: Identity, info: JobInfo) -> Job {
        Job {
            name: identity.job,
            application: identity.application,
            user: identity.user,
            account: identity.account,
            weight: identity.weight.max(1),
            info,
            has_new_period: false,
            mean_phase_bytes: identity.mean_phase_bytes,
            peers: Vec::new(),
            standing: Standing::Outside,
            since_ns: now_ns,
            ended: Progress::default(),
            lost: Vec::new(),
            told_bytes: 0,
            progressed_ns: now_ns,
            phase_began_ns: now_ns,
            announced_bytes: None,
            phases: 0,
            moved_bytes: 0,
            held_ns: 0,
            io_ns: 0,
            waited_ns: 0,
            activity: Activity::default(),
            backfills: 0,
        }
    }

    pub(crate) fn is_in_phase(&self) -> bool {
        self.standing != Standing::Outside
    }

    pub(crate) fn stand(&mut self, now_ns: u64, standing: Standing) {
        if self.standing == Standing::Held {
            self.held_ns += now_ns.saturating_sub(self.since_ns);
        }
        self.standing = standing;
        self.since_ns = now_ns;
    }
}
