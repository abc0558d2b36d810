//! Grants without progress: a job that does nothing with its turn keeps nobody out, and nobody stops it.

use super::Coordinator;
use crate::jobs::{Job, Standing};
use crate::wire::Progress;
use weir_engine::engine::{Event, JobId};

/// A granted job whose progress has not changed for this long is idle …
const IDLE_NS: u64 = 2_000_000_000;
/// … and with a request under way, for so many times longer as that should take beyond it.
const REQUEST_PATIENCE: u64 = 4;
/// No request is expected to take longer.
const MAX_REQUEST_NS: u64 = 3_600_000_000_000;

/// How often grants without progress are looked for, while somebody waits.
const CHECK_NS: u64 = 250_000_000;

impl Coordinator {
    /// When grants without progress are to be looked for: while somebody is held and somebody is granted.
    pub(super) fn idle_check_ns(&self) -> Option<u64> {
        let granted = self.tokens.len() as u64;
        let is_somebody_held = self.in_phase > granted + self.idle;
        (is_somebody_held && granted > 0).then_some(self.idle_checked_ns + CHECK_NS)
    }

    /// The engine takes the phases of idle jobs for ended, and so grants the next.
    pub(super) fn end_idle_grants(&mut self, now_ns: u64) {
        self.idle_checked_ns = now_ns;
        for index in 0..self.jobs.len() {
            let id = JobId(index as u32);
            if self.job(id).is_some_and(|job| self.is_idle(now_ns, id, job)) {
                self.tokens.leave(id);
                self.idle += 1;
                if let Some(job) = self.job_mut(id) {
                    job.stand(now_ns, Standing::Idle);
                }
                self.step(now_ns, Event::PhaseEnded { job: id });
            }
        }
    }

    fn is_idle(&self, now_ns: u64, id: JobId, job: &Job) -> bool {
        let quiet_ns = now_ns.saturating_sub(job.progressed_ns.max(job.since_ns));
        if !matches!(job.standing, Standing::Granted { .. }) || quiet_ns < IDLE_NS {
            return false;
        }
        let progress = self.progress(id);
        // A job that waits for tokens would do something if it could.
        let request_ns = self.request_ns(job, self.under_way_bytes(job, progress));
        !progress.is_waiting() && quiet_ns >= IDLE_NS + REQUEST_PATIENCE * request_ns
    }

    /// Bytes that the job's requests under way have to move. A sync has none of its own, and may have to move all that the
    /// phase has written so far.
    fn under_way_bytes(&self, job: &Job, progress: Progress) -> u64 {
        let mut phases = job.peers.iter().filter_map(|&peer| self.node(peer)?.phase);
        match progress.spent_bytes.saturating_sub(progress.done_bytes) {
            0 if phases.any(|phase| phase.in_flight > 0) => progress.spent_bytes,
            bytes => bytes,
        }
    }

    /// How long these bytes should take the job: by its own phases so far, else by what the storage does.
    fn request_ns(&self, job: &Job, bytes: u64) -> u64 {
        let own_ns = || bytes as f64 * job.io_ns as f64 / job.moved_bytes as f64;
        let known_ns =
            if job.moved_bytes > 0 && job.io_ns > 0 { own_ns() } else { self.tokens.time_for_ns(bytes) };
        // The cast saturates.
        (known_ns as u64).min(MAX_REQUEST_NS)
    }

    /// The job has moved something, or is about to.
    pub(super) fn note_progress(&mut self, now_ns: u64, id: JobId) {
        let Some(job) = self.job_mut(id) else { return };
        job.progressed_ns = now_ns;
        if job.standing == Standing::Idle {
            self.end_idleness(now_ns, id);
        }
    }

    /// An idle job asks the engine again, as if its phase began now.
    pub(super) fn end_idleness(&mut self, now_ns: u64, id: JobId) {
        self.idle -= 1;
        let Some(job) = self.job_mut(id) else { return };
        job.stand(now_ns, Standing::Held);
        job.progressed_ns = now_ns;
        let bytes = job.announced_bytes;
        self.step(now_ns, Event::PhaseBegan { job: id, bytes });
    }
}
