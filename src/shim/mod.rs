//! All interposition: rows of functions, how a row becomes a wrapper, and how the real one is found.

mod around;
pub(crate) mod caller;
pub(crate) mod dlsym;
mod exec;
pub(crate) mod late;
mod mpi;
pub(crate) mod posix;
mod posix_meta;
mod posix_names;
pub(crate) mod real;
mod requests;
pub(crate) mod shield;
pub(crate) mod signals;
pub(crate) mod special;
mod stdio;
mod stdio_text;
mod wrap;
