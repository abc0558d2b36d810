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

use crate::records::{Phase, Records, Seat, Whereabouts};
use crate::sharing::Policy;

pub use crate::records::{History, Job, mean_with_usual};

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

/// Time stands still from here on, after 292 years: `u64::MAX` is never, and a deadline that is never must
/// not come.
const LAST_NS: u64 = i64::MAX as u64;

/// From one time of the engine's to a later one. As neither is above [`LAST_NS`] the difference may be taken as
/// signed, which becomes a float in one instruction instead of six.
#[inline]
pub(crate) fn elapsed_ns(since_ns: u64, now_ns: u64) -> f64 {
    (now_ns - since_ns) as i64 as f64
}

/// What is known of a job when it joins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobInfo {
    /// The characteristic time `w_iter`, exactly; `None` lets the policy learn it.
    pub w_iter_ns: Option<u64>,
    /// What `w_iter` was in earlier runs: counts until the job's own phases outweigh it.
    pub usual_w_iter_ns: Option<u64>,
    /// The part of the storage's bandwidth that the job can use alone: `B_i / B`. `None`: not known.
    pub cap: Option<f64>,
    /// The nodes it runs on: `β_i`.
    pub nodes: u64,
    /// What each of its instances does, for a timetable that is made beforehand; `None`: that is learnt.
    pub instance: Option<InstanceInfo>,
    /// What is known of the job from before it joined.
    pub past: Past,
}

/// What other engines have seen of a job in this run, when it joins one that takes over from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// How long the job has run.
    pub life_ns: u64,
    /// How long of that it was in an I/O phase and held.
    pub stalled_ns: u64,
    pub alone: SeenAlone,
}

/// What a job did while no other was served: the part of the bandwidth that it can use follows from that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenAlone {
    pub ns: u64,
    pub bytes: u64,
}

impl Past {
    /// The same past on a clock that began `now_ns` ago: a longer life is taken for one that began with the clock, with the same
    /// part of it stalled.
    fn within(self, now_ns: u64) -> Past {
        let stalled_ns = self.stalled_ns.min(self.life_ns);
        if self.life_ns <= now_ns {
            return Past { stalled_ns, ..self };
        }
        let part = stalled_ns as f64 / self.life_ns as f64;
        Past { life_ns: now_ns, stalled_ns: (part * now_ns as f64) as u64, ..self }
    }
}

/// What one instance of a periodic job does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceInfo {
    /// `W_i`.
    pub work_s: f64,
    /// `IO_i / B`: how long its I/O would take at the whole bandwidth.
    pub io_s: f64,
}

impl Default for JobInfo {
    fn default() -> Self {
        JobInfo {
            w_iter_ns: None,
            usual_w_iter_ns: None,
            cap: None,
            nodes: 1,
            instance: None,
            past: Past::default(),
        }
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
    /// The phase under way will move this much, as is known by now; `None`: that is not known any more.
    PhaseAnnounced {
        job: JobId,
        bytes: Option<u64>,
    },
    /// The job's characteristic time is this, exactly, from now on; `None`: it is learnt. Outside phases only.
    PeriodTold {
        job: JobId,
        w_iter_ns: Option<u64>,
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
    /// A period, in the middle of a phase.
    pub in_phase: u64,
    /// A job number of [`MAX_JOBS`] or above, a cap that is no part of one, or no nodes.
    pub out_of_range: u64,
    /// Time that went back: the event was taken as of the latest time seen.
    pub time_went_back: u64,
}

/// Where a policy reads what is known and leaves its answers.
pub struct Desk<'a> {
    pub now_ns: u64,
    /// The phase that ends is cut short: its job leaves. What it moved says nothing of the job's volumes.
    pub(crate) cut_short: bool,
    records: &'a mut Records,
    share_of_all: &'a mut Option<f64>,
    actions: &'a mut Vec<Action>,
}

impl Desk<'_> {
    /// # Panics
    /// When the job is not in a phase: policies only ask about those that are.
    #[inline]
    pub fn job(&self, job: JobId) -> Job<'_> {
        self.seated(self.seat(job))
    }

    /// A seat is the job's own while its phase lasts, and its number is small: no higher than the most
    /// jobs that have been in a phase at once. What a policy keeps by seat stays in the cache
    /// however many jobs there are; to find the seat of a job takes a look at all else that is known of it.
    ///
    /// # Panics
    /// When the job is not in a phase.
    #[inline]
    pub(crate) fn seat(&self, job: JobId) -> Seat {
        match self.records.find(job) {
            Whereabouts::InPhase(seat) => seat,
            elsewhere => panic!("{job:?} is not in a phase but {elsewhere:?}"),
        }
    }

    /// Who has the seat.
    #[inline]
    pub(crate) fn seated(&self, seat: Seat) -> Job<'_> {
        self.records.seated(seat)
    }

    /// What was said of a job when it joined, whether or not it is in a phase.
    pub(crate) fn info(&self, job: JobId) -> Option<JobInfo> {
        self.records.get(job).map(|job| job.info())
    }

    /// Grants the job this share, or changes the share it has.
    pub fn grant(&mut self, job: JobId, share: f64) {
        self.grant_seated(self.seat(job), share);
    }

    pub(crate) fn grant_seated(&mut self, seat: Seat, share: f64) {
        debug_assert!(share > 0.0 && share <= 1.0, "share {share}");
        let now_ns = self.now_ns;
        let phase = self.records.phase(seat);
        let (job, before) = (seat.job, phase.share());
        if before == share {
            return;
        }
        phase.set_share(now_ns, share);
        let action = if before == 0.0 { Action::Grant { job, share } } else { Action::Share { job, share } };
        self.actions.push(action);
    }

    /// Takes the grant away. A job that has none was already told so.
    pub fn hold(&mut self, job: JobId) {
        self.hold_seated(self.seat(job));
    }

    pub(crate) fn hold_seated(&mut self, seat: Seat) {
        let now_ns = self.now_ns;
        let phase = self.records.phase(seat);
        if phase.share() > 0.0 {
            phase.set_share(now_ns, 0.0);
            self.actions.push(Action::Hold { job: seat.job });
        }
    }

    /// Tells everyone granted to go on at `share` in one action, for policies that treat all alike:
    /// telling `n` jobs one by one would cost `n` at every event. The jobs' own records keep the
    /// share of their grant, so [`History::past_io_ns`] means nothing under such a policy.
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
    records: Records,
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
            records: Records::default(),
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
        self.now_ns = self.now_ns.max(now_ns.min(LAST_NS));
        match event {
            Event::JobJoined { job, info } => self.joined(job, info, actions),
            Event::PhaseBegan { job, bytes } => self.began(job, bytes, actions),
            Event::PhaseAnnounced { job, bytes } => self.announced(job, bytes, actions),
            Event::PeriodTold { job, w_iter_ns } => self.period_told(job, w_iter_ns),
            Event::BytesMoved { job, bytes } => self.moved(job, bytes, actions),
            Event::PhaseEnded { job } => self.ended(job, actions),
            Event::JobLeft { job } => self.left(job, actions),
            Event::TimePassed => {
                let (policy, mut desk) = self.desk(actions);
                policy.time_passed(&mut desk);
            }
        }
    }

    /// What is known of a job, in a phase or not.
    pub fn job(&self, job: JobId) -> Option<Job<'_>> {
        self.records.get(job)
    }

    /// What the job has done so far while no other was served, its past included, where the policy learns from that.
    pub fn seen_alone(&self, job: JobId) -> Option<SeenAlone> {
        self.policy.seen_alone(job)
    }

    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Whether the policy makes use of `BytesMoved` in the middle of a phase.
    pub fn wants_progress(&self) -> bool {
        self.policy.wants_progress()
    }

    fn desk<'a>(&'a mut self, actions: &'a mut Vec<Action>) -> (&'a mut dyn Policy, Desk<'a>) {
        let Engine { policy, records, share_of_all, now_ns, .. } = self;
        (&mut **policy, Desk { now_ns: *now_ns, cut_short: false, records, share_of_all, actions })
    }

    fn joined(&mut self, job: JobId, info: JobInfo, actions: &mut Vec<Action>) {
        let cap_is_a_part = info.cap.is_none_or(|cap| cap > 0.0 && cap <= 1.0);
        if job.0 >= MAX_JOBS || !cap_is_a_part || info.nodes == 0 {
            self.ignored.out_of_range += 1;
            return;
        }
        if self.records.find(job) != Whereabouts::Absent {
            self.ignored.repeated += 1;
            return;
        }
        let info = JobInfo { past: info.past.within(self.now_ns), ..info };
        self.records.join(job, info, self.now_ns);
        let (policy, mut desk) = self.desk(actions);
        policy.joined(job, &mut desk);
    }

    /// A job that asks again (it reconnected, say) hears again what holds.
    fn began(&mut self, job: JobId, bytes: Option<u64>, actions: &mut Vec<Action>) {
        match self.records.find(job) {
            Whereabouts::Absent => self.ignored.unknown_job += 1,
            Whereabouts::InPhase(seat) => {
                self.ignored.repeated += 1;
                actions.push(match self.records.phase(seat).share() {
                    0.0 => Action::Hold { job },
                    share => Action::Grant { job, share: self.share_of_all.unwrap_or(share) },
                });
            }
            Whereabouts::Outside => {
                self.arrivals += 1;
                let phase = Phase::new(self.arrivals, bytes, self.now_ns);
                let seat = self.records.begin_phase(job, phase);
                let (policy, mut desk) = self.desk(actions);
                policy.began(job, &mut desk);
                if self.records.phase(seat).share() == 0.0 {
                    actions.push(Action::Hold { job });
                }
            }
        }
    }

    /// The policy looks at the job again, as if it had moved nothing since it last did.
    fn announced(&mut self, job: JobId, bytes: Option<u64>, actions: &mut Vec<Action>) {
        let Some(seat) = self.seat_of(job) else { return };
        self.records.phase(seat).announce(bytes);
        let (policy, mut desk) = self.desk(actions);
        policy.moved(job, &mut desk);
    }

    fn period_told(&mut self, job: JobId, w_iter_ns: Option<u64>) {
        match self.records.find(job) {
            Whereabouts::Absent => self.ignored.unknown_job += 1,
            Whereabouts::InPhase(_) => self.ignored.in_phase += 1,
            Whereabouts::Outside => self.records.tell_period(job, w_iter_ns),
        }
    }

    fn moved(&mut self, job: JobId, bytes: u64, actions: &mut Vec<Action>) {
        let Some(seat) = self.seat_of(job) else { return };
        self.records.phase(seat).add_bytes(bytes);
        let (policy, mut desk) = self.desk(actions);
        policy.moved(job, &mut desk);
    }

    fn ended(&mut self, job: JobId, actions: &mut Vec<Action>) {
        let Some(seat) = self.seat_of(job) else { return };
        self.finish_phase(seat, true, actions);
    }

    /// The seat of a job that should be in a phase.
    fn seat_of(&mut self, job: JobId) -> Option<Seat> {
        match self.records.find(job) {
            Whereabouts::Absent => self.ignored.unknown_job += 1,
            Whereabouts::Outside => self.ignored.no_phase += 1,
            Whereabouts::InPhase(seat) => return Some(seat),
        }
        None
    }

    /// The policy hears of the end while the record still shows the phase; then the seat is free.
    fn finish_phase(&mut self, seat: Seat, whole: bool, actions: &mut Vec<Action>) {
        self.records.phase(seat).set_share(self.now_ns, 0.0);
        let (policy, mut desk) = self.desk(actions);
        desk.cut_short = !whole;
        policy.ended(seat.job, &mut desk);
        self.records.end_phase(seat, self.now_ns, whole);
    }

    fn left(&mut self, job: JobId, actions: &mut Vec<Action>) {
        match self.records.find(job) {
            Whereabouts::Absent => {
                self.ignored.unknown_job += 1;
                return;
            }
            Whereabouts::Outside => {}
            Whereabouts::InPhase(seat) => self.finish_phase(seat, false, actions),
        }
        let (policy, mut desk) = self.desk(actions);
        policy.left(job, &mut desk);
        self.records.leave(job);
    }
}
