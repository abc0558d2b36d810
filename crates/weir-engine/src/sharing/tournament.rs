//! The highest of many lines, as time goes by.
//!
//! Every priority among the policies here is a straight line in time: who waits climbs at a steady
//! rate. A sorted structure would have to be sorted anew at every event, since lines cross. This is
//! a tournament tree over the jobs' numbers in which every match knows until when its result stands
//! (a kinetic tournament): changing one line replays the matches on its path, and moving time on
//! replays only the matches whose time is up.

use crate::engine::JobId;

/// `value + slope × (t − at_ns)`: a priority, slope per nanosecond.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    pub(super) value: f64,
    pub(super) slope: f64,
    pub(super) at_ns: u64,
}

impl Line {
    pub(super) fn at(&self, now_ns: u64) -> f64 {
        self.value + self.slope * (now_ns - self.at_ns) as f64
    }

    fn negated(self) -> Line {
        Line { value: -self.value, slope: -self.slope, at_ns: self.at_ns }
    }
}

#[derive(Clone, Copy, PartialEq)]
struct Match {
    winner: Option<JobId>,
    /// The result stands until this time, not included.
    until_ns: u64,
}

const NOBODY: Match = Match { winner: None, until_ns: u64::MAX };

#[derive(Clone, Copy, Default)]
struct Entry {
    line: Line,
    /// Of two equal values the lower order wins; then the lower job number.
    order: u64,
}

pub(super) struct Tournament {
    entries: Vec<Entry>,
    /// A complete binary tree: the root is 1, the leaf of job `j` is `matches.len() / 2 + j`.
    matches: Vec<Match>,
}

impl Default for Tournament {
    fn default() -> Self {
        Tournament { entries: vec![Entry::default()], matches: vec![NOBODY; 2] }
    }
}

impl Tournament {
    /// Enters the job, or gives it another line.
    pub(super) fn enter(&mut self, now_ns: u64, job: JobId, line: Line, order: u64) {
        self.grow(now_ns, job.index() + 1);
        self.entries[job.index()] = Entry { line, order };
        self.replay(now_ns, job, Some(job));
    }

    pub(super) fn withdraw(&mut self, now_ns: u64, job: JobId) {
        if self.contains(job) {
            self.replay(now_ns, job, None);
        }
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        let leaf = self.matches.len() / 2 + job.index();
        job.index() < self.entries.len() && self.matches[leaf].winner.is_some()
    }

    /// Who leads at this time, and with what value.
    pub(super) fn first(&mut self, now_ns: u64) -> Option<(JobId, f64)> {
        self.advance(1, now_ns);
        self.matches[1].winner.map(|job| (job, self.entries[job.index()].line.at(now_ns)))
    }

    fn grow(&mut self, now_ns: u64, jobs: usize) {
        if jobs <= self.entries.len() {
            return;
        }
        let old_leaves = self.entries.len();
        let leaves = jobs.next_power_of_two();
        self.entries.resize(leaves, Entry::default());
        let mut matches = vec![NOBODY; 2 * leaves];
        matches[leaves..leaves + old_leaves].copy_from_slice(&self.matches[old_leaves..]);
        self.matches = matches;
        for node in (1..leaves).rev() {
            self.play(node, now_ns);
        }
    }

    /// Replays the matches of the job, up to the first whose result stays and is not about the job:
    /// nothing changes for those above.
    fn replay(&mut self, now_ns: u64, job: JobId, winner: Option<JobId>) {
        let mut node = self.matches.len() / 2 + job.index();
        self.matches[node] = Match { winner, until_ns: u64::MAX };
        while node > 1 {
            self.advance(node ^ 1, now_ns);
            node /= 2;
            let before = self.matches[node];
            self.play(node, now_ns);
            if self.matches[node] == before && before.winner != Some(job) {
                break;
            }
        }
    }

    fn advance(&mut self, node: usize, now_ns: u64) {
        if self.matches[node].until_ns <= now_ns {
            self.advance(2 * node, now_ns);
            self.advance(2 * node + 1, now_ns);
            self.play(node, now_ns);
        }
    }

    /// Both halves are up to date: who wins between them, and until when.
    fn play(&mut self, node: usize, now_ns: u64) {
        let (left, right) = (self.matches[2 * node], self.matches[2 * node + 1]);
        let halves_until_ns = left.until_ns.min(right.until_ns);
        self.matches[node] = match (left.winner, right.winner) {
            (Some(a), Some(b)) => {
                let (winner, stands_until_ns) = self.duel(a, b, now_ns);
                Match { winner: Some(winner), until_ns: halves_until_ns.min(stands_until_ns) }
            }
            (winner, None) | (None, winner) => Match { winner, until_ns: halves_until_ns },
        };
    }

    fn duel(&self, a: JobId, b: JobId, now_ns: u64) -> (JobId, u64) {
        let (entry_a, entry_b) = (&self.entries[a.index()], &self.entries[b.index()]);
        let (value_a, value_b) = (entry_a.line.at(now_ns), entry_b.line.at(now_ns));
        let a_wins = value_a > value_b || (value_a == value_b && (entry_a.order, a) < (entry_b.order, b));
        let lead = (value_a - value_b).abs();
        let (winner, climb) = if a_wins {
            (a, entry_b.line.slope - entry_a.line.slope)
        } else {
            (b, entry_a.line.slope - entry_b.line.slope)
        };
        (winner, overtaken_at_ns(now_ns, lead, climb))
    }
}

/// When somebody `lead` behind who gains `climb` per nanosecond is ahead; rounded down, as a look
/// too early costs a replay and a look too late costs the order.
pub(super) fn overtaken_at_ns(now_ns: u64, lead: f64, climb: f64) -> u64 {
    if climb > 0.0 { now_ns.saturating_add((lead / climb) as u64).saturating_add(1) } else { u64::MAX }
}

/// The lowest of many lines: a [`Tournament`] upside down. Ties go to the later one, so that the
/// earlier keeps its place.
#[derive(Default)]
pub(super) struct Lowest(Tournament);

impl Lowest {
    pub(super) fn enter(&mut self, now_ns: u64, job: JobId, line: Line, order: u64) {
        self.0.enter(now_ns, job, line.negated(), u64::MAX - order);
    }

    pub(super) fn withdraw(&mut self, now_ns: u64, job: JobId) {
        self.0.withdraw(now_ns, job);
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.0.contains(job)
    }

    pub(super) fn first(&mut self, now_ns: u64) -> Option<(JobId, f64)> {
        self.0.first(now_ns).map(|(job, value)| (job, -value))
    }
}
