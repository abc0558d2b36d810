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

/// Where a job plays, as long as it does.
pub(super) type Place = u32;

/// So many play one match: their lines lie side by side, where those of a tree of pairs would each be
/// somewhere else in memory.
const GROUP: usize = 4;

/// One who plays, in its own place and again wherever it has won. Of two equal values the lower order
/// wins; then the lower job number.
#[derive(Clone, Copy)]
struct Player {
    line: Line,
    order: u64,
    /// The match it won stands until this time, not included, and so do all those it won before.
    until_ns: u64,
    job: JobId,
    place: Place,
}

/// Plays where nobody does, and loses against everybody.
const NOBODY: Player = Player {
    line: Line { value: f64::NEG_INFINITY, slope: f64::NEG_INFINITY, at_ns: 0 },
    order: u64::MAX,
    until_ns: u64::MAX,
    job: JobId(u32::MAX),
    place: Place::MAX,
};

/// Three cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Group([Player; GROUP]);

const _: () = assert!(size_of::<Group>() == 3 * 64);

/// The tree has as many places as jobs have ever been in at once: it is as deep as the jobs in it are
/// many, not as all jobs are.
pub(super) struct Tournament {
    /// The lowest level has everybody, each further one the winners of the groups below it, and the last
    /// one a single group.
    levels: Vec<Vec<Group>>,
    champion: Player,
    places: Place,
    free: Vec<Place>,
    /// Whose matches are yet to be replayed: often somebody else enters there at once.
    vacated: Option<Place>,
}

impl Default for Tournament {
    fn default() -> Self {
        Tournament { levels: Vec::new(), champion: NOBODY, places: 0, free: Vec::new(), vacated: None }
    }
}

impl Tournament {
    pub(super) fn enter(&mut self, now_ns: u64, job: JobId, line: Line, order: u64) -> Place {
        let place = self.free.pop().unwrap_or_else(|| self.add_place());
        if self.vacated == Some(place) {
            self.vacated = None;
        }
        *self.player(place) = Player { line, order, until_ns: u64::MAX, job, place };
        self.replay(now_ns, place);
        place
    }

    /// Another line for the one who plays there.
    pub(super) fn change(&mut self, now_ns: u64, place: Place, line: Line) {
        self.player(place).line = line;
        self.replay(now_ns, place);
    }

    pub(super) fn withdraw(&mut self, now_ns: u64, place: Place) {
        self.catch_up(now_ns);
        *self.player(place) = NOBODY;
        self.free.push(place);
        self.vacated = Some(place);
    }

    /// Who leads at this time, and with what value.
    pub(super) fn first(&mut self, now_ns: u64) -> Option<(JobId, f64)> {
        self.catch_up(now_ns);
        if self.champion.until_ns <= now_ns {
            self.champion = self.play(self.levels.len() - 1, 0, now_ns);
        }
        let Player { line, job, place, .. } = &self.champion;
        (*place != NOBODY.place).then(|| (*job, line.at(now_ns)))
    }

    fn player(&mut self, place: Place) -> &mut Player {
        &mut self.levels[0][place as usize / GROUP].0[place as usize % GROUP]
    }

    fn add_place(&mut self) -> Place {
        let place = self.places;
        self.places += 1;
        let mut index = place as usize;
        for level in &mut self.levels {
            index /= GROUP;
            if index < level.len() {
                return place;
            }
            level.push(Group([NOBODY; GROUP]));
        }
        if index > 0 || self.levels.is_empty() {
            let mut top = Group([NOBODY; GROUP]);
            top.0[0] = self.champion;
            self.levels.push(vec![top]);
        }
        place
    }

    fn catch_up(&mut self, now_ns: u64) {
        if let Some(place) = self.vacated.take() {
            self.replay(now_ns, place);
        }
    }

    /// Replays the matches of a place, up to the first that neither was nor is won by who plays there:
    /// nothing changes for those above, but for when to look at them again.
    fn replay(&mut self, now_ns: u64, place: Place) {
        self.catch_up(now_ns);
        let mut index = place as usize;
        for level in 0..self.levels.len() {
            index /= GROUP;
            let winner = self.play(level, index, now_ns);
            let won = self.won(level, index);
            let before = won.place;
            *won = winner;
            if before == winner.place && winner.place != place {
                return self.look_by(winner.until_ns, level + 1, index);
            }
        }
    }

    /// Where the winner of a group is noted.
    fn won(&mut self, level: usize, group: usize) -> &mut Player {
        match self.levels.get_mut(level + 1) {
            Some(above) => &mut above[group / GROUP].0[group % GROUP],
            None => &mut self.champion,
        }
    }

    /// No match from this level on, above this group, stands for longer. A look too early does no harm.
    fn look_by(&mut self, until_ns: u64, level: usize, mut group: usize) {
        for level in level..self.levels.len() {
            group /= GROUP;
            let won = self.won(level, group);
            if won.until_ns <= until_ns {
                return;
            }
            won.until_ns = until_ns;
        }
    }

    /// Who wins a group.
    #[inline]
    fn play(&mut self, level: usize, group: usize, now_ns: u64) -> Player {
        if self.levels[level][group].until_ns() <= now_ns {
            self.advance(level, group, now_ns);
        }
        self.levels[level][group].winner(now_ns)
    }

    /// Plays again for those in a group whose time is up; on the lowest level it never is.
    fn advance(&mut self, level: usize, group: usize, now_ns: u64) {
        for member in 0..GROUP {
            if self.levels[level][group].0[member].until_ns <= now_ns {
                let winner = self.play(level - 1, group * GROUP + member, now_ns);
                self.levels[level][group].0[member] = winner;
            }
        }
    }
}

/// Written without branches where it can be: who wins cannot be foreseen, least of all by a processor.
impl Group {
    fn until_ns(&self) -> u64 {
        self.0.iter().fold(u64::MAX, |until_ns, player| until_ns.min(player.until_ns))
    }

    fn winner(&self, now_ns: u64) -> Player {
        if self.0.iter().all(|player| player.place == NOBODY.place) {
            return NOBODY;
        }
        let values = self.0.each_ref().map(|player| {
            if player.place == NOBODY.place { f64::NEG_INFINITY } else { player.line.at(now_ns) }
        });
        let best = self.best(values);
        let (winner, value) = (&self.0[best], values[best]);
        let mut stands_ns = f64::INFINITY;
        for (other, other_value) in self.0.iter().zip(values) {
            let climb = other.line.slope - winner.line.slope;
            if climb > 0.0 {
                stands_ns = f64::min(stands_ns, (value - other_value) / climb);
            }
        }
        Player { until_ns: self.until_ns().min(passed_at_ns(now_ns, stands_ns)), ..*winner }
    }

    fn best(&self, values: [f64; GROUP]) -> usize {
        let highest = values.into_iter().fold(f64::NEG_INFINITY, higher);
        let ties = values.map(|value| u32::from(value == highest));
        let ties = ties[0] | ties[1] << 1 | ties[2] << 2 | ties[3] << 3;
        if ties.is_power_of_two() {
            return ties.trailing_zeros() as usize % GROUP;
        }
        let tied = (0..GROUP).filter(|member| ties & (1 << member) != 0);
        tied.min_by_key(|&member| (self.0[member].order, self.0[member].job)).unwrap_or(0)
    }
}

/// `b` if `a` is not a number; one instruction, as `f64::max` is not.
fn higher(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// When somebody `lead` behind who gains `climb` per nanosecond is ahead; rounded down, as a look
/// too early costs a replay and a look too late costs the order.
pub(super) fn overtaken_at_ns(now_ns: u64, lead: f64, climb: f64) -> u64 {
    passed_at_ns(now_ns, if climb > 0.0 { lead / climb } else { f64::INFINITY })
}

fn passed_at_ns(now_ns: u64, wait_ns: f64) -> u64 {
    now_ns.saturating_add(wait_ns as u64).saturating_add(1)
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
                if random.random_range(0..2) == 0 {
                    continue;
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
