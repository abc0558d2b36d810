//! I/O phases of a job: found in its bursts.
//!
//! Pure functions on spans of time. This is the only definition of a phase: the profile, the running process, its full list
//! of bursts and the gate's detector all use it. [`find()`] finds the phases, [`rhythm()`] says how regular they are.

mod find;
mod gap;
mod rhythm;

pub use find::{Found, are_empty, are_tiny, find, find_with, gather};
pub use gap::learn_gap_ns;
pub use rhythm::{Class, Rhythm, characteristic_time_ns, rhythm};

/// A stretch of I/O: a burst of one process, of the job, or a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Of its length, the time the job was held back at a gate or by a share.
    pub wait_ns: u64,
    pub calls: u64,
    /// How many more than one it stands for: of a long run's early phases only sums are kept.
    pub more: u64,
    /// Of its length, the pauses between those.
    pub pause_ns: u64,
}

impl Span {
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// How many it stands for.
    pub fn count(&self) -> u64 {
        self.more.saturating_add(1)
    }

    /// Its length without pauses.
    pub fn busy_ns(&self) -> u64 {
        self.length_ns().saturating_sub(self.pause_ns)
    }

    /// Its length without pauses and without the time it was held back.
    pub fn own_ns(&self) -> u64 {
        self.busy_ns().saturating_sub(self.wait_ns)
    }

    /// What it moved in either direction.
    pub fn bytes(&self) -> u64 {
        self.bytes_read.saturating_add(self.bytes_written)
    }

    /// What each of those it stands for moved on average.
    fn mean_bytes(&self) -> u64 {
        self.bytes() / self.count()
    }

    /// When the last of those it stands for began, if all are as long.
    fn last_start_ns(&self) -> u64 {
        if self.more == 0 { self.start_ns } else { self.end_ns - self.busy_ns() / self.count() }
    }

    /// Stands for a later span as well.
    pub fn fold(&mut self, later: &Span) {
        let between_ns = later.start_ns.saturating_sub(self.end_ns);
        self.pause_ns = self.pause_ns.saturating_add(between_ns).saturating_add(later.pause_ns);
        self.more = self.more.saturating_add(later.count());
        self.wait_ns = self.wait_ns.saturating_add(later.wait_ns);
        self.cover(later);
    }

    /// Takes in the extent, bytes and calls of another span; what else there is the caller combines.
    pub fn cover(&mut self, other: &Span) {
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        self.calls = self.calls.saturating_add(other.calls);
    }
}

/// Calls that moved nothing and took no longer than this together are never a phase: a look whether a file is there.
pub const MAX_FLEETING_NS: u64 = 1_000_000;

/// What one of two sides brings into a united span.
#[derive(Clone, Copy, Default)]
struct Side {
    count: u64,
    busy_ns: u64,
    wait_ns: u64,
    /// Where its spans ended so far, in this one or before.
    end_ns: Option<u64>,
}

impl Side {
    fn add(&mut self, span: &Span) {
        self.count = self.count.saturating_add(span.count());
        self.busy_ns = self.busy_ns.saturating_add(span.busy_ns());
        self.wait_ns = self.wait_ns.saturating_add(span.wait_ns);
        self.end_ns = self.end_ns.max(Some(span.end_ns));
    }
}

/// Unites the bursts of two ranks (or of the job so far and one more rank), each in order of their
/// starts: what overlaps becomes one. Ranks that are held back at the same time cost the job that
/// time once, so of the two sides the longer wait counts. Where one side has only sums, the ranks are
/// taken to have been in the same phases: of the two sides the larger number counts, and the longer time.
pub fn unite(left: &[Span], right: &[Span]) -> Vec<Span> {
    unite_if(left, right, |last, next, _, _| next.start_ns <= last.end_ns)
}

/// The same for marked phases of one name. A rank is in one of them at a time: one that begins before other
/// ranks have ended the one before is another. They are often short, and ranks a little apart: a phase of one rank and
/// one of another that are nearer to each other than to their neighbours are the same.
pub fn unite_marked(left: &[Span], right: &[Span]) -> Vec<Span> {
    unite_if(left, right, |last, next, side, others_next| {
        let distance_ns = next.start_ns.saturating_sub(last.end_ns);
        let before_ns = side.end_ns.map(|end_ns| next.start_ns.saturating_sub(end_ns));
        let after_ns = others_next.map(|other| other.start_ns.saturating_sub(next.end_ns));
        let is_near = || before_ns.into_iter().chain(after_ns).all(|neighbour_ns| distance_ns < neighbour_ns);
        let is_free = side.count == 0 || last.more > 0 || next.more > 0;
        is_free && (next.start_ns <= last.end_ns || is_near())
    })
}

/// `is_part` says whether the next span is a part of the last united one, from what its side has brought so far and
/// the next of the other side.
fn unite_if(
    left: &[Span],
    right: &[Span],
    is_part: impl Fn(&Span, &Span, &Side, Option<&Span>) -> bool,
) -> Vec<Span> {
    let mut united: Vec<Span> = Vec::with_capacity(left.len() + right.len());
    let mut sides = [Side::default(); 2];
    let mut rest = [left, right];
    loop {
        let from = match [rest[0].first(), rest[1].first()] {
            [Some(left), Some(right)] => usize::from(left.start_ns > right.start_ns),
            [_, right] => usize::from(right.is_some()),
        };
        let Some((next, later)) = rest[from].split_first() else { return united };
        rest[from] = later;
        let others_next = rest[1 - from].first();
        match united.last_mut().filter(|last| is_part(last, next, &sides[from], others_next)) {
            Some(last) => {
                sides[from].add(next);
                last.cover(next);
                last.more = last.more.max(next.more);
                combine(last, &sides);
            }
            None => {
                sides = sides.map(|side| Side { end_ns: side.end_ns, ..Side::default() });
                sides[from].add(next);
                united.push(*next);
            }
        }
    }
}

/// Gives a united span what its two sides amount to.
fn combine(span: &mut Span, [left, right]: &[Side; 2]) {
    if span.more > 0 {
        span.more = left.count.max(right.count) - 1;
        span.pause_ns = span.length_ns().saturating_sub(left.busy_ns.max(right.busy_ns));
    }
    span.wait_ns = left.wait_ns.max(right.wait_ns).min(span.busy_ns());
}

/// Joins neighbours that are not further apart than `gap_ns`. The bursts are those of the job, in
/// order and apart, as [`unite`] returns them.
pub fn join(bursts: &[Span], gap_ns: u64) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for burst in bursts {
        match joined.last_mut() {
            Some(last) if burst.start_ns.saturating_sub(last.end_ns) <= gap_ns => {
                last.cover(burst);
                last.more = last.more.saturating_add(burst.more);
                last.pause_ns = last.pause_ns.saturating_add(burst.pause_ns);
                last.wait_ns = last.wait_ns.saturating_add(burst.wait_ns).min(last.busy_ns());
            }
            _ => joined.push(*burst),
        }
    }
    joined
}

/// Keeps the limit: of the older ones, two and two become a sum, until at most `limit` are left. Returns how
/// many went.
pub fn thin(phases: &mut Vec<Span>, limit: usize) -> u64 {
    let before = phases.len();
    while phases.len() > limit.max(1) {
        let older = (phases.len() / 2).max(2);
        let mut index = 0;
        phases.dedup_by(|later, earlier| {
            index += 1;
            let second = index < older && index % 2 == 1;
            if second {
                earlier.fold(later);
            }
            second
        });
    }
    (before - phases.len()) as u64
}

/// How many phases there are, those included of which only sums are kept.
pub fn count(phases: &[Span]) -> u64 {
    phases.iter().fold(0, |sum, phase| sum.saturating_add(phase.count()))
}

/// I/O ratio `alpha_io`: the share of `run_ns` that was spent in phases, time held back not counted.
/// Marked phases may overlap; the time they share counts once.
pub fn io_ratio(phases: &[Span], run_ns: u64) -> f64 {
    let apart = unite(phases, &[]);
    let waited_ns: u64 = apart.iter().map(|phase| phase.wait_ns).sum();
    let io_ns: u64 = apart.iter().map(Span::own_ns).sum();
    let own_run_ns = run_ns.saturating_sub(waited_ns);
    if own_run_ns == 0 { 0.0 } else { (io_ns as f64 / own_run_ns as f64).min(1.0) }
}
