//! What the engine knows of each job, laid out so that an event touches little memory.
//!
//! Of a hundred thousand jobs, few are in an I/O phase at a time, and the others are not in the
//! processor's cache. What is known of a phase under way lies close together with that of other phases, and all
//! else that is asked of a job is one cache line.

use crate::engine::{JobId, JobInfo, elapsed_ns};

/// What the engine knows of one job. Times are the engine's.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub history: &'a History,
    phase: &'a Phase,
    id: JobId,
    /// Of all jobs, so that only who asks looks there.
    told: &'a [Told],
}

/// What a job has done up to now. A cache line, and no more.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
pub struct History {
    pub joined_ns: u64,
    /// Since when the job has been where it is: in its phase, or outside.
    since_ns: u64,
    /// Time spent outside I/O phases up to the beginning of the latest phase.
    pub compute_ns: u64,
    /// The number of the job's seat, [`OUTSIDE`] or [`ABSENT`].
    seat: u32,
    past_count: u32,
    /// What past phases moved: the mean, and the squared differences from it.
    pub past_mean_bytes: f64,
    past_squares: f64,
    /// Time the past phases would have taken with the storage alone: shares integrated over time.
    pub past_io_ns: f64,
    /// [`JobInfo::cap`]; not a number where it was not told.
    cap: f64,
}

/// What else a job said when it joined. Few policies ask for it.
#[derive(Clone, Copy, Debug)]
struct Told {
    w_iter_ns: Option<u64>,
    nodes: u64,
}

/// A phase under way.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Phase {
    arrival: u64,
    announced_bytes: Option<u64>,
    moved_bytes: u64,
    /// Shares integrated over time, up to `share_since_ns`.
    io_ns: f64,
    share: f64,
    share_since_ns: u64,
}

const _: () = assert!(size_of::<History>() == 64 && size_of::<Phase>() == 64);

/// Of a job that is outside.
const NO_PHASE: Phase =
    Phase { arrival: 0, announced_bytes: None, moved_bytes: 0, io_ns: 0.0, share: 0.0, share_since_ns: 0 };

impl History {
    fn new(info: JobInfo, now_ns: u64) -> History {
        History {
            joined_ns: now_ns,
            since_ns: now_ns,
            compute_ns: 0,
            seat: OUTSIDE,
            past_count: 0,
            past_mean_bytes: 0.0,
            past_squares: 0.0,
            past_io_ns: 0.0,
            cap: info.cap.unwrap_or(f64::NAN),
        }
    }

    /// Phases that ended.
    pub fn past_phases(&self) -> u64 {
        u64::from(self.past_count)
    }

    /// Standard deviation of what past phases moved, of the sample; zero when fewer than two are known.
    pub fn past_deviation_bytes(&self) -> f64 {
        if self.past_count < 2 { 0.0 } else { (self.past_squares / f64::from(self.past_count - 1)).sqrt() }
    }

    /// Mean and variance are kept up to date as each phase ends (Welford's way).
    fn remember(&mut self, phase: &Phase) {
        self.past_count = self.past_count.saturating_add(1);
        let before = phase.moved_bytes as f64 - self.past_mean_bytes;
        self.past_mean_bytes += before / f64::from(self.past_count);
        self.past_squares += before * (phase.moved_bytes as f64 - self.past_mean_bytes);
        self.past_io_ns += phase.io_ns;
    }
}

impl Job<'_> {
    /// Grows with every phase of any job: who came first. Zero outside phases.
    pub fn arrival(&self) -> u64 {
        self.phase.arrival
    }

    /// When the phase under way began.
    pub fn phase_began_ns(&self) -> Option<u64> {
        (self.phase.arrival > 0).then_some(self.history.since_ns)
    }

    /// What the phase under way said it would move.
    pub fn announced_bytes(&self) -> Option<u64> {
        self.phase.announced_bytes
    }

    /// Moved in the phase under way.
    pub fn moved_bytes(&self) -> u64 {
        self.phase.moved_bytes
    }

    /// The share granted now; zero while held or outside a phase.
    pub fn share(&self) -> f64 {
        self.phase.share
    }

    /// Since when the job has had this share.
    pub fn share_since_ns(&self) -> u64 {
        self.phase.share_since_ns
    }

    /// `B_i / B`, if the job said it.
    pub fn told_cap(&self) -> Option<f64> {
        Some(self.history.cap).filter(|cap| !cap.is_nan())
    }

    /// `B_i / B`, one when not known.
    pub fn cap(&self) -> f64 {
        self.told_cap().unwrap_or(1.0)
    }

    /// `β_i`.
    pub fn nodes(&self) -> u64 {
        self.told[self.id.index()].nodes
    }

    /// `w_iter`: as given, or learnt: what the job has computed so far, and the I/O of its past
    /// phases as if alone, over the number of phases (eq. 2). Time spent waiting is not its own.
    pub fn w_iter_ns(&self) -> f64 {
        if let Some(given_ns) = self.told[self.id.index()].w_iter_ns {
            return given_ns as f64;
        }
        let History { compute_ns, past_io_ns, .. } = *self.history;
        let past_phases = self.history.past_phases();
        let computed_phases = past_phases + u64::from(self.phase_began_ns().is_some());
        compute_ns as f64 / computed_phases.max(1) as f64 + past_io_ns / past_phases.max(1) as f64
    }
}

impl Phase {
    pub(crate) fn new(arrival: u64, announced_bytes: Option<u64>, now_ns: u64) -> Phase {
        Phase { arrival, announced_bytes, share_since_ns: now_ns, ..NO_PHASE }
    }

    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    pub(crate) fn set_share(&mut self, now_ns: u64, share: f64) {
        self.io_ns += self.share * elapsed_ns(self.share_since_ns, now_ns);
        self.share_since_ns = now_ns;
        self.share = share;
    }

    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
    }
}

/// Where a job is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// It has not joined, or has left.
    Absent,
    Outside,
    InPhase(Seat),
}

/// A job in its phase, and a number that is its own until the phase ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat {
    pub(crate) job: JobId,
    pub(crate) number: u32,
}

impl Seat {
    /// Nobody's.
    pub(crate) const NONE: Seat = Seat { job: JobId(u32::MAX), number: u32::MAX };

    pub(crate) fn index(self) -> usize {
        self.number as usize
    }
}

const ABSENT: u32 = u32::MAX;
const OUTSIDE: u32 = u32::MAX - 1;

/// All jobs. Those in their phase have a [`Seat`], whose number is no higher than the most jobs that have been in a
/// phase at once.
#[derive(Default)]
pub(crate) struct Records {
    /// By job.
    histories: Vec<History>,
    told: Vec<Told>,
    /// By seat.
    phases: Vec<Phase>,
    free: Vec<u32>,
}

impl Records {
    #[inline]
    pub(crate) fn find(&self, job: JobId) -> Whereabouts {
        match self.histories.get(job.index()).map_or(ABSENT, |history| history.seat) {
            ABSENT => Whereabouts::Absent,
            OUTSIDE => Whereabouts::Outside,
            number => Whereabouts::InPhase(Seat { job, number }),
        }
    }

    pub(crate) fn get(&self, job: JobId) -> Option<Job<'_>> {
        let phase = match self.find(job) {
            Whereabouts::Absent => return None,
            Whereabouts::Outside => &NO_PHASE,
            Whereabouts::InPhase(seat) => &self.phases[seat.index()],
        };
        Some(self.job(job, phase))
    }

    /// A job in its phase.
    #[inline]
    pub(crate) fn seated(&self, seat: Seat) -> Job<'_> {
        self.job(seat.job, &self.phases[seat.index()])
    }

    fn job<'a>(&'a self, job: JobId, phase: &'a Phase) -> Job<'a> {
        Job { history: &self.histories[job.index()], phase, id: job, told: &self.told }
    }

    #[inline]
    pub(crate) fn phase(&mut self, seat: Seat) -> &mut Phase {
        &mut self.phases[seat.index()]
    }

    /// The job must be absent.
    pub(crate) fn join(&mut self, job: JobId, info: JobInfo, now_ns: u64) {
        let history = History::new(info, now_ns);
        let told = Told { w_iter_ns: info.w_iter_ns, nodes: info.nodes };
        if self.histories.len() <= job.index() {
            self.histories.resize(job.index() + 1, History { seat: ABSENT, ..history });
            self.told.resize(job.index() + 1, told);
        }
        self.histories[job.index()] = history;
        self.told[job.index()] = told;
    }

    /// The job must be outside.
    pub(crate) fn leave(&mut self, job: JobId) {
        self.histories[job.index()].seat = ABSENT;
    }

    /// The job must be outside. Answers its seat.
    pub(crate) fn begin_phase(&mut self, job: JobId, phase: Phase, now_ns: u64) -> Seat {
        let number = self.free.pop().unwrap_or(self.phases.len() as u32);
        match self.phases.get_mut(number as usize) {
            Some(free) => *free = phase,
            None => self.phases.push(phase),
        }
        let history = &mut self.histories[job.index()];
        history.compute_ns += now_ns - history.since_ns;
        history.since_ns = now_ns;
        history.seat = number;
        Seat { job, number }
    }

    /// The phase counts among the past ones.
    pub(crate) fn remember_phase(&mut self, seat: Seat) {
        self.histories[seat.job.index()].remember(&self.phases[seat.index()]);
    }

    pub(crate) fn end_phase(&mut self, seat: Seat, now_ns: u64) {
        let history = &mut self.histories[seat.job.index()];
        history.since_ns = now_ns;
        history.seat = OUTSIDE;
        self.free.push(seat.number);
    }
}
