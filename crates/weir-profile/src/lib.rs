//! The record a process keeps, how records of a job are merged, and the JSON profile.
//!
//! [`layout`] is what a process stores, [`record`] reads it back, `merge` adds the records of all ranks
//! up, [`profile`] is what comes out, and [`job`] does this for a folder. `libweir.so` writes records and
//! calls [`finish_job`] at the end; the `weir` command calls the rest.

pub mod bins;
mod calls;
pub mod counters;
mod error;
mod exchange;
pub mod extents;
mod fate;
mod files;
pub mod job;
pub mod layout;
mod merge;
mod network;
pub mod phases;
pub mod profile;
pub mod record;
pub mod settings;
mod spread;
pub mod tally;
mod time;
mod totals;
mod words;

pub use error::Error;
pub use fate::{describe as describe_end, host};
pub use job::finish_job;
