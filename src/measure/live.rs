//! What this process can say of its own phases while it runs.

use super::record;
use crate::clock::Moment;
use crate::config;
use crate::shim::caller::Thread;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_profile::layout::{Burst, Collective};
use weir_profile::phases::{self, Span};
use weir_profile::tally;

struct View {
    phases: Vec<Span>,
    run_ns: u64,
}

fn view() -> Option<View> {
    let header = record::header()?;
    let first = crate::lifecycle::armed_at();
    let now = Moment::now();
    let per_tick = 1.0 / first.ticks_per_ns(now);
    let duration_ns = |ticks: u64| (ticks as f64 * per_tick) as u64;
    let moment_ns = |ticks: u64| duration_ns(ticks.saturating_sub(first.ticks));
    let mut bursts: Vec<Span> = Vec::new();
    let mut marked: Vec<Span> = Vec::new();
    let mut floor_ns = 0;
    for (index, lane) in record::lanes().enumerate() {
        if index == 0 && Thread::current().owns_lane() {
            tally::flush_pending(lane);
        }
        let list = &lane.bursts;
        let count = (list.count.load(Relaxed) as usize).min(list.list.len());
        let used = || list.list[..count].iter().filter(|burst| burst.is_used());
        let spans: Vec<Span> = used().map(|burst| burst.span(moment_ns, duration_ns)).collect();
        bursts = phases::unite(&bursts, &spans);
        let is_marked = |burst: &&Burst| burst.marked.load(Relaxed) != 0;
        marked.extend(used().filter(is_marked).map(|burst| burst.span(moment_ns, duration_ns)));
        floor_ns = floor_ns.max(duration_ns(list.gap_ticks.load(Relaxed)));
    }
    let run_ns = now.monotonic_ns.saturating_sub(header.clock_first.monotonic_ns.load(Relaxed));
    if !marked.is_empty() {
        marked.sort_by_key(|span| span.start_ns);
        return Some(View { phases: marked, run_ns });
    }
    let phases = match config::get(|c| c.phase_gap_ns) {
        0 => phases::find(&bursts, floor_ns).list,
        given_ns => phases::find_with(&bursts, given_ns).list,
    };
    Some(View { phases, run_ns })
}

/// `w_iter` so far; `None` before the second phase.
pub(crate) fn characteristic_time_s() -> Option<f64> {
    phases::characteristic_time_ns(&view()?.phases).map(|ns| ns as f64 / 1e9)
}

/// How the exchange of data in a rank's collective calls on a file went.
pub(crate) struct Exchanged {
    /// Time of the latest call outside the file and the gate.
    pub(crate) latest_s: f64,
    /// By how much that was longer than in the shortest call alike; `None` while there was one such call only.
    pub(crate) beyond_shortest_s: Option<f64>,
}

/// From the list of collective calls, which has every one of the first and some of the later.
pub(crate) fn exchanged(file: u64) -> Option<Exchanged> {
    let now = Moment::now();
    let per_tick_s = 1e-9 / crate::lifecycle::armed_at().ticks_per_ns(now);
    let rest_ticks = |call: &Collective| {
        let load = |word: &AtomicU64| word.load(Relaxed);
        let inside = load(&call.end_ticks).saturating_sub(load(&call.start_ticks));
        inside.saturating_sub(load(&call.file_ticks).saturating_add(load(&call.gate_ticks)))
    };
    record::header()?;
    let lists = record::lanes().map(|lane| &lane.collectives);
    let calls = lists.flat_map(|calls| {
        let count = (calls.count.load(Relaxed) as usize).min(calls.list.len());
        calls.list[..count].iter().filter(|call| call.file.load(Relaxed) == file)
    });
    let calls: Vec<&Collective> = calls.collect();
    let latest = *calls.iter().max_by_key(|call| call.end_ticks.load(Relaxed))?;
    let is_alike = |call: &Collective| {
        let kind = |call: &Collective| call.op.0.each_ref().map(|word| word.load(Relaxed));
        call.bytes.load(Relaxed) == latest.bytes.load(Relaxed) && kind(call) == kind(latest)
    };
    let others = calls.iter().filter(|call| !std::ptr::eq(**call, latest) && is_alike(call));
    let shortest_ticks = others.map(|call| rest_ticks(call)).min();
    let latest_ticks = rest_ticks(latest);
    Some(Exchanged {
        latest_s: latest_ticks as f64 * per_tick_s,
        beyond_shortest_s: shortest_ticks.map(|ticks| latest_ticks.saturating_sub(ticks) as f64 * per_tick_s),
    })
}

/// `alpha_io` so far.
pub(crate) fn io_ratio() -> Option<f64> {
    let view = view()?;
    Some(phases::io_ratio(&view.phases, view.run_ns))
}
