//! Bandwidth handed out in order of priority: each job what it can use, until nothing is left.
//!
//! This is what "favours" means in the APIO paper's section 3.3.1: at every event the jobs are
//! ordered anew and `b_i = min(B_i, what is left)` (section 3.1.2). Sorting all of them at every event would
//! cost `n log n`; here only those who change places are touched.

use super::tournament::{Line, Lowest, Place, Tournament};
use crate::engine::{Desk, JobId};

/// Bandwidth in billionths, so that what is handed out sums up exactly.
const ALL: u64 = 1_000_000_000;

/// Invariant after [`Greedy::settle`]: nobody who waits ranks above anybody served; all served have
/// their cap, but for the lowest one, who has what is left; and nobody waits while something is left.
#[derive(Default)]
pub(super) struct Greedy {
    waiting: Tournament,
    served: Lowest,
    /// By seat.
    claims: Vec<Claim>,
    served_caps: u64,
    /// The lowest of the served, whose share may be less than its cap.
    lowest: Option<JobId>,
    /// Those whose share is to be brought up to date when settled.
    changed: Vec<JobId>,
}

#[derive(Clone, Copy)]
struct Claim {
    cap: u64,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq)]
enum Standing {
    Gone,
    Waiting(Place),
    Served(Place),
}

impl Greedy {
    /// The job asks for bandwidth, of which it can use the part it said it could.
    pub(super) fn enter(&mut self, job: JobId, line: Line, desk: &Desk) {
        self.enter_with_cap(job, desk.job(job).cap(), line, desk);
    }

    /// The job asks for bandwidth, of which it can use a part `cap`.
    pub(super) fn enter_with_cap(&mut self, job: JobId, cap: f64, line: Line, desk: &Desk) {
        let seat = desk.seat(job);
        if self.claims.len() <= seat {
            self.claims.resize(seat + 1, Claim { cap: 0, standing: Standing::Gone });
        }
        let place = self.waiting.enter(desk.now_ns, job, line, desk.job(job).arrival());
        self.claims[seat] = Claim { cap: billionths(cap), standing: Standing::Waiting(place) };
    }

    /// It turns out that a served job can use another part. To be settled in the same step.
    pub(super) fn change_cap(&mut self, job: JobId, cap: f64, desk: &Desk) {
        let claim = &mut self.claims[desk.seat(job)];
        let before = std::mem::replace(&mut claim.cap, billionths(cap));
        self.served_caps = self.served_caps - before + claim.cap;
        self.changed.push(job);
    }

    /// The job asks no more; the engine has taken its share away.
    pub(super) fn leave(&mut self, job: JobId, desk: &Desk) {
        let claim = &mut self.claims[desk.seat(job)];
        match std::mem::replace(&mut claim.standing, Standing::Gone) {
            Standing::Gone => {}
            Standing::Waiting(place) => self.waiting.withdraw(desk.now_ns, place),
            Standing::Served(place) => {
                self.served.withdraw(desk.now_ns, place);
                self.served_caps -= claim.cap;
                if self.lowest == Some(job) {
                    self.lowest = None;
                }
            }
        }
    }

    pub(super) fn somebody_waits(&mut self, now_ns: u64) -> bool {
        self.waiting.first(now_ns).is_some()
    }

    pub(super) fn is_served(&self, job: JobId, desk: &Desk) -> bool {
        matches!(self.claim(job, desk).standing, Standing::Served(_))
    }

    /// The job, if it is the only one served.
    pub(super) fn only_served(&self, desk: &Desk) -> Option<JobId> {
        self.lowest.filter(|&job| self.claim(job, desk).cap == self.served_caps)
    }

    /// Another line for a job that is in here.
    pub(super) fn change(&mut self, job: JobId, line: Line, desk: &Desk) {
        match self.claim(job, desk).standing {
            Standing::Gone => {}
            Standing::Waiting(place) => self.waiting.change(desk.now_ns, place, line),
            Standing::Served(place) => self.served.change(desk.now_ns, place, line),
        }
    }

    fn claim(&self, job: JobId, desk: &Desk) -> Claim {
        self.claims[desk.seat(job)]
    }

    /// Brings the grants up to date. `line` gives a job's line as it starts or stops being served.
    pub(super) fn settle(&mut self, desk: &mut Desk, mut line: impl FnMut(JobId, bool, &Desk) -> Line) {
        let now_ns = desk.now_ns;
        self.trim(desk, &mut line);
        while let Some((best, best_value)) = self.waiting.first(now_ns) {
            let beats_the_lowest = |(_, lowest_value): (JobId, f64)| best_value > lowest_value;
            let is_next = self.served_caps < ALL || self.served.first(now_ns).is_some_and(beats_the_lowest);
            if !is_next {
                break;
            }
            self.serve(best, line(best, true, desk), desk);
            self.trim(desk, &mut line);
        }
        self.share_what_is_left(desk);
    }

    fn serve(&mut self, job: JobId, line: Line, desk: &Desk) {
        let claim = &mut self.claims[desk.seat(job)];
        if let Standing::Waiting(place) = claim.standing {
            self.waiting.withdraw(desk.now_ns, place);
        }
        let place = self.served.enter(desk.now_ns, job, line, desk.job(job).arrival());
        claim.standing = Standing::Served(place);
        self.served_caps += claim.cap;
        self.changed.push(job);
    }

    /// Those for whom nothing is left go back to waiting.
    fn trim(&mut self, desk: &mut Desk, line: &mut impl FnMut(JobId, bool, &Desk) -> Line) {
        while let Some((lowest, _)) = self.served.first(desk.now_ns) {
            let claim = &mut self.claims[desk.seat(lowest)];
            let above = self.served_caps - claim.cap;
            if above < ALL {
                break;
            }
            if let Standing::Served(place) = claim.standing {
                self.served.withdraw(desk.now_ns, place);
            }
            self.served_caps = above;
            let (line, arrival) = (line(lowest, false, desk), desk.job(lowest).arrival());
            claim.standing = Standing::Waiting(self.waiting.enter(desk.now_ns, lowest, line, arrival));
            desk.hold(lowest);
        }
    }

    /// Everybody has its cap, the lowest what is left.
    fn share_what_is_left(&mut self, desk: &mut Desk) {
        let lowest = self.served.first(desk.now_ns).map(|(job, _)| job);
        self.changed.extend(self.lowest.filter(|_| self.lowest != lowest));
        self.lowest = lowest;
        if let Some(job) = lowest {
            let cap = self.claim(job, desk).cap;
            let above = self.served_caps - cap;
            desk.grant(job, cap.min(ALL - above) as f64 / ALL as f64);
        }
        while let Some(job) = self.changed.pop() {
            if self.is_served(job, desk) && lowest != Some(job) {
                desk.grant(job, self.claim(job, desk).cap as f64 / ALL as f64);
            }
        }
    }
}

fn billionths(part: f64) -> u64 {
    ((part * ALL as f64).round() as u64).clamp(1, ALL)
}
