//! A plan for the jobs that are there, made anew as they come, go and become known.

use super::{Application, Instance, Plan, Search, persched};
use crate::engine::{Desk, Job, JobId};
use std::collections::BTreeMap;

/// A timetable for more jobs is not attempted: nobody waits for the planning.
const MOST_JOBS: usize = 64;

/// A job this many times shorter than the longest gets no place: there would be thousands of
/// instances in every period, and what little it asks is soon done.
const SHORTEST: f64 = 1e-4;

/// Planning as jobs come and go must be quick; a coarse search is hardly worse.
const QUICK: Search = Search { epsilon: 0.05, shrunk: 4, most_work: 500_000, ..Search::BEST };

/// What is known of a job, and how far it has come.
struct Entry {
    application: Application,
    /// Its place in the plan.
    row: Option<usize>,
    /// Instances done since the plan began.
    done: usize,
}

/// Who is to do I/O when. The plan takes the whole bandwidth as one, and a volume as the seconds it
/// takes at the whole bandwidth, so it needs to know neither in bytes.
#[derive(Default)]
pub struct Timetable {
    /// What was known beforehand, by job number. A job beyond it is learnt.
    given: Vec<Application>,
    /// The period to keep to, instead of the best one.
    period_s: Option<f64>,
    jobs: BTreeMap<JobId, Entry>,
    plan: Option<Plan>,
    origin_ns: u64,
    /// The jobs changed, and the plan was not yet made again.
    stale: bool,
}

impl Timetable {
    /// A timetable for jobs known beforehand: `applications[i]` is job `i`'s, in any unit of data.
    /// A given period is kept to as long as everybody has a place in it.
    pub fn given(applications: &[Application], bandwidth: f64, period_s: Option<f64>) -> Self {
        let in_parts = |a: &Application| Application {
            cap: (a.cap / bandwidth).min(1.0),
            volume: a.volume / bandwidth,
            ..*a
        };
        let given = applications.iter().map(in_parts).collect();
        Timetable { given, period_s, ..Timetable::default() }
    }

    pub(in crate::sharing) fn joined(&mut self, job: JobId, desk: &Desk) {
        if let Some(&application) = self.given.get(job.index()) {
            self.know(job, application, desk.now_ns);
        }
    }

    pub(in crate::sharing) fn left(&mut self, job: JobId, desk: &Desk) {
        if self.jobs.remove(&job).is_some() {
            self.outdate(desk.now_ns);
        }
    }

    /// An instance is done. A job that is learnt is planned for from its first phase on, and anew
    /// whenever it has shown twice as many.
    pub(in crate::sharing) fn ended(&mut self, job: JobId, desk: &Desk) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.done += 1;
        }
        let record = desk.job(job);
        let is_learning = job.index() >= self.given.len() && record.history.past_phases().is_power_of_two();
        if let Some(application) = learnt(record).filter(|_| is_learning) {
            self.know(job, application, desk.now_ns);
        }
    }

    /// The jobs that are known.
    pub(in crate::sharing) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.jobs.keys().copied()
    }

    /// Makes the plan again if the jobs changed; says whether it did.
    pub(in crate::sharing) fn refresh(&mut self) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        let longest_s = self.jobs.values().map(|entry| entry.application.alone_s()).fold(0.0, f64::max);
        let mut planned = Vec::new();
        for entry in self.jobs.values_mut() {
            let has_place = entry.application.alone_s() >= SHORTEST * longest_s;
            entry.row = has_place.then_some(planned.len());
            entry.done = 0;
            if has_place {
                planned.push(entry.application);
            }
        }
        let feasible = !planned.is_empty() && planned.len() <= MOST_JOBS;
        let with_period = |period_s| persched(&planned, 1.0, &Search { period_s, ..QUICK });
        let kept = || with_period(self.period_s);
        // A given period that is too short for somebody is no period to keep to.
        let plan =
            || Some(kept()).filter(|plan| plan.dilation.is_finite()).unwrap_or_else(|| with_period(None));
        self.plan = feasible.then(plan);
        true
    }

    pub(in crate::sharing) fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// When the plan began.
    pub(in crate::sharing) fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    pub(in crate::sharing) fn application(&self, job: JobId) -> Option<&Application> {
        self.jobs.get(&job).map(|entry| &entry.application)
    }

    /// The job's instances in one period, if it has a place in the plan.
    pub(in crate::sharing) fn instances(&self, job: JobId) -> Option<&[Instance]> {
        let row = self.jobs.get(&job)?.row?;
        Some(&self.plan.as_ref()?.instances[row])
    }

    /// When the plan has the instance done that the job is at, in seconds since the plan began and
    /// as if every application began with the plan: what counts here is how far each should be, not
    /// the moment of the period at which it was inserted.
    pub(in crate::sharing) fn due_s(&self, job: JobId) -> Option<f64> {
        let (instances, done) = (self.instances(job)?, self.jobs[&job].done);
        let (lap, instance) = (done / instances.len(), &instances[done % instances.len()]);
        Some(lap as f64 * self.plan.as_ref()?.period_s + instance.end_s() - instances[0].compute_s)
    }

    /// How long the plan has the instance in I/O that the job is at.
    pub(in crate::sharing) fn io_s(&self, job: JobId) -> Option<f64> {
        let (instances, entry) = (self.instances(job)?, &self.jobs[&job]);
        let instance = &instances[entry.done % instances.len()];
        Some(instance.end_s() - instance.io_s(&entry.application))
    }

    fn know(&mut self, job: JobId, application: Application, now_ns: u64) {
        self.jobs.insert(job, Entry { application, row: None, done: 0 });
        self.outdate(now_ns);
    }

    fn outdate(&mut self, now_ns: u64) {
        self.stale = true;
        self.plan = None;
        self.origin_ns = now_ns;
    }
}

/// A job as its past phases show it: mean computing time, and mean I/O at the whole bandwidth.
fn learnt(job: Job) -> Option<Application> {
    let phases = job.history.past_phases() as f64;
    let application = Application {
        nodes: job.nodes() as f64,
        cap: job.cap(),
        volume: job.history.past_io_ns / phases * 1e-9,
        work_s: job.history.compute_ns as f64 / phases * 1e-9,
    };
    (application.volume > 0.0).then_some(application)
}
