//! The loop: what happens next, tell the engine, do what it says.

use super::metrics::{JobOutcome, Outcome, PhaseOutcome};
use super::storage::{Demand, Storage};
use super::workload::{Job, Phase, Phases};
use crate::engine::{Action, Engine, Event, JobId};
use crate::sharing::Policy;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How a run is made and measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    pub storage: Storage,
    /// Where it is measured; `None` is from the start to the last finish.
    pub window_ns: Option<(u64, u64)>,
    /// Whether to stop at the window's end instead of when all jobs are done.
    pub stop_at_window: bool,
}

/// Runs the jobs under the policy.
///
/// What happens at one instant happens in this order: phases end (the order of their grants), the
/// timer runs out, then jobs join or begin their I/O (the lower index first).
pub fn simulate(jobs: &[Job], policy: Box<dyn Policy>, setting: &Setting) -> Outcome {
    let mut run = Run::new(jobs, policy, setting);
    run.go();
    run.outcome()
}

/// The same, and every I/O phase: those that ended in the order of their ends, then those that had not.
pub fn simulate_phases(
    jobs: &[Job],
    policy: Box<dyn Policy>,
    setting: &Setting,
) -> (Outcome, Vec<PhaseOutcome>) {
    let mut run = Run::new(jobs, policy, setting);
    run.phases = Some(Vec::new());
    run.go();
    let mut phases = run.phases.take().unwrap_or_default();
    for (job, runner) in run.runners.iter().enumerate() {
        if let Some(began_ns) = runner.io_since_ns {
            phases.push(PhaseOutcome { job, began_ns, ended_ns: None, volume_ns: runner.volume_ns });
        }
    }
    (run.outcome(), phases)
}

/// A job's place in its program.
struct Runner<'a> {
    phases: Phases<'a>,
    /// The compute phase under way began then.
    computing_since_ns: Option<u64>,
    io_since_ns: Option<u64>,
    /// Volume of an I/O phase that begins at this instant, once all phases that end now have ended.
    next_volume_ns: Option<u64>,
    /// Of the I/O phase under way: volume not yet moved, and volume the engine was told of.
    left_ns: f64,
    volume_ns: u64,
    told_ns: u64,
    joined: bool,
    outcome: JobOutcome,
}

/// A granted job's bytes on their way.
struct Flow {
    job: usize,
    demand: Demand,
    rate: f64,
    ends_ns: u64,
}

struct Run<'a> {
    jobs: &'a [Job],
    setting: &'a Setting,
    engine: Engine,
    actions: Vec<Action>,
    runners: Vec<Runner<'a>>,
    /// When compute phases end and jobs are released.
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    flows: Vec<Flow>,
    /// Jobs to report on; kept for its memory.
    moving: Vec<usize>,
    shares_changed: bool,
    demands: Vec<Demand>,
    rates: Vec<f64>,
    timer_ns: Option<u64>,
    now_ns: u64,
    steps: u64,
    /// The phases that have ended, if anybody wants to know.
    phases: Option<Vec<PhaseOutcome>>,
}

impl<'a> Run<'a> {
    fn new(jobs: &'a [Job], policy: Box<dyn Policy>, setting: &'a Setting) -> Run<'a> {
        let runners = jobs.iter().map(|job| Runner {
            phases: Phases::new(&job.program),
            computing_since_ns: None,
            io_since_ns: None,
            next_volume_ns: None,
            left_ns: 0.0,
            volume_ns: 0,
            told_ns: 0,
            joined: false,
            outcome: JobOutcome {
                release_ns: job.release_ns,
                nodes: job.info.nodes,
                ..JobOutcome::default()
            },
        });
        Run {
            jobs,
            setting,
            engine: Engine::new(policy),
            actions: Vec::new(),
            runners: runners.collect(),
            agenda: jobs.iter().enumerate().map(|(i, job)| Reverse((job.release_ns, i))).collect(),
            flows: Vec::new(),
            moving: Vec::new(),
            shares_changed: false,
            demands: Vec::new(),
            rates: Vec::new(),
            timer_ns: None,
            now_ns: 0,
            steps: 0,
            phases: None,
        }
    }

    fn go(&mut self) {
        let stop_ns = self.setting.window_ns.filter(|_| self.setting.stop_at_window).map(|(_, end)| end);
        while let Some(next_ns) = self.next_ns() {
            if stop_ns.is_some_and(|stop_ns| next_ns > stop_ns) {
                break;
            }
            self.advance(next_ns);
            self.report_progress();
            self.end_phases();
            if self.timer_ns.is_some_and(|at_ns| at_ns <= self.now_ns) {
                self.timer_ns = None;
                self.tell(Event::TimePassed);
            }
            while let Some(&Reverse((at_ns, job))) = self.agenda.peek()
                && at_ns <= self.now_ns
            {
                self.agenda.pop();
                self.proceed(job);
            }
            self.set_rates();
        }
        if let Some(stop_ns) = stop_ns.filter(|&stop_ns| stop_ns > self.now_ns) {
            self.advance(stop_ns);
        }
    }

    /// The timer alone is nothing to wait for: with no flow and no agenda, nothing can come of it
    /// unless somebody is held, and then it is what everybody waits for.
    fn next_ns(&self) -> Option<u64> {
        let flow_ns = self.flows.iter().map(|flow| flow.ends_ns).min();
        let agenda_ns = self.agenda.peek().map(|Reverse((at_ns, _))| *at_ns);
        let held = || self.runners.iter().any(|runner| runner.io_since_ns.is_some());
        let timer_ns = self.timer_ns.filter(|_| flow_ns.is_some() || agenda_ns.is_some() || held());
        [flow_ns, agenda_ns, timer_ns].into_iter().flatten().min().map(|ns| ns.max(self.now_ns))
    }

    /// The overlap of a stretch of time with the window.
    fn measured_ns(&self, from_ns: u64, to_ns: u64) -> f64 {
        let (begin, end) = self.setting.window_ns.unwrap_or((0, u64::MAX));
        to_ns.min(end).saturating_sub(from_ns.max(begin)) as f64
    }

    fn advance(&mut self, to_ns: u64) {
        let measured_ns = self.measured_ns(self.now_ns, to_ns);
        let passed_ns = (to_ns - self.now_ns) as f64;
        for flow in &self.flows {
            let runner = &mut self.runners[flow.job];
            runner.left_ns -= flow.rate * passed_ns;
            runner.outcome.io_ns += flow.rate * measured_ns / self.jobs[flow.job].cap;
        }
        self.now_ns = to_ns;
    }

    /// What has been moved so far, for policies that look at it. Flows that end now report there.
    fn report_progress(&mut self) {
        if !self.engine.wants_progress() {
            return;
        }
        let mut moving = std::mem::take(&mut self.moving);
        moving.clear();
        moving.extend(self.flows.iter().filter(|flow| flow.ends_ns > self.now_ns).map(|flow| flow.job));
        for &job in &moving {
            let runner = &mut self.runners[job];
            let moved_ns = ((runner.volume_ns as f64 - runner.left_ns).max(0.0) as u64).min(runner.volume_ns);
            let bytes = moved_ns.saturating_sub(runner.told_ns);
            if bytes > 0 {
                runner.told_ns += bytes;
                self.tell(Event::BytesMoved { job: JobId(job as u32), bytes });
            }
        }
        self.moving = moving;
    }

    fn end_phases(&mut self) {
        while let Some(index) = self.flows.iter().position(|flow| flow.ends_ns <= self.now_ns) {
            let job = self.flows.remove(index).job;
            self.shares_changed = true;
            let io_since_ns = self.runners[job].io_since_ns.take().unwrap_or(self.now_ns);
            let in_io_ns = self.measured_ns(io_since_ns, self.now_ns);
            let inside = self.measured_ns(self.now_ns.saturating_sub(1), self.now_ns) > 0.0;
            let runner = &mut self.runners[job];
            runner.outcome.in_io_ns += in_io_ns;
            if inside {
                // Ends are rounded to a nanosecond; no part of a byte is lost to that.
                runner.outcome.io_ns += runner.left_ns / self.jobs[job].cap;
            }
            let bytes = runner.volume_ns - runner.told_ns;
            if let Some(phases) = &mut self.phases {
                let (volume_ns, ended_ns) = (runner.volume_ns, Some(self.now_ns));
                phases.push(PhaseOutcome { job, began_ns: io_since_ns, ended_ns, volume_ns });
            }
            let id = JobId(job as u32);
            self.tell(Event::BytesMoved { job: id, bytes });
            self.tell(Event::PhaseEnded { job: id });
            if let Some(volume_ns) = self.next_io(job) {
                self.runners[job].next_volume_ns = Some(volume_ns);
                self.agenda.push(Reverse((self.now_ns, job)));
            }
        }
    }

    /// A release, or the end of a compute phase.
    fn proceed(&mut self, job: usize) {
        if !self.runners[job].joined {
            self.runners[job].joined = true;
            self.tell(Event::JobJoined { job: JobId(job as u32), info: self.jobs[job].info });
        }
        if let Some(since_ns) = self.runners[job].computing_since_ns.take() {
            let compute_ns = self.measured_ns(since_ns, self.now_ns);
            self.runners[job].outcome.compute_ns += compute_ns;
        }
        let volume_ns = self.runners[job].next_volume_ns.take().or_else(|| self.next_io(job));
        if let Some(volume_ns) = volume_ns {
            self.begin_io(job, volume_ns);
        }
    }

    /// Goes on to the job's next phase that is not empty: a compute phase begins here, the job leaves here, and
    /// the volume of an I/O phase is answered. One that follows an I/O phase without any computing between them
    /// begins by the agenda, as all others of the same instant do.
    fn next_io(&mut self, job: usize) -> Option<u64> {
        loop {
            let runner = &mut self.runners[job];
            match runner.phases.next() {
                Some(Phase::Compute { length_ns: 0 } | Phase::Io { volume_ns: 0 }) => {}
                Some(Phase::Compute { length_ns }) => {
                    runner.computing_since_ns = Some(self.now_ns);
                    self.agenda.push(Reverse((self.now_ns.saturating_add(length_ns), job)));
                    return None;
                }
                Some(Phase::Io { volume_ns }) => return Some(volume_ns),
                None => {
                    runner.outcome.finish_ns = Some(self.now_ns);
                    self.tell(Event::JobLeft { job: JobId(job as u32) });
                    return None;
                }
            }
        }
    }

    fn begin_io(&mut self, job: usize, volume_ns: u64) {
        let runner = &mut self.runners[job];
        runner.io_since_ns = Some(self.now_ns);
        runner.volume_ns = volume_ns;
        runner.left_ns = volume_ns as f64;
        runner.told_ns = 0;
        self.tell(Event::PhaseBegan { job: JobId(job as u32), bytes: None });
    }

    fn tell(&mut self, event: Event) {
        self.steps += 1;
        let mut actions = std::mem::take(&mut self.actions);
        self.engine.step(self.now_ns, event, &mut actions);
        for action in &actions {
            self.obey(*action);
        }
        self.actions = actions;
    }

    fn obey(&mut self, action: Action) {
        match action {
            Action::Grant { job, share } => {
                let demand = Demand { share, cap: self.jobs[job.index()].cap };
                self.flows.push(Flow { job: job.index(), demand, rate: 0.0, ends_ns: u64::MAX });
            }
            Action::Share { job, share } => {
                for flow in self.flows.iter_mut().filter(|flow| flow.job == job.index()) {
                    flow.demand.share = share;
                }
            }
            Action::ShareAll { share } => {
                for flow in &mut self.flows {
                    flow.demand.share = share;
                }
            }
            Action::Hold { job } => self.flows.retain(|flow| flow.job != job.index()),
            Action::Timer { at_ns } => {
                self.timer_ns = Some(at_ns);
                return;
            }
        }
        self.shares_changed = true;
    }

    fn set_rates(&mut self) {
        if !std::mem::take(&mut self.shares_changed) {
            return;
        }
        self.demands.clear();
        self.demands.extend(self.flows.iter().map(|flow| flow.demand));
        self.setting.storage.rates(&self.demands, &mut self.rates);
        for (flow, &rate) in self.flows.iter_mut().zip(&self.rates) {
            flow.rate = rate;
            let left_ns = self.runners[flow.job].left_ns.max(0.0);
            flow.ends_ns = self.now_ns.saturating_add((left_ns / rate).round() as u64);
        }
    }

    fn outcome(mut self) -> Outcome {
        let last_ns = self.runners.iter().filter_map(|runner| runner.outcome.finish_ns).max().unwrap_or(0);
        for job in 0..self.runners.len() {
            let computing = self.runners[job].computing_since_ns.map(|ns| self.measured_ns(ns, self.now_ns));
            let in_io = self.runners[job].io_since_ns.map(|ns| self.measured_ns(ns, self.now_ns));
            let outcome = &mut self.runners[job].outcome;
            outcome.compute_ns += computing.unwrap_or(0.0);
            outcome.in_io_ns += in_io.unwrap_or(0.0);
        }
        Outcome {
            jobs: self.runners.into_iter().map(|runner| runner.outcome).collect(),
            window_ns: self.setting.window_ns.unwrap_or((0, last_ns)),
            steps: self.steps,
        }
    }
}
