//! Reading a record into owned, checked values.
//!
//! A record may come from a process that was killed in the middle of a store, from another version,
//! or from a full disk. Every length is checked once, in [`Head::parse`] and [`Record::parse`]; what
//! they accept can be read without another check, and what they refuse comes with the reason.

use crate::bins::BINS;
use crate::counters::Module;
use crate::error::Error;
use crate::layout::{self, *};
use crate::phases::Span;
use std::fs::File;
use std::io::Read;
use std::mem::{offset_of, size_of};
use std::path::Path;

/// No job has more ranks; a larger number is damage, and must not become a list of that length.
const MAX_NPROCS: u64 = 1 << 22;
/// No record is larger: about 1.8 million blocks.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// Turns ticks of a process's clock into nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    first_ticks: u64,
    first_realtime_ns: u64,
    ns_per_tick: f64,
}

impl Clock {
    /// A clock that was read only once, or whose two readings cannot both be right, counts nanoseconds.
    pub fn new(first: [u64; 3], last: [u64; 3]) -> Self {
        let ([first_ticks, first_monotonic_ns, first_realtime_ns], [ticks, monotonic_ns, _]) = (first, last);
        let elapsed_ticks = ticks.saturating_sub(first_ticks);
        let elapsed_ns = monotonic_ns.saturating_sub(first_monotonic_ns);
        let rate = elapsed_ns as f64 / elapsed_ticks.max(1) as f64;
        // Clocks of real machines tick between once per microsecond and some times per nanosecond.
        let ns_per_tick = if (1e-3..=1e4).contains(&rate) { rate } else { 1.0 };
        Clock { first_ticks, first_realtime_ns, ns_per_tick }
    }

    /// The moment of a tick, in nanoseconds since 1970.
    pub fn moment_ns(&self, ticks: u64) -> u64 {
        let since_ns = ticks.wrapping_sub(self.first_ticks) as i64 as f64 * self.ns_per_tick;
        self.first_realtime_ns.saturating_add_signed(since_ns.round() as i64)
    }

    pub fn duration_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick).round() as u64
    }
}

/// Words of a record at byte offsets that were checked when it was read.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn at(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[offset..offset + 8]);
        u64::from_ne_bytes(word)
    }

    /// Text up to its first zero byte.
    fn text(&self, offset: usize, words: usize) -> String {
        let bytes = &self.0[offset..offset + 8 * words];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    fn clock_reading(&self, offset: usize) -> [u64; 3] {
        [
            self.at(offset + offset_of!(ClockReading, ticks)),
            self.at(offset + offset_of!(ClockReading, monotonic_ns)),
            self.at(offset + offset_of!(ClockReading, realtime_ns)),
        ]
    }
}

/// What was dropped by one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub files: u64,
    pub bursts: u64,
    pub collectives: u64,
    pub requests: u64,
    pub handles: u64,
}

/// The header of a record.
#[derive(Clone, Debug)]
pub struct Head {
    pub pid: u64,
    pub rank: u64,
    pub nprocs: u64,
    pub abi: Abi,
    pub ended: Ended,
    pub end_code: i32,
    pub blocks: u64,
    pub fuse_blown: bool,
    pub phase_gap_ns: u64,
    pub spawned: bool,
    pub dropped: Dropped,
    pub clock: Clock,
    /// When Weir was armed, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When the process ended; for one that did not say, when it last read its clock.
    pub end_ns: u64,
    /// Whether the process said when it ended.
    pub end_known: bool,
    pub generation: u64,
    pub host: String,
    pub application: String,
    pub job: String,
    pub mpi: String,
    pub weir_version: String,
    pub note: String,
}

impl Head {
    /// Reads the header only.
    pub fn read(path: &Path) -> Result<Head, Error> {
        let mut bytes = Vec::with_capacity(LANE_OFFSET);
        let file = File::open(path).map_err(|error| Error::new(path, error))?;
        let length = file.metadata().map_err(|error| Error::new(path, error))?.len();
        file.take(LANE_OFFSET as u64).read_to_end(&mut bytes).map_err(|error| Error::new(path, error))?;
        Head::parse(&bytes, length).map_err(|what| Error::new(path, what))
    }

    /// Checks and copies the header of a record of `length` bytes.
    fn parse(bytes: &[u8], length: u64) -> Result<Head, String> {
        if bytes.len() < 8 {
            return Err(format!("not a Weir record: {} bytes long", bytes.len()));
        }
        let words = Words(bytes);
        check_magic(words.at(0))?;
        if length < BLOCKS_OFFSET as u64 || bytes.len() < LANE_OFFSET {
            return Err(format!("truncated record: {length} bytes of at least {BLOCKS_OFFSET}"));
        }
        let blocks = words.at(offset_of!(Header, blocks));
        let needed_bytes = blocks.saturating_mul(BLOCK_BYTES as u64).saturating_add(BLOCKS_OFFSET as u64);
        if needed_bytes > MAX_RECORD_BYTES {
            return Err(format!("damaged record: {blocks} blocks are more than a record can hold"));
        }
        if needed_bytes > length {
            return Err(format!("truncated record: {length} bytes of {needed_bytes} ({blocks} blocks)"));
        }
        let (rank, nprocs) = (words.at(offset_of!(Header, rank)), words.at(offset_of!(Header, nprocs)));
        if nprocs == 0 || nprocs > MAX_NPROCS || rank >= nprocs {
            return Err(format!("damaged record: rank {rank} of {nprocs} processes"));
        }
        Head::copy(&words, blocks, rank, nprocs)
    }

    fn copy(words: &Words<'_>, blocks: u64, rank: u64, nprocs: u64) -> Result<Head, String> {
        let first = words.clock_reading(offset_of!(Header, clock_first));
        let last = words.clock_reading(offset_of!(Header, clock_last));
        let clock = Clock::new(first, last);
        let end_ticks = words.at(offset_of!(Header, end_ticks));
        let start_ns = first[2];
        let end_ns = clock.moment_ns(if end_ticks != 0 { end_ticks } else { last[0].max(first[0]) });
        Ok(Head {
            pid: words.at(offset_of!(Header, pid)),
            rank,
            nprocs,
            abi: abi_of(words.at(offset_of!(Header, abi)))?,
            ended: ended_of(words.at(offset_of!(Header, ended)))?,
            end_code: words.at(offset_of!(Header, end_code)) as i32,
            blocks,
            fuse_blown: words.at(offset_of!(Header, fuse_blown)) != 0,
            phase_gap_ns: words.at(offset_of!(Header, phase_gap_ns)),
            spawned: words.at(offset_of!(Header, spawned)) != 0,
            dropped: Dropped {
                files: words.at(offset_of!(Header, dropped.files)),
                bursts: words.at(offset_of!(Header, dropped.bursts)),
                collectives: words.at(offset_of!(Header, dropped.collectives)),
                requests: words.at(offset_of!(Header, dropped.requests)),
                handles: words.at(offset_of!(Header, dropped.handles)),
            },
            clock,
            start_ns,
            end_ns: end_ns.max(start_ns),
            end_known: end_ticks != 0,
            generation: words.at(offset_of!(Header, generation)),
            host: words.text(offset_of!(Header, host), size_of::<Text<8>>() / 8),
            application: words.text(offset_of!(Header, application), 16),
            job: words.text(offset_of!(Header, job), 16),
            mpi: words.text(offset_of!(Header, mpi), 32),
            weir_version: words.text(offset_of!(Header, weir_version), 4),
            note: words.text(offset_of!(Header, note), 32),
        })
    }
}

fn check_magic(magic: u64) -> Result<(), String> {
    let (name, expected) = (magic.to_le_bytes(), MAGIC.to_le_bytes());
    if name[..7] != expected[..7] {
        return Err("not a Weir record: wrong first word".into());
    }
    if name[7] != expected[7] {
        return Err(format!("record of layout version {}; this Weir reads version {}", name[7], expected[7]));
    }
    Ok(())
}

fn abi_of(word: u64) -> Result<Abi, String> {
    [Abi::Unknown, Abi::Mpich, Abi::OpenMpi, Abi::Standard]
        .into_iter()
        .find(|abi| *abi as u64 == word)
        .ok_or_else(|| format!("damaged record: ABI {word}"))
}

fn ended_of(word: u64) -> Result<Ended, String> {
    use Ended::*;
    [Running, Finalized, Exited, Aborted, Signalled, Replaced]
        .into_iter()
        .find(|ended| *ended as u64 == word)
        .ok_or_else(|| format!("damaged record: ended {word}"))
}

/// A burst of one lane, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    pub span: Span,
    /// Number of the marked phase it belongs to, 0 for none.
    pub marked: u64,
}

#[derive(Clone, Debug)]
pub struct Slow {
    pub duration_ns: u64,
    pub start_ns: u64,
    pub bytes: u64,
    pub file: u64,
    pub op: String,
}

#[derive(Clone, Debug)]
pub struct Collective {
    pub sequence: u64,
    pub file: u64,
    pub op: String,
    pub start_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
    pub file_ns: u64,
    pub file_bytes: u64,
}

/// One bin of the series.
#[derive(Clone, Copy, Debug)]
pub struct SeriesBin {
    pub start_ns: u64,
    pub end_ns: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// Counters of one module on one file in one lane, in ticks where they are times.
pub struct Counters {
    pub file: u64,
    pub module: Module,
    pub words: [u64; COUNTERS_PER_BLOCK],
}

/// A whole record.
pub struct Record {
    pub head: Head,
    bytes: Vec<u8>,
}

impl Record {
    pub fn read(path: &Path) -> Result<Record, Error> {
        let head = Head::read(path)?;
        let used_bytes = BLOCKS_OFFSET as u64 + head.blocks * BLOCK_BYTES as u64;
        let mut bytes = Vec::with_capacity(used_bytes as usize);
        File::open(path)
            .and_then(|file| file.take(used_bytes).read_to_end(&mut bytes))
            .map_err(|error| Error::new(path, error))?;
        Record::parse(bytes).map_err(|what| Error::new(path, what))
    }

    /// Checks a record that is already in memory.
    pub fn parse(bytes: Vec<u8>) -> Result<Record, String> {
        let mut head = Head::parse(&bytes, bytes.len() as u64)?;
        let words = Words(&bytes);
        for lane in (0..LANES).map(|lane| LANE_OFFSET + lane * LANE_BYTES) {
            let bursts = words.at(lane + offset_of!(Lane, bursts.count));
            if bursts > BURSTS as u64 {
                return Err(format!("damaged record: {bursts} bursts, {BURSTS} at most"));
            }
            let collectives = words.at(lane + offset_of!(Lane, collectives.count));
            if collectives > COLLECTIVES as u64 {
                return Err(format!("damaged record: {collectives} collectives, {COLLECTIVES} at most"));
            }
            let shift = words.at(lane + offset_of!(Lane, series.shift));
            if shift >= 56 {
                return Err(format!("damaged record: series bins of 2^{shift} ticks"));
            }
        }
        let mut record = Record { head: head.clone(), bytes };
        if !head.end_known {
            // A process that was killed was alive at least until its last I/O.
            let last_io_ns =
                (0..LANES).flat_map(|lane| record.bursts(lane)).map(|burst| burst.span.end_ns).max();
            head.end_ns = head.end_ns.max(last_io_ns.unwrap_or(0));
            record.head = head;
        }
        Ok(record)
    }

    fn words(&self) -> Words<'_> {
        Words(&self.bytes)
    }

    fn lane(lane: usize) -> usize {
        LANE_OFFSET + lane * LANE_BYTES
    }

    /// Non-empty bins of a histogram of sizes: bin and count.
    pub fn size_bins(&self, lane: usize, histogram: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.bins(lane, histogram, offset_of!(Histogram, size_bytes))
    }

    /// Non-empty bins of a histogram of latencies, in ticks: bin and count.
    pub fn latency_bins(&self, lane: usize, histogram: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.bins(lane, histogram, offset_of!(Histogram, latency_ticks))
    }

    fn bins(&self, lane: usize, histogram: usize, field: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let base =
            Self::lane(lane) + offset_of!(Lane, histograms) + histogram * size_of::<Histogram>() + field;
        (0..BINS).map(move |bin| (bin, self.words().at(base + 8 * bin))).filter(|(_, count)| *count != 0)
    }

    /// Non-empty bins of the series.
    pub fn series(&self, lane: usize) -> impl Iterator<Item = SeriesBin> + '_ {
        let words = self.words();
        let base = Self::lane(lane) + offset_of!(Lane, series);
        let shift = words.at(base + offset_of!(Series, shift));
        let clock = self.head.clock;
        (0..SERIES_BINS as u64).filter_map(move |bin| {
            let bytes_read = words.at(base + offset_of!(Series, bytes_read) + 8 * bin as usize);
            let bytes_written = words.at(base + offset_of!(Series, bytes_written) + 8 * bin as usize);
            let edge_ns = |bin: u64| clock.moment_ns(clock.first_ticks.wrapping_add(bin << shift));
            let used = bytes_read != 0 || bytes_written != 0;
            used.then(|| SeriesBin {
                start_ns: edge_ns(bin),
                end_ns: edge_ns(bin + 1),
                bytes_read,
                bytes_written,
            })
        })
    }

    /// Below this gap two calls of the process were one burst.
    pub fn burst_gap_ns(&self, lane: usize) -> u64 {
        self.head.clock.duration_ns(self.words().at(Self::lane(lane) + offset_of!(Lane, bursts.gap_ticks)))
    }

    pub fn bursts(&self, lane: usize) -> impl Iterator<Item = Burst> + '_ {
        let words = self.words();
        let clock = self.head.clock;
        let base = Self::lane(lane) + offset_of!(Lane, bursts);
        let count = words.at(base + offset_of!(Bursts, count)) as usize;
        (0..count).map(move |index| {
            let at = base + offset_of!(Bursts, list) + index * size_of::<layout::Burst>();
            let field = |offset: usize| words.at(at + offset);
            let start_ns = clock.moment_ns(field(offset_of!(layout::Burst, start_ticks)));
            let end_ns = clock.moment_ns(field(offset_of!(layout::Burst, end_ticks))).max(start_ns);
            let span = Span {
                start_ns,
                end_ns,
                bytes_read: field(offset_of!(layout::Burst, bytes_read)),
                bytes_written: field(offset_of!(layout::Burst, bytes_written)),
                wait_ns: clock
                    .duration_ns(field(offset_of!(layout::Burst, wait_ticks)))
                    .min(end_ns - start_ns),
                calls: field(offset_of!(layout::Burst, calls)),
            };
            Burst { span, marked: field(offset_of!(layout::Burst, marked)) }
        })
    }

    pub fn slowest(&self, lane: usize) -> impl Iterator<Item = Slow> + '_ {
        let words = self.words();
        let clock = self.head.clock;
        (0..SLOWEST).filter_map(move |index| {
            let at = Self::lane(lane) + offset_of!(Lane, slowest) + index * size_of::<layout::Slow>();
            let field = |offset: usize| words.at(at + offset);
            let duration_ticks = field(offset_of!(layout::Slow, duration_ticks));
            (duration_ticks != 0).then(|| Slow {
                duration_ns: clock.duration_ns(duration_ticks),
                start_ns: clock.moment_ns(field(offset_of!(layout::Slow, start_ticks))),
                bytes: field(offset_of!(layout::Slow, bytes)),
                file: field(offset_of!(layout::Slow, file)),
                op: words.text(at + offset_of!(layout::Slow, op), 4),
            })
        })
    }

    pub fn collectives(&self, lane: usize) -> impl Iterator<Item = Collective> + '_ {
        let words = self.words();
        let clock = self.head.clock;
        let base = Self::lane(lane) + offset_of!(Lane, collectives);
        let count = words.at(base + offset_of!(Collectives, count)) as usize;
        (0..count).map(move |index| {
            let at = base + offset_of!(Collectives, list) + index * size_of::<layout::Collective>();
            let field = |offset: usize| words.at(at + offset);
            let start_ns = clock.moment_ns(field(offset_of!(layout::Collective, start_ticks)));
            let end_ns = clock.moment_ns(field(offset_of!(layout::Collective, end_ticks))).max(start_ns);
            Collective {
                sequence: field(offset_of!(layout::Collective, sequence)),
                file: field(offset_of!(layout::Collective, file)),
                op: words.text(at + offset_of!(layout::Collective, op), 4),
                start_ns,
                end_ns,
                bytes: field(offset_of!(layout::Collective, bytes)),
                file_ns: clock
                    .duration_ns(field(offset_of!(layout::Collective, file_ticks)))
                    .min(end_ns - start_ns),
                file_bytes: field(offset_of!(layout::Collective, file_bytes)),
            }
        })
    }

    /// Index and name of every file.
    pub fn names(&self) -> impl Iterator<Item = (u64, String)> + '_ {
        let words = self.words();
        self.blocks(|kind| kind == KIND_NAME).map(move |at| {
            let name = words.text(at + offset_of!(Block, words), COUNTERS_PER_BLOCK);
            (words.at(at + offset_of!(Block, file)), name)
        })
    }

    /// Counters of every file, module and lane.
    pub fn counters(&self) -> impl Iterator<Item = Counters> + '_ {
        let words = self.words();
        let is_module = |kind: u64| Module::ALL.iter().any(|module| KIND_MODULE + *module as u64 == kind);
        self.blocks(is_module).map(move |at| Counters {
            file: words.at(at + offset_of!(Block, file)),
            module: Module::ALL[(words.at(at + offset_of!(Block, kind)) - KIND_MODULE) as usize],
            words: std::array::from_fn(|index| words.at(at + offset_of!(Block, words) + 8 * index)),
        })
    }

    /// Offsets of the blocks of a kind. A block of no kind is one its process did not live to fill.
    fn blocks(&self, wanted: impl Fn(u64) -> bool) -> impl Iterator<Item = usize> {
        (0..self.head.blocks as usize)
            .map(|block| BLOCKS_OFFSET + block * BLOCK_BYTES)
            .filter(move |at| wanted(self.words().at(at + offset_of!(Block, kind))))
    }
}
