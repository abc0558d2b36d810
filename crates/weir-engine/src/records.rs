//! What the engine knows of each job, laid out so that an event touches little memory.
//!
//! Of a hundred thousand jobs, few are in an I/O phase at a time, and the others are not in the
//! processor's cache. Where each job is takes four bytes of its own, so that an event does not have to wait for
//! more than that; what is known of a phase under way lies close together with that of other phases; and all else
//! that is asked of a job is one cache line. Policies that ask for it wait for it; those that do not should not, so
//! what phases that ended add to it is entered for several jobs at once: the processor then fetches their lines side by side.

use crate::engine::{InstanceInfo, JobId, JobInfo, Past, elapsed_ns};

/// What the engine knows of one job. Times are the engine's.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    history: &'a History,
    /// Its latest phase, where that is not in its history yet.
    ended: Option<&'a Ended>,
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
    /// When its latest phase ended, or when it joined.
    ended_ns: u64,
    /// Time spent outside I/O phases until the latest one that ended had begun.
    compute_ns: u64,
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
    usual_w_iter_ns: Option<u64>,
    nodes: u64,
    instance: Option<InstanceInfo>,
    past: Past,
}

/// What a job usually does counts like this many of its phases: a first phase that comes early must not undo it, and a job
/// that has another period today is known after some.
const USUAL_PHASES: f64 = 2.0;

/// The mean of what is usual for a job and of what this many phases of its own have shown.
pub fn mean_with_usual(usual: f64, own: f64, phases: u64) -> f64 {
    let phases = phases as f64;
    (USUAL_PHASES * usual + phases * own) / (USUAL_PHASES + phases)
}

/// A phase under way.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Phase {
    arrival: u64,
    began_ns: u64,
    announced_bytes: Option<u64>,
    moved_bytes: u64,
    /// Shares integrated over time, up to `share_since_ns`.
    io_ns: f64,
    share: f64,
    share_since_ns: u64,
}

const _: () = assert!(size_of::<History>() == 64 && size_of::<Phase>() == 64);

/// Of a job that is outside.
const NO_PHASE: Phase = Phase {
    arrival: 0,
    began_ns: 0,
    announced_bytes: None,
    moved_bytes: 0,
    io_ns: 0.0,
    share: 0.0,
    share_since_ns: 0,
};

impl History {
    fn new(info: JobInfo, now_ns: u64) -> History {
        History {
            joined_ns: now_ns,
            ended_ns: now_ns,
            compute_ns: 0,
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
    #[inline]
    fn enter(&mut self, ended: &Ended) {
        self.compute_ns += ended.began_ns - self.ended_ns;
        self.ended_ns = ended.ended_ns;
        if let Some(moved_bytes) = ended.moved_bytes {
            self.past_count = self.past_count.saturating_add(1);
            let before = moved_bytes as f64 - self.past_mean_bytes;
            self.past_mean_bytes += before / f64::from(self.past_count);
            self.past_squares += before * (moved_bytes as f64 - self.past_mean_bytes);
            self.past_io_ns += ended.io_ns;
        }
    }
}

impl Job<'_> {
    /// Up to the phase under way, which is not among the past ones until it is over.
    #[inline]
    pub fn history(&self) -> History {
        let mut history = *self.history;
        if let Some(ended) = self.ended {
            history.enter(ended);
        }
        history
    }

    /// Grows with every phase of any job: who came first. Zero outside phases.
    pub fn arrival(&self) -> u64 {
        self.phase.arrival
    }

    /// When the phase under way began.
    pub fn phase_began_ns(&self) -> Option<u64> {
        (self.phase.arrival > 0).then_some(self.phase.began_ns)
    }

    /// Time spent outside I/O phases up to the beginning of the latest phase.
    pub fn compute_ns(&self) -> u64 {
        let History { compute_ns, ended_ns, .. } = self.history();
        compute_ns + self.phase_began_ns().map_or(0, |began_ns| began_ns - ended_ns)
    }

    /// What the phase under way said it would move.
    pub fn announced_bytes(&self) -> Option<u64> {
        self.phase.announced_bytes
    }

    /// Moved in the phase under way.
    pub fn moved_bytes(&self) -> u64 {
        self.phase.moved_bytes
    }

    /// Time the phase under way would have taken so far with the storage alone, up to the latest change of its share.
    pub(crate) fn io_ns(&self) -> f64 {
        self.phase.io_ns
    }

    /// The same, up to now.
    pub(crate) fn io_until_ns(&self, now_ns: u64) -> f64 {
        self.phase.io_ns + self.phase.share * elapsed_ns(self.phase.share_since_ns, now_ns)
    }

    /// Whether anything but the compute time before its first phase says how often the job does I/O.
    pub fn has_known_period(&self) -> bool {
        let told = &self.told[self.id.index()];
        told.w_iter_ns.is_some() || told.usual_w_iter_ns.is_some() || self.history.past_count > 0
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
        Some(self.history().cap).filter(|cap| !cap.is_nan())
    }

    /// `B_i / B`, one when not known.
    pub fn cap(&self) -> f64 {
        self.told_cap().unwrap_or(1.0)
    }

    /// `β_i`.
    pub fn nodes(&self) -> u64 {
        self.told[self.id.index()].nodes
    }

    /// What was known of the job before it joined.
    pub fn past(&self) -> Past {
        self.told[self.id.index()].past
    }

    /// All that is told of the job.
    pub(crate) fn info(&self) -> JobInfo {
        let Told { w_iter_ns, usual_w_iter_ns, nodes, instance, past } = self.told[self.id.index()];
        JobInfo { w_iter_ns, usual_w_iter_ns, nodes, instance, past, cap: self.told_cap() }
    }

    /// `w_iter`: as given, or learnt: what the job has computed so far, and the I/O of its past
    /// phases as if alone, over the number of phases (eq. 2). Time spent waiting is not its own. What is usual for
    /// the job counts beside what is learnt, as the paper has no history.
    pub fn w_iter_ns(&self) -> f64 {
        let told = &self.told[self.id.index()];
        if let Some(given_ns) = told.w_iter_ns {
            return given_ns as f64;
        }
        let history = self.history();
        let past_phases = history.past_phases();
        let computed_phases = past_phases + u64::from(self.phase_began_ns().is_some());
        let compute_ns = self.compute_ns() as f64 / computed_phases.max(1) as f64;
        let own_ns = compute_ns + history.past_io_ns / past_phases.max(1) as f64;
        told.usual_w_iter_ns.map_or(own_ns, |usual_ns| mean_with_usual(usual_ns as f64, own_ns, past_phases))
    }
}

impl Phase {
    pub(crate) fn new(arrival: u64, announced_bytes: Option<u64>, now_ns: u64) -> Phase {
        Phase { arrival, began_ns: now_ns, announced_bytes, share_since_ns: now_ns, ..NO_PHASE }
    }

    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    pub(crate) fn set_share(&mut self, now_ns: u64, share: f64) {
        self.io_ns += self.share * elapsed_ns(self.share_since_ns, now_ns);
        self.share_since_ns = now_ns;
        self.share = share;
    }

    pub(crate) fn announce(&mut self, bytes: Option<u64>) {
        self.announced_bytes = bytes;
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
/// Outside, since a phase that is among those that [`Records::ended`].
const JUST_OUTSIDE: u32 = u32::MAX - 2;

/// A phase that is over.
#[derive(Clone, Copy, Debug)]
struct Ended {
    job: JobId,
    began_ns: u64,
    ended_ns: u64,
    io_ns: f64,
    /// `None` of one that was cut short: it says nothing of the job's volumes, so it is not counted among them.
    moved_bytes: Option<u64>,
}

/// So many are entered into their histories at once: about as many cache lines as a processor fetches at a time.
const MOST_ENDED: usize = 16;

/// All jobs. Those in their phase have a [`Seat`], whose number is no higher than the most jobs that have been in a
/// phase at once.
#[derive(Default)]
pub(crate) struct Records {
    /// By job: the number of its seat, or [`OUTSIDE`], [`JUST_OUTSIDE`] or [`ABSENT`].
    seats: Vec<u32>,
    histories: Vec<History>,
    told: Vec<Told>,
    /// By seat.
    phases: Vec<Phase>,
    free: Vec<u32>,
    /// To be entered into the histories, each before its job begins another.
    ended: Vec<Ended>,
}

impl Records {
    #[inline]
    pub(crate) fn find(&self, job: JobId) -> Whereabouts {
        match self.seats.get(job.index()).copied().unwrap_or(ABSENT) {
            ABSENT => Whereabouts::Absent,
            OUTSIDE | JUST_OUTSIDE => Whereabouts::Outside,
            number => Whereabouts::InPhase(Seat { job, number }),
        }
    }

    pub(crate) fn get(&self, job: JobId) -> Option<Job<'_>> {
        match self.find(job) {
            Whereabouts::Absent => None,
            Whereabouts::InPhase(seat) => Some(self.seated(seat)),
            Whereabouts::Outside => {
                let ended = self.ended.iter().find(|ended| ended.job == job);
                Some(Job { ended, ..self.job(job, &NO_PHASE) })
            }
        }
    }

    /// A job in its phase.
    #[inline]
    pub(crate) fn seated(&self, seat: Seat) -> Job<'_> {
        self.job(seat.job, &self.phases[seat.index()])
    }

    #[inline]
    fn job<'a>(&'a self, job: JobId, phase: &'a Phase) -> Job<'a> {
        Job { history: &self.histories[job.index()], ended: None, phase, id: job, told: &self.told }
    }

    #[inline]
    pub(crate) fn phase(&mut self, seat: Seat) -> &mut Phase {
        &mut self.phases[seat.index()]
    }

    /// The job must be absent.
    pub(crate) fn join(&mut self, job: JobId, info: JobInfo, now_ns: u64) {
        let history = History::new(info, now_ns);
        let JobInfo { w_iter_ns, usual_w_iter_ns, nodes, instance, past, .. } = info;
        let told = Told { w_iter_ns, usual_w_iter_ns, nodes, instance, past };
        if self.seats.len() <= job.index() {
            self.seats.resize(job.index() + 1, ABSENT);
            self.histories.resize(job.index() + 1, history);
            self.told.resize(job.index() + 1, told);
        }
        self.seats[job.index()] = OUTSIDE;
        self.histories[job.index()] = history;
        self.told[job.index()] = told;
    }

    /// The job must be outside. Its characteristic time is this, or is learnt.
    pub(crate) fn tell_period(&mut self, job: JobId, w_iter_ns: Option<u64>) {
        self.told[job.index()].w_iter_ns = w_iter_ns;
    }

    /// The job must be outside.
    pub(crate) fn leave(&mut self, job: JobId) {
        self.enter_ended();
        self.seats[job.index()] = ABSENT;
    }

    /// The job must be outside. Answers its seat.
    pub(crate) fn begin_phase(&mut self, job: JobId, phase: Phase) -> Seat {
        if self.seats[job.index()] == JUST_OUTSIDE {
            self.enter_ended();
        }
        let number = self.free.pop().unwrap_or(self.phases.len() as u32);
        match self.phases.get_mut(number as usize) {
            Some(free) => *free = phase,
            None => self.phases.push(phase),
        }
        self.seats[job.index()] = number;
        Seat { job, number }
    }

    /// `whole` unless the phase was cut short.
    pub(crate) fn end_phase(&mut self, seat: Seat, now_ns: u64, whole: bool) {
        let &Phase { began_ns, io_ns, moved_bytes, .. } = &self.phases[seat.index()];
        let moved_bytes = whole.then_some(moved_bytes);
        if self.ended.len() == MOST_ENDED {
            self.enter_ended();
        }
        self.ended.push(Ended { job: seat.job, began_ns, ended_ns: now_ns, io_ns, moved_bytes });
        self.seats[seat.job.index()] = JUST_OUTSIDE;
        self.free.push(seat.number);
    }

    fn enter_ended(&mut self) {
        for ended in self.ended.drain(..) {
            self.histories[ended.job.index()].enter(&ended);
            self.seats[ended.job.index()] = OUTSIDE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(0);

    fn phase(records: &mut Records, began_ns: u64, ended_ns: u64, bytes: u64, whole: bool) {
        let seat = records.begin_phase(JOB, Phase::new(1, None, began_ns));
        records.phase(seat).add_bytes(bytes);
        records.end_phase(seat, ended_ns, whole);
    }

    /// A phase counts from the moment it ends, entered or not, and never twice.
    #[test]
    fn the_latest_phase_is_in_the_history() {
        let mut records = Records::default();
        records.join(JOB, JobInfo::default(), 100);
        let known = |records: &Records| {
            let job = records.get(JOB).expect("joined");
            (job.history().past_phases(), job.history().past_mean_bytes, job.compute_ns())
        };
        phase(&mut records, 110, 150, 4, true);
        assert_eq!(known(&records), (1, 4.0, 10));
        phase(&mut records, 153, 160, 8, true);
        assert_eq!(known(&records), (2, 6.0, 13));
        phase(&mut records, 165, 170, 100, false);
        assert_eq!(known(&records), (2, 6.0, 18), "one that was cut short");
        records.enter_ended();
        assert_eq!(known(&records), (2, 6.0, 18));
    }

    /// A job that usually has a phase every 1,000 ns has one every 100 today.
    #[test]
    fn what_is_usual_counts_until_own_phases_outweigh_it() {
        let mut records = Records::default();
        let w_iter_ns = |records: &Records| records.get(JOB).expect("joined").w_iter_ns();
        let run = |info: JobInfo| {
            let mut records = Records::default();
            records.join(JOB, info, 0);
            (0..20).for_each(|number| phase(&mut records, 100 * (number + 1), 100 * (number + 1), 1, true));
            w_iter_ns(&records)
        };
        let usual = JobInfo { usual_w_iter_ns: Some(1000), ..JobInfo::default() };
        records.join(JOB, usual, 0);
        assert_eq!(w_iter_ns(&records), 1000.0);
        let seat = records.begin_phase(JOB, Phase::new(1, None, 1));
        assert_eq!(w_iter_ns(&records), 1000.0, "a first phase at once says nothing");
        records.end_phase(seat, 1, true);
        assert!(w_iter_ns(&records) > 500.0, "nor when it is over");
        assert!((100.0..200.0).contains(&run(usual)), "{}", run(usual));
        assert_eq!(run(JobInfo::default()), 100.0);
        assert_eq!(run(JobInfo { w_iter_ns: Some(1000), ..usual }), 1000.0, "what is given exactly stays");
    }

    #[test]
    fn who_joins_again_has_no_past() {
        let mut records = Records::default();
        records.join(JOB, JobInfo::default(), 0);
        phase(&mut records, 10, 20, 1, true);
        records.leave(JOB);
        assert!(records.get(JOB).is_none());
        records.join(JOB, JobInfo::default(), 30);
        phase(&mut records, 40, 50, 7, true);
        let job = records.get(JOB).expect("joined");
        assert_eq!(
            (job.history().past_phases(), job.history().past_mean_bytes, job.compute_ns()),
            (1, 7.0, 10)
        );
    }
}
