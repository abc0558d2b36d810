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
    /// How many more than one it stands for: of a long run's early phases only sums are kept.
    pub more: u64,
    /// Of its length, the pauses between those.
    pub pause_ns: u64,
}

impl Span {
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// How many it stands for.
    pub fn count(&self) -> u64 {
        self.more.saturating_add(1)
    }

    /// Its length without pauses.
    pub fn busy_ns(&self) -> u64 {
        self.length_ns().saturating_sub(self.pause_ns)
    }

    /// Its length without pauses and without the time it was held back.
    pub fn own_ns(&self) -> u64 {
        self.busy_ns().saturating_sub(self.wait_ns)
    }

    /// When the last of those it stands for began, if all are as long.
    fn last_start_ns(&self) -> u64 {
        if self.more == 0 { self.start_ns } else { self.end_ns - self.busy_ns() / self.count() }
    }

    /// Stands for a later span as well.
    pub fn fold(&mut self, later: &Span) {
        let between_ns = later.start_ns.saturating_sub(self.end_ns);
        self.pause_ns = self.pause_ns.saturating_add(between_ns).saturating_add(later.pause_ns);
        self.more = self.more.saturating_add(later.count());
        self.wait_ns = self.wait_ns.saturating_add(later.wait_ns);
        self.cover(later);
    }

    /// Takes in the extent, bytes and calls of another span; what else there is the caller combines.
    pub fn cover(&mut self, other: &Span) {
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        self.calls = self.calls.saturating_add(other.calls);
    }
}

/// What one of two sides brings into a united span.
#[derive(Clone, Copy, Default)]
struct Side {
    count: u64,
    busy_ns: u64,
    wait_ns: u64,
    /// Where its spans ended so far, in this one or before.
    end_ns: Option<u64>,
}

impl Side {
    fn add(&mut self, span: &Span) {
        self.count = self.count.saturating_add(span.count());
        self.busy_ns = self.busy_ns.saturating_add(span.busy_ns());
        self.wait_ns = self.wait_ns.saturating_add(span.wait_ns);
        self.end_ns = self.end_ns.max(Some(span.end_ns));
    }
}

/// Unites the bursts of two ranks (or of the job so far and one more rank), each in order of their
/// starts: what overlaps becomes one. Ranks that are held back at the same time cost the job that
/// time once, so of the two sides the longer wait counts. Where one side has only sums, the ranks are
/// taken to have been in the same phases: of the two sides the larger number counts, and the longer time.
pub fn unite(left: &[Span], right: &[Span]) -> Vec<Span> {
    unite_if(left, right, |last, next, _, _| next.start_ns <= last.end_ns)
}

/// The same for marked phases of one name. A rank is in one of them at a time: one that begins before other
/// ranks have ended the one before is another. They are often short, and ranks a little apart: a phase of one rank and
/// one of another that are nearer to each other than to their neighbours are the same.
pub fn unite_marked(left: &[Span], right: &[Span]) -> Vec<Span> {
    unite_if(left, right, |last, next, side, others_next| {
        let distance_ns = next.start_ns.saturating_sub(last.end_ns);
        let before_ns = side.end_ns.map(|end_ns| next.start_ns.saturating_sub(end_ns));
        let after_ns = others_next.map(|other| other.start_ns.saturating_sub(next.end_ns));
        let is_near = || before_ns.into_iter().chain(after_ns).all(|neighbour_ns| distance_ns < neighbour_ns);
        let is_free = side.count == 0 || last.more > 0 || next.more > 0;
        is_free && (next.start_ns <= last.end_ns || is_near())
    })
}

/// `is_part` says whether the next span is a part of the last united one, from what its side has brought so far and
/// the next of the other side.
fn unite_if(
    left: &[Span],
    right: &[Span],
    is_part: impl Fn(&Span, &Span, &Side, Option<&Span>) -> bool,
) -> Vec<Span> {
    let mut united: Vec<Span> = Vec::with_capacity(left.len() + right.len());
    let mut sides = [Side::default(); 2];
    let mut rest = [left, right];
    loop {
        let from = match [rest[0].first(), rest[1].first()] {
            [Some(left), Some(right)] => usize::from(left.start_ns > right.start_ns),
            [_, right] => usize::from(right.is_some()),
        };
        let Some((next, later)) = rest[from].split_first() else { return united };
        rest[from] = later;
        let others_next = rest[1 - from].first();
        match united.last_mut().filter(|last| is_part(last, next, &sides[from], others_next)) {
            Some(last) => {
                sides[from].add(next);
                last.cover(next);
                last.more = last.more.max(next.more);
                combine(last, &sides);
            }
            None => {
                sides = sides.map(|side| Side { end_ns: side.end_ns, ..Side::default() });
                sides[from].add(next);
                united.push(*next);
            }
        }
    }
}

/// Gives a united span what its two sides amount to.
fn combine(span: &mut Span, [left, right]: &[Side; 2]) {
    if span.more > 0 {
        span.more = left.count.max(right.count) - 1;
        span.pause_ns = span.length_ns().saturating_sub(left.busy_ns.max(right.busy_ns));
    }
    span.wait_ns = left.wait_ns.max(right.wait_ns).min(span.busy_ns());
}

/// Joins neighbours that are not further apart than `gap_ns`. The bursts are those of the job, in
/// order and apart, as [`unite`] returns them.
pub fn join(bursts: &[Span], gap_ns: u64) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for burst in bursts {
        match joined.last_mut() {
            Some(last) if burst.start_ns.saturating_sub(last.end_ns) <= gap_ns => {
                last.cover(burst);
                last.more = last.more.saturating_add(burst.more);
                last.pause_ns = last.pause_ns.saturating_add(burst.pause_ns);
                last.wait_ns = last.wait_ns.saturating_add(burst.wait_ns).min(last.busy_ns());
            }
            _ => joined.push(*burst),
        }
    }
    joined
}

/// Keeps the limit: of the older ones, two and two become a sum, until at most `limit` are left. Returns how
/// many went.
pub fn thin(phases: &mut Vec<Span>, limit: usize) -> u64 {
    let before = phases.len();
    while phases.len() > limit.max(1) {
        let older = (phases.len() / 2).max(2);
        let mut index = 0;
        phases.dedup_by(|later, earlier| {
            index += 1;
            let second = index < older && index % 2 == 1;
            if second {
                earlier.fold(later);
            }
            second
        });
    }
    (before - phases.len()) as u64
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
/// Where there are sums, the pauses after them tell. Pauses of at most `floor_ns` (what the bursts themselves were made with) are within. The others are
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
    let single = bursts.iter().rposition(|burst| burst.more > 0).map_or(0, |sum| sum + 1);
    let bursts = &bursts[single..];
    let mut gaps_ns = gaps_of(bursts);
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
    let (first, last) = (phases.first()?, phases.last()?);
    let earlier = count(phases).saturating_sub(1);
    let waits_ns = phases[..phases.len() - 1].iter().map(|phase| phase.wait_ns);
    let last_wait_ns = u128::from(last.wait_ns) * u128::from(last.more) / u128::from(last.count());
    let waited_ns = waits_ns.fold(last_wait_ns as u64, u64::saturating_add);
    let span_ns = last.last_start_ns().saturating_sub(first.start_ns).saturating_sub(waited_ns);
    span_ns.checked_div(earlier)
}

/// How many phases there are, those included of which only sums are kept.
pub fn count(phases: &[Span]) -> u64 {
    phases.iter().fold(0, |sum, phase| sum.saturating_add(phase.count()))
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
