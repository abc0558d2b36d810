//! Coordination as a whole in virtual time: jobs, nodes and ranks with their sessions, gates and elections, coordinators
//! with the engine, on a network and on processes that fail.
//!
//! [`run_seed`] draws a world with faults from a seed and checks what the documents promise; [`live`] runs jobs that somebody
//! describes, without faults, and tells what each has done.

mod checks;
mod faults;
mod leader;
pub mod live;
mod network;
mod node;
mod office;
mod plan;
mod rank;
mod storage;
mod traffic;
mod world;

use plan::Plan;
use world::World;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Runs the world of a seed: what is wrong with it if anything is, and the number of its events. With `trace` every event is
/// printed.
pub fn run_seed(seed: u64, trace: bool) -> (Result<(), String>, u64) {
    let (plan, random) = Plan::draw(seed);
    let mut world = World::new(plan, random, trace);
    let outcome = world.run();
    (outcome, world.events())
}
