//! MinMax-γ (APIO section 3.3.1): MaxSysEff, but whoever fell below `ρ̃_i / ρ_i = γ` goes first.

use super::Policy;
use super::deadlines::Deadlines;
use super::greedy::Greedy;
use super::online::{FirstPhases, dilation, lost_nodes};
use super::tournament::{Line, overtaken_at_ns};
use crate::engine::{Desk, Job, JobId};
use crate::records::Seat;

pub struct MinMax {
    gamma: f64,
    greedy: Greedy,
    first_phases: FirstPhases,
    /// When each job in its I/O phase will fall below γ.
    falls: Deadlines,
    /// The same by seat, and kept when it is past.
    fall_ns: Vec<u64>,
}

/// Lifts everyone below γ above everyone else; both keep their order among themselves. Larger than a million nodes times a
/// dilation of a thousand, and small enough that below γ only ranks within a ten-millionth of each other are ties.
const BELOW_GAMMA: f64 = 1e9;

impl MinMax {
    pub fn new(gamma: f64) -> MinMax {
        MinMax {
            gamma,
            greedy: Greedy::default(),
            first_phases: FirstPhases::default(),
            falls: Deadlines::default(),
            fall_ns: Vec::new(),
        }
    }

    fn settle(&mut self, desk: &mut Desk) {
        while let Some(seat) = self.first_phases.pop(desk) {
            self.await_fall(seat, desk);
            self.greedy.change(seat, self.line(seat, desk), desk);
        }
        while let Some(seat) = self.falls.pop(desk.now_ns) {
            self.greedy.change(seat, below_gamma(desk.seated(seat), desk.now_ns), desk);
        }
        let fall_ns = &self.fall_ns;
        self.greedy.settle(desk, |seat, _, desk| line(fall_ns[seat.index()], seat, desk));
        self.first_phases.set_timer(desk);
    }

    fn line(&self, seat: Seat, desk: &Desk) -> Line {
        line(self.fall_ns[seat.index()], seat, desk)
    }

    /// Finds out when the job will be below γ if it is not served.
    fn await_fall(&mut self, seat: Seat, desk: &Desk) {
        let dilation = dilation(desk.seated(seat), desk.now_ns);
        let missing = (1.0 / self.gamma - dilation.at(desk.now_ns)).max(0.0);
        let fall_ns = overtaken_at_ns(desk.now_ns, missing, dilation.slope);
        if self.fall_ns.len() <= seat.index() {
            self.fall_ns.resize(seat.index() + 1, u64::MAX);
        }
        self.fall_ns[seat.index()] = fall_ns;
        self.falls.set(seat, fall_ns);
    }
}

fn line(fall_ns: u64, seat: Seat, desk: &Desk) -> Line {
    let line = if fall_ns <= desk.now_ns { below_gamma } else { lost_nodes };
    line(desk.seated(seat), desk.now_ns)
}

impl Policy for MinMax {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        self.first_phases.began(seat, desk);
        self.await_fall(seat, desk);
        self.greedy.enter(seat, lost_nodes(desk.seated(seat), desk.now_ns), desk);
        self.settle(desk);
    }

    fn ended(&mut self, job: JobId, desk: &mut Desk) {
        let seat = desk.seat(job);
        self.first_phases.ended(seat);
        self.falls.clear(seat);
        self.greedy.leave(seat);
        self.settle(desk);
    }

    fn time_passed(&mut self, desk: &mut Desk) {
        self.settle(desk);
    }
}

fn below_gamma(job: Job, now_ns: u64) -> Line {
    let line = lost_nodes(job, now_ns);
    Line { value: line.value + BELOW_GAMMA, ..line }
}
