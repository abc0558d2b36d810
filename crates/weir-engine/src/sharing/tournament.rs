//! The highest of many lines, as time goes by.
//!
//! Every priority among the policies here is a straight line in time: who waits climbs at a steady
//! rate. A sorted structure would have to be sorted anew at every event, since lines cross. This is
//! a tournament in which every match knows until when its result stands
//! (a kinetic tournament): changing one line replays the matches on its path, and moving time on
//! replays only the matches whose time is up.

use crate::engine::elapsed_ns;
use crate::records::Seat;

/// `value + slope × (t − at_ns)`: a priority, slope per nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Line {
    pub(super) value: f64,
    pub(super) slope: f64,
    pub(super) at_ns: u64,
}

impl Line {
    pub(super) fn at(&self, now_ns: u64) -> f64 {
        self.value + self.slope * elapsed_ns(self.at_ns, now_ns)
    }

    fn negated(self) -> Line {
        Line { value: -self.value, slope: -self.slope, at_ns: self.at_ns }
    }
}

/// Where a job plays, as long as it does.
pub(super) type Place = u32;

/// So many play one match: their lines lie side by side, where those of a tree of pairs would each be
/// somewhere else in memory.
const GROUP: usize = 8;

/// One who plays, in its own place and again wherever it has won. Of two equal values the lower order
/// wins; then the lower job number.
#[derive(Clone, Copy)]
struct Player {
    line: Line,
    order: u64,
    /// The match it won stands until this time, not included, and so do all those it won before.
    until_ns: u64,
    seat: Seat,
}

/// Plays where nobody does, and loses against everybody.
const NOBODY: Player = Player {
    line: Line { value: f64::NEG_INFINITY, slope: 0.0, at_ns: 0 },
    order: u64::MAX,
    until_ns: u64::MAX,
    seat: Seat::NONE,
};

/// Six cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Group([Player; GROUP]);

const _: () = assert!(size_of::<Group>() == 6 * 64);

/// The tree has as many places as jobs have ever been in at once: it is as deep as the jobs in it are
/// many, not as all jobs are.
///
/// Most who come and go never lead, not even in their group. Who comes plays against the winner of its group alone,
/// and further up only as long as it wins; who goes without having won leaves all as it is. Where a winner goes, the
/// matches it won are out of date, and are played again when somebody asks for another champion.
pub(super) struct Tournament {
    /// The lowest level has everybody, each further one the winners of the groups below it, and the last
    /// one a single group.
    levels: Vec<Vec<Group>>,
    /// Leads until its `until_ns`; who leads from then on is to be found out.
    champion: Player,
    places: Place,
    free: Vec<Place>,
}

impl Default for Tournament {
    fn default() -> Self {
        Tournament { levels: Vec::new(), champion: NOBODY, places: 0, free: Vec::new() }
    }
}

impl Tournament {
    pub(super) fn enter(&mut self, now_ns: u64, seat: Seat, line: Line, order: u64) -> Place {
        let place = self.free.pop().unwrap_or_else(|| self.add_place());
        let player = Player { line, order, until_ns: u64::MAX, seat };
        *self.player(place) = player;
        self.rise(now_ns, place, &player);
        place
    }

    /// Another line for the one who plays there.
    pub(super) fn change(&mut self, now_ns: u64, place: Place, line: Line) {
        let player = self.player(place);
        player.line = line;
        let player = *player;
        self.forget_wins(place, player.seat);
        self.rise(now_ns, place, &player);
    }

    pub(super) fn withdraw(&mut self, place: Place) {
        let gone = std::mem::replace(self.player(place), NOBODY);
        self.forget_wins(place, gone.seat);
        self.free.push(place);
    }

    /// Who leads at this time, and with what value.
    pub(super) fn first(&mut self, now_ns: u64) -> Option<(Seat, f64)> {
        if self.champion.until_ns <= now_ns {
            self.champion = self.play(self.levels.len() - 1, 0, now_ns);
        }
        let Player { line, seat, .. } = &self.champion;
        (*seat != NOBODY.seat).then(|| (*seat, line.at(now_ns)))
    }

    fn player(&mut self, place: Place) -> &mut Player {
        &mut self.levels[0][place as usize / GROUP].0[place as usize % GROUP]
    }

    /// The matches won from this place are to be played again.
    fn forget_wins(&mut self, place: Place, seat: Seat) {
        let group = place as usize / GROUP;
        if self.levels.get(1).is_some_and(|level| level[group / GROUP].0[group % GROUP].seat == seat) {
            self.look_by(0, 1, group);
        }
        if self.champion.seat == seat {
            self.champion.until_ns = 0;
        }
    }

    /// Lets one who is new in its place play against those who won there, as far as it wins itself.
    fn rise(&mut self, now_ns: u64, place: Place, player: &Player) {
        self.champion.meet(now_ns, player);
        let mut group = place as usize / GROUP;
        for level in 1..self.levels.len() {
            let won = &mut self.levels[level][group / GROUP].0[group % GROUP];
            let wins = won.meet(now_ns, player);
            let until_ns = won.until_ns;
            group /= GROUP;
            if !wins {
                return self.look_by(until_ns, level + 1, group);
            }
        }
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
            if index > 0 {
                // To be played when it is looked at.
                top.0[0].until_ns = 0;
            }
            self.levels.push(vec![top]);
        }
        place
    }

    /// No match from this level on, above this group, stands for longer. A look too early does no harm.
    fn look_by(&mut self, until_ns: u64, level: usize, mut group: usize) {
        for level in level..self.levels.len() {
            let won = &mut self.levels[level][group / GROUP].0[group % GROUP];
            if won.until_ns <= until_ns {
                return;
            }
            won.until_ns = until_ns;
            group /= GROUP;
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

impl Player {
    /// Of two who are equal.
    fn comes_before(&self, other: &Player) -> bool {
        (self.order, self.seat) < (other.order, other.seat)
    }

    /// Somebody new plays against the winner of a match: all the others are below that one as long as its result
    /// stands, so only the two are to be compared. Answers whether the new one wins. A match whose time is up is played
    /// again anyway.
    fn meet(&mut self, now_ns: u64, player: &Player) -> bool {
        if self.until_ns <= now_ns {
            return false;
        }
        let lead = self.line.at(now_ns) - player.line.at(now_ns);
        let climb = player.line.slope - self.line.slope;
        let wins = lead < 0.0 || lead == 0.0 && player.comes_before(self);
        let passed_ns = overtaken_at_ns(now_ns, lead.abs(), if wins { -climb } else { climb });
        let until_ns = self.until_ns.min(passed_ns);
        if wins {
            *self = *player;
        }
        self.until_ns = until_ns;
        wins
    }
}

/// Written without branches where it can be: who wins cannot be foreseen, least of all by a processor.
impl Group {
    fn until_ns(&self) -> u64 {
        self.0.iter().fold(u64::MAX, |until_ns, player| until_ns.min(player.until_ns))
    }

    fn winner(&self, now_ns: u64) -> Player {
        let values = self.0.each_ref().map(|player| player.line.at(now_ns));
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
        let ties = values.iter().rev().fold(0u32, |ties, &value| ties << 1 | u32::from(value == highest));
        if ties.is_power_of_two() {
            return ties.trailing_zeros() as usize % GROUP;
        }
        let tied = (0..GROUP).filter(|member| ties & (1 << member) != 0);
        tied.min_by_key(|&member| (self.0[member].order, self.0[member].seat)).unwrap_or(0)
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
    pub(super) fn enter(&mut self, now_ns: u64, seat: Seat, line: Line, order: u64) -> Place {
        self.0.enter(now_ns, seat, line.negated(), u64::MAX - order)
    }

    pub(super) fn change(&mut self, now_ns: u64, place: Place, line: Line) {
        self.0.change(now_ns, place, line.negated());
    }

    pub(super) fn withdraw(&mut self, place: Place) {
        self.0.withdraw(place);
    }

    pub(super) fn first(&mut self, now_ns: u64) -> Option<(Seat, f64)> {
        self.0.first(now_ns).map(|(seat, value)| (seat, -value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::JobId;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;
    use std::collections::BTreeMap;

    /// Jobs come, change and go while time goes on; the leader is always the one that a look at
    /// everybody finds.
    #[test]
    fn the_leader_is_the_highest() {
        for seed in 0..30 {
            let mut random = Pcg64::seed_from_u64(seed);
            let most = [5, 50, 700][seed as usize % 3];
            let (mut tournament, mut now_ns) = (Tournament::default(), 0);
            let mut all: BTreeMap<Seat, (Place, Line, u64)> = BTreeMap::new();
            for order in 0..4000 {
                now_ns += random.random_range(0..1000);
                let number = random.random_range(0..most);
                let seat = Seat { job: JobId(number), number };
                if random.random_range(0..3) == 0 {
                    if let Some((place, ..)) = all.remove(&seat) {
                        tournament.withdraw(place);
                    }
                } else {
                    let value = f64::from(random.random_range(0..1000));
                    let slope = f64::from(random.random_range(0..8)) / 8.0;
                    let line = Line { value, slope, at_ns: now_ns };
                    let (place, _, order) = match all.get(&seat) {
                        Some(&entry) => entry,
                        None => (tournament.enter(now_ns, seat, line, order), line, order),
                    };
                    tournament.change(now_ns, place, line);
                    all.insert(seat, (place, line, order));
                }
                if random.random_range(0..2) == 0 {
                    continue;
                }
                let value = |seat: &Seat| all[seat].1.at(now_ns);
                let first = all.keys().copied().max_by(|a, b| {
                    value(a).total_cmp(&value(b)).then(all[b].2.cmp(&all[a].2)).then(b.cmp(a))
                });
                assert_eq!(tournament.first(now_ns), first.map(|seat| (seat, value(&seat))), "seed {seed}");
            }
        }
    }
}
