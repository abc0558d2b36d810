//! `libweir.so`: what lives inside the application. See ARCHITECTURE.md.

mod abi;
mod arch;
mod capi;
mod child;
mod clock;
mod config;
#[allow(deprecated)] // fetch_update: the oldest compiler we build with does not know its new name
mod gate;
mod heap;
mod lifecycle;
mod measure;
mod node;
mod profile;
mod shim;
