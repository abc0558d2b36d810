//! The mapped file that holds the record, and the blocks handed out from it.
//!
//! Made at the first I/O of the process. The disk space is reserved before it is mapped, so that a full
//! disk shows here and not as a SIGBUS in the middle of a call. On a file system that cannot map files
//! the record lives in memory and is written when it ends; when there can be no file at all, everything
//! works but the profile.

use crate::{abi, config, lifecycle, profile};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::*};
use weir_profile::counters::{Module, posix::*};
use weir_profile::layout::*;

/// Where the record is mapped; null before the first I/O.
static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Blocks are added in chunks of this size: whole pages on every machine.
const CHUNK_BYTES: usize = 64 << 10;
/// The first ones, as far as that is whole pages: most programs have few files.
const FIRST_BLOCKS_BYTES: usize = 16 << 10;

/// 4 KiB on x86-64, up to 64 KiB on aarch64.
fn page_bytes() -> usize {
    // SAFETY: asks for a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(CHUNK_BYTES)
}

/// No descriptor is kept: the program may close any number it likes and get it back for a file of its own.
struct Mapping {
    file: Option<RecordFile>,
    /// Whether the record is a mapping of the file.
    shared: bool,
    reserved_bytes: usize,
    mapped_bytes: usize,
}

static MAPPING: Mutex<Option<Mapping>> = Mutex::new(None);

fn locked() -> std::sync::MutexGuard<'static, Option<Mapping>> {
    MAPPING.lock().unwrap_or_else(|e| e.into_inner())
}

/// The header, once there is a record.
pub(crate) fn header() -> Option<&'static Header> {
    let base = BASE.load(Acquire);
    // SAFETY: mapped, zero-initialised, and never unmapped.
    (!base.is_null()).then(|| unsafe { &*base.cast::<Header>() })
}

pub(crate) fn with_header(work: impl FnOnce(&Header)) {
    if let Some(header) = header() {
        work(header);
    }
}

/// Ticks at the moment of arming: where the series begins.
pub(super) fn start_ticks() -> u64 {
    header().map_or(0, |header| header.clock_first.ticks.load(Relaxed))
}

/// The lanes in use.
pub(super) fn lanes() -> impl Iterator<Item = &'static Lane> {
    let lanes = header().map_or(0, |header| header.lanes.load(Acquire) as usize);
    (0..lanes.min(LANES)).map(|index| lane_at(BASE.load(Acquire), index))
}

fn lane_at(base: *mut u8, index: usize) -> &'static Lane {
    // SAFETY: the lanes lie within the first mapping, which is zeroed and never unmapped.
    unsafe { &*base.add(lane_part(index).start).cast() }
}

/// Another thread than the owner is about to use its lane: from here on it has room in the record and is read as well.
pub(crate) fn open_shared_lane() {
    let Some(header) = header().filter(|header| header.lanes.load(Acquire) < LANES as u64) else { return };
    let mapping = locked();
    if header.lanes.load(Relaxed) == LANES as u64 {
        return;
    }
    if mapping.as_ref().is_some_and(|mapping| mapping.reserve(lane_part(1))) {
        super::lane::begin(1, lane_at(BASE.load(Acquire), 1));
        header.lanes.store(LANES as u64, Release);
    } else {
        header.dropped.bursts.fetch_add(1, Relaxed);
    }
}

/// The part of the record that a lane is.
fn lane_part(index: usize) -> Range<usize> {
    let start = LANE_OFFSET + index * LANE_BYTES;
    start..start + LANE_BYTES
}

/// Stops using the record without touching it. The mapping stays: another thread may be in a call.
pub(super) fn forget() {
    BASE.store(std::ptr::null_mut(), Release);
    // Without the lock: in a forked child another thread of the parent may have held it.
    if let Ok(mut mapping) = MAPPING.try_lock() {
        *mapping = None;
    }
}

/// Makes the record if there is none. Whoever gets here first also writes its header.
pub(crate) fn ensure() -> bool {
    if header().is_some() {
        return true;
    }
    let mut slot = locked();
    if header().is_some() {
        return true;
    }
    let first_bytes = (BLOCKS_OFFSET + FIRST_BLOCKS_BYTES).next_multiple_of(page_bytes());
    // A name and a block per module and lane.
    let blocks = config::get(|c| c.max_files + 1) * 7;
    let reserved_bytes =
        (BLOCKS_OFFSET + blocks * BLOCK_BYTES).next_multiple_of(page_bytes()).max(first_bytes);
    // SAFETY: a fresh mapping, not yet accessible.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            reserved_bytes,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return false;
    }
    let path = profile::record_path();
    let created =
        RecordFile::create(&path, first_bytes).inspect_err(|error| profile::no_record(&path, error));
    let (file, fd) = created.map_or((None, None), |(file, fd)| (Some(file), Some(fd)));
    let shared = fd.is_some_and(|fd| map(base.cast(), 0..first_bytes, Some(fd.as_raw_fd())));
    if !shared && !map(base.cast(), 0..first_bytes, None) {
        return false;
    }
    // SAFETY: mapped and zeroed just now.
    write_header(unsafe { &*base.cast::<Header>() }, first_bytes);
    super::lane::begin(0, lane_at(base.cast(), 0));
    super::lane::leave_out(1);
    *slot = Some(Mapping { file, shared, reserved_bytes, mapped_bytes: first_bytes });
    // Only now can other threads see it.
    BASE.store(base.cast(), Release);
    drop(slot);
    save();
    if config::get(|c| c.signals) {
        profile::watch_signals();
    }
    true
}

/// The file of the record, by name and identity.
struct RecordFile {
    path: CString,
    device: libc::dev_t,
    inode: libc::ino_t,
    /// Other machines see a mapping late there.
    on_nfs: bool,
}

impl RecordFile {
    /// A new file with its space reserved, and its descriptor.
    fn create(path: &Path, bytes: usize) -> Result<(RecordFile, OwnedFd), std::io::Error> {
        let name = path;
        let path = CString::new(name.as_os_str().as_bytes())?;
        let owned = new_in_folder(name, &path)?;
        let fd = owned.as_raw_fd();
        let reserved = first_parts(bytes).into_iter().try_for_each(|part| reserve(fd, part));
        match (reserved, identity_of(fd)) {
            (Ok(()), Some((device, inode))) => {
                Ok((RecordFile { path, device, inode, on_nfs: is_on_nfs(fd) }, owned))
            }
            (reserved, _) => {
                let error = reserved.err().unwrap_or_else(std::io::Error::last_os_error);
                // An empty file has room where a record has none, and says that something is missing.
                // SAFETY: our own descriptor; if it cannot be emptied it is renamed all the same.
                unsafe { libc::ftruncate(fd, 0) };
                _ = std::fs::rename(name, weir_profile::job::lost(name));
                Err(error)
            }
        }
    }

    /// Does something with the file, if it is still the one that was created.
    fn with_fd<R>(&self, work: impl FnOnce(libc::c_int) -> Option<R>) -> Option<R> {
        // SAFETY: a valid path.
        let fd = unsafe { libc::open(self.path.as_ptr(), libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
        if fd < 0 {
            return None;
        }
        let same = identity_of(fd) == Some((self.device, self.inode));
        let answer = if same { work(fd) } else { None };
        // SAFETY: our own descriptor.
        unsafe { libc::close(fd) };
        answer
    }
}

/// Makes the file, and its folder if it is the first. Whoever merges another launch takes an empty folder away.
fn new_in_folder(name: &Path, path: &CStr) -> Result<OwnedFd, std::io::Error> {
    let folder = name.parent().unwrap_or(Path::new("."));
    let mut attempts = 0;
    loop {
        own_folder(folder)?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: a valid path.
        let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
        if fd >= 0 {
            // SAFETY: opened just now, for nobody else.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = std::io::Error::last_os_error();
        attempts += 1;
        if error.raw_os_error() != Some(libc::ENOENT) || attempts == 3 {
            return Err(error);
        }
    }
}

/// A folder that nobody else can put anything into: rank 0 reads what it finds there.
fn own_folder(folder: &Path) -> Result<(), std::io::Error> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(above) = folder.parent() {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ if weir_profile::is_own_directory(folder) => Ok(()),
        _ => {
            let name = folder.file_name().unwrap_or_default().display();
            Err(std::io::Error::other(format!("{name} is there and not a directory of this user's")))
        }
    }
}

fn identity_of(fd: libc::c_int) -> Option<(libc::dev_t, libc::ino_t)> {
    // SAFETY: all-zero is a valid stat buffer, and fstat fills it or says no.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// Disk space for a part of the file. A limit on file sizes would otherwise end the process (SIGXFSZ).
fn reserve(fd: libc::c_int, part: Range<usize>) -> Result<(), std::io::Error> {
    if profile::file_size_limit() < part.end as u64 {
        return Err(std::io::Error::from_raw_os_error(libc::EFBIG));
    }
    // SAFETY: our own descriptor.
    match unsafe { libc::posix_fallocate(fd, part.start as libc::off_t, part.len() as libc::off_t) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// What a new record of so many bytes needs at once: the header, the owner's lane and the first blocks.
fn first_parts(bytes: usize) -> [Range<usize>; 2] {
    [0..lane_part(0).end, BLOCKS_OFFSET..bytes]
}

impl Mapping {
    /// Disk space for a part that is mapped already.
    fn reserve(&self, part: Range<usize>) -> bool {
        match &self.file {
            Some(file) if self.shared => file.with_fd(|fd| reserve(fd, part).ok()).is_some(),
            _ => true,
        }
    }

    /// Makes the record usable up to `bytes`.
    fn extend(&mut self, base: *mut u8, bytes: usize) -> bool {
        let more = self.mapped_bytes..bytes;
        let extended = match &self.file {
            Some(file) if self.shared => {
                let room = |fd| reserve(fd, more.clone()).is_ok();
                file.with_fd(|fd| (room(fd) && map(base, more.clone(), Some(fd))).then_some(())).is_some()
            }
            _ => map(base, more, None),
        };
        if extended {
            self.mapped_bytes = bytes;
        }
        extended
    }
}

/// Maps a part of the record: of its file, or memory without one.
fn map(base: *mut u8, part: Range<usize>, fd: Option<libc::c_int>) -> bool {
    let (flags, offset) = match fd {
        Some(_) => (libc::MAP_SHARED, part.start as libc::off_t),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 0),
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: replaces a part of our own reservation that nobody uses yet.
    let mapped = unsafe {
        let place = base.add(part.start).cast();
        libc::mmap(place, part.len(), access, flags | libc::MAP_FIXED, fd.unwrap_or(-1), offset)
    };
    mapped != libc::MAP_FAILED
}

/// Writes a record that is not mapped to its file; one that is needs nothing, except on NFS.
pub(crate) fn save() {
    // Without waiting: a signal handler may have interrupted whoever holds the lock.
    let Ok(slot) = MAPPING.try_lock() else { return };
    let (Some(Mapping { file: Some(file), shared, mapped_bytes, .. }), base) =
        (slot.as_ref(), BASE.load(Acquire))
    else {
        return;
    };
    if base.is_null() {
        return;
    }
    if *shared {
        if file.on_nfs {
            // SAFETY: our own mapping.
            unsafe { libc::msync(base.cast(), *mapped_bytes, libc::MS_SYNC) };
        }
        return;
    }
    file.with_fd(|fd| {
        let mut at = 0;
        while at < *mapped_bytes && profile::file_size_limit() >= *mapped_bytes as u64 {
            // SAFETY: our own mapping and descriptor.
            let written =
                unsafe { libc::pwrite(fd, base.add(at).cast(), *mapped_bytes - at, at as libc::off_t) };
            if written <= 0 {
                return None;
            }
            at += written as usize;
        }
        Some(())
    });
}

fn is_on_nfs(fd: libc::c_int) -> bool {
    // SAFETY: all-zero is a valid statfs, and fstatfs fills it or says no.
    unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        libc::fstatfs(fd, &mut about) == 0 && about.f_type == libc::NFS_SUPER_MAGIC
    }
}

fn write_header(header: &Header, used_bytes: usize) {
    let identity = profile::identity();
    header.used_bytes.store(used_bytes as u64, Relaxed);
    header.pid.store(u64::from(std::process::id()), Relaxed);
    header.rank.store(identity.rank, Relaxed);
    header.lanes.store(1, Relaxed);
    header.nprocs.store(identity.nprocs, Relaxed);
    header.abi.store(abi::current().kind as u64, Relaxed);
    header.spawned.store(u64::from(identity.spawned), Relaxed);
    header.thread_level.store(identity.thread_level, Relaxed);
    header.phase_gap_ns.store(config::get(|c| c.phase_gap_ns), Relaxed);
    header.generation.store(u64::from(lifecycle::GENERATION.load(Relaxed)), Relaxed);
    lifecycle::armed_at().store(&header.clock_first);
    crate::clock::Moment::now().store(&header.clock_last);
    header.host.set(&identity.host);
    header.application.set(&identity.application);
    header.job.set(&identity.job);
    header.mpi.set(&identity.mpi);
    header.weir_version.set(env!("CARGO_PKG_VERSION"));
    header.magic.store(MAGIC, Release);
}

/// A new block, or `None` when there is no room left.
pub(super) fn new_block(kind: u64, file: u64, lane: u64) -> Option<&'static Block> {
    let mut slot = locked();
    let mapping = slot.as_mut()?;
    let header = header()?;
    let index = header.blocks.load(Relaxed) as usize;
    let end = BLOCKS_OFFSET + (index + 1) * BLOCK_BYTES;
    let base = BASE.load(Acquire);
    if end > mapping.mapped_bytes {
        let larger = (mapping.mapped_bytes + CHUNK_BYTES).min(mapping.reserved_bytes);
        if larger < end || !mapping.extend(base, larger) {
            return None;
        }
        header.used_bytes.store(larger as u64, Relaxed);
    }
    // SAFETY: within the mapping, aligned by construction, zeroed.
    let block = unsafe { &*base.add(end - BLOCK_BYTES).cast::<Block>() };
    block.file.store(file, Relaxed);
    block.lane.store((index as u64) << 1 | lane, Relaxed);
    if kind == KIND_MODULE + Module::Posix as u64 {
        for last_end in [POSIX_LAST_READ_END, POSIX_LAST_WRITE_END] {
            block.words[last_end].store(u64::MAX, Relaxed);
        }
    }
    block.kind.store(kind, Release);
    header.blocks.store(index as u64 + 1, Release);
    Some(block)
}
