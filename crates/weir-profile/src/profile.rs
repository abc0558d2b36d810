//! The JSON profile. Its JSON Schema is `docs/profile.schema.json`, its words are in `docs/PROFILE.md`.

use crate::phases::Span;
use crate::totals::seconds;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Version of the profile's form. It grows when a reader of the old form would be misled.
pub const SCHEMA: u64 = 1;

/// The published JSON Schema of this form.
pub const JSON_SCHEMA: &str = include_str!("../../../docs/profile.schema.json");

/// Name of the entry that holds the counts of files which have no entry of their own.
pub const OTHER_FILES: &str = "(other files)";

/// Ranks that a file or a collective call lists one by one.
pub const LISTED_RANKS: usize = 64;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Profile {
    pub weir: Weir,
    pub job: Job,
    pub phases: Phases,
    #[serde(default)]
    pub coordination: Coordination,
    #[serde(default)]
    pub io_time: Option<IoTime>,
    #[serde(default)]
    pub errors: Vec<Failure>,
    pub modules: BTreeMap<Cow<'static, str>, ModuleCounters>,
    pub files: Vec<File>,
    pub collectives: Collectives,
    pub histograms: BTreeMap<Cow<'static, str>, Directions>,
    pub slowest: Vec<Slow>,
    pub series: Series,
    pub ranks: Vec<Rank>,
    pub dropped: Dropped,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Weir {
    pub version: String,
    pub schema: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    pub application: String,
    pub nprocs: u64,
    pub nnodes: u64,
    /// First line of `MPI_Get_library_version`.
    pub mpi: String,
    pub abi: String,
    /// RFC 3339, UTC.
    pub start: String,
    pub end: String,
    pub duration_s: f64,
    /// `finalized`, or the worst end of a rank with a short text after a colon.
    pub ended: String,
    pub spawned: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phases {
    pub count: u64,
    /// `None` with fewer than two phases.
    pub characteristic_time_s: Option<f64>,
    pub io_ratio: f64,
    /// The mean over ranks of the share of the run that they spent in I/O calls; of old profiles it is not known.
    #[serde(default)]
    pub io_time_ratio: Option<f64>,
    /// How sure the period is, from 0 to 1; `None` with fewer than two phases.
    #[serde(default)]
    pub confidence: Option<f64>,
    /// There are phases enough to see a period, and there is none.
    #[serde(default)]
    pub irregular: bool,
    /// Phases that are alike, the class with most phases first.
    #[serde(default)]
    pub classes: Vec<PhaseClass>,
    /// The longest pause that is still within a phase; `None` for marked phases.
    pub gap_s: Option<f64>,
    /// `learnt`, `WEIR_PHASE_GAP` or `marked`.
    pub gap_source: String,
    pub list: Vec<Phase>,
    /// Phases of which only sums are kept.
    #[serde(default)]
    pub unlisted: Unlisted,
    /// I/O outside phases: not marked where others are, or too little to be one.
    pub outside: Outside,
}

/// Phases that move about as much in the same direction; bytes and lengths are means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseClass {
    pub count: u64,
    /// `None` with fewer than two phases.
    pub period_s: Option<f64>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Without time held back.
    pub length_s: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    /// What the program called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub start_s: f64,
    pub end_s: f64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub wait_s: f64,
    pub calls: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Unlisted {
    pub count: u64,
    /// Their lengths, time held back included.
    pub length_s: f64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub wait_s: f64,
    pub calls: u64,
}

impl Unlisted {
    pub(crate) fn add(&mut self, span: &Span) {
        self.length_s += seconds(span.busy_ns());
        self.wait_s += seconds(span.wait_ns);
        for (sum, value) in [
            (&mut self.count, span.count()),
            (&mut self.bytes_read, span.bytes_read),
            (&mut self.bytes_written, span.bytes_written),
            (&mut self.calls, span.calls),
        ] {
            *sum = sum.saturating_add(value);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Outside {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub calls: u64,
}

impl From<&Span> for Outside {
    fn from(span: &Span) -> Outside {
        Outside { bytes_read: span.bytes_read, bytes_written: span.bytes_written, calls: span.calls }
    }
}

/// What happened at the gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coordination {
    /// The coordinator's policy, the latest if it changed; `None` for a job that never met one.
    pub policy: Option<String>,
    /// Requests that were held back, and for how long, summed over ranks.
    pub waits: u64,
    pub wait_s: f64,
    /// Of these, those that reached `WEIR_MAX_WAIT`.
    pub limits: u64,
    /// Those that went on because there was nobody to ask.
    pub alone: u64,
    /// Reads that asked for a turn at a storage target, and how long they waited for it, summed over ranks.
    pub turns: u64,
    pub turn_wait_s: f64,
    /// How often a node was told to wait, lost the coordinator, and went on without one.
    pub holds: u64,
    pub losses: u64,
    pub opens: u64,
    /// How often a node was let in out of turn, because those whose turn it was left the storage idle.
    #[serde(default)]
    pub backfills: u64,
    /// Why there was no coordination, in the words of the rank that said so last.
    pub note: Option<String>,
    /// `WEIR_GATE` as it was in force; `None` where no coordination was wanted.
    #[serde(default)]
    pub gate: Option<String>,
    #[serde(default)]
    pub seen: SeenByGate,
}

impl Coordination {
    pub(crate) fn add(&mut self, one: &Coordination) {
        self.policy = self.policy.take().or_else(|| one.policy.clone());
        self.note = one.note.clone().or_else(|| self.note.take());
        self.gate = self.gate.take().or_else(|| one.gate.clone());
        self.seen.add(&one.seen);
        self.wait_s += one.wait_s;
        self.turn_wait_s += one.turn_wait_s;
        for (sum, value) in [
            (&mut self.waits, one.waits),
            (&mut self.limits, one.limits),
            (&mut self.alone, one.alone),
            (&mut self.turns, one.turns),
            (&mut self.holds, one.holds),
            (&mut self.losses, one.losses),
            (&mut self.opens, one.opens),
            (&mut self.backfills, one.backfills),
        ] {
            *sum = sum.saturating_add(value);
        }
    }
}

/// What the job's processes saw of their own I/O at the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenByGate {
    /// Files on a storage that other jobs may use as well.
    pub shared_storage: bool,
    pub memory: bool,
    pub unknown_storage: bool,
    /// Requests too small to take a turn.
    pub small_requests: bool,
    /// Calls that `WEIR_GATE` lets pass.
    pub passed_calls: bool,
    /// Requests that passed the gate, held back or not.
    pub admitted: bool,
}

impl SeenByGate {
    fn add(&mut self, one: &SeenByGate) {
        self.shared_storage |= one.shared_storage;
        self.memory |= one.memory;
        self.unknown_storage |= one.unknown_storage;
        self.small_requests |= one.small_requests;
        self.passed_calls |= one.passed_calls;
        self.admitted |= one.admitted;
    }
}

/// Time inside I/O calls of the program, summed over ranks. POSIX calls beneath MPI-IO are in MPI-IO's time, and time held
/// back at a gate is in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IoTime {
    pub open_close_s: f64,
    pub read_s: f64,
    pub write_s: f64,
    pub sync_s: f64,
    /// Everything else: seek, stat, set_view, resizing and the like.
    pub other_s: f64,
}

impl IoTime {
    pub fn total_s(&self) -> f64 {
        self.open_close_s + self.read_s + self.write_s + self.sync_s + self.other_s
    }
}

/// Calls of one function on one file that returned the same error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub op: String,
    pub file: String,
    /// `ENOSPC`, or the class of an MPI error.
    pub error: String,
    /// `None` for an MPI error.
    pub errno: Option<i32>,
    /// A program that asks this way reckons with the answer.
    pub harmless: bool,
    pub count: u64,
    pub nranks: u64,
    /// Of the first of them, rank and start.
    pub rank: u64,
    pub start_s: f64,
}

/// Counters by name: whole numbers, or seconds for those with `_F_` in their name.
pub type Counters = BTreeMap<Cow<'static, str>, Value>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModuleCounters {
    pub counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Count(u64),
    Seconds(f64),
}

impl Value {
    pub fn as_f64(self) -> f64 {
        match self {
            Value::Count(count) => count as f64,
            Value::Seconds(seconds) => seconds,
        }
    }

    pub fn as_u64(self) -> u64 {
        match self {
            Value::Count(count) => count,
            Value::Seconds(seconds) => seconds as u64,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct File {
    pub name: String,
    /// How many ranks touched it; the first of them are in `ranks`.
    pub nranks: u64,
    pub ranks: Vec<u64>,
    pub naggregators: u64,
    /// The first ranks that moved its data within collective calls.
    pub aggregators: Vec<u64>,
    /// Counters that are not zero, by module.
    pub modules: BTreeMap<Cow<'static, str>, Counters>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Collectives {
    /// Blocking and split collective data calls, each rank's call counted.
    pub calls: u64,
    /// Times are sums over ranks.
    pub time_s: f64,
    pub file_time_s: f64,
    /// What is neither file time: shuffle and waiting for other ranks.
    pub rest_s: f64,
    pub aggregators: Vec<Aggregator>,
    pub list: Vec<Call>,
    #[serde(default)]
    pub exchange: Exchange,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Aggregator {
    pub rank: u64,
    pub host: String,
    pub file_bytes: u64,
    pub file_time_s: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub file: String,
    pub op: String,
    pub sequence: u64,
    pub start_s: f64,
    pub end_s: f64,
    pub bytes: u64,
    pub file_bytes: u64,
    pub max_rank_s: f64,
    pub nranks: u64,
    pub ranks: Vec<RankCall>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankCall {
    pub rank: u64,
    pub time_s: f64,
    pub file_s: f64,
    pub rest_s: f64,
}

/// What ranks and aggregators exchanged in the listed calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// Calls of which every rank's part is known.
    pub calls: u64,
    pub left_out: u64,
    pub bytes: u64,
    /// Of those, bytes that were given to aggregators by estimate.
    pub estimated_bytes: u64,
    /// `None` when too few messages were exchanged.
    pub network: Option<Network>,
    pub files: Vec<FileExchange>,
    pub slowest: Vec<CallExchange>,
}

/// What the network gave the job's own messages; `None` for what they did not show.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Network {
    pub intra_bytes_per_s: Option<f64>,
    pub inter_bytes_per_s: Option<f64>,
    pub latency_s: Option<f64>,
    pub points: u64,
    pub median_error: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileExchange {
    pub file: String,
    pub calls: u64,
    pub bytes: u64,
    pub naggregators: u64,
    pub aggregators: Vec<AggregatorShare>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallExchange {
    pub file: String,
    pub op: String,
    pub sequence: u64,
    pub start_s: f64,
    pub bytes: u64,
    pub naggregators: u64,
    pub aggregators: Vec<AggregatorShare>,
}

/// An aggregator's part in a call, or in several: bytes of its own, of other ranks on its node, of
/// ranks on other nodes; and where its time went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AggregatorShare {
    pub rank: u64,
    pub host: String,
    pub calls: u64,
    pub own_bytes: u64,
    pub intra_bytes: u64,
    pub inter_bytes: u64,
    pub file_s: f64,
    pub gate_s: f64,
    pub late_s: f64,
    pub shuffle_s: f64,
    pub predicted_s: Option<f64>,
    pub delay_s: Option<f64>,
    /// Of a single call only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rad: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Directions {
    pub read: SizeAndLatency,
    pub write: SizeAndLatency,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SizeAndLatency {
    pub size_bytes: Distribution,
    pub latency_s: Distribution,
}

/// Quantiles are as fine as the bins: an eighth. Of sizes, `min`, `max` and `mean` are exact.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Distribution {
    pub count: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p99_9: f64,
    /// Start of every bin that is not empty, and its count.
    pub bins: Vec<(f64, u64)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Slow {
    pub op: String,
    pub file: String,
    pub rank: u64,
    pub start_s: f64,
    pub duration_s: f64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    pub bin_s: f64,
    pub bytes_read: Vec<u64>,
    pub bytes_written: Vec<u64>,
}

/// How a rank ended, from harmless to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    Finalized,
    /// It left no record here: it did no I/O, or keeps its record in another `WEIR_DIR`.
    Idle,
    /// It replaced itself by another program.
    Replaced,
    Running,
    /// No end was seen, and its host cannot be asked from here.
    Unknown,
    /// Its record cannot be read, or there was no room for it.
    Damaged,
    /// A signal it could see.
    Signalled,
    /// Gone without a word: SIGKILL, or the machine.
    Killed,
    /// It exited without `MPI_Finalize`, which makes launchers kill the others.
    Exited,
    /// `MPI_Abort`.
    Aborted,
}

impl Fate {
    pub fn name(self) -> &'static str {
        match self {
            Fate::Finalized => "finalized",
            Fate::Idle => "idle",
            Fate::Replaced => "replaced",
            Fate::Exited => "exited",
            Fate::Running => "running",
            Fate::Unknown => "unknown",
            Fate::Damaged => "damaged",
            Fate::Signalled => "signalled",
            Fate::Killed => "killed",
            Fate::Aborted => "aborted",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rank {
    pub rank: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
    pub ended: Fate,
    /// Exit code, or the code given to `MPI_Abort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Cow<'static, str>>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub io_s: f64,
    /// Time it was held back at a gate or for a turn, which is not in `io_s`.
    #[serde(default)]
    pub held_back_s: f64,
    pub aggregator: bool,
    /// `None` when it forked none that moved data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Children>,
}

impl Rank {
    /// Bytes read and written, by its children too.
    pub fn moved_bytes(&self) -> [f64; 2] {
        let children = self.children.unwrap_or_default();
        [(self.bytes_read, children.bytes_read), (self.bytes_written, children.bytes_written)]
            .map(|(own, theirs)| own as f64 + theirs as f64)
    }
}

/// The processes that a rank has forked and that moved data, summed up. None of it is in the rank's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Children {
    pub count: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub io_s: f64,
}

/// What is not in the profile because a table was full, summed over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    pub files: u64,
    pub bursts: u64,
    pub phases: u64,
    pub collectives: u64,
    pub requests: u64,
    pub handles: u64,
    pub ranks: u64,
    #[serde(default)]
    pub children: u64,
}
