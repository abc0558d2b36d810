//! From a job's folder of records to its profile on disk.

use crate::error::Error;
use crate::fate::Observer;
use crate::merge::Merger;
use crate::profile::{Fate, Profile};
use crate::record::{Head, Record};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Ends the name of every record.
const RECORD_EXTENSION: &str = "rec";
/// Ends the name of the empty file that a rank leaves when there is no room for its record.
const LOST_EXTENSION: &str = "lost";
/// Begins the name of a job's folder of records.
pub const FOLDER_PREFIX: &str = ".weir-";
/// Begins the name of a profile.
pub const PROFILE_PREFIX: &str = "weir-";
/// The longest name for a job that one can choose: as long as a profile's name keeps whole, with what worlds that the job
/// spawned have behind it (a record has room for 128 bytes).
pub const MAX_JOB_ID: usize = 96;
/// What of an application's name and of a job's stands in a profile's name; with the rest it fits 255 bytes.
const MAX_NAME: usize = 96;
const MAX_JOB_NAME: usize = 128;

/// Waits, no longer than `limit`, until the records in `dir` are finished; merges them and writes
/// `weir-<application>-<job>.json` to `out_dir`.
///
/// A record is made at a rank's first I/O, and `MPI_Finalize` returns when all ranks have called it: a
/// rank without a record has done no I/O. Merged records are removed. When a rank is still running they
/// stay, so that `weir report` can merge them again later; so they do when merging takes another `limit`.
/// `None` means that nothing was written: the job did no I/O, or there was no room for any record.
pub fn finish_job(dir: &Path, out_dir: &Path, limit: Duration) -> Result<Option<PathBuf>, Error> {
    let folder = Folder::settled(dir, &Observer::new(false), limit)?;
    if folder.entries.is_empty() && !folder.lost.is_empty() {
        remove(dir, &folder.lost);
        return Ok(None);
    }
    let merged = folder.merge(dir, Some(Instant::now() + limit))?;
    merged.write(out_dir)
}

/// What a rank renames its empty record to when there is no room for more: whoever merges knows then that
/// something is missing.
pub fn lost(record: &Path) -> PathBuf {
    record.with_extension(LOST_EXTENSION)
}

/// How long ranks may outlive their launcher: some return when they have told the ranks to die.
const DYING: Duration = Duration::from_secs(2);

/// Merges whatever records a folder holds. `job_over` says that the launcher has ended, so that ranks
/// which did not say how they ended, wherever they ran, were killed or soon will be.
pub fn merge_folder(dir: &Path, job_over: bool) -> Result<Merged, Error> {
    let limit = if job_over { DYING } else { Duration::ZERO };
    Folder::settled(dir, &Observer::new(job_over), limit)?.merge(dir, None)
}

/// Merges a single record, as a job of which nothing else is known.
pub fn merge_record(path: &Path) -> Result<Profile, Error> {
    let mut folder = Folder::default();
    folder.entries.insert(path.to_path_buf(), Entry::read(path, &Observer::new(false)));
    folder.merge(path, None).map(|merged| merged.profile)
}

/// A record and what its header says, or why it cannot be read.
struct Entry {
    head: Result<Head, Error>,
    fate: Fate,
}

/// The records of a job, by path.
#[derive(Default)]
struct Folder {
    entries: BTreeMap<PathBuf, Entry>,
    /// Names of records for which there was no room.
    lost: Vec<PathBuf>,
}

impl Folder {
    /// Looks until all ranks have ended, no longer than `limit`.
    fn settled(dir: &Path, observer: &Observer, limit: Duration) -> Result<Folder, Error> {
        let deadline = Instant::now() + limit;
        let mut folder = Folder::default();
        let mut pause = Duration::from_micros(500);
        loop {
            folder.look(dir, observer)?;
            if folder.is_settled() || Instant::now() >= deadline {
                return Ok(folder);
            }
            std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Looks for new records, and again at those of ranks that were still running.
    fn look(&mut self, dir: &Path, observer: &Observer) -> Result<(), Error> {
        let paths = list(dir)?;
        self.lost = paths.iter().filter(|path| has_extension(path, LOST_EXTENSION)).cloned().collect();
        for path in paths.into_iter().filter(|path| has_extension(path, RECORD_EXTENSION)) {
            let known = self.entries.get(&path);
            if known.is_none_or(|entry| entry.fate == Fate::Running) {
                let entry = Entry::read(&path, observer);
                self.entries.insert(path, entry);
            }
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.entries.values().all(|entry| entry.fate != Fate::Running)
    }

    /// Records in order of rank, then of time.
    fn in_order(&self) -> Vec<(&Path, &Head, Fate)> {
        let readable = self.entries.iter().filter_map(|(path, entry)| {
            entry.head.as_ref().ok().map(|head| (path.as_path(), head, entry.fate))
        });
        let mut records: Vec<_> = readable.collect();
        records.sort_by_key(|(_, head, _)| (head.rank, head.start_ns, head.generation));
        records
    }

    fn merge(&self, dir: &Path, deadline: Option<Instant>) -> Result<Merged, Error> {
        let records = self.in_order();
        let heads: Vec<Head> = records.iter().map(|(_, head, _)| (*head).clone()).collect();
        let Some(mut merger) = Merger::new(&heads) else {
            let reason = self.entries.values().find_map(|entry| entry.head.as_ref().err());
            let none =
                if self.lost.is_empty() { "holds no records" } else { "there was no room for any record" };
            return Err(reason.cloned().unwrap_or_else(|| Error::new(dir, none)));
        };
        let mut merged = Vec::with_capacity(records.len());
        for (path, head, fate) in records {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                let what = "merging took too long; the records are kept for `weir report`";
                return Err(Error::new(dir, what));
            }
            match Record::read(path) {
                Ok(record) => {
                    merger.add(&record, fate);
                    merged.push(path.to_path_buf());
                }
                Err(error) => merger.add_damaged(Some(head.rank), error.to_string()),
            }
        }
        for (path, entry) in &self.entries {
            if let Err(error) = &entry.head {
                merger.add_damaged(rank_in_name(path), error.to_string());
            }
        }
        for path in &self.lost {
            let what = Error::new(path, "there was no room for this rank's record: what it did is missing");
            merger.add_damaged(rank_in_name(path), what.to_string());
        }
        merged.extend(self.lost.iter().cloned());
        let did_io = heads.iter().any(|head| head.blocks > 0);
        Ok(Merged { profile: merger.finish(), did_io, dir: dir.to_path_buf(), records: merged })
    }
}

impl Entry {
    fn read(path: &Path, observer: &Observer) -> Entry {
        let head = Head::read(path).and_then(|head| {
            // The header of a process that was killed does not say until when it lived.
            if head.end_known { Ok(head) } else { Record::read(path).map(|record| record.head) }
        });
        let fate = head.as_ref().map_or(Fate::Damaged, |head| observer.fate(head, path));
        Entry { head, fate }
    }
}

/// A merged job and the records it came from.
pub struct Merged {
    pub profile: Profile,
    /// Whether any rank touched a file.
    pub did_io: bool,
    dir: PathBuf,
    records: Vec<PathBuf>,
}

impl Merged {
    /// Whether a rank may still add to its record.
    pub fn is_live(&self) -> bool {
        self.profile.ranks.iter().any(|rank| matches!(rank.ended, Fate::Running | Fate::Unknown))
    }

    /// Writes the profile, and removes the records unless a rank may still add to them. `None` when the
    /// job did no I/O.
    pub fn write(self, out_dir: &Path) -> Result<Option<PathBuf>, Error> {
        let path = if self.did_io { Some(write_profile(&self.profile, out_dir)?) } else { None };
        if !self.is_live() {
            remove(&self.dir, &self.records);
        }
        Ok(path)
    }
}

/// What could not be read stays (a newer Weir may read it), and so does the folder then.
fn remove(dir: &Path, records: &[PathBuf]) {
    for record in records {
        let _ = fs::remove_file(record);
    }
    let _ = fs::remove_dir(dir);
}

/// Writes a profile under a name of its own, whole or not at all. Written to a temporary file beside
/// it and then linked to its name, which never replaces a profile that is already there: the next
/// free of `…-2.json`, `…-3.json` is taken, unless the very same profile is there already.
///
/// Not synced to disk: it runs inside the user's program, and a machine that loses power loses
/// the files the profile speaks of as well.
pub fn write_profile(profile: &Profile, out_dir: &Path) -> Result<PathBuf, Error> {
    let stem = profile_stem(profile);
    let json = serde_json::to_vec(profile).map_err(|error| Error::new(out_dir, error))?;
    let temporary = out_dir.join(format!(".{stem}.json.{}", std::process::id()));
    let written = fs::File::create(&temporary).and_then(|mut file| file.write_all(&json));
    let path = written.map_err(|error| Error::new(&temporary, error)).and_then(|()| {
        (1u32..)
            .map(|number| if number == 1 { format!("{stem}.json") } else { format!("{stem}-{number}.json") })
            .map(|name| out_dir.join(name))
            .find_map(|path| claim(&temporary, &path, &json).transpose())
            .unwrap_or_else(|| Err(Error::new(out_dir, "no free name for the profile")))
    });
    let _ = fs::remove_file(&temporary);
    path
}

/// Gives the temporary file its name; `None` when another profile has it.
fn claim(temporary: &Path, path: &Path, json: &[u8]) -> Result<Option<PathBuf>, Error> {
    match fs::hard_link(temporary, path) {
        Ok(()) => Ok(Some(path.to_path_buf())),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let same = fs::read(path).is_ok_and(|existing| existing == json);
            Ok(same.then(|| path.to_path_buf()))
        }
        // A file system without links: look first, then rename.
        Err(_) if path.exists() => Ok(None),
        Err(_) => fs::rename(temporary, path)
            .map(|()| Some(path.to_path_buf()))
            .map_err(|error| Error::new(path, error)),
    }
}

/// `weir-<application>-<job>` with what does not fit a file name replaced.
fn profile_stem(profile: &Profile) -> String {
    let fitting = |text: &str, otherwise: &str, longest: usize| -> String {
        let keep = |c: char| if c.is_ascii_alphanumeric() || "._-+=@".contains(c) { c } else { '_' };
        let name: String = text.chars().map(keep).take(longest).collect();
        if name.is_empty() { otherwise.to_string() } else { name }
    };
    let job = &profile.job;
    let application = fitting(&job.application, "program", MAX_NAME);
    format!("{PROFILE_PREFIX}{application}-{}", fitting(&job.id, "job", MAX_JOB_NAME))
}

/// Folders of records and profiles in a directory, each in order of name.
pub struct Found {
    pub folders: Vec<PathBuf>,
    pub profiles: Vec<PathBuf>,
}

/// What a `WEIR_DIR` holds; a job's own folder is found as well.
pub fn find(dir: &Path) -> Result<Found, Error> {
    let paths = list(dir)?;
    let named = |path: &PathBuf, prefix: &str, suffix: &str| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(prefix) && name.ends_with(suffix))
    };
    if dir.canonicalize().is_ok_and(|dir| named(&dir, FOLDER_PREFIX, "")) {
        return Ok(Found { folders: vec![dir.to_path_buf()], profiles: Vec::new() });
    }
    let folders =
        paths.iter().filter(|path| named(path, FOLDER_PREFIX, "") && path.is_dir()).cloned().collect();
    let profiles = paths.iter().filter(|path| named(path, PROFILE_PREFIX, ".json")).cloned().collect();
    Ok(Found { folders, profiles })
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error: std::io::Error| Error::new(dir, error);
    let entries = fs::read_dir(dir).map_err(failed)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}

/// `<rank>-<host>-<pid>-<generation>.rec`
fn rank_in_name(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.split('-').next()?.parse().ok()
}
