//! What becomes of bursts when their list is full.
//!
//! Bursts of one phase become one, as they will when the job's phases are found. If the list is full of phases, only
//! sums are kept of the older half, two phases in one place: how many, how long in all, their waits, bytes and calls.
//! The older a phase, the more share its place; the latest ones stand alone.

use super::{activity, record};
use crate::config;
use crate::shim::caller;
use std::sync::atomic::Ordering::Relaxed;
use weir_profile::layout::*;
use weir_profile::phases::{self, Span};

/// So many may stay; with more the list would be full again soon.
const ENOUGH: usize = BURSTS / 4 * 3;

/// Frees a good part of a full list. A process that is killed meanwhile leaves at most one place half done.
#[cold]
pub(super) fn make_room(bursts: &Bursts) {
    // A signal handler that does I/O of its own here must not find the list half done.
    let _caller = caller::enter_weir();
    let mut gone = [false; BURSTS];
    if bursts.list.iter().all(|burst| burst.marked.load(Relaxed) == 0) {
        join_phases(bursts, &mut gone);
    }
    if gone.iter().filter(|gone| !**gone).count() > ENOUGH {
        fold(&bursts.list[..BURSTS / 2], &mut gone);
    }
    let count = close_up(&bursts.list, &gone);
    bursts.count.store(count as u64, Relaxed);
    record::with_header(|header| _ = header.dropped.bursts.fetch_add((BURSTS - count) as u64, Relaxed));
}

/// Bursts of one phase become one. Those that are no phases give what they moved to the burst before them, or at the beginning to the one behind.
fn join_phases(bursts: &Bursts, gone: &mut [bool]) {
    let list = &bursts.list;
    let floor = bursts.gap_ticks.load(Relaxed);
    // The rules know no unit of time.
    let spans: Vec<Span> = list.iter().map(|burst| burst.span(|ticks| ticks, |ticks| ticks)).collect();
    let (gap, tiny) = match config::get(|c| c.phase_gap_ns) {
        0 => (phases::find(&spans, floor).gap_ns, phases::are_tiny(&spans, floor)),
        _ => (floor, phases::are_empty(&spans, activity::fleeting_ticks())),
    };
    let first = tiny.iter().position(|tiny| !tiny).unwrap_or(0);
    for (next, gone) in gone[..first].iter_mut().enumerate() {
        list[first].take_amounts(&list[next]);
        *gone = true;
    }
    let mut last = first;
    for next in first + 1..list.len() {
        if tiny[next] {
            list[last].take_amounts(&list[next]);
            gone[next] = true;
        } else if pause(&list[last], &list[next]) <= gap {
            absorb(&list[last], &list[next], list[next].more.load(Relaxed), 0);
            gone[next] = true;
        } else {
            last = next;
        }
    }
}

/// Two and two of a kind become one: those of a name that the program marked, or those that were found.
fn fold(list: &[Burst], gone: &mut [bool]) {
    let mut alone: [Option<&Burst>; PHASE_NAMES + 2] = [None; PHASE_NAMES + 2];
    for (burst, gone) in list.iter().zip(gone).filter(|(_, gone)| !**gone) {
        let found = burst.marked.load(Relaxed) == 0;
        let kind = if found { 0 } else { 1 + burst.name.load(Relaxed) as usize };
        let before = &mut alone[kind.min(PHASE_NAMES + 1)];
        match before.take() {
            Some(earlier) => {
                absorb(earlier, burst, burst.more.load(Relaxed) + 1, pause(earlier, burst));
                *gone = true;
            }
            None => *before = Some(burst),
        }
    }
}

fn pause(earlier: &Burst, later: &Burst) -> u64 {
    later.start_ticks.load(Relaxed).saturating_sub(earlier.end_ticks.load(Relaxed))
}

/// The later burst goes into the earlier one, which then stands for `more` and has such a pause more.
fn absorb(earlier: &Burst, later: &Burst, more: u64, pause: u64) {
    earlier.more.fetch_add(more, Relaxed);
    earlier.pause_ticks.fetch_add(pause + later.pause_ticks.load(Relaxed), Relaxed);
    earlier.end_ticks.fetch_max(later.end_ticks.load(Relaxed), Relaxed);
    earlier.take_amounts(later);
}

/// Moves what is left to the front; returns how much that is.
fn close_up(list: &[Burst], gone: &[bool]) -> usize {
    let mut count = 0;
    for (burst, gone) in list.iter().zip(gone) {
        if *gone {
            continue;
        }
        if !std::ptr::eq(&list[count], burst) {
            list[count].take_place_of(burst);
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::super::activity::Mark;
    use super::*;

    const PERIOD: u64 = 6000;
    const LENGTH: u64 = 500;
    const COUNT: u64 = 100_000;
    const MEBIBYTE: u64 = 1 << 20;

    fn empty() -> Box<Lane> {
        // SAFETY: words, for which zero is a value.
        let lane: Box<Lane> = unsafe { Box::new_zeroed().assume_init() };
        lane.bursts.gap_ticks.store(10, Relaxed);
        lane
    }

    /// A burst of a lane, after whatever was there before.
    fn add(lane: &Lane, start: u64, end: u64, bytes: u64, wait: u64, mark: Mark) {
        activity::open(lane, start, mark);
        let burst = &lane.bursts.list[lane.bursts.count.load(Relaxed) as usize - 1];
        burst.end_ticks.store(end, Relaxed);
        burst.bytes_written.fetch_add(bytes, Relaxed);
        burst.wait_ticks.fetch_add(wait, Relaxed);
        burst.calls.fetch_add(1, Relaxed);
    }

    fn spans(lane: &Lane, belongs: impl Fn(&Burst) -> bool) -> Vec<Span> {
        let count = lane.bursts.count.load(Relaxed) as usize;
        assert!(lane.bursts.list[count..].iter().all(|burst| !burst.is_used()), "nothing is left behind");
        let list = lane.bursts.list[..count].iter().filter(|burst| belongs(burst));
        list.map(|burst| burst.span(|ticks| ticks, |ticks| ticks)).collect()
    }

    /// `COUNT` phases of `LENGTH`, of which a wait of 100, every `PERIOD`.
    fn check(spans: &[Span], bytes: u64) {
        assert_eq!(phases::count(spans), COUNT);
        assert_eq!(spans.iter().map(|span| span.bytes_written).sum::<u64>(), bytes);
        assert_eq!(phases::characteristic_time_ns(spans), Some(PERIOD - 100));
        let ratio = phases::io_ratio(spans, COUNT * PERIOD);
        assert!((ratio - 400.0 / 5900.0).abs() < 1e-9, "{ratio}");
        assert!(spans.iter().filter(|span| span.more == 0).count() >= BURSTS / 2, "the latest stand alone");
    }

    #[test]
    fn a_week_of_phases_keeps_its_sums() {
        let lane = empty();
        for phase in 0..COUNT {
            let start = 7 + phase * PERIOD;
            add(&lane, start, start + LENGTH, MEBIBYTE + phase, 100, Mark::NONE);
        }
        check(&spans(&lane, |_| true), COUNT * MEBIBYTE + COUNT * (COUNT - 1) / 2);
    }

    /// A line in a log file after each phase is no phase, and its bytes are kept.
    #[test]
    fn a_week_of_log_lines_adds_no_phases() {
        let lane = empty();
        for phase in 0..COUNT {
            let start = 7 + phase * PERIOD;
            add(&lane, start, start + LENGTH, MEBIBYTE, 100, Mark::NONE);
            add(&lane, start + 3000, start + 3001, 200, 0, Mark::NONE);
        }
        let found = phases::find(&spans(&lane, |_| true), 10);
        assert_eq!(phases::count(&found.list), COUNT);
        let in_phases = found.list.iter().map(|span| span.bytes_written).sum::<u64>();
        assert_eq!(in_phases + found.outside.bytes_written, COUNT * (MEBIBYTE + 200));
    }

    /// Looks whether a file is there take no places in the list.
    #[test]
    fn calls_that_take_no_time_leave_no_bursts() {
        let lane = empty();
        for phase in 0..100 {
            let start = 7 + phase * PERIOD;
            add(&lane, start, start + LENGTH, MEBIBYTE, 0, Mark::NONE);
            for look in 0..5 {
                add(&lane, start + 1000 + look * 500, start + 1000 + look * 500, 0, 0, Mark::NONE);
            }
        }
        let spans = spans(&lane, |_| true);
        assert!(spans.len() <= 200, "{} bursts", spans.len());
        assert_eq!(spans.iter().filter(|span| span.bytes() > 0).count(), 100);
        assert_eq!(spans.iter().map(|span| span.calls).sum::<u64>(), 600);
    }

    /// A file that is opened long before the first phase is no phase when only sums are kept.
    #[test]
    fn opening_a_file_at_first_adds_no_phase() {
        let lane = empty();
        add(&lane, 7, 7 + LENGTH, 0, 0, Mark::NONE);
        for phase in 1..COUNT {
            let start = 7 + phase * PERIOD;
            add(&lane, start, start + LENGTH, MEBIBYTE, 0, Mark::NONE);
        }
        let found = phases::find(&spans(&lane, |_| true), 10);
        assert_eq!(phases::count(&found.list), COUNT - 1);
    }

    /// Each phase is of several bursts: these are joined, and the pauses between them belong to it.
    #[test]
    fn phases_of_several_bursts_are_counted_once() {
        let lane = empty();
        for phase in 0..COUNT {
            let start = 7 + phase * PERIOD;
            add(&lane, start, start + 200, 3, 100, Mark::NONE);
            add(&lane, start + 230, start + LENGTH, 4, 0, Mark::NONE);
        }
        let found = spans(&lane, |_| true);
        check(&phases::find(&found, 10).list, 7 * COUNT);
    }

    /// Two names in turn, and I/O outside of them.
    #[test]
    fn marked_phases_keep_their_names() {
        let lane = empty();
        for phase in 0..COUNT {
            let start = 7 + phase * PERIOD;
            for (name, at) in [(1, 0), (2, 1000)] {
                add(
                    &lane,
                    start + at,
                    start + at + LENGTH,
                    name,
                    100,
                    Mark { number: 2 * phase + name, name },
                );
            }
            add(&lane, start + 2000, start + 2001, 50, 0, Mark::NONE);
        }
        for name in [1, 2] {
            let marked = |burst: &Burst| burst.marked.load(Relaxed) != 0 && burst.name.load(Relaxed) == name;
            let spans = spans(&lane, marked);
            assert_eq!(phases::count(&spans), COUNT);
            assert_eq!(spans.iter().map(|span| span.bytes_written).sum::<u64>(), name * COUNT);
            assert_eq!(phases::characteristic_time_ns(&spans), Some(PERIOD - 100));
            assert_eq!(spans.iter().map(Span::busy_ns).sum::<u64>(), LENGTH * COUNT);
        }
        let found = spans(&lane, |burst| burst.marked.load(Relaxed) == 0);
        assert_eq!(found.iter().map(|span| span.bytes_written).sum::<u64>(), 50 * COUNT);
    }
}
