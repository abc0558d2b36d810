//! Reading a record into owned, checked values.
//!
//! A record may come from a process that was killed in the middle of a store, from another version,
//! or from a full disk. Every length is checked once, in `Head::parse` and `Record::parse`; what
//! they accept can be read without another check, and what they refuse comes with the reason.

use crate::bins::BINS;
use crate::counters::Module;
use crate::error::Error;
use crate::extents::{Access, Blocks, View};
use crate::layout::{self, *};
use crate::phases::Span;
use crate::profile::{Coordination, SeenByGate};
use crate::regular::open_regular;
use crate::tally;
use crate::words::{Words, load};
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// No job has more ranks; a larger number is damage, and must not become a list of that length.
const MAX_NPROCS: u64 = 1 << 22;
/// No record is larger: about 1.8 million blocks.
pub(crate) const MAX_RECORD_BYTES: u64 = 1 << 30;

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

fn reading(clock: &ClockReading) -> [u64; 3] {
    [load(&clock.ticks), load(&clock.monotonic_ns), load(&clock.realtime_ns)]
}

fn coordination_of(header: &Header, clock: Clock) -> Coordination {
    let gate = &header.gate;
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    Coordination {
        policy: text(header.policy.get()),
        waits: load(&gate.waits),
        wait_s: clock.duration_ns(load(&gate.wait_ticks)) as f64 / 1e9,
        limits: load(&gate.limits),
        alone: load(&gate.alone),
        turns: load(&header.turns.asked),
        turn_wait_s: clock.duration_ns(load(&header.turns.wait_ticks)) as f64 / 1e9,
        holds: load(&gate.holds),
        losses: load(&gate.losses),
        opens: load(&gate.opens),
        backfills: load(&gate.backfills),
        note: text(header.gate_note.get()),
        gate: text(header.gate_setting.get()),
        seen: seen_by_gate(load(&header.gate_seen)),
    }
}

fn seen_by_gate(bits: u64) -> SeenByGate {
    let seen = |bit: u64| bits & bit != 0;
    SeenByGate {
        shared_storage: seen(gate_seen::SHARED),
        memory: seen(gate_seen::MEMORY),
        unknown_storage: seen(gate_seen::UNKNOWN),
        small_requests: seen(gate_seen::SMALL),
        passed_calls: seen(gate_seen::PASSED),
        admitted: seen(gate_seen::ADMITTED),
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
    /// Those in use, one or two.
    pub lanes: usize,
    pub fuse_blown: bool,
    pub phase_gap_ns: u64,
    pub spawned: bool,
    pub dropped: Dropped,
    pub coordination: Coordination,
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
    /// When the process started, in the kernel's ticks since boot; 0 when not known.
    pub process_start: u64,
    /// Whether the record was written at its end only.
    pub alone: bool,
    /// File mode creation mask of the process, if it is known.
    pub umask: Option<u32>,
    /// Whether a rank, or a child of one, has forked the process.
    pub is_child: bool,
    /// Children of ranks whose records were not kept.
    pub lost_children: u64,
    /// Time held back at the gate and for turns at storage targets.
    pub held_back_ns: u64,
}

impl Head {
    /// Reads the header only.
    pub fn read(path: &Path) -> Result<Head, Error> {
        let (_, head) = open(path)?;
        Ok(head)
    }

    /// Checks and copies the header of a record of `length` bytes.
    pub(crate) fn parse(words: &Words, length: u64) -> Result<Head, String> {
        let magic = words.first().ok_or_else(|| format!("not a Weir record: {length} bytes long"))?;
        check_magic(load(magic))?;
        let header = words.at::<Header>(0).filter(|_| length >= BLOCKS_OFFSET as u64);
        let header =
            header.ok_or_else(|| format!("truncated record: {length} bytes of at least {BLOCKS_OFFSET}"))?;
        let blocks = load(&header.blocks);
        let needed_bytes = blocks.saturating_mul(BLOCK_BYTES as u64).saturating_add(BLOCKS_OFFSET as u64);
        if needed_bytes > MAX_RECORD_BYTES {
            return Err(format!("damaged record: {blocks} blocks are more than a record can hold"));
        }
        if needed_bytes > length {
            return Err(format!("truncated record: {length} bytes of {needed_bytes} ({blocks} blocks)"));
        }
        let (rank, nprocs) = (load(&header.rank), load(&header.nprocs));
        if nprocs == 0 || nprocs > MAX_NPROCS || rank >= nprocs {
            return Err(format!("damaged record: rank {rank} of {nprocs} processes"));
        }
        Head::copy(header)
    }

    fn copy(header: &Header) -> Result<Head, String> {
        let (first, last) = (reading(&header.clock_first), reading(&header.clock_last));
        let clock = Clock::new(first, last);
        let end_ticks = load(&header.end_ticks);
        let start_ns = first[2];
        let end_ns = clock.moment_ns(if end_ticks != 0 { end_ticks } else { last[0].max(first[0]) });
        let dropped = &header.dropped;
        Ok(Head {
            pid: load(&header.pid),
            rank: load(&header.rank),
            nprocs: load(&header.nprocs),
            abi: abi_of(load(&header.abi))?,
            ended: ended_of(load(&header.ended))?,
            end_code: load(&header.end_code) as i32,
            blocks: load(&header.blocks),
            lanes: lanes_of(load(&header.lanes))?,
            fuse_blown: load(&header.fuse_blown) != 0,
            phase_gap_ns: load(&header.phase_gap_ns),
            spawned: load(&header.spawned) != 0,
            dropped: Dropped {
                files: load(&dropped.files),
                bursts: load(&dropped.bursts),
                collectives: load(&dropped.collectives),
                requests: load(&dropped.requests),
                handles: load(&dropped.handles),
            },
            coordination: coordination_of(header, clock),
            clock,
            start_ns,
            end_ns: end_ns.max(start_ns),
            end_known: end_ticks != 0,
            generation: load(&header.generation),
            host: header.host.get(),
            application: header.application.get(),
            job: header.job.get(),
            mpi: header.mpi.get(),
            weir_version: header.weir_version.get(),
            note: header.note.get(),
            process_start: load(&header.process_start),
            alone: load(&header.alone) != 0,
            is_child: load(&header.child_of) != 0,
            lost_children: load(&header.lost_children),
            umask: Some(load(&header.umask))
                .filter(|umask| umask & UMASK_KNOWN != 0)
                .map(|umask| umask as u32 & 0o777),
            held_back_ns: clock
                .duration_ns(load(&header.gate.wait_ticks).saturating_add(load(&header.turns.wait_ticks))),
        })
    }
}

/// Opens a record and reads its header.
fn open(path: &Path) -> Result<(File, Head), Error> {
    let failed = |error: std::io::Error| Error::new(path, error);
    let mut file = open_regular(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let words = Words::copy(&mut file, LANE_OFFSET).map_err(failed)?;
    let head = Head::parse(&words, length).map_err(|what| Error::new(path, what))?;
    Ok((file, head))
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

fn lanes_of(word: u64) -> Result<usize, String> {
    let lanes = usize::try_from(word).ok().filter(|lanes| (1..=LANES).contains(lanes));
    lanes.ok_or_else(|| format!("damaged record: {word} lanes"))
}

/// A burst of one lane, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    pub span: Span,
    /// Number of the marked phase it belongs to, 0 for none.
    pub marked: u64,
    /// Place of that phase's name, for [`Record::phase_name`].
    pub name: u64,
}

#[derive(Clone, Debug)]
pub struct Slow {
    pub duration_ns: u64,
    pub start_ns: u64,
    pub bytes: u64,
    pub file: u64,
    pub op: String,
}

/// Calls of one function on one file that returned the same error.
#[derive(Clone, Debug)]
pub struct Failure {
    pub op: String,
    pub file: u64,
    /// As in [`layout::Failure`].
    pub code: u64,
    pub count: u64,
    pub start_ns: u64,
}

#[derive(Clone, Debug)]
pub struct Collective {
    /// The how-manieth collective data call on its file this was, from 1.
    pub sequence: u64,
    pub file: u64,
    pub op: String,
    pub start_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
    pub file_ns: u64,
    pub file_bytes: u64,
    pub gate_ns: u64,
    /// Processes that made the call together; 0 when not known.
    pub nranks: u64,
    /// Where the process's bytes lie, if that is known.
    pub access: Option<Access>,
    /// What the process moved itself.
    pub transfers: Vec<Blocks>,
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

/// A record as its process left it, or has it at the moment: what is in use of it.
pub(crate) struct Image {
    pub(crate) head: Head,
    /// The header and the lanes in use.
    pub(crate) front: Words,
    pub(crate) blocks: Words,
}

impl Image {
    /// Reads the record in a file or in the memory behind a descriptor.
    pub(crate) fn read(mut source: impl Read + Seek, length: u64) -> Result<Image, String> {
        source.rewind().map_err(|error| error.to_string())?;
        let words = Words::copy(&mut source, LANE_OFFSET).map_err(|error| error.to_string())?;
        let head = Head::parse(&words, length)?;
        Image::copy(source, &head).map_err(|error| error.to_string())?
    }

    /// From the words that were kept of it.
    pub(crate) fn new(front: Words, blocks: Words) -> Result<Image, String> {
        let head = Head::parse(&front, BLOCKS_OFFSET as u64 + blocks.bytes())?;
        let is_whole = front.bytes() == (LANE_OFFSET + head.lanes * LANE_BYTES) as u64;
        if is_whole { Ok(Image { head, front, blocks }) } else { Err("truncated record".into()) }
    }

    /// Copies what is in use, as the header says: once for each rank.
    fn copy(mut source: impl Read + Seek, head: &Head) -> std::io::Result<Result<Image, String>> {
        let front_bytes = LANE_OFFSET + head.lanes * LANE_BYTES;
        source.rewind()?;
        let front = Words::copy(&mut source, front_bytes)?;
        source.seek(SeekFrom::Start(BLOCKS_OFFSET as u64))?;
        let blocks = Words::copy(&mut source, head.blocks as usize * BLOCK_BYTES)?;
        if let Some(header) = front.at::<Header>(0) {
            // A process that still runs may have added to it since.
            header.blocks.fetch_min(head.blocks, Relaxed);
            header.lanes.fetch_min(head.lanes as u64, Relaxed);
        }
        // One that became shorter meanwhile ends before its blocks.
        let length = if front.bytes() < front_bytes as u64 { 0 } else { BLOCKS_OFFSET as u64 };
        Ok(Head::parse(&front, length + blocks.bytes()).map(|head| Image { head, front, blocks }))
    }
}

/// A whole record, with what its process had not yet counted.
pub struct Record {
    pub head: Head,
    /// The header and the lanes in use.
    front: Words,
    blocks: Words,
}

impl Record {
    pub fn read(path: &Path) -> Result<Record, Error> {
        let (file, head) = open(path)?;
        let copied = Image::copy(file, &head).map_err(|error| Error::new(path, error))?;
        copied.and_then(Record::new).map_err(|what| Error::new(path, what))
    }

    /// Checks a record that is already in memory.
    pub fn parse(bytes: &[u8]) -> Result<Record, String> {
        Image::read(Cursor::new(bytes), bytes.len() as u64).and_then(Record::new)
    }

    pub(crate) fn new(image: Image) -> Result<Record, String> {
        let Image { head, front, blocks } = image;
        let mut record = Record { head, front, blocks };
        for lane in record.lanes() {
            check_lane(record.lane(lane))?;
        }
        record.settle();
        if !record.head.end_known {
            // A process that was killed was alive at least until its last I/O.
            let last_io_ns =
                record.lanes().flat_map(|lane| record.bursts(lane)).map(|burst| burst.span.end_ns).max();
            record.head.end_ns = record.head.end_ns.max(last_io_ns.unwrap_or(0));
        }
        Ok(record)
    }

    pub(crate) fn into_image(self) -> Image {
        Image { head: self.head, front: self.front, blocks: self.blocks }
    }

    /// Does for the copy what the process does when a run of like calls ends.
    fn settle(&self) {
        for lane in self.lanes().map(|lane| self.lane(lane)) {
            for (kind, run) in lane.runs.iter().enumerate() {
                let belongs =
                    |block: &&Block| load(&block.kind) == KIND_MODULE + tally::KINDS[kind].module as u64;
                let block = usize::try_from(load(&run.block)).ok().and_then(|index| self.block(index));
                if let Some(block) = block.filter(belongs) {
                    tally::flush_run(kind, lane, block);
                }
            }
            tally::flush_pending(lane);
        }
        self.blocks().for_each(tally::settle_block);
    }

    /// The lanes in use.
    pub fn lanes(&self) -> Range<usize> {
        0..self.head.lanes
    }

    fn lane(&self, lane: usize) -> &Lane {
        // `copy` saw that the front has all that the header says.
        self.front.at(LANE_OFFSET + lane * LANE_BYTES).expect("the record holds its lanes")
    }

    fn block(&self, index: usize) -> Option<&Block> {
        (index < self.head.blocks as usize).then(|| self.blocks.at(index.checked_mul(BLOCK_BYTES)?))?
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        (0..self.head.blocks as usize).filter_map(|index| self.block(index))
    }

    /// Non-empty bins of a histogram of sizes: bin and count.
    pub fn size_bins(&self, lane: usize, histogram: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        used_bins(&self.lane(lane).histograms[histogram].size_bytes)
    }

    /// The smallest and the largest size that a histogram counts; `None` when it counts none.
    pub fn size_range(&self, lane: usize, histogram: usize) -> Option<(u64, u64)> {
        let histogram = &self.lane(lane).histograms[histogram];
        let (min, max) = (!load(&histogram.min_size_complement), load(&histogram.max_size_bytes));
        (min <= max).then_some((min, max))
    }

    /// Non-empty bins of a histogram of latencies, in ticks: bin and count.
    pub fn latency_bins(&self, lane: usize, histogram: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        used_bins(&self.lane(lane).histograms[histogram].latency_ticks)
    }

    /// Non-empty bins of the series.
    pub fn series(&self, lane: usize) -> impl Iterator<Item = SeriesBin> + '_ {
        let series = &self.lane(lane).series;
        let (shift, clock) = (load(&series.shift), self.head.clock);
        let edge_ns = move |bin: u64| clock.moment_ns(clock.first_ticks.wrapping_add(bin << shift));
        series.bytes_read.iter().zip(&series.bytes_written).zip(0u64..).filter_map(
            move |((read, written), bin)| {
                let (bytes_read, bytes_written) = (load(read), load(written));
                let used = bytes_read != 0 || bytes_written != 0;
                used.then(|| SeriesBin {
                    start_ns: edge_ns(bin),
                    end_ns: edge_ns(bin + 1),
                    bytes_read,
                    bytes_written,
                })
            },
        )
    }

    /// Below this gap two calls of the process were one burst.
    pub fn burst_gap_ns(&self, lane: usize) -> u64 {
        self.head.clock.duration_ns(load(&self.lane(lane).bursts.gap_ticks))
    }

    pub fn bursts(&self, lane: usize) -> impl Iterator<Item = Burst> + '_ {
        let (bursts, clock) = (&self.lane(lane).bursts, self.head.clock);
        let used = bursts.list[..load(&bursts.count) as usize].iter().filter(|burst| burst.is_used());
        used.map(move |burst| Burst {
            span: burst.span(|ticks| clock.moment_ns(ticks), |ticks| clock.duration_ns(ticks)),
            marked: load(&burst.marked),
            name: load(&burst.name),
        })
    }

    /// The name at a place, which a burst has; `None` when the program gave none.
    pub fn phase_name(&self, place: u64) -> Option<String> {
        let header = self.front.at::<Header>(0)?;
        let name = header.phase_names.get(usize::try_from(place).ok()?.checked_sub(1)?)?.get();
        (!name.is_empty()).then_some(name)
    }

    pub fn slowest(&self, lane: usize) -> impl Iterator<Item = Slow> + '_ {
        let clock = self.head.clock;
        let used = |slow: &&layout::Slow| load(&slow.duration_ticks) != 0;
        self.lane(lane).slowest.iter().filter(used).map(move |slow| Slow {
            duration_ns: clock.duration_ns(load(&slow.duration_ticks)),
            start_ns: clock.moment_ns(load(&slow.start_ticks)),
            bytes: load(&slow.bytes),
            file: load(&slow.file),
            op: slow.op.get(),
        })
    }

    pub fn failures(&self) -> impl Iterator<Item = Failure> + '_ {
        let clock = self.head.clock;
        let list = self.front.at::<Header>(0).map_or(&[][..], |header| &header.failures);
        list.iter().filter(|failure| load(&failure.count) != 0).map(move |failure| Failure {
            op: failure.op.get(),
            file: load(&failure.file),
            code: load(&failure.code),
            count: load(&failure.count),
            start_ns: clock.moment_ns(load(&failure.start_ticks)),
        })
    }

    pub fn collectives(&self, lane: usize) -> impl Iterator<Item = Collective> + '_ {
        let (collectives, clock) = (&self.lane(lane).collectives, self.head.clock);
        collectives.list[..load(&collectives.count) as usize].iter().map(move |call| {
            let start_ns = clock.moment_ns(load(&call.start_ticks));
            let end_ns = clock.moment_ns(load(&call.end_ticks)).max(start_ns);
            let bytes = load(&call.bytes);
            let file_ns = clock.duration_ns(load(&call.file_ticks)).min(end_ns - start_ns);
            let view = View::from_words(call.view.each_ref().map(load));
            let rows = call.transfers.iter().map(|row| Blocks::from_words(row.each_ref().map(load)));
            Collective {
                sequence: load(&call.sequence).wrapping_sub(load(&call.sequence_start)),
                file: load(&call.file),
                op: call.op.get(),
                start_ns,
                end_ns,
                bytes,
                file_ns,
                file_bytes: load(&call.file_bytes),
                gate_ns: clock.duration_ns(load(&call.gate_ticks)).min(end_ns - start_ns - file_ns),
                nranks: load(&call.nranks),
                access: view.map(|view| Access { view, first: load(&call.first), bytes }),
                transfers: rows.filter(|row| row.bytes > 0).collect(),
            }
        })
    }

    /// Index and name of every file.
    pub fn names(&self) -> impl Iterator<Item = (u64, String)> + '_ {
        let names = self.blocks().filter(|block| load(&block.kind) == KIND_NAME);
        names.map(|block| (load(&block.file), load_text(&block.words)))
    }

    /// Counters of every file, module and lane. A block of no kind is one its process did not live to fill.
    pub fn counters(&self) -> impl Iterator<Item = Counters> + '_ {
        self.blocks().filter_map(|block| {
            let kind = load(&block.kind);
            let module = Module::ALL.into_iter().find(|module| KIND_MODULE + *module as u64 == kind)?;
            Some(Counters { file: load(&block.file), module, words: block.words.each_ref().map(load) })
        })
    }
}

fn check_lane(lane: &Lane) -> Result<(), String> {
    let bursts = load(&lane.bursts.count);
    if bursts > BURSTS as u64 {
        return Err(format!("damaged record: {bursts} bursts, {BURSTS} at most"));
    }
    let collectives = load(&lane.collectives.count);
    if collectives > COLLECTIVES as u64 {
        return Err(format!("damaged record: {collectives} collectives, {COLLECTIVES} at most"));
    }
    let shift = load(&lane.series.shift);
    if shift >= 56 {
        return Err(format!("damaged record: series bins of 2^{shift} ticks"));
    }
    Ok(())
}

fn used_bins(bins: &[Cell; BINS]) -> impl Iterator<Item = (usize, u64)> + '_ {
    bins.iter().map(load).enumerate().filter(|(_, count)| *count != 0)
}
