//! Every counter of every module, with its sentence and the rule by which ranks are merged.
//!
//! Names are Darshan's where the meaning is Darshan's. Times are kept in clock ticks in the record
//! and become seconds in the profile.

/// How the values of two ranks (or two lanes of one process) become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Added up.
    Sum,
    /// The larger one.
    Max,
    /// Ticks, added up; seconds in the profile.
    Seconds,
    /// The longest duration, in ticks; seconds in the profile.
    Longest,
    /// The earliest moment, in ticks, 0 for never; seconds since the job's start in the profile.
    First,
    /// The latest moment, in ticks, 0 for never; seconds since the job's start in the profile.
    Last,
    /// What the hot path needs to remember; not in the profile.
    State,
}

/// A counter's name in the profile and its rule.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    pub name: &'static str,
    pub merge: Merge,
    /// What it counts, in a sentence.
    pub doc: &'static str,
}

/// Turns a list of counters into index constants and the table that reading and merging use.
macro_rules! counters {
    ($(#[$module_doc:meta])* $module:ident: $($(#[doc = $doc:literal])+ $name:ident: $merge:ident,)+) => {
        $(#[$module_doc])*
        pub mod $module {
            use super::{Counter, Merge};
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            #[repr(usize)]
            enum Index { $($name),+ }
            $($(#[doc = $doc])+ pub const $name: usize = Index::$name as usize;)+
            pub const TABLE: &[Counter] = &[
                $(Counter { name: stringify!($name), merge: Merge::$merge, doc: concat!($($doc),+) }),+
            ];
            const _: () = assert!(TABLE.len() <= crate::layout::COUNTERS_PER_BLOCK);
        }
    };
}

counters! {
    /// Calls of `MPI_File_*`. A call counts once, in the class of its own kind: a nonblocking
    /// collective is `NB`, a split collective is `SPLIT` (when it ends), `_ordered` is `COLL`,
    /// `_shared` is `INDEP`.
    mpiio:
    /// Files opened on a communicator of one process.
    MPIIO_INDEP_OPENS: Sum,
    /// Files opened on a communicator of several processes.
    MPIIO_COLL_OPENS: Sum,
    /// Independent blocking reads.
    MPIIO_INDEP_READS: Sum,
    /// Independent blocking writes.
    MPIIO_INDEP_WRITES: Sum,
    /// Collective blocking reads.
    MPIIO_COLL_READS: Sum,
    /// Collective blocking writes.
    MPIIO_COLL_WRITES: Sum,
    /// Split collective reads.
    MPIIO_SPLIT_READS: Sum,
    /// Split collective writes.
    MPIIO_SPLIT_WRITES: Sum,
    /// Nonblocking reads.
    MPIIO_NB_READS: Sum,
    /// Nonblocking writes.
    MPIIO_NB_WRITES: Sum,
    /// `MPI_File_sync`.
    MPIIO_SYNCS: Sum,
    /// Opens, `set_info` and `set_view` calls that passed hints.
    MPIIO_HINTS: Sum,
    /// `MPI_File_set_view`.
    MPIIO_VIEWS: Sum,
    /// `MPI_File_set_size` and `MPI_File_preallocate`.
    MPIIO_RESIZES: Sum,
    /// `MPI_File_delete`.
    MPIIO_DELETES: Sum,
    /// Calls that returned an error.
    MPIIO_ERRORS: Sum,
    /// Bytes that reads asked for.
    MPIIO_BYTES_READ: Sum,
    /// Bytes that writes handed over.
    MPIIO_BYTES_WRITTEN: Sum,
    /// Changes between reading and writing.
    MPIIO_RW_SWITCHES: Sum,
    /// Reads of up to 100 bytes.
    MPIIO_SIZE_READ_AGG_0_100: Sum,
    /// Reads of up to 1 KiB.
    MPIIO_SIZE_READ_AGG_100_1K: Sum,
    /// Reads of up to 10 KiB.
    MPIIO_SIZE_READ_AGG_1K_10K: Sum,
    /// Reads of up to 100 KiB.
    MPIIO_SIZE_READ_AGG_10K_100K: Sum,
    /// Reads of up to 1 MiB.
    MPIIO_SIZE_READ_AGG_100K_1M: Sum,
    /// Reads of up to 4 MiB.
    MPIIO_SIZE_READ_AGG_1M_4M: Sum,
    /// Reads of up to 10 MiB.
    MPIIO_SIZE_READ_AGG_4M_10M: Sum,
    /// Reads of up to 100 MiB.
    MPIIO_SIZE_READ_AGG_10M_100M: Sum,
    /// Reads of up to 1 GiB.
    MPIIO_SIZE_READ_AGG_100M_1G: Sum,
    /// Reads of more than 1 GiB.
    MPIIO_SIZE_READ_AGG_1G_PLUS: Sum,
    /// Writes of up to 100 bytes.
    MPIIO_SIZE_WRITE_AGG_0_100: Sum,
    /// Writes of up to 1 KiB.
    MPIIO_SIZE_WRITE_AGG_100_1K: Sum,
    /// Writes of up to 10 KiB.
    MPIIO_SIZE_WRITE_AGG_1K_10K: Sum,
    /// Writes of up to 100 KiB.
    MPIIO_SIZE_WRITE_AGG_10K_100K: Sum,
    /// Writes of up to 1 MiB.
    MPIIO_SIZE_WRITE_AGG_100K_1M: Sum,
    /// Writes of up to 4 MiB.
    MPIIO_SIZE_WRITE_AGG_1M_4M: Sum,
    /// Writes of up to 10 MiB.
    MPIIO_SIZE_WRITE_AGG_4M_10M: Sum,
    /// Writes of up to 100 MiB.
    MPIIO_SIZE_WRITE_AGG_10M_100M: Sum,
    /// Writes of up to 1 GiB.
    MPIIO_SIZE_WRITE_AGG_100M_1G: Sum,
    /// Writes of more than 1 GiB.
    MPIIO_SIZE_WRITE_AGG_1G_PLUS: Sum,
    /// Time the program spent inside reads, and waiting for nonblocking ones.
    MPIIO_F_READ_TIME: Seconds,
    /// Time the program spent inside writes, and waiting for nonblocking ones.
    MPIIO_F_WRITE_TIME: Seconds,
    /// Time inside open, close, sync, set_view, set_size and the like.
    MPIIO_F_META_TIME: Seconds,
    /// The longest read.
    MPIIO_F_MAX_READ_TIME: Longest,
    /// The longest write.
    MPIIO_F_MAX_WRITE_TIME: Longest,
    /// Start of the first open.
    MPIIO_F_OPEN_START_TIMESTAMP: First,
    /// End of the last open.
    MPIIO_F_OPEN_END_TIMESTAMP: Last,
    /// Start of the first read.
    MPIIO_F_READ_START_TIMESTAMP: First,
    /// End of the last read.
    MPIIO_F_READ_END_TIMESTAMP: Last,
    /// Start of the first write.
    MPIIO_F_WRITE_START_TIMESTAMP: First,
    /// End of the last write.
    MPIIO_F_WRITE_END_TIMESTAMP: Last,
    /// Start of the first close.
    MPIIO_F_CLOSE_START_TIMESTAMP: First,
    /// End of the last close.
    MPIIO_F_CLOSE_END_TIMESTAMP: Last,
    /// Time inside collective calls (blocking and split).
    MPIIO_F_COLL_TIME: Seconds,
    /// Of that, time in which this process moved data to or from the file: it was an aggregator.
    MPIIO_F_COLL_FILE_TIME: Seconds,
    /// Bytes this process moved to or from the file within collective calls.
    MPIIO_COLL_FILE_BYTES: Sum,
    /// Whether the last data call wrote (2) or read (1).
    MPIIO_LAST_DIRECTION: State,
    /// Collective data calls so far, blocking and split, counted from a number that every process takes
    /// from the file's name: files take turns in which of their calls are listed.
    MPIIO_COLL_SEQUENCE: State,
    /// That number.
    MPIIO_COLL_SEQUENCE_START: State,
    /// A read that takes longer may be the file's longest, or one of the process's slowest calls.
    MPIIO_READ_ATTENTION: State,
    /// A write that takes longer may be the file's longest, or one of the process's slowest calls.
    MPIIO_WRITE_ATTENTION: State,
    /// Of the metadata time, time inside opens and closes.
    MPIIO_F_OPEN_CLOSE_TIME: Seconds,
    /// Of the metadata time, time inside `MPI_File_sync`.
    MPIIO_F_SYNC_TIME: Seconds,
    /// Of the time inside all these calls, time held back at a gate.
    MPIIO_F_GATE_TIME: Seconds,
}

counters! {
    /// POSIX calls on file descriptors, those of the MPI library beneath `MPI_File_*` included.
    posix:
    /// Successful opens.
    POSIX_OPENS: Sum,
    /// `dup`, `dup2`, `dup3` and `fcntl(F_DUPFD)`.
    POSIX_DUPS: Sum,
    /// Reads, vectored and asynchronous ones included.
    POSIX_READS: Sum,
    /// Writes, vectored and asynchronous ones included.
    POSIX_WRITES: Sum,
    /// `lseek`.
    POSIX_SEEKS: Sum,
    /// Mappings of a file.
    POSIX_MMAPS: Sum,
    /// `fsync`.
    POSIX_FSYNCS: Sum,
    /// `fdatasync`.
    POSIX_FDSYNCS: Sum,
    /// `ftruncate`.
    POSIX_TRUNCATES: Sum,
    /// Calls that returned an error, but for those that looked for a file that is not there.
    POSIX_ERRORS: Sum,
    /// Bytes read.
    POSIX_BYTES_READ: Sum,
    /// Bytes written.
    POSIX_BYTES_WRITTEN: Sum,
    /// Of the bytes read, those the MPI library read.
    POSIX_MPI_BYTES_READ: Sum,
    /// Of the bytes written, those the MPI library wrote.
    POSIX_MPI_BYTES_WRITTEN: Sum,
    /// Highest offset read.
    POSIX_MAX_BYTE_READ: Max,
    /// Highest offset written.
    POSIX_MAX_BYTE_WRITTEN: Max,
    /// Reads that began where the last one ended.
    POSIX_CONSEC_READS: Sum,
    /// Writes that began where the last one ended.
    POSIX_CONSEC_WRITES: Sum,
    /// Reads at an offset past the last one.
    POSIX_SEQ_READS: Sum,
    /// Writes at an offset past the last one.
    POSIX_SEQ_WRITES: Sum,
    /// Changes between reading and writing.
    POSIX_RW_SWITCHES: Sum,
    /// Reads of up to 100 bytes.
    POSIX_SIZE_READ_0_100: Sum,
    /// Reads of up to 1 KiB.
    POSIX_SIZE_READ_100_1K: Sum,
    /// Reads of up to 10 KiB.
    POSIX_SIZE_READ_1K_10K: Sum,
    /// Reads of up to 100 KiB.
    POSIX_SIZE_READ_10K_100K: Sum,
    /// Reads of up to 1 MiB.
    POSIX_SIZE_READ_100K_1M: Sum,
    /// Reads of up to 4 MiB.
    POSIX_SIZE_READ_1M_4M: Sum,
    /// Reads of up to 10 MiB.
    POSIX_SIZE_READ_4M_10M: Sum,
    /// Reads of up to 100 MiB.
    POSIX_SIZE_READ_10M_100M: Sum,
    /// Reads of up to 1 GiB.
    POSIX_SIZE_READ_100M_1G: Sum,
    /// Reads of more than 1 GiB.
    POSIX_SIZE_READ_1G_PLUS: Sum,
    /// Writes of up to 100 bytes.
    POSIX_SIZE_WRITE_0_100: Sum,
    /// Writes of up to 1 KiB.
    POSIX_SIZE_WRITE_100_1K: Sum,
    /// Writes of up to 10 KiB.
    POSIX_SIZE_WRITE_1K_10K: Sum,
    /// Writes of up to 100 KiB.
    POSIX_SIZE_WRITE_10K_100K: Sum,
    /// Writes of up to 1 MiB.
    POSIX_SIZE_WRITE_100K_1M: Sum,
    /// Writes of up to 4 MiB.
    POSIX_SIZE_WRITE_1M_4M: Sum,
    /// Writes of up to 10 MiB.
    POSIX_SIZE_WRITE_4M_10M: Sum,
    /// Writes of up to 100 MiB.
    POSIX_SIZE_WRITE_10M_100M: Sum,
    /// Writes of up to 1 GiB.
    POSIX_SIZE_WRITE_100M_1G: Sum,
    /// Writes of more than 1 GiB.
    POSIX_SIZE_WRITE_1G_PLUS: Sum,
    /// Time inside reads.
    POSIX_F_READ_TIME: Seconds,
    /// Time inside writes.
    POSIX_F_WRITE_TIME: Seconds,
    /// Time inside open, close, lseek, fsync, stat and the like.
    POSIX_F_META_TIME: Seconds,
    /// The longest read.
    POSIX_F_MAX_READ_TIME: Longest,
    /// The longest write.
    POSIX_F_MAX_WRITE_TIME: Longest,
    /// Start of the first open.
    POSIX_F_OPEN_START_TIMESTAMP: First,
    /// End of the last open.
    POSIX_F_OPEN_END_TIMESTAMP: Last,
    /// Start of the first read.
    POSIX_F_READ_START_TIMESTAMP: First,
    /// End of the last read.
    POSIX_F_READ_END_TIMESTAMP: Last,
    /// Start of the first write.
    POSIX_F_WRITE_START_TIMESTAMP: First,
    /// End of the last write.
    POSIX_F_WRITE_END_TIMESTAMP: Last,
    /// Start of the first close.
    POSIX_F_CLOSE_START_TIMESTAMP: First,
    /// End of the last close.
    POSIX_F_CLOSE_END_TIMESTAMP: Last,
    /// Where the next call without an offset of its own begins.
    POSIX_POSITION: State,
    /// Where the last read ended; the highest value before the first.
    POSIX_LAST_READ_END: State,
    /// Where the last write ended; the highest value before the first.
    POSIX_LAST_WRITE_END: State,
    /// Whether the last data call wrote (2) or read (1).
    POSIX_LAST_DIRECTION: State,
    /// A read that takes longer may be the file's longest, or one of the process's slowest calls.
    POSIX_READ_ATTENTION: State,
    /// A write that takes longer may be the file's longest, or one of the process's slowest calls.
    POSIX_WRITE_ATTENTION: State,
    /// `stat`, `access` and the like, by the program itself; of files that it does not open, in '(other files)'.
    POSIX_STATS: Sum,
    /// `unlink`, `rename`, `mkdir` and the like, by the program itself; of files that it does not open, in '(other files)'.
    POSIX_DIRECTORY_CHANGES: Sum,
    /// Of the metadata time, time inside opens and closes of the program itself.
    POSIX_F_OPEN_CLOSE_TIME: Seconds,
    /// Of the metadata time, time inside `fsync` and `fdatasync` of the program itself.
    POSIX_F_SYNC_TIME: Seconds,
    /// Of the metadata time, time inside calls of the MPI library.
    POSIX_F_MPI_META_TIME: Seconds,
}

counters! {
    /// Calls on `FILE *` streams.
    stdio:
    /// `fopen` and `freopen`.
    STDIO_OPENS: Sum,
    /// `fdopen`.
    STDIO_FDOPENS: Sum,
    /// `fread`, `fgets`, `fgetc`, `fscanf` and the like.
    STDIO_READS: Sum,
    /// `fwrite`, `fputs`, `fputc`, `fprintf` and the like.
    STDIO_WRITES: Sum,
    /// `fseek`, `fsetpos`, `rewind`.
    STDIO_SEEKS: Sum,
    /// `fflush`.
    STDIO_FLUSHES: Sum,
    /// Bytes read.
    STDIO_BYTES_READ: Sum,
    /// Bytes written.
    STDIO_BYTES_WRITTEN: Sum,
    /// Time inside reads.
    STDIO_F_READ_TIME: Seconds,
    /// Time inside writes.
    STDIO_F_WRITE_TIME: Seconds,
    /// Time inside fopen, fclose, fseek, fflush and the like.
    STDIO_F_META_TIME: Seconds,
    /// The longest read.
    STDIO_F_MAX_READ_TIME: Longest,
    /// The longest write.
    STDIO_F_MAX_WRITE_TIME: Longest,
    /// Start of the first open.
    STDIO_F_OPEN_START_TIMESTAMP: First,
    /// End of the last open.
    STDIO_F_OPEN_END_TIMESTAMP: Last,
    /// Start of the first read.
    STDIO_F_READ_START_TIMESTAMP: First,
    /// End of the last read.
    STDIO_F_READ_END_TIMESTAMP: Last,
    /// Start of the first write.
    STDIO_F_WRITE_START_TIMESTAMP: First,
    /// End of the last write.
    STDIO_F_WRITE_END_TIMESTAMP: Last,
    /// Start of the first close.
    STDIO_F_CLOSE_START_TIMESTAMP: First,
    /// End of the last close.
    STDIO_F_CLOSE_END_TIMESTAMP: Last,
    /// A read that takes longer may be the file's longest, or one of the process's slowest calls.
    STDIO_READ_ATTENTION: State,
    /// A write that takes longer may be the file's longest, or one of the process's slowest calls.
    STDIO_WRITE_ATTENTION: State,
    /// Of the metadata time, time inside opens and closes.
    STDIO_F_OPEN_CLOSE_TIME: Seconds,
    /// Of the metadata time, time inside `fflush`.
    STDIO_F_SYNC_TIME: Seconds,
    /// Calls that returned an error, but for those that looked for a file that is not there.
    STDIO_ERRORS: Sum,
}

/// A module of the profile. The number stands in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum Module {
    Mpiio = 0,
    Posix = 1,
    Stdio = 2,
}

impl Module {
    pub const ALL: [Module; 3] = [Module::Mpiio, Module::Posix, Module::Stdio];

    /// Its key in the profile.
    pub fn name(self) -> &'static str {
        match self {
            Module::Mpiio => "MPIIO",
            Module::Posix => "POSIX",
            Module::Stdio => "STDIO",
        }
    }

    pub fn counters(self) -> &'static [Counter] {
        match self {
            Module::Mpiio => mpiio::TABLE,
            Module::Posix => posix::TABLE,
            Module::Stdio => stdio::TABLE,
        }
    }
}
