//! How jobs find a coordinator, talk to it and take turns.
//!
//! - [`wire`]: the frames between a job and its coordinator.
//! - [`tokens`]: byte credits that make jobs in I/O move bytes by their shares. Pure.
pub mod tokens;
pub mod wire;
