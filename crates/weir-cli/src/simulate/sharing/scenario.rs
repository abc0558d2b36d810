//! The scenario file of `weir simulate sharing`, checked: what is wrong is said with the field's name.

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use weir_engine::engine::JobInfo;
use weir_engine::sim::{Job, Phase, Program, SECOND_NS};

/// What keeps a scenario within memory and patience.
const MAX_JOBS: usize = 100_000;
const MAX_PHASES: u64 = 10_000_000;
/// All jobs one after the other, in seconds: nanoseconds still fit 64 bits.
const MAX_TOTAL_S: f64 = 1e10;

pub(super) struct Scenario {
    pub(super) names: Vec<String>,
    pub(super) jobs: Vec<Job>,
    pub(super) window_ns: Option<(u64, u64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    bandwidth: Option<Value>,
    jobs: Jobs,
    window: Option<Value>,
    noise: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawJob {
    name: Option<String>,
    w_iter: Option<Value>,
    nodes: Option<Value>,
    cap: Option<Value>,
    release: Option<Value>,
    phases: Option<Vec<(Value, Value)>>,
    compute: Option<Value>,
    io: Option<Value>,
    bytes: Option<Value>,
    iterations: Option<Value>,
}

/// A list that is refused as soon as it is too long, before the rest of it is read.
struct Jobs(Vec<RawJob>);

impl<'de> Deserialize<'de> for Jobs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounded;
        impl<'de> Visitor<'de> for Bounded {
            type Value = Jobs;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of jobs in jobs")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Jobs, A::Error> {
                let mut jobs = Vec::new();
                while let Some(job) = list.next_element()? {
                    jobs.push(job);
                    if jobs.len() > MAX_JOBS {
                        return Err(de::Error::custom(format!("jobs: at most {MAX_JOBS} jobs")));
                    }
                }
                Ok(Jobs(jobs))
            }
        }
        deserializer.deserialize_seq(Bounded)
    }
}

pub(super) fn parse(text: &str, seed: u64) -> Result<Scenario, String> {
    let raw: RawScenario =
        serde_json::from_str(text).map_err(|e| format!("{e}{}", nearest_field(text, &e)))?;
    if raw.jobs.0.is_empty() {
        return Err("jobs: there must be at least one".into());
    }
    let bandwidth = raw.bandwidth.as_ref().map_or(Ok(1.0), |value| positive(value, "bandwidth"))?;
    let noise = raw.noise.as_ref().map_or(Ok(0.0), |value| within(value, "noise", 0.0, 1.0))?;
    let mut scenario =
        Scenario { names: Vec::new(), jobs: Vec::new(), window_ns: window(raw.window.as_ref())? };
    let (mut phases, mut total_s) = (0, 0.0);
    for (index, raw_job) in raw.jobs.0.into_iter().enumerate() {
        let field = |name: &str| format!("jobs[{index}].{name}");
        let reader = JobReader { raw: &raw_job, bandwidth, field: &field };
        let job = reader.job(noise, seed.wrapping_add(index as u64))?;
        let (job_phases, length_s) = extent(&job);
        phases += job_phases;
        total_s += length_s;
        if phases > MAX_PHASES {
            return Err(format!("{}: more than {MAX_PHASES} phases in all", field("iterations")));
        }
        if total_s > MAX_TOTAL_S {
            return Err(format!(
                "{}: all jobs together are longer than {MAX_TOTAL_S:e} seconds",
                field("phases")
            ));
        }
        scenario.jobs.push(job);
        scenario.names.push(raw_job.name.unwrap_or_else(|| index.to_string()));
    }
    Ok(scenario)
}

/// One job's fields; `field` gives their names in full.
struct JobReader<'a> {
    raw: &'a RawJob,
    bandwidth: f64,
    field: &'a dyn Fn(&str) -> String,
}

impl JobReader<'_> {
    fn job(&self, noise: f64, seed: u64) -> Result<Job, String> {
        let raw = self.raw;
        let cap = match &raw.cap {
            Some(value) => (positive(value, &(self.field)("cap"))? / self.bandwidth).min(1.0),
            None => 1.0,
        };
        let w_iter_ns = match &raw.w_iter {
            Some(value) => Some(nanoseconds(positive(value, &(self.field)("w_iter"))?)),
            None => None,
        };
        let nodes = raw.nodes.as_ref().map_or(Ok(1), |value| count(value, &(self.field)("nodes")))?;
        let release_ns =
            raw.release.as_ref().map_or(Ok(0), |value| time_ns(value, &(self.field)("release")))?;
        let program = match &raw.phases {
            Some(phases) => self.listed(phases, cap)?,
            None => self.iterations(cap, noise, seed)?,
        };
        let info = JobInfo { w_iter_ns, cap: Some(cap), nodes };
        Ok(Job { info, cap, release_ns, program })
    }

    fn listed(&self, phases: &[(Value, Value)], cap: f64) -> Result<Program, String> {
        let superfluous = [
            ("compute", &self.raw.compute),
            ("io", &self.raw.io),
            ("bytes", &self.raw.bytes),
            ("iterations", &self.raw.iterations),
        ];
        if let Some((name, _)) = superfluous.iter().find(|(_, value)| value.is_some()) {
            return Err(format!("{}: not together with phases", (self.field)(name)));
        }
        let phase = |(index, (kind, amount)): (usize, &(Value, Value))| {
            let field = (self.field)(&format!("phases[{index}]"));
            match kind.as_str() {
                Some("compute") => Ok(Phase::Compute { length_ns: time_ns(amount, &field)? }),
                Some("io") => Ok(Phase::Io { volume_ns: self.io_ns(amount, &field, cap)? }),
                Some("bytes") => Ok(Phase::Io { volume_ns: self.bytes_ns(amount, &field)? }),
                _ => Err(format!("{field}: a phase is \"compute\", \"io\" or \"bytes\", not {kind}")),
            }
        };
        let phases: Result<Vec<Phase>, String> = phases.iter().enumerate().map(phase).collect();
        Ok(Program::Listed(phases?))
    }

    fn iterations(&self, cap: f64, noise: f64, seed: u64) -> Result<Program, String> {
        let required = |value: &Option<Value>, name: &str| match value {
            Some(value) => Ok(value.clone()),
            None => Err(format!("{}: missing (or give phases)", (self.field)(name))),
        };
        let compute = required(&self.raw.compute, "compute")?;
        let compute_ns = time_ns(&compute, &(self.field)("compute"))?;
        let volume_ns = match (&self.raw.io, &self.raw.bytes) {
            (Some(_), Some(_)) => return Err(format!("{}: not together with io", (self.field)("bytes"))),
            (None, Some(bytes)) => self.bytes_ns(bytes, &(self.field)("bytes"))?,
            (io, None) => self.io_ns(&required(io, "io")?, &(self.field)("io"), cap)?,
        };
        let count = count(&required(&self.raw.iterations, "iterations")?, &(self.field)("iterations"))?;
        Ok(Program::Iterations { compute_ns, volume_ns, count, noise, seed })
    }

    /// A length in isolation: a job that can use a part of the bandwidth moves that part of it.
    fn io_ns(&self, value: &Value, field: &str, cap: f64) -> Result<u64, String> {
        Ok((time_ns(value, field)? as f64 * cap).round() as u64)
    }

    fn bytes_ns(&self, value: &Value, field: &str) -> Result<u64, String> {
        let length_s = within(value, field, 0.0, f64::MAX)? / self.bandwidth;
        if length_s > MAX_TOTAL_S {
            return Err(format!("{field}: takes longer than {MAX_TOTAL_S:e} seconds at this bandwidth"));
        }
        Ok(nanoseconds(length_s))
    }
}

fn window(value: Option<&Value>) -> Result<Option<(u64, u64)>, String> {
    let Some(value) = value else { return Ok(None) };
    match value.as_array().map(Vec::as_slice) {
        Some([begin, end]) => {
            let (begin, end) = (time_ns(begin, "window[0]")?, time_ns(end, "window[1]")?);
            if begin < end { Ok(Some((begin, end))) } else { Err("window: ends before it begins".into()) }
        }
        _ => Err(format!("window: must be [begin, end] in seconds, not {value}")),
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

fn within(value: &Value, field: &str, low: f64, high: f64) -> Result<f64, String> {
    let number = value.as_f64().ok_or_else(|| format!("{field}: must be a number, not {value}"))?;
    if !number.is_finite() || number < low || number > high {
        let range =
            if high == f64::MAX { format!("at least {low}") } else { format!("between {low} and {high}") };
        return Err(format!("{field}: must be {range}, not {value}"));
    }
    Ok(number)
}

fn positive(value: &Value, field: &str) -> Result<f64, String> {
    let number = within(value, field, 0.0, f64::MAX)?;
    if number > 0.0 { Ok(number) } else { Err(format!("{field}: must be above 0")) }
}

fn count(value: &Value, field: &str) -> Result<u64, String> {
    let whole = value.as_u64().filter(|&number| number > 0);
    whole.ok_or_else(|| format!("{field}: must be a whole number above 0, not {value}"))
}

fn time_ns(value: &Value, field: &str) -> Result<u64, String> {
    Ok(nanoseconds(within(value, field, 0.0, 1e9)?))
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * SECOND_NS as f64).round() as u64
}

/// JSON that is not JSON (a bare NaN, say) is reported by line and column; the field helps more.
fn nearest_field(text: &str, error: &serde_json::Error) -> String {
    let line_start =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let end = line_start.saturating_add(error.column()).min(text.len());
    let before = &text.as_bytes()[..end];
    let Some(colon) = before.iter().rposition(|&byte| byte == b':') else { return String::new() };
    let mut quotes = before[..colon].rsplit(|&byte| byte == b'"');
    let key = quotes.nth(1).and_then(|key| std::str::from_utf8(key).ok());
    key.map_or(String::new(), |key| format!(", at field {key:?}"))
}
