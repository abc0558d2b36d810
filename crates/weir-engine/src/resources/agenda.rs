//! The next event of a simulation in which each of a fixed number of parties has at most one ahead.

/// A tournament of parties, won by the earliest; by the lower index among equals. Changing when a
/// party is due replays its matches only.
pub(crate) struct Agenda {
    due_s: Vec<f64>,
    /// A complete binary tree of winners, its root at 1; party `i` enters at `first + i`.
    winner: Vec<usize>,
    first: usize,
}

impl Agenda {
    /// Nobody is due, which is to say at infinity.
    pub(crate) fn new(parties: usize) -> Self {
        let first = parties.next_power_of_two();
        let mut winner: Vec<usize> = (0..2 * first).map(|node| node.saturating_sub(first)).collect();
        for node in (1..first).rev() {
            winner[node] = winner[2 * node];
        }
        Agenda { due_s: vec![f64::INFINITY; first], winner, first }
    }

    pub(crate) fn set(&mut self, party: usize, due_s: f64) {
        self.due_s[party] = due_s;
        let mut node = (self.first + party) / 2;
        while node > 0 {
            let (left, right) = (self.winner[2 * node], self.winner[2 * node + 1]);
            self.winner[node] = if self.due_s[right] < self.due_s[left] { right } else { left };
            node /= 2;
        }
    }

    /// Who is due next, and when.
    pub(crate) fn next(&self) -> (usize, f64) {
        let party = self.winner[1];
        (party, self.due_s[party])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_next_and_the_lower_index_among_equals() {
        let mut agenda = Agenda::new(5);
        assert_eq!(agenda.next().1, f64::INFINITY);
        for (party, due_s) in [(4, 3.0), (1, 2.0), (3, 2.0), (0, 9.0)] {
            agenda.set(party, due_s);
        }
        let mut order = Vec::new();
        while agenda.next().1.is_finite() {
            order.push(agenda.next());
            agenda.set(agenda.next().0, f64::INFINITY);
        }
        assert_eq!(order, [(1, 2.0), (3, 2.0), (4, 3.0), (0, 9.0)]);
    }

    #[test]
    fn one_party_is_its_own_tournament() {
        let mut agenda = Agenda::new(1);
        agenda.set(0, 7.0);
        assert_eq!(agenda.next(), (0, 7.0));
    }
}
