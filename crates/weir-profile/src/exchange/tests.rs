use super::*;
use crate::extents::{Transfers, View};
use crate::profile::Exchange;

const KIB: u64 = 1 << 10;
/// What each rank hands over, in 16 blocks when they are interleaved.
const PART: u64 = 64 * KIB;
const BLOCK: u64 = PART / 16;

fn whole_file(first: u64, bytes: u64) -> Option<Access> {
    Some(Access { view: View::WHOLE_FILE, first, bytes })
}

/// Block after block, rank after rank.
fn interleaved(rank: u64, nranks: u64) -> Option<Access> {
    let stride = nranks * BLOCK;
    let view = View {
        displacement: rank * BLOCK,
        tile_extent: 16 * stride,
        tile_bytes: PART,
        first: 0,
        block_bytes: BLOCK,
        stride,
    };
    Some(Access { view, first: 0, bytes: PART })
}

/// A rank's call that lasted 10 ms, 1 ms of it in the file if it moved anything.
fn call(nranks: u64, access: Option<Access>, transfers: &[(u64, u64)]) -> record::Collective {
    let mut moved = Transfers::NONE;
    transfers.iter().for_each(|(start, bytes)| moved.add(*start, *bytes));
    let transfers: Vec<Blocks> = moved.rows().into_iter().filter(|row| row.bytes > 0).collect();
    record::Collective {
        sequence: 1,
        file: 1,
        op: "MPI_File_write_at_all".into(),
        start_ns: 1_000_000_000,
        end_ns: 1_010_000_000,
        bytes: access.map_or(PART, |access| access.bytes),
        file_ns: if transfers.is_empty() { 0 } else { 1_000_000 },
        file_bytes: transfers.iter().map(Blocks::total_bytes).sum(),
        gate_ns: 0,
        nranks,
        access,
        transfers,
    }
}

/// Two ranks on each node.
fn add(all: &mut Exchanges, rank: u64, call: &record::Collective) {
    let node = all.node(&format!("node{}", rank / 2));
    all.add(Source { rank, node, generation: 0, lane: 0 }, "/data/a", call);
}

fn exchange(calls: impl IntoIterator<Item = record::Collective>) -> Exchange {
    let mut all = Exchanges::default();
    calls.into_iter().zip(0..).for_each(|(call, rank)| add(&mut all, rank, &call));
    all.finish(0)
}

/// Rank, own bytes, those of its node, those of other nodes.
fn table(exchange: &Exchange) -> Vec<(u64, u64, u64, u64)> {
    let [file] = exchange.files.as_slice() else { panic!("{exchange:?}") };
    let row = |row: &AggregatorShare| (row.rank, row.own_bytes, row.intra_bytes, row.inter_bytes);
    file.aggregators.iter().map(row).collect()
}

#[test]
fn blocks_of_ranks_go_to_whoever_moved_their_place() {
    let moved = |rank: u64| if rank.is_multiple_of(2) { vec![(rank * PART, 2 * PART)] } else { vec![] };
    let found = exchange((0..4).map(|rank| call(4, whole_file(rank * PART, PART), &moved(rank))));
    assert_eq!(table(&found), [(0, PART, PART, 0), (2, PART, PART, 0)]);
    assert_eq!((found.calls, found.left_out, found.bytes, found.estimated_bytes), (1, 0, 4 * PART, 0));
    assert_eq!(found.files[0].aggregators[1].host, "node1");
}

#[test]
fn interleaved_blocks_are_counted_exactly() {
    // The second aggregator's half begins in the middle of a block of rank 1.
    let cut = 4 * PART / 2 + BLOCK + BLOCK / 2;
    let moved = [vec![(0, cut)], vec![], vec![(cut, 4 * PART - cut)], vec![]];
    let found = exchange(moved.iter().zip(0..).map(|(moved, rank)| call(4, interleaved(rank, 4), moved)));
    let half = PART / 2;
    let first = (0, half + BLOCK, half + BLOCK / 2, 2 * half);
    assert_eq!(table(&found), [first, (2, half, half, 2 * half - BLOCK - BLOCK / 2)]);
    assert_eq!(found.estimated_bytes, 0);
}

#[test]
fn an_aggregator_may_move_only_its_groups_blocks() {
    // Open MPI's reads: each aggregator takes the blocks of its own group, two of every four.
    let group = |first: u64| (0..16).map(|row| ((4 * row + first) * BLOCK, 2 * BLOCK)).collect::<Vec<_>>();
    let moved = [group(0), vec![], group(2), vec![]];
    let found = exchange(moved.iter().zip(0..).map(|(moved, rank)| call(4, interleaved(rank, 4), moved)));
    assert_eq!(table(&found), [(0, PART, PART, 0), (2, PART, PART, 0)]);
    assert_eq!(found.estimated_bytes, 0);
}

#[test]
fn what_several_moved_is_shared_out() {
    // Both read nearly everything: ranks 1 and 3 may have been served by either.
    let moved = [vec![(0, 4 * PART)], vec![], vec![(0, 4 * PART)], vec![]];
    let found = exchange(moved.iter().zip(0..).map(|(moved, rank)| call(4, interleaved(rank, 4), moved)));
    assert_eq!(table(&found), [(0, PART, PART / 2, PART / 2), (2, PART, PART / 2, PART / 2)]);
    assert_eq!(found.estimated_bytes, 2 * PART);
}

#[test]
fn bytes_of_unknown_place_follow_what_was_moved() {
    let moved = [vec![(0, 3 * PART)], vec![], vec![(3 * PART, PART)], vec![]];
    let found = exchange(moved.iter().map(|moved| call(4, None, moved)));
    let (most, least) = (PART / 4 * 3, PART / 4);
    assert_eq!(table(&found), [(0, most, most, 2 * most), (2, least, least, 2 * least)]);
    assert_eq!(found.estimated_bytes, 4 * PART);
    // With one aggregator there is nothing to estimate.
    let moved = [vec![(0, 4 * PART)], vec![], vec![], vec![]];
    let found = exchange(moved.iter().map(|moved| call(4, None, moved)));
    assert_eq!((table(&found), found.estimated_bytes), (vec![(0, PART, PART, 2 * PART)], 0));
}

#[test]
fn calls_that_are_not_complete_are_left_out() {
    let part = |rank: u64| call(4, whole_file(rank * PART, PART), &[(rank * PART, PART)]);
    assert_eq!(exchange((0..4).map(part)).calls, 1);
    // A rank was killed before it could note the call.
    let missing = exchange((0..3).map(part));
    assert_eq!((missing.calls, missing.left_out), (0, 1));
    // One moved bytes, and it is not known which.
    let blind = exchange((0..4).map(|rank| record::Collective {
        transfers: if rank == 2 { Vec::new() } else { part(rank).transfers },
        ..part(rank)
    }));
    assert_eq!((blind.calls, blind.left_out), (0, 1));
    // Two calls of other communicators on the same file, at the same number.
    let apart = exchange((0..4).map(|rank| record::Collective { nranks: 2, ..part(rank) }));
    assert_eq!((apart.calls, apart.left_out), (0, 1));
    // Alone with its file there is nobody to exchange with.
    let alone = exchange([record::Collective { nranks: 1, ..part(0) }]);
    assert_eq!((alone.calls, alone.left_out), (0, 0));
}

#[test]
fn time_is_divided_into_gate_file_lateness_and_shuffle() {
    let mut parts: Vec<_> =
        (0..2).map(|rank| call(2, whole_file(rank * PART, PART), &[(rank * PART, PART)])).collect();
    parts[0].gate_ns = 2_000_000;
    parts[1].start_ns += 3_000_000;
    let found = exchange(parts);
    let times = |row: &AggregatorShare| [row.file_s, row.gate_s, row.late_s, row.shuffle_s];
    let rows: Vec<_> = found.files[0].aggregators.iter().map(times).collect();
    assert_eq!(rows, [[0.001, 0.002, 0.003, 0.004], [0.001, 0.0, 0.0, 0.006]]);
}

#[test]
fn who_gets_less_has_delay_to_give() {
    // 1 GB/s within a node, 0.1 GB/s between nodes, 20 µs. Rank 0 gets a message from another node.
    let mut all = Exchanges::default();
    for sequence in 1..=20 {
        let bytes = sequence * PART;
        let place = |rank: u64| whole_file(rank * bytes, bytes);
        let moved = [vec![(0, 3 * bytes)], vec![], vec![(3 * bytes, bytes)], vec![]];
        for (rank, moved) in (0..4).zip(&moved) {
            let mut part = call(4, place(rank), moved);
            let shuffle_ns = 20_000 + if rank == 0 { bytes * 10 } else { bytes };
            part.sequence = sequence;
            part.end_ns = part.start_ns + part.file_ns + shuffle_ns;
            add(&mut all, rank, &part);
        }
    }
    let found = all.finish(0);
    let network = found.network.as_ref().expect("twenty calls are enough");
    assert!((network.inter_bytes_per_s.unwrap() / 1e8 - 1.0).abs() < 0.05, "{network:?}");
    assert!((network.intra_bytes_per_s.unwrap() / 1e9 - 1.0).abs() < 0.05, "{network:?}");
    let slowest = &found.slowest[0];
    assert_eq!(slowest.sequence, 20);
    let (first, third) = (&slowest.aggregators[0], &slowest.aggregators[1]);
    assert_eq!((first.rad, first.delay_s), (Some(0), Some(0.0)));
    let difference_s = (20 * PART * 9) as f64 * 1e-9;
    assert_eq!(third.rad, Some(1));
    assert!((third.delay_s.unwrap() / difference_s - 1.0).abs() < 0.05, "{third:?}");
    let sum = &found.files[0].aggregators[0];
    assert!((sum.predicted_s.unwrap() / sum.shuffle_s - 1.0).abs() < 0.05, "{sum:?}");
    assert_eq!((sum.calls, sum.rad), (20, None));
}

#[test]
fn very_many_parts_are_thinned_alike_for_all_ranks() {
    let (ranks, calls) = (KEPT_PARTS / 8, 16);
    let mut all = Exchanges::default();
    for rank in 0..ranks {
        let moved = if rank == 0 { vec![(0, ranks * PART)] } else { vec![] };
        let mut part = call(ranks, whole_file(rank * PART, PART), &moved);
        for sequence in 1..=calls {
            part.sequence = sequence;
            all.add(Source { rank, node: 0, generation: 0, lane: 0 }, "/data/a", &part);
        }
        assert!(all.parts <= KEPT_PARTS);
    }
    let found = all.finish(0);
    assert!((2..calls).contains(&found.calls), "{} calls", found.calls);
    assert_eq!(found.calls + found.left_out, calls);
    assert_eq!(found.bytes, found.calls * ranks * PART);
}
