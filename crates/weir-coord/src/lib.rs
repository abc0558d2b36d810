//! How jobs find a coordinator, talk to it and take turns.
//!
//! - [`wire`]: the frames between a job and its coordinator.
//! - [`tokens`]: byte credits that make jobs in I/O move bytes by their shares. Pure.
//! - [`coordinator`]: the coordinator without its sockets. Pure.
//! - [`auth`], [`address`]: who may talk, and where.
//! - [`client`]: a job's side of the connection.

pub mod address;
pub mod auth;
pub mod client;
pub mod coordinator;
mod socket;
pub mod tokens;
pub mod wire;

pub use socket::Waker;
