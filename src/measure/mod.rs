//! Counters, histograms, bursts: what is kept of every call.

pub(crate) mod activity;
pub(crate) mod data;
pub(crate) mod errors;
pub(crate) mod exchange;
pub(crate) mod files;
pub(crate) mod handles;
pub(crate) mod lane;
pub(crate) mod live;
pub(crate) mod pending;
mod record;
pub(crate) mod steady;
mod sums;

pub(crate) use record::{ensure, finish, header, open_shared_lane, save, with_header};

/// Lets go of the record: it belongs to a parent process, or is finished.
pub(crate) fn forget() {
    record::forget();
    files::forget();
    handles::forget();
    pending::forget();
    steady::forget();
}
