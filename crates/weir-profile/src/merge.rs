//! Merging the records of a job, one at a time: only the merged state is kept, so that memory does
//! not grow with the number of ranks.

use crate::calls::{Calls, Slowest};
use crate::counters::{Module, mpiio, posix, stdio};
use crate::exchange::{Exchanges, Source};
use crate::failures::Failures;
use crate::fate::{job_ended, signal_name};
use crate::files::Files;
use crate::io_time::IoTimeNs;
use crate::layout::Abi;
use crate::marked::{Marked, share_out};
use crate::phases::{self, Found, Span};
use crate::profile::*;
use crate::record::{Head, Record};
use crate::spread::{Histograms, Timeline};
use crate::time::rfc3339;
use crate::totals::{Totals, seconds};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Phases in the profile's list.
const LISTED_PHASES: usize = 1000;
/// Bursts that are kept while ranks are merged.
const KEPT_BURSTS: usize = 8192;
/// Aggregators in the profile's list.
const LISTED_AGGREGATORS: usize = 1024;
/// Ranks without a record that are listed one by one.
const LISTED_IDLE: usize = 1024;
const LISTED_NOTES: usize = 32;

/// What the headers of all records say together.
#[derive(Clone, Debug)]
struct Frame {
    job: String,
    application: String,
    mpi: String,
    abi: Abi,
    version: String,
    nprocs: u64,
    nnodes: u64,
    start_ns: u64,
    end_ns: u64,
    spawned: bool,
    phase_gap_ns: u64,
}

impl Frame {
    /// `heads` are in order of rank; what only one can say, the lowest rank says.
    fn new(heads: &[Head]) -> Option<Frame> {
        let first = heads.first()?;
        let hosts: BTreeSet<&str> = heads.iter().map(|head| head.host.as_str()).collect();
        Some(Frame {
            job: first.job.clone(),
            application: first.application.clone(),
            mpi: first.mpi.clone(),
            abi: first.abi,
            version: first.weir_version.clone(),
            nprocs: heads.iter().map(|head| head.nprocs).max()?,
            nnodes: hosts.len() as u64,
            start_ns: heads.iter().map(|head| head.start_ns).min()?,
            end_ns: heads.iter().map(|head| head.end_ns).max()?,
            spawned: heads.iter().any(|head| head.spawned),
            phase_gap_ns: heads.iter().map(|head| head.phase_gap_ns).max()?,
        })
    }
}

/// A rank as it will stand in the profile, with what decides between its records.
struct RankSoFar {
    rank: Rank,
    end_ns: u64,
    io: IoTimeNs,
    held_back_ns: u64,
    file_bytes: u64,
    file_ns: u64,
}

/// The children of a rank, as far as they were merged.
#[derive(Default)]
struct ChildrenSoFar {
    children: Children,
    io_ns: u64,
}

impl ChildrenSoFar {
    fn add(&mut self, child: &RankSoFar) {
        let Children { count, bytes_read, bytes_written, .. } = &mut self.children;
        *count += 1;
        *bytes_read = bytes_read.saturating_add(child.rank.bytes_read);
        *bytes_written = bytes_written.saturating_add(child.rank.bytes_written);
        self.io_ns = self.io_ns.saturating_add(child.io.total());
    }

    fn finish(self) -> Children {
        Children { io_s: seconds(self.io_ns), ..self.children }
    }
}

pub(crate) struct Merger {
    frame: Frame,
    modules: [Totals; 3],
    files: Files,
    calls: Calls,
    exchanges: Exchanges,
    slowest: Slowest,
    histograms: Histograms,
    timeline: Timeline,
    bursts: Vec<Span>,
    burst_gap_ns: u64,
    marked: Marked,
    ranks: Vec<RankSoFar>,
    /// What processes that a rank has forked did, by rank.
    children: BTreeMap<u64, ChildrenSoFar>,
    dropped: Dropped,
    coordination: Coordination,
    failures: Failures,
    notes: Vec<String>,
}

impl Merger {
    /// `heads` of all records that will be added, in order of rank. `None` without any.
    pub(crate) fn new(heads: &[Head]) -> Option<Merger> {
        let frame = Frame::new(heads)?;
        Some(Merger {
            modules: Module::ALL.map(Totals::new),
            files: Files::default(),
            calls: Calls::default(),
            exchanges: Exchanges::default(),
            slowest: Slowest::default(),
            histograms: Histograms::default(),
            timeline: Timeline::new(frame.start_ns, frame.end_ns),
            bursts: Vec::new(),
            burst_gap_ns: 0,
            marked: Marked::default(),
            ranks: Vec::new(),
            children: BTreeMap::new(),
            dropped: Dropped::default(),
            coordination: Coordination::default(),
            failures: Failures::default(),
            notes: Vec::new(),
            frame,
        })
    }

    /// Adds a record; records come in order of rank.
    pub(crate) fn add(&mut self, record: &Record, fate: Fate) {
        let names: HashMap<u64, String> = record.names().collect();
        let process = self.add_counters(record, &names, fate);
        match record.head.is_child {
            true => self.add_child(process),
            false => self.add_rank(process),
        }
        self.add_calls(record, &names);
        self.histograms.add(record);
        self.timeline.add(record);
        self.add_bursts(record);
        self.failures.add(record, &names);
        let head = &record.head;
        self.coordination.add(&head.coordination);
        self.dropped.files = self.dropped.files.saturating_add(head.dropped.files);
        self.dropped.bursts = self.dropped.bursts.saturating_add(head.dropped.bursts);
        self.dropped.collectives = self.dropped.collectives.saturating_add(head.dropped.collectives);
        self.dropped.requests = self.dropped.requests.saturating_add(head.dropped.requests);
        self.dropped.handles = self.dropped.handles.saturating_add(head.dropped.handles);
        self.dropped.children = self.dropped.children.saturating_add(head.lost_children);
        if head.fuse_blown {
            self.note(format!(
                "rank {}: measuring stopped after a fault inside Weir: {}",
                head.rank, head.note
            ));
        } else if head.alone {
            self.note(format!("records were written at the end of their ranks only: {}", head.note));
        } else if !head.note.is_empty() {
            self.note(format!("rank {}: {}", head.rank, head.note));
        }
    }

    /// Names a record that cannot be merged; its rank is known from its name.
    pub(crate) fn add_damaged(&mut self, rank: Option<u64>, what: String) {
        self.note(what);
        if let Some(rank) = rank.filter(|rank| self.ranks.iter().all(|known| known.rank.rank != *rank)) {
            self.ranks.push(RankSoFar::without_record(rank, Fate::Damaged));
        }
    }

    pub(crate) fn note(&mut self, note: String) {
        if self.notes.len() < LISTED_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn add_counters(&mut self, record: &Record, names: &HashMap<u64, String>, fate: Fate) -> RankSoFar {
        let head = &record.head;
        let mut mine = RankSoFar::new(head, fate);
        for counters in record.counters() {
            let totals = Totals::from_ticks(counters.module, &counters.words, &head.clock);
            let name = names.get(&counters.file).map(String::as_str);
            self.files.add(name, head.rank, counters.module, &totals);
            self.modules[counters.module as usize].absorb(&totals);
            mine.add(counters.module, &totals);
            mine.io.add(&IoTimeNs::of(counters.module, &totals));
        }
        mine
    }

    /// A program that initialises MPI again leaves a second record of the same process: the last one
    /// says how it ended. Two processes of one rank are as bad as the worse of them.
    fn add_rank(&mut self, new: RankSoFar) {
        match self.ranks.last_mut() {
            Some(last) if last.rank.rank == new.rank.rank => last.join(new),
            _ => self.ranks.push(new),
        }
    }

    /// How it ended is its parent's affair. One that only opened a file, for the program that it became, is none.
    fn add_child(&mut self, child: RankSoFar) {
        let moved = child.rank.bytes_read.saturating_add(child.rank.bytes_written);
        if moved > 0 {
            self.children.entry(child.rank.rank).or_default().add(&child);
        }
    }

    fn add_calls(&mut self, record: &Record, names: &HashMap<u64, String>) {
        let Head { rank, generation, ref host, .. } = record.head;
        let node = self.exchanges.node(host);
        let name = |file: u64| names.get(&file).map_or(OTHER_FILES, String::as_str);
        for lane in record.lanes() {
            for slow in record.slowest(lane) {
                self.slowest.add(rank, name(slow.file), slow);
            }
            for call in record.collectives(lane) {
                self.calls.add(rank, name(call.file), &call);
                self.exchanges.add(Source { rank, node, generation, lane }, name(call.file), &call);
            }
        }
    }

    fn add_bursts(&mut self, record: &Record) {
        let mut of_rank = Vec::new();
        for lane in record.lanes() {
            self.burst_gap_ns = self.burst_gap_ns.max(record.burst_gap_ns(lane));
            let mut of_lane = Vec::new();
            let mut marked: BTreeMap<Option<String>, Vec<Span>> = BTreeMap::new();
            for burst in record.bursts(lane) {
                match burst.marked {
                    0 => of_lane.push(burst.span),
                    _ => marked.entry(record.phase_name(burst.name)).or_default().push(burst.span),
                }
            }
            let summed = marked.into_iter().map(|(name, spans)| self.marked.add(name, spans));
            self.dropped.bursts = summed.fold(self.dropped.bursts, u64::saturating_add);
            of_lane.sort_by_key(|span| span.start_ns);
            of_rank = phases::unite(&of_rank, &of_lane);
        }
        self.bursts = phases::unite(&self.bursts, &of_rank);
        self.keep_bursts_few();
    }

    /// Too many bursts become phases; of too many phases only sums are kept.
    fn keep_bursts_few(&mut self) {
        let before = self.bursts.len();
        if before > KEPT_BURSTS {
            self.bursts = match self.frame.phase_gap_ns {
                0 => phases::gather(&self.bursts, self.burst_gap_ns),
                given_ns => phases::join(&self.bursts, given_ns),
            };
            phases::thin(&mut self.bursts, KEPT_BURSTS);
        }
        self.dropped.bursts = self.dropped.bursts.saturating_add((before - self.bursts.len()) as u64);
    }

    /// The phases that nobody marked. A gap that the user gave is taken as it is.
    fn found(&self) -> Found {
        match self.frame.phase_gap_ns {
            0 => phases::find(&self.bursts, self.burst_gap_ns),
            gap_ns => phases::find_with(&self.bursts, gap_ns),
        }
    }

    pub(crate) fn finish(mut self) -> Profile {
        let start_ns = self.frame.start_ns;
        self.add_idle();
        for rank in &mut self.ranks {
            rank.rank.children = self.children.remove(&rank.rank.rank).map(ChildrenSoFar::finish);
        }
        let phases = self.phases();
        let (files, moved_files) = self.files.finish(start_ns);
        let (list, left_out) = self.calls.finish(start_ns);
        self.dropped.files = self.dropped.files.saturating_add(moved_files);
        self.dropped.collectives = self.dropped.collectives.saturating_add(left_out);
        let aggregators = aggregators(&self.ranks);
        let mut io_time = IoTimeNs::default();
        self.ranks.iter().for_each(|rank| io_time.add(&rank.io));
        let ends: Vec<(Rank, u64)> = self.ranks.iter().map(|r| (r.rank.clone(), r.end_ns)).collect();
        let counters = |module: Module| self.modules[module as usize].counters(start_ns);
        Profile {
            weir: Weir { version: self.frame.version.clone(), schema: SCHEMA },
            job: job(&self.frame, job_ended(&ends)),
            phases,
            coordination: self.coordination,
            io_time: Some(io_time.finish()),
            errors: self.failures.finish(start_ns),
            modules: Module::ALL
                .iter()
                .map(|module| (Cow::Borrowed(module.name()), ModuleCounters { counters: counters(*module) }))
                .collect(),
            files,
            collectives: Collectives {
                aggregators,
                list,
                exchange: self.exchanges.finish(start_ns),
                ..collectives(&self.modules[Module::Mpiio as usize])
            },
            histograms: self.histograms.finish(&self.modules),
            slowest: self.slowest.finish(start_ns),
            series: self.timeline.finish(),
            ranks: self.ranks.into_iter().map(RankSoFar::finish).collect(),
            dropped: self.dropped,
            notes: self.notes,
        }
    }

    /// The mean over all ranks, those without I/O included.
    fn io_time_ratio(&self, run_ns: u64) -> f64 {
        let sum: f64 = self.ranks.iter().map(|rank| rank.io_time_ratio(run_ns)).sum();
        sum / self.frame.nprocs.max(self.ranks.len() as u64).max(1) as f64
    }

    fn add_idle(&mut self) {
        let known: BTreeSet<u64> = self.ranks.iter().map(|known| known.rank.rank).collect();
        let parents: Vec<u64> = self.children.keys().copied().filter(|rank| !known.contains(rank)).collect();
        self.ranks.extend(parents.iter().map(|rank| RankSoFar::without_record(*rank, Fate::Idle)));
        let known: BTreeSet<u64> = known.into_iter().chain(parents).collect();
        let idle = || (0..self.frame.nprocs).filter(|rank| !known.contains(rank));
        let listed: Vec<RankSoFar> =
            idle().take(LISTED_IDLE).map(|rank| RankSoFar::without_record(rank, Fate::Idle)).collect();
        self.dropped.ranks = (idle().count() - listed.len()) as u64;
        self.ranks.extend(listed);
        self.ranks.sort_by_key(|known| known.rank.rank);
    }

    fn phases(&mut self) -> Phases {
        let run_ns = self.frame.end_ns - self.frame.start_ns;
        let (list, names, gap_ns, outside) = if self.marked.is_empty() {
            let Found { list, gap_ns, outside } = self.found();
            (list, Vec::new(), Some(gap_ns), Outside::from(&outside))
        } else {
            let (mut list, names) = self.marked.phases();
            let outside = share_out(&self.bursts, &mut list);
            (list, names, None, outside)
        };
        let gap_source = match gap_ns {
            None => "marked",
            Some(_) if self.frame.phase_gap_ns != 0 => "WEIR_PHASE_GAP",
            Some(_) => "learnt",
        };
        let (listed, unlisted) = listed(&list);
        self.dropped.phases = self.dropped.phases.saturating_add(unlisted.count);
        let since = |moment_ns: u64| seconds(moment_ns.saturating_sub(self.frame.start_ns));
        let phase = |(index, span): (usize, &Span)| Phase {
            name: names.get(index).cloned().flatten(),
            start_s: since(span.start_ns),
            end_s: since(span.end_ns),
            bytes_read: span.bytes_read,
            bytes_written: span.bytes_written,
            wait_s: seconds(span.wait_ns),
            calls: span.calls,
        };
        let rhythm = phases::rhythm(&list);
        let class = |class: &phases::Class| PhaseClass {
            count: class.count,
            period_s: class.period_ns.map(seconds),
            bytes_read: class.bytes_read,
            bytes_written: class.bytes_written,
            length_s: seconds(class.length_ns),
        };
        Phases {
            count: phases::count(&list),
            characteristic_time_s: phases::characteristic_time_ns(&list).map(seconds),
            io_ratio: phases::io_ratio(&list, run_ns),
            io_time_ratio: Some(self.io_time_ratio(run_ns)),
            confidence: rhythm.confidence,
            irregular: rhythm.is_irregular,
            classes: rhythm.classes.iter().map(class).collect(),
            gap_s: gap_ns.map(seconds),
            gap_source: gap_source.into(),
            list: listed.into_iter().map(phase).collect(),
            unlisted,
            outside,
        }
    }
}

/// The phases that the profile lists, with their places, and the sums of all others.
fn listed(phases: &[Span]) -> (Vec<(usize, &Span)>, Unlisted) {
    let mut listed = Vec::new();
    let mut unlisted = Unlisted::default();
    for (index, span) in phases.iter().enumerate() {
        if span.more == 0 && listed.len() < LISTED_PHASES {
            listed.push((index, span));
        } else {
            unlisted.add(span);
        }
    }
    (listed, unlisted)
}

impl RankSoFar {
    fn new(head: &Head, fate: Fate) -> Self {
        let mut new = RankSoFar::without_record(head.rank, fate);
        new.end_ns = head.end_ns;
        new.held_back_ns = head.held_back_ns;
        new.rank.host = head.host.clone();
        new.rank.pid = Some(head.pid);
        match fate {
            Fate::Exited | Fate::Aborted => new.rank.code = Some(head.end_code),
            Fate::Signalled => new.rank.signal = Some(signal_name(head.end_code)),
            _ => {}
        }
        new
    }

    fn without_record(rank: u64, ended: Fate) -> Self {
        let rank = Rank {
            rank,
            host: String::new(),
            pid: None,
            ended,
            code: None,
            signal: None,
            bytes_read: 0,
            bytes_written: 0,
            io_s: 0.0,
            held_back_s: 0.0,
            aggregator: false,
            children: None,
        };
        RankSoFar {
            rank,
            end_ns: u64::MAX,
            io: IoTimeNs::default(),
            held_back_ns: 0,
            file_bytes: 0,
            file_ns: 0,
        }
    }

    /// What the program itself moved: POSIX calls of the MPI library are MPI-IO's bytes once more.
    fn add(&mut self, module: Module, totals: &Totals) {
        let (read, written) = match module {
            Module::Mpiio => (totals.get(mpiio::MPIIO_BYTES_READ), totals.get(mpiio::MPIIO_BYTES_WRITTEN)),
            Module::Posix => (
                totals.get(posix::POSIX_BYTES_READ).saturating_sub(totals.get(posix::POSIX_MPI_BYTES_READ)),
                totals
                    .get(posix::POSIX_BYTES_WRITTEN)
                    .saturating_sub(totals.get(posix::POSIX_MPI_BYTES_WRITTEN)),
            ),
            Module::Stdio => (totals.get(stdio::STDIO_BYTES_READ), totals.get(stdio::STDIO_BYTES_WRITTEN)),
        };
        self.rank.bytes_read = self.rank.bytes_read.saturating_add(read);
        self.rank.bytes_written = self.rank.bytes_written.saturating_add(written);
        if module == Module::Mpiio {
            self.file_bytes = self.file_bytes.saturating_add(totals.get(mpiio::MPIIO_COLL_FILE_BYTES));
            self.file_ns = self.file_ns.saturating_add(totals.get(mpiio::MPIIO_F_COLL_FILE_TIME));
        }
    }

    fn join(&mut self, new: RankSoFar) {
        let same_process = self.rank.pid == new.rank.pid;
        let (bytes_read, bytes_written) = (self.rank.bytes_read, self.rank.bytes_written);
        if same_process || new.rank.ended > self.rank.ended {
            self.rank = new.rank.clone();
        }
        self.rank.bytes_read = bytes_read.saturating_add(new.rank.bytes_read);
        self.rank.bytes_written = bytes_written.saturating_add(new.rank.bytes_written);
        self.end_ns = self.end_ns.max(new.end_ns);
        self.io.add(&new.io);
        self.held_back_ns = self.held_back_ns.saturating_add(new.held_back_ns);
        self.file_bytes = self.file_bytes.saturating_add(new.file_bytes);
        self.file_ns = self.file_ns.saturating_add(new.file_ns);
    }

    /// The share of the run that it spent in I/O calls, time held back taken out of both.
    fn io_time_ratio(&self, run_ns: u64) -> f64 {
        match run_ns.saturating_sub(self.held_back_ns) {
            0 => 0.0,
            own_run_ns => (self.io.total() as f64 / own_run_ns as f64).min(1.0),
        }
    }

    fn finish(self) -> Rank {
        Rank {
            io_s: seconds(self.io.total()),
            held_back_s: seconds(self.held_back_ns),
            aggregator: self.file_bytes > 0,
            ..self.rank
        }
    }
}

fn aggregators(ranks: &[RankSoFar]) -> Vec<Aggregator> {
    let aggregator = |rank: &RankSoFar| Aggregator {
        rank: rank.rank.rank,
        host: rank.rank.host.clone(),
        file_bytes: rank.file_bytes,
        file_time_s: seconds(rank.file_ns),
    };
    ranks.iter().filter(|rank| rank.file_bytes > 0).take(LISTED_AGGREGATORS).map(aggregator).collect()
}

/// Sums over all calls.
fn collectives(mpiio: &Totals) -> Collectives {
    let calls = [
        mpiio::MPIIO_COLL_READS,
        mpiio::MPIIO_COLL_WRITES,
        mpiio::MPIIO_SPLIT_READS,
        mpiio::MPIIO_SPLIT_WRITES,
    ];
    let time_ns = mpiio.get(mpiio::MPIIO_F_COLL_TIME);
    let file_time_ns = mpiio.get(mpiio::MPIIO_F_COLL_FILE_TIME);
    Collectives {
        calls: calls.iter().fold(0, |sum: u64, index| sum.saturating_add(mpiio.get(*index))),
        time_s: seconds(time_ns),
        file_time_s: seconds(file_time_ns),
        rest_s: seconds(time_ns.saturating_sub(file_time_ns)),
        ..Collectives::default()
    }
}

fn job(frame: &Frame, ended: String) -> Job {
    let abi = match frame.abi {
        Abi::Unknown => "unknown",
        Abi::Mpich => "mpich",
        Abi::OpenMpi => "openmpi",
        Abi::Standard => "standard",
    };
    Job {
        id: frame.job.clone(),
        application: frame.application.clone(),
        nprocs: frame.nprocs,
        nnodes: frame.nnodes,
        mpi: frame.mpi.clone(),
        abi: abi.into(),
        start: rfc3339(frame.start_ns),
        end: rfc3339(frame.end_ns),
        duration_s: seconds(frame.end_ns - frame.start_ns),
        ended,
        spawned: frame.spawned,
    }
}
