//! Where data lies in a file: what a rank handed to a collective call, seen through its file view, and
//! what an aggregator moved. Both are kept as few numbers, so that a record can hold them for every
//! listed call, and how much of the one lies in the other is a matter of arithmetic.

/// A file view: tiles of `tile_extent` bytes one after another from `displacement`, each holding
/// `tile_bytes` bytes of data in blocks of `block_bytes`, the first `first` bytes into the tile, the next
/// `stride` bytes further on.
///
/// When `block_bytes` is 0 the blocks are not alike; the data of a tile is then taken to be spread evenly
/// over the `stride` bytes from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub displacement: u64,
    pub tile_extent: u64,
    pub tile_bytes: u64,
    pub first: u64,
    pub block_bytes: u64,
    pub stride: u64,
}

/// Words of a view in the record.
pub const VIEW_WORDS: usize = 6;

/// `part` of `whole` as a share of `amount`, for quantities whose product may exceed 64 bits.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    (u128::from(amount) * u128::from(part) / u128::from(whole.max(1))) as u64
}

impl View {
    /// What a file has before `MPI_File_set_view`.
    pub const WHOLE_FILE: View = View::contiguous(0);

    /// All bytes from `displacement` on.
    pub const fn contiguous(displacement: u64) -> View {
        View { displacement, tile_extent: 1, tile_bytes: 1, first: 0, block_bytes: 1, stride: 1 }
    }

    /// `None` for words that describe no view: a record is never trusted.
    pub fn from_words(words: [u64; VIEW_WORDS]) -> Option<View> {
        let [displacement, tile_extent, tile_bytes, first, block_bytes, stride] = words;
        let view = View { displacement, tile_extent, tile_bytes, first, block_bytes, stride };
        let span = match block_bytes {
            0 => stride,
            _ => {
                let last = tile_bytes.div_ceil(block_bytes).saturating_sub(1);
                last.saturating_mul(stride).saturating_add(tile_bytes - last.saturating_mul(block_bytes))
            }
        };
        (tile_bytes > 0 && block_bytes <= stride && span >= tile_bytes && span <= tile_extent).then_some(view)
    }

    pub fn to_words(&self) -> [u64; VIEW_WORDS] {
        [self.displacement, self.tile_extent, self.tile_bytes, self.first, self.block_bytes, self.stride]
    }

    /// Whether it is known where every byte lies.
    pub fn is_exact(&self) -> bool {
        self.block_bytes > 0
    }

    /// Where in the file the view's data byte number `byte` lies.
    pub fn position(&self, byte: u64) -> u64 {
        let (tile, rest) = (byte / self.tile_bytes, byte % self.tile_bytes);
        let within = match rest.checked_div(self.block_bytes) {
            Some(block) => block.saturating_mul(self.stride).saturating_add(rest % self.block_bytes),
            None => share(self.stride, rest, self.tile_bytes),
        };
        let before = self.displacement.saturating_add(self.first);
        before.saturating_add(tile.saturating_mul(self.tile_extent)).saturating_add(within)
    }

    /// How many bytes of the view's data lie before a position of the file.
    pub fn bytes_before(&self, position: u64) -> u64 {
        let Some(behind) = position.checked_sub(self.displacement.saturating_add(self.first)) else {
            return 0;
        };
        let (tile, rest) = (behind / self.tile_extent, behind % self.tile_extent);
        let within = if self.block_bytes == 0 {
            share(self.tile_bytes, rest.min(self.stride), self.stride)
        } else {
            let (blocks, beyond) = (rest / self.stride, rest % self.stride);
            blocks.saturating_mul(self.block_bytes).saturating_add(beyond.min(self.block_bytes))
        };
        tile.saturating_mul(self.tile_bytes).saturating_add(within.min(self.tile_bytes))
    }
}

/// What a rank handed over or asked for: `bytes` bytes of its view from byte number `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub view: View,
    pub first: u64,
    pub bytes: u64,
}

impl Access {
    /// How many of its bytes lie from `start` up to `end`.
    fn within(&self, start: u64, end: u64) -> u64 {
        let last = self.first.saturating_add(self.bytes);
        let before = |position: u64| self.view.bytes_before(position).clamp(self.first, last);
        before(end).saturating_sub(before(start))
    }

    /// How many of its bytes lie in `blocks`.
    pub fn within_blocks(&self, blocks: &Blocks) -> u64 {
        if self.bytes == 0 {
            return 0;
        }
        if !blocks.is_exact() {
            let covered = self.within(blocks.start, blocks.end());
            return share(covered, blocks.bytes, blocks.stride).min(covered);
        }
        // Only the blocks between the first byte and the last can hold any.
        let (low, high) =
            (self.view.position(self.first), self.view.position(self.first.saturating_add(self.bytes - 1)));
        let from = low.saturating_sub(blocks.start) / blocks.stride.max(1);
        let to = (high.saturating_sub(blocks.start) / blocks.stride.max(1)).min(blocks.count - 1);
        if high < blocks.start || from > to {
            return 0;
        }
        if to - from >= COUNTED_BLOCKS {
            let start = blocks.start.saturating_add(from.saturating_mul(blocks.stride));
            return share(self.within(start, blocks.end()), blocks.bytes, blocks.stride).min(self.bytes);
        }
        let block = |index: u64| {
            let start = blocks.start.saturating_add(index.saturating_mul(blocks.stride));
            self.within(start, start.saturating_add(blocks.bytes))
        };
        (from..=to).map(block).sum::<u64>().min(self.bytes)
    }
}

/// Words of a row of blocks in the record.
pub const BLOCKS_WORDS: usize = 4;
/// More blocks than this in a row are not looked at one by one.
const COUNTED_BLOCKS: u64 = 4096;

/// `count` blocks of `bytes` bytes, `stride` apart. When `count` is 0: `bytes` bytes spread over the
/// `stride` bytes from `start` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    pub start: u64,
    pub bytes: u64,
    pub stride: u64,
    pub count: u64,
}

impl Blocks {
    pub fn from_words([start, bytes, stride, count]: [u64; BLOCKS_WORDS]) -> Blocks {
        Blocks { start, bytes, stride, count }
    }

    pub fn to_words(&self) -> [u64; BLOCKS_WORDS] {
        [self.start, self.bytes, self.stride, self.count]
    }

    fn one(start: u64, bytes: u64) -> Blocks {
        Blocks { start, bytes, stride: bytes, count: 1 }
    }

    /// Whether it is known where every byte lies.
    pub fn is_exact(&self) -> bool {
        self.count > 0
    }

    pub fn total_bytes(&self) -> u64 {
        self.bytes.saturating_mul(self.count.max(1))
    }

    fn end(&self) -> u64 {
        let last = self.count.saturating_sub(1).saturating_mul(self.stride);
        let length = if self.is_exact() { last.saturating_add(self.bytes) } else { self.stride };
        self.start.saturating_add(length)
    }

    /// Takes in one more block if it continues the row.
    fn continues(&mut self, start: u64, bytes: u64) -> bool {
        if !self.is_exact() || bytes != self.bytes || start < self.end() {
            return false;
        }
        if self.count == 1 {
            self.stride = start - self.start;
        }
        let fits = self.start.checked_add(self.count.saturating_mul(self.stride)) == Some(start);
        self.count += u64::from(fits);
        fits
    }

    /// Becomes bytes spread over all that it and another block cover.
    fn widen(&mut self, start: u64, bytes: u64) {
        let end = self.end().max(start.saturating_add(bytes));
        let moved = self.total_bytes().saturating_add(bytes);
        let start = self.start.min(start);
        *self = Blocks { start, bytes: moved, stride: end - start, count: 0 };
    }
}

/// Rows of blocks that are kept of one call.
pub const ROWS: usize = 4;

/// What a process moved to or from the file within a call. Transfers that touch are one block, blocks at
/// equal distances are one row; when there are too many rows, the last becomes a spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    rows: [Blocks; ROWS],
    /// The block that grows.
    start: u64,
    bytes: u64,
}

impl Transfers {
    pub const NONE: Transfers =
        Transfers { rows: [Blocks { start: 0, bytes: 0, stride: 0, count: 0 }; ROWS], start: 0, bytes: 0 };

    /// One more transfer.
    pub fn add(&mut self, start: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if self.bytes > 0 && start == self.start.saturating_add(self.bytes) {
            self.bytes = self.bytes.saturating_add(bytes);
            return;
        }
        self.close();
        (self.start, self.bytes) = (start, bytes);
    }

    /// The growing block goes into the rows.
    fn close(&mut self) {
        let (start, bytes) = (self.start, std::mem::take(&mut self.bytes));
        if bytes == 0 {
            return;
        }
        let used = self.rows.iter().filter(|row| row.bytes > 0).count();
        if let Some(last) = used.checked_sub(1).and_then(|last| self.rows.get_mut(last))
            && last.continues(start, bytes)
        {
            return;
        }
        match self.rows.get_mut(used) {
            Some(free) => *free = Blocks::one(start, bytes),
            None => self.rows[ROWS - 1].widen(start, bytes),
        }
    }

    /// The rows; those that are not in use have no bytes and come last.
    pub fn rows(mut self) -> [Blocks; ROWS] {
        self.close();
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two blocks of 3 bytes, 5 apart, from byte 2 of tiles of 12 bytes; the file's first 100 are not seen.
    const VIEW: View =
        View { displacement: 100, tile_extent: 12, tile_bytes: 6, first: 2, block_bytes: 3, stride: 5 };

    #[test]
    fn a_view_knows_where_its_bytes_lie() {
        let positions: Vec<u64> = (0..8).map(|byte| VIEW.position(byte)).collect();
        assert_eq!(positions, [102, 103, 104, 107, 108, 109, 114, 115]);
        assert_eq!(View::WHOLE_FILE.position(77), 77);
        assert_eq!(View::from_words(VIEW.to_words()), Some(VIEW));
    }

    #[test]
    fn words_that_are_no_view_are_refused() {
        for (index, value) in [(1, 7), (2, 0), (4, 6), (5, 2)] {
            let mut words = VIEW.to_words();
            words[index] = value;
            assert_eq!(View::from_words(words), None, "{words:?}");
        }
    }

    #[test]
    fn uneven_blocks_count_as_spread() {
        let view = View { block_bytes: 0, stride: 8, ..VIEW };
        assert!(!view.is_exact() && View::from_words(view.to_words()).is_some());
        let access = Access { view, first: 0, bytes: 6 };
        assert_eq!(access.within(102, 106), 3);
        assert_eq!(access.within(0, 1000), 6);
    }

    fn rows(transfers: &[(u64, u64)]) -> Vec<(u64, u64, u64, u64)> {
        let mut all = Transfers::default();
        transfers.iter().for_each(|(start, bytes)| all.add(*start, *bytes));
        let used = all.rows().into_iter().filter(|row| row.bytes > 0);
        used.map(|row| (row.start, row.bytes, row.stride, row.count)).collect()
    }

    #[test]
    fn transfers_become_rows_of_blocks() {
        assert_eq!(rows(&[(0, 10), (10, 10), (20, 5)]), [(0, 25, 25, 1)]);
        assert_eq!(rows(&[(0, 4), (4, 4), (20, 8), (40, 4), (44, 4)]), [(0, 8, 20, 3)]);
        assert_eq!(rows(&[(0, 8), (20, 8), (50, 8)]), [(0, 8, 20, 2), (50, 8, 8, 1)]);
        // Back to where it began: another row.
        assert_eq!(rows(&[(8, 8), (0, 8)]), [(8, 8, 8, 1), (0, 8, 8, 1)]);
        let uneven = rows(&[(0, 1), (10, 2), (20, 3), (30, 4), (40, 5)]);
        assert_eq!(uneven, [(0, 1, 1, 1), (10, 2, 2, 1), (20, 3, 3, 1), (30, 9, 15, 0)]);
    }

    proptest! {
        #[test]
        fn bytes_before_counts_positions(
            displacement in 0u64..50, first in 0u64..9, block in 1u64..7, gap in 0u64..7, blocks in 1u64..6,
            tail in 0u64..9, position in 0u64..400,
        ) {
            let (stride, tile_bytes) = (block + gap, block * blocks);
            let tile_extent = (blocks - 1) * stride + block + tail;
            let view = View { displacement, tile_extent, tile_bytes, first, block_bytes: block, stride };
            let counted = (0..500).filter(|byte| view.position(*byte) < position).count() as u64;
            prop_assert_eq!(view.bytes_before(position), counted);
        }

        #[test]
        fn bytes_in_blocks_are_those_counted_one_by_one(
            block in 1u64..7, gap in 0u64..7, first in 0u64..40, bytes in 0u64..60,
            start in 0u64..60, length in 1u64..9, distance in 0u64..9, count in 1u64..9,
        ) {
            let view = View {
                displacement: 3, tile_extent: block + gap, tile_bytes: block, first: 0,
                block_bytes: block, stride: block + gap,
            };
            let blocks = Blocks { start, bytes: length, stride: length + distance, count };
            let access = Access { view, first, bytes };
            let inside = |byte: u64| {
                let position = view.position(byte);
                position >= start && (position - start) / blocks.stride < count
                    && (position - start) % blocks.stride < length
            };
            let counted = (first..first + bytes).filter(|byte| inside(*byte)).count() as u64;
            prop_assert_eq!(access.within_blocks(&blocks), counted);
        }

        #[test]
        fn no_transfer_is_lost(transfers in prop::collection::vec((0u64..500, 0u64..20), 0..40)) {
            let mut all = Transfers::default();
            transfers.iter().for_each(|(start, bytes)| all.add(*start, *bytes));
            let kept: u64 = all.rows().iter().map(Blocks::total_bytes).sum();
            prop_assert_eq!(kept, transfers.iter().map(|(_, bytes)| bytes).sum::<u64>());
        }
    }
}
