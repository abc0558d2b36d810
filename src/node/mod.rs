//! What the processes of a job share on their node: the helper process, which keeps the ranks' records beyond their end and brings
//! them to `WEIR_DIR`, and memory.
//!
//! A rank does nothing with `WEIR_DIR` itself, for a file system may take for ever to answer. It hands its memory over at its first
//! I/O, says at its end that it is done, and keeps no descriptor in between: the program may close any number it likes. What it
//! waits for it does not wait for long. `crates/weir-cli/src/node_helper` is the other side.

pub(crate) mod memory;
mod spawn;

use crate::shim::real::object_of;
use crate::{config, profile};
use spawn::Outcome;
use std::ffi::{CString, c_void};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_profile::helper::{Address, Answer, NAMES, Request, connect, send_request, wait_for_answer};
use weir_profile::job::Launch;

/// How long a rank tries to reach a helper that has just been started, or is busy with others.
const REACH_LIMIT: Duration = Duration::from_millis(20);
/// How long it waits for an answer that the helper has at hand.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);
/// How long rank 0 waits for the profile, and whoever calls `weir_flush` for the file of the node.
pub(crate) const WRITE_LIMIT: Duration = Duration::from_secs(1);

const NO_HELPER: &str = "no helper process of this job";
const NO_ANSWER: &str = "the helper process does not answer";
const NOT_REACHED: &str = "the helper process cannot be reached";

/// Whether a helper may be started to reach one.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    Yes,
    No,
}

/// A connection to the helper of this job.
fn reach(start: Start) -> Result<OwnedFd, String> {
    let identity = profile::identity();
    for number in 0..NAMES {
        let address = Address::of(identity.user, &identity.job, number);
        let deadline = Instant::now() + REACH_LIMIT;
        let mut may_start = start == Start::Yes;
        loop {
            match connect(&address, identity.user) {
                Ok(socket) => return Ok(socket),
                // A stranger's.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => break,
                Err(error) if error.kind() == ErrorKind::NotFound && may_start => {
                    may_start = false;
                    start_helper(&address, &identity.job)?;
                }
                Err(error) if error.kind() == ErrorKind::NotFound && start == Start::No => {
                    return Err(NO_HELPER.into());
                }
                Err(error) if Instant::now() >= deadline => {
                    return Err(format!("{NOT_REACHED}: {error}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    Err("other users have taken the addresses of the helper process".into())
}

fn start_helper(address: &Address, job: &str) -> Result<(), String> {
    let programs = helper_programs();
    let job = CString::new(job).map_err(|error| error.to_string())?;
    match spawn::start(address.socket_address(), &programs, &job) {
        Outcome::Started | Outcome::Taken => Ok(()),
        Outcome::Failed => {
            let tried: Vec<_> = programs.iter().map(|program| program.to_string_lossy()).collect();
            Err(format!("no helper process could be started ({})", tried.join(", ")))
        }
    }
}

/// Where the `weir` command may be: as `WEIR_HELPER` says, or beside this library as built or as installed.
fn helper_programs() -> Vec<CString> {
    if let Some(said) = std::env::var_os("WEIR_HELPER").filter(|value| !value.is_empty()) {
        return CString::new(said.into_vec()).into_iter().collect();
    }
    let library = object_of(helper_programs as *const c_void).unwrap_or_default();
    let library =
        profile::identity().started_in.join(Path::new(std::ffi::OsStr::from_bytes(library.as_bytes())));
    let beside = library.parent().unwrap_or(Path::new("/"));
    let places = ["weir", "../bin/weir", "../../bin/weir"];
    places
        .iter()
        .filter_map(|place| CString::new(beside.join(place).into_os_string().into_vec()).ok())
        .collect()
}

/// Hands the memory of a record over to the helper, which is started if there is none.
pub(crate) fn keep(memory: &OwnedFd, name: String) -> Result<(), String> {
    let identity = profile::identity();
    let request = Request::Keep {
        directory: identity.directory.clone(),
        name,
        launch: identity.launch,
        one_node: profile::is_on_one_node(),
    };
    let socket = reach(Start::Yes)?;
    send_request(&socket, &request, Some(memory.as_raw_fd())).map_err(|error| error.to_string())
}

/// Says that this process's records are at their end, and waits for a moment until they are in `WEIR_DIR`, if wanted. False: there is
/// no helper. One that does not answer has the records all the same, and notices the end of the process by itself.
pub(crate) fn ended(wait: bool) -> bool {
    let socket = match reach(Start::No) {
        Ok(socket) => socket,
        Err(reason) => return reason != NO_HELPER,
    };
    if send_request(&socket, &Request::Ended, None).is_ok() && wait {
        wait_for_answer(&socket, ANSWER_LIMIT);
    }
    true
}

/// Has the helper bring what it keeps to `WEIR_DIR` now.
pub(crate) fn flush() -> bool {
    let Ok(socket) = reach(Start::No) else { return false };
    send_request(&socket, &Request::Flush, None).is_ok()
        && matches!(wait_for_answer(&socket, WRITE_LIMIT), Some((Answer::Done(_), _)))
}

/// Says to the `weir run` that this job was started by, if there is one here, that the job has come to its end. Nobody is waited for.
pub(crate) fn tell_run() {
    let identity = profile::identity();
    if let Ok(socket) = connect(&Address::of_run(identity.user, &identity.job), identity.user) {
        let request = Request::Ran { nprocs: identity.nprocs, mpi: identity.mpi.clone() };
        let _ = send_request(&socket, &request, None);
    }
}

/// What became of the profile.
pub(crate) enum Merge {
    /// It is there, or there was nothing to be written.
    Done(Option<PathBuf>),
    Failed(String),
    /// The helper is at it.
    Late,
    /// There is no helper to ask.
    NoHelper,
}

/// Has the helper merge what the ranks of a launch have left. `start` says whether there may be something although there is no helper
/// here: of other nodes.
pub(crate) fn merge(launch: Launch, start: bool) -> Merge {
    let Ok(socket) = reach(if start { Start::Yes } else { Start::No }) else { return Merge::NoHelper };
    let directory = profile::identity().directory.clone();
    let request =
        Request::Merge { directory, launch: launch.id.unwrap_or_default(), start_ns: launch.start_ns };
    if send_request(&socket, &request, None).is_err() {
        return Merge::NoHelper;
    }
    match wait_for_answer(&socket, WRITE_LIMIT) {
        Some((Answer::Done(path), _)) => Merge::Done(path),
        Some((Answer::Failed(reason), _)) => Merge::Failed(reason),
        None => Merge::Late,
    }
}

/// A piece of memory of that name, shared by the ranks of this job on this node: zeros at first, sealed, of that size at least, a
/// multiple of the page's. It is as long-lived as the helper, which is started if there is none; whoever maps it keeps it.
pub(crate) fn shared_memory(name: &str, bytes: usize) -> Result<OwnedFd, String> {
    let socket = reach(Start::Yes)?;
    let request = Request::Memory { name: name.into(), bytes: bytes as u64 };
    send_request(&socket, &request, None).map_err(|error| error.to_string())?;
    match wait_for_answer(&socket, ANSWER_LIMIT) {
        Some((Answer::Done(_), Some(memory))) => Ok(memory),
        Some((Answer::Failed(reason), _)) => Err(reason),
        _ => Err(NO_ANSWER.into()),
    }
}

/// Whether another attempt may succeed where one ended with this reason.
pub(crate) fn may_answer_later(reason: &str) -> bool {
    reason == NO_ANSWER || reason.starts_with(NOT_REACHED)
}

/// For `WEIR_VERBOSE=1`.
pub(crate) fn say_why_alone(reason: &str) {
    config::say_verbose(|| format!("{reason}: the record is written at its end only"));
}
