//! `weir simulate requests`: single requests at one device, in the order of each scheduling algorithm.
//! The format is in `docs/scenarios/requests.schema.json`.

use super::fields::{self, Fields, count, expected, list, positive, seconds, text, whole, word};
use super::{Answer, Request as Command};
use crate::train;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use weir_engine::requests::select::{Inputs, Selector};
use weir_engine::requests::{
    Algorithm, Device, Operation, Outlook, Request, Run, Scheduler, Settings, simulate as serve,
};

const FIELDS: [&str; 8] = [
    "requests",
    "bandwidth",
    "seq_to_random",
    "cost_per_request",
    "in_flight",
    "quantum",
    "waiting_time",
    "stripe_size",
];
const OPERATIONS: [(&str, Operation); 2] = [("read", Operation::Read), ("write", Operation::Write)];
const MAX_REQUESTS: usize = 100_000;
/// Dispatches listed for a person; `--json` has them all.
const LISTED_DISPATCHES: usize = 20;

struct Scenario {
    files: Vec<String>,
    /// In order of arrival.
    arrivals: Vec<Arrival>,
    device: Device,
    in_flight: usize,
    settings: Settings,
}

struct Arrival {
    /// Its place in the scenario.
    index: usize,
    time: f64,
    request: Request,
}

#[derive(Clone, Copy)]
enum Policy {
    One(Algorithm),
    Auto,
}

impl Policy {
    fn all() -> Vec<Policy> {
        Algorithm::ALL.into_iter().map(Policy::One).chain([Policy::Auto]).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Policy::One(algorithm) => algorithm.name(),
            Policy::Auto => "auto",
        }
    }
}

/// What one policy made of the scenario.
struct Served {
    policy: Policy,
    /// The one in use at the end, for `auto`.
    algorithm: Algorithm,
    run: Run,
}

pub(super) fn simulate(command: &Command) -> Result<Answer, String> {
    let policies = chosen(command.policies.as_deref())?;
    let scenario = Scenario::parse(command.scenario)?;
    let selector = match command.train {
        Some(path) => Selector::learn(&train::read(path)?, Inputs::Live),
        None => Selector::of_the_paper(),
    };
    let served: Vec<Served> = policies.into_iter().map(|policy| scenario.serve(policy, &selector)).collect();
    Ok(Answer { json: to_json(&scenario, &served), text: to_text(&scenario, &served) })
}

fn chosen(names: Option<&[&str]>) -> Result<Vec<Policy>, String> {
    let Some(names) = names else { return Ok(Policy::all()) };
    let find = |name: &&str| {
        let known = || Policy::all().into_iter().map(Policy::name).collect::<Vec<_>>().join(", ");
        Policy::all()
            .into_iter()
            .find(|policy| policy.name() == *name)
            .ok_or_else(|| format!("policy: there is no \"{name}\"; there are {}", known()))
    };
    names.iter().map(find).collect()
}

impl Scenario {
    fn parse(text: &str) -> Result<Scenario, String> {
        let value = fields::parse(text, &[("requests", MAX_REQUESTS)])?;
        let fields = Fields::of_scenario(&value, &FIELDS)?;
        let (files, arrivals) = arrivals(&fields)?;
        let (read_ratio, write_ratio) = fields.read("seq_to_random", ratios)?;
        let device = Device {
            bandwidth_bytes_s: fields.read("bandwidth", positive)?,
            read_ratio,
            write_ratio,
            cost_per_request_s: fields.read("cost_per_request", seconds)?,
        };
        let defaults = Settings::default();
        let settings = Settings {
            quantum_bytes: fields.read_if_given("quantum", count)?.unwrap_or(defaults.quantum_bytes),
            stripe_bytes: fields.read_if_given("stripe_size", count)?.unwrap_or(defaults.stripe_bytes),
            waiting_ns: fields
                .read_if_given("waiting_time", seconds)?
                .map_or(defaults.waiting_ns, |seconds| (seconds * 1e9).round() as u64),
            ..defaults
        };
        let in_flight = fields.read_if_given("in_flight", count)?.unwrap_or(1);
        let in_flight = usize::try_from(in_flight).unwrap_or(usize::MAX);
        refuse_eternity(&device, &arrivals)?;
        Ok(Scenario { files, arrivals, device, in_flight, settings })
    }

    fn serve(&self, policy: Policy, selector: &Selector) -> Served {
        let mut scheduler = match policy {
            Policy::One(algorithm) => Scheduler::new(algorithm, self.settings),
            Policy::Auto => Scheduler::auto(selector.clone(), self.device, self.settings),
        };
        let mut arrivals: VecDeque<(f64, Request)> =
            self.arrivals.iter().map(|arrival| (arrival.time, arrival.request)).collect();
        let outlook = Outlook::SeesBlockedClients;
        let run = serve(&mut scheduler, &self.device, &mut arrivals, self.in_flight, outlook);
        Served { policy, algorithm: scheduler.algorithm(), run }
    }

    /// A request's place in the scenario, from its number in order of arrival.
    fn index(&self, id: u64) -> usize {
        usize::try_from(id).ok().and_then(|id| self.arrivals.get(id)).map_or(0, |arrival| arrival.index)
    }
}

/// The requests in order of arrival, and the names of their files in order of first mention.
fn arrivals(fields: &Fields) -> Result<(Vec<String>, Vec<Arrival>), String> {
    let rows = fields.read("requests", list)?;
    let (mut files, mut numbers) = (Vec::new(), HashMap::new());
    let mut arrivals = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        let row = Row::new(index, row)?;
        let name = row.file()?;
        let file = *numbers.entry(name).or_insert_with(|| {
            files.push(name.to_owned());
            files.len() as u64 - 1
        });
        let (offset, bytes) = (row.whole(2, "offset", 0)?, row.whole(3, "bytes", 1)?);
        if offset.checked_add(bytes).is_none() {
            return Err(format!("{}: offset and bytes together exceed 64 bits", row.name(3, "bytes")));
        }
        let operation = word(&row.fields[1], &row.name(1, "operation"), &OPERATIONS)?;
        let request = Request { file, operation, offset, bytes };
        arrivals.push(Arrival { index, time: row.arrival()?, request });
    }
    arrivals.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.index.cmp(&b.index)));
    Ok((files, arrivals))
}

/// `[file, operation, offset, bytes]`, and perhaps the time of arrival.
struct Row<'a> {
    index: usize,
    fields: &'a [Value],
}

impl<'a> Row<'a> {
    fn new(index: usize, row: &'a Value) -> Result<Self, String> {
        match row.as_array() {
            Some(fields) if fields.len() == 4 || fields.len() == 5 => Ok(Row { index, fields }),
            _ => Err(expected(
                &format!("requests[{index}]"),
                r#"[file, operation, offset, bytes], such as ["A", "read", 0, 8192], or have a time of arrival too"#,
                row,
            )),
        }
    }

    fn name(&self, place: usize, meaning: &str) -> String {
        format!("requests[{}][{place}] ({meaning})", self.index)
    }

    fn file(&self) -> Result<&'a str, String> {
        text(&self.fields[0], &self.name(0, "file"))
    }

    fn whole(&self, place: usize, meaning: &str, least: u64) -> Result<u64, String> {
        whole(&self.fields[place], &self.name(place, meaning), least)
    }

    fn arrival(&self) -> Result<f64, String> {
        self.fields.get(4).map_or(Ok(0.0), |arrival| seconds(arrival, &self.name(4, "arrival")))
    }
}

/// Beyond this many seconds sums of times lose the milliseconds.
const ETERNITY_S: f64 = 1e15;

fn refuse_eternity(device: &Device, arrivals: &[Arrival]) -> Result<(), String> {
    let bytes: f64 = arrivals.iter().map(|arrival| arrival.request.bytes as f64).sum();
    let slowest = device.read_ratio.max(device.write_ratio).max(1.0) / device.bandwidth_bytes_s;
    if bytes * slowest > ETERNITY_S {
        return Err(format!("bandwidth: too low, serving all requests may take {:e} s", bytes * slowest));
    }
    Ok(())
}

/// One ratio for both operations, or one each.
fn ratios(value: &Value, path: &str) -> Result<(f64, f64), String> {
    if !value.is_object() {
        return positive(value, path).map(|ratio| (ratio, ratio));
    }
    let each = Fields::of(value, path, &["read", "write"])?;
    Ok((each.read("read", positive)?, each.read("write", positive)?))
}

fn to_json(scenario: &Scenario, served: &[Served]) -> Value {
    let policies: Map<String, Value> = served
        .iter()
        .map(|Served { policy, algorithm, run }| {
            let order: Vec<usize> =
                run.services.iter().flat_map(|s| s.request.ids()).map(|id| scenario.index(id)).collect();
            let dispatches: Vec<Value> = run
                .services
                .iter()
                .map(|service| {
                    let request = &service.request;
                    json!({
                        "file": scenario.files[request.file as usize],
                        "operation": request.operation.name(),
                        "offset": request.offset,
                        "bytes": request.bytes,
                        "requests": request.ids().map(|id| scenario.index(id)).collect::<Vec<_>>(),
                        "start": service.start,
                        "finish": service.finish,
                    })
                })
                .collect();
            let mut answer = json!({ "makespan": run.makespan, "order": order, "dispatches": dispatches });
            if let Policy::Auto = policy {
                answer["algorithm"] = json!(algorithm.name());
            }
            (policy.name().to_owned(), answer)
        })
        .collect();
    json!({ "policies": policies })
}

fn to_text(scenario: &Scenario, served: &[Served]) -> String {
    let mut text = String::new();
    for Served { policy, algorithm, run } in served {
        let (name, dispatches) = (policy.name(), run.services.len());
        let chose =
            if let Policy::Auto = policy { format!(" (chose {})", algorithm.name()) } else { String::new() };
        let _ = writeln!(text, "{name}{chose}: makespan {:.6} s, {dispatches} dispatches", run.makespan);
        for service in run.services.iter().take(LISTED_DISPATCHES) {
            let request = &service.request;
            let (file, operation) = (&scenario.files[request.file as usize], request.operation.name());
            let requests: Vec<String> = request.ids().map(|id| scenario.index(id).to_string()).collect();
            let _ = writeln!(
                text,
                "  {:.6}  {operation} {file} {}+{}  requests {}",
                service.start,
                request.offset,
                request.bytes,
                requests.join(" "),
            );
        }
        if dispatches > LISTED_DISPATCHES {
            let _ = writeln!(text, "  … {} more", dispatches - LISTED_DISPATCHES);
        }
    }
    text
}
