//! The record a process keeps, how records of a job are merged, and the JSON profile.
//!
//! [`layout`] is what a process stores, [`record`] reads it back, `merge` adds the records of all ranks
//! up, [`profile`] is what comes out, and [`job`] does this for a folder. `libweir.so` makes records in memory and speaks with
//! the helper process of its node ([`helper`]), which brings them to the folder ([`node`]) and calls [`finish_job`] at the end;
//! the `weir` command calls the rest.

pub mod batch;
pub mod bins;
mod calls;
mod claim;
pub mod counters;
mod error;
mod exchange;
pub mod extents;
pub mod failures;
mod fate;
mod files;
pub mod folder;
pub mod helper;
mod io_time;
pub mod job;
mod launches;
pub mod layout;
mod marked;
pub mod memory;
mod merge;
mod network;
pub mod node;
pub mod phases;
pub mod profile;
pub mod record;
mod regular;
pub mod settings;
mod spread;
pub mod tally;
mod thin;
mod time;
mod totals;
mod words;

/// FNV-1a: short, and the same in every process.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mixed = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, mixed)
}

pub use error::Error;
pub use fate::{describe as describe_end, host, start_of as process_start};
pub use job::{finish_job, finish_job_within};
pub use regular::{is_own_directory, new_file, open_regular};
