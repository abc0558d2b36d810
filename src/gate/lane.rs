//! The storages that this job uses: a lane each, with a page, a leader and a coordinator of its own. Jobs take turns only with
//! those who use the same storage.

use super::leader::LeaderThread;
use super::page::{Attached, Place};
use super::storage::{self, Found, StorageName};
use super::{keep_reason, note, saw, say_alone};
use crate::config;
use crate::measure;
use crate::node;
use crate::profile;
use crate::shim::shield::shield;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use weir_coord::ledger::SILENT_NS;
use weir_coord::now_ns;
use weir_profile::layout::{Block, gate_seen};

/// Files on more storages than this are not held back.
const MAX_LANES: usize = 4;

/// A storage as this process uses it. Never freed: another thread may be waiting in it.
pub(super) struct Lane {
    /// The page of the job, once there is one.
    presence: AtomicPtr<Presence>,
    /// Failed attempts to get it, and when the next may be made.
    failures: AtomicU32,
    retry_ns: AtomicU64,
    pub(super) thread: LeaderThread,
}

pub(super) struct Presence {
    pub(super) attached: Attached,
    pub(super) place: Place,
    pub(super) storage: StorageName,
}

static LANES: [Lane; MAX_LANES] = [const { Lane::new() }; MAX_LANES];

/// What is known of storages.
#[derive(Default)]
struct Known {
    /// Those that have a lane, by its number.
    storages: Vec<StorageName>,
    /// By device, which lane its files have: of the devices that were looked up last.
    devices: Vec<(u64, u8)>,
}

/// A program that uses more devices has them looked up again.
const MAX_DEVICES: usize = 64;

static KNOWN: Mutex<Known> = Mutex::new(Known { storages: Vec::new(), devices: Vec::new() });

/// The lane of each file, by the file's index in the record. The first stands for all files that have no place of their own.
static FILE_LANES: [AtomicU8; MAX_FILES + 1] = [const { AtomicU8::new(NOT_LOOKED_UP) }; MAX_FILES + 1];
pub(super) const MAX_FILES: usize = 1 << 16;
const NOT_LOOKED_UP: u8 = 0;
/// The file is not held back.
const ALONE: u8 = u8::MAX;

/// MPI files that are open in this process, and phases that it has marked: for lanes that come later.
static OPEN_FILES: AtomicU32 = AtomicU32::new(0);
static MARKS: AtomicU32 = AtomicU32::new(0);
/// What the program has announced of the phase that it has marked, and what it expects of all.
static ANNOUNCED_BYTES: AtomicU64 = AtomicU64::new(0);
static PERIOD_NS: AtomicU64 = AtomicU64::new(0);
static USUAL_BYTES: AtomicU64 = AtomicU64::new(0);

/// The helper process of the node may be slow to answer on a machine that is just then busy: so often it is asked, and requests that
/// come meanwhile are not held back.
const MAX_ATTEMPTS: u32 = 5;
const RETRY_NS: u64 = 500_000_000;
const NEVER: u64 = u64::MAX;

impl Lane {
    const fn new() -> Lane {
        Lane {
            presence: AtomicPtr::new(std::ptr::null_mut()),
            failures: AtomicU32::new(0),
            retry_ns: AtomicU64::new(0),
            thread: LeaderThread::new(),
        }
    }

    pub(super) fn presence(&self) -> Option<&'static Presence> {
        // SAFETY: null, or what `join` made and nobody frees.
        unsafe { self.presence.load(Acquire).as_ref() }
    }

    /// The next request makes another page.
    pub(super) fn forget_page(&self) {
        self.presence.store(std::ptr::null_mut(), Release);
    }

    fn attached(&'static self, number: usize) -> Option<Attached> {
        if self.retry_ns.load(Relaxed) == NEVER {
            return None;
        }
        self.presence().or_else(|| shield(None, || self.join(number))).map(|presence| presence.attached)
    }

    #[cold]
    fn join(&'static self, number: usize) -> Option<&'static Presence> {
        let known = known();
        if let Some(presence) = self.presence() {
            return Some(presence);
        }
        if now_ns() < self.retry_ns.load(Relaxed) {
            return None;
        }
        let storage = known.storages.get(number)?.clone();
        // What happens from here on is kept.
        measure::ensure();
        let identity = profile::identity();
        let place = Place::of(&storage);
        match Attached::to(&place, self) {
            Ok(attached) => {
                let presence: &'static Presence = Box::leak(Box::new(Presence { attached, place, storage }));
                let (page, slot) = (attached.page, attached.slot);
                if identity.rank == 0 {
                    page.is_home.store(1, Release);
                }
                slot.open_files.store(OPEN_FILES.load(Acquire), Release);
                slot.announce(ANNOUNCED_BYTES.load(Acquire));
                slot.expect(PERIOD_NS.load(Relaxed), USUAL_BYTES.load(Relaxed));
                slot.marks.store(MARKS.load(Acquire), Release);
                let fresh = page.ledger.first_beat(now_ns());
                self.presence.store(std::ptr::from_ref(presence).cast_mut(), Release);
                if fresh || page.ledger.silent_ns(now_ns()) > SILENT_NS {
                    self.thread.start(presence);
                }
                Some(presence)
            }
            Err(reason) => {
                let is_last = self.failures.fetch_add(1, Relaxed) + 1 >= MAX_ATTEMPTS;
                if node::may_answer_later(&reason) && !is_last {
                    self.retry_ns.store(now_ns() + RETRY_NS, Relaxed);
                    // Until it is coordinated after all.
                    note(|counts| &counts.opens, 1);
                    keep_reason(&reason);
                    return None;
                }
                self.retry_ns.store(NEVER, Relaxed);
                note(|counts| &counts.opens, 1);
                keep_reason(&reason);
                if identity.rank == 0 {
                    say_alone(&reason);
                }
                None
            }
        }
    }
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(|e| e.into_inner())
}

/// The lanes that have a page, whoever leads them.
pub(super) fn present() -> impl Iterator<Item = &'static Presence> {
    LANES.iter().filter_map(Lane::presence)
}

/// No more I/O will come, or this is a forked child: the pages are its parent's.
pub(super) fn take_all() -> impl Iterator<Item = (&'static Lane, &'static Presence)> {
    LANES.iter().filter_map(|lane| {
        let presence = lane.presence()?;
        lane.forget_page();
        Some((lane, presence))
    })
}

pub(super) fn forget_threads() {
    LANES.iter().for_each(|lane| lane.thread.forget());
}

/// Weir is armed: no file has been looked up.
pub(super) fn reset() {
    // Pages of the table that were never written to stay so.
    let used = FILE_LANES.iter().filter(|lane| lane.load(Relaxed) != NOT_LOOKED_UP);
    used.for_each(|lane| lane.store(NOT_LOOKED_UP, Relaxed));
    // Whether files without a place of their own are named is not known.
    FILE_LANES[0]
        .store(if config::get(|c| c.gate_paths.is_empty()) { NOT_LOOKED_UP } else { ALONE }, Relaxed);
    OPEN_FILES.store(0, Relaxed);
    MARKS.store(0, Relaxed);
    [&ANNOUNCED_BYTES, &PERIOD_NS, &USUAL_BYTES].iter().for_each(|number| number.store(0, Relaxed));
}

/// The file of this index is not held back.
pub(super) fn leave_alone(index: u64) {
    if let Some(lane) = FILE_LANES.get(index as usize) {
        lane.store(ALONE, Relaxed);
    }
}

/// The page of the storage that the file lies on, which is looked up at its first request by a descriptor of the file.
/// `None`: it is not held back, or there is no descriptor to tell.
#[inline]
pub(super) fn of_file(block: &Block, descriptor: impl FnOnce() -> Option<i32>) -> Option<Attached> {
    let file = block.file.load(Relaxed) as usize;
    match FILE_LANES.get(file)?.load(Relaxed) {
        ALONE => None,
        NOT_LOOKED_UP => shield(None, || {
            let lane = look_up(descriptor()?)?;
            if file != 0 {
                FILE_LANES[file].store(lane, Relaxed);
            }
            by_number(lane)
        }),
        lane => by_number(lane),
    }
}

fn by_number(lane: u8) -> Option<Attached> {
    let number = usize::from(lane.wrapping_sub(1));
    LANES.get(number)?.attached(number)
}

/// The page of the storage on which a file is about to be made.
pub(super) fn of_path(path: &str) -> Option<Attached> {
    let folder = Path::new(path).parent()?;
    let folder = std::fs::File::open(folder).ok()?;
    by_number(look_up(folder.as_raw_fd())?)
}

/// The lane of an open file; nothing if it cannot be told, this time.
#[cold]
fn look_up(descriptor: i32) -> Option<u8> {
    let FileKind { device, is_regular } = kind_of(descriptor)?;
    if !is_regular {
        return Some(ALONE);
    }
    let mut known = known();
    if let Some((_, lane)) = known.devices.iter().find(|(of, _)| *of == device) {
        return Some(*lane);
    }
    let lane = match storage::of_descriptor(descriptor) {
        Found::Shared(storage) => {
            saw(gate_seen::SHARED);
            known.lane_of(storage)
        }
        Found::Unknown { mount } if config::has_service() => {
            known.lane_of(StorageName { name: String::new(), mount })
        }
        Found::Unknown { mount } => {
            saw(gate_seen::UNKNOWN);
            keep_reason(&format!("it is not known on which storage {mount} lies; nobody shares it"));
            ALONE
        }
        Found::Memory => {
            saw(gate_seen::MEMORY);
            ALONE
        }
    };
    known.remember(device, lane);
    Some(lane)
}

struct FileKind {
    device: u64,
    /// A file with data, or a folder; no pipe, terminal, socket or device.
    is_regular: bool,
}

impl FileKind {
    fn new(device: u64, mode: u32) -> FileKind {
        FileKind { device, is_regular: matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR) }
    }
}

/// What an open file is, and on which device. Every rank asks: no server need be asked for it.
fn kind_of(descriptor: i32) -> Option<FileKind> {
    // SAFETY: zeros are valid descriptions, which outlive the calls; an empty path is the descriptor itself.
    unsafe {
        let mut about: libc::statx = std::mem::zeroed();
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        if libc::statx(descriptor, c"".as_ptr(), flags, libc::STATX_TYPE, &mut about) == 0 {
            let device = libc::makedev(about.stx_dev_major, about.stx_dev_minor);
            return Some(FileKind::new(device, u32::from(about.stx_mode)));
        }
        let mut about: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &mut about) == 0).then(|| FileKind::new(about.st_dev, about.st_mode))
    }
}

impl Known {
    fn remember(&mut self, device: u64, lane: u8) {
        if self.devices.len() == MAX_DEVICES {
            self.devices.remove(0);
        }
        self.devices.push((device, lane));
    }

    fn lane_of(&mut self, storage: StorageName) -> u8 {
        let is_it = |known: &StorageName| {
            known.name == storage.name && (!known.name.is_empty() || known.mount == storage.mount)
        };
        let number = self.storages.iter().position(is_it).or_else(|| {
            let has_room = self.storages.len() < MAX_LANES;
            has_room.then(|| {
                self.storages.push(storage);
                self.storages.len() - 1
            })
        });
        number.map_or(ALONE, |number| number as u8 + 1)
    }
}

/// An MPI file was opened.
pub(super) fn file_opened() {
    OPEN_FILES.fetch_add(1, AcqRel);
    present().for_each(|presence| _ = presence.attached.slot.open_files.fetch_add(1, AcqRel));
}

/// An MPI file was closed: with the last one the phase is over.
pub(super) fn file_closed() {
    take_one(&OPEN_FILES);
    for Presence { attached, .. } in present() {
        if take_one(&attached.slot.open_files) {
            attached.page.bell.ring();
        }
    }
}

/// Whether this rank has said something that its node should hear, though it may never do I/O itself.
pub(super) fn has_something_to_say() -> bool {
    let numbers = [&ANNOUNCED_BYTES, &PERIOD_NS, &USUAL_BYTES];
    MARKS.load(Relaxed) > 0 || numbers.iter().any(|number| number.load(Relaxed) > 0)
}

/// The program says what its phases are like.
pub(super) fn expect(period_ns: u64, bytes: u64) {
    PERIOD_NS.store(period_ns, Relaxed);
    USUAL_BYTES.store(bytes, Relaxed);
    present().for_each(|presence| presence.attached.slot.expect(period_ns, bytes));
}

/// The program says that a phase begins, and what it will move or 0: asks, without waiting, where the job does I/O.
pub(super) fn phase_begins(bytes: u64) {
    ANNOUNCED_BYTES.store(bytes, Release);
    MARKS.fetch_add(1, AcqRel);
    for Presence { attached, .. } in present() {
        attached.slot.announce(bytes);
        if attached.slot.marks.fetch_add(1, AcqRel) == 0 {
            attached.page.bell.ring();
        }
    }
}

pub(super) fn phase_ends() {
    ANNOUNCED_BYTES.store(0, Release);
    take_one(&MARKS);
    for Presence { attached, .. } in present() {
        if take_one(&attached.slot.marks) {
            attached.page.bell.ring();
        }
    }
}

/// Whether it was the last one.
fn take_one(count: &AtomicU32) -> bool {
    count.fetch_update(AcqRel, Relaxed, |count| count.checked_sub(1)).ok() == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_that_were_looked_up_last_are_known() {
        let mut known = Known::default();
        (0..3 * MAX_DEVICES as u64).for_each(|device| known.remember(device, 1));
        assert_eq!(known.devices.len(), MAX_DEVICES);
        assert_eq!(known.devices.first(), Some(&(2 * MAX_DEVICES as u64, 1)));
    }
}
