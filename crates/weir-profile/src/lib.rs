//! The record a process keeps, how records of a job are merged, and the JSON profile.

pub mod bins;
pub mod counters;
pub mod layout;
