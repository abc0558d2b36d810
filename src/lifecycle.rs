//! Inert → Armed → Draining → Off.
//!
//! **Inert** from loading on: every wrapper is a load, a comparison and a jump. **Armed** by `MPI_Init*`
//! or `MPI_Session_init`: calls are measured. **Draining** inside `MPI_Finalize`: nothing more is
//! measured. **Off** afterwards, and whenever a fuse has blown; a new session may arm again.

use crate::clock::{self, Moment};
use crate::shim::caller::{self, Caller, Thread};
use crate::shim::{late, real, shield};
use crate::{abi, child, config, gate, measure, profile};
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};
use weir_profile::layout::Ended;

unsafe extern "C" {
    /// glibc's `atexit` that also tells the exit code.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

pub(crate) const INERT: u32 = 0;
pub(crate) const ARMED: u32 = 1;
pub(crate) const DRAINING: u32 = 2;
pub(crate) const OFF: u32 = 3;

pub(crate) static STATE: AtomicU32 = AtomicU32::new(INERT);

/// Worlds and sessions that were initialised and not finalised.
static OPEN_INITS: AtomicI32 = AtomicI32::new(0);
/// How often this process was armed.
pub(crate) static GENERATION: AtomicU32 = AtomicU32::new(0);
/// The moment of arming.
static ARMED_AT: Mutex<Moment> = Mutex::new(Moment { ticks: 0, monotonic_ns: 0, realtime_ns: 0 });

/// The loader calls it when Weir is loaded, before the program begins. Cannot panic.
extern "C" fn loaded() {
    real::find_early();
    config::note_standard_error();
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = loaded;

#[inline(always)]
pub(crate) fn armed() -> bool {
    STATE.load(Relaxed) == ARMED
}

pub(crate) fn armed_at() -> Moment {
    *ARMED_AT.lock().unwrap_or_else(|e| e.into_inner())
}

static ARMING: Mutex<()> = Mutex::new(());

/// What kind of initialisation the program did: only a world tells its rank and size.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Model {
    World,
    Session,
}

/// MPI is up: from here on calls are measured. Cheap: no file is touched before the first I/O.
pub(crate) fn initialised(model: Model) {
    child::becomes_rank();
    OPEN_INITS.fetch_add(1, Relaxed);
    ensure_armed(model);
}

/// Arms, if that has not happened, where MPI is known to be up although its `MPI_Init` was not seen.
pub(crate) fn ensure_armed_late() {
    if STATE.load(Acquire) == INERT {
        ensure_armed(if abi::world_is_up() { Model::World } else { Model::Session });
    }
}

fn ensure_armed(model: Model) {
    let _guard = ARMING.lock().unwrap_or_else(|e| e.into_inner());
    let state = STATE.load(Acquire);
    if state == ARMED || state == DRAINING || shield::fuse_is_blown() || config::disabled() {
        return;
    }
    config::note_standard_error();
    if !late::unwinder_is_there() {
        // Whatever the program opens tries again.
        static SAID: std::sync::Once = std::sync::Once::new();
        let reason = "no libgcc_s.so.1 on this machine: nothing is measured";
        return SAID.call_once(|| config::say_for_all(reason));
    }
    clock::choose();
    *ARMED_AT.lock().unwrap_or_else(|e| e.into_inner()) = Moment::now();
    abi::detect();
    config::read();
    profile::identify(model);
    measure::forget();
    static HANDLERS: std::sync::Once = std::sync::Once::new();
    // SAFETY: both functions stay loaded as long as the process lives (the library is linked with
    // `-z nodelete`), and do little more than store to statics.
    HANDLERS.call_once(|| unsafe {
        libc::pthread_atfork(Some(child::about_to_fork), None, Some(child::forked));
        on_exit(at_exit, std::ptr::null_mut());
    });
    let generation = GENERATION.fetch_add(1, AcqRel) + 1;
    // The owner's paths read the cycle counter; where that does not tick evenly nobody is the owner.
    let gated = gate::arm();
    if clock::counts_cycles() {
        caller::take_ownership(generation, !gated);
    } else {
        caller::drop_ownership();
    }
    STATE.store(ARMED, Release);
    config::say_verbose(|| {
        format!(
            "armed: {} ABI, rank {} of {}, {}",
            abi::name(),
            profile::identity().rank,
            profile::identity().nprocs,
            profile::identity().mpi
        )
    });
}

/// In a forked child: MPI is its parent's.
pub(crate) fn forget_inits() {
    OPEN_INITS.store(0, Relaxed);
}

/// In a forked child: what it does is counted as its parent's was. Its only thread owns the first lane.
pub(crate) fn rearm() {
    if clock::counts_cycles() {
        caller::take_ownership(GENERATION.load(Relaxed), true);
    }
    STATE.store(ARMED, Release);
}

pub(crate) fn are_locks_free() -> bool {
    child::is_free(&ARMED_AT) && child::is_free(&ARMING)
}

/// `MPI_Finalize` or the end of a session is about to be done; `true` when it is the last one.
pub(crate) fn finalising() -> bool {
    // What a child calls so is its parent's to be finalised.
    if child::is_one() || OPEN_INITS.fetch_sub(1, Relaxed) > 1 {
        return false;
    }
    let was_armed = STATE.compare_exchange(ARMED, DRAINING, AcqRel, Relaxed).is_ok();
    if was_armed {
        child::rank_ends();
        profile::mark_end(Ended::Finalized, 0);
        measure::finish();
    }
    was_armed
}

/// The real finalisation has returned.
pub(crate) fn finalised() {
    gate::leave();
    profile::write();
    measure::forget();
    STATE.store(OFF, Release);
}

/// Something inside Weir broke: nothing is measured any more, the program goes on.
pub(crate) fn switch_off() {
    STATE.store(OFF, Release);
}

/// Runs in `exit`: the record says that nobody finalised.
extern "C" fn at_exit(code: c_int, _: *mut c_void) {
    exiting(code);
}

/// The process is about to end without `MPI_Finalize`.
pub(crate) fn exiting(code: c_int) {
    // A signal handler that ends the process may have interrupted Weir where it holds a lock.
    let interrupted = Thread::current().caller.get() == Caller::Weir;
    if STATE.compare_exchange(ARMED, OFF, AcqRel, Relaxed).is_ok() {
        shield::shield((), || {
            if !interrupted {
                gate::leave();
            }
            profile::mark_end(Ended::Exited, code);
            measure::save();
        });
    }
}
