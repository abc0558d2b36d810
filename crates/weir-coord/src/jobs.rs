//! What a coordinator knows of jobs and their nodes.

use crate::coordinator::{Activity, Peer};
use crate::wire::{Identity, Progress};
use std::collections::VecDeque;
use weir_engine::engine::{JobId, JobInfo, Past, SeenAlone};

/// A job is not taken for larger than this when its lost nodes are kept.
const MAX_LOST_NODES: u64 = 2048;

/// A job, joined from the connections of its nodes.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) application: String,
    /// For whom it runs, as it says.
    pub(crate) user: u32,
    pub(crate) account: String,
    pub(crate) weight: u32,
    pub(crate) info: JobInfo,
    pub(crate) joined_ns: u64,
    /// How long it has been held in its life, as the policy sees it: while it is backfilled too. Up to `since_ns`.
    stalled_ns: u64,
    /// What the job was told that was seen of it, for the next coordinator.
    pub(crate) told_alone: SeenAlone,
    /// The program has said another period, and the engine has not heard of it.
    pub(crate) has_new_period: bool,
    pub(crate) mean_phase_bytes: Option<u64>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) standing: Standing,
    /// When the standing began.
    pub(crate) since_ns: u64,
    /// Done in this phase by nodes that have ended it.
    pub(crate) ended_bytes: u64,
    /// Nodes that were lost in the middle of a phase, until they come back.
    pub(crate) lost: VecDeque<LostNode>,
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
            joined_ns: now_ns,
            stalled_ns: info.past.stalled_ns,
            told_alone: info.past.alone,
            has_new_period: false,
            mean_phase_bytes: identity.mean_phase_bytes,
            peers: Vec::new(),
            standing: Standing::Outside,
            since_ns: now_ns,
            ended_bytes: 0,
            lost: VecDeque::new(),
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

    /// A node is gone in the middle of a phase. Not many more are kept than the job has nodes, each of which may have had another
    /// leader before; the one that was lost first is forgotten for another, and what it has done would count again if it came back.
    pub(crate) fn lose(&mut self, node: LostNode) {
        let most = (16 + 2 * self.info.nodes.min(MAX_LOST_NODES)) as usize;
        while self.lost.len() >= most {
            self.lost.pop_front();
        }
        self.lost.push_back(node);
    }

    pub(crate) fn is_in_phase(&self) -> bool {
        self.standing != Standing::Outside
    }

    /// How long the job has been held in its life, before it joined too.
    pub(crate) fn stalled_ns(&self, now_ns: u64) -> u64 {
        let is_stalled = matches!(self.standing, Standing::Held | Standing::Backfilled);
        let stall_ns = if is_stalled { now_ns.saturating_sub(self.since_ns) } else { 0 };
        self.stalled_ns.saturating_add(stall_ns)
    }

    /// What is known of the job from before it joined, and what was seen of it since. `alone` has both.
    pub(crate) fn past(&self, now_ns: u64, alone: Option<SeenAlone>) -> Past {
        let before = self.info.past;
        Past {
            life_ns: before.life_ns.saturating_add(now_ns.saturating_sub(self.joined_ns)),
            stalled_ns: self.stalled_ns(now_ns),
            alone: alone.unwrap_or(before.alone),
        }
    }

    /// Another node of the job knows more of its past. The engine has to hear of it, if that is so, and can while the job has done
    /// nothing here.
    pub(crate) fn learn_past(&mut self, told: Past) -> bool {
        let before = self.info.past;
        let alone = if told.alone.ns > before.alone.ns { told.alone } else { before.alone };
        let past = Past {
            life_ns: before.life_ns.max(told.life_ns),
            stalled_ns: before.stalled_ns.max(told.stalled_ns),
            alone,
        };
        let is_news = (past.stalled_ns, past.alone) != (before.stalled_ns, before.alone);
        let is_new_here = self.phases == 0 && !self.is_in_phase();
        if is_news && is_new_here {
            self.info.past = past;
            (self.stalled_ns, self.told_alone) = (past.stalled_ns, past.alone);
        }
        is_news && is_new_here
    }

    pub(crate) fn stand(&mut self, now_ns: u64, standing: Standing) {
        if self.standing == Standing::Held {
            self.held_ns += now_ns.saturating_sub(self.since_ns);
        }
        self.stalled_ns = self.stalled_ns(now_ns);
        self.standing = standing;
        self.since_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_never_come_back_are_forgotten() {
        for (nodes, most) in [(1, 18), (u64::MAX, 16 + 2 * MAX_LOST_NODES as usize)] {
            let mut job = Job::new(0, Identity::default(), JobInfo { nodes, ..JobInfo::default() });
            let progress = Progress::default();
            let volume = Volume::default();
            let phase =
                NodePhase { number: 1, progress, in_flight: 0, busy_ns: 0, is_resting: false, volume };
            let pids = 0..3 * most as u32;
            for pid in pids.clone() {
                job.lose(LostNode { host: "here".into(), pid, phase, is_counted: false });
            }
            assert_eq!(job.lost.len(), most);
            assert_eq!(job.lost.back().map(|lost| lost.pid), pids.last());
        }
    }
}
