//! First come, first served, with a way out for those who leave before their turn.

use crate::engine::JobId;

/// The jobs in one queue, in order of arrival.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    first: u32,
    last: u32,
}

/// Who stands next to whom, by seat; queues that share no job share one of these. Joining and leaving
/// cost the same however long the queue.
#[derive(Default)]
pub(super) struct Neighbours(Vec<Place>);

#[derive(Clone, Copy)]
struct Place {
    job: JobId,
    before: u32,
    after: u32,
}

const NOBODY: u32 = u32::MAX;

impl Default for Queue {
    fn default() -> Self {
        Queue { first: NOBODY, last: NOBODY }
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.first == NOBODY
    }

    pub(super) fn first(&self, neighbours: &Neighbours) -> Option<JobId> {
        neighbours.0.get(self.first as usize).map(|place| place.job)
    }

    /// The job goes to the end.
    pub(super) fn join(&mut self, job: JobId, seat: usize, neighbours: &mut Neighbours) {
        let place = Place { job, before: self.last, after: NOBODY };
        if neighbours.0.len() <= seat {
            neighbours.0.resize(seat + 1, place);
        }
        neighbours.0[seat] = place;
        match neighbours.0.get_mut(self.last as usize) {
            Some(last) => last.after = seat as u32,
            None => self.first = seat as u32,
        }
        self.last = seat as u32;
    }

    /// The job must be in this queue. Answers whether it was the first.
    pub(super) fn leave(&mut self, seat: usize, neighbours: &mut Neighbours) -> bool {
        let Place { before, after, .. } = neighbours.0[seat];
        match neighbours.0.get_mut(before as usize) {
            Some(place) => place.after = after,
            None => self.first = after,
        }
        match neighbours.0.get_mut(after as usize) {
            Some(place) => place.before = before,
            None => self.last = before,
        }
        before == NOBODY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_those_who_leave() {
        let (mut queue, mut neighbours) = (Queue::default(), Neighbours::default());
        for seat in [3, 0, 2, 1] {
            queue.join(JobId(10 + seat as u32), seat, &mut neighbours);
        }
        assert!(!queue.leave(0, &mut neighbours), "from the middle");
        assert!(!queue.leave(1, &mut neighbours), "from the end");
        queue.join(JobId(20), 0, &mut neighbours);
        for (seat, job) in [(3, 13), (2, 12), (0, 20)] {
            assert_eq!(queue.first(&neighbours), Some(JobId(job)));
            assert!(queue.leave(seat, &mut neighbours), "from the front");
        }
        assert!(queue.is_empty() && queue.first(&neighbours).is_none());
    }
}
