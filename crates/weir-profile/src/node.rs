//! The records of a node in one file, which the helper process of the node brings to `WEIR_DIR`.
//!
//! ```text
//! magic | length of the index | index | its checksum | body, body, body …
//! ```
//!
//! Most words of a record are zero, and most others are what they are in every rank of a node. So a body holds the words in
//! which its record differs from the first of the file (which differs from nothing): how many are alike, how many are not, and
//! those. Numbers have as many bytes as they need (LEB128). Any record can be read with the first one alone, in any order.
//!
//! Nothing here is trusted: every length is checked, the index and each body have a checksum.

use crate::error::Error;
use crate::fnv1a;
use crate::layout::{BLOCK_BYTES, Ended, Header, LANE_BYTES, LANE_OFFSET, LANES};
use crate::record::{Head, Image, MAX_RECORD_BYTES, Record};
use crate::regular::open_regular;
use crate::thin::{LEVELS, thinned};
use crate::words::{Words, load};
use std::cell::RefCell;
use std::fs::{File, Metadata};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// First word of the file: `WEIRNOD` and the version of this form.
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRNOD\x01");
/// No node has more ranks.
const MAX_RECORDS: u64 = 1 << 16;
/// Longer names are damage.
const MAX_NAME_BYTES: u64 = 1024;
/// No file of a node is larger.
const MAX_FILE_BYTES: u64 = 1 << 31;

/// A process, told from others that get its number later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: u64,
    /// In the kernel's ticks since boot; 0 when not known.
    pub start: u64,
}

/// A record that goes into the file of its node.
pub struct Leaf {
    /// `<rank>-<host>-<pid>-<generation>.<launch>.rec`
    pub name: String,
    /// Whether its process was seen to be gone.
    pub is_gone: bool,
    image: Image,
}

impl Leaf {
    /// Reads the record in the memory behind a descriptor.
    pub fn read(name: String, memory: &File, is_gone: bool) -> Result<Leaf, String> {
        let length = memory.metadata().map_err(|error| error.to_string())?.len();
        let image = Image::read(memory, length)?;
        if let Some(header) = image.front.at::<Header>(0) {
            // A word between the process and its helper.
            header.kept.store(0, Relaxed);
        }
        // What has marked its end does not change any more, whatever becomes of its process.
        let is_gone = is_gone && image.head.ended == Ended::Running;
        Ok(Leaf { name, is_gone, image })
    }

    /// Whether nothing more will come: the process has marked its end, or is gone.
    pub fn is_over(&self) -> bool {
        self.is_gone || self.image.head.ended != Ended::Running
    }
}

/// No file is larger than this, and this for each record, if leaving out details can help it: some thousand nodes may write theirs every ten
/// seconds.
const LARGEST_BYTES: usize = 256 << 10;
const LARGEST_RECORD_BYTES: usize = 512;

/// The whole file: these records, kept by that helper process. Where it would be too large, with less detail.
pub fn encode(helper: Process, leaves: Vec<Leaf>) -> Vec<u8> {
    let limit = LARGEST_BYTES + LARGEST_RECORD_BYTES * leaves.len();
    let mut file = encode_all(helper, &leaves);
    if file.len() <= limit {
        return file;
    }
    // Only what has been counted in full can be thinned.
    let settle =
        |leaf: Leaf| Record::new(leaf.image).map(|record| Leaf { image: record.into_image(), ..leaf });
    let mut leaves: Vec<Leaf> = leaves.into_iter().filter_map(|leaf| settle(leaf).ok()).collect();
    for level in 1..=LEVELS {
        let thin = |leaf: Leaf| thinned(leaf.image, level).map(|image| Leaf { image, ..leaf });
        leaves = leaves.into_iter().filter_map(|leaf| thin(leaf).ok()).collect();
        file = encode_all(helper, &leaves);
        if file.len() <= limit {
            break;
        }
    }
    file
}

fn encode_all(helper: Process, leaves: &[Leaf]) -> Vec<u8> {
    let base = leaves.first().map(|leaf| &leaf.image);
    let bodies: Vec<Vec<u8>> = leaves
        .iter()
        .enumerate()
        .map(|(number, leaf)| body(&leaf.image, base.filter(|_| number > 0)))
        .collect();
    let mut index = Vec::new();
    put(&mut index, helper.pid);
    put(&mut index, helper.start);
    put(&mut index, leaves.len() as u64);
    for (leaf, body) in leaves.iter().zip(&bodies) {
        put_text(&mut index, &leaf.name);
        put(&mut index, u64::from(leaf.is_gone));
        put(&mut index, body.len() as u64);
        index.extend(fnv1a(body.iter().copied()).to_le_bytes());
    }
    let mut file = Vec::with_capacity(index.len() + 24 + bodies.iter().map(Vec::len).sum::<usize>());
    file.extend(MAGIC.to_le_bytes());
    file.extend((index.len() as u64).to_le_bytes());
    file.extend(&index);
    file.extend(fnv1a(index.iter().copied()).to_le_bytes());
    bodies.iter().for_each(|body| file.extend(body));
    file
}

fn body(image: &Image, base: Option<&Image>) -> Vec<u8> {
    let mut out = Vec::new();
    for (words, base) in [(&image.front, base.map(|b| &b.front)), (&image.blocks, base.map(|b| &b.blocks))] {
        put(&mut out, words.cells().len() as u64);
        put_differences(&mut out, words, base);
    }
    out
}

fn put_differences(out: &mut Vec<u8>, words: &Words, base: Option<&Words>) {
    let base = base.map_or(&[][..], Words::cells);
    let differs = |at: usize| load(&words.cells()[at]) ^ base.get(at).map_or(0, load);
    let length = words.cells().len();
    let mut at = 0;
    while at < length {
        let start = (at..length).find(|at| differs(*at) != 0).unwrap_or(length);
        let end = (start..length).find(|at| differs(*at) == 0).unwrap_or(length);
        put(out, (start - at) as u64);
        put(out, (end - start) as u64);
        (start..end).for_each(|at| put(out, differs(at)));
        at = end;
    }
}

/// LEB128.
fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.as_bytes());
}

/// What is left to be read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number().filter(|length| *length <= MAX_NAME_BYTES)?;
        let (text, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    /// As many words as are wanted of those that were put.
    fn words(&mut self, longest: u64, wanted: usize, base: Option<&Words>) -> Option<Vec<u64>> {
        let length = self.number().filter(|length| *length <= longest)? as usize;
        let mut words = vec![0u64; length.min(wanted)];
        if let Some(base) = base {
            words.iter_mut().zip(base.cells()).for_each(|(word, base)| *word = load(base));
        }
        let mut at = 0usize;
        while at < words.len() {
            let (alike, others) = (self.number()?, self.number()?);
            at = at.checked_add(usize::try_from(alike).ok()?).filter(|at| *at <= length)?;
            let end = at.checked_add(usize::try_from(others).ok()?).filter(|end| *end <= length)?;
            if alike == 0 && others == 0 {
                return None;
            }
            for at in at..end {
                let difference = self.number()?;
                if let Some(word) = words.get_mut(at) {
                    *word ^= difference;
                }
            }
            at = end;
        }
        Some(words)
    }
}

/// What tells a file from others that have had its name: device, inode, when it was last written to, in seconds and nanoseconds.
pub(crate) type FileIdentity = (u64, u64, i64, i64);

pub(crate) fn identity_of(about: &Metadata) -> FileIdentity {
    (about.dev(), about.ino(), about.mtime(), about.mtime_nsec())
}

/// A record in the file.
struct Stored {
    name: String,
    is_gone: bool,
    body: Range<usize>,
    checksum: u64,
}

/// The file of a node, read and checked as far as its index goes.
pub(crate) struct NodeFile {
    pub(crate) helper: Process,
    /// A helper that goes on puts another file in its place.
    pub(crate) identity: FileIdentity,
    bytes: Vec<u8>,
    stored: Vec<Stored>,
    /// The first record, once it was needed.
    base: RefCell<Option<Rc<Image>>>,
}

const FRONT_WORDS: u64 = ((LANE_OFFSET + LANES * LANE_BYTES) / 8) as u64;
const BLOCKS_WORDS: u64 = MAX_RECORD_BYTES / 8;

impl NodeFile {
    pub(crate) fn read(path: &Path) -> Result<NodeFile, Error> {
        let failed = |error: std::io::Error| Error::new(path, error);
        let file = open_regular(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let mut bytes = Vec::with_capacity(about.len().min(MAX_FILE_BYTES) as usize);
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let mut node = NodeFile::parse(bytes).map_err(|what| Error::new(path, what))?;
        node.identity = identity_of(&about);
        Ok(node)
    }

    fn parse(bytes: Vec<u8>) -> Result<NodeFile, String> {
        let mut rest = Rest(&bytes);
        let magic = rest.word().ok_or("not a file of a node: too short")?;
        let (name, expected) = (magic.to_le_bytes(), MAGIC.to_le_bytes());
        if name[..7] != expected[..7] {
            return Err("not a file of a node: wrong first word".into());
        }
        if name[7] != expected[7] {
            return Err(format!("file of a node in form {}; this Weir reads form {}", name[7], expected[7]));
        }
        let truncated = "truncated file of a node";
        let length = rest.word().and_then(|length| usize::try_from(length).ok()).ok_or(truncated)?;
        let (index, behind) = rest.0.split_at_checked(length).ok_or(truncated)?;
        if Rest(behind).word().ok_or(truncated)? != fnv1a(index.iter().copied()) {
            return Err("damaged file of a node: wrong checksum of its index".into());
        }
        let first_body = bytes.len() - behind.len() + 8;
        let parsed = parse_index(Rest(index), first_body);
        let (helper, stored) = parsed.ok_or("damaged file of a node: its index makes no sense")?;
        Ok(NodeFile { helper, identity: FileIdentity::default(), bytes, stored, base: RefCell::new(None) })
    }

    pub(crate) fn count(&self) -> usize {
        self.stored.len()
    }

    pub(crate) fn name(&self, number: usize) -> &str {
        &self.stored[number].name
    }

    /// Whether the process of a record was seen to be gone.
    pub(crate) fn is_gone(&self, number: usize) -> bool {
        self.stored[number].is_gone
    }

    /// The header of a record.
    pub(crate) fn head(&self, number: usize) -> Result<Head, String> {
        let base = self.base_of(number)?;
        let mut body = self.body(number)?;
        let front = body.words(FRONT_WORDS, LANE_OFFSET / 8, base.as_ref().map(|base| &base.front));
        let front = Words::new(front.ok_or(DAMAGED)?);
        // How many blocks there are is checked when they are read.
        let head = Head::parse(&front, MAX_RECORD_BYTES)?;
        if head.end_known { Ok(head) } else { self.record(number).map(|record| record.head) }
    }

    pub(crate) fn record(&self, number: usize) -> Result<Record, String> {
        let base = self.base_of(number)?;
        Record::new(self.image(number, base.as_deref())?)
    }

    fn base_of(&self, number: usize) -> Result<Option<Rc<Image>>, String> {
        if number == 0 {
            return Ok(None);
        }
        let mut base = self.base.borrow_mut();
        if base.is_none() {
            *base = Some(Rc::new(self.image(0, None)?));
        }
        Ok(base.clone())
    }

    /// Lets go of what is only there to read the next record sooner.
    pub(crate) fn rest(&self) {
        *self.base.borrow_mut() = None;
    }

    fn body(&self, number: usize) -> Result<Rest<'_>, String> {
        let stored = &self.stored[number];
        let body = self.bytes.get(stored.body.clone()).ok_or("truncated record")?;
        if fnv1a(body.iter().copied()) != stored.checksum {
            return Err("damaged record: wrong checksum".into());
        }
        Ok(Rest(body))
    }

    fn image(&self, number: usize, base: Option<&Image>) -> Result<Image, String> {
        let mut body = self.body(number)?;
        let front = body.words(FRONT_WORDS, usize::MAX, base.map(|base| &base.front)).ok_or(DAMAGED)?;
        let blocks = body.words(BLOCKS_WORDS, usize::MAX, base.map(|base| &base.blocks)).ok_or(DAMAGED)?;
        Image::new(Words::new(front), Words::new(blocks))
    }
}

const DAMAGED: &str = "damaged record: its words make no sense";

fn parse_index(mut index: Rest, first_body: usize) -> Option<(Process, Vec<Stored>)> {
    let helper = Process { pid: index.number()?, start: index.number()? };
    let count = index.number().filter(|count| *count <= MAX_RECORDS)?;
    let mut stored = Vec::new();
    let mut at = first_body;
    for _ in 0..count {
        let (name, is_gone) = (index.text()?, index.number()? != 0);
        let end = at.checked_add(usize::try_from(index.number()?).ok()?)?;
        stored.push(Stored { name, is_gone, body: at..end, checksum: index.word()? });
        at = end;
    }
    Some((helper, stored))
}

const _: () = assert!(BLOCK_BYTES.is_multiple_of(8));
