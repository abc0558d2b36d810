//! Reading a `periodic` scenario. The format is in `docs/scenarios/periodic.schema.json`.

use crate::simulate::fields::{
    self, Fields, MAX_SECONDS, count, list, number_in, positive, seconds, text, word,
};
use serde_json::Value;
use weir_engine::sharing::periodic::{Application, Objective, Search, shortest_period_s};

const FIELDS: [&str; 6] = ["bandwidth", "applications", "period", "objective", "k_prime", "epsilon"];
const APPLICATION_FIELDS: [&str; 6] = ["name", "nodes", "cap", "volume", "compute", "mean"];
const MOST_APPLICATIONS: usize = 1000;
const MOST_INSTANCES: usize = 1_000_000;
/// Instances that a period may hold.
const MOST_IN_A_PERIOD: f64 = 200_000.0;
const OBJECTIVES: [(&str, Objective); 3] = [
    ("both", Objective::Both),
    ("sys_efficiency", Objective::SysEfficiency),
    ("dilation", Objective::Dilation),
];

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
    pub(super) fn parse(scenario: &str) -> Result<Scenario, String> {
        let value = fields::parse(scenario, &[("applications", MOST_APPLICATIONS)])?;
        let fields = Fields::of_scenario(&value, &FIELDS)?;
        let bandwidth = fields.read("bandwidth", positive)?;
        let mut scenario = Scenario {
            bandwidth,
            names: Vec::new(),
            applications: Vec::new(),
            compute_s: Vec::new(),
            search: Search::BEST,
        };
        for (index, value) in fields.read("applications", list)?.iter().enumerate() {
            scenario.add_application(index, value)?;
        }
        if scenario.compute_s.iter().map(Vec::len).sum::<usize>() > MOST_INSTANCES {
            return Err(format!("applications: more than {MOST_INSTANCES} computing times in all"));
        }
        scenario.search = search(&fields, &scenario.applications)?;
        Ok(scenario)
    }

    fn add_application(&mut self, index: usize, value: &Value) -> Result<(), String> {
        let at = format!("applications[{index}]");
        let fields = Fields::of(value, &at, &APPLICATION_FIELDS)?;
        let name = fields.read_if_given("name", text)?;
        let nodes = fields.read_if_given("nodes", count)?.unwrap_or(1) as f64;
        let cap = fields.read_if_given("cap", positive)?.unwrap_or(self.bandwidth).min(self.bandwidth);
        let volume = fields.read("volume", positive)?;
        if !(1e-6..=MAX_SECONDS).contains(&(volume / cap)) {
            return Err(format!("{at}.volume: takes {} s alone, must be 10^-6 to 10^9", volume / cap));
        }
        let mean = fields.read_if_given("mean", seconds)?;
        let compute_s = match (fields.read_if_given("compute", times)?, mean) {
            (Some(listed), _) => listed,
            (None, Some(mean)) => vec![mean],
            (None, None) => return Err(format!("{at}.compute: missing, and no mean either")),
        };
        let work_s = mean.unwrap_or(compute_s.iter().sum::<f64>() / compute_s.len() as f64);
        let name = name.map_or_else(|| format!("A{}", index + 1), str::to_owned);
        self.names.push(name);
        self.applications.push(Application { nodes, cap, volume, work_s });
        self.compute_s.push(compute_s);
        Ok(())
    }
}

fn times(value: &Value, path: &str) -> Result<Vec<f64>, String> {
    let time = |(k, value)| seconds(value, &format!("{path}[{k}]"));
    list(value, path)?.iter().enumerate().map(time).collect()
}

fn search(fields: &Fields, applications: &[Application]) -> Result<Search, String> {
    let objective = fields.read_if_given("objective", |value, path| word(value, path, &OBJECTIVES))?;
    let in_range = |name: &str, default: f64, lowest: f64, highest: f64| {
        let given = fields.read_if_given(name, |value, path| number_in(value, path, lowest..=highest))?;
        Ok::<f64, String>(given.unwrap_or(default))
    };
    let shortest_s = shortest_period_s(applications);
    let period_s = fields.read_if_given("period", positive)?;
    if let Some(period_s) = period_s.filter(|&period_s| period_s < shortest_s || period_s > MAX_SECONDS) {
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
        objective: objective.unwrap_or(Objective::Both),
        period_s,
        longest: in_range("k_prime", Search::BEST.longest, 1.0, 100.0)?,
        epsilon: in_range("epsilon", Search::BEST.epsilon, 1e-4, 1.0)?,
        ..Search::BEST
    })
}
