//! Who this process is, where its record goes, how it ended, and the profile at the end.

mod identity;
pub(crate) mod signals;

pub(crate) use identity::{Identity, rank_from_environment, ranks_on_this_node, stat_field};
pub(crate) use signals::watch as watch_signals;

use crate::clock::{self, Moment};
use crate::lifecycle::{self, Model};
use crate::{config, measure};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use weir_profile::job::Launch;
use weir_profile::layout::Ended;

static IDENTITY: RwLock<Option<Arc<Identity>>> = RwLock::new(None);
/// The process that was armed.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether the record has a file; without one there is no profile.
static HAS_FILE: AtomicBool = AtomicBool::new(true);

/// How long rank 0 waits for the records of the others after `MPI_Finalize`.
const MERGE_LIMIT: Duration = Duration::from_secs(5);

/// Finds out who this process is. MPI must be up.
pub(crate) fn identify(model: Model) {
    let identity = Identity::find(model);
    PROCESS.store(std::process::id(), Relaxed);
    HAS_FILE.store(true, Relaxed);
    *IDENTITY.write().unwrap_or_else(|e| e.into_inner()) = Some(Arc::new(identity));
}

pub(crate) fn identity() -> Arc<Identity> {
    let identity = IDENTITY.read().unwrap_or_else(|e| e.into_inner());
    identity.clone().unwrap_or_else(|| Arc::new(Identity::default()))
}

/// `weir_set_application`.
pub(crate) fn set_application(name: &str) {
    let mut slot = IDENTITY.write().unwrap_or_else(|e| e.into_inner());
    if let Some(identity) = slot.as_mut() {
        Arc::make_mut(identity).application = name.to_string();
    }
    measure::with_header(|header| header.application.set(name));
}

/// Where profiles go, and records while the job runs.
fn directory() -> PathBuf {
    identity().directory.clone()
}

/// How large a file of this process may become.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid place for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// A profile is never larger; where files may not be that large, none is written, for the attempt would
/// end the process (SIGXFSZ).
const LARGEST_PROFILE_BYTES: u64 = 64 << 20;

/// The folder of this job's records.
fn records() -> PathBuf {
    directory().join(format!(".weir-{}", identity().job))
}

pub(crate) fn record_path() -> PathBuf {
    let identity = identity();
    let path = |generation| {
        let (Identity { rank, host, .. }, process) = (&*identity, std::process::id());
        let launch = weir_profile::job::launch_suffix(identity.launch);
        records().join(format!("{rank}-{host}-{process}-{generation}{launch}.rec"))
    };
    let generation = lifecycle::GENERATION.load(Relaxed);
    // A program that has replaced itself by exec is the same process, and has left a record.
    (generation..).take(MOST_IMAGES).map(path).find(|path| !path.exists()).unwrap_or_else(|| path(generation))
}

/// Of one process after the other, each with a record of its own.
const MOST_IMAGES: usize = 1_000;

/// The record cannot have a file: everything goes on in memory.
pub(crate) fn no_record(path: &Path, error: &std::io::Error) {
    HAS_FILE.store(false, Relaxed);
    if identity().rank == 0 {
        let place = path.parent().and_then(Path::parent).unwrap_or(path).display();
        config::say(&format!(
            "cannot write to WEIR_DIR={place}: {error}; the program runs on, what it does is not recorded"
        ));
    }
}

/// Whether this process, and not a child that shares its memory, is the one being recorded.
pub(crate) fn is_recorded_process() -> bool {
    PROCESS.load(Relaxed) == std::process::id()
}

/// Notes how the process ended. Safe in a signal handler: it only stores.
pub(crate) fn mark_end(how: Ended, code: i32) {
    measure::with_header(|header| {
        header.end_code.store(i64::from(code) as u64, Relaxed);
        header.end_ticks.store(clock::ticks(), Relaxed);
        Moment::now().store(&header.clock_last);
        header.ended.store(how as u64, Release);
    });
}

/// The process did not end after all.
pub(crate) fn take_back_end() {
    measure::with_header(|header| {
        header.ended.store(Ended::Running as u64, Relaxed);
        header.end_ticks.store(0, Release);
    });
}

pub(crate) fn note_fuse(text: &str) {
    measure::with_header(|header| {
        header.fuse_blown.store(1, Relaxed);
        header.note.set(text);
    });
}

/// After `MPI_Finalize`: rank 0 merges what all have left into the job's profile.
pub(crate) fn write() {
    let identity = identity();
    if identity.rank != 0 || !records().is_dir() {
        return;
    }
    if file_size_limit() < LARGEST_PROFILE_BYTES {
        if HAS_FILE.load(Relaxed) {
            config::say(
                "no profile written: the limit on file sizes (ulimit -f) is too low; see `weir report`",
            );
        }
        return;
    }
    if !weir_profile::is_own_directory(&records()) {
        // Others may have put there what they like: it is not looked at.
        if HAS_FILE.load(Relaxed) {
            let place = records();
            let place = place.display();
            config::say(&format!(
                "no profile written: {place} is not a directory of this user's; see `weir report`"
            ));
        }
        return;
    }
    if !HAS_FILE.load(Relaxed) {
        // Made for a record that could not be; it goes if nobody else has one in it.
        _ = std::fs::remove_dir(records());
    }
    let launch = Launch { id: Some(identity.launch), start_ns: lifecycle::armed_at().realtime_ns };
    match weir_profile::finish_job(&records(), &directory(), launch, MERGE_LIMIT) {
        Ok(Some(path)) => config::say_verbose(|| format!("profile {}", path.display())),
        Ok(None) => {}
        // That there will be no profile was said before.
        Err(_) if !HAS_FILE.load(Relaxed) => {}
        Err(error) => config::say(&format!(
            "no profile written: {error}; the records stay in {}: see `weir report`",
            records().display()
        )),
    }
}

/// `weir_flush`: the clock in the record is moved on, so that what it says is true as of now.
pub(crate) fn flush() -> bool {
    measure::with_header(|header| Moment::now().store(&header.clock_last));
    measure::save();
    measure::header().is_some() && HAS_FILE.load(Relaxed)
}
