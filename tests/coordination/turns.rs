//! `tests/programs/turns.c`: a job whose every byte on disk is known, and which tells when it had its turn.

use crate::live::{Directory, Live};
use crate::mpi::{Program, c};
use crate::run::{Job, Ran, library};
use crate::{Place, Verdict, ensure, profile};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const PROGRAM: Program = c("turns", "tests/programs/turns.c", &[]);
pub(crate) const RANKS: usize = 2;

/// Arguments of the program.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) phases: usize,
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
    pub(crate) pause_ms: usize,
    pub(crate) compute_ms: usize,
}

/// Phases of a tenth of a second or more, nearly one after the other.
pub(crate) const USUAL: Shape = Shape { phases: 6, requests: 20, bytes: 8192, pause_ms: 5, compute_ms: 20 };

/// A job to be: `turns` under the library with a coordinator.
pub(crate) struct Turns {
    executable: PathBuf,
    pub(crate) job: Job,
    pub(crate) name: String,
    /// What the coordinator knows it by.
    pub(crate) id: String,
    pub(crate) shape: Shape,
    /// Open MPI's jobs meet in a directory otherwise, which the first to end takes away.
    scratch: Directory,
}

impl Turns {
    /// `coordinator` as in `WEIR_COORDINATOR`.
    pub(crate) fn new(place: &Place, name: &str, coordinator: &str, shape: Shape) -> Verdict<Turns> {
        let executable = place.mpi.build(&PROGRAM)?;
        let command = [executable.clone().into_os_string()].into_iter().chain(shape.arguments(name));
        let job = Job::mpi(&place.name, &place.mpi, RANKS, command);
        static MADE: AtomicU32 = AtomicU32::new(0);
        let id = format!("{name}-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        Turns { executable, job, name: name.into(), id, shape, scratch: Directory::new()? }
            .coordinated_by(coordinator)
    }

    /// The same with another launcher.
    pub(crate) fn launched_by(
        mut self,
        place: &Place,
        launcher: Vec<std::ffi::OsString>,
        coordinator: &str,
    ) -> Verdict<Turns> {
        self.job = Job::new(&place.name, launcher.into_iter().chain(self.words()));
        for (name, value) in &place.mpi.variables {
            self.job = self.job.variable(name, value);
        }
        self.coordinated_by(coordinator)
    }

    fn coordinated_by(self, coordinator: &str) -> Verdict<Turns> {
        let job = self.job.preload([library()]);
        let job = job
            .variable("WEIR_COORDINATOR", coordinator)
            .variable("WEIR_POLICY", "exclusive")
            // Whether turns are kept shows if nobody may go out of turn.
            .variable("WEIR_BACKFILL", "off")
            .variable("WEIR_FREE_BYTES", "0")
            .variable("WEIR_JOB_ID", &self.id)
            .variable("TMPDIR", self.scratch.path())
            // Files are closed at the end of a phase; nothing else ends one on a busy machine.
            .variable("WEIR_PHASE_GAP", "2s");
        Ok(Turns { job, ..self })
    }

    /// Keeps its turn in the middle of each phase until there is a file of this name.
    pub(crate) fn until(mut self, released: &std::path::Path) -> Turns {
        for mark in [released.with_extension("reached"), released.into()] {
            self.job = self.job.argument(mark);
        }
        self.variable("WEIR_PHASE_GAP", "600s")
    }

    /// The words that start one rank.
    pub(crate) fn words(&self) -> Vec<std::ffi::OsString> {
        [self.executable.clone().into_os_string()]
            .into_iter()
            .chain(self.shape.arguments(&self.name))
            .collect()
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Turns {
        self.job = self.job.variable(name, value);
        self
    }

    pub(crate) fn start(&self) -> Verdict<Live> {
        Live::start(&self.job, &self.name)
    }

    /// It has ended well: every byte is there once, and the profile is that of a job that finalised.
    pub(crate) fn ended_well(&self, ran: &Ran) -> Verdict<Value> {
        self.ended_well_with(ran, RANKS)
    }

    pub(crate) fn ended_well_with(&self, ran: &Ran, ranks: usize) -> Verdict<Value> {
        self.wrote_everything(ran, ranks)?;
        let profile = profile::only(ran, ranks)?;
        profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])?;
        Ok(profile)
    }

    /// Every byte is there once, and nothing else.
    pub(crate) fn wrote_everything(&self, ran: &Ran, ranks: usize) -> Verdict {
        let said = || format!("{}\n{}{}", self.name, ran.stdout, ran.stderr);
        ensure(ran.code == 0, || format!("code {} of {}", ran.code, said()))?;
        let data = std::fs::read(ran.files.join(format!("{}.dat", self.name)))?;
        let bytes = self.shape.phases * self.shape.requests * self.shape.bytes * ranks;
        ensure(data.len() == bytes, || format!("{} bytes instead of {bytes} by {}", data.len(), said()))?;
        let wrong = data.iter().enumerate().position(|(at, byte)| *byte != expected(at));
        ensure(wrong.is_none(), || format!("byte {wrong:?} is wrong: {}", said()))?;
        let mut records: Vec<String> = self.records(ran)?;
        records.sort();
        let all: Vec<String> = (0..self.shape.phases)
            .flat_map(|phase| (0..ranks).map(move |rank| format!("{phase:07} {rank:07}\n")))
            .collect();
        ensure(records == all, || format!("shared records {records:?} of {}", said()))
    }

    /// Runs it: it ends well, and Weir says one line, which names this.
    pub(crate) fn says_one_line(&self, named: &str) -> Verdict<Value> {
        let ran = self.start()?.end()?;
        let profile = self.ended_well(&ran)?;
        let remarks = ran.remarks();
        let is_it = remarks.len() == 1 && remarks[0].contains(named);
        ensure(is_it, || format!("{named}: Weir said {remarks:?}"))?;
        Ok(profile)
    }

    /// It was killed: what is there is right.
    pub(crate) fn left_nothing_wrong(&self, ran: &Ran) -> Verdict {
        ensure(ran.code != 0, || format!("{} was to be killed:\n{}", self.name, ran.stdout))?;
        let data = std::fs::read(ran.files.join(format!("{}.dat", self.name)))?;
        let wrong = data.iter().enumerate().position(|(at, byte)| *byte != 0 && *byte != expected(at));
        ensure(wrong.is_none(), || format!("{}: byte {wrong:?} is wrong", self.name))?;
        let mut records = self.records(ran)?;
        records.retain(|record| !record.contains('\0'));
        let many = records.len();
        records.sort();
        records.dedup();
        ensure(records.len() == many, || format!("{}: a record was written twice: {records:?}", self.name))
    }

    /// Of the shared file, if there is one.
    fn records(&self, ran: &Ran) -> Verdict<Vec<String>> {
        let text = std::fs::read(ran.files.join(format!("{}.shared", self.name))).unwrap_or_default();
        Ok(text.chunks(16).map(|record| String::from_utf8_lossy(record).into_owned()).collect())
    }
}

impl Shape {
    fn arguments(&self, name: &str) -> Vec<std::ffi::OsString> {
        let numbers = [self.phases, self.requests, self.bytes, self.pause_ms, self.compute_ms];
        [name.to_string()]
            .into_iter()
            .chain(numbers.map(|number| number.to_string()))
            .map(Into::into)
            .collect()
    }
}

/// As the program has it.
fn expected(offset: usize) -> u8 {
    (1 + offset % 251) as u8
}

/// When a job certainly had its turn, from and to in nanoseconds, for each phase: when all ranks
/// had their second block written, until the first of them came to its last.
pub(crate) fn turns(ran: &Ran) -> Vec<(u64, u64)> {
    let mut phases: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for line in ran.stdout.lines().filter_map(|line| line.strip_prefix("PHASE ")) {
        let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
        if let [_, phase, from, to] = numbers[..] {
            let turn = phases.entry(phase).or_insert((0, u64::MAX));
            *turn = (turn.0.max(from), turn.1.min(to));
        }
    }
    phases.into_values().filter(|(from, to)| from < to).collect()
}

/// Fails if two jobs had their turn at the same time; answers how many there were that one can tell.
pub(crate) fn apart(one: &Ran, other: &Ran) -> Verdict<usize> {
    let (one, other) = (turns(one), turns(other));
    for (from, to) in &one {
        let meets = other.iter().find(|(since, until)| since < to && from < until);
        ensure(meets.is_none(), || format!("{:?} and {meets:?} overlap\n{one:?}\n{other:?}", (from, to)))?;
    }
    Ok(one.len() + other.len())
}

/// A count of what happened at the gate, as the profile has it.
pub(crate) fn gate(profile: &Value, what: &str) -> u64 {
    profile["coordination"][what].as_u64().unwrap_or_else(|| panic!("no {what} in the profile"))
}
