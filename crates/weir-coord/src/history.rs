//! What earlier runs of an application showed, so that its next run need not be learnt anew.
//!
//! One file per user, a line of JSON per application, in the order in which they were last learnt:
//!
//! ```text
//! ["lammps","/opt/lammps/lmp",64,{"phases":120,"w_iter_ns":2000000000,"mean_phase_bytes":1048576}]
//! ```
//!
//! Readers take no lock: the file is only ever replaced as a whole. Writers exclude each other by a lock on a file
//! beside it, which they wait for briefly; a run that cannot have it loses its lesson and nothing else.
//! A line that makes no sense is passed over, and gone with the next lesson.

use crate::auth;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What tells one application from another. The same program on twice as many ranks has other habits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub application: String,
    /// Its path.
    pub executable: String,
    /// Of the whole job.
    pub ranks: u64,
}

/// What an application does, as [`crate::wire::Identity`] hands it to a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// How many phases this was seen in.
    pub phases: u64,
    /// Mean time between the starts of consecutive phases, of the application's own; unknown after a single one.
    pub w_iter_ns: Option<u64>,
    pub mean_phase_bytes: u64,
}

/// More applications than this are not remembered: the one that was learnt longest ago is forgotten.
pub const MAX_APPLICATIONS: usize = 1_000;

/// A longer file is not ours.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// Longer names are no names, and nothing is learnt of such an application.
const MAX_NAME_BYTES: usize = 4_096;

/// What was seen in earlier runs counts like this many phases at most: an application whose input changed is
/// known again soon, and a run that failed after two phases teaches little.
const MEMORY_PHASES: u64 = 100;

/// Writers wait for each other so many times this long.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Where a user's history is kept: `$XDG_STATE_HOME/weir`, else `$HOME/.local/state/weir`. `None` if the environment
/// names neither, or a home that is not there (`/nonexistent` is a common one): it is not made.
pub fn default_directory() -> Option<PathBuf> {
    directory_by(|name| std::env::var_os(name))
}

fn directory_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").filter(|home| home.is_dir());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(home()?.join(".local/state")))?;
    Some(state.join("weir"))
}

/// A user's history. Errors are one line, for the caller to say once; everything goes on without it.
#[derive(Clone, Debug)]
pub struct History {
    directory: PathBuf,
}

impl History {
    /// Nothing is read or made yet.
    pub fn in_directory(directory: PathBuf) -> History {
        History { directory }
    }

    /// What is known of the application; nothing if it was never seen, or if there is no history yet.
    pub fn look_up(&self, key: &Key) -> Result<Option<Habits>, String> {
        let entries = read(&self.path())?;
        Ok(entries.into_iter().find(|(known, _)| known == key).map(|(_, habits)| habits))
    }

    /// Joins what one run showed to what is known. Waits for other writers for at most a tenth of a second.
    pub fn learn(&self, key: &Key, habits: Habits) -> Result<(), String> {
        let names = [("application", &key.application), ("executable", &key.executable)];
        if let Some((name, _)) = names.iter().find(|(_, text)| text.len() > MAX_NAME_BYTES) {
            return Err(format!("not in the history: {name}: more than {MAX_NAME_BYTES} bytes"));
        }
        if habits.phases == 0 {
            return Ok(());
        }
        if let Some(parent) = self.directory.parent() {
            // What cannot be made here is named by the next step.
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
        }
        auth::private_directory(&self.directory)?;
        let _lock = lock(&self.directory.join("history.lock"))?;
        let path = self.path();
        // What cannot be read is begun anew: who looked it up has heard of that.
        let mut entries = read(&path).unwrap_or_default();
        let known = entries.iter().position(|(known, _)| known == key).map(|at| entries.remove(at).1);
        entries.push((key.clone(), known.map_or(habits, |known| known.joined(habits))));
        auth::write_private(&path, &to_text(&entries)).map_err(|error| failed(&path, &error))
    }

    fn path(&self) -> PathBuf {
        self.directory.join("history")
    }
}

impl Habits {
    /// The mean of both, each by its phases.
    fn joined(self, newer: Habits) -> Habits {
        let old_phases = self.phases.min(MEMORY_PHASES);
        let mean = |old: u64, new: u64| {
            let (old_weight, new_weight) = (u128::from(old_phases), u128::from(newer.phases));
            let sum = u128::from(old) * old_weight + u128::from(new) * new_weight;
            // No larger than the larger of the two.
            (sum / (old_weight + new_weight)) as u64
        };
        Habits {
            phases: old_phases.saturating_add(newer.phases),
            w_iter_ns: match (self.w_iter_ns, newer.w_iter_ns) {
                (Some(old), Some(new)) => Some(mean(old, new)),
                (old, new) => new.or(old),
            },
            mean_phase_bytes: mean(self.mean_phase_bytes, newer.mean_phase_bytes),
        }
    }
}

type Entry = (Key, Habits);

/// All lines that make sense. An error if there is a file and nothing in it does.
fn read(path: &Path) -> Result<Vec<Entry>, String> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| failed(path, &error))?,
    };
    let about = file.metadata().map_err(|error| failed(path, &error))?;
    if about.uid() != auth::user() {
        return Err(failed(path, &"belongs to another user"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(failed(path, &format!("longer than {MAX_FILE_BYTES} bytes")));
    }
    let entries: Vec<Entry> = bytes.split(|byte| *byte == b'\n').filter_map(entry).collect();
    if entries.is_empty() && !bytes.is_empty() {
        return Err(failed(path, &"no history of Weir's"));
    }
    Ok(entries)
}

fn failed(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("history {} is not used: {why}", path.display())
}

fn entry(line: &[u8]) -> Option<Entry> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let [application, executable, ranks, habits] = &line.as_array()?[..] else { return None };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let key = Key { application: text(application)?, executable: text(executable)?, ranks: ranks.as_u64()? };
    let habits = Habits {
        phases: habits["phases"].as_u64().filter(|phases| *phases > 0)?,
        w_iter_ns: habits["w_iter_ns"].as_u64(),
        mean_phase_bytes: habits["mean_phase_bytes"].as_u64()?,
    };
    Some((key, habits))
}

/// The latest entries, as many as may be kept.
fn to_text(entries: &[Entry]) -> String {
    let line = |(key, habits): &Entry| {
        let Habits { phases, w_iter_ns, mean_phase_bytes } = habits;
        let habits =
            json!({ "phases": phases, "w_iter_ns": w_iter_ns, "mean_phase_bytes": mean_phase_bytes });
        format!("{}\n", json!([key.application, key.executable, key.ranks, habits]))
    };
    let mut length = 0;
    let latest = entries.iter().rev().take(MAX_APPLICATIONS).map(line);
    let mut lines: Vec<String> = latest
        .take_while(|line| {
            length += line.len();
            length <= MAX_FILE_BYTES
        })
        .collect();
    lines.reverse();
    lines.concat()
}

/// Held until dropped. A holder that was stopped must not keep anybody: after a while, an error.
fn lock(path: &Path) -> Result<File, String> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(|error| failed(path, &error))?;
    for _ in 0..LOCK_TRIES {
        // SAFETY: no pointers, and the descriptor is open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(file);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(failed(path, &error));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(failed(path, &"somebody else has held the lock for too long"))
}

#[cfg(test)]
mod tests;
