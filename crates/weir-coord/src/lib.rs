//! How jobs find a coordinator, talk to it and take turns.
//!
//! - [`wire`]: the frames between a job and its coordinator.
//! - [`tokens`]: byte credits that make jobs in I/O move bytes by their shares. Pure.
//! - [`storage`]: what a site says of its storage; `allocation` places files there, `turns` orders reads. Pure.
//! - [`coordinator`], [`service`]: the coordinator and those who are connected to it, without sockets. Pure.
//! - [`session`]: the job's side on one node: its phases, its gate, its coordinator. Pure.
//! - [`ledger`]: what the ranks of a node share with their session. Pure.
//! - [`config`]: the file that tells a coordinator what it is to do.
//! - [`auth`], [`address`]: who may talk, and where.
//! - [`server`]: the coordinator's sockets.
//! - [`election`]: who coordinates where no service does.
//! - [`member`]: a session with its sockets, and the coordinator itself if elected. What a job uses.
//! - [`history`]: what earlier runs of an application showed.
//! - [`query`]: asking for the status.
//! - [`text`]: what others say, as it may be shown.

/// Says that this branch of the code was taken, to those who count it (the feature `coverage` of weir-world).
#[cfg(feature = "branches")]
macro_rules! branch {
    ($name:literal) => {{
        static SEEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !SEEN.swap(true, std::sync::atomic::Ordering::Relaxed) {
            crate::branches::note($name);
        }
    }};
}
#[cfg(not(feature = "branches"))]
macro_rules! branch {
    ($name:literal) => {{}};
}

pub mod address;
mod allocation;
pub mod auth;
#[cfg(feature = "branches")]
pub mod branches;
pub mod config;
pub mod coordinator;
pub mod election;
pub mod history;
mod jobs;
pub mod ledger;
pub mod member;
mod pipe;
pub mod query;
pub mod server;
pub mod service;
pub mod session;
pub mod site;
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
