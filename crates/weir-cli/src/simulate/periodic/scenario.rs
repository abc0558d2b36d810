//! Reading a `periodic` scenario. The format is in `docs/scenarios/periodic.schema.json`.

use serde_json::{Map, Value};
use weir_engine::sharing::periodic::{Application, Objective, Search, shortest_period_s};

const FIELDS: [&str; 6] = ["bandwidth", "applications", "period", "objective", "k_prime", "epsilon"];
const APPLICATION_FIELDS: [&str; 6] = ["name", "nodes", "cap", "volume", "compute", "mean"];
const MOST_APPLICATIONS: usize = 1000;
const MOST_INSTANCES: usize = 1_000_000;
/// Instances that a period may hold.
const MOST_IN_A_PERIOD: f64 = 200_000.0;
/// Thirty years: beyond that a time is a mistake.
const MOST_SECONDS: f64 = 1e9;

pub(super) struct Scenario {
    pub(super) bandwidth: f64,
    pub(super) names: Vec<String>,
    /// With the mean computing times, which are what is planned with.
    pub(super) applications: Vec<Application>,
    /// The real computing times: `W_i^k`.
    pub(super) compute_s: Vec<Vec<f64>>,
    pub(super) search: Search,
}

impl Scenario {
    pub(super) fn parse(text: &str) -> Result<Scenario, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
        let fields = object(&value, "the scenario", &FIELDS)?;
        let bandwidth = positive(fields, "bandwidth", "bandwidth")?.ok_or("bandwidth: missing")?;
        let listed = fields.get("applications").ok_or("applications: missing")?;
        let listed = listed.as_array().ok_or("applications: not a list")?;
        if listed.is_empty() || listed.len() > MOST_APPLICATIONS {
            return Err(format!("applications: {}, must be 1 to {MOST_APPLICATIONS}", listed.len()));
        }
        let mut scenario = Scenario {
            bandwidth,
            names: Vec::new(),
            applications: Vec::new(),
            compute_s: Vec::new(),
            search: Search::BEST,
        };
        for (index, value) in listed.iter().enumerate() {
            scenario.add_application(index, value)?;
        }
        if scenario.compute_s.iter().map(Vec::len).sum::<usize>() > MOST_INSTANCES {
            return Err(format!("applications: more than {MOST_INSTANCES} computing times in all"));
        }
        scenario.search = search(fields, &scenario.applications)?;
        Ok(scenario)
    }

    fn add_application(&mut self, index: usize, value: &Value) -> Result<(), String> {
        let at = format!("applications[{index}]");
        let fields = object(value, &at, &APPLICATION_FIELDS)?;
        let name = match fields.get("name") {
            None => format!("A{}", index + 1),
            Some(name) => name.as_str().ok_or(format!("{at}.name: not a text"))?.to_owned(),
        };
        let nodes = positive(fields, "nodes", &format!("{at}.nodes"))?.unwrap_or(1.0);
        if nodes.fract() != 0.0 || nodes > 1e9 {
            return Err(format!("{at}.nodes: {nodes} is not a whole number up to 10^9"));
        }
        let cap =
            positive(fields, "cap", &format!("{at}.cap"))?.unwrap_or(self.bandwidth).min(self.bandwidth);
        let volume =
            positive(fields, "volume", &format!("{at}.volume"))?.ok_or(format!("{at}.volume: missing"))?;
        if !(1e-6..=MOST_SECONDS).contains(&(volume / cap)) {
            return Err(format!("{at}.volume: takes {} s alone, must be 10^-6 to 10^9", volume / cap));
        }
        let mean = fields.get("mean").map(|mean| seconds(mean, &format!("{at}.mean"))).transpose()?;
        let compute_s = compute(fields.get("compute"), mean, &at)?;
        let work_s = mean.unwrap_or(compute_s.iter().sum::<f64>() / compute_s.len() as f64);
        self.names.push(name);
        self.applications.push(Application { nodes, cap, volume, work_s });
        self.compute_s.push(compute_s);
        Ok(())
    }
}

fn object<'a>(value: &'a Value, at: &str, known: &[&str]) -> Result<&'a Map<String, Value>, String> {
    let fields = value.as_object().ok_or(format!("{at}: not a JSON object"))?;
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(stranger) => Err(format!("{at}: no field {stranger:?}; there are {}", known.join(", "))),
        None => Ok(fields),
    }
}

fn positive(fields: &Map<String, Value>, name: &str, at: &str) -> Result<Option<f64>, String> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    match value.as_f64() {
        Some(number) if number > 0.0 && number <= 1e30 => Ok(Some(number)),
        _ => Err(format!("{at}: {value} is not a number above zero")),
    }
}

fn seconds(value: &Value, at: &str) -> Result<f64, String> {
    match value.as_f64() {
        Some(number) if (0.0..=MOST_SECONDS).contains(&number) => Ok(number),
        _ => Err(format!("{at}: {value} is not a time of 0 to 10^9 seconds")),
    }
}

/// The computing times; one instance of mean length when none are listed.
fn compute(value: Option<&Value>, mean: Option<f64>, at: &str) -> Result<Vec<f64>, String> {
    let Some(value) = value else {
        return Ok(vec![mean.ok_or(format!("{at}.compute: missing, and no mean either"))?]);
    };
    let listed = value.as_array().ok_or(format!("{at}.compute: not a list"))?;
    if listed.is_empty() {
        return Err(format!("{at}.compute: empty"));
    }
    listed.iter().enumerate().map(|(k, value)| seconds(value, &format!("{at}.compute[{k}]"))).collect()
}

fn search(fields: &Map<String, Value>, applications: &[Application]) -> Result<Search, String> {
    let objective = match fields.get("objective").map(|value| (value.as_str(), value)) {
        None | Some((Some("both"), _)) => Objective::Both,
        Some((Some("sys_efficiency"), _)) => Objective::SysEfficiency,
        Some((Some("dilation"), _)) => Objective::Dilation,
        Some((_, value)) => {
            return Err(format!("objective: {value} is none of \"both\", \"sys_efficiency\", \"dilation\""));
        }
    };
    let in_range = |name: &str, default: f64, lowest: f64, highest: f64| match positive(fields, name, name)? {
        None => Ok(default),
        Some(number) if (lowest..=highest).contains(&number) => Ok(number),
        Some(number) => Err(format!("{name}: {number} is not between {lowest} and {highest}")),
    };
    let shortest_s = shortest_period_s(applications);
    let period_s = positive(fields, "period", "period")?;
    if let Some(period_s) = period_s.filter(|&period_s| period_s < shortest_s || period_s > MOST_SECONDS) {
        return Err(format!("period: {period_s} s, must be {shortest_s} s (the longest instance) to 10^9 s"));
    }
    let held: f64 = applications.iter().map(|a| period_s.unwrap_or(shortest_s) / a.alone_s()).sum();
    if held > MOST_IN_A_PERIOD {
        let field = if period_s.is_some() { "period" } else { "applications" };
        return Err(format!(
            "{field}: one period would hold {held:.0} instances, must be {MOST_IN_A_PERIOD} or fewer"
        ));
    }
    Ok(Search {
        objective,
        period_s,
        longest: in_range("k_prime", Search::BEST.longest, 1.0, 100.0)?,
        epsilon: in_range("epsilon", Search::BEST.epsilon, 1e-4, 1.0)?,
        ..Search::BEST
    })
}
