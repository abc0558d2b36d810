//! Reservations used as priorities: the timetable says who goes first, never who must wait while
//! bandwidth is free.

use super::timetable::Timetable;
use crate::engine::{Desk, JobId};
use crate::records::Seat;
use crate::sharing::Policy;
use crate::sharing::greedy::Greedy;
use crate::sharing::tournament::Line;

/// `periodic` and `apio`. Whoever's I/O is due first is served first, up to its cap, then the next,
/// until nothing is left.
///
/// Nobody starves: what is due stays due while later instances, of others too, are due ever later.
pub struct Periodic {
    timetable: Timetable,
    due: Due,
    greedy: Greedy,
    /// Who has which seat; [`Seat::NONE`] where nobody sits.
    seated: Vec<Seat>,
}

/// When the I/O of an instance is due to be done.
#[derive(Clone, Copy, PartialEq)]
enum Due {
    /// When the timetable says: whoever fell behind catches up first.
    AsPlanned,
    /// As long after its computing ended as the timetable has it: the reservation moves with the
    /// instance. This is what is left of Algorithm 2's cleaning and allocating anew when nobody is
    /// kept from free bandwidth. It is better when computing times vary: an application that
    /// computes for long is then not taken for one that was treated badly.
    Moved,
}

impl Periodic {
    /// PerSched's timetable, kept.
    pub fn kept(timetable: Timetable) -> Self {
        Periodic { timetable, due: Due::AsPlanned, greedy: Greedy::default(), seated: Vec::new() }
    }

    /// PerSched's timetable, moved to where computing really ends.
    pub fn moved(timetable: Timetable) -> Self {
        Periodic { due: Due::Moved, ..Periodic::kept(timetable) }
    }

    /// Hands over the timetable, and who is in its phase.
    pub(in crate::sharing) fn disband(&mut self) -> (Timetable, Vec<JobId>) {
        let asking = self.seated.iter().filter(|&&seat| seat != Seat::NONE).map(|seat| seat.job).collect();
        (std::mem::take(&mut self.timetable), asking)
    }

    fn settle(&mut self, desk: &mut Desk) {
        let Periodic { greedy, timetable, due, .. } = self;
        greedy.settle(desk, |seat, _, desk| line(timetable, *due, seat, desk));
    }
}

impl Policy for Periodic {
    fn joined(&mut self, job: JobId, desk: &mut Desk) {
        self.timetable.joined(job, desk);
    }

    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let Periodic { timetable, due, greedy, seated } = self;
        if timetable.refresh() {
            for &other in seated.iter().filter(|&&other| other != Seat::NONE) {
                greedy.change(other, line(timetable, *due, other, desk), desk);
            }
        }
        let seat = desk.seat(job);
        if seated.len() <= seat.index() {
            seated.resize(seat.index() + 1, Seat::NONE);
        }
        seated[seat.index()] = seat;
        greedy.enter(seat, line(timetable, *due, seat, desk), desk);
        self.settle(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        self.seated[seat.index()] = Seat::NONE;
        self.greedy.leave(seat);
        self.timetable.ended(job, desk);
        self.settle(desk);
    }

    fn left(&mut self, job: JobId, desk: &mut Desk) {
        self.timetable.left(job, desk);
    }
}

/// The sooner an instance is due, the higher. One that has no place in the timetable is due at once.
fn line(timetable: &Timetable, due: Due, seat: Seat, desk: &Desk) -> Line {
    let began_ns = desk.seated(seat).phase_began_ns().unwrap_or(desk.now_ns);
    let began_s = (began_ns as f64 - timetable.origin_ns() as f64) * 1e-9;
    let due_s = match due {
        Due::AsPlanned => timetable.due_s(seat.job),
        Due::Moved => timetable.io_s(seat.job).map(|io_s| began_s + io_s),
    };
    Line { value: -due_s.unwrap_or(began_s), slope: 0.0, at_ns: desk.now_ns }
}
