//! From what the hot path left to the counters: the process does this when a run of like calls ends, and
//! whoever reads a record does it for the runs that were under way.

use crate::bins::{bin, size_class};
use crate::counters::{Module, mpiio::*, posix::*, stdio::*};
use crate::layout::*;
use std::sync::atomic::Ordering::Relaxed;

/// A kind of data call: where it is counted.
pub struct Kind {
    pub module: Module,
    pub write: bool,
    calls: usize,
    bytes: usize,
    /// The first of its ten size classes.
    sizes: Option<usize>,
    /// Bytes that are also counted as the MPI library's own.
    mpi_bytes: Option<usize>,
    /// First call, longest call, and what may be longer than that, of its direction.
    pub start: usize,
    pub longest: usize,
    pub attention: usize,
}

const fn mpiio(write: bool, calls: usize) -> Kind {
    Kind {
        module: Module::Mpiio,
        write,
        calls,
        bytes: if write { MPIIO_BYTES_WRITTEN } else { MPIIO_BYTES_READ },
        sizes: Some(if write { MPIIO_SIZE_WRITE_AGG_0_100 } else { MPIIO_SIZE_READ_AGG_0_100 }),
        mpi_bytes: None,
        start: if write { MPIIO_F_WRITE_START_TIMESTAMP } else { MPIIO_F_READ_START_TIMESTAMP },
        longest: if write { MPIIO_F_MAX_WRITE_TIME } else { MPIIO_F_MAX_READ_TIME },
        attention: if write { MPIIO_WRITE_ATTENTION } else { MPIIO_READ_ATTENTION },
    }
}

const fn posix(write: bool, by_mpi: bool) -> Kind {
    let mpi_bytes = if write { POSIX_MPI_BYTES_WRITTEN } else { POSIX_MPI_BYTES_READ };
    Kind {
        module: Module::Posix,
        write,
        calls: if write { POSIX_WRITES } else { POSIX_READS },
        bytes: if write { POSIX_BYTES_WRITTEN } else { POSIX_BYTES_READ },
        sizes: Some(if write { POSIX_SIZE_WRITE_0_100 } else { POSIX_SIZE_READ_0_100 }),
        mpi_bytes: if by_mpi { Some(mpi_bytes) } else { None },
        start: if write { POSIX_F_WRITE_START_TIMESTAMP } else { POSIX_F_READ_START_TIMESTAMP },
        longest: if write { POSIX_F_MAX_WRITE_TIME } else { POSIX_F_MAX_READ_TIME },
        attention: if write { POSIX_WRITE_ATTENTION } else { POSIX_READ_ATTENTION },
    }
}

const fn stdio(write: bool) -> Kind {
    Kind {
        module: Module::Stdio,
        write,
        calls: if write { STDIO_WRITES } else { STDIO_READS },
        bytes: if write { STDIO_BYTES_WRITTEN } else { STDIO_BYTES_READ },
        sizes: None,
        mpi_bytes: None,
        start: if write { STDIO_F_WRITE_START_TIMESTAMP } else { STDIO_F_READ_START_TIMESTAMP },
        longest: if write { STDIO_F_MAX_WRITE_TIME } else { STDIO_F_MAX_READ_TIME },
        attention: if write { STDIO_WRITE_ATTENTION } else { STDIO_READ_ATTENTION },
    }
}

/// Every kind; reading and writing alternate, so that adding 1 for a write finds the right one.
pub static KINDS: [Kind; 14] = [
    mpiio(false, MPIIO_INDEP_READS),
    mpiio(true, MPIIO_INDEP_WRITES),
    mpiio(false, MPIIO_COLL_READS),
    mpiio(true, MPIIO_COLL_WRITES),
    mpiio(false, MPIIO_SPLIT_READS),
    mpiio(true, MPIIO_SPLIT_WRITES),
    mpiio(false, MPIIO_NB_READS),
    mpiio(true, MPIIO_NB_WRITES),
    posix(false, false),
    posix(true, false),
    posix(false, true),
    posix(true, true),
    stdio(false),
    stdio(true),
];

/// The first kind of each group of two.
pub const MPIIO_INDEPENDENT: usize = 0;
pub const MPIIO_COLLECTIVE: usize = 2;
pub const MPIIO_SPLIT: usize = 4;
pub const MPIIO_NONBLOCKING: usize = 6;
pub const POSIX_BY_APP: usize = 8;
pub const POSIX_BY_MPI: usize = 10;
pub const STDIO: usize = 12;

/// An addition that other threads may make at the same time.
pub fn add_atomically(cell: &Cell, value: u64) {
    cell.fetch_add(value, Relaxed);
}

/// An addition to a word that only this thread changes.
pub fn add_alone(cell: &Cell, value: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(value), Relaxed);
}

/// Raises a word that other threads may raise at the same time.
fn raise(cell: &Cell, value: u64) {
    // A look first: it is raised some times in a run, and looked at in every call that is unlike the one before.
    if cell.load(Relaxed) < value {
        cell.fetch_max(value, Relaxed);
    }
}

/// Counts `calls` calls of a kind, each of `bytes` bytes.
#[inline]
pub fn count_calls(kind: usize, lane: &Lane, block: &Block, bytes: u64, calls: u64, add_to: fn(&Cell, u64)) {
    let kind = &KINDS[kind];
    let add = |index: usize, value: u64| add_to(&block.words[index], value);
    let total_bytes = calls.wrapping_mul(bytes);
    add(kind.calls, calls);
    add(kind.bytes, total_bytes);
    if let Some(first) = kind.sizes {
        add(first + size_class(bytes), calls);
    }
    if let Some(index) = kind.mpi_bytes {
        add(index, total_bytes);
    }
    let histogram = &lane.histograms[2 * kind.module as usize + usize::from(kind.write)];
    add_to(&histogram.size_bytes[bin(bytes)], calls);
    raise(&histogram.max_size_bytes, bytes);
    raise(&histogram.min_size_complement, !bytes);
}

/// Moves a run into the counters of its block.
pub fn flush_run(kind: usize, lane: &Lane, block: &Block) {
    let run = &lane.runs[kind];
    let calls = run.calls.load(Relaxed);
    if calls > 0 {
        run.calls.store(0, Relaxed);
        count_calls(kind, lane, block, run.bytes.load(Relaxed), calls, add_alone);
    }
}

/// Moves what the owner has moved into its burst and its bin of the series.
pub fn flush_pending(lane: &Lane) {
    let Pending { bytes_read, bytes_written, calls, bin } = &lane.pending;
    let last = lane.bursts.count.load(Relaxed) as usize;
    let Some(burst) = last.checked_sub(1).and_then(|last| lane.bursts.list.get(last)) else { return };
    let deadline = lane.bursts.deadline_ticks.load(Relaxed);
    if deadline > 0 {
        let end = deadline.saturating_sub(lane.bursts.active_gap_ticks.load(Relaxed));
        burst.end_ticks.store(end, Relaxed);
    }
    let bin = (bin.load(Relaxed) as usize).min(SERIES_BINS - 1);
    for (from, burst, series) in [
        (bytes_read, &burst.bytes_read, &lane.series.bytes_read[bin]),
        (bytes_written, &burst.bytes_written, &lane.series.bytes_written[bin]),
    ] {
        let bytes = from.swap(0, Relaxed);
        burst.fetch_add(bytes, Relaxed);
        series.fetch_add(bytes, Relaxed);
    }
    burst.calls.fetch_add(calls.swap(0, Relaxed), Relaxed);
}

/// The highest byte is raised only when a call goes back; the last call's end may be higher.
pub fn settle_block(block: &Block) {
    if block.kind.load(Relaxed) != KIND_MODULE + Module::Posix as u64 {
        return;
    }
    for (last_end, highest) in
        [(POSIX_LAST_READ_END, POSIX_MAX_BYTE_READ), (POSIX_LAST_WRITE_END, POSIX_MAX_BYTE_WRITTEN)]
    {
        raise_highest(block, last_end, highest);
    }
}

/// Raises the highest byte to where the last call ended.
pub fn raise_highest(block: &Block, last_end: usize, highest: usize) {
    let end = block.words[last_end].load(Relaxed);
    if end != u64::MAX {
        block.words[highest].fetch_max(end.saturating_sub(1), Relaxed);
    }
}
