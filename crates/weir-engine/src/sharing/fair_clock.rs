//! When each phase would end if the storage were shared fairly, and which phases must go now to end by then.
//!
//! The clock runs a second, imagined storage that serves all phases at once, each at the same rate. What the jobs really move
//! drives it: every byte moved counts there as dealt out to all phases in equal parts, so that the clock needs
//! no bandwidth and slows down when the storage does. A phase that has ended really goes on in there until it has ended fairly.
//!
//! Serving phases in the order of their fair ends makes none of them end later than that (the Fair Sojourn Protocol,
//! Friedman and Henderson, SIGMETRICS 2003). Any other order may be taken for as long as every phase can still end in
//! time if that one is taken from then on. With `r_i` left to a phase fairly and `R_i` really, and `b` phases that end
//! after the `k`-th fairly, what may be moved by phases behind the `k`-th is
//!
//! ```text
//! room_k = Σ_{i≤k} (r_i − R_i) + b r_k
//! ```
//!
//! Where no room is left, the phases up to the `k`-th are *due*: they go before all others. A phase that comes later takes no room
//! from those that are there: with it the fair ends of all others move back by as much as it takes fairly.
//!
//! A phase of unknown size ends fairly after all known ones, and gives them no room, for it may end at any moment. It is
//! *behind* when it has moved less than a quarter of what was dealt out to it (as PSBS lets phases share that outgrow their
//! size: Dell'Amico, Carra and Michiardi 2014). A larger part was tried: with two thirds, which would bound it by 1.5 times its
//! fair duration, utilization and stretch fall behind those of SET-10 where a tenth of all phases are first ones.

use crate::records::Seat;

#[derive(Default)]
pub(super) struct FairClock {
    /// In the order of their fair ends.
    phases: Vec<FairPhase>,
    /// [`FairPhase::end_bytes`] by seat, to find a phase by.
    ends_bytes: Vec<f64>,
    /// Phases that have not ended really.
    under_way: usize,
    /// What has been dealt out to each phase since the clock began to run.
    dealt_bytes: f64,
    /// What all phases have moved since then.
    moved_bytes: f64,
    /// Once all phases have moved this much, another one may be due or behind.
    look_at_bytes: f64,
}

/// Whether a phase must go before others to end in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Urgency {
    #[default]
    Calm,
    /// Of unknown size, and it has moved less than a quarter of its fair part.
    Behind,
    /// It ends later than it would fairly, or makes another one end later, unless it goes now.
    Due,
}

#[derive(Clone, Copy, Debug)]
struct FairPhase {
    /// [`Seat::NONE`] once it has ended really.
    seat: Seat,
    /// It ends fairly when this much has been dealt out to each; infinite while its size is not known.
    end_bytes: f64,
    /// What had been dealt out to each when it began; later where it was not dealt to for a while.
    began_bytes: f64,
    /// What it has really moved since.
    moved_bytes: f64,
    /// What it had moved before.
    moved_before_bytes: f64,
    /// What the storage may move, in all, while it is behind and waits.
    patience_bytes: f64,
    urgency: Urgency,
}

/// A phase of unknown size is behind if it has moved less than its fair part divided by this, until it has moved more than
/// its fair part divided by the other.
const BEHIND: f64 = 4.0;
const CAUGHT_UP: f64 = 3.9;

/// With more phases at once nobody is due or behind: a fair part is next to nothing then, and to look at all of them at every
/// event would take too long.
const MAX_PHASES: usize = 1024;

impl FairClock {
    /// A phase begins, or goes on after it has moved some bytes, of `size_bytes` in all if that is known.
    pub(super) fn began(
        &mut self,
        seat: Seat,
        moved_bytes: u64,
        size_bytes: Option<f64>,
        patience_bytes: f64,
    ) {
        let mut phase = FairPhase {
            seat,
            end_bytes: 0.0,
            began_bytes: self.dealt_bytes,
            moved_bytes: 0.0,
            moved_before_bytes: moved_bytes as f64,
            patience_bytes,
            urgency: Urgency::Calm,
        };
        phase.end_bytes = phase.end_if(size_bytes);
        self.insert(phase);
        self.under_way += 1;
    }

    /// The phase has moved so much by now, and will have moved `size_bytes` in all if that is known.
    pub(super) fn moved(&mut self, seat: Seat, moved_bytes: u64, size_bytes: Option<f64>) {
        let Some(index) = self.find(seat) else { return };
        let phase = &mut self.phases[index];
        let before_bytes = phase.moved_bytes;
        phase.moved_bytes = (moved_bytes as f64 - phase.moved_before_bytes).max(before_bytes);
        let more_bytes = phase.moved_bytes - before_bytes;
        let surplus_bytes = self.resize(index, size_bytes);
        self.moved_bytes += more_bytes;
        self.deal_out(more_bytes + surplus_bytes);
    }

    /// The phase has ended really.
    pub(super) fn ended(&mut self, seat: Seat, moved_bytes: u64) {
        self.moved(seat, moved_bytes, Some(moved_bytes as f64));
        let Some(index) = self.find(seat) else { return };
        self.phases[index].seat = Seat::NONE;
        if self.phases[index].end_bytes <= self.dealt_bytes {
            self.phases.remove(index);
        }
        self.under_way -= 1;
        self.look_at_bytes = self.moved_bytes;
        if self.under_way == 0 {
            self.phases.clear();
            (self.dealt_bytes, self.moved_bytes, self.look_at_bytes) = (0.0, 0.0, 0.0);
        }
    }

    /// Whether to [`FairClock::look`].
    pub(super) fn is_time_to_look(&self) -> bool {
        self.moved_bytes >= self.look_at_bytes
    }

    /// How much may be moved until it is time to look again.
    pub(super) fn room_bytes(&self) -> f64 {
        self.look_at_bytes - self.moved_bytes
    }

    /// Tells of every phase that has become due or behind, or no longer is. Of room below `grain_bytes` there is none.
    pub(super) fn look(&mut self, grain_bytes: f64, mut tell: impl FnMut(Seat, Urgency)) {
        let (due, mut room_bytes) = self.due(grain_bytes);
        let sharers = self.phases.iter().filter(|phase| phase.end_bytes > self.dealt_bytes).count() as f64;
        for (index, phase) in self.phases.iter_mut().enumerate() {
            let before = std::mem::take(&mut phase.urgency);
            if index < due {
                phase.urgency = Urgency::Due;
            } else if phase.end_bytes == f64::INFINITY && self.under_way <= MAX_PHASES {
                let dealt_bytes = self.dealt_bytes - phase.began_bytes;
                let behind_bytes =
                    (dealt_bytes - BEHIND * phase.moved_bytes) * sharers - phase.patience_bytes;
                let ahead_bytes = CAUGHT_UP * phase.moved_bytes - dealt_bytes;
                if behind_bytes > -grain_bytes || (before == Urgency::Behind && ahead_bytes < 0.0) {
                    phase.urgency = Urgency::Behind;
                    room_bytes = room_bytes.min((-ahead_bytes).max(grain_bytes));
                } else {
                    room_bytes = room_bytes.min(-behind_bytes);
                }
            }
            if phase.urgency != before && phase.seat != Seat::NONE {
                tell(phase.seat, phase.urgency);
            }
        }
        self.look_at_bytes = self.moved_bytes + room_bytes;
    }

    /// How many phases are due, the first of the order, and the least room that any other has.
    fn due(&self, grain_bytes: f64) -> (usize, f64) {
        if self.under_way > MAX_PHASES {
            return (0, f64::INFINITY);
        }
        let known = self.phases.partition_point(|phase| phase.end_bytes < f64::INFINITY);
        let ended = self.phases.partition_point(|phase| phase.end_bytes <= self.dealt_bytes);
        // The last one cannot keep others from anything.
        let last = self.phases.iter().rposition(|phase| phase.seat != Seat::NONE).unwrap_or(0);
        let (mut ahead_bytes, mut due, mut least_room_bytes) = (0.0, 0, f64::INFINITY);
        for (index, phase) in self.phases[..known.min(last)].iter().enumerate() {
            let fair_left_bytes = (phase.end_bytes - self.dealt_bytes).max(0.0);
            ahead_bytes += fair_left_bytes - (phase.end_bytes - phase.began_bytes - phase.moved_bytes);
            let behind = (known - ended.max(index + 1)) as f64;
            let room_bytes = ahead_bytes + behind * fair_left_bytes;
            if phase.seat == Seat::NONE {
                continue;
            }
            if room_bytes > grain_bytes {
                least_room_bytes = least_room_bytes.min(room_bytes);
            } else if due == 0 {
                due = index + 1;
            }
        }
        (due, least_room_bytes)
    }

    /// The phase moves this much in all. Answers what had been dealt out to it beyond that, which is the others'; if it moves more
    /// than was thought, it gets the rest from now on.
    fn resize(&mut self, index: usize, size_bytes: Option<f64>) -> f64 {
        let phase = &self.phases[index];
        if phase.end_if(size_bytes) == phase.end_bytes {
            return 0.0;
        }
        let mut phase = self.phases.remove(index);
        let got_bytes = self.dealt_bytes.min(phase.end_bytes) - phase.began_bytes;
        phase.began_bytes = self.dealt_bytes - got_bytes;
        phase.end_bytes = phase.end_if(size_bytes);
        self.insert(phase);
        (self.dealt_bytes - phase.end_bytes).max(0.0)
    }

    /// Looks at all phases again soon: the new one may be due.
    fn insert(&mut self, phase: FairPhase) {
        let index = self.phases.partition_point(|other| other.end_bytes <= phase.end_bytes);
        self.phases.insert(index, phase);
        if self.ends_bytes.len() <= phase.seat.index() {
            self.ends_bytes.resize(phase.seat.index() + 1, 0.0);
        }
        self.ends_bytes[phase.seat.index()] = phase.end_bytes;
        self.look_at_bytes = self.moved_bytes;
    }

    fn find(&self, seat: Seat) -> Option<usize> {
        let end_bytes = *self.ends_bytes.get(seat.index())?;
        let first = self.phases.partition_point(|phase| phase.end_bytes < end_bytes);
        let alike = self.phases[first..].iter().take_while(|phase| phase.end_bytes == end_bytes);
        alike.into_iter().position(|phase| phase.seat == seat).map(|index| first + index)
    }

    fn deal_out(&mut self, mut bytes: f64) {
        while bytes > 0.0 {
            let next = self.phases.partition_point(|phase| phase.end_bytes <= self.dealt_bytes);
            let Some(&FairPhase { seat, end_bytes, .. }) = self.phases.get(next) else { return };
            let sharers = (self.phases.len() - next) as f64;
            let until_end_bytes = (end_bytes - self.dealt_bytes) * sharers;
            if bytes < until_end_bytes {
                self.dealt_bytes += bytes / sharers;
                return;
            }
            bytes -= until_end_bytes;
            self.dealt_bytes = end_bytes;
            if seat == Seat::NONE {
                self.phases.remove(next);
            }
        }
    }
}

impl FairPhase {
    /// When it ends fairly if it moves this much in all.
    fn end_if(&self, size_bytes: Option<f64>) -> f64 {
        let size_bytes = size_bytes.map_or(f64::INFINITY, |bytes| bytes - self.moved_before_bytes);
        self.began_bytes + size_bytes.max(self.moved_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::JobId;

    fn seat(number: u32) -> Seat {
        Seat { job: JobId(number), number }
    }

    fn look(clock: &mut FairClock) -> Vec<(u32, Urgency)> {
        let mut told = Vec::new();
        clock.look(1.0, |seat, urgency| told.push((seat.number, urgency)));
        told
    }

    /// Two phases of 100 would both end after 200, so one may wait for the whole of the other; a third of 10, which ends after
    /// 30, may wait for 20.
    #[test]
    fn phases_are_due_when_they_would_end_later_than_fairly() {
        let mut clock = FairClock::default();
        clock.began(seat(0), 0, Some(100.0), 0.0);
        clock.began(seat(1), 0, Some(100.0), 0.0);
        assert_eq!((look(&mut clock), clock.room_bytes()), (vec![], 100.0));
        clock.began(seat(2), 0, Some(10.0), 0.0);
        assert_eq!((look(&mut clock), clock.room_bytes()), (vec![], 20.0));
        clock.moved(seat(1), 20, Some(100.0));
        assert!(clock.is_time_to_look());
        assert_eq!(look(&mut clock), [(2, Urgency::Due)]);
        clock.ended(seat(2), 10);
        assert_eq!(look(&mut clock), []);
    }

    /// The fair ends of the others move back by as much as it takes.
    #[test]
    fn a_late_comer_takes_no_room() {
        let mut clock = FairClock::default();
        clock.began(seat(0), 0, Some(100.0), 0.0);
        clock.began(seat(1), 0, Some(100.0), 0.0);
        clock.moved(seat(1), 60, Some(100.0));
        look(&mut clock);
        let before = clock.room_bytes();
        clock.began(seat(2), 0, Some(1000.0), 0.0);
        look(&mut clock);
        assert_eq!((before, clock.room_bytes()), (40.0, 70.0), "both others could leave it their part");
    }

    #[test]
    fn a_phase_of_unknown_size_gets_two_thirds_of_its_part() {
        let mut clock = FairClock::default();
        clock.began(seat(0), 0, None, 12.0);
        clock.began(seat(1), 0, Some(1e6), 0.0);
        assert_eq!((look(&mut clock), clock.room_bytes()), (vec![(1, Urgency::Due)], 12.0));
        clock.moved(seat(1), 12, Some(1e6));
        assert_eq!(look(&mut clock), [(1, Urgency::Calm), (0, Urgency::Behind)]);
        clock.moved(seat(0), 20, None);
        assert_eq!(look(&mut clock), [(1, Urgency::Due), (0, Urgency::Calm)], "now the other one is");
    }

    #[test]
    fn a_phase_that_turns_out_longer_ends_later() {
        let mut clock = FairClock::default();
        clock.began(seat(0), 0, Some(10.0), 0.0);
        clock.began(seat(1), 0, Some(100.0), 0.0);
        clock.moved(seat(0), 10, Some(10.0));
        clock.moved(seat(1), 20, Some(100.0));
        assert_eq!(clock.dealt_bytes, 20.0, "10 each, then 10 for the second one alone");
        clock.moved(seat(0), 30, Some(40.0));
        assert_eq!(clock.dealt_bytes, 30.0, "20 in equal parts");
        clock.ended(seat(0), 40);
        clock.ended(seat(1), 100);
        assert!(clock.phases.is_empty());
    }
}
