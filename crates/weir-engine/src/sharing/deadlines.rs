//! When to look at which job.

use crate::records::Seat;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// At most one deadline per job in its phase. Those that were replaced or called off stay in the heap until
/// their time or until they are most of it: finding them there would cost more than passing over them.
#[derive(Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<Deadline>>,
    /// By seat, those that hold; [`NEVER`] where there is none.
    holding: Vec<Deadline>,
    set: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Deadline {
    at_ns: u64,
    seat: Seat,
}

const NEVER: Deadline = Deadline { at_ns: u64::MAX, seat: Seat::NONE };

impl Deadlines {
    /// `u64::MAX` is never.
    pub(super) fn get(&self, seat: Seat) -> u64 {
        self.holding.get(seat.index()).unwrap_or(&NEVER).at_ns
    }

    /// In place of the one the job has.
    pub(super) fn set(&mut self, seat: Seat, at_ns: u64) {
        if self.holding.len() <= seat.index() {
            self.holding.resize(seat.index() + 1, NEVER);
        }
        self.clear(seat);
        if at_ns < NEVER.at_ns {
            let deadline = Deadline { at_ns, seat };
            self.holding[seat.index()] = deadline;
            self.set += 1;
            self.heap.push(Reverse(deadline));
            self.tidy();
        }
    }

    pub(super) fn clear(&mut self, seat: Seat) {
        if let Some(deadline) = self.holding.get_mut(seat.index())
            && *deadline != NEVER
        {
            *deadline = NEVER;
            self.set -= 1;
        }
    }

    /// A job whose deadline has come, the earliest first, then the lower number. It has none from now on.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<Seat> {
        while let Some(&Reverse(deadline)) = self.heap.peek()
            && deadline.at_ns <= now_ns
        {
            self.heap.pop();
            if self.holding[deadline.seat.index()] == deadline {
                self.clear(deadline.seat);
                return Some(deadline.seat);
            }
        }
        None
    }

    /// The earliest deadline, or one before it that was called off.
    pub(super) fn next_ns(&self) -> Option<u64> {
        if self.set == 0 { None } else { self.heap.peek().map(|Reverse(deadline)| deadline.at_ns) }
    }

    fn tidy(&mut self) {
        if self.heap.len() > 2 * self.set + 64 {
            let holding = &self.holding;
            self.heap.retain(|Reverse(deadline)| holding[deadline.seat.index()] == *deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::JobId;

    fn seat(job: u32, number: u32) -> Seat {
        Seat { job: JobId(job), number }
    }

    #[test]
    fn only_the_latest_word_counts() {
        let mut deadlines = Deadlines::default();
        let [a, b, c] = [seat(0, 10), seat(1, 11), seat(2, 12)];
        deadlines.set(b, 10);
        deadlines.set(a, 30);
        deadlines.set(a, 10);
        deadlines.set(c, 5);
        deadlines.clear(c);
        assert_eq!(deadlines.get(c), u64::MAX);
        assert_eq!(deadlines.pop(9), None);
        assert_eq!([deadlines.pop(10), deadlines.pop(10), deadlines.pop(10)], [Some(a), Some(b), None]);
        assert_eq!(deadlines.pop(30), None, "what was replaced");
    }

    #[test]
    fn who_left_is_not_who_took_the_seat() {
        let mut deadlines = Deadlines::default();
        deadlines.set(seat(1, 0), 10);
        deadlines.clear(seat(1, 0));
        deadlines.set(seat(2, 0), 10);
        assert_eq!([deadlines.pop(10), deadlines.pop(10)], [Some(seat(2, 0)), None]);
    }

    #[test]
    fn what_was_replaced_takes_no_room_for_long() {
        let mut deadlines = Deadlines::default();
        for at_ns in 0..100_000 {
            deadlines.set(seat(0, 0), at_ns);
            assert!(deadlines.heap.len() <= 67);
        }
        assert_eq!(deadlines.pop(u64::MAX - 1), Some(seat(0, 0)));
    }
}
