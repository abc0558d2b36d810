//! Whose aggregators a storage target serves next, over the collective reads of all jobs: HIO and its kin. Pure.
//!
//! An aggregator asks before it reads and says when it has read. A target serves the aggregators of one collective
//! read at a time, in the engine's order ([`Scheduler`]), and those of one job if no other wants it. The order needs
//! to know the whole call; who of it has not come yet is taken from the job's call before. A target does not stay
//! idle for somebody who may not come: whoever misses its place goes first when it is there. A target whose reader
//! says nothing for much longer than it should take goes on with the next. So a turn is always given in the end.

use crate::coordinator::Peer;
use crate::wire::Reader;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::RangeInclusive;
use weir_engine::aggregators::{Aggregator, Mode, Options, Policy, Scheduler, Turn};
use weir_engine::engine::JobId;

/// More readers or targets are not ordered: they may go at once. More aggregators of a call are not expected, and more
/// files are forgotten.
const MAX_READERS: usize = 4096;
const MAX_TARGETS: usize = 256;
const MAX_PARTS: usize = 256;
const MAX_FILES: usize = 4096;
/// Calls that wait in the engine. Who asks again and again leaves some behind.
const MAX_JOINED: usize = 16_384;

/// Nothing takes longer, whatever its job says: no single reader may move the engine's clock to the end of time.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// An aggregator is waited for this many times as long as it should take, and this much, and never longer than that: it
/// may have been stopped in the read that it goes by.
const PATIENCE: u64 = 4;
const PATIENCE_NS: u64 = 250_000_000;
const LONGEST_PATIENCE_NS: u64 = 10_000_000_000;

/// What `slack` may look at while everybody waits for an answer.
const EFFORT: u64 = 20_000;

/// A reader: its job, its node, and its number there.
type Key = (JobId, Peer, u32);

/// A reader that may go: its node, its number there, and the call that it asked about.
pub(crate) type Given = (Peer, u32, u64);

pub(crate) struct Turns {
    order: Policy,
    scheduler: Scheduler,
    /// Grows with each scheduler: what waits in one that is gone waits nowhere.
    epoch: u64,
    /// What has joined the scheduler, which numbers it so.
    joined: HashMap<u64, Joined>,
    joins: u64,
    /// Calls so far.
    instances: u64,
    targets: Vec<Target>,
    by_identity: HashMap<u64, usize>,
    /// Who waits for its turn or has it.
    readers: BTreeMap<Key, Reading>,
    /// Of each file the latest call: the next will be like it.
    calls: BTreeMap<(JobId, u64), Call>,
    given: Vec<Given>,
    /// Nobody needs to be missed before.
    overdue_ns: Option<u64>,
}

/// What a call has to do at some targets.
struct Joined {
    job: JobId,
    file: u64,
    instance: u64,
    /// Targets at which the scheduler has not called it yet.
    left: usize,
}

#[derive(Default)]
struct Target {
    identity: u64,
    waiting: Vec<Key>,
    /// Of those who wait, who was called before it came.
    late: VecDeque<Key>,
    reading: Vec<Key>,
    turns: u64,
    overdue: u64,
}

struct Reading {
    reader: Reader,
    target: usize,
    /// Of its call.
    instance: u64,
    /// Set when it has its turn.
    overdue_ns: Option<u64>,
}

struct Call {
    call: u64,
    /// Its own: a file that is opened again counts its calls anew.
    instance: u64,
    epoch: u64,
    /// Its aggregators, and whether they have come.
    parts: Vec<(Key, Reader, bool)>,
    /// Targets at which it waits in the scheduler, and at which it was called.
    queued: Vec<usize>,
    called: Vec<usize>,
}

/// A target for people: who reads there and who waits, a job for each reader.
pub(crate) struct Queue {
    pub(crate) target: u64,
    pub(crate) reading: Vec<JobId>,
    pub(crate) waiting: Vec<JobId>,
    pub(crate) turns: u64,
    pub(crate) overdue: u64,
}

impl Call {
    /// The reader may be of this call: it has the number, and has not come before.
    fn expects(&self, key: Key, call: u64) -> bool {
        self.call == call && !self.parts.iter().any(|(of, _, came)| *of == key && *came)
    }
}

impl Turns {
    pub(crate) fn new(order: Policy) -> Turns {
        Turns {
            order,
            scheduler: scheduler(order),
            epoch: 0,
            joined: HashMap::new(),
            joins: 0,
            instances: 0,
            targets: Vec::new(),
            by_identity: HashMap::new(),
            readers: BTreeMap::new(),
            calls: BTreeMap::new(),
            given: Vec::new(),
            overdue_ns: None,
        }
    }

    pub(crate) fn order(&self) -> Policy {
        self.order
    }

    /// An aggregator is about to read. If it need not wait, its turn is among [`Turns::given`].
    pub(crate) fn read(&mut self, now_ns: u64, job: JobId, peer: Peer, reader: Reader) {
        let (key, call) = ((job, peer, reader.number), reader.call);
        // What it asked for before is over, if it did not say so.
        self.remove_all(now_ns, &[key]);
        if self.enter(now_ns, key, reader).is_none() {
            self.remove_all(now_ns, &[key]);
            self.given.push((peer, key.2, call));
        }
    }

    /// It has read, with or without its turn.
    pub(crate) fn served(&mut self, now_ns: u64, job: JobId, peer: Peer, number: u32, call: u64) {
        let key = (job, peer, number);
        if self.readers.get(&key).is_some_and(|reading| reading.reader.call == call) {
            self.remove_all(now_ns, &[key]);
        }
    }

    /// The job reads no more, for now.
    pub(crate) fn leave(&mut self, now_ns: u64, job: JobId) {
        self.remove_of(now_ns, job, 0..=Peer::MAX);
    }

    /// The job is gone.
    pub(crate) fn job_gone(&mut self, now_ns: u64, job: JobId) {
        self.calls.retain(|(of, _), _| *of != job);
        self.joined.retain(|_, joined| joined.job != job);
        self.scheduler.leave(u64::from(job.0));
        self.leave(now_ns, job);
    }

    /// A node of the job is gone.
    pub(crate) fn node_gone(&mut self, now_ns: u64, job: JobId, peer: Peer) {
        self.remove_of(now_ns, job, peer..=peer);
    }

    /// Goes on with another order: everybody who waits may go.
    pub(crate) fn set_order(&mut self, order: Policy) {
        let waiting = self.readers.iter().filter(|(_, reading)| reading.overdue_ns.is_none());
        self.given.extend(waiting.map(|((_, peer, number), of)| (*peer, *number, of.reader.call)));
        let given = std::mem::take(&mut self.given);
        *self = Turns { given, ..Turns::new(order) };
    }

    /// The turns to be told, in order. The caller empties it.
    pub(crate) fn given(&mut self) -> &mut Vec<Given> {
        &mut self.given
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.overdue_ns
    }

    /// Waits no more for those who take too long; they may still read, and say so.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        if self.overdue_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        let is_overdue = |reading: &Reading| reading.overdue_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let overdue: Vec<Key> =
            self.readers.iter().filter(|(_, of)| is_overdue(of)).map(|(key, _)| *key).collect();
        for key in &overdue {
            self.targets[self.readers[key].target].overdue += 1;
        }
        self.remove_all(now_ns, &overdue);
        self.overdue_ns = self.readers.values().filter_map(|reading| reading.overdue_ns).min();
    }

    /// Targets that were asked for.
    pub(crate) fn queues(&self) -> impl Iterator<Item = Queue> {
        let jobs = |keys: &[Key]| keys.iter().map(|(job, ..)| *job).collect();
        self.targets.iter().map(move |target| Queue {
            target: target.identity,
            reading: jobs(&target.reading),
            waiting: jobs(&target.waiting),
            turns: target.turns,
            overdue: target.overdue,
        })
    }

    /// `None`: it is not ordered, for it makes no sense or there is too much.
    fn enter(&mut self, now_ns: u64, key: Key, reader: Reader) -> Option<()> {
        let is_full = self.readers.len() >= MAX_READERS || self.joined.len() >= MAX_JOINED;
        if self.order == Policy::Nio || is_full {
            return None;
        }
        let (job, target) = (key.0, self.target(reader.target)?);
        let file = (job, reader.file);
        let Some(call) = self.calls.get_mut(&file).filter(|known| known.expects(key, reader.call)) else {
            let (instance, queued) = self.begin_call(now_ns, key, reader)?;
            self.await_turn(key, reader, target, instance);
            queued.into_iter().for_each(|target| self.advance(now_ns, target));
            return Some(());
        };
        call.parts.retain(|(of, ..)| *of != key);
        if call.parts.len() < MAX_PARTS {
            call.parts.push((key, reader, true));
        }
        let instance = call.instance;
        let is_called = call.called.contains(&target);
        let is_queued = call.queued.contains(&target);
        let is_late = is_called || (is_queued && call.epoch != self.epoch);
        if !is_late && !is_queued {
            // Nobody expected it here.
            self.join(now_ns, job, instance, &[reader])?;
            self.calls.get_mut(&file)?.queued.push(target);
        }
        self.await_turn(key, reader, target, instance);
        if is_late {
            self.targets[target].late.push_back(key);
        }
        self.advance(now_ns, target);
        Some(())
    }

    fn await_turn(&mut self, key: Key, reader: Reader, target: usize, instance: u64) {
        self.targets[target].waiting.push(key);
        self.readers.insert(key, Reading { reader, target, instance, overdue_ns: None });
    }

    /// The first of a call has come. The others will be those of the call before. Answers the number of the call, and the
    /// targets at which it waits in the scheduler.
    fn begin_call(&mut self, now_ns: u64, key: Key, reader: Reader) -> Option<(u64, Vec<usize>)> {
        let file = (key.0, reader.file);
        let before = self.calls.remove(&file).map_or(Vec::new(), |call| call.parts);
        let others = before.into_iter().filter(|(of, _, came)| *of != key && *came);
        let others = others.map(|(of, part, _)| (of, Reader { call: reader.call, ..part }, false));
        let parts: Vec<_> = [(key, reader, true)].into_iter().chain(others).take(MAX_PARTS).collect();
        let readers: Vec<Reader> = parts.iter().map(|(_, part, _)| *part).collect();
        self.instances += 1;
        let instance = self.instances;
        let queued = self.join(now_ns, key.0, instance, &readers)?;
        if self.calls.len() >= MAX_FILES {
            self.calls.clear();
        }
        let (call, epoch) = (reader.call, self.epoch);
        let begun = Call { call, instance, epoch, parts, queued: queued.clone(), called: Vec::new() };
        self.calls.insert(file, begun);
        Some((instance, queued))
    }

    /// Who of a call is at the same target reads there together: one aggregator to the engine. Answers the targets.
    fn join(&mut self, now_ns: u64, job: JobId, instance: u64, readers: &[Reader]) -> Option<Vec<usize>> {
        let mut at: BTreeMap<usize, Aggregator> = BTreeMap::new();
        for reader in readers {
            let target = self.target(reader.target)?;
            let entry = at.entry(target).or_insert(Aggregator { target, service_ns: 0, shuffle_ns: 0 });
            entry.service_ns = entry.service_ns.max(reader.service_ns.min(LONGEST_NS));
            entry.shuffle_ns = entry.shuffle_ns.max(reader.shuffle_ns.min(LONGEST_NS));
        }
        let file = readers.first()?.file;
        let aggregators: Vec<Aggregator> = at.values().copied().collect();
        self.scheduler.join(now_ns, u64::from(job.0), Mode::Read, &aggregators).ok()?;
        self.joined.insert(self.joins, Joined { job, file, instance, left: aggregators.len() });
        self.joins += 1;
        Some(at.into_keys().collect())
    }

    /// A target that is free takes the next one, and all of the same call; while there is one job only, all of its.
    fn advance(&mut self, now_ns: u64, target: usize) {
        if self.targets[target].reading.is_empty()
            && let Some(next) = self.next(now_ns, target)
        {
            self.serve(now_ns, next);
        }
        let Target { waiting, reading, .. } = &self.targets[target];
        let Some(first) = reading.first() else { return };
        let is_alone = waiting.iter().all(|(job, ..)| *job == first.0);
        let instance = |key: &Key| self.readers.get(key).map(|of| of.instance);
        let of_first = instance(first);
        let goes_too = |key: &&Key| key.0 == first.0 && (is_alone || instance(key) == of_first);
        let companions: Vec<Key> = waiting.iter().filter(goes_too).copied().collect();
        companions.into_iter().for_each(|key| self.serve(now_ns, key));
    }

    /// Who of those who wait at a target comes first.
    fn next(&mut self, now_ns: u64, target: usize) -> Option<Key> {
        while let Some(late) = self.targets[target].late.pop_front() {
            if self.targets[target].waiting.contains(&late) {
                return Some(late);
            }
        }
        while let Turn::Serve(called) = self.scheduler.next(now_ns, target) {
            let Some(joined) = self.joined.get_mut(&called.call) else { continue };
            let (job, file, instance) = (joined.job, joined.file, joined.instance);
            joined.left -= 1;
            if joined.left == 0 {
                self.joined.remove(&called.call);
            }
            if let Some(known) = self.calls.get_mut(&(job, file)).filter(|known| known.instance == instance) {
                known.queued.retain(|at| *at != target);
                known.called.push(target);
            }
            let is_of_it = |key: &&Key| self.readers.get(key).is_some_and(|of| of.instance == instance);
            if let Some(key) = self.targets[target].waiting.iter().find(is_of_it) {
                return Some(*key);
            }
        }
        None
    }

    fn serve(&mut self, now_ns: u64, key: Key) {
        let Some(reading) = self.readers.get_mut(&key) else { return };
        let patience_ns = reading.reader.service_ns.min(LONGEST_NS) * PATIENCE + PATIENCE_NS;
        let overdue_ns = now_ns.saturating_add(patience_ns.min(LONGEST_PATIENCE_NS));
        reading.overdue_ns = Some(overdue_ns);
        self.overdue_ns = Some(self.overdue_ns.map_or(overdue_ns, |at_ns| at_ns.min(overdue_ns)));
        let target = &mut self.targets[reading.target];
        target.waiting.retain(|other| *other != key);
        target.reading.push(key);
        target.turns += 1;
        self.given.push((key.1, key.2, reading.reader.call));
    }

    /// All readers of some nodes.
    fn remove_of(&mut self, now_ns: u64, job: JobId, nodes: RangeInclusive<Peer>) {
        let readers = self.readers.range((job, *nodes.start(), 0)..=(job, *nodes.end(), u32::MAX));
        let keys: Vec<Key> = readers.map(|(key, _)| *key).collect();
        self.remove_all(now_ns, &keys);
    }

    /// They wait and read no more. All are gone before others get their turns.
    fn remove_all(&mut self, now_ns: u64, keys: &[Key]) {
        let mut left: Vec<usize> = keys.iter().filter_map(|key| self.take_out(*key)).collect();
        left.sort_unstable();
        left.dedup();
        left.iter().for_each(|target| self.advance(now_ns, *target));
        if !left.is_empty() && self.readers.is_empty() {
            self.start_afresh();
        }
    }

    /// Answers the target at which it was.
    fn take_out(&mut self, key: Key) -> Option<usize> {
        let reading = self.readers.remove(&key)?;
        let target = &mut self.targets[reading.target];
        target.waiting.retain(|other| *other != key);
        target.late.retain(|other| *other != key);
        target.reading.retain(|other| *other != key);
        Some(reading.target)
    }

    /// Nobody is left: estimates that were too long, and who was expected in vain, are forgotten.
    fn start_afresh(&mut self) {
        self.overdue_ns = None;
        self.epoch += 1;
        self.scheduler = scheduler(self.order);
        self.joined.clear();
        self.joins = 0;
        if self.targets.len() >= MAX_TARGETS {
            self.targets.clear();
            self.by_identity.clear();
        }
    }

    /// The index of a target; a new one if it was not known, as far as there is room.
    fn target(&mut self, identity: u64) -> Option<usize> {
        if let Some(&index) = self.by_identity.get(&identity) {
            return Some(index);
        }
        let index = self.targets.len();
        if index >= MAX_TARGETS {
            return None;
        }
        self.by_identity.insert(identity, index);
        self.targets.push(Target { identity, ..Target::default() });
        Some(index)
    }
}

fn scheduler(order: Policy) -> Scheduler {
    let options = Options { effort: EFFORT, ..Options::default() };
    Scheduler::new(order, &options, MAX_TARGETS)
}

#[cfg(test)]
mod tests;
