//! The phase gap: the longest pause that is still within a phase.

use super::rhythm::{evenness, main_period_ns, regularity};
use super::{Span, join};
use weir_engine::math::ln;

/// A gap is worth the name if it is at least a tenth of what lies beside it: programs that spend up
/// to nine tenths of their time in I/O still have phases.
const COMPARABLE: u64 = 10;
/// Pauses within phases and pauses between phases differ at least by this factor …
const JUMP: f64 = 3.0;
/// … by this one if phases that are mostly pauses would be joined by a few long ones …
const RARE_JUMP: f64 = 10.0;
/// … and by this one if the phases are so regular, and so many, that they speak for themselves.
const REGULAR_JUMP: f64 = 1.5;
const REGULAR: f64 = 0.75;
const MIN_REGULAR_PHASES: usize = 4;
/// What the pauses do not say themselves has to be so much better to be taken.
const BETTER: f64 = 0.2;
/// Scores nearer than this are equal, so that rounding decides nothing.
const EQUAL: f64 = 1e-9;

/// The longest pause that is still within a phase, learnt from the pauses between bursts, none of which is tiny
/// (see [`super::find()`]).
///
/// Where there are sums, the pauses after them tell. Pauses of at most `floor_ns` (what the bursts themselves were made with) are within.
/// The others are sorted, and a cut is looked for that separates short ones, within a phase, from long ones, between
/// phases. A cut is taken only if the long pauses are comparable to the phases they separate (a tenth of them or more), and
///
/// - either neighbours in the sorted list jump by a factor of three there, and the phases are I/O for half of their time or more, or
///   there is more than one long pause, and as many as short ones or a tenfold jump. One late checkpoint must not turn all
///   the others into a single phase;
/// - or they jump by half, and the phases it makes are four or more and begin at regular times.
///
/// Of several such cuts the one is taken that explains most: after which phases begin at the most regular times, move the most even bytes,
/// and which splits the logarithms of the pauses best (Otsu's criterion).
/// When there is none, periods in the bytes over time (autocorrelation) may tell how many phases there are. Otherwise all pauses are alike: each
/// of them separates phases if they are comparable to the bursts, and none does otherwise.
pub fn learn_gap_ns(bursts: &[Span], floor_ns: u64) -> u64 {
    let bursts = join(bursts, floor_ns);
    let single = bursts.iter().rposition(|burst| burst.more > 0).map_or(0, |sum| sum + 1);
    let pauses = Pauses::of(&bursts[single..]);
    let sorted_ns = &pauses.sorted_ns;
    let (Some(shortest_ns), Some(longest_ns)) = (sorted_ns.first(), sorted_ns.last()) else {
        return floor_ns;
    };
    if let Some(cut) = pauses.best_cut() {
        return pauses.gap_ns(cut);
    }
    if let Some(cut) = pauses.periodic_cut() {
        return pauses.gap_ns(cut);
    }
    if pauses.separate(0) { floor_ns.max(shortest_ns / 2) } else { *longest_ns }
}

/// The pauses between bursts, in order of length. A cut is the number of those that are within phases.
struct Pauses<'a> {
    bursts: &'a [Span],
    sorted_ns: Vec<u64>,
    /// Time in bursts.
    io_ns: u64,
}

impl Pauses<'_> {
    fn of(bursts: &[Span]) -> Pauses<'_> {
        let pause_ns = |pair: &[Span]| pair[1].start_ns.saturating_sub(pair[0].end_ns);
        let mut sorted_ns: Vec<u64> = bursts.windows(2).map(pause_ns).collect();
        sorted_ns.sort_unstable();
        Pauses { bursts, sorted_ns, io_ns: bursts.iter().map(Span::length_ns).sum() }
    }

    /// The gap that separates the pauses at a cut.
    fn gap_ns(&self, cut: usize) -> u64 {
        ((self.sorted_ns[cut - 1] as f64) * (self.sorted_ns[cut] as f64)).sqrt() as u64
    }

    fn jump(&self, cut: usize) -> f64 {
        self.sorted_ns[cut] as f64 / self.sorted_ns[cut - 1].max(1) as f64
    }

    /// Whether the pauses from `cut` on are comparable to the phases between them. Half of them are
    /// longer than the median, so one short pause does not spoil the answer.
    fn separate(&self, cut: usize) -> bool {
        let within_ns: u64 = self.sorted_ns[..cut].iter().sum();
        let between_ns = &self.sorted_ns[cut..];
        let phase_ns = (self.io_ns + within_ns) / (between_ns.len() as u64 + 1);
        between_ns[between_ns.len() / 2].saturating_mul(COMPARABLE) >= phase_ns
    }

    /// How well the phases are explained that a gap makes: how regular they are, and how even in bytes.
    fn explained(&self, phases: &[Span]) -> f64 {
        regularity(phases) + evenness(phases) / 2.0
    }

    fn best_cut(&self) -> Option<usize> {
        let logs: Vec<f64> = self.sorted_ns.iter().map(|pause_ns| ln(*pause_ns as f64)).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|log| (log - mean) * (log - mean)).sum::<f64>();
        let (mut within_logs, mut within_ns) = (0.0, 0);
        let mut best: Option<(f64, usize)> = None;
        for cut in 1..logs.len() {
            within_logs += logs[cut - 1];
            within_ns += self.sorted_ns[cut - 1];
            let (within, between) = (cut as f64, count - cut as f64);
            let jump = self.jump(cut);
            if jump < REGULAR_JUMP || !self.separate(cut) {
                continue;
            }
            let dense = self.io_ns >= within_ns;
            let rhythm = between >= 2.0 && (between >= within || jump >= RARE_JUMP);
            let phases = join(self.bursts, self.gap_ns(cut));
            let clear = jump >= JUMP && (dense || rhythm);
            let regular = phases.len() >= MIN_REGULAR_PHASES && regularity(&phases) >= REGULAR;
            if !clear && !regular {
                continue;
            }
            let distance = within_logs / within - mean;
            let split = within * count / between * distance * distance / variance;
            let score = self.explained(&phases) + split / 2.0 - if clear { 0.0 } else { BETTER };
            if best.is_none_or(|(most, _)| score > most + EQUAL) {
                best = Some((score, cut));
            }
        }
        // Without a jump that says so, all pauses may be between phases.
        let (score, cut) = best?;
        let alone = self.explained(self.bursts) + 0.5;
        let clear = self.jump(cut) >= JUMP;
        (clear || !self.separate(0) || score > alone).then_some(cut)
    }

    /// The cut that makes phases as often as the bytes over time repeat themselves, if those are more regular than the bursts.
    fn periodic_cut(&self) -> Option<usize> {
        let alone = regularity(self.bursts);
        if self.bursts.len() < 2 * MIN_REGULAR_PHASES || alone >= REGULAR {
            return None;
        }
        let period_ns = main_period_ns(self.bursts)?;
        let span_ns = self.bursts.last()?.start_ns - self.bursts.first()?.start_ns;
        let between = (span_ns as f64 / period_ns + 0.5) as usize;
        let cut = self.sorted_ns.len().checked_sub(between)?;
        // Of the cuts that make about as many, the one at the largest jump.
        let near = between / 10;
        let cuts = cut.saturating_sub(near).max(1)..(cut + near + 1).min(self.sorted_ns.len());
        let cut = cuts.max_by(|a, b| self.jump(*a).total_cmp(&self.jump(*b)))?;
        let phases = join(self.bursts, self.gap_ns(cut));
        let is_better = self.jump(cut) > 1.0 && self.separate(cut) && regularity(&phases) > alone + BETTER;
        is_better.then_some(cut)
    }
}
