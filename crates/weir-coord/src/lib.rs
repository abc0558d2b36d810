//! How jobs find a coordinator, talk to it and take turns.
//!
//! - [`wire`]: the frames between a job and its coordinator.
//! - [`tokens`]: byte credits that make jobs in I/O move bytes by their shares. Pure.
//! - [`storage`]: what a site says of its storage; `allocation` places files there, `turns` orders reads. Pure.
//! - [`coordinator`]: the coordinator without its sockets. Pure.
//! - [`config`]: the file that tells a coordinator what it is to do.
//! - [`auth`], [`address`]: who may talk, and where.
//! - [`server`]: the coordinator's sockets.
//! - [`client`]: a job's side of the connection.
//! - [`history`]: what earlier runs of an application showed.
//! - [`query`]: asking for the status.
//! - [`text`]: what others say, as it may be shown.
//! - [`election`]: a job's node in all of this: a client, and the coordinator itself if elected. What a job uses.

pub mod address;
mod allocation;
pub mod auth;
pub mod client;
pub mod config;
pub mod coordinator;
pub mod election;
mod errands;
pub mod history;
mod jobs;
mod pipe;
pub mod place;
pub mod query;
pub mod server;
mod socket;
mod status;
pub mod storage;
pub mod text;
pub mod tokens;
mod turns;
pub mod wire;

pub use weir_engine::aggregators::{DEFAULT as DEFAULT_ORDER, Policy as Order};
pub use weir_engine::sharing::PolicyKind;

pub use socket::{Waker, now_ns};
