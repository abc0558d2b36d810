//! The file by which the ranks of a job share a page on their node, where no helper process keeps it for them.

use crate::{auth, election};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(Clone, Debug)]
pub struct PageFile {
    directory: PathBuf,
    name: String,
}

/// A page without a leader is left over if it is older than this: ranks that need one soon have one.
const LEFT_OVER: Duration = Duration::from_secs(60);

/// The directory of page files: the user's own, in memory if possible, for what is stored in a page should not be written to a
/// disk.
fn directory() -> Result<PathBuf, String> {
    let memory = PathBuf::from(format!("/dev/shm/weir-{}", auth::user()));
    if auth::private_directory(&memory).is_ok() {
        return Ok(memory);
    }
    let directory = election::default_directory();
    auth::private_directory(&directory)?;
    Ok(directory)
}

impl PageFile {
    /// The page that the job has for a storage on this node.
    pub fn of_job(job: &str, storage: &str) -> Result<PageFile, String> {
        let name = format!("{}-{}", short_name(job), short_name(storage));
        Ok(PageFile { directory: directory()?, name })
    }

    /// The pages that the job has on this node.
    pub fn all_of_job(job: &str) -> Result<Vec<PageFile>, String> {
        let directory = directory()?;
        let entries =
            fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let prefix = format!("{}-", short_name(job));
        let names = entries.flatten().map(|entry| entry.path());
        let names = names.filter(|path| path.extension().is_some_and(|extension| extension == "gate"));
        let names = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_string()));
        let of_job = names.filter(|name| name.starts_with(&prefix));
        Ok(of_job.map(|name| PageFile { directory: directory.clone(), name }).collect())
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join(format!("{}.gate", self.name))
    }

    /// The lock of the page's leader for as long as the caller keeps the file; `None` if there is a leader.
    fn try_lead(&self) -> io::Result<Option<File>> {
        let page = OpenOptions::new().read(true).write(true).open(self.path())?;
        Ok(election::set_record_lock(&page)?.then_some(page))
    }

    /// Takes the page away. The directory stays: another job may be about to use it.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.path());
    }

    /// Takes away what jobs that were killed have left.
    pub fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let other = PageFile { directory: self.directory.clone(), name };
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

/// Of one length, whatever it stands for (FNV-1a).
fn short_name(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
