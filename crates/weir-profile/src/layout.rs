//! The record: what one process leaves behind, in memory that outlives it.
//!
//! ```text
//! Header (4 KiB) | Lane 0 | Lane 1 | Block, Block, Block …
//! ```
//!
//! Everything is a 64-bit word. The process stores into the words as it runs; nothing needs to be
//! written at its end, so a process that is killed leaves all it had measured. Whoever reads the
//! record copies it and takes every word for what it is: a value that may be a moment old.
//!
//! There are two **lanes**. The thread that arms Weir owns the first and updates it with plain loads
//! and stores; all other threads share the second and use atomic additions. No lock, no lost count. The second has
//! no memory until there is another thread.
//!
//! Times are ticks of the process's clock; the two [`ClockReading`]s in the header turn them into
//! wall-clock time.

use crate::bins::BINS;
use crate::extents::{BLOCKS_WORDS, ROWS, VIEW_WORDS};
use crate::phases::Span;
use crate::words::load;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A word of the record.
pub type Cell = AtomicU64;

/// First word of every record: `WEIRREC` and the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WEIRREC\x05");

/// Text of up to `8 * N` bytes, zero-padded; what does not fit is cut off at the front (the end of
/// a path says more than its beginning).
#[repr(C)]
pub struct Text<const N: usize>(pub [Cell; N]);

/// One clock read in three units at the same moment.
#[repr(C)]
pub struct ClockReading {
    pub ticks: Cell,
    pub monotonic_ns: Cell,
    pub realtime_ns: Cell,
}

/// How a process ended. The number stands in the record; `Running` is what a killed process leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Ended {
    /// Still running, or killed without being asked (SIGKILL, power).
    Running = 0,
    /// `MPI_Finalize` was called.
    Finalized = 1,
    /// The process exited without `MPI_Finalize`; `end_code` is its exit code if it is known.
    Exited = 2,
    /// `MPI_Abort`; `end_code` is the code it was given.
    Aborted = 3,
    /// A signal; `end_code` is its number.
    Signalled = 4,
    /// It replaced itself by another program (`exec`).
    Replaced = 5,
}

/// Which handle ABI the process runs in. The number stands in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Abi {
    Unknown = 0,
    Mpich = 1,
    OpenMpi = 2,
    Standard = 3,
}

/// What was not kept because a table was full. Nothing is dropped without being counted.
#[repr(C)]
pub struct Dropped {
    /// Files beyond the limit: their counts are in the block of file 0, "other files".
    pub files: Cell,
    /// Bursts that were joined with others, or of which only sums are kept, to make room; and attempts to make room
    /// for threads that failed.
    pub bursts: Cell,
    /// Collective calls that are in the sums but not in the list.
    pub collectives: Cell,
    /// Nonblocking operations that could not be followed to their end: counted when issued.
    pub requests: Cell,
    /// Calls on file handles that could not be followed: counted in file 0. And files opened on descriptors
    /// that are too high to be followed: what is done with those is not counted.
    pub handles: Cell,
}

/// What happened at the gate.
#[repr(C)]
pub struct GateCounts {
    /// Requests of this process that were held back, and for how long.
    pub waits: Cell,
    pub wait_ticks: Cell,
    /// Of these, those that reached `WEIR_MAX_WAIT`.
    pub limits: Cell,
    /// Those that went on because there was nobody to ask.
    pub alone: Cell,
    /// What the leader of a node heard: that the job has to wait, that the coordinator was lost, and that there
    /// was none for so long that everybody went on.
    pub holds: Cell,
    pub losses: Cell,
    pub opens: Cell,
    /// What the leader of a node heard: that the job may use what those whose turn it is leave unused.
    pub backfills: Cell,
}

/// What aggregators waited for at storage targets.
#[repr(C)]
pub struct TurnCounts {
    /// Reads of this process that asked for a turn, and how long they waited for it.
    pub asked: Cell,
    pub wait_ticks: Cell,
}

/// Kinds of failed calls that a process keeps; `count` 0 means unused.
pub const FAILURES: usize = 8;

/// Calls of one function on one file that returned the same error.
#[repr(C)]
pub struct Failure {
    pub count: Cell,
    /// Name of the function.
    pub op: Text<4>,
    pub file: Cell,
    /// The `errno`, or the class of the MPI error with [`crate::failures::IS_MPI`]; further bits are there.
    pub code: Cell,
    /// Start of the first of them.
    pub start_ticks: Cell,
}

/// What the process has seen of its I/O that other jobs could be in the way of; bits of [`Header::gate_seen`].
pub mod gate_seen {
    /// Files on a storage that other jobs may use as well.
    pub const SHARED: u64 = 1;
    /// Files in memory.
    pub const MEMORY: u64 = 2;
    /// Files on a storage that is not known.
    pub const UNKNOWN: u64 = 4;
    /// Requests too small to take a turn.
    pub const SMALL: u64 = 8;
    /// Calls that `WEIR_GATE` lets pass.
    pub const PASSED: u64 = 16;
    /// Requests that were let in by the gate.
    pub const ADMITTED: u64 = 32;
}

/// The first 4 KiB.
#[repr(C)]
pub struct Header {
    pub magic: Cell,
    /// Bytes of the record that are in use.
    pub used_bytes: Cell,
    pub pid: Cell,
    pub rank: Cell,
    pub nprocs: Cell,
    /// An [`Abi`].
    pub abi: Cell,
    /// An [`Ended`].
    pub ended: Cell,
    /// Meaning depends on `ended`; `i32` sign-extended.
    pub end_code: Cell,
    /// Blocks in use.
    pub blocks: Cell,
    /// Files known, the "other files" entry (index 0) included.
    pub files: Cell,
    /// 1 when a panic inside Weir switched it off.
    pub fuse_blown: Cell,
    /// `WEIR_PHASE_GAP` in nanoseconds, 0 when unset.
    pub phase_gap_ns: Cell,
    /// Level of thread support the program has (`MPI_THREAD_*`, 0–3).
    pub thread_level: Cell,
    /// 1 when this world was made by `MPI_Comm_spawn`.
    pub spawned: Cell,
    pub dropped: Dropped,
    /// At the moment of arming.
    pub clock_first: ClockReading,
    /// The latest reading; moved on at every phase and at the end.
    pub clock_last: ClockReading,
    /// Ticks when the process ended (finalize, exit, abort, signal), 0 while running.
    pub end_ticks: Cell,
    /// Which of a process's records this is: it grows when a program initialises MPI again.
    pub generation: Cell,
    /// How many lanes are in use: one until another thread than the owner comes.
    pub lanes: Cell,
    pub host: Text<8>,
    pub application: Text<16>,
    pub job: Text<16>,
    /// First line of `MPI_Get_library_version`.
    pub mpi: Text<32>,
    pub weir_version: Text<4>,
    /// What blew the fuse, or another one-line note.
    pub note: Text<32>,
    pub gate: GateCounts,
    /// The coordinator's policy; empty for a process that never met one.
    pub policy: Text<4>,
    /// Why there was no coordination.
    pub gate_note: Text<32>,
    /// Names that `weir_phase_begin` was given, each once; the last place is for all that find none.
    pub phase_names: [Text<PHASE_NAME_WORDS>; PHASE_NAMES],
    pub turns: TurnCounts,
    /// When the process started, in the kernel's ticks since boot: with `pid`, a name nobody else has. 0 when not known.
    pub process_start: Cell,
    /// A [`Kept`], stored by the helper process of the node.
    pub kept: Cell,
    /// 1 when no helper process keeps this record: it is written at its end only, for the reason in `note`.
    pub alone: Cell,
    /// [`UMASK_KNOWN`] and the file mode creation mask of the process, stored by the helper process of the node, which has it from
    /// there; 0 when not known.
    pub umask: Cell,
    /// The process of the rank that forked this one, or one of its parents; 0 in the record of a rank.
    pub child_of: Cell,
    /// Children of this node's ranks whose records the helper process did not take: stored by it, in the first record of its file.
    pub lost_children: Cell,
    pub failures: [Failure; FAILURES],
    /// `WEIR_GATE` as it was in force, if there was to be coordination; empty otherwise.
    pub gate_setting: Text<2>,
    /// Bits of [`gate_seen`].
    pub gate_seen: Cell,
    pub reserved: [Cell;
        HEADER_WORDS
            - (14 + 5 + 6 + 3 + 8 + 16 + 16 + 32 + 4 + 32 + 8 + 4 + 32 + 192 + 2 + 6)
            - (8 * FAILURES + 2 + 1)],
}

/// In [`Header::umask`]: the lower bits are a mask.
pub const UMASK_KNOWN: u64 = 1 << 32;

/// What the helper process of the node has done with a record so far. The number stands in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kept {
    /// Nothing: it has not seen the record yet.
    Not = 0,
    /// The memory is in its hands and outlives the process.
    InMemory = 1,
    /// `WEIR_DIR` has a file of the node.
    OnDisk = 2,
}

pub const PHASE_NAMES: usize = 32;
pub const PHASE_NAME_WORDS: usize = 6;

const HEADER_WORDS: usize = 512;

/// Which histogram: module and direction.
pub const HISTOGRAMS: usize = 6;

#[repr(C)]
pub struct Histogram {
    pub size_bytes: [Cell; BINS],
    /// Latency in ticks, to completion for nonblocking and split calls.
    pub latency_ticks: [Cell; BINS],
    /// The largest size, and the smallest as its complement, so that both begin at zero.
    pub max_size_bytes: Cell,
    pub min_size_complement: Cell,
}

pub const SERIES_BINS: usize = 256;

/// Bytes over time. Bin `i` covers the ticks `clock_first.ticks + (i << shift)` and on; when the run
/// outgrows the bins, neighbours are added up and `shift` grows by one.
#[repr(C)]
pub struct Series {
    pub shift: Cell,
    pub bytes_read: [Cell; SERIES_BINS],
    pub bytes_written: [Cell; SERIES_BINS],
}

pub const BURSTS: usize = 400;

/// A run of I/O calls of this process without a gap longer than `gap_ticks`.
#[repr(C)]
pub struct Burst {
    pub start_ticks: Cell,
    pub end_ticks: Cell,
    pub bytes_read: Cell,
    pub bytes_written: Cell,
    /// Time held back at a gate or by a share.
    pub wait_ticks: Cell,
    pub calls: Cell,
    /// Number of the `weir_phase_begin` that made it, 0 for a burst that was found.
    pub marked: Cell,
    /// Its name's place in `Header::phase_names`, counted from 1; 0 for none.
    pub name: Cell,
    /// How many more phases it stands for: of early ones only sums are kept when the list is full.
    pub more: Cell,
    /// Of the time from start to end, the pauses between those.
    pub pause_ticks: Cell,
}

/// In the owner's lane the last burst of the list ends at `deadline_ticks - active_gap_ticks`.
#[repr(C)]
pub struct Bursts {
    /// Pauses up to this long do not end a burst.
    pub gap_ticks: Cell,
    /// The same, but without bound within a marked phase.
    pub active_gap_ticks: Cell,
    /// A call that starts later than this opens a burst; 0 where `Burst::end_ticks` is up to date.
    pub deadline_ticks: Cell,
    pub count: Cell,
    pub list: [Burst; BURSTS],
}

pub const SLOWEST: usize = 10;

/// One of the slowest calls of the process; `duration_ticks` 0 means unused.
#[repr(C)]
pub struct Slow {
    pub duration_ticks: Cell,
    pub start_ticks: Cell,
    pub bytes: Cell,
    pub file: Cell,
    /// Name of the function.
    pub op: Text<4>,
}

pub const COLLECTIVES: usize = 64;

/// One collective data call as this process saw it.
#[repr(C)]
pub struct Collective {
    /// The value of `MPIIO_COLL_SEQUENCE` that it got, and the one that the file began with.
    pub sequence: Cell,
    pub sequence_start: Cell,
    pub file: Cell,
    /// Name of the function.
    pub op: Text<4>,
    pub start_ticks: Cell,
    pub end_ticks: Cell,
    /// What the program handed over or asked for.
    pub bytes: Cell,
    /// Time this process spent in the file (0 for one that was no aggregator).
    pub file_ticks: Cell,
    /// Bytes this process moved to or from the file.
    pub file_bytes: Cell,
    /// Time between start and end in which this process was held back at a gate.
    pub gate_ticks: Cell,
    /// Processes that have the file open together, and so make the call together; 0 when not known.
    pub nranks: Cell,
    /// Where the process's bytes begin, counted in bytes of its view.
    pub first: Cell,
    /// A [`crate::extents::View`]; all zero when it is not known where the bytes lie.
    pub view: [Cell; VIEW_WORDS],
    /// What this process moved, as [`crate::extents::Blocks`]; only transfers in the call's direction.
    pub transfers: [[Cell; BLOCKS_WORDS]; ROWS],
}

/// Calls whose sequence number is a multiple of `stride` are kept; `stride` doubles when the list is full.
#[repr(C)]
pub struct Collectives {
    pub stride: Cell,
    pub count: Cell,
    pub list: [Collective; COLLECTIVES],
}

/// Calls alike (of one kind, on one file, of one size) that the owner has made in a row and that are
/// not in the counters yet: most programs make the same call over and over, and then counting it is a
/// comparison and an increment.
#[repr(C)]
pub struct Run {
    /// Where the block is in the memory of the process.
    pub address: Cell,
    /// Size of each call.
    pub bytes: Cell,
    pub calls: Cell,
    /// Index of the block.
    pub block: Cell,
}

/// What the owner has moved since the burst or the bin of the series last changed.
#[repr(C)]
pub struct Pending {
    pub bytes_read: Cell,
    pub bytes_written: Cell,
    pub calls: Cell,
    /// The bin of the series it belongs to.
    pub bin: Cell,
}

#[repr(C)]
pub struct Lane {
    /// By kind, see [`crate::tally`]. Only in the owner's lane.
    pub runs: [Run; crate::tally::KINDS.len()],
    /// Only in the owner's lane.
    pub pending: Pending,
    /// Indexed by `2 * module + direction`, direction 0 read, 1 write.
    pub histograms: [Histogram; HISTOGRAMS],
    pub series: Series,
    pub bursts: Bursts,
    /// The duration a call must exceed to get into `slowest`.
    pub slowest_threshold_ticks: Cell,
    pub slowest: [Slow; SLOWEST],
    pub collectives: Collectives,
}

pub const LANES: usize = 2;

/// Words of a block that are its counters.
pub const COUNTERS_PER_BLOCK: usize = 68;
/// Bytes of a block.
pub const BLOCK_BYTES: usize = std::mem::size_of::<Block>();

/// A block's `kind` for the name of a file; the counters of a module have `KIND_MODULE + module`.
pub const KIND_NAME: u64 = 1;
pub const KIND_MODULE: u64 = 2;

/// The name of a file, or the counters of one module on one file in one lane.
#[repr(C)]
pub struct Block {
    pub kind: Cell,
    /// Index of the file; 0 is "other files".
    pub file: Cell,
    /// Lane in the lowest bit, index of the block itself above it.
    pub lane: Cell,
    /// For a name: hash of the path. For counters: free.
    pub hash: Cell,
    /// Counters, or the path as text.
    pub words: [Cell; COUNTERS_PER_BLOCK],
}

/// Where things are in the record.
pub const LANE_OFFSET: usize = HEADER_WORDS * 8;
pub const LANE_BYTES: usize = std::mem::size_of::<Lane>();
/// Blocks begin at a cache line.
pub const BLOCKS_OFFSET: usize = (LANE_OFFSET + LANES * LANE_BYTES).next_multiple_of(64);

const _: () = assert!(std::mem::size_of::<Header>() == LANE_OFFSET);
const _: () = assert!(BLOCK_BYTES == 576);

impl<const N: usize> Text<N> {
    /// Stores the end of `text` that fits.
    pub fn set(&self, text: &str) {
        store_text(&self.0, text);
    }

    pub fn get(&self) -> String {
        load_text(&self.0)
    }
}

/// Stores as much of the end of `text` as fits into the words.
pub fn store_text(words: &[Cell], text: &str) {
    let mut cut = text.len().saturating_sub(words.len() * 8);
    while !text.is_char_boundary(cut) {
        cut += 1;
    }
    let mut bytes = text.as_bytes()[cut..].chunks(8);
    for word in words {
        let mut value = [0u8; 8];
        if let Some(chunk) = bytes.next() {
            value[..chunk.len()].copy_from_slice(chunk);
        }
        word.store(u64::from_le_bytes(value), Relaxed);
    }
}

/// The text that was stored; anything that is not UTF-8 is replaced.
pub fn load_text(words: &[Cell]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.load(Relaxed).to_le_bytes()).collect();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl Collective {
    fn cells(&self) -> &[Cell] {
        // SAFETY: a `repr(C)` struct of nothing but cells.
        unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), std::mem::size_of::<Self>() / 8)
        }
    }

    /// Becomes the call that `other` is.
    pub fn copy(&self, other: &Collective) {
        self.cells().iter().zip(other.cells()).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
    }
}

impl Series {
    pub fn cells(&self, write: bool) -> &[Cell; SERIES_BINS] {
        if write { &self.bytes_written } else { &self.bytes_read }
    }
}

impl Burst {
    /// Whether there is anything in it: making room leaves places behind that are empty.
    pub fn is_used(&self) -> bool {
        load(&self.calls) != 0 || load(&self.marked) != 0
    }

    /// Its span, given how ticks become nanoseconds.
    pub fn span(&self, moment_ns: impl Fn(u64) -> u64, duration_ns: impl Fn(u64) -> u64) -> Span {
        let start_ns = moment_ns(load(&self.start_ticks));
        let end_ns = moment_ns(load(&self.end_ticks)).max(start_ns);
        let pause_ns = duration_ns(load(&self.pause_ticks)).min(end_ns - start_ns);
        Span {
            start_ns,
            end_ns,
            bytes_read: load(&self.bytes_read),
            bytes_written: load(&self.bytes_written),
            wait_ns: duration_ns(load(&self.wait_ticks)).min(end_ns - start_ns - pause_ns),
            calls: load(&self.calls),
            more: load(&self.more),
            pause_ns,
        }
    }

    /// Becomes the burst that `other` is, which is empty afterwards.
    pub fn take_place_of(&self, other: &Burst) {
        for (to, from) in [
            (&self.start_ticks, &other.start_ticks),
            (&self.end_ticks, &other.end_ticks),
            (&self.name, &other.name),
            (&self.more, &other.more),
            (&self.pause_ticks, &other.pause_ticks),
            (&self.marked, &other.marked),
        ] {
            to.store(load(from), Relaxed);
        }
        self.take_amounts(other);
    }

    /// Takes over the amounts of another burst, which is empty afterwards. What another thread adds to that
    /// meanwhile stays there and is not lost.
    pub fn take_amounts(&self, other: &Burst) {
        other.marked.store(0, Relaxed);
        for (to, from) in [
            (&self.bytes_read, &other.bytes_read),
            (&self.bytes_written, &other.bytes_written),
            (&self.wait_ticks, &other.wait_ticks),
            (&self.calls, &other.calls),
        ] {
            let amount = from.swap(0, Relaxed);
            to.fetch_add(amount, Relaxed);
        }
    }
}
