//! What is left out of a record when a node's file would become too large: every level halves the lists. Sums stay, and what goes is counted as
//! dropped.

use crate::counters::{Merge, Module, mpiio, posix, stdio};
use crate::layout::*;
use crate::record::Image;
use crate::words::{Words, load};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

/// There are no further levels.
pub(crate) const LEVELS: u32 = 11;
/// What every level leaves.
const FEWEST_BURSTS: usize = 8;
const FEWEST_BINS: usize = 16;
/// Files of a process with counters of their own, if nobody has said otherwise.
const FILES: usize = 2048;

/// A record that has been settled and thinned to the level before, with less detail.
pub(crate) fn thinned(image: Image, level: u32) -> Result<Image, String> {
    let Image { head, front, blocks } = image;
    let header = front.at::<Header>(0).ok_or("truncated record")?;
    for number in 0..head.lanes {
        let lane = front.at::<Lane>(LANE_OFFSET + number * LANE_BYTES).ok_or("truncated record")?;
        // What they stood for is in the counters; where those are, may change.
        for run in &lane.runs {
            [&run.address, &run.bytes, &run.calls, &run.block]
                .into_iter()
                .for_each(|word| word.store(0, Relaxed));
        }
        header.dropped.collectives.fetch_add(thin_collectives(&lane.collectives), Relaxed);
        header.dropped.bursts.fetch_add(thin_bursts(&lane.bursts, level), Relaxed);
        widen(&lane.series, level);
    }
    let (blocks, gone) = fold_files(&blocks, (FILES >> level).max(1));
    header.dropped.files.fetch_add(gone, Relaxed);
    header.blocks.store(blocks.bytes() / BLOCK_BYTES as u64, Relaxed);
    Image::new(front, blocks)
}

/// Keeps the calls whose number is a multiple of twice the stride: the same ones in every rank. How many went.
fn thin_collectives(collectives: &Collectives) -> u64 {
    let count = (load(&collectives.count) as usize).min(COLLECTIVES);
    let stride = load(&collectives.stride).clamp(1, 1 << 62) * 2;
    let mut kept = 0;
    for from in &collectives.list[..count] {
        if load(&from.sequence) & (stride - 1) == 0 {
            collectives.list[kept].copy(from);
            kept += 1;
        }
    }
    // SAFETY: all-zero is a call.
    let none: Collective = unsafe { std::mem::zeroed() };
    collectives.list[kept..count].iter().for_each(|call| call.copy(&none));
    collectives.count.store(kept as u64, Relaxed);
    collectives.stride.store(stride, Relaxed);
    (count - kept) as u64
}

/// Two and two of a kind become one, until there are few enough. How many went.
fn thin_bursts(bursts: &Bursts, level: u32) -> u64 {
    let wanted = (BURSTS >> level).max(FEWEST_BURSTS);
    let before = (load(&bursts.count) as usize).min(BURSTS);
    let mut count = before;
    while count > wanted {
        let left = fold(&bursts.list[..count]);
        if left == count {
            break;
        }
        count = left;
    }
    bursts.count.store(count as u64, Relaxed);
    (before - count) as u64
}

fn fold(list: &[Burst]) -> usize {
    let kind = |burst: &Burst| (load(&burst.marked) != 0, load(&burst.name));
    let (mut left, mut next) = (0, 0);
    while next < list.len() {
        let first = &list[next];
        let second = list.get(next + 1).filter(|second| kind(second) == kind(first));
        if let Some(second) = second {
            let pause = load(&second.start_ticks).saturating_sub(load(&first.end_ticks));
            first.more.fetch_add(load(&second.more).saturating_add(1), Relaxed);
            first.pause_ticks.fetch_add(pause.saturating_add(load(&second.pause_ticks)), Relaxed);
            first.end_ticks.fetch_max(load(&second.end_ticks), Relaxed);
            first.take_amounts(second);
        }
        if left != next {
            list[left].take_place_of(first);
        }
        left += 1;
        next += 1 + usize::from(second.is_some());
    }
    for burst in &list[left..] {
        for word in [
            &burst.start_ticks,
            &burst.end_ticks,
            &burst.marked,
            &burst.name,
            &burst.more,
            &burst.pause_ticks,
        ] {
            word.store(0, Relaxed);
        }
    }
    left
}

/// Neighbours are added up until few bins are in use.
fn widen(series: &Series, level: u32) {
    let wanted = (SERIES_BINS >> level).max(FEWEST_BINS);
    let is_used = |bin: usize| load(&series.bytes_read[bin]) != 0 || load(&series.bytes_written[bin]) != 0;
    while (wanted..SERIES_BINS).any(is_used) && load(&series.shift) < 55 {
        for cells in [&series.bytes_read, &series.bytes_written] {
            for bin in 0..SERIES_BINS {
                let pair = [2 * bin, 2 * bin + 1].map(|from| cells.get(from).map_or(0, load));
                cells[bin].store(pair[0].saturating_add(pair[1]), Relaxed);
            }
        }
        series.shift.fetch_add(1, Relaxed);
    }
}

/// Counters of one module on one file in one lane, as words.
type Counters = [u64; COUNTERS_PER_BLOCK];

/// The files that moved most keep their counters, all others are summed up. How many went.
fn fold_files(blocks: &Words, wanted: usize) -> (Words, u64) {
    let count = blocks.bytes() as usize / BLOCK_BYTES;
    let all: Vec<&Block> = (0..count).filter_map(|index| blocks.at(index * BLOCK_BYTES)).collect();
    let mut moved: BTreeMap<u64, u64> = BTreeMap::new();
    for block in all.iter().filter(|block| load(&block.file) != 0) {
        let sum = moved.entry(load(&block.file)).or_default();
        *sum = sum.saturating_add(module_of(block).map_or(0, |module| bytes_of(module, block)));
    }
    let mut by_size: Vec<(u64, u64)> = moved.into_iter().map(|(file, bytes)| (bytes, file)).collect();
    by_size.sort_unstable_by(|a, b| b.cmp(a));
    let kept: BTreeSet<u64> = by_size.iter().take(wanted).map(|(_, file)| *file).collect();
    let gone = (by_size.len() - kept.len()) as u64;
    let mut words: Vec<u64> = Vec::new();
    let mut others: BTreeMap<(u64, u64), (Module, Counters)> = BTreeMap::new();
    let put = |words: &mut Vec<u64>, kind: u64, file: u64, lane: u64, hash: u64, counters: &Counters| {
        let number = (words.len() * 8 / BLOCK_BYTES) as u64;
        words.extend([kind, file, number << 1 | lane, hash]);
        words.extend(counters);
    };
    for block in all {
        let (kind, file, lane) = (load(&block.kind), load(&block.file), load(&block.lane) & 1);
        let counters = block.words.each_ref().map(load);
        match module_of(block) {
            Some(module) if !kept.contains(&file) => {
                let (_, sums) = others.entry((kind, lane)).or_insert((module, [0; COUNTERS_PER_BLOCK]));
                absorb(module, sums, &counters);
            }
            // For counters that is an address, which means nothing here.
            Some(_) => put(&mut words, kind, file, lane, 0, &counters),
            None if kept.contains(&file) => put(&mut words, kind, file, lane, load(&block.hash), &counters),
            None => {}
        }
    }
    for ((kind, lane), (_, sums)) in &others {
        put(&mut words, *kind, 0, *lane, 0, sums);
    }
    (Words::new(words), gone)
}

fn module_of(block: &Block) -> Option<Module> {
    Module::ALL.into_iter().find(|module| KIND_MODULE + *module as u64 == load(&block.kind))
}

fn bytes_of(module: Module, block: &Block) -> u64 {
    let counters = match module {
        Module::Mpiio => [mpiio::MPIIO_BYTES_READ, mpiio::MPIIO_BYTES_WRITTEN],
        Module::Posix => [posix::POSIX_BYTES_READ, posix::POSIX_BYTES_WRITTEN],
        Module::Stdio => [stdio::STDIO_BYTES_READ, stdio::STDIO_BYTES_WRITTEN],
    };
    counters.iter().fold(0, |sum, counter| sum.saturating_add(load(&block.words[*counter])))
}

/// By the rule of each counter, in ticks: it is one process's clock.
fn absorb(module: Module, sums: &mut Counters, more: &Counters) {
    for (index, counter) in module.counters().iter().enumerate() {
        let (mine, theirs) = (sums[index], more[index]);
        sums[index] = match counter.merge {
            Merge::Sum | Merge::Seconds => mine.saturating_add(theirs),
            Merge::Max | Merge::Longest | Merge::Last => mine.max(theirs),
            Merge::First if mine == 0 || theirs == 0 => mine.max(theirs),
            Merge::First => mine.min(theirs),
            Merge::State => 0,
        };
    }
}
