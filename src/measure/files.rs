//! Which file a descriptor or a path is, and the blocks that hold its counters.

use super::record;
use crate::config;
use crate::gate;
use crate::shim::shield::{keeping_errno, shield};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicPtr, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use weir_profile::counters::{Module, mpiio};
use weir_profile::fnv1a;
use weir_profile::layout::*;
use weir_profile::settings::{PROGRAM_ENDINGS, PROGRAM_PARTS, SYSTEM_DIRECTORIES, tidy};

/// Descriptors from this one on are not followed; how many files were opened on such is said in the profile.
const MAX_FDS: usize = 65536;

/// Where the owner's counters of a descriptor are. Null when nobody has looked yet, [`ignored`] when it is not a
/// file to be measured.
type Place = AtomicPtr<Block>;

/// For POSIX calls of the program, and of the MPI library. Of a descriptor that the library opened only the second is
/// there: the hot path then finds nothing, and [`is_opened_by_mpi`] tells why.
static POSIX: [[Place; 2]; MAX_FDS] = [const { [const { unseen() }; 2] }; MAX_FDS];
const BY_APP: usize = 0;
const BY_MPI: usize = 1;

/// For calls on streams.
static STDIO: [Place; MAX_FDS] = [const { unseen() }; MAX_FDS];

/// The place in which the counters are, whoever opened the descriptor.
#[inline(always)]
fn place(module: Module, fd: c_int) -> Option<&'static Place> {
    let fd = fd as u32 as usize;
    if module == Module::Stdio { STDIO.get(fd) } else { POSIX.get(fd).map(|places| &places[BY_MPI]) }
}

const fn unseen() -> Place {
    AtomicPtr::new(std::ptr::null_mut())
}

const fn ignored() -> *mut Block {
    std::ptr::without_provenance_mut(1)
}

/// A file that was seen.
struct Known {
    index: u64,
    /// The owner's block of each module, once it was needed.
    blocks: [Option<&'static Block>; Module::ALL.len()],
}

impl Known {
    const fn new(index: u64) -> Known {
        Known { index, blocks: [None; Module::ALL.len()] }
    }

    fn block(&mut self, module: Module, key: u64) -> Option<&'static Block> {
        let place = &mut self.blocks[module as usize];
        if place.is_none() {
            *place = record::new_block(KIND_MODULE + module as u64, self.index, 0);
            if module == Module::Mpiio
                && let Some(block) = *place
            {
                begin_sequence(block, key);
            }
        }
        *place
    }
}

/// Where a file begins to number its collective calls.
fn begin_sequence(block: &Block, start: u64) {
    // Far from where counting would overflow.
    let start = start & u64::from(u32::MAX);
    block.words[mpiio::MPIIO_COLL_SEQUENCE_START].store(start, Relaxed);
    block.words[mpiio::MPIIO_COLL_SEQUENCE].store(start, Relaxed);
}

struct Registry {
    /// By hash of the path.
    files: BTreeMap<u64, Known>,
    /// File 0: all that find no place of their own.
    others: Known,
    /// Of these the ones that MPI opened last, by hash of the path: what the MPI library does with them is measured too.
    others_of_mpi: VecDeque<u64>,
}

/// More than [`super::handles`] follows at a time.
const MOST_OTHERS_OF_MPI: usize = 4096;

impl Registry {
    const fn new() -> Registry {
        Registry { files: BTreeMap::new(), others: Known::new(0), others_of_mpi: VecDeque::new() }
    }

    /// Counters of a file that finds no place of its own.
    fn other(&mut self, module: Module, key: u64) -> Option<&'static Block> {
        if !self.others_of_mpi.contains(&key) {
            record::with_header(|h| _ = h.dropped.files.fetch_add(1, Relaxed));
            if module == Module::Mpiio {
                if self.others_of_mpi.len() == MOST_OTHERS_OF_MPI {
                    self.others_of_mpi.pop_front();
                }
                self.others_of_mpi.push_back(key);
            }
        }
        self.others.block(module, 0)
    }
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(|e| e.into_inner())
}

pub(super) fn is_lock_free() -> bool {
    crate::child::is_free(&REGISTRY)
}

pub(super) fn forget() {
    forget_fds(0, usize::MAX);
    // Without waiting: in a forked child another thread of the parent may have held it.
    if let Ok(mut registry) = REGISTRY.try_lock() {
        *registry = Registry::new();
    }
}

/// One past the highest descriptor that was ever noted, so that a reset touches no more memory.
static HIGHEST: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

fn highest_fd() -> usize {
    HIGHEST.load(Relaxed).min(MAX_FDS)
}

/// Counters of the file behind a descriptor; `None` when it is not measured.
#[inline(always)]
pub(crate) fn of_fd(module: Module, fd: c_int) -> Option<&'static Block> {
    let block = place(module, fd)?.load(Relaxed);
    if is_known(block) {
        // SAFETY: a block of the mapped record, never unmapped.
        return Some(unsafe { &*block });
    }
    if block.is_null() { adopt(module, fd) } else { None }
}

/// The address of the counters behind a descriptor, if they are known: for the hot path of whom
/// [`Thread::owner_calls`](crate::shim::caller::Thread::owner_calls) tells.
#[inline(always)]
pub(crate) fn at_once(fd: c_int, owner_calls: u64) -> *const Block {
    match (POSIX.get(fd as u32 as usize), owner_calls) {
        (Some(places), 0 | 1) => places[owner_calls as usize].load(Relaxed),
        _ => std::ptr::null(),
    }
}

/// Whether it is the MPI library's own, and a file that is measured.
pub(crate) fn is_opened_by_mpi(fd: c_int) -> bool {
    let Some(places) = POSIX.get(fd as u32 as usize) else { return false };
    is_known(places[BY_MPI].load(Relaxed)) && !is_known(places[BY_APP].load(Relaxed))
}

/// A descriptor by which the MPI library has a file open, by the file's index in the record.
pub(crate) fn mpi_fd_of(file: u64) -> Option<c_int> {
    let is_it = |places: &[AtomicPtr<Block>; 2]| {
        known(places[BY_MPI].load(Relaxed)).is_some_and(|block| block.file.load(Relaxed) == file)
    };
    POSIX[..highest_fd()].iter().position(is_it).map(|fd| fd as c_int)
}

/// Whether that address is one.
#[inline(always)]
pub(crate) fn is_known(block: *const Block) -> bool {
    block.addr() > 1
}

/// As [`of_fd`], but a descriptor nobody has looked at stays unknown.
pub(crate) fn known_fd(fd: c_int) -> Option<&'static Block> {
    known(place(Module::Posix, fd)?.load(Relaxed))
}

pub(crate) fn known_stream(fd: c_int) -> Option<&'static Block> {
    known(place(Module::Stdio, fd)?.load(Relaxed))
}

fn known(block: *mut Block) -> Option<&'static Block> {
    // SAFETY: a block of the mapped record, never unmapped.
    is_known(block).then(|| unsafe { &*block })
}

/// A descriptor that was opened where nobody looked (before `MPI_Init`, by another library's own system
/// call): the kernel knows its path.
#[cold]
#[inline(never)]
fn adopt(module: Module, fd: c_int) -> Option<&'static Block> {
    // What a program prints is not its I/O, wherever it goes. And no allocation for pipes and sockets: a
    // signal handler may write to one.
    if fd <= 2 || !is_regular(fd) {
        note_fd(module, fd, None);
        return None;
    }
    shield(None, || {
        let block = path_of(fd).filter(|p| wanted(p, false)).and_then(|p| block(&p, module));
        note_fd(module, fd, block);
        block
    })
}

/// What the kernel calls the file behind a descriptor.
pub(crate) fn path_of(fd: c_int) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    path.to_str().filter(|path| path.starts_with('/')).map(String::from)
}

fn is_regular(fd: c_int) -> bool {
    // SAFETY: all-zero is a valid stat buffer, and fstat fills it or says no.
    keeping_errno(|| unsafe {
        let mut stat: libc::stat64 = std::mem::zeroed();
        libc::fstat64(fd, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    })
}

/// From now on the descriptor is that file; `None` for one that is not measured.
pub(crate) fn note_fd(module: Module, fd: c_int, block: Option<&'static Block>) {
    let Some(place) = place(module, fd) else {
        if block.is_some() {
            record::with_header(|h| _ = h.dropped.handles.fetch_add(1, Relaxed));
        }
        return;
    };
    HIGHEST.fetch_max(fd as usize + 1, Relaxed);
    let block = block.map_or(ignored(), |b| std::ptr::from_ref(b).cast_mut());
    place.store(block, Relaxed);
    if module == Module::Posix {
        POSIX[fd as usize][BY_APP].store(block, Relaxed);
    }
}

/// The same for one that the MPI library opened.
pub(crate) fn note_mpi_fd(fd: c_int, block: Option<&'static Block>) {
    note_fd(Module::Posix, fd, block);
    if let Some(places) = POSIX.get(fd as u32 as usize) {
        places[BY_APP].store(ignored(), Relaxed);
    }
}

/// The descriptor is closed: the next file with this number is another one.
#[inline(always)]
pub(crate) fn forget_fd(fd: c_int) {
    let fd = fd as u32 as usize;
    let (Some([by_app, by_mpi]), Some(stdio)) = (POSIX.get(fd), STDIO.get(fd)) else { return };
    if !(by_mpi.load(Relaxed).is_null() && stdio.load(Relaxed).is_null()) {
        [by_app, by_mpi, stdio].into_iter().for_each(|place| place.store(std::ptr::null_mut(), Relaxed));
    }
}

/// `close_range` and `closefrom`.
pub(crate) fn forget_fds(first: usize, last: usize) {
    for fd in first..highest_fd().min(last.saturating_add(1)) {
        forget_fd(fd as c_int);
    }
}

/// `dup`: the new descriptor is the same file.
pub(crate) fn copy_fd(from: c_int, to: c_int) -> Option<&'static Block> {
    let block = of_fd(Module::Posix, from);
    if is_opened_by_mpi(from) {
        note_mpi_fd(to, block)
    } else {
        note_fd(Module::Posix, to, block)
    }
    if let Some(stream) = place(Module::Stdio, to) {
        stream.store(std::ptr::null_mut(), Relaxed);
    }
    block
}

/// The absolute form of a path the program passed; relative ones belong to `directory` or to the
/// current directory.
///
/// # Safety
/// `path` is null or a C string.
pub(crate) unsafe fn absolute(path: *const c_char, directory: Option<c_int>) -> Option<String> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's word.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
    if path.starts_with('/') {
        return Some(tidy(&path));
    }
    let base = match directory {
        Some(fd) if fd != libc::AT_FDCWD => std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?,
        _ => std::env::current_dir().ok()?,
    };
    Some(tidy(&format!("{}/{path}", base.display())))
}

/// Whether a file is measured. `WEIR_INCLUDE` beats `WEIR_EXCLUDE` beats the system directories, which
/// are left out unless MPI itself opens the file.
pub(crate) fn wanted(path: &str, by_mpi_io: bool) -> bool {
    config::get(|config| {
        if config.include.iter().any(|pattern| matches(pattern, path)) {
            return true;
        }
        if config.exclude.iter().any(|pattern| matches(pattern, path)) {
            return false;
        }
        by_mpi_io
            || !(SYSTEM_DIRECTORIES.iter().any(|system| is_under(system, path))
                || PROGRAM_ENDINGS.iter().any(|ending| path.ends_with(ending))
                || PROGRAM_PARTS.iter().any(|part| path.contains(part)))
    })
}

fn is_under(directory: &str, path: &str) -> bool {
    path.strip_prefix(directory.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A directory matches what is in it; with a `*`, the whole path must match.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    if pattern.contains('*') { glob(pattern.as_bytes(), path.as_bytes()) } else { is_under(pattern, path) }
}

/// `*` stands for any text, `/` included.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star_p, star_t)) = star {
            star = Some((star_p, star_t + 1));
            (p, t) = (star_p + 1, star_t + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// The owner's counters of a module on a file, made at the first use.
pub(crate) fn block(path: &str, module: Module) -> Option<&'static Block> {
    if !record::ensure() {
        return None;
    }
    let mut registry = lock();
    let registry = &mut *registry;
    let key = fnv1a(path.bytes());
    if !registry.files.contains_key(&key) {
        let index = registry.files.len() as u64 + 1;
        let room = index <= config::get(|c| c.max_files as u64);
        let Some(name) = room.then(|| record::new_block(KIND_NAME, index, 0)).flatten() else {
            return registry.other(module, key);
        };
        name.hash.store(key, Relaxed);
        store_text(&name.words, path);
        gate::note_file(index, path);
        registry.files.insert(key, Known::new(index));
        record::with_header(|h| h.files.store(index + 1, Relaxed));
    }
    registry.files.get_mut(&key)?.block(module, key)
}

/// Counters of "other files".
pub(crate) fn other(module: Module) -> Option<&'static Block> {
    if record::ensure() { lock().others.block(module, 0) } else { None }
}

/// Counters of POSIX calls that name a file: its own if it is known, and those of "other files" if not.
pub(crate) fn of_path(path: &str) -> Option<&'static Block> {
    let (mut registry, key) = (lock(), fnv1a(path.bytes()));
    match registry.files.get_mut(&key) {
        Some(known) => known.block(Module::Posix, key),
        None => registry.others.block(Module::Posix, 0),
    }
}

/// Whether MPI has this file open or had: then POSIX calls of the MPI library on it are measured.
pub(crate) fn is_mpi_file(path: &str) -> bool {
    let (registry, key) = (lock(), fnv1a(path.bytes()));
    let has_mpi = |known: &Known| known.blocks[Module::Mpiio as usize].is_some();
    registry.files.get(&key).map_or_else(|| registry.others_of_mpi.contains(&key), has_mpi)
}

/// The counters that threads without a lane of their own share. The owner's block remembers where they
/// are in its `hash`, which counters do not use.
#[inline(always)]
pub(crate) fn twin(block: &'static Block) -> &'static Block {
    let twin = block.hash.load(Acquire);
    if twin == 0 {
        return make_twin(block);
    }
    // SAFETY: stored by `make_twin`.
    unsafe { &*std::ptr::with_exposed_provenance(twin as usize) }
}

#[cold]
#[inline(never)]
fn make_twin(block: &'static Block) -> &'static Block {
    /// Takes the counts that found no place in the record; how many is said in the profile.
    static NOWHERE: Block = Block {
        kind: Cell::new(0),
        file: Cell::new(0),
        lane: Cell::new(1),
        hash: Cell::new(0),
        words: [const { Cell::new(0) }; COUNTERS_PER_BLOCK],
    };
    shield(&NOWHERE, || {
        record::open_shared_lane();
        let _registry = lock();
        if block.hash.load(Acquire) == 0 {
            let made = record::new_block(block.kind.load(Relaxed), block.file.load(Relaxed), 1);
            if made.is_none() {
                record::with_header(|h| _ = h.dropped.handles.fetch_add(1, Relaxed));
            }
            if let Some(made) = made
                && made.kind.load(Relaxed) == KIND_MODULE + Module::Mpiio as u64
            {
                begin_sequence(made, block.words[mpiio::MPIIO_COLL_SEQUENCE_START].load(Relaxed));
            }
            let address = std::ptr::from_ref(made.unwrap_or(&NOWHERE)).expose_provenance();
            block.hash.store(address as u64, Release);
        }
        // SAFETY: stored just now.
        unsafe { &*std::ptr::with_exposed_provenance(block.hash.load(Acquire) as usize) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_directories_or_globs() {
        assert!(matches("/scratch", "/scratch/a"));
        assert!(!matches("/scratch", "/scratch2/a"));
        assert!(matches("*.h5", "/a/b.h5"));
        assert!(matches("/a/*/c*", "/a/b/b/cd"));
        assert!(!matches("/a/*/c", "/a/b/d"));
        assert!(matches("/dev/shm/", "/dev/shm/x"));
    }

    #[test]
    fn system_directories_are_left_out_unless_mpi_opens_the_file() {
        assert!(!wanted("/usr/share/x", false));
        assert!(!wanted("/home/me/lib.so.1", false));
        assert!(wanted("/usrlocal/x", false));
        assert!(wanted("/dev/shm/data", true));
    }
}
