//! The two ways in which a value finds its bin. Both run inside every data call: no loop, no branch
//! that depends on the size.

/// Bins of Darshan's `SIZE_*` counters.
pub const SIZE_CLASSES: usize = 10;

/// Inclusive upper ends of Darshan's size classes; what is larger falls into the last one.
pub const SIZE_CLASS_ENDS: [u64; SIZE_CLASSES - 1] =
    [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30];

/// Between two powers of two lies at most one end of a class, so the bit length of the value leads to
/// the only comparison that is needed.
struct ByLength {
    class: u8,
    end: u64,
}

static BY_LENGTH: [ByLength; 64] = {
    let mut table = [const { ByLength { class: 0, end: u64::MAX } }; 64];
    let mut length = 0;
    while length < 64 {
        let low = 1u64 << length;
        let high = low + (low - 1);
        let mut class = 0;
        while class < SIZE_CLASSES - 1 && SIZE_CLASS_ENDS[class] < low {
            class += 1;
        }
        table[length].class = class as u8;
        if class < SIZE_CLASSES - 1 && SIZE_CLASS_ENDS[class] < high {
            table[length].end = SIZE_CLASS_ENDS[class];
        }
        length += 1;
    }
    table
};

/// Which of Darshan's ten size classes a call belongs to.
#[inline(always)]
pub fn size_class(bytes: u64) -> usize {
    let entry = &BY_LENGTH[(bytes | 1).ilog2() as usize];
    entry.class as usize + usize::from(bytes > entry.end)
}

/// Sub-bins per power of two: a bin is at most 12.5 % wide.
const SUB_BITS: u32 = 3;
/// Bins of a histogram: enough for every 64-bit value.
pub const BINS: usize = ((64 - SUB_BITS + 1) << SUB_BITS) as usize;

/// The bin of a value in a histogram of eight bins per power of two.
#[inline(always)]
pub fn bin(value: u64) -> usize {
    let shift = (value | (1 << SUB_BITS)).ilog2() - SUB_BITS;
    ((shift << SUB_BITS) as u64 + (value >> shift)) as usize
}

/// The smallest value that falls into a bin: the inverse of [`bin`].
pub fn bin_start(bin: usize) -> u64 {
    let (octave, sub) = (bin >> SUB_BITS, (bin & ((1 << SUB_BITS) - 1)) as u64);
    if octave == 0 { sub } else { ((1 << SUB_BITS) + sub) << (octave - 1) }
}

/// The middle of a bin, which stands for all values in it.
pub fn bin_middle(bin: usize) -> u64 {
    let start = bin_start(bin);
    let next = if bin + 1 < BINS { bin_start(bin + 1) } else { u64::MAX };
    start + (next - start) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_class_agrees_with_darshans_comparisons() {
        let by_comparison = |v: u64| SIZE_CLASS_ENDS.iter().filter(|end| v > **end).count();
        for end in SIZE_CLASS_ENDS {
            for v in [end - 1, end, end + 1] {
                assert_eq!(size_class(v), by_comparison(v), "{v}");
            }
        }
        for shift in 0..64 {
            assert_eq!(size_class(1 << shift), by_comparison(1 << shift), "2^{shift}");
        }
        assert_eq!(size_class(0), 0);
        assert_eq!(size_class(u64::MAX), 9);
    }

    #[test]
    fn bins_are_contiguous_and_narrow() {
        for b in 0..BINS - 1 {
            let (start, next) = (bin_start(b), bin_start(b + 1));
            assert_eq!(bin(start), b);
            assert_eq!(bin(next - 1), b);
            assert!(start < 8 || (next - start) * 8 <= start, "bin {b} is wider than an eighth");
        }
        assert_eq!(bin(u64::MAX), BINS - 1);
    }
}
