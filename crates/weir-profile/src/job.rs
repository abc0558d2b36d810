//! From a job's folder of records to its profile on disk.

use crate::claim::Claim;
use crate::error::Error;
use crate::fate::{KeptBy, Observer};
use crate::launches::{Starts, id_in_name};
use crate::merge::Merger;
use crate::node::{FileIdentity, NodeFile, identity_of};
use crate::profile::{Fate, Profile};
use crate::record::{Head, Record};
use crate::regular::{new_file, open_regular};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub use crate::launches::{Launch, suffix as launch_suffix};

/// Ends the name of every record: of one that has a file of its own, and of each in the file of a node.
pub const RECORD_EXTENSION: &str = "rec";
/// Ends the name of the file that holds the records of a node, and begins it.
pub(crate) const NODE_EXTENSION: &str = "node";
pub(crate) const NODE_PREFIX: &str = "node-";
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

/// Waits, no longer than `limit`, until the records of a launch in `dir` are finished; merges them and writes
/// `weir-<application>-<job>.json` to `out_dir`.
///
/// A node has a file soon after the first I/O of its ranks, at the latest before the first of them enters `MPI_Finalize`, which
/// returns when all ranks have called it: a rank without a record has done no I/O. Merged records are removed. When a rank is still running they
/// stay, so that `weir report` can merge them again later; so they do when merging takes another `limit`. Records of
/// other launches under the same name are theirs, or `weir report`'s.
/// `None` means that nothing was written: the job did no I/O, there was no room for any record, or somebody else has
/// merged them.
pub fn finish_job(
    dir: &Path,
    out_dir: &Path,
    launch: Launch,
    limit: Duration,
) -> Result<Option<PathBuf>, Error> {
    finish_job_within(dir, out_dir, launch, limit, limit)
}

/// The same with another limit for merging: outside the program, that may take its time.
pub fn finish_job_within(
    dir: &Path,
    out_dir: &Path,
    launch: Launch,
    limit: Duration,
    merge_limit: Duration,
) -> Result<Option<PathBuf>, Error> {
    let settled = Folder::settled(dir, &Observer::new(false), limit, |id| id == launch.id);
    if settled.is_err() && !dir.exists() {
        return Ok(None);
    }
    let seen = settled?.of(launch);
    if seen.is_empty() {
        let _ = fs::remove_dir(dir);
        return Ok(None);
    }
    let Some(claim) = Claim::take(dir, limit)? else { return Ok(None) };
    if !seen.is_all_there() {
        return Ok(None);
    }
    if seen.entries.is_empty() {
        remove(dir, &seen.merged_files(&[]), Rc::new(claim));
        return Ok(None);
    }
    let merged = seen.merge(dir, &Rc::new(claim), Some(Instant::now() + merge_limit))?;
    merged.write(out_dir)
}

/// What a rank renames its empty record to when there is no room for more: whoever merges knows then that
/// something is missing.
pub fn lost(record: &Path) -> PathBuf {
    record.with_extension(LOST_EXTENSION)
}

/// How long ranks may outlive their launcher: some return when they have told the ranks to die.
const DYING: Duration = Duration::from_secs(2);

/// Merges whatever records a folder holds; an empty one is taken away. `job_over` says that the launcher has ended, so that ranks
/// which did not say how they ended, wherever they ran, were killed or soon will be.
pub fn merge_folder(dir: &Path, job_over: bool) -> Result<Leftovers, Error> {
    let limit = if job_over { DYING } else { Duration::ZERO };
    let Some(claim) = Claim::take(dir, DYING)?.map(Rc::new) else { return Ok(Leftovers(Vec::new())) };
    let folder = Folder::settled(dir, &Observer::new(job_over), limit, |_| true)?;
    if folder.is_empty() {
        remove(dir, &[], claim);
        return Ok(Leftovers(Vec::new()));
    }
    merge_launches(dir, folder, claim).map(Leftovers)
}

/// The same in memory alone, for records of other users: nothing is written to the folder, nor locked or removed there.
pub fn look_into_folder(dir: &Path) -> Result<Vec<Profile>, Error> {
    let folder = Folder::settled(dir, &Observer::new(false), Duration::ZERO, |_| true)?;
    let merged =
        if folder.is_empty() { Vec::new() } else { merge_launches(dir, folder, Rc::new(Claim::NONE))? };
    Ok(merged.into_iter().filter(|merged| merged.did_io).map(|merged| merged.profile).collect())
}

/// A merged job for each launch. Fails if there is none.
fn merge_launches(dir: &Path, folder: Folder, claim: Rc<Claim>) -> Result<Vec<Merged>, Error> {
    let mut merged = Vec::new();
    let mut failed = None;
    for (_, part) in folder.split() {
        match part.merge(dir, &claim, None) {
            Ok(launch) => merged.push(launch),
            Err(error) => failed = Some(error),
        }
    }
    let Some(last) = merged.last_mut() else { return failed.map_or(Ok(Vec::new()), Err) };
    last.profile.notes.extend(failed.map(|error| error.to_string()));
    Ok(merged)
}

/// Merges a single record, as a job of which nothing else is known.
pub fn merge_record(path: &Path) -> Result<Profile, Error> {
    // Whoever names a link means what it points to.
    let path = &path.canonicalize().map_err(|error| Error::new(path, error))?;
    let mut folder = Folder::default();
    folder.entries.insert(path.to_path_buf(), Entry::read(path, &Observer::new(false)));
    folder.merge(path, &Rc::new(Claim::NONE), None).map(|merged| merged.profile)
}

/// A record and what its header says, or why it cannot be read.
struct Entry {
    head: Result<Head, Error>,
    fate: Fate,
    /// Whether more is to be expected of it.
    is_open: bool,
    source: Source,
}

/// Where a record is.
#[derive(Clone)]
enum Source {
    /// In a file of its own.
    File,
    /// In the file of a node, at a place.
    Node(Rc<NodeFile>, usize),
}

/// The records of a job or a launch of it, by path. One in the file of a node has that as its folder.
#[derive(Default)]
struct Folder {
    entries: BTreeMap<PathBuf, Entry>,
    /// Names of records for which there was no room.
    lost: Vec<PathBuf>,
}

impl Folder {
    /// Looks until all ranks of the launches that matter have ended, no longer than `limit`.
    fn settled(
        dir: &Path,
        observer: &Observer,
        limit: Duration,
        matters: impl Fn(Option<u64>) -> bool,
    ) -> Result<Folder, Error> {
        let deadline = Instant::now() + limit;
        let mut folder = Folder::default();
        let mut pause = Duration::from_micros(500);
        loop {
            folder.look(dir, observer)?;
            if folder.is_settled(&matters) || Instant::now() >= deadline {
                return Ok(folder);
            }
            std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Looks for new records, and again at those of which more was expected.
    fn look(&mut self, dir: &Path, observer: &Observer) -> Result<(), Error> {
        let paths = list(dir)?;
        self.lost = paths.iter().filter(|path| has_extension(path, LOST_EXTENSION)).cloned().collect();
        let mut is_open: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for (path, entry) in &self.entries {
            *is_open.entry(file_of(path).to_path_buf()).or_default() |= entry.is_open;
        }
        for path in paths.into_iter().filter(|path| is_open.get(path).copied().unwrap_or(true)) {
            if has_extension(&path, RECORD_EXTENSION) {
                let entry = Entry::read(&path, observer);
                self.entries.insert(path, entry);
            } else if has_extension(&path, NODE_EXTENSION) {
                self.look_into(path, observer);
            }
        }
        Ok(())
    }

    /// Takes what is in the file of a node, for what was there before.
    fn look_into(&mut self, path: PathBuf, observer: &Observer) {
        self.entries.retain(|known, _| file_of(known) != path);
        match NodeFile::read(&path) {
            Ok(node) => {
                let node = Rc::new(node);
                for number in 0..node.count() {
                    let entry = Entry::stored(&path, node.clone(), number, observer);
                    self.entries.insert(path.join(node.name(number)), entry);
                }
                node.rest();
            }
            Err(error) => {
                let entry =
                    Entry { head: Err(error), fate: Fate::Damaged, is_open: false, source: Source::File };
                self.entries.insert(path, entry);
            }
        }
    }

    fn is_settled(&self, matters: impl Fn(Option<u64>) -> bool) -> bool {
        !self.entries.iter().any(|(path, entry)| entry.is_open && matters(id_in_name(path)))
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lost.is_empty()
    }

    /// Whether nobody has merged and removed them meanwhile.
    fn is_all_there(&self) -> bool {
        self.entries.keys().chain(&self.lost).all(|path| file_of(path).symlink_metadata().is_ok())
    }

    /// One for each launch, with when it began, in that order.
    fn split(self) -> Vec<(Launch, Folder)> {
        let mut by_id: BTreeMap<Option<u64>, Folder> = BTreeMap::new();
        for (path, entry) in self.entries {
            by_id.entry(id_in_name(&path)).or_default().entries.insert(path, entry);
        }
        for path in self.lost {
            by_id.entry(id_in_name(&path)).or_default().lost.push(path);
        }
        let mut parts: Vec<(Launch, Folder)> = Vec::new();
        for (id, folder) in by_id {
            parts.extend(folder.split_by_time().map(|(start_ns, part)| (Launch { id, start_ns }, part)));
        }
        parts.sort_by_key(|(launch, _)| launch.start_ns);
        parts
    }

    /// Launches with the same name, by when they began. What cannot be read is taken for the last one's.
    fn split_by_time(self) -> impl Iterator<Item = (u64, Folder)> {
        let heads: Vec<&Head> = self.entries.values().filter_map(|entry| entry.head.as_ref().ok()).collect();
        let starts = Starts::of(&heads);
        let places: Vec<Option<usize>> = self
            .entries
            .values()
            .map(|entry| entry.head.as_ref().ok().map(|head| starts.place(head)))
            .collect();
        let moments = if starts.launches.is_empty() { vec![u64::MAX] } else { starts.launches };
        let last = moments.len() - 1;
        let mut parts: Vec<Folder> = moments.iter().map(|_| Folder::default()).collect();
        for ((path, entry), place) in self.entries.into_iter().zip(places) {
            parts[place.unwrap_or(last)].entries.insert(path, entry);
        }
        parts[last].lost = self.lost;
        moments.into_iter().zip(parts)
    }

    /// The part of one launch.
    fn of(self, launch: Launch) -> Folder {
        let parts = self.split().into_iter().filter(|(other, _)| other.id == launch.id);
        let nearest = parts.min_by_key(|(other, _)| other.start_ns.abs_diff(launch.start_ns));
        nearest.map(|(_, part)| part).unwrap_or_default()
    }

    /// Records in order of rank, then of time.
    fn in_order(&self) -> Vec<(&Path, &Head, &Entry)> {
        let readable = self
            .entries
            .iter()
            .filter_map(|(path, entry)| entry.head.as_ref().ok().map(|head| (path.as_path(), head, entry)));
        let mut records: Vec<_> = readable.collect();
        records.sort_by_key(|(_, head, _)| (head.rank, head.start_ns, head.generation));
        records
    }

    fn merge(&self, dir: &Path, claim: &Rc<Claim>, deadline: Option<Instant>) -> Result<Merged, Error> {
        let records = self.in_order();
        let heads: Vec<Head> = records.iter().map(|(_, head, _)| (*head).clone()).collect();
        let Some(mut merger) = Merger::new(&heads) else {
            let reason = self.entries.values().find_map(|entry| entry.head.as_ref().err());
            let none =
                if self.lost.is_empty() { "holds no records" } else { "there was no room for any record" };
            return Err(reason.cloned().unwrap_or_else(|| Error::new(dir, none)));
        };
        let mut merged = Vec::with_capacity(records.len());
        let mut last_node: Option<Rc<NodeFile>> = None;
        for (path, head, entry) in records {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                let what = "merging took too long; the records are kept for `weir report`";
                return Err(Error::new(dir, what));
            }
            if let Source::Node(node, _) = &entry.source
                && let Some(last) = last_node.replace(node.clone())
                && !Rc::ptr_eq(&last, node)
            {
                last.rest();
            }
            if self.is_superseded(path, entry) {
                merged.push(path.to_path_buf());
                continue;
            }
            match entry.source.record(path) {
                // Where there are no locks, the others are not told apart by them.
                Err(_) if !file_of(path).exists() => {
                    return Err(Error::new(dir, "another process is merging these records"));
                }
                Ok(record) => {
                    merger.add(&record, entry.fate);
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
        let did_io = heads.iter().any(|head| head.blocks > 0);
        let (files, claim) = (self.merged_files(&merged), claim.clone());
        let umask = heads.iter().find_map(|head| head.umask);
        Ok(Merged { profile: merger.finish(), did_io, umask, dir: dir.to_path_buf(), files, claim })
    }

    /// Whether a rank has written this record itself, as it does when its helper process is gone: what that had is older.
    fn is_superseded(&self, path: &Path, entry: &Entry) -> bool {
        matches!(entry.source, Source::Node(..))
            && file_of(path)
                .parent()
                .zip(path.file_name())
                .is_some_and(|(folder, name)| self.entries.contains_key(&folder.join(name)))
    }

    /// The files of which these records were all.
    fn merged_files(&self, merged: &[PathBuf]) -> Vec<Finished> {
        let merged: BTreeSet<&PathBuf> = merged.iter().collect();
        let mut files: BTreeMap<&Path, (usize, Option<&NodeFile>)> = BTreeMap::new();
        for (path, entry) in self.entries.iter().filter(|(path, _)| merged.contains(path)) {
            let (count, node) = files.entry(file_of(path)).or_default();
            *count += 1;
            if let Source::Node(found, _) = &entry.source {
                *node = Some(found);
            }
        }
        let done =
            files.into_iter().filter(|(_, (count, node))| node.is_none_or(|node| *count == node.count()));
        let done = done.map(|(file, (_, node))| (file.to_path_buf(), node.map(|node| node.identity)));
        done.chain(self.lost.iter().map(|file| (file.clone(), None))).collect()
    }
}

/// A file that nobody needs any more. The file of a node as it was read: one that a helper process has put in its place meanwhile has
/// something new in it.
type Finished = (PathBuf, Option<FileIdentity>);

/// The file that a record is in.
fn file_of(path: &Path) -> &Path {
    path.parent().filter(|parent| has_extension(parent, NODE_EXTENSION)).unwrap_or(path)
}

impl Source {
    fn record(&self, path: &Path) -> Result<Record, Error> {
        match self {
            Source::File => Record::read(path),
            Source::Node(node, number) => node.record(*number).map_err(|what| Error::new(path, what)),
        }
    }
}

impl Entry {
    fn read(path: &Path, observer: &Observer) -> Entry {
        let head = Head::read(path).and_then(|head| {
            // The header of a process that was killed does not say until when it lived.
            if head.end_known { Ok(head) } else { Record::read(path).map(|record| record.head) }
        });
        Entry::new(head, observer, Source::File)
    }

    /// The record at a place in the file of a node.
    fn stored(file: &Path, node: Rc<NodeFile>, number: usize, observer: &Observer) -> Entry {
        let head = node.head(number).map_err(|what| Error::new(&file.join(node.name(number)), what));
        Entry::new(head, observer, Source::Node(node, number))
    }

    fn new(head: Result<Head, Error>, observer: &Observer, source: Source) -> Entry {
        let kept_by = match &source {
            Source::File => None,
            Source::Node(node, number) => {
                Some(KeptBy { helper: node.helper, is_gone: node.is_gone(*number) })
            }
        };
        let (fate, is_open) =
            head.as_ref().map_or((Fate::Damaged, false), |head| observer.fate(head, kept_by));
        Entry { head, fate, is_open, source }
    }
}

/// A merged job and the records it came from.
pub struct Merged {
    pub profile: Profile,
    /// Whether any rank touched a file.
    pub did_io: bool,
    /// File mode creation mask of its processes, if it is known.
    pub umask: Option<u32>,
    dir: PathBuf,
    files: Vec<Finished>,
    claim: Rc<Claim>,
}

/// What a folder held: a merged job for each launch, in the order in which they began.
pub struct Leftovers(pub Vec<Merged>);

impl Leftovers {
    /// Writes them all.
    pub fn write(self, out_dir: &Path) -> Result<(), Error> {
        self.0.into_iter().try_for_each(|merged| merged.write(out_dir).map(drop))
    }
}

/// Where the profiles of a folder's records belong: beside it.
pub fn directory_of(folder: &Path) -> PathBuf {
    // A folder that was named relative to itself has its parent above.
    if folder.file_name().is_none() {
        return folder.join("..");
    }
    folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
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
            remove(&self.dir, &self.files, self.claim);
        }
        Ok(path)
    }
}

/// What could not be read stays (a newer Weir may read it), and so does the folder then.
fn remove(dir: &Path, files: &[Finished], claim: Rc<Claim>) {
    for (file, identity) in files {
        let is_it = |identity: FileIdentity| {
            fs::symlink_metadata(file).is_ok_and(|there| identity_of(&there) == identity)
        };
        if identity.is_none_or(is_it) {
            let _ = fs::remove_file(file);
        }
    }
    drop(claim);
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
    let wanted = out_dir.join(format!(".{stem}.json.{}", std::process::id()));
    let (mut file, temporary) = new_file(&wanted).map_err(|error| Error::new(&wanted, error))?;
    let path = file.write_all(&json).map_err(|error| Error::new(&temporary, error)).and_then(|()| {
        (1u32..)
            .map(|number| if number == 1 { format!("{stem}.json") } else { format!("{stem}-{number}.json") })
            .map(|name| out_dir.join(name))
            .find_map(|path| claim(&temporary, &path, &json).transpose())
            .unwrap_or_else(|| Err(Error::new(out_dir, "no free name for the profile")))
    });
    let _ = fs::remove_file(&temporary);
    path
}

/// Whether a file holds just this.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    let mut found = Vec::new();
    let read = |file: fs::File| file.take(bytes.len() as u64 + 1).read_to_end(&mut found);
    open_regular(path).and_then(read).is_ok_and(|_| found == bytes)
}

/// Gives the temporary file its name; `None` when another profile has it.
fn claim(temporary: &Path, path: &Path, json: &[u8]) -> Result<Option<PathBuf>, Error> {
    match fs::hard_link(temporary, path) {
        Ok(()) => Ok(Some(path.to_path_buf())),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Ok(holds(path, json).then(|| path.to_path_buf()))
        }
        // A file system without links: look first, then rename.
        Err(_) if path.symlink_metadata().is_ok() => Ok(None),
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
    // Not a link to one: whose records that has, nobody knows.
    let is_folder = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let folders =
        paths.iter().filter(|path| named(path, FOLDER_PREFIX, "") && is_folder(path)).cloned().collect();
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

/// `<rank>-<host>-<pid>-<generation>.<launch>.rec`
fn rank_in_name(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.split('-').next()?.parse().ok()
}
