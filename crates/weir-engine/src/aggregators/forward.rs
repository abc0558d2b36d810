//! The planning behind `slack`: calls with due times at several targets, brought forward one after the other.
//!
//! Bringing a call forward moves its aggregators to the earliest places at which everybody behind them is still
//! in time. Its finish is then decided by one target; at the others it steps back to the latest place that does
//! not change its finish, and leaves the room to the rest. Any order of doing so keeps all due times. The calls
//! that come first in it gain most, and so the order decides the mean: it is searched for.
//!
//! Brought forward in an order in which serving them one after the other would be in time, no call finishes later
//! than it would so: at worst each one goes behind those before it.

/// One aggregator of a call at one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) call: usize,
    pub(super) ready_ns: u64,
    pub(super) service_ns: u64,
    /// From the end of its service to the earliest finish of its call.
    pub(super) tail_ns: u64,
}

impl Place {
    /// When it has been served by a target that is free from `free_ns`.
    fn served_ns(&self, free_ns: u64) -> u64 {
        free_ns.max(self.ready_ns) + self.service_ns
    }
}

#[derive(Debug, Default)]
pub(super) struct Problem {
    targets: Vec<Target>,
    calls: Vec<Call>,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Target {
    free_ns: u64,
    end_due_ns: u64,
    /// Indices into `Problem::places`, as served if nothing is changed.
    sequence: Vec<usize>,
}

#[derive(Debug)]
struct Call {
    due_ns: u64,
    /// It cannot finish before this.
    settled_ns: u64,
    /// When it finishes if nothing is changed.
    present_ns: u64,
    /// `(target, place)` of each aggregator, the shortest tail first.
    aggregators: Vec<(usize, usize)>,
}

/// A plan in the making: the sequence of places at each target, and when each call is due.
#[derive(Clone)]
struct Draft {
    sequences: Vec<Vec<usize>>,
    due_ns: Vec<u64>,
}

impl Draft {
    fn total_ns(&self) -> u128 {
        self.due_ns.iter().map(|&due| u128::from(due)).sum()
    }
}

impl Problem {
    /// Answers the number of the new call.
    pub(super) fn add_call(&mut self, due_ns: u64, settled_ns: u64) -> usize {
        self.calls.push(Call { due_ns, settled_ns, present_ns: settled_ns, aggregators: Vec::new() });
        self.calls.len() - 1
    }

    /// Adds a target with the places it would serve in this order, once all calls are known.
    ///
    /// Storage slower than predicted may already have made a due time impossible: then what counts is that
    /// the present order gets no worse.
    pub(super) fn add_target(&mut self, free_ns: u64, end_due_ns: u64, places: impl Iterator<Item = Place>) {
        let first = self.places.len();
        let mut end_ns = free_ns;
        for place in places {
            end_ns = place.served_ns(end_ns);
            let call = &mut self.calls[place.call];
            call.present_ns = call.present_ns.max(end_ns + place.tail_ns);
            call.due_ns = call.due_ns.max(call.present_ns);
            call.aggregators.push((self.targets.len(), self.places.len()));
            self.places.push(place);
        }
        let sequence = (first..self.places.len()).collect();
        self.targets.push(Target { free_ns, end_due_ns: end_due_ns.max(end_ns), sequence });
    }

    /// For each target, the order in which it is to serve its places, as indices into what it was given.
    pub(super) fn solve(mut self, effort: u64) -> Vec<Vec<usize>> {
        for call in &mut self.calls {
            call.aggregators.sort_by_key(|&(_, place)| self.places[place].tail_ns);
        }
        let present = self.start();
        self.put_earliest_due_first();
        let mut best = Search::new(&self, effort).run();
        // The promise does not rest on the search being right.
        let mut planned = self.targets.iter().zip(&best.sequences);
        let kept = planned.all(|(target, sequence)| self.in_time(target, sequence));
        debug_assert!(kept, "every step keeps all due times");
        if !kept {
            best = present;
        }
        let targets = self.targets.iter().zip(best.sequences);
        targets
            .map(|(target, sequence)| {
                let first = target.sequence.iter().min().copied().unwrap_or(0);
                sequence.into_iter().map(|place| place - first).collect()
            })
            .collect()
    }

    /// Jackson's rule: where everybody is ready, the earliest due first is in time if any order is, and leaves
    /// the most room to those brought forward. It may fail where somebody is still to come; such a target
    /// keeps its present order.
    fn put_earliest_due_first(&mut self) {
        for number in 0..self.targets.len() {
            let target = &self.targets[number];
            let mut sequence = target.sequence.clone();
            sequence.sort_by_key(|&place| {
                let place = &self.places[place];
                self.calls[place.call].due_ns - place.tail_ns
            });
            if self.in_time(target, &sequence) {
                self.targets[number].sequence = sequence;
            }
        }
    }

    fn in_time(&self, target: &Target, sequence: &[usize]) -> bool {
        let mut end_ns = target.free_ns;
        let in_time = sequence.iter().all(|&place| {
            let place = &self.places[place];
            end_ns = place.served_ns(end_ns);
            end_ns + place.tail_ns <= self.calls[place.call].due_ns
        });
        in_time && end_ns <= target.end_due_ns
    }

    fn start(&self) -> Draft {
        Draft {
            sequences: self.targets.iter().map(|target| target.sequence.clone()).collect(),
            due_ns: self.calls.iter().map(|call| call.due_ns).collect(),
        }
    }

    /// How many places are looked at when this call is brought forward.
    fn cost(&self, call: usize) -> u64 {
        self.calls[call]
            .aggregators
            .iter()
            .map(|&(target, _)| self.targets[target].sequence.len() as u64)
            .sum()
    }

    fn bring_forward(&self, draft: &mut Draft, call: usize, room: &mut Vec<u64>) {
        draft.due_ns[call] = self.advance(draft, call, room);
        for &(target, place) in &self.calls[call].aggregators {
            self.take_out(draft, target, place);
            let at = self.latest(draft, target, place, room);
            draft.sequences[target].insert(at, place);
        }
    }

    /// Moves the call to its earliest places and answers its finish.
    ///
    /// An aggregator may overtake others of its own call at the same target, which are still due as before: that
    /// is why those with a short tail go first, and why the finish is known only when all have moved.
    fn advance(&self, draft: &mut Draft, call: usize, room: &mut Vec<u64>) -> u64 {
        let Call { settled_ns, aggregators, .. } = &self.calls[call];
        for &(target, place) in aggregators {
            self.take_out(draft, target, place);
            let at = self.earliest(draft, target, place, room);
            draft.sequences[target].insert(at, place);
        }
        let finish_ns = |&(target, place)| self.served_ns(draft, target, place) + self.places[place].tail_ns;
        aggregators.iter().map(finish_ns).fold(*settled_ns, u64::max)
    }

    fn served_ns(&self, draft: &Draft, target: usize, place: usize) -> u64 {
        let mut end_ns = self.targets[target].free_ns;
        for &other in &draft.sequences[target] {
            end_ns = self.places[other].served_ns(end_ns);
            if other == place {
                break;
            }
        }
        end_ns
    }

    fn take_out(&self, draft: &mut Draft, target: usize, place: usize) {
        let at = draft.sequences[target].iter().position(|&other| other == place);
        draft.sequences[target].remove(at.expect("a place is never lost, only moved"));
    }

    fn earliest(&self, draft: &Draft, target: usize, place: usize, room: &mut Vec<u64>) -> usize {
        self.measure_room(draft, target, room);
        let mut free_ns = self.targets[target].free_ns;
        for (at, &other) in draft.sequences[target].iter().enumerate() {
            if self.places[place].served_ns(free_ns) <= room[at] {
                return at;
            }
            free_ns = self.places[other].served_ns(free_ns);
        }
        draft.sequences[target].len()
    }

    fn latest(&self, draft: &Draft, target: usize, place: usize, room: &mut Vec<u64>) -> usize {
        self.measure_room(draft, target, room);
        let sequence = &draft.sequences[target];
        let due_ns = draft.due_ns[self.places[place].call] - self.places[place].tail_ns;
        let mut free_ns = self.targets[target].free_ns;
        let mut latest = 0;
        for (at, room_ns) in room.iter().enumerate() {
            let served_ns = self.places[place].served_ns(free_ns);
            if served_ns > due_ns {
                break;
            }
            if served_ns <= *room_ns {
                latest = at;
            }
            if let Some(&other) = sequence.get(at) {
                free_ns = self.places[other].served_ns(free_ns);
            }
        }
        latest
    }

    /// `room[at]`: the latest that the target may become free for `sequence[at..]` to be served in time.
    fn measure_room(&self, draft: &Draft, target: usize, room: &mut Vec<u64>) {
        let sequence = &draft.sequences[target];
        room.clear();
        room.resize(sequence.len() + 1, self.targets[target].end_due_ns);
        for (at, &other) in sequence.iter().enumerate().rev() {
            let place = &self.places[other];
            let due_ns = draft.due_ns[place.call] - place.tail_ns;
            room[at] = room[at + 1].min(due_ns) - place.service_ns;
        }
    }
}

/// The search for the order in which calls are brought forward, as long as the effort lasts.
struct Search<'a> {
    problem: &'a Problem,
    effort: u64,
    room: Vec<u64>,
    best: Draft,
    best_order: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, effort: u64) -> Self {
        let best_order = (0..problem.calls.len()).collect();
        Search { problem, effort, room: Vec::new(), best: problem.start(), best_order }
    }

    fn run(mut self) -> Draft {
        let present = self.sorted_by(|call| call.present_ns);
        self.attempt(present);
        let problem = self.problem;
        let alone = self.sorted_by(|call| {
            let finish = |&(target, place): &(usize, usize)| {
                let place: &Place = &problem.places[place];
                place.served_ns(problem.targets[target].free_ns) + place.tail_ns
            };
            call.aggregators.iter().map(finish).max().unwrap_or(0)
        });
        self.attempt(alone);
        let greedy = self.greedy();
        self.attempt(greedy);
        self.move_single_calls();
        self.best
    }

    fn sorted_by(&self, key: impl Fn(&Call) -> u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.problem.calls.len()).collect();
        order.sort_by_cached_key(|&call| key(&self.problem.calls[call]));
        order
    }

    /// Always the call that can finish first, given the ones before it.
    fn greedy(&mut self) -> Vec<usize> {
        let mut draft = self.problem.start();
        let mut left: Vec<usize> = (0..self.problem.calls.len()).collect();
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let mut first = (u64::MAX, 0);
            for (index, &call) in left.iter().enumerate() {
                if !self.spend(self.problem.cost(call)) {
                    order.append(&mut left);
                    return order;
                }
                let finish_ns = self.problem.advance(&mut draft.clone(), call, &mut self.room);
                first = first.min((finish_ns, index));
            }
            let call = left.remove(first.1);
            self.problem.bring_forward(&mut draft, call, &mut self.room);
            order.push(call);
        }
        order
    }

    /// Moves one call at a time to another place in the order, until no move is left that helps.
    fn move_single_calls(&mut self) {
        let calls = self.problem.calls.len();
        let moves = (0..calls).flat_map(|from| (0..calls).map(move |to| (from, to)));
        let mut in_vain = 0;
        for (from, to) in moves.cycle() {
            if in_vain == calls * calls || self.effort == 0 {
                break;
            }
            in_vain += 1;
            // Moving a call one place down is moving its neighbour one place up.
            if from == to || from + 1 == to {
                continue;
            }
            let mut order = self.best_order.clone();
            let call = order.remove(from);
            order.insert(to, call);
            if self.attempt(order) {
                in_vain = 0;
            }
        }
    }

    /// Pays for looking at so many places; false once the effort is used up.
    fn spend(&mut self, cost: u64) -> bool {
        let affordable = cost <= self.effort;
        self.effort = self.effort.saturating_sub(cost);
        affordable
    }

    /// Brings all calls forward in this order; answers whether the mean is now better than ever.
    fn attempt(&mut self, order: Vec<usize>) -> bool {
        let mut draft = self.problem.start();
        for &call in &order {
            if !self.spend(self.problem.cost(call)) {
                break;
            }
            self.problem.bring_forward(&mut draft, call, &mut self.room);
        }
        let better = draft.total_ns() < self.best.total_ns();
        if better {
            (self.best, self.best_order) = (draft, order);
        }
        better
    }
}
