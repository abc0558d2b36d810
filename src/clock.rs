//! Time in ticks: cycles where the processor counts them evenly, else nanoseconds of the kernel's clock.

use crate::arch;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_profile::layout::ClockReading;

static USE_KERNEL_CLOCK: AtomicBool = AtomicBool::new(false);

/// Chooses the clock; before any ticks are read.
pub(crate) fn choose() {
    USE_KERNEL_CLOCK.store(!arch::cycles_are_even(), Relaxed);
}

pub(crate) fn counts_cycles() -> bool {
    !USE_KERNEL_CLOCK.load(Relaxed)
}

/// Now.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    if USE_KERNEL_CLOCK.load(Relaxed) { kernel_ns(libc::CLOCK_MONOTONIC) } else { arch::cycles() }
}

#[cold]
#[inline(never)]
fn kernel_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer; both clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The same moment in ticks and in nanoseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moment {
    pub(crate) ticks: u64,
    pub(crate) monotonic_ns: u64,
    pub(crate) realtime_ns: u64,
}

impl Moment {
    pub(crate) fn now() -> Moment {
        Moment {
            ticks: ticks(),
            monotonic_ns: kernel_ns(libc::CLOCK_MONOTONIC),
            realtime_ns: kernel_ns(libc::CLOCK_REALTIME),
        }
    }

    pub(crate) fn store(self, reading: &ClockReading) {
        reading.ticks.store(self.ticks, Relaxed);
        reading.monotonic_ns.store(self.monotonic_ns, Relaxed);
        reading.realtime_ns.store(self.realtime_ns, Relaxed);
    }

    /// Ticks per nanosecond as seen since `self`; 1 when too little time has passed to tell.
    pub(crate) fn ticks_per_ns(self, now: Moment) -> f64 {
        let ns = now.monotonic_ns.saturating_sub(self.monotonic_ns);
        if ns == 0 { 1.0 } else { now.ticks.saturating_sub(self.ticks) as f64 / ns as f64 }
    }
}
