//! Turns of readers. In a collective read the aggregators of several jobs take turns at each storage target, in the
//! coordinator's order. An aggregator asks before each read that takes long, while several jobs are in I/O, and has its turn
//! for that read alone: between two reads it may wait for others of its job, and those for their turns.

use super::bell;
use super::page::Attached;
use super::target::{self, Origin};
use super::{count_wait, patience, wait_for};
use crate::clock;
use crate::measure::handles::Open;
use crate::shim::caller::Thread;
use crate::shim::shield::shield;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use weir_coord::ledger::Outcome;
use weir_coord::now_ns;
use weir_coord::session::Input;
use weir_coord::wire::Reader;
use weir_profile::layout::Block;

/// A read that took less than this last time is not worth asking for: the question takes up to a fiftieth of it, and the
/// storage, or the memory of the system, can serve others at the same time.
const SHORTEST_NS: u64 = 10_000_000;

/// What this rank's collective reads on an open file are like.
pub(crate) struct Reads {
    /// As in the record.
    index: AtomicU64,
    /// Collective reads so far: all who have opened the file together count alike.
    calls: AtomicU64,
    /// Reads of the call under way.
    rounds: AtomicU64,
    /// When the last of them ended; 0 before.
    ended_ns: AtomicU64,
    /// How long the last read took.
    service_ns: AtomicU64,
    /// How long the rest takes.
    shuffle_ns: AtomicU64,
    file: AtomicU64,
    target: AtomicU64,
    /// Whether they have been found out.
    known: AtomicU32,
}

const UNKNOWN: u32 = 0;
const KNOWN: u32 = 1;
/// There is none, or whoever asked waited in vain: nothing is asked any more.
const NONE: u32 = 2;

impl Reads {
    /// Nothing but zeros, as in a table that takes no room in the library.
    pub(crate) const fn new() -> Reads {
        Reads {
            index: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            service_ns: AtomicU64::new(0),
            shuffle_ns: AtomicU64::new(0),
            file: AtomicU64::new(0),
            target: AtomicU64::new(0),
            known: AtomicU32::new(UNKNOWN),
        }
    }

    /// The file was opened.
    pub(crate) fn opened(&self) {
        for number in [&self.calls, &self.ended_ns, &self.service_ns, &self.shuffle_ns] {
            number.store(0, Relaxed);
        }
        self.known.store(UNKNOWN, Relaxed);
    }

    /// Of the collective read that the thread is in, if the file is the one it reads: MPI has files of its own.
    pub(super) fn under_way(thread: &Thread, block: &Block) -> Option<&'static Reads> {
        // SAFETY: nothing, or what `begin` put there: of a table that stays.
        let reads = unsafe { thread.reads.get().as_ref() }?;
        let index = block.file.load(Relaxed);
        // Zero is all files that have no place of their own.
        (index != 0 && reads.index.load(Relaxed) == index).then_some(reads)
    }

    /// Another read of the call is about to begin, or the call ends: so long it took since the one before. What a rank
    /// waits for others is part of it, so that the shortest time is nearest to the truth; it is forgotten slowly.
    pub(super) fn note_rest(&self, now_ns: u64) {
        let ended_ns = self.ended_ns.swap(0, Relaxed);
        if ended_ns != 0 {
            let (rest_ns, known_ns) = (now_ns.saturating_sub(ended_ns), self.shuffle_ns.load(Relaxed));
            let most_ns = if known_ns == 0 { u64::MAX } else { known_ns + known_ns / 8 };
            self.shuffle_ns.store(rest_ns.clamp(1, most_ns), Relaxed);
        }
    }

    /// A read that the gate has let in is about to begin: waits for its turn, if it needs one.
    pub(super) fn start(&'static self, attached: &Attached, descriptor: i32) -> Read {
        let round = self.rounds.fetch_add(1, Relaxed);
        let is_worth_it = self.service_ns.load(Relaxed) >= SHORTEST_NS && self.known.load(Relaxed) != NONE;
        let page = attached.page;
        let place = if is_worth_it && !page.ledger.is_open() && page.readers.are_ordered() {
            shield(None, || self.ask(attached, descriptor, round))
        } else {
            None
        };
        Read { reads: self, place, start_ns: now_ns() }
    }

    #[cold]
    fn ask(&self, attached: &Attached, descriptor: i32, round: u64) -> Option<&'static Place> {
        if self.known.load(Relaxed) == UNKNOWN {
            self.look_up(descriptor)?;
        }
        let places = &attached.page.readers;
        let place = places.take(attached.slot_number())?;
        let call = self.calls.load(Relaxed) << ROUND_BITS | round.min((1 << ROUND_BITS) - 1);
        let numbers = [call, self.file.load(Relaxed), self.target.load(Relaxed)].into_iter().zip([
            &place.call,
            &place.file,
            &place.target,
        ]);
        numbers.for_each(|(number, to)| to.store(number, Relaxed));
        place.service_ns.store(self.service_ns.load(Relaxed), Relaxed);
        place.shuffle_ns.store(self.shuffle_ns.load(Relaxed), Relaxed);
        place.state.store(ASKED, Release);
        places.news.store(1, Release);
        if self.wait(attached, place) == Outcome::Turn {
            return Some(place);
        }
        self.known.store(NONE, Relaxed);
        place.leave(attached);
        None
    }

    /// Once per file that is opened.
    fn look_up(&self, descriptor: i32) -> Option<()> {
        let found = target::origin(descriptor);
        if let Some(Origin { file, target }) = found {
            self.file.store(file, Relaxed);
            self.target.store(target, Relaxed);
        }
        self.known.store(if found.is_some() { KNOWN } else { NONE }, Relaxed);
        found.map(|_| ())
    }

    fn wait(&self, attached: &Attached, place: &Place) -> Outcome {
        let (start_ticks, start_ns) = (clock::ticks(), now_ns());
        // Whatever else became of the place, or of the gate, nobody will answer.
        let waits = |state: &u32| matches!(*state, ASKED | SENT) && !attached.page.ledger.is_open();
        let look = || Some(place.state.load(Acquire)).filter(waits);
        let patience = patience(start_ns, attached.slot.waited_ns());
        let outcome =
            wait_for(attached, patience, look, |state, limit| bell::sleep(&place.state, state, limit));
        let waited_ticks = count_wait(attached.slot, start_ticks, start_ns, outcome);
        super::record(|header| {
            header.turns.asked.fetch_add(1, Relaxed);
            header.turns.wait_ticks.fetch_add(waited_ticks, Relaxed);
        });
        outcome
    }
}

/// A call is numbered with its reads: so many bits are theirs.
const ROUND_BITS: u32 = 20;

/// The thread is about to make a collective read.
pub(crate) fn begin(thread: &Thread, open: &'static Open) {
    let reads = &open.reads;
    reads.index.store(open.block().file.load(Relaxed), Relaxed);
    reads.calls.fetch_add(1, Relaxed);
    reads.rounds.store(0, Relaxed);
    reads.ended_ns.store(0, Relaxed);
    thread.reads.set(reads);
}

/// Whatever call the thread was in has ended.
#[inline(always)]
pub(crate) fn end(thread: &Thread) {
    let reads = thread.reads.replace(std::ptr::null());
    // SAFETY: as in `under_way`.
    if let Some(reads) = unsafe { reads.as_ref() } {
        reads.note_rest(now_ns());
    }
}

/// A read that has begun.
pub(super) struct Read {
    reads: &'static Reads,
    place: Option<&'static Place>,
    start_ns: u64,
}

impl Read {
    pub(super) fn ended(&self, attached: &Attached, now_ns: u64) {
        self.reads.service_ns.store(now_ns.saturating_sub(self.start_ns), Relaxed);
        self.reads.ended_ns.store(now_ns, Relaxed);
        if let Some(place) = self.place {
            place.leave(attached);
        }
    }
}

/// So many ranks of a node can wait for a turn at the same time; more go without.
const PLACES: usize = 64;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ASKED: u32 = 2;
const SENT: u32 = 3;
const GIVEN: u32 = 4;
/// It has read, or went without its turn.
const READ: u32 = 5;

/// Where the ranks of a node ask the leader. All zeros at first.
#[repr(C)]
pub(super) struct Readers {
    /// The coordinator has an order for them.
    ordered: AtomicU32,
    /// The leader has something to look at.
    news: AtomicU32,
    place: [Place; PLACES],
}

#[repr(C, align(64))]
pub(super) struct Place {
    state: AtomicU32,
    pid: AtomicU32,
    call: AtomicU64,
    file: AtomicU64,
    target: AtomicU64,
    service_ns: AtomicU64,
    shuffle_ns: AtomicU64,
}

impl Place {
    /// The leader tells the coordinator. Unless it took this rank for dead, and the place is another's now.
    fn leave(&self, attached: &Attached) {
        if self.pid.load(Acquire) == std::process::id() {
            self.state.store(READ, Release);
            attached.page.readers.news.store(1, Release);
            attached.page.bell.ring();
        }
    }
}

impl Readers {
    pub(super) fn set_ordered(&self, ordered: bool) {
        self.ordered.store(u32::from(ordered), Relaxed);
    }

    fn are_ordered(&self) -> bool {
        self.ordered.load(Relaxed) == 1
    }

    /// The same place for a rank, as far as may be: the coordinator knows it by that.
    fn take(&self, first: usize) -> Option<&Place> {
        let places = (0..PLACES).map(|step| &self.place[(first + step) % PLACES]);
        let is_taken = |place: &&Place| place.state.compare_exchange(FREE, TAKEN, AcqRel, Relaxed).is_ok();
        let place = { places }.find(is_taken)?;
        place.pid.store(std::process::id(), Release);
        Some(place)
    }

    /// A leader starts: what another had sent is asked again.
    pub(super) fn open(&self) {
        for place in &self.place {
            let _ = place.state.compare_exchange(SENT, ASKED, AcqRel, Relaxed);
        }
        self.news.store(1, Release);
    }

    /// The leader passes on who asks, and who has read.
    pub(super) fn pass_on(&self, mut tell: impl FnMut(Input<'static>)) {
        if self.news.swap(0, AcqRel) == 0 {
            return;
        }
        for (number, place) in (0..).zip(&self.place) {
            // The state first: what belongs to it was written before.
            match place.state.load(Acquire) {
                ASKED if place.state.compare_exchange(ASKED, SENT, AcqRel, Relaxed).is_ok() => {
                    tell(Input::Read(Reader {
                        number,
                        file: place.file.load(Relaxed),
                        call: place.call.load(Relaxed),
                        target: place.target.load(Relaxed),
                        service_ns: place.service_ns.load(Relaxed),
                        shuffle_ns: place.shuffle_ns.load(Relaxed),
                    }));
                }
                READ => {
                    tell(Input::Served { number, call: place.call.load(Relaxed) });
                    place.pid.store(0, Relaxed);
                    place.state.store(FREE, Release);
                }
                _ => {}
            }
        }
    }

    /// The coordinator answers.
    pub(super) fn turn(&self, number: u32, call: u64) {
        if let Some(place) = self.place.get(number as usize).filter(|place| place.call.load(Relaxed) == call)
            && place.state.compare_exchange(SENT, GIVEN, AcqRel, Relaxed).is_ok()
        {
            bell::wake(&place.state);
        }
    }

    /// Nobody waits for a rank that died.
    pub(super) fn call_roll(&self, is_dead: impl Fn(u32) -> bool) {
        for place in self.place.iter().filter(|place| !matches!(place.state.load(Acquire), FREE | READ)) {
            let pid = place.pid.load(Acquire);
            if pid != 0 && is_dead(pid) {
                place.state.store(READ, Release);
                self.news.store(1, Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers() -> Box<Readers> {
        // SAFETY: zeros are valid.
        unsafe { Box::<Readers>::new_zeroed().assume_init() }
    }

    fn ask(readers: &Readers, first: usize, call: u64) -> &Place {
        let place = readers.take(first).unwrap();
        place.call.store(call, Relaxed);
        place.state.store(ASKED, Release);
        readers.news.store(1, Release);
        place
    }

    /// What the leader passes on: who asks, and who has read, by number and call.
    fn passed_on(readers: &Readers) -> Vec<(&'static str, u32, u64)> {
        let mut told = Vec::new();
        readers.pass_on(|input| match input {
            Input::Read(Reader { number, call, .. }) => told.push(("asks", number, call)),
            Input::Served { number, call } => told.push(("has read", number, call)),
            other => panic!("{other:?}"),
        });
        told
    }

    #[test]
    fn who_asks_is_answered_and_its_place_is_free_when_it_has_read() {
        let readers = readers();
        let place = ask(&readers, 3, 8);
        assert_eq!(passed_on(&readers), [("asks", 3, 8)]);
        assert_eq!(passed_on(&readers), [], "asked once");
        readers.open();
        assert_eq!(passed_on(&readers), [("asks", 3, 8)], "by another leader too");
        readers.turn(3, 7);
        readers.turn(4, 8);
        readers.turn(u32::MAX, 8);
        assert_eq!(place.state.load(Relaxed), SENT, "of other calls, and of others");
        readers.turn(3, 8);
        assert_eq!(place.state.load(Relaxed), GIVEN);
        assert!(!std::ptr::eq(ask(&readers, 3, 9), place), "it is taken");
        place.state.store(READ, Relaxed);
        readers.news.store(1, Release);
        assert_eq!(passed_on(&readers), [("has read", 3, 8), ("asks", 4, 9)]);
        assert!(std::ptr::eq(ask(&readers, 3, 10), place));
    }

    #[test]
    fn nobody_finds_a_place_where_all_are_taken_until_somebody_dies() {
        let readers = readers();
        (0..PLACES).for_each(|_| assert!(readers.take(5).is_some()));
        assert!(readers.take(5).is_none());
        readers.call_roll(|_| false);
        assert!(readers.take(5).is_none());
        readers.call_roll(|pid| pid == std::process::id());
        assert_eq!(passed_on(&readers).len(), PLACES);
        assert!(readers.take(5).is_some());
    }

    #[test]
    fn the_shortest_rest_counts_and_is_forgotten_slowly() {
        let reads = Reads::new();
        let mut rest = |rest_ns: u64| {
            reads.ended_ns.store(1_000, Relaxed);
            reads.note_rest(1_000 + rest_ns);
            reads.shuffle_ns.load(Relaxed)
        };
        assert_eq!([800, 400, 900, 300].map(&mut rest), [800, 400, 450, 300]);
        reads.note_rest(5_000);
        assert_eq!(reads.shuffle_ns.load(Relaxed), 300, "nothing was read");
        reads.opened();
        assert_eq!(reads.shuffle_ns.load(Relaxed), 0);
    }
}
