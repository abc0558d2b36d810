//! Bandwidth handed out in order of priority: each job what it can use, until nothing is left.
//!
//! This is what "favours" means in the APIO paper's section 3.3.1: at every event the jobs are
//! ordered anew and `b_i = min(B_i, what is left)` (section 3.1.2). Sorting all of them at every event would
//! cost `n log n`; here only those who change places are touched.

use super::tournament::{Line, Lowest, Place, Tournament};
use crate::engine::Desk;
use crate::records::Seat;

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
    lowest: Option<Seat>,
    /// Those whose share is to be brought up to date when settled.
    changed: Vec<Seat>,
}

#[derive(Clone, Copy)]
struct Claim {
    /// [`AS_TOLD`] until it is served.
    cap: u64,
    standing: Standing,
}

/// Who waits is not asked yet: what a job said when it joined is seldom in the cache.
const AS_TOLD: u64 = 0;

#[derive(Clone, Copy, PartialEq)]
enum Standing {
    Gone,
    Waiting(Place),
    Served(Place),
}

impl Greedy {
    /// The job asks for bandwidth, of which it can use the part it said it could.
    pub(super) fn enter(&mut self, seat: Seat, line: Line, desk: &Desk) {
        self.claim_bandwidth(seat, AS_TOLD, line, desk);
    }

    /// The job asks for bandwidth, of which it can use a part `cap`.
    pub(super) fn enter_with_cap(&mut self, seat: Seat, cap: f64, line: Line, desk: &Desk) {
        self.claim_bandwidth(seat, billionths(cap), line, desk);
    }

    fn claim_bandwidth(&mut self, seat: Seat, cap: u64, line: Line, desk: &Desk) {
        if self.claims.len() <= seat.index() {
            self.claims.resize(seat.index() + 1, Claim { cap: 0, standing: Standing::Gone });
        }
        let place = self.waiting.enter(desk.now_ns, seat, line, desk.seated(seat).arrival());
        self.claims[seat.index()] = Claim { cap, standing: Standing::Waiting(place) };
    }

    /// It turns out that a served job can use another part. To be settled in the same step.
    pub(super) fn change_cap(&mut self, seat: Seat, cap: f64) {
        let claim = &mut self.claims[seat.index()];
        let before = std::mem::replace(&mut claim.cap, billionths(cap));
        self.served_caps = self.served_caps - before + claim.cap;
        self.changed.push(seat);
    }

    /// The job asks no more; the engine has taken its share away. To be settled in the same step.
    pub(super) fn leave(&mut self, seat: Seat) {
        let claim = &mut self.claims[seat.index()];
        match std::mem::replace(&mut claim.standing, Standing::Gone) {
            Standing::Gone => {}
            Standing::Waiting(place) => self.waiting.withdraw(place),
            Standing::Served(place) => {
                let cap = claim.cap;
                self.stop(place, cap);
            }
        }
    }

    pub(super) fn somebody_waits(&mut self, now_ns: u64) -> bool {
        self.waiting.first(now_ns).is_some()
    }

    pub(super) fn is_served(&self, seat: Seat) -> bool {
        matches!(self.claim(seat).standing, Standing::Served(_))
    }

    /// The served job with the lowest rank, as of when last settled.
    pub(super) fn lowest_served(&self) -> Option<Seat> {
        self.lowest.filter(|&seat| self.is_served(seat))
    }

    /// The job, if it is the only one served.
    pub(super) fn only_served(&self) -> Option<Seat> {
        self.lowest.filter(|&seat| self.claim(seat).cap == self.served_caps)
    }

    /// Another line for a job that is in here.
    pub(super) fn change(&mut self, seat: Seat, line: Line, desk: &Desk) {
        match self.claim(seat).standing {
            Standing::Gone => {}
            Standing::Waiting(place) => self.waiting.change(desk.now_ns, place, line),
            Standing::Served(place) => self.served.change(desk.now_ns, place, line),
        }
    }

    fn claim(&self, seat: Seat) -> Claim {
        self.claims[seat.index()]
    }

    /// Brings the grants up to date. `line` gives a job's line as it starts or stops being served.
    pub(super) fn settle(&mut self, desk: &mut Desk, mut line: impl FnMut(Seat, bool, &Desk) -> Line) {
        let now_ns = desk.now_ns;
        self.trim(desk, &mut line);
        while let Some((best, best_value)) = self.waiting.first(now_ns) {
            let beats_the_lowest = |(_, lowest_value): (Seat, f64)| best_value > lowest_value;
            let is_next = self.served_caps < ALL || self.served.first(now_ns).is_some_and(beats_the_lowest);
            if !is_next {
                break;
            }
            self.serve(best, line(best, true, desk), desk);
            self.trim(desk, &mut line);
        }
        let lowest = self.served.first(now_ns).map(|(seat, _)| seat);
        if lowest != self.lowest || !self.changed.is_empty() {
            self.share_what_is_left(lowest, desk);
        }
    }

    fn serve(&mut self, seat: Seat, line: Line, desk: &Desk) {
        let claim = &mut self.claims[seat.index()];
        if let Standing::Waiting(place) = claim.standing {
            self.waiting.withdraw(place);
        }
        let place = self.served.enter(desk.now_ns, seat, line, desk.seated(seat).arrival());
        claim.standing = Standing::Served(place);
        if claim.cap == AS_TOLD {
            claim.cap = billionths(desk.seated(seat).cap());
        }
        self.served_caps += claim.cap;
        self.changed.push(seat);
    }

    /// Somebody is served no more; the lowest may have more from now on.
    fn stop(&mut self, place: Place, cap: u64) {
        self.served.withdraw(place);
        self.served_caps -= cap;
        self.changed.extend(self.lowest);
    }

    /// Those for whom nothing is left go back to waiting.
    fn trim(&mut self, desk: &mut Desk, line: &mut impl FnMut(Seat, bool, &Desk) -> Line) {
        while self.served_caps > ALL
            && let Some((lowest, _)) = self.served.first(desk.now_ns)
        {
            let Claim { cap, standing } = self.claim(lowest);
            if self.served_caps - cap < ALL {
                break;
            }
            if let Standing::Served(place) = standing {
                self.stop(place, cap);
            }
            let (line, arrival) = (line(lowest, false, desk), desk.seated(lowest).arrival());
            let place = self.waiting.enter(desk.now_ns, lowest, line, arrival);
            self.claims[lowest.index()].standing = Standing::Waiting(place);
            desk.hold_seated(lowest);
        }
    }

    /// Everybody has its cap, the lowest what is left.
    fn share_what_is_left(&mut self, lowest: Option<Seat>, desk: &mut Desk) {
        self.changed.extend(self.lowest.filter(|_| self.lowest != lowest));
        self.lowest = lowest;
        if let Some(seat) = lowest {
            let cap = self.claim(seat).cap;
            let above = self.served_caps - cap;
            desk.grant_seated(seat, cap.min(ALL - above) as f64 / ALL as f64);
        }
        while let Some(seat) = self.changed.pop() {
            if self.is_served(seat) && lowest != Some(seat) {
                desk.grant_seated(seat, self.claim(seat).cap as f64 / ALL as f64);
            }
        }
    }
}

fn billionths(part: f64) -> u64 {
    ((part * ALL as f64).round() as u64).clamp(1, ALL)
}
