//! When phases would have ended had the storage been shared fairly all the time.

use super::metrics::PhaseOutcome;
use super::storage::{Demand, Storage};

/// By phase, in the order given: when it would have ended if all phases had begun when they did and every job in its
/// phase had always had an equal part of the bandwidth, or what it can use of it (`caps`, by job).
pub fn fair_ends_ns(phases: &[PhaseOutcome], caps: &[f64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..phases.len()).collect();
    order.sort_by_key(|&index| (phases[index].began_ns, index));
    let mut ends_ns = vec![0; phases.len()];
    // Phases under way, and what each has left.
    let mut under_way: Vec<(usize, f64)> = Vec::new();
    let (mut demands, mut rates) = (Vec::new(), Vec::new());
    let mut now_ns = 0.0;
    let mut arrivals = order.into_iter().peekable();
    loop {
        let arrival_ns = arrivals.peek().map_or(f64::INFINITY, |&index| phases[index].began_ns as f64);
        demands.clear();
        demands
            .extend(under_way.iter().map(|&(index, _)| Demand { share: 1.0, cap: caps[phases[index].job] }));
        Storage::WorkConserving.rates(&demands, &mut rates);
        let lengths_ns = under_way.iter().zip(&rates).map(|(&(_, left_ns), rate)| left_ns / rate);
        let end_ns = now_ns + lengths_ns.fold(f64::INFINITY, f64::min);
        let next_ns = end_ns.min(arrival_ns);
        if next_ns == f64::INFINITY {
            return ends_ns;
        }
        for ((_, left_ns), rate) in under_way.iter_mut().zip(&rates) {
            *left_ns -= rate * (next_ns - now_ns);
        }
        now_ns = next_ns;
        under_way.retain(|&(index, left_ns)| {
            // Half a nanosecond: ends are rounded to one.
            let goes_on = left_ns > 0.5;
            if !goes_on {
                ends_ns[index] = now_ns.round() as u64;
            }
            goes_on
        });
        while let Some(index) = arrivals.next_if(|&index| phases[index].began_ns as f64 <= now_ns) {
            under_way.push((index, phases[index].volume_ns as f64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(job: usize, began_ns: u64, volume_ns: u64) -> PhaseOutcome {
        PhaseOutcome { job, began_ns, volume_ns, ended_ns: None }
    }

    #[test]
    fn phases_share_while_they_meet() {
        let phases = [phase(1, 40, 30), phase(0, 0, 100)];
        assert_eq!(fair_ends_ns(&phases, &[1.0, 1.0]), [100, 130]);
        assert_eq!(fair_ends_ns(&phases, &[1.0, 0.1]), [340, 107], "a small cap runs beside");
    }
}
