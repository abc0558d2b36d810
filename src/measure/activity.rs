//! When the program does I/O: bursts, from which phases are found, and the series of bytes over time.
//!
//! The owner only adds to what is pending; it goes into the burst and the bin of the series when either
//! of them changes. Other threads add to the burst and the bin themselves.

use super::lane::{Access, Own, Shared, words};
use super::{record, sums};
use crate::clock::{self, Moment};
use crate::shim::caller;
use crate::{config, lifecycle};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_profile::layout::*;
use weir_profile::phases::MAX_FLEETING_NS;
use weir_profile::tally;

/// Pauses up to this long never end a burst, unless `WEIR_PHASE_GAP` says what does.
const GAP_NS: u64 = 1_000_000;
/// A bin of the series covers about this long at first.
const FIRST_BIN_NS: f64 = 1e6;
/// No pause ends a marked phase. Far from where adding a moment to it would overflow.
const NO_GAP_TICKS: u64 = 1 << 62;

/// [`MAX_FLEETING_NS`] as ticks, or less where a shorter gap was asked for.
static FLEETING_TICKS: AtomicU64 = AtomicU64::new(0);

/// Calls that moved nothing and took no longer are no phase.
pub(super) fn fleeting_ticks() -> u64 {
    FLEETING_TICKS.load(Relaxed)
}

/// A fresh lane. How fast the clock ticks is known roughly; that is good enough for both.
pub(super) fn begin(lane: &Lane) {
    let ticks_per_ns = lifecycle::armed_at().ticks_per_ns(Moment::now());
    let gap_ns = Some(config::get(|c| c.phase_gap_ns)).filter(|gap_ns| *gap_ns > 0).unwrap_or(GAP_NS);
    let gap = ((gap_ns as f64 * ticks_per_ns) as u64).min(NO_GAP_TICKS - 1);
    lane.bursts.gap_ticks.store(gap, Relaxed);
    lane.bursts.active_gap_ticks.store(gap, Relaxed);
    FLEETING_TICKS.store((MAX_FLEETING_NS.min(gap_ns) as f64 * ticks_per_ns) as u64, Relaxed);
    let bin = (FIRST_BIN_NS * ticks_per_ns) as u64;
    lane.series.shift.store(bin.max(2).ilog2().into(), Relaxed);
}

/// The owner's burst and bin, both of which a call belongs to.
pub(crate) struct Activity<'a>(&'a Lane);

impl<'a> Activity<'a> {
    /// `None` when the burst or the bin changes with the call.
    #[inline(always)]
    pub(super) fn continues(lane: &'a Lane, start: u64, end: u64) -> Option<Activity<'a>> {
        let within =
            start <= lane.bursts.deadline_ticks.load(Relaxed) && end < Own::state().bin_end.load(Relaxed);
        within.then_some(Activity(lane))
    }

    #[inline(always)]
    pub(super) fn note(&self, write: bool, end: u64, bytes: u64) {
        let Lane { bursts, pending, .. } = self.0;
        bursts.deadline_ticks.store(end.wrapping_add(bursts.active_gap_ticks.load(Relaxed)), Relaxed);
        Own::add(&pending.calls, 1);
        Own::add(if write { &pending.bytes_written } else { &pending.bytes_read }, bytes);
    }
}

/// The owner did something.
pub(super) fn own(write: bool, start: u64, end: u64, bytes: u64) {
    match Activity::continues(words::<Own>(), start, end) {
        Some(activity) => activity.note(write, end, bytes),
        None => own_changes(write, start, end, bytes),
    }
}

/// The owner's burst or bin changes with this call.
#[cold]
#[inline(never)]
fn own_changes(write: bool, start: u64, end: u64, bytes: u64) {
    let lane = words::<Own>();
    let bursts = &lane.bursts;
    tally::flush_pending(lane);
    if start > bursts.deadline_ticks.load(Relaxed) {
        open(lane, start, Mark::NONE);
    }
    bursts.deadline_ticks.store(end.saturating_add(bursts.active_gap_ticks.load(Relaxed)), Relaxed);
    add_to_burst(current(bursts), write, bytes);
    let (bin, bin_end) = spread_over_bins(&lane.series, write, start, end, bytes);
    lane.pending.bin.store(bin, Relaxed);
    Own::state().bin_end.store(bin_end, Relaxed);
}

/// A thread without a lane of its own did something.
pub(super) fn shared(write: bool, start: u64, end: u64, bytes: u64) {
    // A signal handler that does I/O of its own here must not come for the locks.
    let _caller = caller::enter_weir();
    let lane = words::<Shared>();
    let bursts = &lane.bursts;
    let gap = bursts.active_gap_ticks.load(Relaxed);
    let is_over = || {
        let burst = current(bursts);
        bursts.count.load(Relaxed) == 0 || start.saturating_sub(burst.end_ticks.load(Relaxed)) > gap
    };
    if is_over() {
        let _guard = Shared::state().lock();
        if is_over() {
            open(lane, start, Mark::NONE);
        }
    }
    let burst = current(bursts);
    burst.end_ticks.fetch_max(end, Relaxed);
    add_to_burst(burst, write, bytes);

    let zero = record::start_ticks();
    let shift = lane.series.shift.load(Relaxed) & 63;
    let (first, last) = (start.saturating_sub(zero) >> shift, end.saturating_sub(zero) >> shift);
    match lane.series.cells(write).get(last as usize) {
        Some(cell) if first == last => _ = cell.fetch_add(bytes, Relaxed),
        _ => {
            let _guard = Shared::state().lock();
            spread_over_bins(&lane.series, write, start, end, bytes);
        }
    }
}

/// The burst that is under way; the first place of the list before there is one.
fn current(bursts: &Bursts) -> &Burst {
    let last = (bursts.count.load(Relaxed) as usize).saturating_sub(1);
    &bursts.list[last.min(BURSTS - 1)]
}

/// Of the burst under way, this long was spent at the gate.
pub(super) fn waited<A: Access>(ticks: u64) {
    current(&words::<A>().bursts).wait_ticks.fetch_add(ticks, Relaxed);
}

fn add_to_burst(burst: &Burst, write: bool, bytes: u64) {
    burst.calls.fetch_add(1, Relaxed);
    if write { &burst.bytes_written } else { &burst.bytes_read }.fetch_add(bytes, Relaxed);
}

/// What the program said of a phase that it marks.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    /// The how-manieth phase it is, from 1; 0 for a burst that nobody marked.
    pub(crate) number: u64,
    /// See [`name_place`].
    pub(crate) name: u64,
}

impl Mark {
    pub(super) const NONE: Mark = Mark { number: 0, name: 0 };
}

/// Whether a burst is no phase whatever comes after it: calls that moved nothing in no time to speak of, such as a look
/// whether a file is there.
fn is_fleeting(burst: &Burst) -> bool {
    let is_empty = [
        &burst.bytes_read,
        &burst.bytes_written,
        &burst.wait_ticks,
        &burst.marked,
        &burst.more,
        &burst.pause_ticks,
    ];
    let length_ticks = burst.end_ticks.load(Relaxed).saturating_sub(burst.start_ticks.load(Relaxed));
    is_empty.iter().all(|word| word.load(Relaxed) == 0) && length_ticks <= fleeting_ticks()
}

/// Opens the next burst, in the place of the last one if that is fleeting; makes room if there is none.
pub(super) fn open(lane: &Lane, start: u64, mark: Mark) {
    let bursts = &lane.bursts;
    let count = bursts.count.load(Relaxed) as usize;
    if count > 0 && count <= BURSTS && is_fleeting(&bursts.list[count - 1]) {
        bursts.count.store(count as u64 - 1, Relaxed);
    } else if count >= BURSTS {
        sums::make_room(bursts);
    }
    let count = bursts.count.load(Relaxed) as usize;
    // Bytes that another thread added late to what was here before are kept: nothing is lost.
    let burst = &bursts.list[count.min(BURSTS - 1)];
    burst.start_ticks.store(start, Relaxed);
    burst.end_ticks.store(start, Relaxed);
    burst.more.store(0, Relaxed);
    burst.pause_ticks.store(0, Relaxed);
    burst.name.store(mark.name, Relaxed);
    burst.marked.store(mark.number, Relaxed);
    bursts.count.store(count as u64 + 1, Relaxed);
    record::with_header(|header| Moment::now().store(&header.clock_last));
}

/// Gives the bytes of a call to the bins it covers, as much to each as it covers of it. Returns the bin
/// in which the call ended and when that bin ends.
fn spread_over_bins(series: &Series, write: bool, start: u64, end: u64, bytes: u64) -> (u64, u64) {
    let zero = record::start_ticks();
    let (start, end) = (start.saturating_sub(zero), end.saturating_sub(zero));
    while end >> (series.shift.load(Relaxed) & 63) >= SERIES_BINS as u64 {
        widen(series);
    }
    let shift = series.shift.load(Relaxed) & 63;
    let (first, last) = (start.min(end) >> shift, end >> shift);
    let length = end.saturating_sub(start).max(1);
    let cells = series.cells(write);
    let mut rest = bytes;
    for bin in first..last {
        let covered = ((bin + 1) << shift) - start.max(bin << shift);
        let part = (u128::from(bytes) * u128::from(covered) / u128::from(length)) as u64;
        rest -= part.min(rest);
        cells[bin as usize].fetch_add(part, Relaxed);
    }
    cells[last as usize].fetch_add(rest, Relaxed);
    (last, zero + ((last + 1) << shift))
}

/// Each bin covers twice as long from now on.
fn widen(series: &Series) {
    for write in [false, true] {
        let cells = series.cells(write);
        for bin in 0..SERIES_BINS {
            let value = cells[bin].swap(0, Relaxed);
            cells[bin / 2].fetch_add(value, Relaxed);
        }
    }
    series.shift.fetch_add(1, Relaxed);
}

static NAMING: Mutex<()> = Mutex::new(());

pub(super) fn is_lock_free() -> bool {
    crate::child::is_free(&NAMING)
}

/// Where the record keeps the name of a phase, counted from 1: the place it has, the first free one, or the
/// last, which says that there were more names.
pub(crate) fn name_place(name: &str) -> u64 {
    let _guard = NAMING.lock().unwrap_or_else(|e| e.into_inner());
    let Some(header) = record::header() else { return 0 };
    let kept: Text<PHASE_NAME_WORDS> = Text([const { Cell::new(0) }; PHASE_NAME_WORDS]);
    kept.set(name.trim());
    let kept = kept.get();
    let (last, places) = header.phase_names.split_last().expect("there are places");
    for (place, known) in places.iter().enumerate() {
        let known_name = known.get();
        if known_name.is_empty() {
            known.set(&kept);
        }
        if known_name.is_empty() || known_name == kept {
            return place as u64 + 1;
        }
    }
    last.set("other names");
    PHASE_NAMES as u64
}

/// `weir_phase_begin`: what follows is one phase, whatever pauses it has.
pub(crate) fn begin_marked<A: Access>(mark: Mark) {
    let lane = words::<A>();
    let _guard = A::state().lock();
    let now = clock::ticks();
    tally::flush_pending(lane);
    open(lane, now, mark);
    lane.bursts.active_gap_ticks.store(NO_GAP_TICKS, Relaxed);
    set_deadline::<A>(lane, now + NO_GAP_TICKS);
}

/// `weir_phase_end`: the burst ends now, and the next call opens another.
pub(crate) fn end_marked<A: Access>() {
    let lane = words::<A>();
    let _guard = A::state().lock();
    let bursts = &lane.bursts;
    if bursts.active_gap_ticks.load(Relaxed) != NO_GAP_TICKS {
        return;
    }
    set_deadline::<A>(lane, clock::ticks() + NO_GAP_TICKS);
    tally::flush_pending(lane);
    current(bursts).end_ticks.fetch_max(clock::ticks(), Relaxed);
    bursts.active_gap_ticks.store(bursts.gap_ticks.load(Relaxed), Relaxed);
    // A deadline in the past, from which the end of the burst can still be told: it is in the burst.
    set_deadline::<A>(lane, 0);
}

/// Only the owner's lane has a deadline.
fn set_deadline<A: Access>(lane: &Lane, ticks: u64) {
    if std::ptr::eq(A::state(), Own::state()) {
        lane.bursts.deadline_ticks.store(ticks, Relaxed);
    }
}
