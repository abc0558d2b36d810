//! Where a rank asks, through the leader of its node, how a new file should lie on the storage. One
//! question at a time; whoever finds the desk taken, or waits in vain, goes on without an opinion.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use weir_coord::session::Input;
use weir_coord::wire::FileInfo;
use weir_profile::layout::{load_text, store_text};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ASKED: u32 = 2;
const SENT: u32 = 3;
const ANSWERED: u32 = 4;
/// Whoever asked has gone; the answer will be given back.
const ABANDONED: u32 = 5;
/// A file is closed: what was allocated for it is free.
const CLOSED: u32 = 6;

const PATH_WORDS: usize = 64;
pub(super) const TARGETS: usize = 24;

#[repr(C)]
pub(super) struct Desk {
    state: AtomicU32,
    ranks: AtomicU32,
    nodes: AtomicU32,
    fixed_aggregators: AtomicU32,
    fixed_stripes: AtomicU32,
    aggregators: AtomicU32,
    stripes: AtomicU32,
    target_count: AtomicU32,
    request: AtomicU64,
    last_request: AtomicU64,
    path: [AtomicU64; PATH_WORDS],
    targets: [AtomicU32; TARGETS],
}

/// How a file should lie; zeros are no opinion.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) request: u64,
    pub(super) aggregators: u32,
    pub(super) stripes: u32,
    pub(super) targets: Vec<u32>,
}

impl Answer {
    pub(super) fn is_empty(&self) -> bool {
        self.aggregators == 0 && self.stripes == 0 && self.targets.is_empty()
    }
}

/// How often a rank looks for its answer.
const LOOK: Duration = Duration::from_micros(200);

impl Desk {
    fn take(&self, until: Instant) -> bool {
        wait_until(until, || self.state.compare_exchange(FREE, TAKEN, AcqRel, Relaxed).is_ok())
    }

    /// Asks, and waits for the answer for a while.
    pub(super) fn ask(&self, file: &FileInfo, limit: Duration, ring: impl Fn()) -> Option<Answer> {
        let until = Instant::now() + limit;
        if file.path.len() > PATH_WORDS * 8 || !self.take(until) {
            return None;
        }
        self.ranks.store(file.ranks, Relaxed);
        self.nodes.store(file.nodes, Relaxed);
        self.fixed_aggregators.store(file.fixed_aggregators, Relaxed);
        self.fixed_stripes.store(file.fixed_stripes, Relaxed);
        store_text(&self.path, &file.path);
        let request = self.last_request.fetch_add(1, Relaxed) + 1;
        self.request.store(request, Relaxed);
        self.state.store(ASKED, Release);
        ring();
        if wait_until(until, || self.state.load(Acquire) == ANSWERED) || !self.give_up() {
            let count = (self.target_count.load(Relaxed) as usize).min(TARGETS);
            let answer = Answer {
                request,
                aggregators: self.aggregators.load(Relaxed),
                stripes: self.stripes.load(Relaxed),
                targets: self.targets[..count].iter().map(|target| target.load(Relaxed)).collect(),
            };
            // Unless the leader took this rank for dead.
            let is_mine = self.state.compare_exchange(ANSWERED, FREE, AcqRel, Relaxed).is_ok();
            return Some(answer).filter(|_| is_mine);
        }
        None
    }

    /// False: it is too late for that.
    fn give_up(&self) -> bool {
        let next = |state| match state {
            SENT => Some(ABANDONED),
            ASKED => Some(FREE),
            _ => None,
        };
        self.state.fetch_update(AcqRel, Acquire, next).is_ok()
    }

    /// What was allocated for a file is not needed any more.
    pub(super) fn release(&self, request: u64, limit: Duration, ring: impl Fn()) {
        if self.take(Instant::now() + limit) {
            self.request.store(request, Relaxed);
            self.state.store(CLOSED, Release);
            ring();
        }
    }

    /// A leader starts: what another had sent is asked again.
    pub(super) fn open(&self) {
        let next = |state| match state {
            SENT => Some(ASKED),
            ABANDONED => Some(FREE),
            _ => None,
        };
        let _ = self.state.fetch_update(AcqRel, Acquire, next);
    }

    /// Looked at twice, much longer apart than anybody needs: who took the desk, or was answered there, is gone. What was
    /// allocated for it, if anything, is to be given back.
    pub(super) fn clear(&self, last: &mut Option<(u32, u64)>) -> Option<u64> {
        let request = self.request.load(Relaxed);
        let now = (self.state.load(Acquire), self.last_request.load(Relaxed));
        let is_with_a_rank = matches!(now.0, TAKEN | ANSWERED);
        let is_left = is_with_a_rank && *last == Some(now);
        *last = is_with_a_rank.then_some(now);
        let is_cleared = is_left && self.state.compare_exchange(now.0, FREE, AcqRel, Relaxed).is_ok();
        (is_cleared && now.0 == ANSWERED).then_some(request)
    }

    /// The leader passes on what lies on the desk.
    pub(super) fn pass_on(&self, tell: impl FnOnce(Input<'static>)) {
        // The state first: what belongs to it was written before.
        match self.state.load(Acquire) {
            CLOSED => {
                tell(Input::Release { request: self.request.load(Relaxed) });
                self.state.store(FREE, Release);
            }
            ASKED if self.state.compare_exchange(ASKED, SENT, AcqRel, Relaxed).is_ok() => {
                let file = FileInfo {
                    path: load_text(&self.path),
                    ranks: self.ranks.load(Relaxed),
                    nodes: self.nodes.load(Relaxed),
                    bytes: 0,
                    fixed_aggregators: self.fixed_aggregators.load(Relaxed),
                    fixed_stripes: self.fixed_stripes.load(Relaxed),
                };
                tell(Input::Ask { request: self.request.load(Relaxed), file });
            }
            _ => {}
        }
    }

    /// The coordinator answers; `false` when nobody waits for it, and the answer is to be given back.
    pub(super) fn answer(&self, answer: &Answer) -> bool {
        if self.request.load(Relaxed) != answer.request {
            return false;
        }
        self.aggregators.store(answer.aggregators, Relaxed);
        self.stripes.store(answer.stripes, Relaxed);
        for (place, target) in self.targets.iter().zip(&answer.targets) {
            place.store(*target, Relaxed);
        }
        self.target_count.store(answer.targets.len().min(TARGETS) as u32, Relaxed);
        if self.state.compare_exchange(SENT, ANSWERED, AcqRel, Relaxed).is_ok() {
            return true;
        }
        let _ = self.state.compare_exchange(ABANDONED, FREE, AcqRel, Relaxed);
        false
    }
}

fn wait_until(until: Instant, mut is_so: impl FnMut() -> bool) -> bool {
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_died_at_the_desk_does_not_keep_it() {
        // SAFETY: zeros are a desk that is free.
        let desk: Desk = unsafe { std::mem::zeroed() };
        let mut last = None;
        for state in [TAKEN, ANSWERED] {
            desk.state.store(state, Release);
            desk.request.store(7, Relaxed);
            assert_eq!(desk.clear(&mut last), None);
            assert!(!desk.take(Instant::now()), "state {state}");
            let unused = (state == ANSWERED).then_some(7);
            assert_eq!(desk.clear(&mut last), unused, "what was allocated is given back");
            assert!(desk.take(Instant::now()), "state {state}");
            desk.state.store(FREE, Release);
            desk.clear(&mut last);
        }
        // An answer that comes with the end of patience is taken.
        desk.state.store(ANSWERED, Release);
        assert!(!desk.give_up());
        desk.state.store(SENT, Release);
        assert!(desk.give_up());
        // Two who took it one after the other.
        desk.state.store(TAKEN, Release);
        desk.clear(&mut last);
        desk.last_request.fetch_add(1, Relaxed);
        desk.clear(&mut last);
        assert!(!desk.take(Instant::now()));
    }
}
