//! The scenario file of `weir simulate sharing`, checked: what is wrong is said with the field's name.

use crate::simulate::fields::{self, Fields, count, expected, list, number_in, positive, seconds, text};
use serde_json::Value;
use weir_engine::engine::JobInfo;
use weir_engine::sim::{Job, Phase, Program, SECOND_NS};

/// What keeps a scenario within memory and patience.
const MAX_JOBS: usize = 100_000;
const MAX_PHASES: u64 = 10_000_000;
/// All jobs one after the other, in seconds: nanoseconds still fit 63 bits, as the engine counts them.
const MAX_TOTAL_S: f64 = 9e9;

const FIELDS: [&str; 5] = ["bandwidth", "jobs", "window", "noise", "serial"];
const JOB_FIELDS: [&str; 13] = [
    "name",
    "w_iter",
    "nodes",
    "cap",
    "release",
    "phases",
    "compute",
    "io",
    "bytes",
    "iterations",
    "ranks",
    "request",
    "pause",
];

pub(super) struct Scenario {
    pub(super) names: Vec<String>,
    pub(super) jobs: Vec<Job>,
    pub(super) window_ns: Option<(u64, u64)>,
    /// Bytes per second, if it was given.
    pub(super) bandwidth: Option<f64>,
    /// For live simulations: whether the storage serves one request after the other.
    pub(super) is_serial: bool,
    /// For live simulations, by job.
    pub(super) requests: Vec<Requests>,
}

/// How a job moves the bytes of a phase.
#[derive(Clone, Copy)]
pub(super) struct Requests {
    pub(super) ranks: u32,
    pub(super) bytes: u64,
    pub(super) pause_ns: Option<u64>,
}

const DEFAULT_REQUEST_BYTES: u64 = 4 << 20;
const MAX_RANKS: u64 = 1024;

pub(super) fn parse(scenario: &str, seed: u64) -> Result<Scenario, String> {
    let value = fields::parse(scenario, &[("jobs", MAX_JOBS)])?;
    let top = Fields::of_scenario(&value, &FIELDS)?;
    let given = top.read_if_given("bandwidth", positive)?;
    let bandwidth = given.unwrap_or(1.0);
    let is_serial = top.read_if_given("serial", truth)?.unwrap_or(true);
    let noise = top.read_if_given("noise", |value, path| number_in(value, path, 0.0..=1.0))?.unwrap_or(0.0);
    let window_ns = top.read_if_given("window", window)?;
    let mut scenario = Scenario {
        names: Vec::new(),
        jobs: Vec::new(),
        window_ns,
        bandwidth: given,
        is_serial,
        requests: Vec::new(),
    };
    let (mut phases, mut total_s) = (0, 0.0);
    for (index, value) in top.read("jobs", fields::list)?.iter().enumerate() {
        let fields = Fields::of(value, &format!("jobs[{index}]"), &JOB_FIELDS)?;
        let reader = JobReader { fields: &fields, bandwidth };
        let job = reader.job(noise, seed.wrapping_add(index as u64))?;
        let (job_phases, length_s) = extent(&job);
        phases += job_phases;
        total_s += length_s;
        if phases > MAX_PHASES {
            return Err(format!("{}: more than {MAX_PHASES} phases in all", fields.path("iterations")));
        }
        if total_s > MAX_TOTAL_S {
            let path = fields.path("phases");
            return Err(format!("{path}: all jobs together are longer than {MAX_TOTAL_S:e} seconds"));
        }
        scenario.jobs.push(job);
        scenario.requests.push(reader.requests()?);
        let name = fields.read_if_given("name", text)?;
        scenario.names.push(name.map_or_else(|| index.to_string(), str::to_owned));
    }
    Ok(scenario)
}

/// One job's fields.
struct JobReader<'a> {
    fields: &'a Fields<'a>,
    bandwidth: f64,
}

impl JobReader<'_> {
    fn job(&self, noise: f64, seed: u64) -> Result<Job, String> {
        let fields = self.fields;
        let cap = fields.read_if_given("cap", positive)?.map_or(1.0, |cap| (cap / self.bandwidth).min(1.0));
        let w_iter_ns = fields.read_if_given("w_iter", positive)?.map(nanoseconds);
        let nodes = fields.read_if_given("nodes", count)?.unwrap_or(1);
        let release_ns = fields.read_if_given("release", time_ns)?.unwrap_or(0);
        let program = match fields.read_if_given("phases", list)? {
            Some(phases) => self.listed(phases, cap)?,
            None => self.iterations(cap, noise, seed)?,
        };
        let info = JobInfo { w_iter_ns, cap: Some(cap), nodes, ..JobInfo::default() };
        Ok(Job { info, cap, release_ns, program })
    }

    fn requests(&self) -> Result<Requests, String> {
        let fields = self.fields;
        let ranks = fields.read_if_given("ranks", count)?.unwrap_or(1);
        if ranks > MAX_RANKS {
            return Err(format!("{}: more than {MAX_RANKS}", fields.path("ranks")));
        }
        let bytes = fields.read_if_given("request", count)?.unwrap_or(DEFAULT_REQUEST_BYTES);
        Ok(Requests { ranks: ranks as u32, bytes, pause_ns: fields.read_if_given("pause", time_ns)? })
    }

    fn listed(&self, phases: &[Value], cap: f64) -> Result<Program, String> {
        let mut superfluous = ["compute", "io", "bytes", "iterations"].into_iter();
        if let Some(name) = superfluous.find(|name| self.fields.get(name).is_some()) {
            return Err(format!("{}: not together with phases", self.fields.path(name)));
        }
        let phase = |(index, phase): (usize, &Value)| {
            let path = self.fields.path(&format!("phases[{index}]"));
            match phase.as_array().map(Vec::as_slice) {
                Some([kind, amount]) if kind == "compute" => {
                    Ok(Phase::Compute { length_ns: time_ns(amount, &path)? })
                }
                Some([kind, amount]) if kind == "io" => {
                    Ok(Phase::Io { volume_ns: io_ns(amount, &path, cap)? })
                }
                Some([kind, amount]) if kind == "bytes" => {
                    Ok(Phase::Io { volume_ns: self.bytes_ns(amount, &path)? })
                }
                _ => Err(expected(
                    &path,
                    r#"["compute", SECONDS], ["io", SECONDS] or ["bytes", BYTES]"#,
                    phase,
                )),
            }
        };
        let phases: Result<Vec<Phase>, String> = phases.iter().enumerate().map(phase).collect();
        Ok(Program::Listed(phases?))
    }

    fn iterations(&self, cap: f64, noise: f64, seed: u64) -> Result<Program, String> {
        let fields = self.fields;
        let missing = |name: &str| {
            let path = fields.path(name);
            format!(r#"{path}: missing; a job has "compute", "io" and "iterations", or "phases""#)
        };
        let compute_ns = fields.read_if_given("compute", time_ns)?.ok_or_else(|| missing("compute"))?;
        let io_ns = fields.read_if_given("io", |value, path| io_ns(value, path, cap))?;
        let bytes_ns = fields.read_if_given("bytes", |value, path| self.bytes_ns(value, path))?;
        let volume_ns = match (io_ns, bytes_ns) {
            (Some(_), Some(_)) => return Err(format!("{}: not together with io", fields.path("bytes"))),
            (io_ns, bytes_ns) => io_ns.or(bytes_ns).ok_or_else(|| missing("io"))?,
        };
        let count = fields.read_if_given("iterations", count)?.ok_or_else(|| missing("iterations"))?;
        Ok(Program::Iterations { compute_ns, volume_ns, count, noise, seed })
    }

    fn bytes_ns(&self, value: &Value, path: &str) -> Result<u64, String> {
        let length_s = number_in(value, path, 0.0..=f64::MAX)? / self.bandwidth;
        if length_s > MAX_TOTAL_S {
            return Err(format!("{path}: takes longer than {MAX_TOTAL_S:e} seconds at this bandwidth"));
        }
        Ok(nanoseconds(length_s))
    }
}

fn truth(value: &Value, path: &str) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| expected(path, "true or false", value))
}

/// A length in isolation: a job that can use a part of the bandwidth moves that part of it.
fn io_ns(value: &Value, path: &str, cap: f64) -> Result<u64, String> {
    Ok((time_ns(value, path)? as f64 * cap).round() as u64)
}

fn time_ns(value: &Value, path: &str) -> Result<u64, String> {
    Ok(nanoseconds(seconds(value, path)?))
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * SECOND_NS as f64).round() as u64
}

fn window(value: &Value, path: &str) -> Result<(u64, u64), String> {
    match value.as_array().map(Vec::as_slice) {
        Some([begin, end]) => {
            let begin_ns = time_ns(begin, &format!("{path}[0]"))?;
            let end_ns = time_ns(end, &format!("{path}[1]"))?;
            if begin_ns < end_ns {
                Ok((begin_ns, end_ns))
            } else {
                Err(format!("{path}: ends before it begins"))
            }
        }
        _ => Err(expected(path, "a list of two, begin and end in seconds, such as [1000, 9000]", value)),
    }
}

/// The number of phases, and their length in seconds at full bandwidth.
fn extent(job: &Job) -> (u64, f64) {
    let (phases, length_ns) = match &job.program {
        Program::Listed(phases) => {
            let length = |phase: &Phase| match *phase {
                Phase::Compute { length_ns } => length_ns as f64,
                Phase::Io { volume_ns } => volume_ns as f64 / job.cap,
            };
            (phases.len() as u64, phases.iter().map(length).sum::<f64>())
        }
        Program::Iterations { compute_ns, volume_ns, count, noise, .. } => {
            let one_ns = *compute_ns as f64 + *volume_ns as f64 / job.cap;
            (count.saturating_mul(2), one_ns * (1.0 + noise) * *count as f64)
        }
    };
    (phases, (length_ns + job.release_ns as f64) / SECOND_NS as f64)
}
