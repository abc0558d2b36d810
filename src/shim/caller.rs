//! Who is calling: the program, the MPI library beneath it, or Weir itself.

use crate::arch;
use crate::gate::reads::Reads;
use crate::lifecycle::armed;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_coord::ledger::Slot;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Caller {
    /// The program: its call is counted.
    App = 0,
    /// The MPI library, inside an `MPI_File_*` call of the program.
    Mpi = 1,
    /// Weir: never counted.
    Weir = 2,
    /// The MPI library, inside a collective call that will be in the list: what it moves is looked at.
    MpiListed = 3,
    /// The MPI library, which goes on with what it was given before in a call that is not about files.
    MpiMeanwhile = 4,
}

impl Caller {
    pub(crate) fn is_mpi(self) -> bool {
        matches!(self, Caller::Mpi | Caller::MpiListed | Caller::MpiMeanwhile)
    }
}

/// What a thread needs to know; all zero when the thread starts, and without a destructor.
#[repr(C)]
pub(crate) struct Thread {
    pub(crate) caller: Cell<Caller>,
    /// The generation in which this thread armed Weir, and so owns the first lane; 0 for all others.
    pub(crate) own_generation: Cell<u32>,
    /// Time and bytes of the POSIX calls beneath the MPI call that is under way.
    pub(crate) file_ticks: Cell<u64>,
    pub(crate) file_bytes: Cell<u64>,
    /// The stack at the program's entry into MPI.
    entry: Cell<usize>,
    /// Time spent at the gate since the last call was counted.
    pub(crate) gate_ticks: Cell<u64>,
    /// Of the file on which it makes a collective read, if there is a gate.
    pub(crate) reads: Cell<*const Reads>,
    /// Where it has said what its collective write will move.
    pub(crate) announced_at: Cell<Option<&'static Slot>>,
}

const _: () = assert!(std::mem::size_of::<Thread>() <= 64);

impl Thread {
    #[inline(always)]
    pub(crate) fn current() -> &'static Thread {
        // SAFETY: 64 zeroed bytes are a valid `Thread`; only this thread gets this reference, and it
        // does not outlive the wrapper that asked for it.
        unsafe { &*arch::thread_storage().cast::<Thread>() }
    }
}

/// What the first two fields are, as one number, when the owner of the first lane runs the program's own code.
static OWNER: AtomicU64 = AtomicU64::new(u64::MAX);
/// The same while the owner may take the hot path; a gate closes it.
static SWIFT_OWNER: AtomicU64 = AtomicU64::new(u64::MAX);

/// This thread owns the first lane from now on, and takes the hot path if it may.
pub(crate) fn take_ownership(generation: u32, swift: bool) {
    Thread::current().own_generation.set(generation);
    let owner = u64::from(generation) << 32;
    OWNER.store(owner, Relaxed);
    SWIFT_OWNER.store(if swift { owner } else { u64::MAX }, Relaxed);
}

/// Nobody owns the first lane.
pub(crate) fn drop_ownership() {
    OWNER.store(u64::MAX, Relaxed);
    SWIFT_OWNER.store(u64::MAX, Relaxed);
}

impl Thread {
    /// Who calls, for the owner of the first lane: 0 for the program, 1 for the MPI library. Any other
    /// value, or when calls have to pass a gate: look closer.
    #[inline(always)]
    pub(crate) fn owner_calls(&self) -> u64 {
        // SAFETY: the first two fields are four bytes each, aligned to eight together.
        let mode = unsafe { std::ptr::from_ref(self).cast::<u64>().read() };
        mode.wrapping_sub(SWIFT_OWNER.load(Relaxed))
    }

    /// The program calls MPI.
    #[inline(always)]
    pub(crate) fn enter_mpi(&self) {
        self.entry.set(arch::stack_pointer());
        self.caller.set(Caller::Mpi);
        self.file_ticks.set(0);
        self.file_bytes.set(0);
    }

    /// Whether the program is calling. An error handler that left MPI by `longjmp` took the frame of the call
    /// with it, so what looks like a call of the MPI library's is the program's.
    pub(crate) fn app_calls(&self) -> bool {
        if self.caller.get().is_mpi() && arch::stack_pointer() > self.entry.get() {
            self.caller.set(Caller::App);
        }
        self.caller.get() == Caller::App
    }

    /// What seems to be the program's call is the MPI library's, until the answer is dropped.
    pub(crate) fn goes_on_in_mpi(&self) -> Option<Restore> {
        if self.caller.get() != Caller::App {
            return None;
        }
        self.entry.set(arch::stack_pointer());
        Some(Restore(self.caller.replace(Caller::MpiMeanwhile)))
    }

    pub(crate) fn owns_lane(&self) -> bool {
        u64::from(self.own_generation.get()) << 32 == OWNER.load(Relaxed)
    }
}

/// Whether calls are to be looked at: Weir is armed, and it is not Weir that calls.
#[inline(always)]
pub(crate) fn observing() -> bool {
    armed() && Thread::current().caller.get() != Caller::Weir
}

/// Restores who was calling when it goes out of scope.
pub(crate) struct Restore(Caller);

impl Drop for Restore {
    fn drop(&mut self) {
        Thread::current().caller.set(self.0);
    }
}

/// Until the answer is dropped, Weir is calling.
pub(crate) fn enter_weir() -> Restore {
    Restore(Thread::current().caller.replace(Caller::Weir))
}
