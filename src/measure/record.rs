//! The mapped file that holds the record, and the blocks handed out from it.
//!
//! Made at the first I/O of the process. The disk space is reserved before it is mapped, so that a full
//! disk shows here and not as a SIGBUS in the middle of a call. On a file system that cannot map files
//! the record lives in memory and is written when it ends; when there can be no file at all, everything
//! works but the profile.

use crate::{abi, config, lifecycle, profile};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::*};
use weir_profile::counters::{Module, posix::*};
use weir_profile::layout::*;

/// Where the record is mapped; null before the first I/O.
static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Blocks are added in chunks of this size.
const CHUNK_BYTES: usize = 64 << 10;

struct Mapping {
    /// -1 when there is no file.
    fd: libc::c_int,
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

/// A lane of the record.
pub(super) fn lane(index: usize) -> *mut Lane {
    let base = BASE.load(Acquire);
    // SAFETY: the lanes lie within the first mapping.
    unsafe { base.add(LANE_OFFSET + index * LANE_BYTES).cast() }
}

/// Stops using the record without touching it. The mapping stays: another thread may be in a call.
pub(super) fn forget() {
    BASE.store(std::ptr::null_mut(), Release);
    // Without the lock: in a forked child another thread of the parent may have held it.
    if let Ok(mut mapping) = MAPPING.try_lock()
        && let Some(mapping) = mapping.take()
        && mapping.fd >= 0
    {
        // SAFETY: our own descriptor.
        unsafe { libc::close(mapping.fd) };
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
    let first_bytes = BLOCKS_OFFSET.next_multiple_of(4096) + CHUNK_BYTES;
    // A name and a block per module and lane.
    let blocks = config::get(|c| c.max_files + 1) * 7;
    let reserved_bytes = (BLOCKS_OFFSET + blocks * BLOCK_BYTES).next_multiple_of(4096).max(first_bytes);
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
    let fd = create(&path, first_bytes).unwrap_or_else(|error| {
        profile::no_record(&path, &error);
        -1
    });
    let mut mapping = Mapping { fd, shared: fd >= 0, reserved_bytes, mapped_bytes: 0 };
    if !mapping.extend(base.cast(), first_bytes) {
        mapping.shared = false;
        if !mapping.extend(base.cast(), first_bytes) {
            return false;
        }
    }
    // SAFETY: mapped and zeroed just now.
    write_header(unsafe { &*base.cast::<Header>() }, first_bytes);
    *slot = Some(mapping);
    BASE.store(base.cast(), Release);
    drop(slot);
    super::lane::begin();
    save();
    if config::get(|c| c.signals) {
        profile::watch_signals();
    }
    true
}

/// A new file with its space reserved.
fn create(path: &Path, bytes: usize) -> Result<libc::c_int, std::io::Error> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a valid path.
    let fd = unsafe {
        libc::open(name.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC, 0o644)
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: our own descriptor.
    let error = unsafe { libc::posix_fallocate(fd, 0, bytes as libc::off_t) };
    if error != 0 {
        // SAFETY: as above; the file is ours and useless.
        unsafe {
            libc::close(fd);
            libc::unlink(name.as_ptr());
        }
        return Err(std::io::Error::from_raw_os_error(error));
    }
    Ok(fd)
}

impl Mapping {
    /// Makes the record usable up to `bytes`.
    fn extend(&mut self, base: *mut u8, bytes: usize) -> bool {
        let more = bytes - self.mapped_bytes;
        let at = self.mapped_bytes;
        if bytes > self.reserved_bytes {
            return false;
        }
        let (fd, flags, offset) = if self.shared {
            // SAFETY: our own descriptor.
            if at > 0 && unsafe { libc::posix_fallocate(self.fd, at as libc::off_t, more as libc::off_t) } != 0 {
                return false;
            }
            (self.fd, libc::MAP_SHARED | libc::MAP_FIXED, at as libc::off_t)
        } else {
            (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED, 0)
        };
        // SAFETY: replaces a part of our own reservation that nobody uses yet.
        let mapped = unsafe {
            libc::mmap(base.add(at).cast(), more, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
        };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        self.mapped_bytes = bytes;
        true
    }
}

/// Writes a record that is not mapped to its file; one that is needs nothing, except on NFS, where other
/// machines see a mapping late.
pub(crate) fn save() {
    let slot = locked();
    let (Some(mapping), base) = (slot.as_ref(), BASE.load(Acquire)) else { return };
    if mapping.fd < 0 || base.is_null() {
        return;
    }
    if mapping.shared {
        if is_on_nfs(mapping.fd) {
            // SAFETY: our own mapping.
            unsafe { libc::msync(base.cast(), mapping.mapped_bytes, libc::MS_SYNC) };
        }
        return;
    }
    let mut at = 0;
    while at < mapping.mapped_bytes {
        // SAFETY: our own mapping and descriptor.
        let written = unsafe {
            libc::pwrite(mapping.fd, base.add(at).cast(), mapping.mapped_bytes - at, at as libc::off_t)
        };
        if written <= 0 {
            return;
        }
        at += written as usize;
    }
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
