//! How many I/O resources an application gets, and which.
//!
//! I/O resources are what programs share on the way to storage: I/O nodes, storage targets,
//! aggregator slots. After A. Bandet, F. Boito, G. Pallez, "Allocation and placement algorithms for
//! scheduling distributed I/O resources in HPC systems" (Inria RR-9549), with `weir`, our own.
//!
//! A decision has two steps: an [`Allocator`] says how many resources each application uses, a
//! [`Placer`] says which. [`Policy`] joins the two; [`arbiter::Arbiter`] applies a policy to
//! applications that come and go; [`sim`] shows what a schedule is worth.

mod agenda;
pub mod allocation;
pub mod arbiter;
pub mod curves;
pub mod mckp;
mod mean_field;
pub mod placement;
pub mod policy;
pub mod sim;
pub mod weir;
pub mod workload;

pub use allocation::Allocator;
pub use placement::Placer;
pub use policy::Policy;

use std::fmt;

/// Most resources a platform may have, most applications that share them at a time, and most
/// bandwidth values of all of them times resources: within these every policy answers in seconds.
pub const MAX_RESOURCES: usize = 4_096;
pub const MAX_APPLICATIONS: usize = 4_096;
pub const MAX_CHOICES: usize = 20_000_000;

/// An input that makes no sense, and the field that holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct BadInput {
    pub field: String,
    pub reason: String,
}

impl BadInput {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        BadInput { field: field.into(), reason: reason.into() }
    }

    /// The same complaint, seen from the object that holds the field.
    pub fn within(self, parent: &str) -> Self {
        BadInput { field: format!("{parent}.{}", self.field), ..self }
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// What is shared: `N` I/O resources, and the `Q^cpu` compute nodes whose programs use them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Platform {
    pub resources: usize,
    pub compute_nodes: u64,
}

impl Platform {
    pub fn check(&self) -> Result<(), BadInput> {
        if !(1..=MAX_RESOURCES).contains(&self.resources) {
            return Err(BadInput::new("resources", format!("must be from 1 to {MAX_RESOURCES}")));
        }
        if self.compute_nodes == 0 {
            return Err(BadInput::new("compute_nodes", "must be at least 1"));
        }
        Ok(())
    }
}

/// An application as the paper describes it (Table 1). It alternates between computing and I/O.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// `b(n)` at index `n - 1`, volume per second; the application can use no more resources than this
    /// has values.
    pub bandwidth: Vec<f64>,
    /// `V_io`, what it reads and writes in all, in the unit `bandwidth` moves per second.
    pub volume: f64,
    /// `T_cpu`, the time it computes in all.
    pub cpu_time_s: f64,
    /// `Q`, the compute nodes it runs on.
    pub nodes: u64,
    /// `p`, how many times it computes and then does I/O.
    pub phases: u32,
}

impl Application {
    /// Everything the algorithms rely on: without it a time could be negative, infinite or no number.
    pub fn check(&self, platform: &Platform) -> Result<(), BadInput> {
        if self.bandwidth.is_empty() {
            return Err(BadInput::new("bandwidth", "needs at least one value"));
        }
        if self.bandwidth.len() > MAX_RESOURCES {
            return Err(BadInput::new("bandwidth", format!("more than {MAX_RESOURCES} values")));
        }
        if let Some(i) = self.bandwidth.iter().position(|b| !(b.is_finite() && *b > 0.0)) {
            return Err(BadInput::new(format!("bandwidth[{i}]"), "must be a positive number"));
        }
        if !(self.volume.is_finite() && self.volume >= 0.0) {
            return Err(BadInput::new("volume", "must be zero or a positive number"));
        }
        if !(self.cpu_time_s.is_finite() && self.cpu_time_s >= 0.0) {
            return Err(BadInput::new("cpu_time", "must be zero or a positive number"));
        }
        if self.volume == 0.0 && self.cpu_time_s == 0.0 {
            return Err(BadInput::new("cpu_time", "must be positive where volume is zero"));
        }
        if let Some(i) = self.bandwidth.iter().position(|b| !(self.volume / b + self.cpu_time_s).is_finite())
        {
            return Err(BadInput::new(format!("bandwidth[{i}]"), "volume / bandwidth is too large a number"));
        }
        if !(1..=platform.compute_nodes).contains(&self.nodes) {
            return Err(BadInput::new("nodes", "must be at least 1 and at most compute_nodes"));
        }
        if self.phases == 0 {
            return Err(BadInput::new("phases", "must be at least 1"));
        }
        Ok(())
    }

    /// The most resources it can use on a platform with `resources` of them.
    pub fn widest(&self, resources: usize) -> usize {
        self.bandwidth.len().min(resources)
    }

    /// `T_io(n) = V_io / b(n)`, the time its I/O takes in all when nobody is in the way.
    pub fn io_time_s(&self, n: usize) -> f64 {
        self.volume / self.bandwidth[n - 1]
    }

    /// Share of its time that it spends in I/O when nobody is in the way: `T_io / (T_cpu + T_io)`.
    pub fn io_ratio(&self, n: usize) -> f64 {
        let io_time_s = self.io_time_s(n);
        io_time_s / (self.cpu_time_s + io_time_s)
    }

    /// I/O-Stress (section 3.2): how many resources it keeps busy on average.
    pub fn io_stress(&self, n: usize) -> f64 {
        n as f64 * self.io_ratio(n)
    }

    /// CPUload (section 4.1): how many compute nodes it keeps computing on average.
    pub fn cpu_load(&self, n: usize) -> f64 {
        self.nodes as f64 * (1.0 - self.io_ratio(n))
    }

    /// Equation (1): the number of resources with the shortest I/O; the fewest of several such.
    pub fn n_perf(&self, resources: usize) -> usize {
        self.argmin(resources, |n| -self.bandwidth[n - 1])
    }

    /// Equation (2): the number of resources with the least I/O-Stress; the fewest of several such.
    pub fn n_sys(&self, resources: usize) -> usize {
        self.argmin(resources, |n| self.io_stress(n))
    }

    /// The first `n` with the least `cost(n)`. First, because a resource that brings nothing is better
    /// left to others; Lemma 1 (`n_sys <= n_perf`) needs it for a curve with two equal peaks.
    fn argmin(&self, resources: usize, cost: impl Fn(usize) -> f64) -> usize {
        let mut best = (1, cost(1));
        for n in 2..=self.widest(resources) {
            let cost = cost(n);
            if cost < best.1 {
                best = (n, cost);
            }
        }
        best.0
    }
}

/// I/O-load (equation 3): the share of the platform's I/O resources that is busy on average if nobody
/// is in anybody's way. Above 1 the platform is saturated.
pub fn io_load(resources: usize, applications: &[Application], allocation: &[usize]) -> f64 {
    let stress: f64 = applications.iter().zip(allocation).map(|(a, &n)| a.io_stress(n)).sum();
    stress / resources as f64
}

/// The platform and all its applications, each complaint naming the application by its index.
pub fn check(platform: &Platform, applications: &[Application]) -> Result<(), BadInput> {
    platform.check()?;
    if !(1..=MAX_APPLICATIONS).contains(&applications.len()) {
        let reason = format!("must hold from 1 to {MAX_APPLICATIONS} applications");
        return Err(BadInput::new("applications", reason));
    }
    for (i, application) in applications.iter().enumerate() {
        application.check(platform).map_err(|e| e.within(&format!("applications[{i}]")))?;
    }
    check_work(platform, applications)
}

/// Whether the curves are short enough for so many resources.
pub(crate) fn check_work(platform: &Platform, applications: &[Application]) -> Result<(), BadInput> {
    let values: usize = applications.iter().map(|a| a.widest(platform.resources)).sum();
    if values.saturating_mul(platform.resources) > MAX_CHOICES {
        let reason = format!("all bandwidth values times resources must be at most {MAX_CHOICES}");
        return Err(BadInput::new("applications", reason));
    }
    Ok(())
}
