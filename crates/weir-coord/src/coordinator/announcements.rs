//! What jobs say of themselves beforehand: what a phase will move, and how long it is from phase to phase.

use super::{Coordinator, Peer};
use crate::jobs::{NodePhase, Standing, Volume};
use weir_engine::engine::{Event, JobId};

impl Coordinator {
    /// A node says what its part of the phase will move.
    pub(super) fn announced(&mut self, now_ns: u64, peer: Peer, phase: u64, volume: Volume) {
        let Some(node) = self.nodes.get_mut(peer).and_then(Option::as_mut) else { return };
        let id = node.job;
        match node.phase.as_mut().filter(|own| own.number == phase) {
            Some(own) => {
                own.volume = volume;
                self.announce(now_ns, id);
            }
            None => {
                // It may be among those that wait to be resumed.
                let gathered =
                    self.gathered.iter_mut().find(|(of, entry)| *of == peer && entry.phase == phase);
                if let Some((_, entry)) = gathered {
                    entry.bytes = volume.said_bytes;
                    entry.reported = Some(NodePhase { volume, ..entry.on_its_node() });
                }
            }
        }
    }

    /// The engine hears what the job's phase will move, if that is news.
    pub(super) fn announce(&mut self, now_ns: u64, id: JobId) {
        let bytes = self.announced_bytes(id);
        let Some(job) = self.job_mut(id).filter(|job| job.announced_bytes != bytes) else { return };
        job.announced_bytes = bytes;
        if !matches!(job.standing, Standing::Outside | Standing::Idle) {
            self.step(now_ns, Event::PhaseAnnounced { job: id, bytes });
        }
    }

    /// What the phase of the job will move, on all its nodes: what the program says, once all nodes that are there have said
    /// it; else what is known to come, if that is more than the job's phases move as a rule. `None`: as much as its phases do.
    pub(super) fn announced_bytes(&self, id: JobId) -> Option<u64> {
        let job = self.job(id)?;
        let nodes = || job.peers.iter().filter_map(|&peer| self.node(peer));
        let phases = || nodes().filter_map(|node| node.phase);
        let spent = |phase: &NodePhase| phase.progress.spent_bytes;
        let sum = |bytes: &dyn Fn(&NodePhase) -> u64| {
            phases().map(|phase| bytes(&phase)).fold(job.ended_bytes, u64::saturating_add)
        };
        let has_said = |phase: NodePhase| phase.volume.said_bytes.is_some_and(|bytes| bytes >= spent(&phase));
        if nodes().all(|node| node.has_part) && phases().all(has_said) && phases().next().is_some() {
            return Some(sum(&|phase| phase.volume.said_bytes.unwrap_or(0)));
        }
        let usual_bytes = job.moved_bytes.checked_div(job.phases).or(job.mean_phase_bytes);
        let known_bytes = sum(&|phase| phase.volume.known_bytes.max(spent(phase)));
        if known_bytes > usual_bytes.unwrap_or(0) && known_bytes > sum(&spent) {
            return Some(known_bytes);
        }
        // The engine knows of phases in this run by itself.
        usual_bytes.filter(|_| job.phases == 0)
    }

    /// The program says how long it is from phase to phase. The engine hears of it before the next phase.
    pub(super) fn expect(&mut self, id: JobId, period_ns: Option<u64>) {
        let period_ns = period_ns.filter(|period_ns| *period_ns > 0);
        if let Some(job) = self.job_mut(id).filter(|job| job.info.w_iter_ns != period_ns) {
            job.info.w_iter_ns = period_ns;
            job.has_new_period = true;
        }
    }

    pub(super) fn tell_period(&mut self, now_ns: u64, id: JobId) {
        let Some(job) = self.job_mut(id) else { return };
        if std::mem::take(&mut job.has_new_period) {
            let w_iter_ns = job.info.w_iter_ns;
            self.step(now_ns, Event::PeriodTold { job: id, w_iter_ns });
        }
    }
}
