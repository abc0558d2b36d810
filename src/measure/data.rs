//! What is counted when a data call returns: the general way, for every thread and every change.
//! [`super::steady`] has the short way for a call that is like the one before it.
//!
//! Nothing here allocates, fails or panics; locks are taken on the cold paths only.

use super::exchange::{self, Noted};
use super::files;
use super::handles;
use super::lane::{self, Access, Name, Own, Shared};
use crate::shim::caller::{self, Caller, Thread};
use crate::shim::shield::keeping_errno;
use std::sync::atomic::Ordering::Relaxed;
use weir_profile::bins::bin;
use weir_profile::counters::{Module, mpiio, posix, stdio};
use weir_profile::layout::*;
use weir_profile::tally;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read = 0,
    Write = 1,
}

/// The class a call of `MPI_File_*` is counted in.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Class {
    Independent = tally::MPIIO_INDEPENDENT,
    Collective = tally::MPIIO_COLLECTIVE,
    Split = tally::MPIIO_SPLIT,
    Nonblocking = tally::MPIIO_NONBLOCKING,
}

/// A function that moves data.
pub(crate) struct Op {
    name: Name,
    direction: Direction,
}

impl Op {
    pub(crate) const fn new(name: &str, direction: Direction) -> Op {
        Op { name: Name::new(name), direction }
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    #[inline(always)]
    pub(crate) fn writes(&self) -> bool {
        self.direction == Direction::Write
    }
}

/// A call that returned: what, when, how much.
pub(crate) struct Call {
    pub(crate) op: &'static Op,
    pub(crate) start_ticks: u64,
    pub(crate) end_ticks: u64,
    pub(crate) bytes: u64,
}

impl Call {
    #[inline(always)]
    pub(super) fn write(&self) -> bool {
        self.op.writes()
    }

    #[inline(always)]
    pub(super) fn duration(&self) -> u64 {
        self.end_ticks.wrapping_sub(self.start_ticks)
    }
}

/// Runs a function with the owner's block or with the shared one.
macro_rules! in_lane {
    ($thread:expr, $function:ident($block:expr $(, $arg:expr)*)) => {
        if $thread.owns_lane() {
            $function::<Own>($block $(, $arg)*)
        } else {
            $function::<Shared>(files::twin($block) $(, $arg)*)
        }
    };
}

/// A word of a block. Its index comes from the tables of counters, which fit a block.
#[inline(always)]
pub(super) fn word(block: &Block, index: usize) -> &Cell {
    debug_assert!(index < COUNTERS_PER_BLOCK);
    // SAFETY: the tables are checked against the size of a block when they are compiled.
    unsafe { block.words.get_unchecked(index) }
}

/// The word for writing or for reading.
#[inline(always)]
pub(super) fn pick(block: &Block, write: bool, read_index: usize, write_index: usize) -> &Cell {
    word(block, if write { write_index } else { read_index })
}

/// Time inside calls, end of the last one, and the histogram of latencies.
#[inline(always)]
pub(super) fn note_times<A: Access>(
    lane: &Lane,
    module: Module,
    call: &Call,
    time: &Cell,
    end: &Cell,
    inside_ticks: u64,
) {
    A::add(time, inside_ticks);
    A::put(end, call.end_ticks);
    let histogram = &lane.histograms[2 * module as usize + usize::from(call.write())];
    // SAFETY: there is a bin for every value.
    A::add(unsafe { histogram.latency_ticks.get_unchecked(bin(call.duration())) }, 1);
}

/// A change between reading and writing; `last` holds 1 after a read and 2 after a write.
#[inline(always)]
fn note_direction<A: Access>(block: &'static Block, last: usize, switches: usize, write: bool) {
    let now = 1 + u64::from(write);
    if word(block, last).load(Relaxed) != now {
        turn::<A>(word(block, last), word(block, switches), now);
    }
}

#[cold]
#[inline(never)]
fn turn<A: Access>(last: &Cell, switches: &Cell, now: u64) {
    A::add(switches, u64::from(last.swap(now, Relaxed) != 0));
}

/// A POSIX data call on a descriptor. `offset` is `None` for one that uses the file's position.
pub(crate) fn posix(thread: &Thread, block: &'static Block, call: &Call, offset: Option<u64>) {
    in_lane!(thread, posix_in(block, thread, call, offset));
}

fn posix_in<A: Access>(block: &'static Block, thread: &Thread, call: &Call, offset: Option<u64>) {
    use posix::*;
    let write = call.write();
    let duration = call.duration();
    note_direction::<A>(block, POSIX_LAST_DIRECTION, POSIX_RW_SWITCHES, write);
    let time = pick(block, write, POSIX_F_READ_TIME, POSIX_F_WRITE_TIME);
    let end = pick(block, write, POSIX_F_READ_END_TIMESTAMP, POSIX_F_WRITE_END_TIMESTAMP);
    note_times::<A>(lane::words::<A>(), Module::Posix, call, time, end, duration);
    if matches!(thread.caller.get(), Caller::MpiListed | Caller::MpiMeanwhile) {
        let start = offset.unwrap_or_else(|| word(block, POSIX_POSITION).load(Relaxed));
        note_transfer(thread, block, call, start);
    }
    note_offset::<A>(block, write, offset, call.bytes);
    match thread.caller.get() {
        Caller::App => {
            let kind = tally::POSIX_BY_APP + usize::from(write);
            A::count(kind, block, call.bytes, call.start_ticks);
            A::activity(write, began(thread, call.start_ticks), call.end_ticks, call.bytes);
            note_wait::<A>(thread, block);
            note_duration::<A>(
                kind,
                block,
                call,
                pick(block, write, POSIX_READ_ATTENTION, POSIX_WRITE_ATTENTION),
            );
        }
        Caller::Mpi | Caller::MpiListed | Caller::MpiMeanwhile => {
            let kind = tally::POSIX_BY_MPI + usize::from(write);
            A::count(kind, block, call.bytes, call.start_ticks);
            thread.file_ticks.set(thread.file_ticks.get() + duration);
            thread.file_bytes.set(thread.file_bytes.get() + call.bytes);
            if duration > pick(block, write, POSIX_F_MAX_READ_TIME, POSIX_F_MAX_WRITE_TIME).load(Relaxed) {
                lane::attend::<A>(kind, block, None, call.start_ticks, duration, call.bytes);
            }
        }
        Caller::Weir => {}
    }
}

/// What the MPI library moved belongs to the collective call that it is in, or to a split one that is under way.
fn note_transfer(thread: &Thread, block: &'static Block, call: &Call, start: u64) {
    if thread.caller.get() == Caller::MpiListed {
        exchange::transferred(thread, block, call.write(), start, call.bytes);
    } else if let Some(split) = handles::split_under_way(block) {
        split.file_ticks.fetch_add(call.duration(), Relaxed);
        split.file_bytes.fetch_add(call.bytes, Relaxed);
        if let Ok(mut noted) = split.noted.try_lock()
            && let Some(noted) = noted.as_mut()
        {
            noted.moved(block, call.write(), start, call.bytes);
        }
    }
}

#[inline(always)]
fn note_duration<A: Access>(kind: usize, block: &'static Block, call: &Call, attention: &Cell) {
    if call.duration() > attention.load(Relaxed) {
        lane::attend::<A>(kind, block, Some(&call.op.name), call.start_ticks, call.duration(), call.bytes);
    }
}

/// Where the call was in the file, seen from the one before it.
#[inline(always)]
pub(super) fn note_offset<A: Access>(block: &'static Block, write: bool, offset: Option<u64>, bytes: u64) {
    use posix::*;
    let position = word(block, POSIX_POSITION);
    let begin = offset.unwrap_or_else(|| position.load(Relaxed));
    let end = begin.wrapping_add(bytes);
    if offset.is_none() {
        A::put(position, end);
    }
    let last_end = pick(block, write, POSIX_LAST_READ_END, POSIX_LAST_WRITE_END);
    let last = last_end.load(Relaxed);
    if begin >= last {
        A::add(pick(block, write, POSIX_SEQ_READS, POSIX_SEQ_WRITES), 1);
        A::add(pick(block, write, POSIX_CONSEC_READS, POSIX_CONSEC_WRITES), u64::from(begin == last));
    } else {
        // Back: where the last call ended may be the highest byte so far. (The highest value means
        // that there was none.)
        let highest = pick(block, write, POSIX_MAX_BYTE_READ, POSIX_MAX_BYTE_WRITTEN);
        if last.wrapping_add(1) > highest.load(Relaxed).wrapping_add(2) {
            A::put(highest, last - 1);
        }
    }
    A::put(last_end, end);
}

/// A data call on a stream.
pub(crate) fn stdio(thread: &Thread, block: &'static Block, call: &Call) {
    in_lane!(thread, stdio_in(block, thread, call));
}

fn stdio_in<A: Access>(block: &'static Block, thread: &Thread, call: &Call) {
    use stdio::*;
    let write = call.write();
    let kind = tally::STDIO + usize::from(write);
    A::count(kind, block, call.bytes, call.start_ticks);
    let time = pick(block, write, STDIO_F_READ_TIME, STDIO_F_WRITE_TIME);
    let end = pick(block, write, STDIO_F_READ_END_TIMESTAMP, STDIO_F_WRITE_END_TIMESTAMP);
    note_times::<A>(lane::words::<A>(), Module::Stdio, call, time, end, call.duration());
    A::activity(write, began(thread, call.start_ticks), call.end_ticks, call.bytes);
    note_wait::<A>(thread, block);
    note_duration::<A>(kind, block, call, pick(block, write, STDIO_READ_ATTENTION, STDIO_WRITE_ATTENTION));
}

/// A data call of `MPI_File_*`. `inside_ticks` is the time the program spent in the call or waiting for
/// it; for nonblocking and split calls that is less than from start to end.
pub(crate) fn mpiio(thread: &Thread, block: &'static Block, class: Class, call: &Call, inside_ticks: u64) {
    in_lane!(thread, mpiio_in(block, thread, class, call, inside_ticks));
}

fn mpiio_in<A: Access>(block: &'static Block, thread: &Thread, class: Class, call: &Call, inside_ticks: u64) {
    use mpiio::*;
    let write = call.write();
    let kind = class as usize + usize::from(write);
    A::count(kind, block, call.bytes, call.start_ticks);
    note_direction::<A>(block, MPIIO_LAST_DIRECTION, MPIIO_RW_SWITCHES, write);
    let time = pick(block, write, MPIIO_F_READ_TIME, MPIIO_F_WRITE_TIME);
    let end = pick(block, write, MPIIO_F_READ_END_TIMESTAMP, MPIIO_F_WRITE_END_TIMESTAMP);
    note_times::<A>(lane::words::<A>(), Module::Mpiio, call, time, end, inside_ticks);
    if class == Class::Collective || class == Class::Split {
        note_collective::<A>(block, thread, call, inside_ticks);
    }
    A::activity(write, call.start_ticks, call.end_ticks, call.bytes);
    note_wait::<A>(thread, block);
    note_duration::<A>(kind, block, call, pick(block, write, MPIIO_READ_ATTENTION, MPIIO_WRITE_ATTENTION));
}

/// The split of a collective call into time in the file and the rest.
#[inline(always)]
fn note_collective<A: Access>(block: &'static Block, thread: &Thread, call: &Call, inside_ticks: u64) {
    use mpiio::*;
    A::add(word(block, MPIIO_F_COLL_TIME), inside_ticks);
    A::add(word(block, MPIIO_F_COLL_FILE_TIME), thread.file_ticks.get());
    A::add(word(block, MPIIO_COLL_FILE_BYTES), thread.file_bytes.get());
    let sequence = word(block, MPIIO_COLL_SEQUENCE);
    A::add(sequence, 1);
    let collectives = &lane::words::<A>().collectives;
    if sequence.load(Relaxed) & collectives.stride.load(Relaxed).wrapping_sub(1) == 0 {
        keep_collective::<A>(collectives, block, thread, call);
    }
}

/// Whether the next collective call on a file will be in the list.
pub(super) fn lists_next<A: Access>(block: &Block) -> bool {
    let next = word(block, mpiio::MPIIO_COLL_SEQUENCE).load(Relaxed).wrapping_add(1);
    next & lane::words::<A>().collectives.stride.load(Relaxed).wrapping_sub(1) == 0
}

/// Puts a call into the list of collective calls.
#[cold]
#[inline(never)]
fn keep_collective<A: Access>(collectives: &Collectives, block: &Block, thread: &Thread, call: &Call) {
    let _caller = caller::enter_weir();
    let _guard = A::state().lock();
    let sequence = block.words[mpiio::MPIIO_COLL_SEQUENCE].load(Relaxed);
    if collectives.count.load(Relaxed) as usize >= COLLECTIVES {
        thin_out(collectives);
    }
    if sequence & collectives.stride.load(Relaxed).wrapping_sub(1) != 0 {
        return;
    }
    let Some(entry) = collectives.list.get(collectives.count.load(Relaxed) as usize) else { return };
    entry.sequence.store(sequence, Relaxed);
    entry.sequence_start.store(word(block, mpiio::MPIIO_COLL_SEQUENCE_START).load(Relaxed), Relaxed);
    entry.file.store(block.file.load(Relaxed), Relaxed);
    call.op.name.store(&entry.op);
    entry.start_ticks.store(call.start_ticks, Relaxed);
    entry.end_ticks.store(call.end_ticks, Relaxed);
    entry.bytes.store(call.bytes, Relaxed);
    entry.file_ticks.store(thread.file_ticks.get(), Relaxed);
    entry.file_bytes.store(thread.file_bytes.get(), Relaxed);
    entry.gate_ticks.store(thread.gate_ticks.get(), Relaxed);
    Noted::store(exchange::take(thread, call.start_ticks), entry);
    collectives.count.fetch_add(1, Relaxed);
}

/// The list is full: every second call goes, and from now on only every second is kept, until half of
/// the places are free. All processes of a file number its calls alike, so they keep the same ones.
fn thin_out(collectives: &Collectives) {
    let mut count = COLLECTIVES;
    while count > COLLECTIVES / 2 {
        let stride = collectives.stride.load(Relaxed).max(1) * 2;
        let mut kept = 0;
        for index in 0..count {
            let from = &collectives.list[index];
            if from.sequence.load(Relaxed) & (stride - 1) == 0 {
                collectives.list[kept].copy(from);
                kept += 1;
            }
        }
        count = kept;
        collectives.stride.store(stride, Relaxed);
    }
    collectives.count.store(count as u64, Relaxed);
}

/// A call that opens, closes, syncs, seeks, resizes, or asks for or changes names.
#[derive(Clone, Copy)]
pub(crate) struct Meta {
    /// The counter it belongs to.
    pub(crate) counter: usize,
    pub(crate) time: usize,
    /// The part of that time which the program's own calls of its kind take.
    pub(crate) own_time: usize,
    /// First and last timestamps it moves.
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// No counter.
pub(crate) const NONE: usize = usize::MAX;

impl Meta {
    /// One that only counts and takes time.
    pub(crate) const fn counted(counter: usize, time: usize) -> Meta {
        Meta { counter, time, own_time: NONE, first: NONE, last: NONE }
    }

    /// The same with a counter for the time of its kind alone.
    pub(crate) const fn of_kind(self, own_time: usize) -> Meta {
        Meta { own_time, ..self }
    }

    /// One that only takes time.
    pub(crate) const fn timed(time: usize) -> Meta {
        Meta::counted(NONE, time)
    }
}

/// Counts a metadata call, which is as much a part of an I/O phase as one that moves data; out of line, for these calls are
/// slow by themselves. To be called as the program or the MPI library, not as Weir.
#[cold]
#[inline(never)]
pub(crate) fn meta(thread: &Thread, block: &'static Block, meta: Meta, start_ticks: u64, end_ticks: u64) {
    held_back_meta(thread, block, meta, start_ticks, start_ticks, end_ticks);
}

/// Counts a metadata call whose time is counted from behind the gate; the program was in I/O from `began_ticks` on.
pub(crate) fn held_back_meta(
    thread: &Thread,
    block: &'static Block,
    meta: Meta,
    began_ticks: u64,
    start_ticks: u64,
    end_ticks: u64,
) {
    let by_program = thread.caller.get() == Caller::App;
    in_lane!(thread, meta_in(block, meta, by_program, start_ticks, end_ticks));
    if by_program {
        // The call may have failed, and a new burst may need room.
        keeping_errno(|| in_lane!(thread, activity_in(block, thread, began_ticks, end_ticks)));
    }
}

fn meta_in<A: Access>(block: &'static Block, meta: Meta, by_program: bool, start_ticks: u64, end_ticks: u64) {
    let word = |index: usize| block.words.get(index);
    if let Some(counter) = word(meta.counter) {
        A::add(counter, 1);
    }
    let part = match by_program {
        true => meta.own_time,
        false if block.kind.load(Relaxed) == KIND_MODULE + Module::Posix as u64 => {
            posix::POSIX_F_MPI_META_TIME
        }
        false => NONE,
    };
    for time in [word(meta.time), word(part)].into_iter().flatten() {
        A::add(time, end_ticks.wrapping_sub(start_ticks));
    }
    if let Some(first) = word(meta.first)
        && first.load(Relaxed) == 0
    {
        A::put(first, start_ticks);
    }
    if let Some(last) = word(meta.last) {
        A::put(last, end_ticks);
    }
}

/// Adds one to a counter without a time of its own.
#[cold]
#[inline(never)]
pub(crate) fn count(thread: &Thread, block: &'static Block, index: usize) {
    in_lane!(thread, count_in(block, index));
}

fn count_in<A: Access>(block: &'static Block, index: usize) {
    A::add(&block.words[index], 1);
}

/// A call that moves no bytes, or failed, is part of an I/O phase all the same.
pub(crate) fn activity(thread: &Thread, block: &'static Block, start_ticks: u64, end_ticks: u64) {
    if thread.caller.get() == Caller::App {
        in_lane!(thread, activity_in(block, thread, start_ticks, end_ticks));
    }
}

fn activity_in<A: Access>(block: &'static Block, thread: &Thread, start_ticks: u64, end_ticks: u64) {
    A::activity(true, start_ticks, end_ticks, 0);
    note_wait::<A>(thread, block);
}

/// When the program made a call of its own whose time is counted from behind the gate: it was in I/O from then on.
pub(crate) fn began(thread: &Thread, start_ticks: u64) -> u64 {
    start_ticks.saturating_sub(thread.gate_ticks.get())
}

/// The time that the call was held back at the gate goes to the burst it belongs to. A call of `MPI_File_*` waited inside, so
/// that its time has to be told apart.
fn note_wait<A: Access>(thread: &Thread, block: &'static Block) {
    let waited_ticks = thread.gate_ticks.replace(0);
    if waited_ticks > 0 {
        super::activity::waited::<A>(waited_ticks);
        if block.kind.load(Relaxed) == KIND_MODULE + Module::Mpiio as u64 {
            A::add(word(block, mpiio::MPIIO_F_GATE_TIME), waited_ticks);
        }
    }
}

/// Sets the position that calls without an offset continue from.
pub(crate) fn set_position(thread: &Thread, block: &'static Block, position: u64) {
    let block = if thread.owns_lane() { block } else { files::twin(block) };
    block.words[posix::POSIX_POSITION].store(position, Relaxed);
}
