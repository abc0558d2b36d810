//! As much of ELF as is needed to say what a shared library exports and whether a program can be
//! preloaded. Offsets are those of the 64-bit format; every access is checked.

use std::path::Path;

/// What the dynamic linker would see.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// Whether the dynamic linker starts it: `LD_PRELOAD` works for no other program.
    pub(crate) has_interpreter: bool,
    /// Libraries it is linked with.
    pub(crate) needed: Vec<String>,
    /// Functions it exports.
    pub(crate) exported: Vec<String>,
    /// Whether it has the text `MPI_Init` in it, linked or built in.
    pub(crate) mentions_mpi: bool,
}

const SECTION_DYNAMIC: u32 = 6;
const SECTION_DYNSYM: u32 = 11;
const SEGMENT_INTERPRETER: u32 = 3;
const TAG_NEEDED: u64 = 1;
const TYPE_FUNCTION: u8 = 2;

/// `None` for a file that is not a 64-bit ELF file of this byte order, or cannot be read.
pub(crate) fn read(path: &Path) -> Option<Elf> {
    let bytes = std::fs::read(path).ok()?;
    Some(Elf { mentions_mpi: contains(&bytes, b"MPI_Init\0"), ..parse(&bytes)? })
}

/// Whether the program is linked with the shared runtime of AddressSanitizer.
pub(crate) fn has_address_sanitizer(path: &Path) -> bool {
    let elf = std::fs::read(path).ok().and_then(|bytes| parse(&bytes));
    elf.is_some_and(|elf| elf.needed.iter().any(|library| library.starts_with("libasan.so")))
}

fn parse(bytes: &[u8]) -> Option<Elf> {
    let file = Bytes(bytes);
    if file.slice(0, 4)? != b"\x7fELF" || file.slice(4, 2)? != [2, 1] {
        return None;
    }
    let (segments, segment_size, segment_count) = (file.u64(32)?, file.u16(54)?, file.u16(56)?);
    let has_interpreter = (0..segment_count)
        .any(|index| file.u32(entry(segments, segment_size, index)) == Some(SEGMENT_INTERPRETER));
    let mut elf = Elf { has_interpreter, ..Elf::default() };
    let (sections, section_size, section_count) = (file.u64(40)?, file.u16(58)?, file.u16(60)?);
    for index in 0..section_count {
        let section = entry(sections, section_size, index);
        let Some(kind) = file.u32(section + 4) else { continue };
        let strings =
            || Some(file.u64(entry(sections, section_size, file.u32(section + 40)? as u16) + 24)? as usize);
        match kind {
            SECTION_DYNSYM => elf.exported = file.functions(section, strings()?)?,
            SECTION_DYNAMIC => elf.needed = file.needed(section, strings()?)?,
            _ => {}
        }
    }
    Some(elf)
}

fn entry(table: u64, size: u16, index: u16) -> usize {
    (table as usize).saturating_add(usize::from(size) * usize::from(index)).min(usize::MAX / 2)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn slice(&self, at: usize, length: usize) -> Option<&[u8]> {
        self.0.get(at..at.checked_add(length)?)
    }

    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.slice(at, 2)?.try_into().ok()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.slice(at, 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.slice(at, 8)?.try_into().ok()?))
    }

    fn text(&self, at: usize) -> Option<String> {
        let rest = self.0.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    /// Offset and number of the entries of a section.
    fn table(&self, section: usize, entry_bytes: usize) -> Option<(usize, usize)> {
        let (offset, size) = (self.u64(section + 24)? as usize, self.u64(section + 32)? as usize);
        self.slice(offset, size)?;
        Some((offset, size / entry_bytes))
    }

    /// Functions of a symbol table that are defined here.
    fn functions(&self, section: usize, strings: usize) -> Option<Vec<String>> {
        let (offset, count) = self.table(section, 24)?;
        let symbol = |index: usize| {
            let at = offset + 24 * index;
            let (name, info, defined_in) = (self.u32(at)?, *self.0.get(at + 4)?, self.u16(at + 6)?);
            (info & 15 == TYPE_FUNCTION && defined_in != 0)
                .then(|| self.text(strings.checked_add(name as usize)?))?
        };
        Some((0..count).filter_map(symbol).collect())
    }

    fn needed(&self, section: usize, strings: usize) -> Option<Vec<String>> {
        let (offset, count) = self.table(section, 16)?;
        let library = |index: usize| {
            let at = offset + 16 * index;
            (self.u64(at)? == TAG_NEEDED)
                .then(|| self.text(strings.checked_add(self.u64(at + 8)? as usize)?))?
        };
        Some((0..count).filter_map(library).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_program_is_dynamic_and_needs_libc() {
        let elf = read(&std::env::current_exe().unwrap()).expect("an ELF file");
        assert!(elf.has_interpreter);
        assert!(elf.needed.iter().any(|library| library.starts_with("libc.so")), "{:?}", elf.needed);
    }

    #[test]
    fn no_prefix_of_a_program_is_a_panic() {
        let bytes = std::fs::read("/bin/true").unwrap();
        for length in (0..bytes.len()).step_by(97).chain(0..200) {
            let _ = parse(&bytes[..length]);
        }
        assert_eq!(parse(b"#!/bin/sh\n"), None);
    }
}
