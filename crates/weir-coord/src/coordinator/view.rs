//! What those who watch a coordinator see of its jobs.

use super::{Coordinator, Peer};
use crate::jobs::{Job, Standing};
use weir_engine::engine::{self, JobId};

/// A job as the coordinator sees it at one moment.
pub struct JobView<'a> {
    pub name: &'a str,
    pub state: JobState,
    /// Of its phases so far and of the one under way.
    pub done_bytes: u64,
    /// Was told that its next phase is granted already.
    pub is_ahead: bool,
    /// What the phase under way is said, or known, to move.
    pub announced_bytes: Option<u64>,
    job: &'a Job,
    known: Option<engine::Job<'a>>,
}

impl JobView<'_> {
    /// How long it has been held in its life, under earlier coordinators too.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        self.job.stalled_ns(now_ns)
    }

    /// How long the coordinator has known it.
    pub fn known_for_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.job.joined_ns)
    }

    /// Its characteristic time, as far as it is known; 0 before.
    pub fn w_iter_ns(&self) -> f64 {
        self.known.as_ref().map_or(0.0, engine::Job::w_iter_ns)
    }

    /// The order of magnitude of its characteristic time in seconds, once that is known: its set under `set10`.
    pub fn set(&self) -> Option<i32> {
        let is_known = self.known.as_ref().is_some_and(engine::Job::has_known_period);
        let w_iter_ns = self.w_iter_ns();
        (is_known && w_iter_ns > 0.0).then(|| (w_iter_ns * 1e-9).log10().round() as i32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JobState {
    Computing,
    Held,
    Granted {
        share: f64,
    },
    /// Held, and let in while those whose turn it is leave the storage idle.
    Backfilled,
    /// Granted, without progress: keeps nobody out.
    Idle,
}

impl Coordinator {
    /// All jobs that are there.
    pub fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        let jobs = self.jobs.iter().enumerate();
        jobs.filter_map(|(index, job)| job.as_ref().map(|job| self.view(JobId(index as u32), job)))
    }

    pub(crate) fn view<'a>(&'a self, id: JobId, job: &'a Job) -> JobView<'a> {
        let state = match job.standing {
            Standing::Outside => JobState::Computing,
            Standing::Held => JobState::Held,
            Standing::Granted { share } => JobState::Granted { share: self.common_share.unwrap_or(share) },
            Standing::Backfilled => JobState::Backfilled,
            Standing::Idle => JobState::Idle,
        };
        JobView {
            name: &job.name,
            state,
            done_bytes: job.moved_bytes.saturating_add(self.progress(id).done_bytes),
            announced_bytes: job.announced_bytes.filter(|_| job.is_in_phase()),
            is_ahead: self.ahead.contains(&id),
            job,
            known: self.engine.job(id),
        }
    }

    /// The job that the peer speaks for, and the number of the phase that it is in.
    pub fn speaks_for(&self, peer: Peer) -> Option<(JobView<'_>, Option<u64>)> {
        let node = self.node(peer)?;
        Some((self.view(node.job, self.job(node.job)?), node.phase.map(|phase| phase.number)))
    }
}
