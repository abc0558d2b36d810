//! The memory that holds the record, and the blocks handed out from it.
//!
//! Made at the first I/O of the process, in memory in which no store can fail ([`memory`]), and handed over to the
//! helper process of the node, which keeps it beyond the end of this one. Where there is no helper, the record is
//! written when it ends, by this process.

use crate::node::{self, memory};
use crate::{abi, config, lifecycle, profile};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::*};
use weir_profile::counters::{Module, posix::*};
use weir_profile::folder;
use weir_profile::layout::*;

/// Where the record is mapped; null before the first I/O.
static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Blocks are added in chunks of this size: whole pages on every machine.
const CHUNK_BYTES: usize = 64 << 10;
/// The first ones, as far as that is whole pages: most programs have few files.
const FIRST_BLOCKS_BYTES: usize = 16 << 10;

/// No descriptor is kept: the program may close any number it likes and get it back for a file of its own.
struct Mapping {
    /// Whether the helper process of the node has it.
    is_kept: bool,
    reserved_bytes: usize,
    /// Up to here there are pages, but for the second lane.
    backed_bytes: usize,
    /// The file it was written to, if it is not kept.
    written_to: Option<PathBuf>,
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
    // SAFETY: the lanes lie within the mapping, which is zeroed and never unmapped.
    unsafe { &*base.add(lane_part(index).start).cast() }
}

/// Another thread than the owner is about to use its lane: from here on it has room in the record and is read as well.
pub(crate) fn open_shared_lane() {
    let Some(header) = header().filter(|header| header.lanes.load(Acquire) < LANES as u64) else { return };
    let _mapping = locked();
    if header.lanes.load(Relaxed) == LANES as u64 {
        return;
    }
    let base = BASE.load(Acquire);
    if back(base, pages_between(lane_part(0).end, BLOCKS_OFFSET)) {
        super::lane::begin(1, lane_at(base, 1));
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

/// The pages that lie between two places and belong to neither.
fn pages_between(start: usize, end: usize) -> Range<usize> {
    let page = memory::page_bytes();
    let start = start.next_multiple_of(page);
    start..(end / page * page).max(start)
}

/// Has the system give pages to a part of the record that nobody uses yet.
fn back(base: *mut u8, part: Range<usize>) -> bool {
    // SAFETY: a part of our own mapping, from page to page, that is zero as yet.
    unsafe { memory::back(base.add(part.start), part.len()) }
}

pub(super) fn is_lock_free() -> bool {
    crate::child::is_free(&MAPPING)
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
    if !crate::child::may_begin() {
        return false;
    }
    let mut slot = locked();
    if header().is_some() {
        return true;
    }
    let page = memory::page_bytes();
    let first_bytes = (BLOCKS_OFFSET + FIRST_BLOCKS_BYTES).next_multiple_of(page);
    // A name and a block per module and lane.
    let blocks = config::get(|c| c.max_files + 1) * 7;
    let reserved_bytes = (BLOCKS_OFFSET + blocks * BLOCK_BYTES).next_multiple_of(page).max(first_bytes);
    let made = make(reserved_bytes);
    let Some(base) = memory::map(made.as_ref().ok(), reserved_bytes) else { return false };
    let lane_end = lane_part(0).end.next_multiple_of(page);
    if !back(base, 0..lane_end) || !back(base, (BLOCKS_OFFSET / page * page).max(lane_end)..first_bytes) {
        // SAFETY: mapped just now, for nobody else.
        unsafe { libc::munmap(base.cast(), reserved_bytes) };
        return false;
    }
    // SAFETY: mapped and zeroed just now.
    let header = unsafe { &*base.cast::<Header>() };
    write_header(header, first_bytes);
    super::lane::begin(0, lane_at(base, 0));
    super::lane::leave_out(1);
    let kept = made.and_then(|memory| node::keep(&memory, profile::record_name()));
    if let Err(reason) = &kept
        && !crate::child::is_one()
    {
        header.alone.store(1, Relaxed);
        header.note.set(reason);
        node::say_why_alone(reason);
    }
    // A program may have any number of children: without a helper process that bounds them, none leaves a file.
    let is_kept = kept.is_ok() || crate::child::is_one();
    *slot = Some(Mapping { is_kept, reserved_bytes, backed_bytes: first_bytes, written_to: None });
    // Only now can other threads see it.
    BASE.store(base, Release);
    drop(slot);
    if config::get(|c| c.signals) {
        profile::watch_signals();
    }
    true
}

/// Memory for the record. Where this process may not make any of that size (`ulimit -f`), the helper may.
fn make(bytes: usize) -> Result<OwnedFd, String> {
    memory::sealed(bytes).or_else(|error| {
        let name = format!("record of process {}, {}", std::process::id(), profile::record_name());
        node::shared_memory(&name, bytes).map_err(|reason| format!("no memory to share ({error}): {reason}"))
    })
}

/// The record has come to its end, or may not live to see it: has it in safety. `false` when there is nowhere to put it.
pub(crate) fn save() -> bool {
    // Without waiting: a signal handler may have interrupted whoever holds the lock.
    let Ok(mut slot) = MAPPING.try_lock() else { return true };
    let (Some(mapping), base) = (slot.as_mut(), BASE.load(Acquire)) else { return true };
    if base.is_null() || mapping.is_kept {
        return true;
    }
    // SAFETY: our own mapping, up to where there are pages; whoever stores into it meanwhile stores whole words.
    let bytes = unsafe { std::slice::from_raw_parts(base, mapping.backed_bytes) };
    let path = mapping.written_to.clone().unwrap_or_else(profile::record_path);
    let written = if profile::file_size_limit() < bytes.len() as u64 {
        Err(std::io::Error::from_raw_os_error(libc::EFBIG))
    } else {
        folder::put_file(&path, bytes)
    };
    if let Err(error) = &written {
        // An empty file has room where a record has none, and says that something is missing.
        _ = folder::new_in_folder(&weir_profile::job::lost(&path));
        profile::no_record(&path, error);
    }
    mapping.written_to = Some(path);
    written.is_ok()
}

/// Before `MPI_Finalize`: the helper is told that the record is finished, or the record is written.
pub(crate) fn finish() {
    let Some(header) = header() else { return };
    let is_kept = locked().as_ref().is_some_and(|mapping| mapping.is_kept);
    if is_kept {
        // Rank 0 looks for the files of other nodes after `MPI_Finalize`: there must be one by then. On one node it asks the same
        // helper.
        let is_seen = header.kept.load(Acquire) == Kept::OnDisk as u64 || profile::is_on_one_node();
        if node::ended(!is_seen) {
            return;
        }
        header.alone.store(1, Relaxed);
        header.note.set("the helper process is gone");
        if let Some(mapping) = locked().as_mut() {
            mapping.is_kept = false;
        }
    }
    save();
}

fn write_header(header: &Header, used_bytes: usize) {
    let identity = profile::identity();
    header.used_bytes.store(used_bytes as u64, Relaxed);
    header.pid.store(u64::from(std::process::id()), Relaxed);
    header.process_start.store(weir_profile::process_start(u64::from(std::process::id())), Relaxed);
    header.rank.store(identity.rank, Relaxed);
    header.child_of.store(u64::from(crate::child::rank_process()), Relaxed);
    header.lanes.store(1, Relaxed);
    header.nprocs.store(identity.nprocs, Relaxed);
    header.abi.store(abi::current().kind as u64, Relaxed);
    header.spawned.store(u64::from(identity.spawned), Relaxed);
    header.thread_level.store(identity.thread_level, Relaxed);
    header.phase_gap_ns.store(config::get(|c| c.phase_gap_ns), Relaxed);
    if config::get(|c| c.coordinator.is_some()) {
        header.gate_setting.set(config::get(|c| c.gate).name());
    }
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
    if end > mapping.backed_bytes {
        let larger = (mapping.backed_bytes + CHUNK_BYTES).min(mapping.reserved_bytes);
        if larger < end || !back(base, mapping.backed_bytes..larger) {
            return None;
        }
        mapping.backed_bytes = larger;
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
