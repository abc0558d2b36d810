//! Which bursts make phases, and which are too small for one.

use super::{MAX_FLEETING_NS, Span, join, learn_gap_ns};

/// The phases of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// In order of their starts.
    pub list: Vec<Span>,
    /// The longest pause that is still within a phase.
    pub gap_ns: u64,
    /// Bytes and calls of the tiny bursts that lie in no phase.
    pub outside: Span,
}

/// A burst that moved more than this is never tiny, however large others are.
const MAX_TINY_BYTES: u64 = 16 << 10;
/// A tiny burst moved at most this part of what the large ones did.
const TINY: u64 = 16;
/// With so many bursts or more, the largest ones are left out when it is asked how much the large ones move …
const MANY: usize = 8;
/// … namely so many: a read at the start and a checkpoint at the end say little of the others.
const OUTLIERS: usize = 2;
/// Bursts of few bytes count if together they cost this part of the time of all I/O, such as syncs.
const COSTLY: u64 = 4;
/// Phases that turn out to be tiny are taken out and the others looked at again, at most so often.
const ROUNDS: usize = 3;

/// All I/O that counts is one phase if it takes less than this part of the time in which there was any I/O …
const ONE_PHASE: u64 = 10;
/// … and its longest pause is shorter than this part of the rest.
const ONE_PAUSE: u64 = 100;

/// Finds the phases of a job whose gap nobody has given, in its bursts as [`super::unite`] returns them.
///
/// A line in a log file is no phase: tiny bursts are left out first, the gap is learnt from the pauses between the others, and phases that
/// are tiny beside the other phases are left out too. The bytes of tiny bursts count in the phase they lie in, or `outside`.
/// `floor_ns` is the pause that the bursts themselves were made with.
pub fn find(bursts: &[Span], floor_ns: u64) -> Found {
    let mut kept = without_tiny(&join(bursts, floor_ns), floor_ns);
    let mut gap_ns = learn_gap_ns(&kept, floor_ns);
    for _ in 0..ROUNDS {
        let all = join(&kept, gap_ns);
        let list = without_tiny(&all, floor_ns);
        if list.len() == all.len() {
            break;
        }
        let mut phases = list.iter().peekable();
        kept.retain(|burst| {
            while phases.next_if(|phase| phase.end_ns < burst.start_ns).is_some() {}
            phases.peek().is_some_and(|phase| phase.start_ns <= burst.start_ns)
        });
        gap_ns = learn_gap_ns(&kept, floor_ns);
    }
    if let Some(longest_ns) = longest_pause_of_one(&kept, bursts) {
        gap_ns = gap_ns.max(longest_ns);
    }
    let mut list = join(&kept, gap_ns);
    let outside = share_out(bursts, &mut list);
    Found { list, gap_ns, outside }
}

/// The phases of a job whose gap is given. Calls that move nothing, such as opens, make a phase of their own only if they cost as
/// much as phases do.
pub fn find_with(bursts: &[Span], gap_ns: u64) -> Found {
    let empty = are_empty(bursts, MAX_FLEETING_NS);
    let kept: Vec<Span> =
        bursts.iter().zip(empty).filter(|(_, is_empty)| !is_empty).map(|(burst, _)| *burst).collect();
    let mut list = join(&kept, gap_ns);
    let outside = share_out(bursts, &mut list);
    Found { list, gap_ns, outside }
}

/// The longest pause between the bursts that count, if they are so near to each other beside the time in which the job did tiny I/O only that they are
/// one phase, whatever their pauses look like.
fn longest_pause_of_one(kept: &[Span], bursts: &[Span]) -> Option<u64> {
    let extent_ns = |spans: &[Span]| Some(spans.last()?.end_ns.saturating_sub(spans.first()?.start_ns));
    let (kept_ns, all_ns) = (extent_ns(kept)?, extent_ns(bursts)?);
    let pause_ns = |pair: &[Span]| pair[1].start_ns.saturating_sub(pair[0].end_ns);
    let longest_ns = kept.windows(2).map(pause_ns).max()?;
    let is_one = kept_ns.saturating_mul(ONE_PHASE) < all_ns
        && longest_ns.saturating_mul(ONE_PAUSE) < all_ns.saturating_sub(kept_ns);
    is_one.then_some(longest_ns)
}

/// Gives every phase the bytes and calls of all bursts that lie in it. Returns the sum of those that lie in none.
fn share_out(bursts: &[Span], phases: &mut [Span]) -> Span {
    let mut outside = Span::default();
    for phase in phases.iter_mut() {
        (phase.bytes_read, phase.bytes_written, phase.calls) = (0, 0, 0);
    }
    let mut next = 0;
    for burst in bursts {
        while phases.get(next).is_some_and(|phase| phase.end_ns < burst.start_ns) {
            next += 1;
        }
        let within = phases.get_mut(next).filter(|phase| phase.start_ns <= burst.start_ns);
        let to = within.unwrap_or(&mut outside);
        to.bytes_read = to.bytes_read.saturating_add(burst.bytes_read);
        to.bytes_written = to.bytes_written.saturating_add(burst.bytes_written);
        to.calls = to.calls.saturating_add(burst.calls);
    }
    outside
}

/// Makes fewer of too many bursts, in the way in which phases will be found in them: those of one phase become one, and tiny ones give what
/// they moved to the burst before them.
pub fn gather(bursts: &[Span], floor_ns: u64) -> Vec<Span> {
    let gap_ns = find(bursts, floor_ns).gap_ns;
    let bursts = join(bursts, floor_ns);
    let tiny = are_tiny(&bursts, floor_ns);
    let mut kept: Vec<Span> = Vec::new();
    for (burst, is_tiny) in bursts.iter().zip(tiny) {
        match kept.last_mut() {
            Some(last) if is_tiny => {
                last.bytes_read = last.bytes_read.saturating_add(burst.bytes_read);
                last.bytes_written = last.bytes_written.saturating_add(burst.bytes_written);
                last.calls = last.calls.saturating_add(burst.calls);
            }
            _ => kept.push(*burst),
        }
    }
    join(&kept, gap_ns)
}

fn without_tiny(spans: &[Span], floor_ns: u64) -> Vec<Span> {
    let tiny = are_tiny(spans, floor_ns);
    spans.iter().zip(tiny).filter(|(_, is_tiny)| !is_tiny).map(|(span, _)| *span).collect()
}

/// Which of these bursts are no phases, and no parts of one, by what they move and cost beside the others: a line of a log file beside dumps.
///
/// Sums of several phases are never tiny. Where all move alike, none is. Times up to `floor_ns` are no cost: bursts are not seen more finely.
pub fn are_tiny(spans: &[Span], floor_ns: u64) -> Vec<bool> {
    are_small(spans, floor_ns, MAX_TINY_BYTES.min(large_bytes(spans) / TINY))
}

/// Which of these bursts moved nothing, and cost little beside those that did: they make no phase, whatever the gap.
pub fn are_empty(spans: &[Span], floor_ns: u64) -> Vec<bool> {
    are_small(spans, floor_ns, 0)
}

/// Which of these moved at most so many bytes, and cost little beside the others.
fn are_small(spans: &[Span], floor_ns: u64, limit_bytes: u64) -> Vec<bool> {
    // A burst that was held back says how long the job waited, even if it moved nothing then.
    let is_small = |span: &&Span| {
        span.more == 0 && span.bytes() <= limit_bytes && (limit_bytes > 0 || span.wait_ns == 0)
    };
    let is_long = |span: &&Span| span.own_ns() > floor_ns;
    let own_ns = |spans: &mut dyn Iterator<Item = &Span>| {
        spans.fold((0u64, 0u64), |(sum_ns, count), span| {
            (sum_ns.saturating_add(span.own_ns()), count + span.count())
        })
    };
    let (small_ns, _) = own_ns(&mut spans.iter().filter(is_small).filter(is_long));
    let (large_ns, large) = own_ns(&mut spans.iter().filter(|span| !is_small(span)));
    let are_costly = small_ns.saturating_mul(COSTLY) > small_ns.saturating_add(large_ns);
    let mean_large_ns = large_ns / large.max(1);
    let is_tiny = |span: &Span| {
        is_small(&span) && !(are_costly && is_long(&span) && span.own_ns() >= mean_large_ns / 2)
    };
    spans.iter().map(is_tiny).collect()
}

/// What a large burst moves: those that move as much or more have moved a third of all bytes.
fn large_bytes(spans: &[Span]) -> u64 {
    let mut sizes: Vec<(u64, u64)> = spans.iter().map(|span| (span.mean_bytes(), span.bytes())).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let sizes = if sizes.len() >= MANY { &sizes[OUTLIERS..] } else { &sizes[..] };
    let total = sizes.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let mut so_far = 0u64;
    let is_third = |(_, bytes): &&(u64, u64)| {
        so_far = so_far.saturating_add(*bytes);
        so_far >= total / 3
    };
    sizes.iter().find(is_third).map_or(0, |(mean_bytes, _)| *mean_bytes)
}
