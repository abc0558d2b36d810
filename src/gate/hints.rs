//! At file creation the coordinator may say how many aggregators and stripes a file should have and where
//! it should lie; that becomes hints in the `MPI_Info`, and never overrides what the program says itself.
//!
//! All who open a file must give the same hints, so rank 0 asks and tells the others: one broadcast on
//! their communicator, within a call that all of them make. It is done only with `WEIR_HINTS=on`, for a
//! rank that does not run under Weir would not take part.

use super::desk::{Answer, TARGETS};
use super::page::Attached;
use super::{is_on, lane};
use crate::abi::{self, Handle};
use crate::config;
use crate::profile;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Mutex;
use std::time::Duration;
use weir_coord::wire::FileInfo;

const CB_NODES: &CStr = c"cb_nodes";
const STRIPING_FACTOR: &CStr = c"striping_factor";
/// The first target, where the file system's driver takes one (Lustre).
const START_IODEVICE: &CStr = c"start_iodevice";

/// How long the creation of a file waits for an answer.
const LIMIT: Duration = Duration::from_millis(250);

/// What of an answer is handed on: request, aggregators, stripes, number of targets, targets.
type Told = [u32; 4 + TARGETS];

/// How many aggregators and stripes files were given that are open, by handle.
static GRANTED: Mutex<Vec<(usize, [u32; 2])>> = Mutex::new(Vec::new());

/// Files that have an allocation, in the process that asked, by handle.
static ALLOCATED: Mutex<Vec<(usize, Allocation)>> = Mutex::new(Vec::new());

/// What a coordinator was asked for, and where.
#[derive(Clone, Copy)]
struct Allocation {
    attached: Attached,
    request: u64,
}

/// An info of our own for one call, freed with it.
pub(crate) struct Hints {
    info: u64,
    /// Aggregators and stripes; 0: no opinion.
    granted: [u32; 2],
    allocation: Option<Allocation>,
}

impl Hints {
    /// What the file is to be opened with.
    pub(crate) fn info(&self) -> Handle {
        // SAFETY: eight bytes that hold a handle.
        unsafe { abi::current().load_handle((&raw const self.info).cast()) }
    }

    /// The file was opened.
    pub(crate) fn opened(&self, handle: usize) {
        let mut granted = GRANTED.lock().unwrap_or_else(|e| e.into_inner());
        granted.retain(|(of, _)| *of != handle);
        granted.push((handle, self.granted));
        drop(granted);
        if let Some(allocation) = self.allocation {
            ALLOCATED.lock().unwrap_or_else(|e| e.into_inner()).push((handle, allocation));
        }
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // SAFETY: made by `with_hints`, and used by nobody else.
        unsafe { abi::info_free((&raw mut self.info).cast()) };
    }
}

/// Called by all ranks of the communicator, within `MPI_File_open`.
pub(crate) fn for_file(
    comm: Handle,
    path: impl FnOnce() -> Option<String>,
    mode: c_int,
    info: Handle,
) -> Option<Hints> {
    let creates = mode & abi::current().mode_create != 0;
    if !creates || !config::get(|c| c.hints && c.coordinator.is_some()) {
        return None;
    }
    let (mut rank, mut size) = (0, 0);
    // SAFETY: the communicator that the program passes to MPI.
    unsafe {
        abi::comm_rank(comm, &mut rank)?;
        abi::comm_size(comm, &mut size)?;
    }
    let mut told: Told = [0; 4 + TARGETS];
    let mut asked = None;
    if rank == 0
        && is_on()
        && let Some((attached, answer)) = path().and_then(|path| ask(&path, size, info))
    {
        told = tell(&answer);
        asked = Some(attached);
    }
    // SAFETY: a buffer of that many bytes; all ranks of the communicator are in this call.
    unsafe {
        abi::bcast(told.as_mut_ptr().cast(), size_of::<Told>() as c_int, abi::current().byte, 0, comm)?
    };
    let asked = asked.filter(|_| told[0] != 0);
    let allocation = asked.map(|attached| Allocation { attached, request: u64::from(told[0]) });
    let hints = with_hints(info, &told, allocation);
    if let (None, Some(allocation)) = (&hints, allocation) {
        release(allocation);
    }
    hints
}

fn ask(path: &str, ranks: c_int, info: Handle) -> Option<(Attached, Answer)> {
    let attached = lane::of_path(path)?;
    let here = profile::ranks_on_this_node().unwrap_or(profile::identity().nprocs).max(1);
    let ranks = u32::try_from(ranks).unwrap_or(1);
    let file = FileInfo {
        path: path.into(),
        ranks,
        nodes: u64::from(ranks).div_ceil(here) as u32,
        bytes: 0,
        fixed_aggregators: own_hint(info, CB_NODES).unwrap_or(0),
        fixed_stripes: own_hint(info, STRIPING_FACTOR).unwrap_or(0),
    };
    let page = attached.page;
    let answer = page.desk.ask(&file, LIMIT, || _ = page.bell.ring())?;
    Some((attached, answer))
}

fn tell(answer: &Answer) -> Told {
    let mut told: Told = [0; 4 + TARGETS];
    if !answer.is_empty() {
        told[..3].copy_from_slice(&[answer.request as u32, answer.aggregators, answer.stripes]);
        told[3] = answer.targets.len() as u32;
        told[4..4 + answer.targets.len()].copy_from_slice(&answer.targets);
    }
    told
}

/// What the program says itself, if it does.
fn own_hint(info: Handle, key: &CStr) -> Option<u32> {
    let abi = abi::current();
    if abi.argument(info) == abi.info_null {
        return None;
    }
    let mut value = [0 as c_char; 64];
    let mut found = 0;
    // SAFETY: the program's info, and a buffer as long as said.
    unsafe { abi::info_get(info, key.as_ptr(), value.len() as c_int - 1, value.as_mut_ptr(), &mut found)? };
    // SAFETY: filled by MPI and zero at its end.
    let text = unsafe { CStr::from_ptr(value.as_ptr()) };
    // One that is no number is still the program's own.
    (found != 0).then(|| text.to_str().ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u32::MAX))
}

/// The program's info and what it does not say itself.
fn with_hints(info: Handle, told: &Told, allocation: Option<Allocation>) -> Option<Hints> {
    let [_, aggregators, stripes, targets, first, ..] = *told;
    let wanted = [
        (CB_NODES, aggregators, aggregators > 0),
        (STRIPING_FACTOR, stripes, stripes > 0),
        (START_IODEVICE, first, targets > 0),
    ];
    let new: Vec<_> = wanted.iter().filter(|(key, _, told)| *told && own_hint(info, key).is_none()).collect();
    if new.is_empty() {
        return None;
    }
    let abi = abi::current();
    let mut hints = Hints { info: 0, granted: [aggregators, stripes], allocation };
    let place = (&raw mut hints.info).cast();
    // SAFETY: room for a handle of any ABI, and the program's own info.
    let made = unsafe {
        if abi.argument(info) == abi.info_null { abi::info_create(place) } else { abi::info_dup(info, place) }
    };
    if made.is_none() {
        std::mem::forget(hints);
        return None;
    }
    for (key, value, _) in new {
        let value = CString::new(value.to_string()).unwrap_or_default();
        // SAFETY: our own info and C strings.
        unsafe { abi::info_set(hints.info(), key.as_ptr(), value.as_ptr()) };
    }
    Some(hints)
}

/// How many aggregators and stripes an open file was given; 0: no opinion on that.
pub(crate) fn granted(handle: usize) -> Option<[u32; 2]> {
    let granted = GRANTED.lock().unwrap_or_else(|e| e.into_inner());
    granted.iter().find(|(of, _)| *of == handle).map(|(_, granted)| *granted)
}

/// A file is closed: its place is free for others.
pub(crate) fn closed(handle: usize) {
    GRANTED.lock().unwrap_or_else(|e| e.into_inner()).retain(|(of, _)| *of != handle);
    let mut allocated = ALLOCATED.lock().unwrap_or_else(|e| e.into_inner());
    let Some(index) = allocated.iter().position(|(of, _)| *of == handle) else { return };
    let (_, allocation) = allocated.swap_remove(index);
    drop(allocated);
    release(allocation);
}

fn release(Allocation { attached, request }: Allocation) {
    let page = attached.page;
    page.desk.release(request, LIMIT, || _ = page.bell.ring());
}
