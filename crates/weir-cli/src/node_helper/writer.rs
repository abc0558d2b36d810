//! The thread of the helper that has to do with file systems: one of them may take for ever, and ranks must be listened to meanwhile.

use super::kept::{Kept, Sheet};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use weir_profile::folder::{node_path, put_file};
use weir_profile::helper::{Answer, send};
use weir_profile::job::{FOLDER_PREFIX, Launch};
use weir_profile::layout::Kept as Stage;
use weir_profile::node::{Leaf, Process, encode};
use weir_profile::settings::CANNOT_WRITE;
use weir_profile::{Error, fnv1a, is_own_directory};

/// How long the files of other nodes are waited for. Rank 0 waits for a second in all.
const SETTLE_LIMIT: Duration = Duration::from_millis(800);
/// Merging itself is no longer in anybody's way.
const MERGE_LIMIT: Duration = Duration::from_secs(3600);

/// What to do next.
pub(super) struct Task {
    pub(super) sheet: Sheet,
    pub(super) records: Vec<Arc<Kept>>,
    /// Who waits until it is written.
    pub(super) waiting: Vec<OwnedFd>,
    /// Who waits for a profile of the launch that began then.
    pub(super) merge: Option<(u64, OwnedFd)>,
}

/// What came of it.
pub(super) struct Report {
    pub(super) sheet: Sheet,
    /// These are in a profile, and nowhere else.
    pub(super) merged: Vec<Arc<Kept>>,
}

/// The thread, from outside.
pub(super) struct Writer {
    tasks: Sender<Task>,
    reports: Receiver<Report>,
    is_busy: Arc<AtomicBool>,
}

impl Writer {
    /// `wake` is written to after each task.
    pub(super) fn start(job: &str, host: &str, wake: File) -> Result<Writer, String> {
        let ((tasks, todo), (done, reports)) = (channel::<Task>(), channel());
        let is_busy = Arc::new(AtomicBool::new(false));
        let process = u64::from(std::process::id());
        let own = Process { pid: process, start: weir_profile::process_start(process) };
        let mut desk = Desk {
            folder_name: format!("{FOLDER_PREFIX}{job}"),
            node_name: format!("{host}-{}-{}", own.pid, own.start),
            own,
            written: BTreeMap::new(),
        };
        let busy = is_busy.clone();
        let work = move || {
            for task in todo {
                let report = desk.perform(task);
                busy.store(false, Release);
                if done.send(report).is_err() || (&wake).write_all(&[1]).is_err() {
                    continue;
                }
            }
        };
        let thread = std::thread::Builder::new().name("weir-writer".into());
        thread.spawn(work).map_err(|error| error.to_string())?;
        Ok(Writer { tasks, reports, is_busy })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_busy.load(Acquire)
    }

    /// One at a time: what comes meanwhile is gathered.
    pub(super) fn begin(&self, task: Task) {
        self.is_busy.store(true, Release);
        let _ = self.tasks.send(task);
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = Report> + '_ {
        self.reports.try_iter()
    }
}

/// What the thread has at hand.
struct Desk {
    folder_name: String,
    node_name: String,
    own: Process,
    /// What the file of each sheet has in it: how long, and a checksum.
    written: BTreeMap<Sheet, (u64, u64)>,
}

impl Desk {
    fn perform(&mut self, task: Task) -> Report {
        let Task { sheet, records, waiting, merge } = task;
        let put = if records.is_empty() { Ok(()) } else { self.put(&sheet, &records) };
        let answer = match &put {
            Ok(()) => Answer::Done(None),
            Err(reason) => Answer::Failed(reason.clone()),
        };
        waiting.iter().for_each(|socket| _ = send(socket, &answer.encode(), None));
        let mut merged = Vec::new();
        if let Some((start_ns, socket)) = merge {
            let answer = match put {
                Ok(()) => self.merge(&sheet, start_ns),
                Err(reason) => Answer::Failed(reason),
            };
            let _ = send(&socket, &answer.encode(), None);
            // Whoever merges takes away what is finished.
            if matches!(answer, Answer::Done(_)) && !self.path(&sheet).exists() {
                merged = records;
            }
        }
        Report { sheet, merged }
    }

    fn folder(&self, sheet: &Sheet) -> PathBuf {
        sheet.directory.join(&self.folder_name)
    }

    fn path(&self, sheet: &Sheet) -> PathBuf {
        node_path(&self.folder(sheet), &self.node_name, sheet.launch)
    }

    /// Brings the records to `WEIR_DIR`, if they are not there as they are.
    fn put(&mut self, sheet: &Sheet, records: &[Arc<Kept>]) -> Result<(), String> {
        // One that cannot be read is not known by its rank either.
        let leaves: Vec<Leaf> = records.iter().filter_map(|kept| kept.read().ok()).collect();
        let is_over = leaves.iter().all(Leaf::is_over);
        let bytes = encode(self.own, leaves);
        let path = self.path(sheet);
        let now = (bytes.len() as u64, fnv1a(bytes.iter().copied()));
        // What is finished and not there any more has been merged, perhaps by another node's helper.
        let is_done = || fs::symlink_metadata(&path).map_or(is_over, |about| about.len() == now.0);
        if self.written.get(sheet) == Some(&now) && is_done() {
            return Ok(());
        }
        put_file(&path, &bytes).map_err(|error| {
            let place = sheet.directory.display();
            format!("{CANNOT_WRITE}{place}: {error}; the program runs on, what it does is not recorded")
        })?;
        self.written.insert(sheet.clone(), now);
        records.iter().for_each(|kept| _ = kept.tell(Stage::OnDisk));
        Ok(())
    }

    fn merge(&self, sheet: &Sheet, start_ns: u64) -> Answer {
        let folder = self.folder(sheet);
        if !folder.exists() {
            return Answer::Done(None);
        }
        let launch = Launch { id: Some(sheet.launch), start_ns };
        let merged = if is_own_directory(&folder) {
            weir_profile::finish_job_within(&folder, &sheet.directory, launch, SETTLE_LIMIT, MERGE_LIMIT)
        } else {
            Err(Error::new(&folder, "not a directory of this user's"))
        };
        match merged {
            Ok(path) => Answer::Done(path),
            Err(error) => Answer::Failed(format!(
                "no profile written: {error}; the records stay in {}: see `weir report`",
                folder.display()
            )),
        }
    }
}
