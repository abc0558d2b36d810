//! Who may do I/O now, and at what share of the bandwidth: one file per policy.

mod apio;
mod caps;
mod deadlines;
mod exclusive;
mod fair;
mod fair_clock;
mod greedy;
mod minmax;
mod online;
pub mod periodic;
mod queue;
mod set10;
mod tournament;
mod weir;

pub use apio::ApioBarrier;
pub use exclusive::Exclusive;
pub use fair::Fair;
pub use minmax::MinMax;
pub use online::Online;
pub use set10::Set10;
pub use weir::Weir;

use crate::engine::{Desk, JobId, SeenAlone};
use periodic::{Periodic, Planning, Timetable};
use std::fmt;
use std::str::FromStr;

/// What a policy answers to. The engine calls these after it has brought its records up to date;
/// see [`crate::engine`] on how a policy plugs in.
pub trait Policy {
    /// The job asks to do I/O: [`Desk::grant`] it a share now, or leave it held.
    fn began(&mut self, job: JobId, desk: &mut Desk);

    /// The phase is over (or its job is about to leave): the job holds no share any more, and what
    /// it held is free for others. Its record still shows the phase, which is not among the past ones yet.
    fn ended(&mut self, job: JobId, desk: &mut Desk);

    /// Bytes were reported in the middle of a phase.
    fn moved(&mut self, _job: JobId, _desk: &mut Desk) {}

    fn joined(&mut self, _job: JobId, _desk: &mut Desk) {}

    /// Called after `ended` when a job leaves in the middle of its phase.
    fn left(&mut self, _job: JobId, _desk: &mut Desk) {}

    fn time_passed(&mut self, _desk: &mut Desk) {}

    /// What the job has done so far while no other was served, if the policy keeps that. A job that joins another engine says it
    /// there ([`crate::engine::Past`]).
    fn seen_alone(&self, _job: JobId) -> Option<SeenAlone> {
        None
    }

    /// Whether `moved` does something. A host may save itself reports that nobody reads.
    fn wants_progress(&self) -> bool {
        false
    }
}

/// The policies that need nothing but what the engine's events say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyKind {
    Exclusive,
    Fair,
    Set10,
    RoundRobin,
    MinDilation,
    MaxSysEff,
    MinMax { gamma: f64 },
    Periodic,
    Apio,
    ApioBarrier,
    Weir,
}

impl PolicyKind {
    /// γ of MinMax-γ where none is named: the APIO paper's choice (section 5.2).
    pub const DEFAULT_GAMMA: f64 = 0.5;

    pub const ALL: [PolicyKind; 11] = [
        PolicyKind::Exclusive,
        PolicyKind::Fair,
        PolicyKind::Set10,
        PolicyKind::RoundRobin,
        PolicyKind::MinDilation,
        PolicyKind::MaxSysEff,
        PolicyKind::MinMax { gamma: PolicyKind::DEFAULT_GAMMA },
        PolicyKind::Periodic,
        PolicyKind::Apio,
        PolicyKind::ApioBarrier,
        PolicyKind::Weir,
    ];

    /// Whether a job is granted at once when no other asks. A barrier keeps bandwidth free on purpose; that is what is
    /// wrong with it.
    pub fn serves_who_is_alone(self) -> bool {
        self != PolicyKind::ApioBarrier
    }

    /// Whether it makes a timetable.
    pub fn plans(self) -> bool {
        matches!(self, PolicyKind::Periodic | PolicyKind::Apio | PolicyKind::ApioBarrier)
    }

    pub fn build(self) -> Box<dyn Policy> {
        self.build_with(Planning::default())
    }

    /// The policy, with a timetable like this if it makes one.
    pub fn build_with(self, planning: Planning) -> Box<dyn Policy> {
        let timetable = || Timetable::new(planning);
        match self {
            PolicyKind::Exclusive => Box::new(Exclusive::default()),
            PolicyKind::Fair => Box::new(Fair::default()),
            PolicyKind::Set10 => Box::new(Set10::default()),
            PolicyKind::RoundRobin => Box::new(Online::round_robin()),
            PolicyKind::MinDilation => Box::new(Online::min_dilation()),
            PolicyKind::MaxSysEff => Box::new(Online::max_sys_eff()),
            PolicyKind::MinMax { gamma } => Box::new(MinMax::new(gamma)),
            PolicyKind::Periodic => Box::new(Periodic::kept(timetable())),
            PolicyKind::Apio => Box::new(Periodic::moved(timetable())),
            PolicyKind::ApioBarrier => Box::new(ApioBarrier::new(timetable())),
            PolicyKind::Weir => Box::new(Weir::default()),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            PolicyKind::Exclusive => f.write_str("exclusive"),
            PolicyKind::Fair => f.write_str("fair"),
            PolicyKind::Set10 => f.write_str("set10"),
            PolicyKind::RoundRobin => f.write_str("roundrobin"),
            PolicyKind::MinDilation => f.write_str("mindilation"),
            PolicyKind::MaxSysEff => f.write_str("maxsyseff"),
            PolicyKind::MinMax { gamma } if *gamma == Self::DEFAULT_GAMMA => f.write_str("minmax"),
            PolicyKind::MinMax { gamma } => write!(f, "minmax({gamma})"),
            PolicyKind::Periodic => f.write_str("periodic"),
            PolicyKind::Apio => f.write_str("apio"),
            PolicyKind::ApioBarrier => f.write_str("apio-barrier"),
            PolicyKind::Weir => f.write_str("weir"),
        }
    }
}

impl FromStr for PolicyKind {
    type Err = String;

    /// A name of [`PolicyKind::ALL`], or `minmax(γ)`.
    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(gamma) = name.strip_prefix("minmax(").and_then(|rest| rest.strip_suffix(')')) {
            return match gamma.parse() {
                Ok(gamma) if (0.0..=1.0).contains(&gamma) => Ok(PolicyKind::MinMax { gamma }),
                _ => Err(format!("policy {name:?}: gamma must be between 0 and 1")),
            };
        }
        let found = PolicyKind::ALL.into_iter().find(|kind| kind.to_string() == name);
        found.ok_or_else(|| {
            let valid: Vec<String> = PolicyKind::ALL.iter().map(PolicyKind::to_string).collect();
            format!("unknown policy {name:?}; valid are {}, minmax(GAMMA)", valid.join(", "))
        })
    }
}
