//! How regular phases are: characteristic time, classes of phases that are alike, and periods in the bytes over time.

use super::{Span, count};

/// How regular the phases of a job are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rhythm {
    /// From 0 to 1, how sure the period is: how near the intervals are to each other, and how many there are. `None` with fewer than two phases.
    pub confidence: Option<f64>,
    /// There are phases enough to see a period, and there is none.
    pub is_irregular: bool,
    /// Phases that are alike, the class with most phases first.
    pub classes: Vec<Class>,
}

/// Phases that move about as much in the same direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    pub count: u64,
    /// Time between the starts of consecutive phases of the class, time held back taken out. `None` if there are fewer than two.
    pub period_ns: Option<u64>,
    /// Means of its phases. The length is without time held back.
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub length_ns: u64,
}

/// Phases of two classes differ in bytes at least by this factor; by more where there would be too many classes.
const UNLIKE: u64 = 4;
const MAX_CLASSES: usize = 4;
/// Phases with fewer intervals than this may be called anything but irregular.
const MIN_INTERVALS: usize = 3;
/// Below this the intervals are anything but alike. Uniform noise of 50 % is above, a Poisson process below.
const IRREGULAR: f64 = 0.5;
/// At least so many phases stay when those at the start and at the end are left out; so many on either side may be.
const MIN_STEADY: usize = 5;
const MAX_EDGE: usize = 3;

/// Says how regular phases are, as [`super::find()`] returns them or as the program has marked them.
pub fn rhythm(phases: &[Span]) -> Rhythm {
    let moments = own_moments(phases);
    let members = members(phases);
    let mut classes: Vec<Class> = members.iter().map(|of_class| class(phases, &moments, of_class)).collect();
    classes.sort_by_key(|class| (std::cmp::Reverse(class.count), std::cmp::Reverse(class.bytes_written)));
    let intervals = intervals_of(phases, &moments, &(0..phases.len()).collect::<Vec<_>>());
    let (mut sum, mut weight) = (0.0, 0.0);
    for of_class in &members {
        let intervals = intervals_of(phases, &moments, of_class);
        if intervals.len() >= MIN_INTERVALS {
            sum += intervals.len() as f64 * alike(&intervals);
            weight += intervals.len() as f64;
        }
    }
    let enough = |of_classes: f64| 2.0 * of_classes > intervals.len() as f64;
    let of_classes = if enough(weight) { sum / weight } else { 0.0 };
    let likeness = alike(steady(&intervals)).max(of_classes);
    // What two intervals have in common may be chance.
    let known = intervals.len() as f64 / (intervals.len() as f64 + 1.0);
    Rhythm {
        confidence: (count(phases) > 1).then_some(likeness * known),
        is_irregular: intervals.len() >= MIN_INTERVALS && likeness < IRREGULAR,
        classes,
    }
}

/// Characteristic time `w_iter`: the mean time between the starts of consecutive phases, without the
/// time the job was held back. Unknown before the second phase.
///
/// Phases at the very start and end that differ from the others (a program reads its input, and writes its result) are not part of the rhythm if
/// enough others are left, nor are the first and the last interval if they differ.
pub fn characteristic_time_ns(phases: &[Span]) -> Option<u64> {
    let phases = steady_part(phases);
    let (first, last) = (phases.first()?, phases.last()?);
    let earlier = count(phases).saturating_sub(1);
    let waits_ns = phases[..phases.len() - 1].iter().map(|phase| phase.wait_ns);
    let last_wait_ns = u128::from(last.wait_ns) * u128::from(last.more) / u128::from(last.count());
    let waited_ns = waits_ns.fold(last_wait_ns as u64, u64::saturating_add);
    let span_ns = last.last_start_ns().saturating_sub(first.start_ns).saturating_sub(waited_ns);
    span_ns.checked_div(earlier)
}

/// The phases without those at the start and at the end that are no part of the rhythm.
fn steady_part(phases: &[Span]) -> &[Span] {
    if phases.len() <= MIN_STEADY {
        return phases;
    }
    let moments = own_moments(phases);
    let intervals = intervals_of(phases, &moments, &(0..phases.len()).collect::<Vec<_>>());
    let Some(usual_ns) = median(&intervals) else { return phases };
    let members = members(phases);
    let largest = members.iter().max_by_key(|of_class| of_class.len());
    let is_unlike = |index: usize| largest.is_some_and(|largest| !largest.contains(&index));
    let is_far = |earlier: usize| {
        let interval_ns = moments[earlier + 1] - moments[earlier];
        phases[earlier].more == 0 && (interval_ns > 2.0 * usual_ns || interval_ns < usual_ns / 2.0)
    };
    let (mut start, mut end) = (0, phases.len());
    while start < MAX_EDGE && end - start > MIN_STEADY && phases[start].more == 0 {
        if !(is_unlike(start) || start == 0 && is_far(start)) {
            break;
        }
        start += 1;
    }
    while phases.len() - end < MAX_EDGE && end - start > MIN_STEADY && phases[end - 1].more == 0 {
        if !(is_unlike(end - 1) || end == phases.len() && is_far(end - 2)) {
            break;
        }
        end -= 1;
    }
    &phases[start..end]
}

/// When each phase began, by a clock that stands still while the job is held back.
fn own_moments(phases: &[Span]) -> Vec<f64> {
    let mut waited_ns = 0.0;
    let moment = |phase: &Span| {
        let moment_ns = phase.start_ns as f64 - waited_ns;
        waited_ns += phase.wait_ns as f64;
        moment_ns
    };
    phases.iter().map(moment).collect()
}

/// Times between the starts of consecutive phases of those named; what comes after a sum of phases tells nothing.
fn intervals_of(phases: &[Span], moments: &[f64], named: &[usize]) -> Vec<f64> {
    let single = named.windows(2).filter(|pair| phases[pair[0]].more == 0);
    single.map(|pair| (moments[pair[1]] - moments[pair[0]]).max(0.0)).collect()
}

/// Intervals without the first and the last of them, where a program starts and ends, if there are enough.
fn steady(intervals: &[f64]) -> &[f64] {
    if intervals.len() > MIN_STEADY { &intervals[1..intervals.len() - 1] } else { intervals }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// From 0 to 1, how near intervals are to their median: one less the mean deviation, in which each counts as long as it is. One or two that
/// differ most are left out where there are many.
fn alike(intervals: &[f64]) -> f64 {
    let Some(usual) = median(intervals).filter(|usual| *usual > 0.0) else { return 0.0 };
    let mut sorted = intervals.to_vec();
    let off = |interval: &f64| (interval - usual).abs();
    sorted.sort_unstable_by(|a, b| off(a).total_cmp(&off(b)));
    let kept = &sorted[..sorted.len() - (sorted.len() / 5).min(2)];
    let time = kept.iter().sum::<f64>();
    1.0 - kept.iter().map(|interval| interval * (off(interval) / usual).min(1.0)).sum::<f64>() / time
}

/// From 0 to 1, how regularly phases begin; less with few of them.
pub(super) fn regularity(phases: &[Span]) -> f64 {
    let intervals = intervals_of(phases, &own_moments(phases), &(0..phases.len()).collect::<Vec<_>>());
    let count = intervals.len() as f64;
    alike(&intervals) * count / (count + 1.0)
}

/// From 0 to 1, how alike phases are in bytes.
pub(super) fn evenness(phases: &[Span]) -> f64 {
    alike(&phases.iter().map(|phase| phase.mean_bytes() as f64).collect::<Vec<_>>())
}

/// The phases of each class, as places in the list, in order.
fn members(phases: &[Span]) -> Vec<Vec<usize>> {
    let mut unlike = UNLIKE;
    loop {
        let mut classes: Vec<Vec<usize>> = Vec::new();
        for reads in [false, true] {
            let is_meant =
                |index: &usize| (phases[*index].bytes_read > phases[*index].bytes_written) == reads;
            let mut of_kind: Vec<usize> = (0..phases.len()).filter(is_meant).collect();
            of_kind.sort_by_key(|index| phases[*index].mean_bytes());
            let bytes = |index: usize| phases[index].mean_bytes().max(1);
            let parts = of_kind.chunk_by(|a, b| bytes(*b) / unlike < bytes(*a));
            classes.extend(parts.map(<[usize]>::to_vec));
        }
        if classes.len() <= MAX_CLASSES || unlike > u64::MAX / UNLIKE {
            classes.iter_mut().for_each(|of_class| of_class.sort_unstable());
            return classes;
        }
        unlike *= UNLIKE;
    }
}

fn class(phases: &[Span], moments: &[f64], named: &[usize]) -> Class {
    let count = named.iter().fold(0u64, |sum, index| sum.saturating_add(phases[*index].count())).max(1);
    let mean = |of: fn(&Span) -> u64| {
        let sum = named.iter().fold(0u64, |sum, index| sum.saturating_add(of(&phases[*index])));
        sum / count
    };
    // Where a phase of another class took the place of one of these, the interval is twice as long and tells nothing.
    let intervals = intervals_of(phases, moments, named);
    let usual = median(&intervals).unwrap_or(0.0);
    let near: Vec<f64> =
        intervals.into_iter().filter(|interval| (0.5 * usual..=1.5 * usual).contains(interval)).collect();
    let period_ns = (!near.is_empty()).then(|| (near.iter().sum::<f64>() / near.len() as f64) as u64);
    Class {
        count,
        period_ns,
        bytes_read: mean(|phase| phase.bytes_read),
        bytes_written: mean(|phase| phase.bytes_written),
        length_ns: mean(Span::own_ns),
    }
}

/// Bins of the series in which periods are looked for.
const BINS: usize = 1024;
/// A period is seen if what happens a period later is alike to this degree.
const MIN_CORRELATION: f64 = 0.3;
/// A shorter period is preferred to its multiples if it is nearly as good.
const NEARLY: f64 = 0.8;

/// The period with which the bytes over time repeat themselves: the lag of the first high peak of their autocorrelation,
/// as in FTIO (Tarraf et al., IPDPS 2024), which looks for it beside the Fourier transform. `None` if there is no such peak.
pub(super) fn main_period_ns(bursts: &[Span]) -> Option<f64> {
    let (first, last) = (bursts.first()?, bursts.last()?);
    let span_ns = (last.end_ns - first.start_ns) as f64;
    let mut series = vec![0.0; BINS];
    // A burst counts by its mean, that a single large one does not hide all others.
    let mean_bytes = bursts.iter().map(|burst| burst.bytes() as f64).sum::<f64>() / bursts.len() as f64;
    for burst in bursts {
        let bin = |moment_ns: u64| {
            let place = (moment_ns - first.start_ns) as f64 / span_ns * BINS as f64;
            (place as usize).min(BINS - 1)
        };
        let (from, to) = (bin(burst.start_ns), bin(burst.end_ns));
        let part = (burst.bytes() as f64).min(2.0 * mean_bytes) / (to - from + 1) as f64;
        series[from..=to].iter_mut().for_each(|value| *value += part);
    }
    let mean = series.iter().sum::<f64>() / BINS as f64;
    series.iter_mut().for_each(|value| *value -= mean);
    // Neighbouring bins are added up: a period need not be a whole number of bins.
    let smooth: Vec<f64> = series.windows(3).map(|near| near.iter().sum()).collect();
    let power = smooth.iter().map(|value| value * value).sum::<f64>();
    let correlation = |lag: usize| {
        let pairs = smooth[lag..].iter().zip(&smooth);
        let share = smooth.len() as f64 / (smooth.len() - lag) as f64;
        pairs.map(|(later, earlier)| later * earlier).sum::<f64>() * share / power
    };
    let all: Vec<f64> = (0..BINS / 2).map(correlation).collect();
    let below = all.iter().position(|value| *value < MIN_CORRELATION / 2.0)?;
    let highest = all[below..].iter().copied().fold(0.0, f64::max);
    if highest < MIN_CORRELATION {
        return None;
    }
    let is_peak = |lag: &usize| {
        let near = &all[lag.saturating_sub(2)..(lag + 3).min(all.len())];
        all[*lag] >= NEARLY * highest && near.iter().all(|value| *value <= all[*lag])
    };
    let lag = (below..all.len()).find(is_peak)?;
    Some(lag as f64 * span_ns / BINS as f64)
}
