//! A plan for the jobs that are there, made anew as they come, go and become known.

use super::{Application, Instance, Objective, Plan, Search, persched};
use crate::engine::{Desk, InstanceInfo, Job, JobId, JobInfo};
use std::collections::BTreeSet;

/// A timetable for more jobs is not attempted: nobody waits for the planning.
pub(in crate::sharing) const MOST_JOBS: usize = 64;

/// A job this many times shorter than the longest gets no place: there would be thousands of
/// instances in every period, and what little it asks is soon done.
const SHORTEST: f64 = 1e-4;

/// Planning as jobs come and go must be quick; a coarse search is hardly worse.
const QUICK: Search = Search { epsilon: 0.05, shrunk: 4, most_work: 500_000, ..Search::BEST };

/// What a timetable is to be like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planning {
    pub objective: Objective,
    /// The period to keep to as long as everybody has a place in it, instead of the best one.
    pub period_s: Option<f64>,
    /// `K'`: periods up to this many times the shortest are tried.
    pub longest: f64,
    /// `ε`: each period tried is `1 + ε` times the one before.
    pub epsilon: f64,
}

impl Default for Planning {
    fn default() -> Planning {
        let Search { objective, longest, epsilon, .. } = QUICK;
        Planning { objective, period_s: None, longest, epsilon }
    }
}

/// What is known of a job, and how far it has come.
#[derive(Clone, Copy)]
struct Entry {
    application: Application,
    /// Its place in the plan.
    row: Option<usize>,
    /// Instances done since the plan began.
    done: usize,
}

/// Shorter applications come first, then lower job numbers. The bits of positive numbers are in the numbers' order.
type Length = (u64, JobId);

fn length(application: &Application, job: JobId) -> Length {
    (application.alone_s().to_bits(), job)
}

/// Who is to do I/O when. The plan takes the whole bandwidth as one, and a volume as the seconds it
/// takes at the whole bandwidth, so it needs to know neither in bytes.
#[derive(Default)]
pub struct Timetable {
    /// What was known beforehand, by job number. A job beyond it is learnt.
    given: Vec<Application>,
    planning: Planning,
    /// By job; `None` of whom nothing is known.
    jobs: Vec<Option<Entry>>,
    /// All that are known: only those who may have a place are looked at to make a plan, however many there are.
    lengths: BTreeSet<Length>,
    plan: Option<Plan>,
    /// Who has which row of the plan.
    planned: Vec<JobId>,
    origin_ns: u64,
    /// The jobs changed then, and the plan was not yet made again.
    outdated_ns: Option<u64>,
    /// There was a plan until then: what it said is still believed.
    was_planned: bool,
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
        let planning = Planning { period_s, ..Planning::default() };
        Timetable { given, planning, ..Timetable::default() }
    }

    /// A timetable for jobs of which is known what was told when they joined.
    pub fn new(planning: Planning) -> Self {
        Timetable { planning, ..Timetable::default() }
    }

    /// What was known of the job beforehand.
    fn told(&self, job: JobId, desk: &Desk) -> Option<Application> {
        let of_job = |info: JobInfo| {
            let InstanceInfo { work_s, io_s } = info.instance?;
            let (nodes, cap) = (info.nodes as f64, info.cap.unwrap_or(1.0));
            (io_s > 0.0 && work_s >= 0.0).then_some(Application { nodes, cap, volume: io_s, work_s })
        };
        self.given.get(job.index()).copied().or_else(|| desk.info(job).and_then(of_job))
    }

    pub(in crate::sharing) fn joined(&mut self, job: JobId, desk: &Desk) {
        if let Some(application) = self.told(job, desk) {
            self.know(job, application, desk.now_ns);
        }
    }

    pub(in crate::sharing) fn left(&mut self, job: JobId, desk: &Desk) {
        if let Some(entry) = self.jobs.get_mut(job.index()).and_then(Option::take) {
            self.lengths.remove(&length(&entry.application, job));
            self.outdate(desk.now_ns);
        }
    }

    /// An instance is done. A job that is learnt is planned for from its first phase on, and anew
    /// whenever it has shown twice as many.
    pub(in crate::sharing) fn ended(&mut self, job: JobId, desk: &Desk) {
        if self.plan.is_some()
            && let Some(Some(entry)) = self.jobs.get_mut(job.index())
        {
            entry.done += 1;
        }
        let record = desk.job(job);
        let is_learning =
            self.told(job, desk).is_none() && (record.history().past_phases() + 1).is_power_of_two();
        if let Some(application) = learnt(record).filter(|_| is_learning) {
            self.know(job, application, desk.now_ns);
        }
    }

    /// The jobs that have a place in the plan.
    pub(in crate::sharing) fn planned(&self) -> &[JobId] {
        &self.planned
    }

    /// Makes the plan again if the jobs changed; says whether it is another one.
    pub(in crate::sharing) fn refresh(&mut self) -> bool {
        let Some(outdated_ns) = self.outdated_ns.take() else { return false };
        self.planned = self.those_with_a_place();
        let applications: Vec<Application> =
            self.planned.iter().filter_map(|&job| self.application(job).copied()).collect();
        for (row, job) in self.planned.iter().enumerate() {
            if let Some(entry) = &mut self.jobs[job.index()] {
                (entry.row, entry.done) = (Some(row), 0);
            }
        }
        let Planning { objective, period_s, longest, epsilon } = self.planning;
        let search = Search { objective, longest, epsilon, ..QUICK };
        let with_period = |period_s| persched(&applications, 1.0, &Search { period_s, ..search });
        let kept = || with_period(period_s);
        // A given period that is too short for somebody is no period to keep to.
        let plan =
            || Some(kept()).filter(|plan| plan.dilation.is_finite()).unwrap_or_else(|| with_period(None));
        self.plan = (!applications.is_empty()).then(plan);
        if self.plan.is_some() {
            self.origin_ns = outdated_ns;
        }
        std::mem::take(&mut self.was_planned) || self.plan.is_some()
    }

    /// In order of their numbers; nobody when they are too many.
    fn those_with_a_place(&self) -> Vec<JobId> {
        let Some(&(longest, _)) = self.lengths.last() else { return Vec::new() };
        let shortest = (SHORTEST * f64::from_bits(longest)).to_bits();
        let long_enough = self.lengths.range((shortest, JobId(0))..);
        let mut jobs: Vec<JobId> = long_enough.take(MOST_JOBS + 1).map(|&(_, job)| job).collect();
        if jobs.len() > MOST_JOBS {
            jobs.clear();
        }
        jobs.sort_unstable();
        jobs
    }

    pub(in crate::sharing) fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// When the plan began.
    pub(in crate::sharing) fn origin_ns(&self) -> u64 {
        self.origin_ns
    }

    pub(in crate::sharing) fn application(&self, job: JobId) -> Option<&Application> {
        self.entry(job).map(|entry| &entry.application)
    }

    fn entry(&self, job: JobId) -> Option<&Entry> {
        self.jobs.get(job.index())?.as_ref()
    }

    /// The job's instances in one period, if it has a place in the plan.
    pub(in crate::sharing) fn instances(&self, job: JobId) -> Option<&[Instance]> {
        Some(self.at(job)?.1)
    }

    /// How far the job has come, and its instances in one period; nothing for a job of which none found a place.
    fn at(&self, job: JobId) -> Option<(&Entry, &[Instance])> {
        let plan = self.plan.as_ref()?;
        let entry = self.entry(job)?;
        let instances = &plan.instances[entry.row?];
        (!instances.is_empty()).then_some((entry, instances))
    }

    /// When the plan has the instance done that the job is at, in seconds since the plan began and
    /// as if every application began with the plan: what counts here is how far each should be, not
    /// the moment of the period at which it was inserted.
    pub(in crate::sharing) fn due_s(&self, job: JobId) -> Option<f64> {
        let (&Entry { done, .. }, instances) = self.at(job)?;
        let (lap, instance) = (done / instances.len(), &instances[done % instances.len()]);
        Some(lap as f64 * self.plan.as_ref()?.period_s + instance.end_s() - instances[0].compute_s)
    }

    /// How long the plan has the instance in I/O that the job is at.
    pub(in crate::sharing) fn io_s(&self, job: JobId) -> Option<f64> {
        let (entry, instances) = self.at(job)?;
        let instance = &instances[entry.done % instances.len()];
        Some(instance.end_s() - instance.io_s(&entry.application))
    }

    fn know(&mut self, job: JobId, application: Application, now_ns: u64) {
        if self.jobs.len() <= job.index() {
            self.jobs.resize(job.index() + 1, None);
        }
        let entry = &mut self.jobs[job.index()];
        if let Some(before) = entry.replace(Entry { application, row: None, done: 0 }) {
            self.lengths.remove(&length(&before.application, job));
        }
        self.lengths.insert(length(&application, job));
        self.outdate(now_ns);
    }

    /// Nobody has a place until the plan is made again. Where there was none, nothing changes until there is one.
    fn outdate(&mut self, now_ns: u64) {
        for job in self.planned.drain(..) {
            if let Some(entry) = &mut self.jobs[job.index()] {
                entry.row = None;
            }
        }
        self.outdated_ns = Some(now_ns);
        self.was_planned |= self.plan.take().is_some();
        if self.was_planned {
            self.origin_ns = now_ns;
        }
    }
}

/// A job as its phases show it, the one that ends included: mean computing time, and mean I/O at the whole bandwidth.
fn learnt(job: Job) -> Option<Application> {
    let phases = (job.history().past_phases() + 1) as f64;
    let application = Application {
        nodes: job.nodes() as f64,
        cap: job.cap(),
        volume: (job.history().past_io_ns + job.io_ns()) / phases * 1e-9,
        work_s: job.compute_ns() as f64 / phases * 1e-9,
    };
    (application.volume > 0.0).then_some(application)
}
