//! What a coordinator knows of jobs and their nodes.

use crate::coordinator::Peer;
use crate::wire::Progress;
use weir_engine::engine::{JobId, JobInfo};

/// A job, joined from the connections of its nodes.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) application: String,
    pub(crate) info: JobInfo,
    pub(crate) mean_phase_bytes: Option<u64>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) standing: Standing,
    /// When the standing began.
    pub(crate) since_ns: u64,
    /// Done in this phase by nodes that have ended it.
    pub(crate) ended: Progress,
    /// What the engine was told of this phase.
    pub(crate) told_bytes: u64,
    pub(crate) phase_began_ns: u64,
    pub(crate) announced_bytes: Option<u64>,
    pub(crate) phases: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) held_ns: u64,
    pub(crate) io_ns: u64,
    pub(crate) waited_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    Outside,
    Held,
    Granted { share: f64 },
}

/// One connection's part of a job.
pub(crate) struct Node {
    pub(crate) job: JobId,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) ranks: u32,
    pub(crate) phase: Option<NodePhase>,
}

#[derive(Clone, Copy)]
pub(crate) struct NodePhase {
    pub(crate) number: u64,
    pub(crate) progress: Progress,
}

/// A phase as it is told to a coordinator that did not see it begin.
#[derive(Clone, Copy)]
pub(crate) struct Resumption {
    pub(crate) phase: u64,
    pub(crate) bytes: Option<u64>,
    pub(crate) age_ns: u64,
    pub(crate) granted: bool,
    pub(crate) progress: Progress,
}

impl Job {
    pub(crate) fn new(
        now_ns: u64,
        name: String,
        application: String,
        info: JobInfo,
        mean_phase_bytes: Option<u64>,
    ) -> Job {
        Job {
            name,
            application,
            info,
            mean_phase_bytes,
            peers: Vec::new(),
            standing: Standing::Outside,
            since_ns: now_ns,
            ended: Progress::default(),
            told_bytes: 0,
            phase_began_ns: now_ns,
            announced_bytes: None,
            phases: 0,
            moved_bytes: 0,
            held_ns: 0,
            io_ns: 0,
            waited_ns: 0,
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
