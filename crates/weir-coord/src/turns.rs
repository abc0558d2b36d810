//! Whose aggregator a storage target serves next: HIO, over the collective reads of all jobs. Pure.
//!
//! The engine's [`Scheduler`] keeps a queue per target. A target that has served one is asked for the next; who
//! reads while no other job does is never kept waiting, and a target whose reader says nothing for much
//! longer than it should take goes on with the next. So a turn is always given in the end.

use crate::storage::{Storage, holding};
use crate::wire::Part;
use std::collections::{BTreeMap, HashMap};
use weir_engine::aggregators::{Aggregator, Mode, Options, Scheduler, Turn};
use weir_engine::engine::JobId;

/// More calls of a job, or more aggregators at a storage, are not ordered: they may go at once.
const MAX_CALLS: usize = 64;
const MAX_WAITING: usize = 65_536;

/// Nothing takes longer, whatever its job says: no single call may move the engine's clock to the end of time.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// An aggregator is waited for this many times as long as it should take, and this much.
const PATIENCE: u64 = 4;
const PATIENCE_NS: u64 = 250_000_000;

/// What `slack` may look at while everybody waits for an answer.
const EFFORT: u64 = 20_000;

/// An aggregator of a call that may read now.
pub(crate) type Given = (JobId, u64, u32);

#[derive(Default)]
pub(crate) struct Turns {
    storages: Vec<AtStorage>,
    given: Vec<Given>,
    /// No target needs to be looked at before.
    overdue_ns: Option<u64>,
}

struct AtStorage {
    storage: Storage,
    scheduler: Scheduler,
    /// How many calls have joined the scheduler, which numbers them so.
    joined: u64,
    calls: BTreeMap<(JobId, u64), Call>,
    by_number: HashMap<u64, (JobId, u64)>,
    /// Per target, who reads there.
    serving: Vec<Vec<Serving>>,
    waiting: usize,
    overdue: u64,
}

struct Call {
    number: u64,
    parts: Vec<(Part, State)>,
    left: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Serving,
    Served,
}

struct Serving {
    job: JobId,
    call: u64,
    aggregator: usize,
    overdue_ns: u64,
}

/// For people.
pub(crate) struct Queue<'a> {
    pub(crate) storage: &'a str,
    pub(crate) waiting: usize,
    pub(crate) reading: usize,
    pub(crate) overdue: u64,
}

impl Turns {
    /// Storages that make no sense are left out.
    pub(crate) fn new(storages: &[Storage]) -> Turns {
        let good = storages.iter().filter(|storage| storage.check().is_ok());
        Turns { storages: good.map(AtStorage::new).collect(), ..Turns::default() }
    }

    /// A collective read begins; what it may read at once is among [`Turns::given`]. Told again, nothing changes.
    pub(crate) fn collect(&mut self, now_ns: u64, job: JobId, call: u64, path: &str, parts: &[Part]) {
        let at = holding(self.storages.iter().map(|at| &at.storage), path);
        let ordered = match at.map(|index| &mut self.storages[index]) {
            Some(at) if at.calls.contains_key(&(job, call)) => return,
            Some(at) => at.join(now_ns, job, call, parts, &mut self.given),
            None => false,
        };
        if !ordered {
            self.given.extend((0..parts.len() as u32).map(|aggregator| (job, call, aggregator)));
        }
        self.watch();
    }

    /// An aggregator has read, or went without its turn.
    pub(crate) fn served(&mut self, now_ns: u64, job: JobId, call: u64, aggregator: u32) {
        for at in &mut self.storages {
            at.served(now_ns, job, call, aggregator as usize, &mut self.given);
        }
        self.watch();
    }

    /// The job reads no more.
    pub(crate) fn leave(&mut self, now_ns: u64, job: JobId) {
        if self.storages.iter().all(|at| at.calls.is_empty()) {
            return;
        }
        for at in &mut self.storages {
            at.leave(now_ns, job, &mut self.given);
        }
        self.watch();
    }

    /// Everybody who waits may go.
    pub(crate) fn give_all(&mut self) {
        for at in &mut self.storages {
            for (&(job, call), Call { parts, .. }) in &at.calls {
                let waiting = parts.iter().enumerate().filter(|(_, (_, state))| *state == State::Waiting);
                self.given.extend(waiting.map(|(index, _)| (job, call, index as u32)));
            }
            *at = AtStorage::new(&at.storage);
        }
        self.overdue_ns = None;
    }

    /// The turns to be told, in order. The caller empties it.
    pub(crate) fn given(&mut self) -> &mut Vec<Given> {
        &mut self.given
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.overdue_ns
    }

    /// Waits no more for those who take too long.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        if self.overdue_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            for at in &mut self.storages {
                at.lose_patience(now_ns, &mut self.given);
            }
            self.watch();
        }
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = Queue<'_>> {
        self.storages.iter().map(|at| Queue {
            storage: &at.storage.path,
            waiting: at.waiting,
            reading: at.serving.iter().map(Vec::len).sum(),
            overdue: at.overdue,
        })
    }

    fn watch(&mut self) {
        let serving = self.storages.iter().flat_map(|at| at.serving.iter().flatten());
        self.overdue_ns = serving.map(|serving| serving.overdue_ns).min();
    }
}

impl AtStorage {
    fn new(storage: &Storage) -> AtStorage {
        AtStorage {
            scheduler: scheduler(storage),
            joined: 0,
            calls: BTreeMap::new(),
            by_number: HashMap::new(),
            serving: (0..storage.targets).map(|_| Vec::new()).collect(),
            waiting: 0,
            overdue: 0,
            storage: storage.clone(),
        }
    }

    /// False: the call is not ordered, for it makes no sense or there are too many.
    fn join(&mut self, now_ns: u64, job: JobId, call: u64, parts: &[Part], given: &mut Vec<Given>) -> bool {
        let of_job = self.calls.range((job, 0)..=(job, u64::MAX)).count();
        if parts.is_empty() || of_job >= MAX_CALLS || self.waiting + parts.len() > MAX_WAITING {
            return false;
        }
        let aggregators: Vec<Aggregator> = parts
            .iter()
            .map(|part| Aggregator {
                target: part.target as usize,
                service_ns: self.service_ns(part),
                shuffle_ns: part.shuffle_ns.min(LONGEST_NS),
            })
            .collect();
        if self.scheduler.join(now_ns, u64::from(job.0), Mode::Read, &aggregators).is_err() {
            return false;
        }
        let number = self.joined;
        self.joined += 1;
        self.by_number.insert(number, (job, call));
        let parts: Vec<(Part, State)> = parts.iter().map(|&part| (part, State::Waiting)).collect();
        self.waiting += parts.len();
        let targets: Vec<usize> = aggregators.iter().map(|aggregator| aggregator.target).collect();
        self.calls.insert((job, call), Call { number, left: parts.len(), parts });
        targets.into_iter().for_each(|target| self.advance(now_ns, target, given));
        true
    }

    /// What one target needs for it.
    fn service_ns(&self, part: &Part) -> u64 {
        let seconds = part.bytes as f64 / self.storage.bandwidth[0];
        ((seconds * 1e9) as u64).min(LONGEST_NS)
    }

    /// A target that is free takes the next one; while there is one job only, all of its.
    fn advance(&mut self, now_ns: u64, target: usize, given: &mut Vec<Given>) {
        while self.serving[target].is_empty() || self.is_one_job() {
            let Turn::Serve(next) = self.scheduler.next(now_ns, target) else { return };
            let Some(&(job, call)) = self.by_number.get(&next.call) else { continue };
            let Some(known) = self.calls.get_mut(&(job, call)) else { continue };
            let (_, state) = &mut known.parts[next.aggregator];
            // It may have gone without its turn.
            if *state == State::Waiting {
                *state = State::Serving;
                self.waiting -= 1;
                let patience_ns = next.service_ns * PATIENCE + PATIENCE_NS;
                let overdue_ns = now_ns.saturating_add(patience_ns);
                let aggregator = next.aggregator;
                self.serving[target].push(Serving { job, call, aggregator, overdue_ns });
                given.push((job, call, aggregator as u32));
            }
        }
    }

    fn is_one_job(&self) -> bool {
        let job = |key: Option<(&(JobId, u64), &Call)>| key.map(|((job, _), _)| *job);
        job(self.calls.first_key_value()) == job(self.calls.last_key_value())
    }

    fn advance_all(&mut self, now_ns: u64, given: &mut Vec<Given>) {
        (0..self.storage.targets).for_each(|target| self.advance(now_ns, target, given));
    }

    fn served(&mut self, now_ns: u64, job: JobId, call: u64, aggregator: usize, given: &mut Vec<Given>) {
        let Some(known) = self.calls.get_mut(&(job, call)) else { return };
        let Some((part, state)) = known.parts.get_mut(aggregator) else { return };
        let target = part.target as usize;
        match std::mem::replace(state, State::Served) {
            State::Waiting => self.waiting -= 1,
            State::Serving => self.serving[target].retain(|s| !s.is(job, call, aggregator)),
            State::Served => return,
        }
        known.left -= 1;
        if known.left > 0 {
            return self.advance(now_ns, target, given);
        }
        self.by_number.remove(&known.number);
        self.calls.remove(&(job, call));
        self.call_ended(now_ns, given);
    }

    fn leave(&mut self, now_ns: u64, job: JobId, given: &mut Vec<Given>) {
        let calls: Vec<u64> =
            self.calls.range((job, 0)..=(job, u64::MAX)).map(|((_, call), _)| *call).collect();
        if calls.is_empty() {
            return;
        }
        for call in calls {
            let Some(known) = self.calls.remove(&(job, call)) else { continue };
            self.by_number.remove(&known.number);
            self.waiting -= known.parts.iter().filter(|(_, state)| *state == State::Waiting).count();
        }
        self.scheduler.leave(u64::from(job.0));
        self.serving.iter_mut().for_each(|serving| serving.retain(|s| s.job != job));
        self.call_ended(now_ns, given);
    }

    /// Somebody may be the only one now, or nobody is left: then estimates that were too long are forgotten.
    fn call_ended(&mut self, now_ns: u64, given: &mut Vec<Given>) {
        if self.calls.is_empty() {
            self.scheduler = scheduler(&self.storage);
            self.joined = 0;
            self.by_number.clear();
        } else {
            self.advance_all(now_ns, given);
        }
    }

    /// Who is overdue is no longer waited for; it may still read, and say so.
    fn lose_patience(&mut self, now_ns: u64, given: &mut Vec<Given>) {
        for target in 0..self.storage.targets {
            let before = self.serving[target].len();
            self.serving[target].retain(|serving| serving.overdue_ns > now_ns);
            self.overdue += (before - self.serving[target].len()) as u64;
            self.advance(now_ns, target, given);
        }
    }
}

impl Serving {
    fn is(&self, job: JobId, call: u64, aggregator: usize) -> bool {
        (self.job, self.call, self.aggregator) == (job, call, aggregator)
    }
}

fn scheduler(storage: &Storage) -> Scheduler {
    let options = Options { effort: EFFORT, ..Options::default() };
    Scheduler::new(storage.order, &options, storage.targets)
}

#[cfg(test)]
mod tests;
