//! Where phases begin and end, in programs of several habits.

use proptest::prelude::*;
use weir_profile::phases::*;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Bursts of the given lengths with the given pauses after them.
fn bursts(pattern: &[(u64, u64)]) -> Vec<Span> {
    let mut now_ns = 17 * S;
    let burst = |(length_ns, pause_ns): &(u64, u64)| {
        let start_ns = now_ns;
        now_ns += length_ns + pause_ns;
        Span { start_ns, end_ns: start_ns + length_ns, bytes_written: 1, calls: 1, ..Span::default() }
    };
    pattern.iter().map(burst).collect()
}

fn phases(pattern: &[(u64, u64)]) -> usize {
    let bursts = bursts(pattern);
    join(&bursts, learn_gap_ns(&bursts, MS)).len()
}

#[test]
fn checkpoints_at_equal_distance() {
    assert_eq!(phases(&[(S, 10 * S); 20]), 20);
    assert_eq!(phases(&[(8 * S, 2 * S); 20]), 20, "four fifths of the time in I/O");
    assert_eq!(phases(&[(S, 10 * S), (S, 13 * S), (S, 8 * S), (S, 11 * S)]), 4, "not quite equal");
}

#[test]
fn checkpoints_of_several_bursts() {
    let checkpoint = [(200 * MS, 20 * MS), (150 * MS, 30 * MS), (220 * MS, 15 * MS), (180 * MS, 60 * S)];
    assert_eq!(phases(&checkpoint.repeat(10)), 10);
    assert_eq!(phases(&checkpoint.repeat(2)), 2, "a single long pause is enough between dense phases");
}

#[test]
fn many_small_bursts_far_apart_within_a_phase() {
    let mut checkpoint = vec![(MS, 30 * MS); 100];
    checkpoint.push((MS, 60 * S));
    assert_eq!(phases(&checkpoint.repeat(4)), 4);
}

#[test]
fn one_late_checkpoint_does_not_join_the_others() {
    let mut pattern = vec![(S, 10 * S); 20];
    pattern[7].1 = 50 * S;
    assert_eq!(phases(&pattern), 20);
    pattern[7].1 = 5000 * S;
    assert_eq!(phases(&pattern), 20);
}

#[test]
fn ranks_that_are_a_little_apart_are_one_phase() {
    let tiny = MS / 20;
    let pattern =
        [(tiny, 22 * MS), (tiny, 480 * MS), (tiny, 490 * MS), (tiny, 60 * MS), (tiny, 430 * MS), (tiny, 0)];
    assert_eq!(phases(&pattern), 4);
}

#[test]
fn three_kinds_of_pauses() {
    let mut pattern = Vec::new();
    for checkpoint in 0..20 {
        pattern.extend([(50 * MS, 15 * MS); 5]);
        pattern.push((50 * MS, if checkpoint == 10 { 100 * S } else { S }));
    }
    assert_eq!(phases(&pattern), 20, "the cut that explains most is taken, not the largest jump");
}

#[test]
fn one_long_run_of_io_is_one_phase() {
    assert_eq!(phases(&[(5 * S, 50 * MS); 30]), 1, "pauses far shorter than the bursts");
    let uneven: Vec<(u64, u64)> =
        (0..30).map(|i| (5 * S, if i % 5 == 0 { 100 * MS } else { 20 * MS })).collect();
    assert_eq!(phases(&uneven), 1, "the longer pauses are no phases either");
    assert_eq!(phases(&[(S, 0)]), 1);
    assert_eq!(phases(&[]), 0);
}

#[test]
fn pauses_below_the_floor_are_within() {
    let bursts = bursts(&[(MS, MS / 2); 10]);
    let gap_ns = learn_gap_ns(&bursts, MS);
    assert_eq!((gap_ns, join(&bursts, gap_ns).len()), (MS, 1));
}

#[test]
fn characteristic_time_and_ratio_leave_out_what_was_held_back() {
    let mut phases = bursts(&[(S, 9 * S), (S, 9 * S), (S, 9 * S)]);
    assert_eq!(characteristic_time_ns(&phases), Some(10 * S));
    assert_eq!(characteristic_time_ns(&phases[..1]), None);
    assert!((io_ratio(&phases, 30 * S) - 0.1).abs() < 1e-12);
    // The same program, held back for four seconds in each phase.
    phases = bursts(&[(5 * S, 9 * S), (5 * S, 9 * S), (5 * S, 9 * S)]);
    phases.iter_mut().for_each(|phase| phase.wait_ns = 4 * S);
    assert_eq!(characteristic_time_ns(&phases), Some(10 * S));
    assert!((io_ratio(&phases, 42 * S) - 0.1).abs() < 1e-12);
    assert_eq!(io_ratio(&phases, 0), 0.0);
}

#[test]
fn ranks_held_back_together_cost_the_job_that_time_once() {
    let span = |start_ns, end_ns, wait_ns| Span { start_ns, end_ns, wait_ns, ..Span::default() };
    let united = unite(&[span(0, 10, 4), span(20, 30, 1)], &[span(1, 11, 3), span(11, 12, 2)]);
    assert_eq!(united, [span(0, 12, 5), span(20, 30, 1)]);
}

/// Short marks, ranks a little apart; the second rank leaves every third phase out.
#[test]
fn marked_phases_of_ranks_a_little_apart_are_the_same() {
    let spans = |late_ns: u64, step: usize| -> Vec<Span> {
        let at = |phase: usize| phase as u64 * S + late_ns;
        let span = |phase| Span { start_ns: at(phase), end_ns: at(phase) + 10, calls: 1, ..Span::default() };
        (0..30).filter(|phase| step == 0 || phase % step != 0).map(span).collect()
    };
    for (late_ns, step) in [(0, 0), (1000, 0), (S / 3, 0), (1000, 3), (S / 3, 3)] {
        let (all, some) = (spans(5, 0), spans(late_ns, step));
        for united in [unite_marked(&all, &some), unite_marked(&some, &all)] {
            assert_eq!(united.len(), 30, "{late_ns} ns late, {step}");
            assert_eq!(united.iter().map(|span| span.calls).sum::<u64>() as usize, 30 + some.len());
        }
    }
}

/// The next begins on one rank before the last has ended on another.
#[test]
fn marked_phases_that_overlap_their_successors_are_two() {
    let span = |start_ns, end_ns| Span { start_ns, end_ns, ..Span::default() };
    let united = unite_marked(&[span(0, 10), span(15, 25)], &[span(9, 20), span(22, 30)]);
    assert_eq!(united, [span(0, 20), span(15, 30)]);
}

/// One rank has only sums of its early phases, another of fewer: both were in the same phases.
#[test]
fn sums_of_ranks_in_the_same_phases_are_the_same_phases() {
    let phases = |late_ns: u64, limit: usize| {
        let mut list = bursts(&vec![(S, 9 * S); 1000]);
        list.iter_mut().for_each(|span| {
            (span.start_ns, span.end_ns) = (span.start_ns + late_ns, span.end_ns + late_ns);
            (span.bytes_written, span.calls) = (7, 1);
        });
        thin(&mut list, limit);
        list
    };
    for unite in [unite, unite_marked] {
        for (left, right) in [(100, 100), (100, 300), (900, 100), (1000, 100)] {
            let united = unite(&phases(0, left), &phases(MS, right));
            assert_eq!(count(&united), 1000, "{left} and {right}");
            assert_eq!(sums(&united), (2 * 7000, 2000));
            assert_eq!(characteristic_time_ns(&united), Some(10 * S));
            assert!((io_ratio(&united, 10_000 * S) - 0.1).abs() < 1e-4, "{}", io_ratio(&united, 10_000 * S));
        }
    }
}

/// So many calls that moved nothing, in a burst of that length.
fn asked(start_ns: u64, length_ns: u64) -> Span {
    Span { start_ns, end_ns: start_ns + length_ns, calls: 10, ..Span::default() }
}

fn wrote(start_ns: u64, length_ns: u64) -> Span {
    Span { start_ns, end_ns: start_ns + length_ns, bytes_written: 2 << 20, calls: 3, ..Span::default() }
}

/// What a program looks for when it starts, and between its checkpoints, is no phase.
#[test]
fn looking_for_files_is_no_phase() {
    let mut bursts: Vec<Span> = (0..10).map(|number| wrote((number + 2) * S, 40 * MS)).collect();
    bursts.extend((0..40).map(|number| asked(number * 20 * MS, 300_000)));
    bursts.extend((0..10).map(|number| asked((number + 2) * S + 500 * MS, 2 * MS)));
    bursts.sort_by_key(|span| span.start_ns);
    for found in [find(&bursts, MS), find_with(&bursts, 100 * MS)] {
        assert_eq!(found.list.len(), 10);
        assert_eq!(found.outside.calls, 50 * 10);
    }
}

/// Nine tenths of each checkpoint are the opening of its file, which no data call follows at once.
#[test]
fn opening_that_costs_is_part_of_the_phase() {
    let checkpoint = |number: u64| {
        let start_ns = number * 10 * S;
        [asked(start_ns, S), wrote(start_ns + S + 5 * MS, 100 * MS)]
    };
    let bursts: Vec<Span> = (0..10).flat_map(checkpoint).collect();
    for found in [find(&bursts, MS), find_with(&bursts, 100 * MS)] {
        assert_eq!(found.list.len(), 10);
        assert!(found.list.iter().all(|phase| phase.length_ns() == 1105 * MS), "{:?}", found.list);
    }
}

/// A sync that waited for its turn and then had nothing to do.
#[test]
fn what_was_held_back_is_kept() {
    let burst = Span { wait_ns: 500 * MS, ..asked(S, 500 * MS) };
    assert_eq!(find(&[burst], MS).list, [burst]);
    assert_eq!(find_with(&[burst], 100 * MS).list, [burst]);
}

#[test]
fn storms_of_metadata_are_phases() {
    let bursts: Vec<Span> = (0..10).map(|number| asked(number * S, 400 * MS)).collect();
    assert_eq!(find(&bursts, MS).list.len(), 10);
    assert_eq!(find_with(&bursts, 100 * MS).list.len(), 10);
}

fn any_spans() -> impl Strategy<Value = Vec<Span>> {
    prop::collection::vec((0u64..1000, 0u64..50, 0u64..1000), 0..60).prop_map(|parts| {
        let span = |(start_ns, length_ns, bytes): (u64, u64, u64)| Span {
            start_ns,
            end_ns: start_ns + length_ns,
            bytes_written: bytes,
            calls: 1,
            ..Span::default()
        };
        let mut spans: Vec<Span> = parts.into_iter().map(span).collect();
        spans.sort_by_key(|span| span.start_ns);
        spans
    })
}

fn sums(spans: &[Span]) -> (u64, u64) {
    (spans.iter().map(|span| span.bytes_written).sum(), spans.iter().map(|span| span.calls).sum())
}

proptest! {
    #[test]
    fn united_bursts_are_apart_and_lose_nothing(left in any_spans(), right in any_spans()) {
        let united = unite(&left, &right);
        prop_assert!(united.windows(2).all(|pair| pair[0].end_ns < pair[1].start_ns));
        let both = [left.clone(), right.clone()].concat();
        prop_assert_eq!(sums(&united), sums(&both));
        for moment_ns in 0..1050 {
            let within = |spans: &[Span]| spans.iter().any(|s| s.start_ns <= moment_ns && moment_ns <= s.end_ns);
            prop_assert_eq!(within(&united), within(&both));
        }
        let swapped = unite(&right, &left);
        prop_assert_eq!(united, swapped);
    }

    #[test]
    fn thinning_keeps_the_limit_and_every_byte(spans in any_spans(), limit in 1usize..20) {
        let mut bursts = unite(&spans, &[]);
        let before = bursts.clone();
        let joined = thin(&mut bursts, limit);
        prop_assert!(bursts.len() <= limit);
        prop_assert_eq!(joined as usize, before.len() - bursts.len());
        prop_assert_eq!(sums(&bursts), sums(&before));
    }

    /// Scaling all times scales the answer: there is no absolute time in the rule.
    #[test]
    fn the_rule_knows_no_absolute_time(spans in any_spans(), scale in 1u64..1000) {
        let bursts = unite(&spans, &[]);
        let scaled: Vec<Span> = bursts
            .iter()
            .map(|span| Span { start_ns: span.start_ns * scale * 64, end_ns: span.end_ns * scale * 64, ..*span })
            .collect();
        let base: Vec<Span> = bursts
            .iter()
            .map(|span| Span { start_ns: span.start_ns * 64, end_ns: span.end_ns * 64, ..*span })
            .collect();
        prop_assert_eq!(join(&base, learn_gap_ns(&base, 0)).len(), join(&scaled, learn_gap_ns(&scaled, 0)).len());
    }
}
