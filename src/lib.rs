//! `libweir.so`: what lives inside the application. See ARCHITECTURE.md.

mod abi;
mod arch;
mod capi;
mod clock;
mod config;
mod gate;
mod lifecycle;
mod measure;
mod profile;
mod shim;
