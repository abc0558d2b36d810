//! Where the ranks of a job meet on their node: the page they share.

use crate::{auth, election};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(Clone, Debug)]
pub struct Place {
    directory: PathBuf,
    name: String,
}

/// A page without a leader is left over if it is older than this: ranks that need one soon have one.
const LEFT_OVER: Duration = Duration::from_secs(60);

impl Place {
    /// In a directory of the user's own, in memory if possible: what is stored in a page should not be written
    /// to a disk.
    pub fn of_job(job: &str) -> Result<Place, String> {
        let memory = PathBuf::from(format!("/dev/shm/weir-{}", auth::user()));
        let directory = match auth::private_directory(&memory) {
            Ok(()) => memory,
            Err(_) => {
                let directory = election::default_directory();
                auth::private_directory(&directory)?;
                directory
            }
        };
        Ok(Place { directory, name: short_name(job) })
    }

    pub fn page(&self) -> PathBuf {
        self.directory.join(format!("{}.gate", self.name))
    }

    /// Makes the caller the leader for as long as it keeps the file; `None` if there is one.
    pub fn try_lead(&self) -> io::Result<Option<File>> {
        let page = OpenOptions::new().read(true).write(true).open(self.page())?;
        Ok(election::set_record_lock(&page)?.then_some(page))
    }

    /// Takes the page away. The directory stays: another job may be about to use it.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.page());
    }

    /// Takes away what jobs that were killed have left.
    pub fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let other = Place { directory: self.directory.clone(), name };
            if path.extension().is_some_and(|extension| extension == "gate")
                && other.name != self.name
                && is_old(&path)
                && matches!(other.try_lead(), Ok(Some(_)))
            {
                other.remove();
            }
        }
    }
}

fn is_old(path: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(path) else { return false };
    let age = about.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    about.uid() == auth::user() && age.is_some_and(|age| age > LEFT_OVER)
}

/// Of one length, whatever the job is called (FNV-1a).
fn short_name(job: &str) -> String {
    let hash = job.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
