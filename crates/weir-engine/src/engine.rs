//! One state machine for all sharing policies: `step(now, event, &mut actions)`.
//!
//! The [`Engine`] is driven by events that a coordinator sees and answers with actions that a
//! coordinator can take. It reads no clock: a live coordinator passes real time, the simulator in
//! [`crate::sim`] passes virtual time, and neither can be told from the other in here.
//!
//! # How a policy plugs in
//!
//! A policy implements [`Policy`], in a file of its own under `sharing/`, and is listed in
//! [`crate::sharing::PolicyKind`]. The engine does all the bookkeeping and checking *before* it
//! calls the policy: a policy only ever hears of jobs that exist, of phases that begin when none is
//! under way and end when one is, and of time that never goes back. It reads what is known of a job
//! from [`Desk::job`] and answers through [`Desk::grant`] (a share, new or changed), [`Desk::hold`]
//! and [`Desk::timer`]; the desk turns that into the fewest actions (a share that did not change
//! makes none). A phase that `began` left without a grant is answered with [`Action::Hold`] by the
//! engine. Shares must sum to at most one. A policy that knows its jobs beforehand (a timetable)
//! keeps what it knows in itself, by [`JobId`].
//!
//! There is one timer: a later [`Action::Timer`] replaces an earlier one, and the host answers it
//! with [`Event::TimePassed`] at that time (or later; never relied upon to be exact).

use crate::sharing::Policy;

/// A job's number: small, chosen by the host, free again once the job has left (as a file descriptor is).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

impl JobId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Job numbers are below this, which bounds the engine's memory.
pub const MAX_JOBS: u32 = 1 << 20;

/// What is known of a job when it joins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobInfo {
    /// The characteristic time `w_iter`; `None` lets the policy learn it.
    pub w_iter_ns: Option<u64>,
    /// The part of the storage's bandwidth that the job can use alone: `B_i / B`. `None`: not known.
    pub cap: Option<f64>,
    /// The nodes it runs on: `β_i`.
    pub nodes: u64,
}

impl Default for JobInfo {
    fn default() -> Self {
        JobInfo { w_iter_ns: None, cap: None, nodes: 1 }
    }
}

/// What a coordinator sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    JobJoined {
        job: JobId,
        info: JobInfo,
    },
    /// The job asks to do I/O. `bytes` when the job knows what it will move.
    PhaseBegan {
        job: JobId,
        bytes: Option<u64>,
    },
    /// Bytes moved since the last report of this job.
    BytesMoved {
        job: JobId,
        bytes: u64,
    },
    PhaseEnded {
        job: JobId,
    },
    /// At any moment, in the middle of a phase too.
    JobLeft {
        job: JobId,
    },
    /// The timer ran out, or the host thinks it is time to look again.
    TimePassed,
}

/// What a coordinator can do. Shares are parts of the storage's bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// The job may do I/O from now on, at this share.
    Grant { job: JobId, share: f64 },
    /// A job that already holds a grant goes on at this share.
    Share { job: JobId, share: f64 },
    /// Every job that holds a grant goes on at this share.
    ShareAll { share: f64 },
    /// The job may not do I/O for now, though its phase goes on.
    Hold { job: JobId },
    /// Send `TimePassed` at this time. Replaces the timer set before.
    Timer { at_ns: u64 },
}

/// Events that made no sense and were left aside; a host shows them, tests look at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// About a job that is not there.
    pub unknown_job: u64,
    /// A job that is there joined again, or a phase that is under way began again.
    pub repeated: u64,
    /// Bytes or an end, without a phase.
    pub no_phase: u64,
    /// A job number of [`MAX_JOBS`] or above, a cap that is no part of one, or no nodes.
    pub out_of_range: u64,
    /// Time that went back: the event was taken as of the latest time seen.
    pub time_went_back: u64,
}

/// What the engine knows of one job. Times are the engine's; a phase's first moment is its beginning.
#[derive(Clone, Debug)]
pub struct Job {
    pub info: JobInfo,
    pub joined_ns: u64,
    /// When the phase under way began.
    pub phase_began_ns: Option<u64>,
    /// Grows with every phase of any job: who came first.
    pub arrival: u64,
    /// What the phase under way said it would move.
    pub announced_bytes: Option<u64>,
    /// Moved in the phase under way.
    pub moved_bytes: u64,
    /// Time spent outside I/O phases up to the beginning of the latest phase.
    pub compute_ns: u64,
    /// Phases that ended, and the volumes they moved.
    pub past: Volumes,
    /// Time the past phases would have taken with the storage alone: shares integrated over time.
    pub past_io_ns: f64,
    /// The same for the phase under way, up to `share_since_ns`.
    io_ns: f64,
    share: f64,
    share_since_ns: u64,
    outside_since_ns: u64,
}

/// Count, mean and variance of the volumes of past phases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Volumes {
    pub count: u64,
    pub mean_bytes: f64,
    squares: f64,
}

impl Volumes {
    pub(crate) fn add(&mut self, bytes: f64) {
        self.count += 1;
        let before = bytes - self.mean_bytes;
        self.mean_bytes += before / self.count as f64;
        self.squares += before * (bytes - self.mean_bytes);
    }

    /// Of the sample; zero when fewer than two phases are known.
    pub fn standard_deviation_bytes(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).sqrt() }
    }
}

impl Job {
    fn new(info: JobInfo, now_ns: u64) -> Job {
        Job {
            info,
            joined_ns: now_ns,
            phase_began_ns: None,
            arrival: 0,
            announced_bytes: None,
            moved_bytes: 0,
            compute_ns: 0,
            past: Volumes::default(),
            past_io_ns: 0.0,
            io_ns: 0.0,
            share: 0.0,
            share_since_ns: now_ns,
            outside_since_ns: now_ns,
        }
    }

    /// The share granted now; zero while held or outside a phase.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Since when the job has had this share.
    pub fn share_since_ns(&self) -> u64 {
        self.share_since_ns
    }

    /// `B_i / B`, one when not known.
    pub fn cap(&self) -> f64 {
        self.info.cap.unwrap_or(1.0)
    }

    /// `w_iter`: as given, or learnt: what the job has computed so far, and the I/O of its past
    /// phases as if alone, over the number of phases (eq. 2). Time spent waiting is not its own.
    pub fn w_iter_ns(&self) -> f64 {
        match self.info.w_iter_ns {
            Some(given) => given as f64,
            None => {
                let computed_phases = self.past.count + u64::from(self.phase_began_ns.is_some());
                self.compute_ns as f64 / computed_phases.max(1) as f64
                    + self.past_io_ns / self.past.count.max(1) as f64
            }
        }
    }

    fn set_share(&mut self, now_ns: u64, share: f64) {
        self.io_ns += self.share * (now_ns - self.share_since_ns) as f64;
        self.share_since_ns = now_ns;
        self.share = share;
    }
}

/// Where a policy reads what is known and leaves its answers.
pub struct Desk<'a> {
    pub now_ns: u64,
    jobs: &'a mut [Option<Job>],
    share_of_all: &'a mut Option<f64>,
    actions: &'a mut Vec<Action>,
}

impl Desk<'_> {
    /// # Panics
    /// When the job is not there: policies only hear of jobs that are.
    pub fn job(&self, job: JobId) -> &Job {
        self.jobs[job.index()].as_ref().expect("the engine names only jobs that are there")
    }

    fn job_mut(&mut self, job: JobId) -> &mut Job {
        self.jobs[job.index()].as_mut().expect("the engine names only jobs that are there")
    }

    /// Grants the job this share, or changes the share it has.
    pub fn grant(&mut self, job: JobId, share: f64) {
        debug_assert!(share > 0.0 && share <= 1.0, "share {share}");
        let now_ns = self.now_ns;
        let entry = self.job_mut(job);
        let before = entry.share;
        if before == share {
            return;
        }
        entry.set_share(now_ns, share);
        let action = if before == 0.0 { Action::Grant { job, share } } else { Action::Share { job, share } };
        self.actions.push(action);
    }

    /// Takes the grant away. A job that has none was already told so.
    pub fn hold(&mut self, job: JobId) {
        let now_ns = self.now_ns;
        let entry = self.job_mut(job);
        if entry.share > 0.0 {
            entry.set_share(now_ns, 0.0);
            self.actions.push(Action::Hold { job });
        }
    }

    /// Tells everyone granted to go on at `share` in one action, for policies that treat all alike:
    /// telling `n` jobs one by one would cost `n` at every event. The jobs' own records keep the
    /// share of their grant, so [`Job::past_io_ns`] means nothing under such a policy.
    pub fn share_all(&mut self, share: f64) {
        *self.share_of_all = Some(share);
        self.actions.push(Action::ShareAll { share });
    }

    pub fn timer(&mut self, at_ns: u64) {
        self.actions.push(Action::Timer { at_ns });
    }
}

/// A policy and what it has been told so far.
pub struct Engine {
    policy: Box<dyn Policy>,
    jobs: Vec<Option<Job>>,
    /// What [`Desk::share_all`] said last.
    share_of_all: Option<f64>,
    now_ns: u64,
    arrivals: u64,
    ignored: Ignored,
}

impl Engine {
    pub fn new(policy: Box<dyn Policy>) -> Engine {
        Engine {
            policy,
            jobs: Vec::new(),
            share_of_all: None,
            now_ns: 0,
            arrivals: 0,
            ignored: Ignored::default(),
        }
    }

    /// What happened, and what to do about it. `actions` is the caller's, emptied here and reused.
    pub fn step(&mut self, now_ns: u64, event: Event, actions: &mut Vec<Action>) {
        actions.clear();
        self.ignored.time_went_back += u64::from(now_ns < self.now_ns);
        self.now_ns = self.now_ns.max(now_ns);
        match event {
            Event::JobJoined { job, info } => self.joined(job, info, actions),
            Event::PhaseBegan { job, bytes } => self.began(job, bytes, actions),
            Event::BytesMoved { job, bytes } => self.moved(job, bytes, actions),
            Event::PhaseEnded { job } => self.ended(job, actions),
            Event::JobLeft { job } => self.left(job, actions),
            Event::TimePassed => {
                let (policy, mut desk) = self.desk(actions);
                policy.time_passed(&mut desk);
            }
        }
    }

    pub fn job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(job.index())?.as_ref()
    }

    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Whether the policy makes use of `BytesMoved` in the middle of a phase.
    pub fn wants_progress(&self) -> bool {
        self.policy.wants_progress()
    }

    fn desk<'a>(&'a mut self, actions: &'a mut Vec<Action>) -> (&'a mut dyn Policy, Desk<'a>) {
        let Engine { policy, jobs, share_of_all, now_ns, .. } = self;
        (&mut **policy, Desk { now_ns: *now_ns, jobs, share_of_all, actions })
    }

    fn joined(&mut self, job: JobId, info: JobInfo, actions: &mut Vec<Action>) {
        let cap_is_a_part = info.cap.is_none_or(|cap| cap > 0.0 && cap <= 1.0);
        if job.0 >= MAX_JOBS || !cap_is_a_part || info.nodes == 0 {
            self.ignored.out_of_range += 1;
            return;
        }
        if self.jobs.len() <= job.index() {
            self.jobs.resize_with(job.index() + 1, || None);
        }
        if self.jobs[job.index()].is_some() {
            self.ignored.repeated += 1;
            return;
        }
        self.jobs[job.index()] = Some(Job::new(info, self.now_ns));
        let (policy, mut desk) = self.desk(actions);
        policy.joined(job, &mut desk);
    }

    /// A job that asks again (it reconnected, say) hears again what holds.
    fn began(&mut self, job: JobId, bytes: Option<u64>, actions: &mut Vec<Action>) {
        let now_ns = self.now_ns;
        let Some(entry) = self.jobs.get_mut(job.index()).and_then(Option::as_mut) else {
            self.ignored.unknown_job += 1;
            return;
        };
        if entry.phase_began_ns.is_some() {
            self.ignored.repeated += 1;
            actions.push(match entry.share {
                0.0 => Action::Hold { job },
                share => Action::Grant { job, share: self.share_of_all.unwrap_or(share) },
            });
            return;
        }
        self.arrivals += 1;
        entry.arrival = self.arrivals;
        entry.phase_began_ns = Some(now_ns);
        entry.announced_bytes = bytes;
        entry.compute_ns += now_ns - entry.outside_since_ns;
        let (policy, mut desk) = self.desk(actions);
        policy.began(job, &mut desk);
        if self.job(job).is_some_and(|entry| entry.share == 0.0) {
            actions.push(Action::Hold { job });
        }
    }

    fn moved(&mut self, job: JobId, bytes: u64, actions: &mut Vec<Action>) {
        let Some(entry) = self.jobs.get_mut(job.index()).and_then(Option::as_mut) else {
            self.ignored.unknown_job += 1;
            return;
        };
        if entry.phase_began_ns.is_none() {
            self.ignored.no_phase += 1;
            return;
        }
        entry.moved_bytes = entry.moved_bytes.saturating_add(bytes);
        let (policy, mut desk) = self.desk(actions);
        policy.moved(job, &mut desk);
    }

    fn ended(&mut self, job: JobId, actions: &mut Vec<Action>) {
        let now_ns = self.now_ns;
        let Some(entry) = self.jobs.get_mut(job.index()).and_then(Option::as_mut) else {
            self.ignored.unknown_job += 1;
            return;
        };
        if entry.phase_began_ns.is_none() {
            self.ignored.no_phase += 1;
            return;
        }
        entry.set_share(now_ns, 0.0);
        entry.past.add(entry.moved_bytes as f64);
        entry.past_io_ns += entry.io_ns;
        self.finish_phase(job, actions);
    }

    /// The policy hears of the end while the record still shows the phase; then the phase is wiped.
    fn finish_phase(&mut self, job: JobId, actions: &mut Vec<Action>) {
        let (policy, mut desk) = self.desk(actions);
        policy.ended(job, &mut desk);
        let now_ns = desk.now_ns;
        let entry = desk.job_mut(job);
        entry.share = 0.0;
        entry.io_ns = 0.0;
        entry.moved_bytes = 0;
        entry.announced_bytes = None;
        entry.phase_began_ns = None;
        entry.outside_since_ns = now_ns;
    }

    /// A phase cut short says nothing of the job's volumes, so it is not counted among them.
    fn left(&mut self, job: JobId, actions: &mut Vec<Action>) {
        let now_ns = self.now_ns;
        let Some(entry) = self.jobs.get_mut(job.index()).and_then(Option::as_mut) else {
            self.ignored.unknown_job += 1;
            return;
        };
        if entry.phase_began_ns.is_some() {
            entry.set_share(now_ns, 0.0);
            self.finish_phase(job, actions);
        }
        let (policy, mut desk) = self.desk(actions);
        policy.left(job, &mut desk);
        self.jobs[job.index()] = None;
    }
}
