//! Weir's policies as pure state machines, and the simulator that drives them.
//!
//! Nothing here reads a clock, does I/O or draws a random number that was not seeded by the caller.
#![forbid(unsafe_code)]

pub mod aggregators;
pub mod engine;
pub mod math;
mod records;
pub mod requests;
pub mod resources;
pub mod sharing;
pub mod sim;
