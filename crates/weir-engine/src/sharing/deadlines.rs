//! When to look at which job.

use crate::engine::JobId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// At most one deadline per job. Those that were replaced or called off stay in the heap until their
/// time or until they are most of it: finding them there would cost more than passing over them.
#[derive(Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(u64, JobId)>>,
    /// By job; [`NEVER`].
    at_ns: Vec<u64>,
    set: usize,
}

const NEVER: u64 = u64::MAX;

impl Deadlines {
    pub(super) fn get(&self, job: JobId) -> u64 {
        self.at_ns.get(job.index()).copied().unwrap_or(NEVER)
    }

    /// In place of the one the job has.
    pub(super) fn set(&mut self, job: JobId, at_ns: u64) {
        if self.at_ns.len() <= job.index() {
            self.at_ns.resize(job.index() + 1, NEVER);
        }
        self.clear(job);
        if at_ns < NEVER {
            self.at_ns[job.index()] = at_ns;
            self.set += 1;
            self.heap.push(Reverse((at_ns, job)));
            self.tidy();
        }
    }

    pub(super) fn clear(&mut self, job: JobId) {
        if let Some(at_ns) = self.at_ns.get_mut(job.index())
            && *at_ns < NEVER
        {
            *at_ns = NEVER;
            self.set -= 1;
        }
    }

    /// A job whose deadline has come, the earliest first, then the lower number. It has none from now on.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<JobId> {
        while let Some(&Reverse((at_ns, job))) = self.heap.peek()
            && at_ns <= now_ns
        {
            self.heap.pop();
            if self.at_ns[job.index()] == at_ns {
                self.clear(job);
                return Some(job);
            }
        }
        None
    }

    fn tidy(&mut self) {
        if self.heap.len() > 2 * self.set + 64 {
            let at_ns = &self.at_ns;
            self.heap.retain(|Reverse((entry_ns, job))| at_ns[job.index()] == *entry_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_word_counts() {
        let mut deadlines = Deadlines::default();
        let [a, b, c] = [JobId(0), JobId(1), JobId(2)];
        deadlines.set(b, 10);
        deadlines.set(a, 30);
        deadlines.set(a, 10);
        deadlines.set(c, 5);
        deadlines.clear(c);
        assert_eq!(deadlines.get(c), NEVER);
        assert_eq!(deadlines.pop(9), None);
        assert_eq!([deadlines.pop(10), deadlines.pop(10), deadlines.pop(10)], [Some(a), Some(b), None]);
        assert_eq!(deadlines.pop(30), None, "what was replaced");
    }

    #[test]
    fn what_was_replaced_takes_no_room_for_long() {
        let mut deadlines = Deadlines::default();
        for at_ns in 0..100_000 {
            deadlines.set(JobId(0), at_ns);
            assert!(deadlines.heap.len() <= 67);
        }
        assert_eq!(deadlines.pop(u64::MAX - 1), Some(JobId(0)));
    }
}
