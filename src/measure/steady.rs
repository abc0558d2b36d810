//! The hot path. Most calls are like the one before: same kind, same file, same size, within the same
//! burst and bin, no longer than others. (A run ends when its file is used the other way round, so the
//! direction is the same too.) Then nothing changes but a few counters, and that is all that
//! happens here; whatever else is the case, the answer is `false` and [`super::data`] does it all.
//!
//! Only the owner of the first lane comes here. Nothing can panic, and there is no call to make: a test
//! looks through the machine code.

use super::activity::Activity;
use super::data::{self, Call, Class, Op, pick, word};
use super::lane::{Access, Own, words};
use crate::shim::caller::Thread;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_profile::counters::{Module, mpiio::*, posix::*, stdio::*};
use weir_profile::layout::*;
use weir_profile::tally;

/// The run of calls of a kind, if this call belongs to it.
#[inline(always)]
fn run_of<'a>(lane: &'a Lane, kind: usize, block: &Block, bytes: u64) -> Option<&'a Run> {
    let run = &lane.runs[kind];
    let same_file = run.address.load(Relaxed) == std::ptr::from_ref(block).addr() as u64;
    (same_file && run.bytes.load(Relaxed) == bytes).then_some(run)
}

/// A POSIX call of the program's own.
#[inline(always)]
pub(crate) fn posix_by_app(block: &'static Block, call: &Call, offset: Option<u64>) -> bool {
    let lane = words::<Own>();
    let write = call.write();
    let Some(run) = run_of(lane, tally::POSIX_BY_APP + usize::from(write), block, call.bytes) else {
        return false;
    };
    let Some(activity) = Activity::continues(lane, call.start_ticks, call.end_ticks) else { return false };
    let attention = pick(block, write, POSIX_READ_ATTENTION, POSIX_WRITE_ATTENTION);
    if call.duration() > attention.load(Relaxed) {
        return false;
    }
    Own::add(&run.calls, 1);
    activity.note(write, call.end_ticks, call.bytes);
    posix_details(lane, block, call, offset);
    true
}

/// A POSIX call of the MPI library's, beneath a call of the program's.
#[inline(always)]
pub(crate) fn posix_by_mpi(thread: &Thread, block: &'static Block, call: &Call, offset: Option<u64>) -> bool {
    let lane = words::<Own>();
    let write = call.write();
    let Some(run) = run_of(lane, tally::POSIX_BY_MPI + usize::from(write), block, call.bytes) else {
        return false;
    };
    let longest = pick(block, write, POSIX_F_MAX_READ_TIME, POSIX_F_MAX_WRITE_TIME);
    if call.duration() > longest.load(Relaxed) {
        return false;
    }
    Own::add(&run.calls, 1);
    thread.file_ticks.set(thread.file_ticks.get().wrapping_add(call.duration()));
    thread.file_bytes.set(thread.file_bytes.get().wrapping_add(call.bytes));
    posix_details(lane, block, call, offset);
    true
}

#[inline(always)]
fn posix_details(lane: &Lane, block: &'static Block, call: &Call, offset: Option<u64>) {
    let write = call.write();
    let time = pick(block, write, POSIX_F_READ_TIME, POSIX_F_WRITE_TIME);
    let end = pick(block, write, POSIX_F_READ_END_TIMESTAMP, POSIX_F_WRITE_END_TIMESTAMP);
    data::note_times::<Own>(lane, Module::Posix, call, time, end, call.duration());
    data::note_offset::<Own>(block, write, offset, call.bytes);
}

/// A call on a stream.
#[inline(always)]
pub(crate) fn stdio(block: &'static Block, call: &Call) -> bool {
    let lane = words::<Own>();
    let write = call.write();
    let Some(run) = run_of(lane, tally::STDIO + usize::from(write), block, call.bytes) else { return false };
    let Some(activity) = Activity::continues(lane, call.start_ticks, call.end_ticks) else { return false };
    if call.duration() > pick(block, write, STDIO_READ_ATTENTION, STDIO_WRITE_ATTENTION).load(Relaxed) {
        return false;
    }
    Own::add(&run.calls, 1);
    activity.note(write, call.end_ticks, call.bytes);
    let time = pick(block, write, STDIO_F_READ_TIME, STDIO_F_WRITE_TIME);
    let end = pick(block, write, STDIO_F_READ_END_TIMESTAMP, STDIO_F_WRITE_END_TIMESTAMP);
    data::note_times::<Own>(lane, Module::Stdio, call, time, end, call.duration());
    true
}

/// What makes two calls of `MPI_File_*` of one kind alike.
pub(crate) struct Same {
    pub(crate) fh: usize,
    pub(crate) datatype: usize,
    pub(crate) count: u64,
}

/// The last call of a kind that went the general way. As long as it stands, so does its run: calls like
/// it need not look for the file or ask for the size of the datatype.
struct Last {
    fh: AtomicUsize,
    datatype: AtomicUsize,
    count: AtomicU64,
    block: AtomicPtr<Block>,
    /// Collective calls like it that will not be in the list, before the next that will.
    unlisted: AtomicU64,
}

static LAST: [Last; tally::POSIX_BY_APP] = [const {
    Last {
        fh: AtomicUsize::new(0),
        datatype: AtomicUsize::new(0),
        count: AtomicU64::new(0),
        block: AtomicPtr::new(std::ptr::null_mut()),
        unlisted: AtomicU64::new(0),
    }
}; tally::POSIX_BY_APP];

/// A call of the owner's was counted the general way.
pub(crate) fn remember(class: Class, op: &Op, same: Same, block: &'static Block) {
    let last = &LAST[class as usize + usize::from(op.writes())];
    last.block.store(std::ptr::from_ref(block).cast_mut(), Relaxed);
    last.datatype.store(same.datatype, Relaxed);
    last.count.store(same.count, Relaxed);
    if class == Class::Collective {
        let sequence = word(block, MPIIO_COLL_SEQUENCE).load(Relaxed);
        let stride = words::<Own>().collectives.stride.load(Relaxed).max(1);
        last.unlisted.store(stride - 1 - (sequence & (stride - 1)), Relaxed);
    }
    last.fh.store(same.fh, Relaxed);
}

/// A file is closed, a datatype freed, a run cut short: what was alike may not be any more.
pub(crate) fn forget() {
    LAST.iter().for_each(|last| last.fh.store(0, Relaxed));
}

/// Whether nothing need be known of a call before it is made: it is not collective, or it will not be in
/// the list of collective calls.
#[inline(always)]
pub(crate) fn needs_no_look(class: Class, op: &'static Op, fh: usize) -> bool {
    let last = &LAST[class as usize + usize::from(op.writes())];
    class != Class::Collective || (last.fh.load(Relaxed) == fh && last.unlisted.load(Relaxed) != 0)
}

/// A blocking call of `MPI_File_*`, of which nothing needed to be known before.
#[inline(always)]
pub(crate) fn mpiio(
    thread: &Thread,
    class: Class,
    op: &'static Op,
    start_ticks: u64,
    end_ticks: u64,
    same: Same,
) -> bool {
    let write = op.writes();
    let kind = class as usize + usize::from(write);
    let last = &LAST[kind];
    if last.fh.load(Relaxed) != same.fh
        || last.datatype.load(Relaxed) != same.datatype
        || last.count.load(Relaxed) != same.count
    {
        return false;
    }
    // SAFETY: `remember` stored a block of the mapped record, never unmapped, before it stored `fh`.
    let block = unsafe { &*last.block.load(Relaxed) };
    let lane = words::<Own>();
    let run = &lane.runs[kind];
    let call = Call { op, start_ticks, end_ticks, bytes: run.bytes.load(Relaxed) };
    let Some(activity) = Activity::continues(lane, start_ticks, end_ticks) else { return false };
    if call.duration() > pick(block, write, MPIIO_READ_ATTENTION, MPIIO_WRITE_ATTENTION).load(Relaxed) {
        return false;
    }
    if class == Class::Collective {
        Own::add(word(block, MPIIO_COLL_SEQUENCE), 1);
        last.unlisted.store(last.unlisted.load(Relaxed).wrapping_sub(1), Relaxed);
        Own::add(word(block, MPIIO_F_COLL_TIME), call.duration());
        Own::add(word(block, MPIIO_F_COLL_FILE_TIME), thread.file_ticks.get());
        Own::add(word(block, MPIIO_COLL_FILE_BYTES), thread.file_bytes.get());
    }
    Own::add(&run.calls, 1);
    activity.note(write, end_ticks, call.bytes);
    let time = pick(block, write, MPIIO_F_READ_TIME, MPIIO_F_WRITE_TIME);
    let end = pick(block, write, MPIIO_F_READ_END_TIMESTAMP, MPIIO_F_WRITE_END_TIMESTAMP);
    data::note_times::<Own>(lane, Module::Mpiio, &call, time, end, call.duration());
    true
}
