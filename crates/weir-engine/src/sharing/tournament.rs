//! The highest of many lines, as time goes by.
//!
//! Every priority among the policies here is a straight line in time: who waits climbs at a steady
//! rate. A sorted structure would have to be sorted anew at every event, since lines cross. This is
//! a tournament in which every match knows until when its result stands
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

/// Of a group or of two halves of the tree.
#[derive(Clone, Copy)]
struct Match {
    /// The place of the winner; [`NOBODY`] where nobody plays.
    winner: Place,
    /// The result stands until this time, not included.
    until_ns: u64,
}

/// Where a job plays, as long as it does.
pub(super) type Place = u32;

const NOBODY: Place = u32::MAX;
const EMPTY: Match = Match { winner: NOBODY, until_ns: u64::MAX };

/// Places that lie side by side and play one match: the lowest levels of a tree of pairs would each be somewhere
/// else in memory, and that is what they would cost.
const GROUP: usize = 4;

/// One who plays. Of two equal values the lower order wins; then the lower job number.
#[derive(Clone, Copy)]
struct Player {
    line: Line,
    order: u64,
    job: JobId,
    plays: bool,
}

/// The tree has as many places as jobs have ever been in at once: it is as deep as the jobs in it are
/// many, not as all jobs are.
pub(super) struct Tournament {
    players: Vec<Player>,
    free: Vec<Place>,
    /// A complete binary tree: the root is 1, the leaf of group `g` is `matches.len() / 2 + g`.
    matches: Vec<Match>,
}

impl Default for Tournament {
    fn default() -> Self {
        Tournament { players: Vec::new(), free: Vec::new(), matches: vec![EMPTY; 2] }
    }
}

impl Tournament {
    pub(super) fn enter(&mut self, now_ns: u64, job: JobId, line: Line, order: u64) -> Place {
        let player = Player { line, order, job, plays: true };
        let place = self.free.pop().unwrap_or(self.players.len() as Place);
        match self.players.get_mut(place as usize) {
            Some(free) => *free = player,
            None => {
                self.players.push(player);
                self.grow(now_ns);
            }
        }
        self.replay(now_ns, place);
        place
    }

    /// Another line for the one who plays there.
    pub(super) fn change(&mut self, now_ns: u64, place: Place, line: Line) {
        self.players[place as usize].line = line;
        self.replay(now_ns, place);
    }

    pub(super) fn withdraw(&mut self, now_ns: u64, place: Place) {
        self.players[place as usize].plays = false;
        self.free.push(place);
        self.replay(now_ns, place);
    }

    /// Who leads at this time, and with what value.
    pub(super) fn first(&mut self, now_ns: u64) -> Option<(JobId, f64)> {
        self.advance(1, now_ns);
        let player = self.players.get(self.matches[1].winner as usize)?;
        Some((player.job, player.line.at(now_ns)))
    }

    fn leaves(&self) -> usize {
        self.matches.len() / 2
    }

    fn grow(&mut self, now_ns: u64) {
        let (before, leaves) = (self.leaves(), self.players.len().div_ceil(GROUP).next_power_of_two());
        if leaves <= before {
            return;
        }
        let mut matches = vec![EMPTY; 2 * leaves];
        matches[leaves..leaves + before].copy_from_slice(&self.matches[before..]);
        self.matches = matches;
        for node in (1..leaves).rev() {
            self.play(node, now_ns);
        }
    }

    /// Replays the matches of a place, up to the first that neither was nor is won by who plays there:
    /// nothing changes for those above, but for when to look at them again.
    fn replay(&mut self, now_ns: u64, place: Place) {
        let mut node = self.leaves() + place as usize / GROUP;
        loop {
            let before = self.matches[node].winner;
            self.play(node, now_ns);
            let Match { winner, until_ns } = self.matches[node];
            if node == 1 {
                return;
            }
            if winner == before && winner != place {
                return self.look_by(until_ns, node);
            }
            self.advance(node ^ 1, now_ns);
            node /= 2;
        }
    }

    /// Nobody above this match stands for longer than it does. A look too early does no harm.
    fn look_by(&mut self, until_ns: u64, mut node: usize) {
        while node > 1 {
            node /= 2;
            if self.matches[node].until_ns <= until_ns {
                return;
            }
            self.matches[node].until_ns = until_ns;
        }
    }

    fn advance(&mut self, node: usize, now_ns: u64) {
        if self.matches[node].until_ns <= now_ns {
            if node < self.leaves() {
                self.advance(2 * node, now_ns);
                self.advance(2 * node + 1, now_ns);
            }
            self.play(node, now_ns);
        }
    }

    /// All below is up to date: who wins, and until when.
    fn play(&mut self, node: usize, now_ns: u64) {
        let leaves = self.leaves();
        self.matches[node] = if node < leaves {
            self.between(self.matches[2 * node], self.matches[2 * node + 1], now_ns)
        } else {
            self.among((node - leaves) * GROUP, now_ns)
        };
    }

    fn between(&self, left: Match, right: Match, now_ns: u64) -> Match {
        match (left.winner, right.winner) {
            (_, NOBODY) => left,
            (NOBODY, _) => right,
            (a, b) => {
                let (player_a, player_b) = (&self.players[a as usize], &self.players[b as usize]);
                let (winner, stands_until_ns) = if player_a.beats(player_b, now_ns) {
                    (a, player_a.overtaken_by_ns(player_b, now_ns))
                } else {
                    (b, player_b.overtaken_by_ns(player_a, now_ns))
                };
                Match { winner, until_ns: left.until_ns.min(right.until_ns).min(stands_until_ns) }
            }
        }
    }

    /// The group that begins at this place.
    fn among(&self, begin: usize, now_ns: u64) -> Match {
        let group = &self.players[begin..self.players.len().min(begin + GROUP)];
        let mut best: Option<(usize, &Player)> = None;
        for (index, player) in group.iter().enumerate().filter(|(_, player)| player.plays) {
            if best.is_none_or(|(_, best)| player.beats(best, now_ns)) {
                best = Some((index, player));
            }
        }
        let Some((winner, best)) = best else { return EMPTY };
        let mut until_ns = u64::MAX;
        for (index, player) in group.iter().enumerate() {
            if player.plays && index != winner {
                until_ns = until_ns.min(best.overtaken_by_ns(player, now_ns));
            }
        }
        Match { winner: (begin + winner) as Place, until_ns }
    }
}

impl Player {
    #[inline]
    fn beats(&self, other: &Player, now_ns: u64) -> bool {
        let (own, others) = (self.line.at(now_ns), other.line.at(now_ns));
        own > others || (own == others && (self.order, self.job) < (other.order, other.job))
    }

    #[inline]
    fn overtaken_by_ns(&self, other: &Player, now_ns: u64) -> u64 {
        let lead = self.line.at(now_ns) - other.line.at(now_ns);
        overtaken_at_ns(now_ns, lead, other.line.slope - self.line.slope)
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
    pub(super) fn enter(&mut self, now_ns: u64, job: JobId, line: Line, order: u64) -> Place {
        self.0.enter(now_ns, job, line.negated(), u64::MAX - order)
    }

    pub(super) fn change(&mut self, now_ns: u64, place: Place, line: Line) {
        self.0.change(now_ns, place, line.negated());
    }

    pub(super) fn withdraw(&mut self, now_ns: u64, place: Place) {
        self.0.withdraw(now_ns, place);
    }

    pub(super) fn first(&mut self, now_ns: u64) -> Option<(JobId, f64)> {
        self.0.first(now_ns).map(|(job, value)| (job, -value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;
    use std::collections::BTreeMap;

    /// Jobs come, change and go while time goes on; the leader is always the one that a look at
    /// everybody finds.
    #[test]
    fn the_leader_is_the_highest() {
        for seed in 0..20 {
            let mut random = Pcg64::seed_from_u64(seed);
            let (mut tournament, mut now_ns) = (Tournament::default(), 0);
            let mut all: BTreeMap<JobId, (Place, Line, u64)> = BTreeMap::new();
            for order in 0..2000 {
                now_ns += random.random_range(0..1000);
                let job = JobId(random.random_range(0..50));
                if random.random_range(0..3) == 0 {
                    if let Some((place, ..)) = all.remove(&job) {
                        tournament.withdraw(now_ns, place);
                    }
                } else {
                    let value = f64::from(random.random_range(0..1000));
                    let slope = f64::from(random.random_range(0..8)) / 8.0;
                    let line = Line { value, slope, at_ns: now_ns };
                    let (place, _, order) = match all.get(&job) {
                        Some(&entry) => entry,
                        None => (tournament.enter(now_ns, job, line, order), line, order),
                    };
                    tournament.change(now_ns, place, line);
                    all.insert(job, (place, line, order));
                }
                let value = |job: &JobId| all[job].1.at(now_ns);
                let first = all.keys().copied().max_by(|a, b| {
                    value(a).total_cmp(&value(b)).then(all[b].2.cmp(&all[a].2)).then(b.cmp(a))
                });
                assert_eq!(tournament.first(now_ns), first.map(|job| (job, value(&job))), "seed {seed}");
            }
        }
    }
}
