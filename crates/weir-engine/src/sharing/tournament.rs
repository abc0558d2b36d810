//! The highest of many lines, as time goes by.
//!
//! Every priority among the policies here is a straight line in time: who waits climbs at a steady
//! rate. A sorted structure would have to be sorted anew at every event, since lines cross. This is
//! a tournament tree in which every match knows until when its result stands
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
    /// The place of the winner; [`NOBODY`] where nobody plays.
    winner: u32,
    /// The result stands until this time, not included.
    until_ns: u64,
}

const NOBODY: u32 = u32::MAX;
const EMPTY: Match = Match { winner: NOBODY, until_ns: u64::MAX };

/// One who plays. Of two equal values the lower order wins; then the lower job number.
#[derive(Clone, Copy)]
struct Player {
    line: Line,
    order: u64,
    job: JobId,
}

/// The tree has a leaf per place, and as many places as jobs have ever been in at once: it is as deep
/// as the jobs in it are many, not as all jobs are.
pub(super) struct Tournament {
    /// Each job's place; [`NOBODY`] for those who are not in.
    places: Vec<u32>,
    players: Vec<Player>,
    free: Vec<u32>,
    /// A complete binary tree: the root is 1, the leaf of place `p` is `matches.len() / 2 + p`.
    matches: Vec<Match>,
}

impl Default for Tournament {
    fn default() -> Self {
        Tournament { places: Vec::new(), players: Vec::new(), free: Vec::new(), matches: vec![EMPTY; 2] }
    }
}

impl Tournament {
    /// Enters the job, or gives it another line.
    pub(super) fn enter(&mut self, now_ns: u64, job: JobId, line: Line, order: u64) {
        let player = Player { line, order, job };
        let place = match self.place(job) {
            Some(place) => place,
            None => self.take_place(now_ns, player),
        };
        self.players[place as usize] = player;
        self.replay(now_ns, place, place);
    }

    pub(super) fn withdraw(&mut self, now_ns: u64, job: JobId) {
        if let Some(place) = self.place(job) {
            self.places[job.index()] = NOBODY;
            self.free.push(place);
            self.replay(now_ns, place, NOBODY);
        }
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.place(job).is_some()
    }

    /// Who leads at this time, and with what value.
    pub(super) fn first(&mut self, now_ns: u64) -> Option<(JobId, f64)> {
        self.advance(1, now_ns);
        let player = self.players.get(self.matches[1].winner as usize)?;
        Some((player.job, player.line.at(now_ns)))
    }

    fn place(&self, job: JobId) -> Option<u32> {
        self.places.get(job.index()).copied().filter(|&place| place != NOBODY)
    }

    fn take_place(&mut self, now_ns: u64, player: Player) -> u32 {
        let place = self.free.pop().unwrap_or(self.players.len() as u32);
        if place as usize == self.players.len() {
            self.players.push(player);
            self.grow(now_ns);
        }
        if self.places.len() <= player.job.index() {
            self.places.resize(player.job.index() + 1, NOBODY);
        }
        self.places[player.job.index()] = place;
        place
    }

    fn grow(&mut self, now_ns: u64) {
        let (before, leaves) = (self.matches.len() / 2, self.players.len().next_power_of_two());
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

    /// Replays the matches of a place, up to the first whose result stays and is not about it:
    /// nothing changes for those above.
    fn replay(&mut self, now_ns: u64, place: u32, winner: u32) {
        let mut node = self.matches.len() / 2 + place as usize;
        self.matches[node] = Match { winner, until_ns: u64::MAX };
        while node > 1 {
            self.advance(node ^ 1, now_ns);
            node /= 2;
            let before = self.matches[node];
            self.play(node, now_ns);
            if self.matches[node] == before && before.winner != place {
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
        self.matches[node] = match (left.winner, right.winner) {
            (_, NOBODY) => left,
            (NOBODY, _) => right,
            (a, b) => {
                let (winner, stands_until_ns) = self.duel(a, b, now_ns);
                Match { winner, until_ns: left.until_ns.min(right.until_ns).min(stands_until_ns) }
            }
        };
    }

    fn duel(&self, a: u32, b: u32, now_ns: u64) -> (u32, u64) {
        let (player_a, player_b) = (&self.players[a as usize], &self.players[b as usize]);
        let lead = player_a.line.at(now_ns) - player_b.line.at(now_ns);
        let climb = player_b.line.slope - player_a.line.slope;
        let a_wins =
            lead > 0.0 || (lead == 0.0 && (player_a.order, player_a.job) < (player_b.order, player_b.job));
        if a_wins {
            (a, overtaken_at_ns(now_ns, lead, climb))
        } else {
            (b, overtaken_at_ns(now_ns, -lead, -climb))
        }
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
            let (mut tournament, mut all, mut now_ns) = (Tournament::default(), BTreeMap::new(), 0);
            for order in 0..2000 {
                now_ns += random.random_range(0..1000);
                let job = JobId(random.random_range(0..50));
                if random.random_range(0..3) == 0 {
                    tournament.withdraw(now_ns, job);
                    all.remove(&job);
                } else {
                    let value = f64::from(random.random_range(0..1000));
                    let slope = f64::from(random.random_range(0..8)) / 8.0;
                    let line = Line { value, slope, at_ns: now_ns };
                    tournament.enter(now_ns, job, line, order);
                    all.insert(job, (line, order));
                }
                assert_eq!(tournament.contains(job), all.contains_key(&job));
                let value = |job: &JobId| all[job].0.at(now_ns);
                let first = all.keys().copied().max_by(|a, b| {
                    value(a).total_cmp(&value(b)).then(all[b].1.cmp(&all[a].1)).then(b.cmp(a))
                });
                assert_eq!(tournament.first(now_ns), first.map(|job| (job, value(&job))), "seed {seed}");
            }
        }
    }
}
