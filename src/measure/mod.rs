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

/// In a forked child: nothing is stored to the parent's record, which it has mapped too.
pub(crate) fn leave_parent() {
    (0..weir_profile::layout::LANES).for_each(lane::leave_out);
}

/// Whether nobody is within any of the locks here.
pub(crate) fn are_locks_free() -> bool {
    record::is_lock_free()
        && files::is_lock_free()
        && handles::is_lock_free()
        && pending::is_lock_free()
        && lane::are_locks_free()
        && activity::is_lock_free()
        && errors::is_lock_free()
}
