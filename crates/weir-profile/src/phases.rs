//! I/O phases of a job: found in its bursts, with the gap learnt from the job's own gaps.
//!
//! Pure functions on spans of time, used for the profile and for the live characteristic time alike.

/// A stretch of I/O: a burst of one process, of the job, or a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Of its length, the time the job was held back at a gate or by a share.
    pub wait_ns: u64,
    pub calls: u64,
}

impl Span {
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Its length without the time it was held back.
    pub fn own_ns(&self) -> u64 {
        self.length_ns().saturating_sub(self.wait_ns)
    }

    /// Takes in the extent, bytes and calls of another span; waits are the caller's to combine.
    pub fn cover(&mut self, other: &Span) {
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        self.calls = self.calls.saturating_add(other.calls);
    }
}

/// Unites the bursts of two ranks (or of the job so far and one more rank), each in order of their
/// starts: what overlaps becomes one. Ranks that are held back at the same time cost the job that
/// time once, so of the two sides the longer wait counts.
pub fn unite(left: &[Span], right: &[Span]) -> Vec<Span> {
    let mut united: Vec<Span> = Vec::with_capacity(left.len() + right.len());
    let mut waits_ns = [0u64; 2];
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        let from_left = r == right.len() || (l < left.len() && left[l].start_ns <= right[r].start_ns);
        let next = if from_left { left[l] } else { right[r] };
        if from_left {
            l += 1
        } else {
            r += 1
        }
        let side = usize::from(!from_left);
        match united.last_mut() {
            Some(last) if next.start_ns <= last.end_ns => {
                waits_ns[side] = waits_ns[side].saturating_add(next.wait_ns);
                last.cover(&next);
                last.wait_ns = waits_ns[0].max(waits_ns[1]).min(last.length_ns());
            }
            _ => {
                waits_ns = [0; 2];
                waits_ns[side] = next.wait_ns;
                united.push(next);
            }
        }
    }
    united
}

/// Joins neighbours that are not further apart than `gap_ns`. The bursts are those of the job, in
/// order and apart, as [`unite`] returns them.
pub fn join(bursts: &[Span], gap_ns: u64) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for burst in bursts {
        match joined.last_mut() {
            Some(last) if burst.start_ns.saturating_sub(last.end_ns) <= gap_ns => {
                let wait_ns = last.wait_ns.saturating_add(burst.wait_ns);
                last.cover(burst);
                last.wait_ns = wait_ns.min(last.length_ns());
            }
            _ => joined.push(*burst),
        }
    }
    joined
}

/// Joins across the shortest gaps until at most `limit` bursts are left; returns how many went.
pub fn thin(bursts: &mut Vec<Span>, limit: usize) -> u64 {
    let before = bursts.len();
    if before > limit {
        let mut gaps_ns = gaps_of(bursts);
        let (_, longest_joined_ns, _) = gaps_ns.select_nth_unstable(before - limit - 1);
        *bursts = join(bursts, *longest_joined_ns);
    }
    (before - bursts.len()) as u64
}

fn gaps_of(bursts: &[Span]) -> Vec<u64> {
    bursts.windows(2).map(|pair| pair[1].start_ns.saturating_sub(pair[0].end_ns)).collect()
}

/// A gap is worth the name if it is at least a tenth of what lies beside it: programs that spend up
/// to nine tenths of their time in I/O still have phases.
const COMPARABLE: u64 = 10;
/// Gaps within phases and gaps between phases differ at least by this factor …
const JUMP: f64 = 3.0;
/// … and by this one if phases that are mostly pauses would be joined by a few long ones.
const RARE_JUMP: f64 = 10.0;

/// The longest pause that is still within a phase, learnt from the pauses between the job's bursts.
///
/// Pauses of at most `floor_ns` (what the bursts themselves were made with) are within. The others are
/// sorted, and a cut is looked for that separates short ones, within a phase, from long ones, between
/// phases. A cut is taken only
///
/// - where neighbours in the sorted list jump by a factor of three,
/// - if the long pauses are comparable to the phases they separate (a tenth of them or more), and
/// - if the phases it makes are I/O for half of their time or more; otherwise only if there is more than
///   one long pause, and as many as short ones or a tenfold jump. One late checkpoint must not turn all
///   the others into a single phase.
///
/// Of several such cuts the one that splits the logarithms of the pauses best (Otsu's criterion: the
/// largest variance between the two classes) is taken. When there is none, all pauses are alike: each
/// of them separates phases if they are comparable to the bursts, and none does otherwise.
pub fn learn_gap_ns(bursts: &[Span], floor_ns: u64) -> u64 {
    let bursts = join(bursts, floor_ns);
    let mut gaps_ns = gaps_of(&bursts);
    gaps_ns.sort_unstable();
    let (Some(shortest_ns), Some(longest_ns)) = (gaps_ns.first(), gaps_ns.last()) else { return floor_ns };
    let io_ns: u64 = bursts.iter().map(Span::length_ns).sum();
    match best_cut(&gaps_ns, io_ns) {
        Some(cut) => ((gaps_ns[cut - 1] as f64) * (gaps_ns[cut] as f64)).sqrt() as u64,
        None if separates(&gaps_ns, 0, io_ns) => floor_ns.max(shortest_ns / 2),
        None => *longest_ns,
    }
}

/// Whether the pauses from `cut` on are comparable to the phases between them. Half of them are
/// longer than the median, so one short pause does not spoil the answer.
fn separates(gaps_ns: &[u64], cut: usize, io_ns: u64) -> bool {
    let within_ns: u64 = gaps_ns[..cut].iter().sum();
    let between_ns = &gaps_ns[cut..];
    let phase_ns = (io_ns + within_ns) / (between_ns.len() as u64 + 1);
    between_ns[between_ns.len() / 2].saturating_mul(COMPARABLE) >= phase_ns
}

fn best_cut(gaps_ns: &[u64], io_ns: u64) -> Option<usize> {
    let all_logs: f64 = gaps_ns.iter().copied().map(ln).sum();
    let (mut within_logs, mut within_ns) = (0.0, 0);
    let mut best: Option<(f64, usize)> = None;
    for cut in 1..gaps_ns.len() {
        within_logs += ln(gaps_ns[cut - 1]);
        within_ns += gaps_ns[cut - 1];
        let (within, between) = (cut as f64, (gaps_ns.len() - cut) as f64);
        let jump = gaps_ns[cut] as f64 / gaps_ns[cut - 1].max(1) as f64;
        let dense = io_ns >= within_ns;
        let rhythm = between >= 2.0 && (between >= within || jump >= RARE_JUMP);
        if jump < JUMP || !(dense || rhythm) || !separates(gaps_ns, cut, io_ns) {
            continue;
        }
        let distance = (all_logs - within_logs) / between - within_logs / within;
        let variance = within * between * distance * distance;
        if best.is_none_or(|(most, _)| variance > most) {
            best = Some((variance, cut));
        }
    }
    best.map(|(_, cut)| cut)
}

/// The natural logarithm, by the series of the area tangent. Weir loads no mathematical library: that would be one
/// more for every program to load.
fn ln(gap_ns: u64) -> f64 {
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    let bits = (gap_ns.max(1) as f64).to_bits();
    let one = 1f64.to_bits();
    let exponent = (bits >> MANTISSA_BITS) - (one >> MANTISSA_BITS);
    let mantissa = f64::from_bits(bits & ((1 << MANTISSA_BITS) - 1) | one);
    // At most a third, so that the terms fall below what a float can hold.
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut power, mut sum) = (z, 0.0);
    for odd in (1..32).step_by(2) {
        sum += power / f64::from(odd);
        power *= z * z;
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * sum
}

/// Characteristic time `w_iter`: the mean time between the starts of consecutive phases, without the
/// time the job was held back. Unknown before the second phase.
pub fn characteristic_time_ns(phases: &[Span]) -> Option<u64> {
    let (last, earlier) = phases.split_last()?;
    let first = earlier.first()?;
    let waited_ns = earlier.iter().fold(0u64, |sum, phase| sum.saturating_add(phase.wait_ns));
    let span_ns = last.start_ns.saturating_sub(first.start_ns).saturating_sub(waited_ns);
    Some(span_ns / earlier.len() as u64)
}

/// I/O ratio `alpha_io`: the share of `run_ns` that was spent in phases, time held back not counted.
/// Marked phases may overlap; the time they share counts once.
pub fn io_ratio(phases: &[Span], run_ns: u64) -> f64 {
    let apart = unite(phases, &[]);
    let waited_ns: u64 = apart.iter().map(|phase| phase.wait_ns).sum();
    let io_ns: u64 = apart.iter().map(Span::own_ns).sum();
    let own_run_ns = run_ns.saturating_sub(waited_ns);
    if own_run_ns == 0 { 0.0 } else { (io_ns as f64 / own_run_ns as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn logarithms_are_as_exact_as_a_float() {
        for value in [1, 2, 3, 7, 10, 1023, 1025, 999_999_999, u64::MAX / 3] {
            let (ours, exact) = (super::ln(value), (value as f64).ln());
            assert!((ours - exact).abs() <= 1e-14 * exact.max(1.0), "{value}: {ours} and not {exact}");
        }
    }
}
