//! A discrete-event simulator that drives [`crate::engine::Engine`] with virtual time.
//!
//! Jobs compute and do I/O in turn on one storage whose bandwidth is the unit: a *volume* is the time
//! the whole storage needs for it, in nanoseconds, and stands for that many bytes towards the engine.

mod applications;
mod driver;
mod fairness;
mod metrics;
mod storage;
mod workload;

pub use applications::{Lengths, as_jobs};
pub use driver::{Setting, simulate, simulate_phases};
pub use fairness::fair_ends_ns;
pub use metrics::{JobOutcome, Outcome, PhaseOutcome};
pub use storage::Storage;
pub use workload::{Job, Mix, Phase, Phases, Program, iosets};

/// Seconds as given by people, nanoseconds in here.
pub const SECOND_NS: u64 = 1_000_000_000;
