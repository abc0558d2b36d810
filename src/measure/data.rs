//! The hot path: what is counted when a data call returns.
//!
//! Nothing here allocates, locks, fails or panics; what is rare is moved out of line and marked cold.

use super::lane::{self, Access, Name, Own, Shared};
use super::{files, record};
use crate::lifecycle;
use crate::shim::caller::{Caller, Thread};
use std::sync::atomic::Ordering::Relaxed;
use weir_profile::bins::{bin, size_class};
use weir_profile::counters::{Module, mpiio, posix, stdio};
use weir_profile::layout::*;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read = 0,
    Write = 1,
}

/// The class a call of `MPI_File_*` is counted in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Independent,
    Collective,
    Split,
    Nonblocking,
}

/// A call that returned: what, when, how much.
pub(crate) struct Call<'a> {
    pub(crate) op: &'a Name,
    pub(crate) direction: Direction,
    pub(crate) start_ticks: u64,
    pub(crate) end_ticks: u64,
    pub(crate) bytes: u64,
}

impl Call<'_> {
    #[inline(always)]
    fn write(&self) -> bool {
        self.direction == Direction::Write
    }

    #[inline(always)]
    fn duration(&self) -> u64 {
        self.end_ticks.wrapping_sub(self.start_ticks)
    }
}

/// Whether this thread owns the first lane.
#[inline(always)]
pub(crate) fn owns_lane(thread: &Thread) -> bool {
    thread.own_generation.get() == lifecycle::GENERATION.load(Relaxed)
}

/// Runs `$body` with the owner's block, or out of line with the shared one.
macro_rules! in_lane {
    ($thread:expr, $function:ident($block:expr $(, $arg:expr)*)) => {
        if owns_lane($thread) {
            $function::<Own>($block $(, $arg)*)
        } else {
            shared(|| $function::<Shared>(files::twin($block) $(, $arg)*))
        }
    };
}

#[cold]
#[inline(never)]
fn shared<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// The word for reading or for writing; the two are neighbours' names in every table.
#[inline(always)]
fn pick(block: &Block, write: bool, read_index: usize, write_index: usize) -> &Cell {
    &block.words[if write { write_index } else { read_index }]
}

#[inline(always)]
fn note_histograms<A: Access>(module: Module, call: &Call) {
    let histogram = &lane::words::<A>().histograms[2 * module as usize + usize::from(call.write())];
    A::add(&histogram.size_bytes[bin(call.bytes)], 1);
    A::add(&histogram.latency_ticks[bin(call.duration())], 1);
}

/// A change between reading and writing; `last` holds 1 after a read and 2 after a write.
#[inline(always)]
fn note_switch<A: Access>(last: &Cell, switches: &Cell, write: bool) {
    let now = 1 + u64::from(write);
    let before = last.load(Relaxed);
    if before != now {
        A::put(last, now);
        A::add(switches, u64::from(before != 0));
    }
}

/// A POSIX data call on a descriptor. `offset` is `None` for one that uses the file's position.
#[inline(always)]
pub(crate) fn posix(thread: &Thread, block: &'static Block, call: &Call, offset: Option<u64>) {
    in_lane!(thread, posix_in(block, thread, call, offset));
}

#[inline(always)]
fn posix_in<A: Access>(block: &'static Block, thread: &Thread, call: &Call, offset: Option<u64>) {
    use posix::*;
    let write = call.write();
    let duration = call.duration();
    A::add(pick(block, write, POSIX_READS, POSIX_WRITES), 1);
    A::add(pick(block, write, POSIX_BYTES_READ, POSIX_BYTES_WRITTEN), call.bytes);
    A::add(pick(block, write, POSIX_F_READ_TIME, POSIX_F_WRITE_TIME), duration);
    A::raise(pick(block, write, POSIX_F_MAX_READ_TIME, POSIX_F_MAX_WRITE_TIME), duration);
    A::first(pick(block, write, POSIX_F_READ_START_TIMESTAMP, POSIX_F_WRITE_START_TIMESTAMP), call.start_ticks);
    A::put(pick(block, write, POSIX_F_READ_END_TIMESTAMP, POSIX_F_WRITE_END_TIMESTAMP), call.end_ticks);
    let class = size_class(call.bytes);
    A::add(pick(block, write, POSIX_SIZE_READ_0_100 + class, POSIX_SIZE_WRITE_0_100 + class), 1);
    note_switch::<A>(&block.words[POSIX_LAST_DIRECTION], &block.words[POSIX_RW_SWITCHES], write);

    let position = &block.words[POSIX_POSITION];
    let begin = offset.unwrap_or_else(|| position.load(Relaxed));
    let end = begin.wrapping_add(call.bytes);
    if offset.is_none() {
        A::put(position, end);
    }
    let last_end = pick(block, write, POSIX_LAST_READ_END, POSIX_LAST_WRITE_END);
    let last = last_end.load(Relaxed);
    if begin >= last && last != 0 {
        A::add(pick(block, write, POSIX_SEQ_READS, POSIX_SEQ_WRITES), 1);
        A::add(pick(block, write, POSIX_CONSEC_READS, POSIX_CONSEC_WRITES), u64::from(begin == last));
    }
    A::put(last_end, end);
    A::raise(pick(block, write, POSIX_MAX_BYTE_READ, POSIX_MAX_BYTE_WRITTEN), end.saturating_sub(1));
    note_histograms::<A>(Module::Posix, call);

    if thread.caller.get() == Caller::Mpi {
        thread.file_ticks.set(thread.file_ticks.get() + duration);
        thread.file_bytes.set(thread.file_bytes.get() + call.bytes);
        A::add(pick(block, write, POSIX_MPI_BYTES_READ, POSIX_MPI_BYTES_WRITTEN), call.bytes);
    } else {
        lane::note_activity::<A>(write, call.start_ticks, call.end_ticks, call.bytes);
        lane::note_duration::<A>(call.op, block.file.load(Relaxed), call.start_ticks, duration, call.bytes);
    }
}

/// A data call on a stream.
#[inline(always)]
pub(crate) fn stdio(thread: &Thread, block: &'static Block, call: &Call) {
    in_lane!(thread, stdio_in(block, thread, call));
}

#[inline(always)]
fn stdio_in<A: Access>(block: &'static Block, thread: &Thread, call: &Call) {
    use stdio::*;
    let write = call.write();
    let duration = call.duration();
    A::add(pick(block, write, STDIO_READS, STDIO_WRITES), 1);
    A::add(pick(block, write, STDIO_BYTES_READ, STDIO_BYTES_WRITTEN), call.bytes);
    A::add(pick(block, write, STDIO_F_READ_TIME, STDIO_F_WRITE_TIME), duration);
    A::raise(pick(block, write, STDIO_F_MAX_READ_TIME, STDIO_F_MAX_WRITE_TIME), duration);
    A::first(pick(block, write, STDIO_F_READ_START_TIMESTAMP, STDIO_F_WRITE_START_TIMESTAMP), call.start_ticks);
    A::put(pick(block, write, STDIO_F_READ_END_TIMESTAMP, STDIO_F_WRITE_END_TIMESTAMP), call.end_ticks);
    note_histograms::<A>(Module::Stdio, call);
    if thread.caller.get() == Caller::App {
        lane::note_activity::<A>(write, call.start_ticks, call.end_ticks, call.bytes);
        lane::note_duration::<A>(call.op, block.file.load(Relaxed), call.start_ticks, duration, call.bytes);
    }
}

/// A data call of `MPI_File_*`. `inside_ticks` is the time the program spent in the call or waiting for
/// it; for nonblocking and split calls that is less than from start to end.
#[inline(always)]
pub(crate) fn mpiio(thread: &Thread, block: &'static Block, class: Class, call: &Call, inside_ticks: u64) {
    in_lane!(thread, mpiio_in(block, thread, class, call, inside_ticks));
}

#[inline(always)]
fn mpiio_in<A: Access>(block: &'static Block, thread: &Thread, class: Class, call: &Call, inside_ticks: u64) {
    use mpiio::*;
    let write = call.write();
    let duration = call.duration();
    let (reads, writes) = match class {
        Class::Independent => (MPIIO_INDEP_READS, MPIIO_INDEP_WRITES),
        Class::Collective => (MPIIO_COLL_READS, MPIIO_COLL_WRITES),
        Class::Split => (MPIIO_SPLIT_READS, MPIIO_SPLIT_WRITES),
        Class::Nonblocking => (MPIIO_NB_READS, MPIIO_NB_WRITES),
    };
    A::add(pick(block, write, reads, writes), 1);
    A::add(pick(block, write, MPIIO_BYTES_READ, MPIIO_BYTES_WRITTEN), call.bytes);
    A::add(pick(block, write, MPIIO_F_READ_TIME, MPIIO_F_WRITE_TIME), inside_ticks);
    A::raise(pick(block, write, MPIIO_F_MAX_READ_TIME, MPIIO_F_MAX_WRITE_TIME), duration);
    A::first(pick(block, write, MPIIO_F_READ_START_TIMESTAMP, MPIIO_F_WRITE_START_TIMESTAMP), call.start_ticks);
    A::put(pick(block, write, MPIIO_F_READ_END_TIMESTAMP, MPIIO_F_WRITE_END_TIMESTAMP), call.end_ticks);
    let size = size_class(call.bytes);
    A::add(pick(block, write, MPIIO_SIZE_READ_AGG_0_100 + size, MPIIO_SIZE_WRITE_AGG_0_100 + size), 1);
    note_switch::<A>(&block.words[MPIIO_LAST_DIRECTION], &block.words[MPIIO_RW_SWITCHES], write);
    note_histograms::<A>(Module::Mpiio, call);
    if class == Class::Collective || class == Class::Split {
        note_collective::<A>(block, thread, call, inside_ticks);
    }
    lane::note_activity::<A>(write, call.start_ticks, call.end_ticks, call.bytes);
    lane::note_duration::<A>(call.op, block.file.load(Relaxed), call.start_ticks, duration, call.bytes);
}

/// The split of a collective call into time in the file and the rest.
#[inline(always)]
fn note_collective<A: Access>(block: &'static Block, thread: &Thread, call: &Call, inside_ticks: u64) {
    use mpiio::*;
    A::add(&block.words[MPIIO_F_COLL_TIME], inside_ticks);
    A::add(&block.words[MPIIO_F_COLL_FILE_TIME], thread.file_ticks.get());
    A::add(&block.words[MPIIO_COLL_FILE_BYTES], thread.file_bytes.get());
    let sequence = [MPIIO_COLL_READS, MPIIO_COLL_WRITES, MPIIO_SPLIT_READS, MPIIO_SPLIT_WRITES]
        .iter()
        .map(|index| block.words[*index].load(Relaxed))
        .sum::<u64>();
    let collectives = &lane::words::<A>().collectives;
    if sequence & (collectives.stride.load(Relaxed).wrapping_sub(1)) != 0 {
        record::with_header(|h| A::add(&h.dropped.collectives, 1));
        return;
    }
    let count = collectives.count.load(Relaxed) as usize;
    let Some(entry) = collectives.list.get(count) else {
        return thin_out::<A>(collectives);
    };
    A::add(&collectives.count, 1);
    entry.sequence.store(sequence, Relaxed);
    entry.file.store(block.file.load(Relaxed), Relaxed);
    call.op.store(&entry.op);
    entry.start_ticks.store(call.start_ticks, Relaxed);
    entry.end_ticks.store(call.end_ticks, Relaxed);
    entry.bytes.store(call.bytes, Relaxed);
    entry.file_ticks.store(thread.file_ticks.get(), Relaxed);
    entry.file_bytes.store(thread.file_bytes.get(), Relaxed);
}

/// The list is full: every second call goes, and from now on only every second is kept. All processes
/// of a file number its calls alike, so they keep the same ones.
#[cold]
#[inline(never)]
fn thin_out<A: Access>(collectives: &Collectives) {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let Ok(_guard) = LOCK.try_lock() else { return };
    let stride = collectives.stride.load(Relaxed).max(1) * 2;
    let count = (collectives.count.load(Relaxed) as usize).min(COLLECTIVES);
    let mut kept = 0;
    for index in 0..count {
        let from = &collectives.list[index];
        if from.sequence.load(Relaxed) % stride == 0 {
            let to = &collectives.list[kept];
            for (to, from) in to.cells().zip(from.cells()) {
                to.store(from.load(Relaxed), Relaxed);
            }
            kept += 1;
        }
    }
    record::with_header(|h| _ = h.dropped.collectives.fetch_add((count - kept + 1) as u64, Relaxed));
    collectives.count.store(kept as u64, Relaxed);
    collectives.stride.store(stride, Relaxed);
}

/// A call that opens, closes, syncs, seeks or resizes.
#[derive(Clone, Copy)]
pub(crate) struct Meta {
    /// The counter it belongs to, `usize::MAX` for none.
    pub(crate) counter: usize,
    pub(crate) time: usize,
    /// First and last timestamps it moves, `usize::MAX` for none.
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Counts a metadata call; out of line, for these calls are slow by themselves.
#[cold]
#[inline(never)]
pub(crate) fn meta(thread: &Thread, block: &'static Block, meta: Meta, start_ticks: u64, end_ticks: u64) {
    in_lane!(thread, meta_in(block, meta, start_ticks, end_ticks));
}

fn meta_in<A: Access>(block: &'static Block, meta: Meta, start_ticks: u64, end_ticks: u64) {
    let word = |index: usize| block.words.get(index);
    if let Some(counter) = word(meta.counter) {
        A::add(counter, 1);
    }
    if let Some(time) = word(meta.time) {
        A::add(time, end_ticks.wrapping_sub(start_ticks));
    }
    if let Some(first) = word(meta.first) {
        A::first(first, start_ticks);
    }
    if let Some(last) = word(meta.last) {
        A::put(last, end_ticks);
    }
}

/// Adds one to a counter without a time of its own.
#[cold]
#[inline(never)]
pub(crate) fn count(thread: &Thread, block: &'static Block, index: usize) {
    let none = usize::MAX;
    meta(thread, block, Meta { counter: index, time: none, first: none, last: none }, 0, 0);
}

/// A sync is part of an I/O phase although it moves no bytes of its own.
pub(crate) fn activity(thread: &Thread, start_ticks: u64, end_ticks: u64) {
    if thread.caller.get() != Caller::App {
        return;
    }
    if owns_lane(thread) {
        lane::note_activity::<Own>(true, start_ticks, end_ticks, 0);
    } else {
        lane::note_activity::<Shared>(true, start_ticks, end_ticks, 0);
    }
}

/// Sets the position that calls without an offset continue from.
pub(crate) fn set_position(thread: &Thread, block: &'static Block, position: u64) {
    let block = if owns_lane(thread) { block } else { files::twin(block) };
    block.words[posix::POSIX_POSITION].store(position, Relaxed);
}
