//! What a schedule is worth: a discrete-event simulation of applications that compute and do I/O in turn.
//!
//! The paper's simulator lets applications that meet on a resource alternate by units of time, which
//! approximates fair sharing (section 5.2). Here the sharing is exact: `k` transfers on a resource go
//! at `1/k` of their speed each (section 3.1), transfers on different resources do not wait for each
//! other, and an I/O subphase ends with its last transfer (section 3.2.2).
//!
//! The paper measures while no application ends. Here none does: each repeats its phases, and all that
//! is measured is measured over whole phases. Applications start at a point of their first
//! compute subphase drawn from the seed, and the first cycle of each is not counted.

use super::agenda::Agenda;
use super::{Application, BadInput, Platform};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How long a simulation goes on.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Whole phases (compute and I/O) that every application makes at least after its first.
    pub min_phases: u64,
    /// Events after which a simulation gives up: the phases of one application are too short for
    /// another's.
    pub max_events: u64,
}

impl Default for Length {
    fn default() -> Self {
        Length { min_phases: 20, max_events: 20_000_000 }
    }
}

/// What became of one application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// I/O-SlowDown (equation 4). 1 for an application without I/O.
    pub slowdown: f64,
    /// The part of it that comes from not using `n_perf` resources, `rho^io`.
    pub slowdown_io: f64,
    /// Share of its time that it spent in I/O.
    pub io_share: f64,
}

impl Observed {
    /// The part of the slowdown that comes from congestion, `rho^con`.
    pub fn slowdown_congestion(&self) -> f64 {
        self.slowdown - self.slowdown_io
    }
}

/// What became of a schedule (section 3.3.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub applications: Vec<Observed>,
    /// I/O-res-occ `O_i`: share of the time that each resource was busy.
    pub occupancy: Vec<f64>,
    /// Machine-Idletime: share of the compute nodes' time spent in I/O.
    pub machine_idletime: f64,
}

impl Outcome {
    /// Mean-I/O-SlowDown (equation 5).
    pub fn mean_slowdown(&self) -> f64 {
        self.mean(|a| a.slowdown)
    }

    pub fn mean(&self, value: impl Fn(&Observed) -> f64) -> f64 {
        self.applications.iter().map(value).sum::<f64>() / self.applications.len() as f64
    }

    /// The mean of several runs of one schedule.
    pub fn mean_of(runs: &[Outcome]) -> Outcome {
        let mean = |value: &dyn Fn(&Outcome) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
        let applications = (0..runs[0].applications.len()).map(|i| Observed {
            slowdown: mean(&|run| run.applications[i].slowdown),
            slowdown_io: mean(&|run| run.applications[i].slowdown_io),
            io_share: mean(&|run| run.applications[i].io_share),
        });
        Outcome {
            applications: applications.collect(),
            occupancy: (0..runs[0].occupancy.len()).map(|r| mean(&|run| run.occupancy[r])).collect(),
            machine_idletime: mean(&|run| run.machine_idletime),
        }
    }

    /// I/O-spread (equation 6).
    pub fn io_spread(&self) -> f64 {
        let (least, most) =
            self.occupancy.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), &o| (l.min(o), m.max(o)));
        most - least
    }
}

/// Runs the applications on the resources `placement` gives them.
pub fn run(
    platform: &Platform,
    applications: &[Application],
    placement: &[Vec<usize>],
    length: Length,
    seed: u64,
) -> Result<Outcome, BadInput> {
    let mut world = World::new(platform.resources, applications, placement, seed);
    world.run(length)?;
    Ok(world.outcome(platform, applications, placement))
}

/// A time that can be ordered: none of ours is NaN.
#[derive(Clone, Copy, PartialEq)]
struct Instant(f64);

impl Eq for Instant {}
impl PartialOrd for Instant {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Instant {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A resource that transfers share equally. `service_s` is the time a transfer alone since the resource
/// was last idle would have been served; each of `k` transfers gains `1/k` of what passes.
#[derive(Clone, Default)]
struct Resource {
    service_s: f64,
    updated_s: f64,
    busy_s: f64,
    /// When each transfer ends, in terms of `service_s`, and whose it is.
    transfers: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Resource {
    fn advance(&mut self, now_s: f64) {
        if !self.transfers.is_empty() {
            self.service_s += (now_s - self.updated_s) / self.transfers.len() as f64;
            self.busy_s += now_s - self.updated_s;
        }
        self.updated_s = now_s;
    }

    fn begin(&mut self, now_s: f64, application: usize, alone_s: f64) {
        self.advance(now_s);
        if self.transfers.is_empty() {
            self.service_s = 0.0;
        }
        self.transfers.push(Reverse((Instant(self.service_s + alone_s), application)));
    }

    /// Ends the transfer that is due: its service is complete by definition, not by rounding.
    fn end(&mut self, now_s: f64) -> Option<usize> {
        self.advance(now_s);
        let Reverse((service, application)) = self.transfers.pop()?;
        self.service_s = service.0;
        Some(application)
    }

    /// When the next transfer ends if none begins before: never, if there is none.
    fn next_end_s(&self) -> f64 {
        self.transfers.peek().map_or(f64::INFINITY, |Reverse((service, _))| {
            let left_s = (service.0 - self.service_s).max(0.0);
            self.updated_s + left_s * self.transfers.len() as f64
        })
    }
}

/// One application on its way, and what of it has been counted.
struct Runner {
    compute_s: f64,
    /// Length of an I/O subphase with nobody in the way.
    alone_s: f64,
    transfers_left: usize,
    io_began_s: f64,
    /// Whole phases so far; the first is not counted.
    cycles: u64,
    first_ended_s: f64,
    last_ended_s: f64,
    io_s: f64,
}

struct World<'a> {
    placement: &'a [Vec<usize>],
    runners: Vec<Runner>,
    resources: Vec<Resource>,
    /// When a transfer ends on each resource, then when each application stops computing.
    agenda: Agenda,
    now_s: f64,
}

impl<'a> World<'a> {
    fn new(resources: usize, applications: &[Application], placement: &'a [Vec<usize>], seed: u64) -> Self {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut world = World {
            placement,
            runners: Vec::with_capacity(applications.len()),
            resources: vec![Resource::default(); resources],
            agenda: Agenda::new(resources + applications.len()),
            now_s: 0.0,
        };
        for (i, application) in applications.iter().enumerate() {
            let phases = f64::from(application.phases);
            let compute_s = application.cpu_time_s / phases;
            world.runners.push(Runner {
                compute_s,
                alone_s: application.io_time_s(placement[i].len()) / phases,
                transfers_left: 0,
                io_began_s: 0.0,
                cycles: 0,
                first_ended_s: 0.0,
                last_ended_s: 0.0,
                io_s: 0.0,
            });
            world.agenda.set(resources + i, compute_s * rng.random::<f64>());
        }
        world
    }

    fn run(&mut self, length: Length) -> Result<(), BadInput> {
        let target = length.min_phases.max(1) + 1;
        let mut behind = self.runners.len();
        for _ in 0..length.max_events {
            if behind == 0 {
                return Ok(());
            }
            let (party, now_s) = self.agenda.next();
            self.now_s = now_s;
            if party >= self.resources.len() {
                self.io_begins(party - self.resources.len());
            } else if let Some(i) = self.transfer_ends(party)
                && self.runners[i].cycles == target
            {
                behind -= 1;
            }
        }
        let slowest = self.runners.iter().position(|r| r.cycles < target).unwrap_or(0);
        let reason =
            "one of its phases lasts longer than millions of another's: cannot be simulated together";
        Err(BadInput::new(format!("applications[{slowest}].cpu_time"), reason))
    }

    fn io_begins(&mut self, i: usize) {
        let runner = &mut self.runners[i];
        (runner.io_began_s, runner.transfers_left) = (self.now_s, self.placement[i].len());
        let alone_s = runner.alone_s;
        self.agenda.set(self.resources.len() + i, f64::INFINITY);
        for &r in &self.placement[i] {
            self.resources[r].begin(self.now_s, i, alone_s);
            self.agenda.set(r, self.resources[r].next_end_s());
        }
    }

    /// The application whose whole phase ends with this transfer, if one does.
    fn transfer_ends(&mut self, resource: usize) -> Option<usize> {
        let i = self.resources[resource].end(self.now_s)?;
        self.agenda.set(resource, self.resources[resource].next_end_s());
        let runner = &mut self.runners[i];
        runner.transfers_left -= 1;
        if runner.transfers_left > 0 {
            return None;
        }
        runner.cycles += 1;
        runner.last_ended_s = self.now_s;
        if runner.cycles == 1 {
            runner.first_ended_s = self.now_s;
        } else {
            runner.io_s += self.now_s - runner.io_began_s;
        }
        self.agenda.set(self.resources.len() + i, self.now_s + runner.compute_s);
        Some(i)
    }

    fn outcome(
        mut self,
        platform: &Platform,
        applications: &[Application],
        placement: &[Vec<usize>],
    ) -> Outcome {
        let observe = |(i, runner): (usize, &Runner)| {
            let (application, n) = (&applications[i], placement[i].len());
            let best = application.bandwidth[application.n_perf(platform.resources) - 1];
            let slowdown_io = best / application.bandwidth[n - 1];
            let counted = (runner.cycles - 1) as f64;
            let congestion =
                if runner.alone_s > 0.0 { runner.io_s / (counted * runner.alone_s) } else { 1.0 };
            Observed {
                slowdown: slowdown_io * congestion,
                slowdown_io,
                io_share: runner.io_s / (runner.last_ended_s - runner.first_ended_s),
            }
        };
        let observed: Vec<Observed> = self.runners.iter().enumerate().map(observe).collect();
        let idle: f64 = observed.iter().zip(applications).map(|(o, a)| o.io_share * a.nodes as f64).sum();
        let now_s = self.now_s;
        self.resources.iter_mut().for_each(|r| r.advance(now_s));
        Outcome {
            applications: observed,
            occupancy: self.resources.iter().map(|r| r.busy_s / now_s).collect(),
            machine_idletime: idle / platform.compute_nodes as f64,
        }
    }
}
