//! The words of a record, copied out of its file.

use crate::layout::{Block, Cell, Header, Lane};
use std::io::{ErrorKind, Read};
use std::mem::size_of;
use std::sync::atomic::Ordering::Relaxed;

/// A copy of a record's words, seen through the structs of the layout.
pub(crate) struct Words(Box<[Cell]>);

impl Words {
    /// Copies whole words from the front of a source, `bytes` at most; what is not there is missing.
    pub(crate) fn copy(mut source: impl Read, bytes: usize) -> std::io::Result<Words> {
        // Zeroed by the system, not word by word: this runs in the program's time, once for each rank.
        let mut words = vec![0u64; bytes / 8];
        // SAFETY: as many bytes as the words have; every byte is valid in them.
        let room =
            unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 8 * words.len()) };
        let mut filled = 0;
        while filled < room.len() {
            match source.read(&mut room[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        words.truncate(filled / 8);
        Ok(Words::new(words))
    }

    pub(crate) fn new(words: Vec<u64>) -> Words {
        let words = Box::into_raw(words.into_boxed_slice());
        // SAFETY: a cell has the size, alignment and values of the word it is made of, and this is the only
        // pointer to them.
        Words(unsafe { Box::from_raw(words as *mut [Cell]) })
    }

    pub(crate) fn cells(&self) -> &[Cell] {
        &self.0
    }

    pub(crate) fn first(&self) -> Option<&Cell> {
        self.0.first()
    }

    pub(crate) fn bytes(&self) -> u64 {
        8 * self.0.len() as u64
    }

    /// A struct of the layout at a byte offset; `None` when the record ends before it does.
    pub(crate) fn at<T: Words64>(&self, offset: usize) -> Option<&T> {
        let words = self.0.get(offset / 8..)?;
        // SAFETY: `T` is made of words only (`Words64`), so every value is valid and the alignment is a
        // word's; the words it covers are there.
        (offset.is_multiple_of(8) && words.len() >= size_of::<T>() / 8)
            .then(|| unsafe { &*words.as_ptr().cast::<T>() })
    }
}

/// # Safety
///
/// A `repr(C)` struct of nothing but [`Cell`]s.
pub(crate) unsafe trait Words64 {}
// SAFETY: see their definitions.
unsafe impl Words64 for Header {}
// SAFETY: as above.
unsafe impl Words64 for Lane {}
// SAFETY: as above.
unsafe impl Words64 for Block {}

pub(crate) fn load(cell: &Cell) -> u64 {
    cell.load(Relaxed)
}
