//! The order in which storage targets serve the aggregators of collective calls.
//!
//! A collective call announces its aggregators with [`Scheduler::join`]; whoever drives a target asks
//! [`Scheduler::next`] when it is free. [`run`] drives the same code over calls that all begin at once.
//! Time is in whole nanoseconds: a guarantee such as [`Policy::Slack`]'s must not hang on rounding.

pub mod cost;
mod forward;
mod hio;
mod slack;
pub mod workload;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::str::FromStr;

/// Whatever would take a call beyond this (146 years) is refused. Any order of the same work ends within twice
/// the time that SIO's takes, so no sum overflows.
const LIMIT_NS: u64 = u64::MAX / 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// No coordination: every target serves in the order of arrival, which differs from target to target.
    Nio,
    /// One collective call at a time, in the same order at all targets.
    Sio,
    /// HIO's Algorithm 1 as its text describes it.
    Hio,
    /// HIO's Algorithm 1 as its listing prints it.
    HioListing,
    /// Never later than under SIO, earlier where a delay is to spare.
    Slack,
}

impl Policy {
    pub const ALL: [Policy; 5] = [Policy::Nio, Policy::Sio, Policy::Hio, Policy::HioListing, Policy::Slack];

    pub fn name(self) -> &'static str {
        match self {
            Policy::Nio => "nio",
            Policy::Sio => "sio",
            Policy::Hio => "hio",
            Policy::HioListing => "hio-listing",
            Policy::Slack => "slack",
        }
    }

    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// What a coordinator does that was told nothing. Turns cost bandwidth where one call alone cannot use all that a target has,
/// and whether it can nobody but the site knows.
pub const DEFAULT: Policy = Policy::Nio;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Policy, String> {
        let valid = || Policy::ALL.map(Policy::name).join(", ");
        Policy::from_name(name).ok_or_else(|| format!("unknown order {name:?}; valid are {}", valid()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// HIO sorts by RAD when a window's shuffle costs exceed this fraction of its read costs.
    pub threshold: f64,
    /// The most aggregators that one HIO window may hold; it never holds two of one application.
    pub window: usize,
    /// How much work `slack` may put into one plan, in places looked at.
    pub effort: u64,
    /// Decides the order of simultaneous arrivals where nobody else does (`nio`).
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { threshold: 0.2, window: usize::MAX, effort: 2_000_000, seed: 1 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The storage is read, then the data is shuffled to the processes that asked for it.
    Read,
    /// The data is shuffled to the aggregators, then written.
    Write,
}

/// One aggregator's part of a collective call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregator {
    pub target: usize,
    /// The paper's *read*: how long the target needs for it.
    pub service_ns: u64,
    pub shuffle_ns: u64,
}

/// An aggregator in the queue of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Calls are numbered in the order in which they joined.
    pub call: u64,
    pub application: u64,
    /// Index among the aggregators of its call.
    pub aggregator: usize,
    /// When it reaches the target: at once for a read, after its shuffle for a write.
    pub ready_ns: u64,
    pub service_ns: u64,
    /// What is left to do after service: the shuffle of a read, nothing for a write. A collective write is
    /// HIO's worst case, a read whose shuffle costs nothing (section 6).
    pub tail_ns: u64,
    pub acceptable_delay_ns: u64,
    pub rad: usize,
}

/// The answer to "this target is free: who is next?"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Serve(Waiting),
    /// The next one is still shuffling and is due then.
    Wait {
        until_ns: u64,
    },
    Idle,
}

/// Why a call cannot join: the aggregator and the field at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub aggregator: usize,
    pub field: &'static str,
    pub problem: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aggregators[{}].{}: {}", self.aggregator, self.field, self.problem)
    }
}

/// Orders the aggregators at all storage targets.
#[derive(Clone, Debug)]
pub struct Scheduler {
    queues: Queues,
    /// When each target would be done with all that has joined, one call after the other.
    sio_end_ns: Vec<u64>,
    calls: u64,
    random: Pcg64Mcg,
}

#[derive(Clone, Debug)]
enum Queues {
    /// By arrival, then by lot, then by call.
    Nio(Vec<BTreeMap<(u64, u64, u64, usize), Waiting>>),
    Sio(Vec<VecDeque<Waiting>>),
    Hio(Vec<hio::Windows>),
    Slack(slack::Plan),
}

impl Scheduler {
    pub fn new(policy: Policy, options: &Options, targets: usize) -> Self {
        let windows = |reading| {
            Queues::Hio(vec![hio::Windows::new(reading, options.threshold, options.window); targets])
        };
        let queues = match policy {
            Policy::Nio => Queues::Nio(vec![BTreeMap::new(); targets]),
            Policy::Sio => Queues::Sio(vec![VecDeque::new(); targets]),
            Policy::Hio => windows(hio::Reading::Text),
            Policy::HioListing => windows(hio::Reading::Listing),
            Policy::Slack => Queues::Slack(slack::Plan::new(targets, options.effort)),
        };
        Scheduler {
            queues,
            sio_end_ns: vec![0; targets],
            calls: 0,
            random: Pcg64Mcg::seed_from_u64(options.seed),
        }
    }

    /// A collective call of `application` begins. Answers when it would finish under SIO; `slack` keeps
    /// to that whatever joins later.
    pub fn join(
        &mut self,
        now_ns: u64,
        application: u64,
        mode: Mode,
        aggregators: &[Aggregator],
    ) -> Result<u64, Refused> {
        let sio_finish_ns = self.append_under_sio(now_ns, mode, aggregators)?;
        let call = self.calls;
        self.calls += 1;
        let tails: Vec<u64> = aggregators.iter().map(|a| mode.tail_ns(a)).collect();
        let delays = cost::acceptable_delays_ns(&tails);
        let ranks = cost::relative_acceptable_delays(&delays);
        if let Queues::Slack(plan) = &mut self.queues {
            plan.promise(call, sio_finish_ns);
        }
        for (index, aggregator) in aggregators.iter().enumerate() {
            let waiting = Waiting {
                call,
                application,
                aggregator: index,
                ready_ns: mode.ready_ns(now_ns, aggregator),
                service_ns: aggregator.service_ns,
                tail_ns: tails[index],
                acceptable_delay_ns: delays[index],
                rad: ranks[index],
            };
            match &mut self.queues {
                Queues::Nio(queues) => {
                    let key = (waiting.ready_ns, self.random.random(), call, index);
                    queues[aggregator.target].insert(key, waiting);
                }
                Queues::Sio(queues) => queues[aggregator.target].push_back(waiting),
                Queues::Hio(windows) => windows[aggregator.target].push(waiting),
                Queues::Slack(plan) => {
                    plan.append(aggregator.target, waiting, self.sio_end_ns[aggregator.target])
                }
            }
        }
        Ok(sio_finish_ns)
    }

    /// `target` is free: who is served now? A served aggregator is no longer known here. A target that is told
    /// to wait or has nothing to do asks again when somebody joins or leaves.
    pub fn next(&mut self, now_ns: u64, target: usize) -> Turn {
        if target >= self.sio_end_ns.len() {
            return Turn::Idle;
        }
        let head = match &mut self.queues {
            Queues::Nio(queues) => queues[target].values().next().copied(),
            Queues::Sio(queues) => queues[target].front().copied(),
            Queues::Hio(windows) => windows[target].head().copied(),
            Queues::Slack(plan) => plan.head(now_ns, target).copied(),
        };
        match head {
            None => Turn::Idle,
            Some(waiting) if waiting.ready_ns > now_ns => Turn::Wait { until_ns: waiting.ready_ns },
            Some(waiting) => {
                match &mut self.queues {
                    Queues::Nio(queues) => drop(queues[target].pop_first()),
                    Queues::Sio(queues) => drop(queues[target].pop_front()),
                    Queues::Hio(windows) => drop(windows[target].pop()),
                    Queues::Slack(plan) => plan.serve_head(now_ns, target),
                }
                Turn::Serve(waiting)
            }
        }
    }

    /// The application is gone, and with it whatever it was waiting for. Nobody gets later by that.
    pub fn leave(&mut self, application: u64) {
        let stays = |waiting: &Waiting| waiting.application != application;
        match &mut self.queues {
            Queues::Nio(queues) => queues.iter_mut().for_each(|queue| queue.retain(|_, w| stays(w))),
            Queues::Sio(queues) => queues.iter_mut().for_each(|queue| queue.retain(stays)),
            Queues::Hio(windows) => windows.iter_mut().for_each(|queue| queue.retain(stays)),
            Queues::Slack(plan) => plan.retain(stays),
        }
    }

    /// Puts the call behind all others at each of its targets and answers when it then finishes.
    /// All or nothing: a refused call leaves no trace.
    fn append_under_sio(
        &mut self,
        now_ns: u64,
        mode: Mode,
        aggregators: &[Aggregator],
    ) -> Result<u64, Refused> {
        let mut end_ns = self.sio_end_ns.clone();
        let mut finish_ns = now_ns;
        for (index, aggregator) in aggregators.iter().enumerate() {
            let refused = |field, problem| Refused { aggregator: index, field, problem };
            let within = |ns: u64, field| {
                if ns <= LIMIT_NS { Ok(ns) } else { Err(refused(field, "takes the call beyond 146 years")) }
            };
            let end =
                end_ns.get_mut(aggregator.target).ok_or(refused("target", "there is no such target"))?;
            within(now_ns.saturating_add(aggregator.shuffle_ns), "shuffle_ns")?;
            let start = mode.ready_ns(now_ns, aggregator).max(*end);
            *end = within(start.saturating_add(aggregator.service_ns), "service_ns")?;
            let finish = within(end.saturating_add(mode.tail_ns(aggregator)), "shuffle_ns")?;
            finish_ns = finish_ns.max(finish);
        }
        self.sio_end_ns = end_ns;
        Ok(finish_ns)
    }
}

impl Mode {
    fn tail_ns(self, aggregator: &Aggregator) -> u64 {
        match self {
            Mode::Read => aggregator.shuffle_ns,
            Mode::Write => 0,
        }
    }

    fn ready_ns(self, now_ns: u64, aggregator: &Aggregator) -> u64 {
        match self {
            Mode::Read => now_ns,
            Mode::Write => now_ns + aggregator.shuffle_ns,
        }
    }
}

/// What became of calls that all began at time 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Per call.
    pub finish_ns: Vec<u64>,
    /// Per target, the calls in the order in which it served their aggregators.
    pub order: Vec<Vec<usize>>,
}

impl Outcome {
    pub fn mean_ns(&self) -> f64 {
        let sum: u128 = self.finish_ns.iter().map(|&finish| u128::from(finish)).sum();
        sum as f64 / self.finish_ns.len() as f64
    }

    pub fn makespan_ns(&self) -> u64 {
        self.finish_ns.iter().copied().max().unwrap_or(0)
    }
}

/// Serves one collective call of each application, all begun at time 0.
pub fn run(
    policy: Policy,
    options: &Options,
    mode: Mode,
    targets: usize,
    calls: &[Vec<Aggregator>],
) -> Result<Outcome, (usize, Refused)> {
    let mut scheduler = Scheduler::new(policy, options, targets);
    for (call, aggregators) in calls.iter().enumerate() {
        scheduler.join(0, call as u64, mode, aggregators).map_err(|refused| (call, refused))?;
    }
    let mut finish_ns = vec![0; calls.len()];
    let mut order = vec![Vec::new(); targets];
    let mut free: BinaryHeap<_> = (0..targets).map(|target| Reverse((0, target))).collect();
    while let Some(Reverse((now_ns, target))) = free.pop() {
        match scheduler.next(now_ns, target) {
            // Nobody joins after time 0: an idle target stays so.
            Turn::Idle => {}
            Turn::Wait { until_ns } => free.push(Reverse((until_ns, target))),
            Turn::Serve(waiting) => {
                let served_ns = now_ns + waiting.service_ns;
                let call = waiting.call as usize;
                finish_ns[call] = finish_ns[call].max(served_ns + waiting.tail_ns);
                order[target].push(call);
                free.push(Reverse((served_ns, target)));
            }
        }
    }
    Ok(Outcome { finish_ns, order })
}
