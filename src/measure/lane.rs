//! One code for two lanes: the owner's plain loads and stores, everybody else's atomic additions.
//!
//! Here is what a lane keeps over time: bursts, the series of bytes per second and the slowest calls.

use super::record;
use crate::clock::Moment;
use crate::{clock, lifecycle};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use weir_profile::layout::*;

/// How a lane's words are updated.
pub(crate) trait Access {
    fn state() -> &'static State;
    fn add(cell: &Cell, value: u64);
    fn raise(cell: &Cell, value: u64);
    /// Writes a word of which any thread's value will do.
    #[inline(always)]
    fn put(cell: &Cell, value: u64) {
        cell.store(value, Relaxed);
    }
    #[inline(always)]
    fn first(cell: &Cell, value: u64) {
        if cell.load(Relaxed) == 0 {
            cell.store(value, Relaxed);
        }
    }
}

/// The thread that armed Weir.
pub(crate) struct Own;
/// All other threads.
pub(crate) struct Shared;

impl Access for Own {
    #[inline(always)]
    fn state() -> &'static State {
        &STATES[0]
    }
    #[inline(always)]
    fn add(cell: &Cell, value: u64) {
        cell.store(cell.load(Relaxed).wrapping_add(value), Relaxed);
    }
    #[inline(always)]
    fn raise(cell: &Cell, value: u64) {
        if value > cell.load(Relaxed) {
            cell.store(value, Relaxed);
        }
    }
}

impl Access for Shared {
    #[inline(always)]
    fn state() -> &'static State {
        &STATES[1]
    }
    #[inline(always)]
    fn add(cell: &Cell, value: u64) {
        cell.fetch_add(value, Relaxed);
    }
    #[inline(always)]
    fn raise(cell: &Cell, value: u64) {
        cell.fetch_max(value, Relaxed);
    }
}

/// Where a lane is at: private to the process, so that the hot path finds everything in one place.
pub(crate) struct State {
    lane: AtomicPtr<Lane>,
    /// The burst that is under way; [`CLOSED`] when the next call must open one.
    burst: AtomicPtr<Burst>,
    /// A pause longer than this ends a burst.
    gap_ticks: AtomicU64,
    /// The bin of the series that now falls into: its bounds and number.
    bin_start: AtomicU64,
    bin_end: AtomicU64,
    bin: AtomicU64,
    /// Taken on the slow paths only.
    lock: Mutex<()>,
}

static STATES: [State; LANES] = [const {
    State {
        lane: AtomicPtr::new(std::ptr::null_mut()),
        burst: AtomicPtr::new(&raw const CLOSED as *mut Burst),
        gap_ticks: AtomicU64::new(0),
        bin_start: AtomicU64::new(u64::MAX),
        bin_end: AtomicU64::new(0),
        bin: AtomicU64::new(0),
        lock: Mutex::new(()),
    }
}; LANES];

/// A burst that ended at the beginning of time: any call comes after its gap.
static CLOSED: Burst = Burst {
    start_ticks: Cell::new(0),
    end_ticks: Cell::new(0),
    bytes_read: Cell::new(0),
    bytes_written: Cell::new(0),
    wait_ticks: Cell::new(0),
    calls: Cell::new(0),
    marked: Cell::new(0),
    reserved: Cell::new(0),
};

/// Pauses up to this long never end a burst; it doubles when there are more bursts than places.
const FIRST_GAP_NS: f64 = 1e6;
/// A bin of the series covers about this long at first.
const FIRST_BIN_NS: f64 = 1e6;

/// The record is there: the lanes can be used.
pub(super) fn begin() {
    let now = Moment::now();
    let armed_at = lifecycle::armed_at();
    let ticks_per_ns = armed_at.ticks_per_ns(now);
    for (index, state) in STATES.iter().enumerate() {
        let lane = record::lane(index);
        // SAFETY: inside the mapped record.
        let words = unsafe { &*lane };
        let gap = (FIRST_GAP_NS * ticks_per_ns) as u64;
        words.bursts.gap_ticks.store(gap, Relaxed);
        words.series.shift.store(((FIRST_BIN_NS * ticks_per_ns) as u64).max(2).ilog2().into(), Relaxed);
        words.collectives.stride.store(1, Relaxed);
        state.gap_ticks.store(gap, Relaxed);
        state.bin_start.store(u64::MAX, Relaxed);
        state.bin_end.store(0, Relaxed);
        state.burst.store(&raw const CLOSED as *mut Burst, Relaxed);
        state.lane.store(lane, Relaxed);
    }
}

pub(super) fn forget() {
    for state in &STATES {
        state.lane.store(std::ptr::null_mut(), Relaxed);
        state.burst.store(&raw const CLOSED as *mut Burst, Relaxed);
    }
}

/// The lane's words. Only called when a block exists, and so the record does.
#[inline(always)]
pub(crate) fn words<A: Access>() -> &'static Lane {
    // SAFETY: blocks are only handed out after `begin`, and the mapping is never undone.
    unsafe { &*A::state().lane.load(Relaxed) }
}

/// A call of the program's own moved data, or tried to: it belongs to a burst and to the series.
#[inline(always)]
pub(crate) fn note_activity<A: Access>(write: bool, start: u64, end: u64, bytes: u64) {
    let state = A::state();
    // SAFETY: `CLOSED` or a burst of the mapped record.
    let mut burst = unsafe { &*state.burst.load(Relaxed) };
    if start.saturating_sub(burst.end_ticks.load(Relaxed)) > state.gap_ticks.load(Relaxed) {
        burst = open_burst::<A>(start, 0);
    }
    A::put(&burst.end_ticks, end);
    A::add(&burst.calls, 1);
    A::add(if write { &burst.bytes_written } else { &burst.bytes_read }, bytes);

    if start >= state.bin_start.load(Relaxed) && end < state.bin_end.load(Relaxed) {
        let bin = state.bin.load(Relaxed) as usize & (SERIES_BINS - 1);
        let series = &words::<A>().series;
        A::add(if write { &series.bytes_written[bin] } else { &series.bytes_read[bin] }, bytes);
    } else {
        spread_over_bins::<A>(write, start, end, bytes);
    }
}

/// Opens the next burst, `marked` when the program said so; makes room if there is none.
#[cold]
#[inline(never)]
pub(crate) fn open_burst<A: Access>(start: u64, marked: u64) -> &'static Burst {
    let state = A::state();
    let _guard = state.lock.lock().unwrap_or_else(|e| e.into_inner());
    let bursts = &words::<A>().bursts;
    // Another thread may have opened one while this one waited.
    // SAFETY: `CLOSED` or a burst of the mapped record.
    let current = unsafe { &*state.burst.load(Relaxed) };
    if marked == 0 && start.saturating_sub(current.end_ticks.load(Relaxed)) <= state.gap_ticks.load(Relaxed) {
        return current;
    }
    let mut count = bursts.count.load(Relaxed) as usize;
    if count >= BURSTS {
        count = join_bursts(bursts);
        state.gap_ticks.store(bursts.gap_ticks.load(Relaxed), Relaxed);
    }
    let burst = &bursts.list[count.min(BURSTS - 1)];
    // Bytes that another thread added late to what was here before are kept: nothing is lost.
    burst.start_ticks.store(start, Relaxed);
    burst.end_ticks.store(start, Relaxed);
    burst.marked.store(marked, Relaxed);
    bursts.count.store(count as u64 + 1, Relaxed);
    state.burst.store(std::ptr::from_ref(burst).cast_mut(), Relaxed);
    record::with_header(|header| Moment::now().store(&header.clock_last));
    burst
}

/// The list is full: the pause that separates bursts doubles until neighbours join. Returns how many
/// bursts are left.
fn join_bursts(bursts: &Bursts) -> usize {
    let mut gap = bursts.gap_ticks.load(Relaxed).max(1);
    let mut kept = BURSTS;
    while kept > BURSTS / 2 {
        gap = gap.saturating_mul(2);
        let mut last = 0;
        for next in 1..kept {
            let (a, b) = (&bursts.list[last], &bursts.list[next]);
            let pause = b.start_ticks.load(Relaxed).saturating_sub(a.end_ticks.load(Relaxed));
            let forced = gap == u64::MAX;
            let marks_differ = a.marked.load(Relaxed) != b.marked.load(Relaxed);
            if forced || (pause <= gap && !marks_differ) {
                a.end_ticks.store(b.end_ticks.load(Relaxed), Relaxed);
            } else {
                last += 1;
                if last == next {
                    continue;
                }
                let a = &bursts.list[last];
                for (to, from) in [
                    (&a.start_ticks, &b.start_ticks),
                    (&a.end_ticks, &b.end_ticks),
                    (&a.marked, &b.marked),
                ] {
                    to.store(from.load(Relaxed), Relaxed);
                }
            }
            let a = &bursts.list[last];
            for (to, from) in [
                (&a.bytes_read, &b.bytes_read),
                (&a.bytes_written, &b.bytes_written),
                (&a.wait_ticks, &b.wait_ticks),
                (&a.calls, &b.calls),
            ] {
                to.fetch_add(from.swap(0, Relaxed), Relaxed);
            }
        }
        record::with_header(|h| _ = h.dropped.bursts.fetch_add((kept - last - 1) as u64, Relaxed));
        kept = last + 1;
    }
    bursts.gap_ticks.store(gap, Relaxed);
    bursts.count.store(kept as u64, Relaxed);
    kept
}

/// A call that does not lie within the current bin: its bytes go to the bins it covers.
#[cold]
#[inline(never)]
fn spread_over_bins<A: Access>(write: bool, start: u64, end: u64, bytes: u64) {
    let state = A::state();
    let _guard = state.lock.lock().unwrap_or_else(|e| e.into_inner());
    let series = &words::<A>().series;
    let zero = lifecycle_start();
    let (start, end) = (start.saturating_sub(zero), end.saturating_sub(zero));
    let mut shift = series.shift.load(Relaxed) & 63;
    while end >> shift >= SERIES_BINS as u64 {
        widen(series);
        shift = series.shift.load(Relaxed) & 63;
    }
    let cells = if write { &series.bytes_written } else { &series.bytes_read };
    let (first, last) = ((start >> shift) as usize, (end >> shift) as usize);
    let length = (end - start.min(end)).max(1);
    let mut rest = bytes;
    for (bin, cell) in cells.iter().enumerate().take(last).skip(first) {
        let covered = ((bin as u64 + 1) << shift) - start.max((bin as u64) << shift);
        let part = (u128::from(bytes) * u128::from(covered) / u128::from(length)) as u64;
        let part = part.min(rest);
        rest -= part;
        cell.fetch_add(part, Relaxed);
    }
    cells[last].fetch_add(rest, Relaxed);
    state.bin.store(last as u64, Relaxed);
    state.bin_start.store(zero + ((last as u64) << shift), Relaxed);
    state.bin_end.store(zero + ((last as u64 + 1) << shift), Relaxed);
}

fn lifecycle_start() -> u64 {
    record::header().map_or(0, |header| header.clock_first.ticks.load(Relaxed))
}

/// Each bin covers twice as long from now on.
fn widen(series: &Series) {
    for cells in [&series.bytes_read, &series.bytes_written] {
        for bin in 0..SERIES_BINS {
            let value = cells[bin].swap(0, Relaxed);
            cells[bin / 2].fetch_add(value, Relaxed);
        }
    }
    series.shift.fetch_add(1, Relaxed);
}

/// Keeps a call that took longer than the tenth slowest so far.
#[inline(always)]
pub(crate) fn note_duration<A: Access>(op: &Name, file: u64, start: u64, duration: u64, bytes: u64) {
    if duration > words::<A>().slowest_threshold_ticks.load(Relaxed) {
        keep_slow::<A>(op, file, start, duration, bytes);
    }
}

#[cold]
#[inline(never)]
fn keep_slow<A: Access>(op: &Name, file: u64, start: u64, duration: u64, bytes: u64) {
    let lane = words::<A>();
    let _guard = A::state().lock.lock().unwrap_or_else(|e| e.into_inner());
    let fastest = |lane: &Lane| {
        (0..SLOWEST).min_by_key(|i| lane.slowest[*i].duration_ticks.load(Relaxed)).unwrap_or(0)
    };
    let slot = &lane.slowest[fastest(lane)];
    slot.start_ticks.store(start, Relaxed);
    slot.bytes.store(bytes, Relaxed);
    slot.file.store(file, Relaxed);
    op.store(&slot.op);
    slot.duration_ticks.store(duration, Relaxed);
    let threshold = lane.slowest[fastest(lane)].duration_ticks.load(Relaxed);
    lane.slowest_threshold_ticks.store(threshold, Relaxed);
}

/// The name of a function as the four words the record has for it.
pub(crate) struct Name([u64; 4]);

impl Name {
    pub(crate) const fn new(text: &str) -> Name {
        let bytes = text.as_bytes();
        assert!(bytes.len() <= 32);
        let mut words = [0u64; 4];
        let mut i = 0;
        while i < bytes.len() {
            words[i / 8] |= (bytes[i] as u64) << (8 * (i % 8));
            i += 1;
        }
        Name(words)
    }

    #[inline(always)]
    pub(crate) fn store(&self, text: &Text<4>) {
        for (cell, word) in text.0.iter().zip(self.0) {
            cell.store(word, Relaxed);
        }
    }
}

/// `weir_phase_begin`: what follows is one phase, whatever pauses it has.
pub(crate) fn begin_marked<A: Access>(number: u64) {
    open_burst::<A>(clock::ticks(), number);
    A::state().gap_ticks.store(u64::MAX, Relaxed);
}

/// `weir_phase_end`.
pub(crate) fn end_marked<A: Access>() {
    let state = A::state();
    // SAFETY: `CLOSED` or a burst of the mapped record.
    let burst = unsafe { &*state.burst.load(Relaxed) };
    if burst.marked.load(Relaxed) != 0 {
        burst.end_ticks.store(clock::ticks(), Relaxed);
        state.burst.store(&raw const CLOSED as *mut Burst, Relaxed);
        state.gap_ticks.store(words::<A>().bursts.gap_ticks.load(Relaxed), Relaxed);
    }
}
