//! Who this process is, where its record goes, how it ended, and the profile at the end.

mod identity;
pub(crate) mod signals;

pub(crate) use identity::{
    Identity, is_on_one_node, nodes, rank_from_environment, ranks_on_this_node, stat_field,
};
pub(crate) use signals::watch as watch_signals;

use crate::clock::{self, Moment};
use crate::lifecycle::{self, Model};
use crate::node::{self, Merge};
use crate::{child, config, measure};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use weir_profile::job::{Launch, RECORD_EXTENSION, launch_suffix};
use weir_profile::layout::Ended;
use weir_profile::settings::{CANNOT_WRITE, SAID_UNWRITABLE};

static IDENTITY: RwLock<Option<Arc<Identity>>> = RwLock::new(None);
/// The process that was armed.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether the record can be written, as far as that was tried; if not, there is no profile.
static HAS_FILE: AtomicBool = AtomicBool::new(true);

/// How long rank 0 waits for the records of the others after `MPI_Finalize`, where it merges them itself.
const MERGE_LIMIT: Duration = Duration::from_secs(1);

/// Finds out who this process is. MPI must be up.
pub(crate) fn identify(model: Model) {
    let identity = Identity::find(model);
    PROCESS.store(std::process::id(), Relaxed);
    HAS_FILE.store(true, Relaxed);
    *IDENTITY.write().unwrap_or_else(|e| e.into_inner()) = Some(Arc::new(identity));
}

/// In a forked child: it is recorded itself, as its parent's rank.
pub(crate) fn is_forked() {
    PROCESS.store(std::process::id(), Relaxed);
}

pub(crate) fn is_lock_free() -> bool {
    child::is_unused(&IDENTITY)
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

/// What this process's record is called.
pub(crate) fn record_name() -> String {
    name_of_generation(lifecycle::GENERATION.load(Relaxed))
}

fn name_of_generation(generation: u32) -> String {
    let (identity, process) = (identity(), std::process::id());
    let (Identity { rank, host, .. }, launch) = (&*identity, launch_suffix(identity.launch));
    format!("{rank}-{host}-{process}-{generation}{launch}.{RECORD_EXTENSION}")
}

/// Where it goes if no helper keeps it.
pub(crate) fn record_path() -> PathBuf {
    let generation = lifecycle::GENERATION.load(Relaxed);
    let path = |generation| records().join(name_of_generation(generation));
    // A program that has replaced itself by exec is the same process, and has left a record.
    (generation..).take(MOST_IMAGES).map(path).find(|path| !path.exists()).unwrap_or_else(|| path(generation))
}

/// Of one process after the other, each with a record of its own.
const MOST_IMAGES: usize = 1_000;

/// Whether `weir run` has said that there can be no profile.
fn has_been_said() -> bool {
    config::variable(SAID_UNWRITABLE).is_some()
}

/// The record cannot be written.
pub(crate) fn no_record(path: &Path, error: &std::io::Error) {
    HAS_FILE.store(false, Relaxed);
    if identity().rank == 0 && !has_been_said() {
        let place = path.parent().and_then(Path::parent).unwrap_or(path).display();
        config::say(&format!(
            "{CANNOT_WRITE}{place}: {error}; the program runs on, what it does is not recorded"
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

/// After `MPI_Finalize`: rank 0 has what all have left merged into the job's profile.
pub(crate) fn write() {
    let identity = identity();
    if identity.rank != 0 {
        return;
    }
    if config::variable("WEIR_JOB_ID").is_some() {
        node::tell_run();
    }
    let launch = Launch { id: Some(identity.launch), start_ns: lifecycle::armed_at().realtime_ns };
    // A helper that kept this process's record may have gone when it had nothing more to do.
    let was_kept = measure::header().is_some_and(|header| header.alone.load(Relaxed) == 0);
    match node::merge(launch, was_kept || !is_on_one_node()) {
        Merge::Done(Some(path)) => config::say_verbose(|| format!("profile {}", path.display())),
        Merge::Done(None) => {}
        Merge::Failed(reason) if reason.starts_with(CANNOT_WRITE) && has_been_said() => {}
        Merge::Failed(reason) => config::say(&reason),
        Merge::Late => config::say(&format!(
            "no profile yet: WEIR_DIR={} has not answered within {} s; a process of Weir's waits for it, and `weir report` \
            looks again",
            identity.directory.display(),
            node::WRITE_LIMIT.as_secs()
        )),
        Merge::NoHelper => write_alone(launch),
    }
}

/// The same where there is no helper: ranks have written their records themselves, or there are none.
fn write_alone(launch: Launch) {
    if !records().is_dir() {
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
    measure::header()
        .is_some_and(|header| if header.alone.load(Relaxed) == 0 { node::flush() } else { measure::save() })
}
