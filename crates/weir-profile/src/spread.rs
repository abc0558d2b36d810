//! Distributions and the series over time of a job.

use crate::bins::{BINS, bin, bin_middle, bin_start};
use crate::counters::{Module, mpiio::*, posix::*, stdio::*};
use crate::layout::HISTOGRAMS;
use crate::profile::{Directions, Distribution, Series, SizeAndLatency};
use crate::record::{Record, SeriesBin};
use crate::totals::{Totals, seconds};
use hdrhistogram::Histogram;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Bins of the job's series.
pub(crate) const SERIES_BINS: usize = 256;

/// Counts of those bins that have any; most have none.
type Counts = BTreeMap<usize, u64>;

/// Histograms of all ranks, latencies in nanoseconds.
#[derive(Default)]
pub(crate) struct Histograms {
    size_bytes: [Counts; HISTOGRAMS],
    /// The smallest and the largest size.
    size_range: [Option<(u64, u64)>; HISTOGRAMS],
    latency_ns: [Counts; HISTOGRAMS],
}

impl Histograms {
    pub(crate) fn add(&mut self, record: &Record) {
        for (lane, histogram) in record.lanes().flat_map(|lane| (0..HISTOGRAMS).map(move |h| (lane, h))) {
            for (from, count) in record.size_bins(lane, histogram) {
                add(&mut self.size_bytes[histogram], from, count);
            }
            if let Some((min, max)) = record.size_range(lane, histogram) {
                let range = self.size_range[histogram].get_or_insert((min, max));
                *range = (range.0.min(min), range.1.max(max));
            }
            // Ticks differ from host to host; nanoseconds are the job's common unit.
            for (from, count) in record.latency_bins(lane, histogram) {
                let latency_ns = record.head.clock.duration_ns(bin_middle(from));
                add(&mut self.latency_ns[histogram], bin(latency_ns), count);
            }
        }
    }

    /// `modules` are the sums over all ranks, which have the exact bytes of all calls.
    pub(crate) fn finish(&self, modules: &[Totals; 3]) -> BTreeMap<Cow<'static, str>, Directions> {
        let one = |module: Module, write: bool| {
            let index = 2 * module as usize + usize::from(write);
            let bytes = modules[module as usize].get(BYTES[index]);
            SizeAndLatency {
                size_bytes: exact(
                    distribution(&self.size_bytes[index], |bytes| bytes as f64),
                    self.size_range[index],
                    bytes,
                ),
                latency_s: distribution(&self.latency_ns[index], seconds),
            }
        };
        let directions = |module: Module| Directions { read: one(module, false), write: one(module, true) };
        Module::ALL.iter().map(|module| (Cow::Borrowed(module.name()), directions(*module))).collect()
    }
}

/// Where the bytes of the calls of a histogram are counted.
const BYTES: [usize; HISTOGRAMS] = [
    MPIIO_BYTES_READ,
    MPIIO_BYTES_WRITTEN,
    POSIX_BYTES_READ,
    POSIX_BYTES_WRITTEN,
    STDIO_BYTES_READ,
    STDIO_BYTES_WRITTEN,
];

/// Puts what is known exactly in the place of what the bins say; where all sizes are equal, that is everything.
fn exact(mut sizes: Distribution, range: Option<(u64, u64)>, bytes: u64) -> Distribution {
    let Some((min, max)) = range.map(|(min, max)| (min as f64, max as f64)) else { return sizes };
    // Of a damaged record, bins and range may contradict each other.
    let is_sound = sizes.count > 0 && min >= sizes.min && max <= sizes.max;
    if !is_sound {
        return sizes;
    }
    let mean = bytes as f64 / sizes.count as f64;
    if (min..=max).contains(&mean) {
        sizes.mean = mean;
    }
    (sizes.min, sizes.max) = (min, max);
    for quantile in [&mut sizes.p50, &mut sizes.p90, &mut sizes.p95, &mut sizes.p99, &mut sizes.p99_9] {
        *quantile = quantile.clamp(min, max);
    }
    sizes
}

fn add(counts: &mut Counts, bin: usize, count: u64) {
    let to = counts.entry(bin).or_default();
    *to = to.saturating_add(count);
}

/// The last bins hold what no call can be: they count at this value.
const HIGHEST: u64 = 1 << 60;

/// Quantiles of binned values; `unit` turns a value into the profile's unit.
fn distribution(counts: &Counts, unit: impl Fn(u64) -> f64) -> Distribution {
    let mut bins = counts.keys().copied();
    let Some(first) = bins.next() else { return Distribution::default() };
    let last = bins.next_back().unwrap_or(first);
    let max = if last + 1 < BINS { bin_start(last + 1) - 1 } else { HIGHEST };
    // Two digits are finer than the bins. The bounds are valid, so this cannot fail.
    let Ok(mut histogram) = Histogram::<u64>::new_with_bounds(1, max.clamp(2, HIGHEST), 2) else {
        return Distribution::default();
    };
    for (bin, count) in counts {
        // Counts of damaged records must not overflow the sums of quantiles.
        histogram.saturating_record_n(bin_middle(*bin).min(HIGHEST), (*count).min(1 << 48));
    }
    let quantile = |q: f64| unit(histogram.value_at_quantile(q).min(max));
    Distribution {
        count: histogram.len(),
        min: unit(bin_start(first)),
        max: unit(max),
        mean: histogram.mean() * unit(1),
        p50: quantile(0.5),
        p90: quantile(0.9),
        p95: quantile(0.95),
        p99: quantile(0.99),
        p99_9: quantile(0.999),
        bins: counts.iter().map(|(bin, count)| (unit(bin_start(*bin)), *count)).collect(),
    }
}

/// Bytes over time of the job.
pub(crate) struct Timeline {
    start_ns: u64,
    bin_ns: u64,
    bytes_read: Vec<u64>,
    bytes_written: Vec<u64>,
}

impl Timeline {
    pub(crate) fn new(start_ns: u64, end_ns: u64) -> Self {
        let bin_ns = end_ns.saturating_sub(start_ns).div_ceil(SERIES_BINS as u64).max(1);
        Timeline { start_ns, bin_ns, bytes_read: vec![0; SERIES_BINS], bytes_written: vec![0; SERIES_BINS] }
    }

    pub(crate) fn add(&mut self, record: &Record) {
        for mut bin in record.lanes().flat_map(|lane| record.series(lane)) {
            // The last bin of a process reaches beyond its end.
            bin.end_ns = bin.end_ns.min(record.head.end_ns);
            self.add_bin(&bin);
        }
    }

    /// Spreads the bytes of a rank's bin evenly over the job's bins it covers. Each gets the difference
    /// of two rounded cumulative sums, so that no byte is lost or doubled.
    fn add_bin(&mut self, bin: &SeriesBin) {
        let last_bin = SERIES_BINS as u64 - 1;
        let index = |moment_ns: u64| (moment_ns.saturating_sub(self.start_ns) / self.bin_ns).min(last_bin);
        let (first, last) = (index(bin.start_ns), index(bin.end_ns.saturating_sub(1).max(bin.start_ns)));
        let length_ns = u128::from(bin.end_ns.saturating_sub(bin.start_ns).max(1));
        let until = |index: u64, bytes: u64| -> u64 {
            if index > last {
                return bytes;
            }
            let edge_ns = self.start_ns.saturating_add(index * self.bin_ns);
            let covered_ns = u128::from(edge_ns.saturating_sub(bin.start_ns)).min(length_ns);
            (u128::from(bytes) * covered_ns / length_ns) as u64
        };
        for index in first..=last {
            let from = |bytes: u64| if index == first { 0 } else { until(index, bytes) };
            let read = until(index + 1, bin.bytes_read) - from(bin.bytes_read);
            let written = until(index + 1, bin.bytes_written) - from(bin.bytes_written);
            let slot = index as usize;
            self.bytes_read[slot] = self.bytes_read[slot].saturating_add(read);
            self.bytes_written[slot] = self.bytes_written[slot].saturating_add(written);
        }
    }

    pub(crate) fn finish(self) -> Series {
        Series { bin_s: seconds(self.bin_ns), bytes_read: self.bytes_read, bytes_written: self.bytes_written }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_values_as_fine_as_the_bins() {
        let mut counts = Counts::new();
        (1..=1000u64).for_each(|value| add(&mut counts, bin(value), 1));
        let found = distribution(&counts, |value| value as f64);
        assert_eq!(found.count, 1000);
        for (quantile, value) in
            [(found.p50, 500), (found.p90, 900), (found.p95, 950), (found.p99, 990), (found.p99_9, 999)]
        {
            assert_eq!(bin(quantile as u64), bin(value), "{quantile} for {value}");
        }
        assert!((found.mean / 500.5 - 1.0).abs() < 0.01, "{}", found.mean);
        assert!(found.min == 1.0 && (1000.0..1100.0).contains(&found.max), "{} {}", found.min, found.max);
    }

    #[test]
    fn equal_sizes_are_told_exactly() {
        let size = 2u64 << 20;
        let binned = || distribution(&Counts::from([(bin(size), 32)]), |value| value as f64);
        let found = exact(binned(), Some((size, size)), 32 * size);
        let all = [found.min, found.max, found.mean, found.p50, found.p90, found.p95, found.p99, found.p99_9];
        assert_eq!(all, [size as f64; 8]);
        let contradiction = exact(binned(), Some((1, size)), 32 * size);
        assert_eq!(contradiction.min, binned().min);
    }

    #[test]
    fn a_single_value_is_every_quantile_and_damaged_counts_do_not_overflow() {
        let found = distribution(&Counts::from([(bin(4096), 3)]), |value| value as f64);
        assert_eq!([found.p50, found.p99_9].map(|value| bin(value as u64)), [bin(4096); 2]);
        let found = distribution(&(0..BINS).map(|bin| (bin, u64::MAX)).collect(), |value| value as f64);
        assert!(found.p99_9 <= HIGHEST as f64 && found.mean.is_finite());
    }
}
