//! One at a time: whoever merges a job's records for good has their folder to itself until they are gone.
//!
//! A lock on a file in the folder, which the kernel frees when its holder dies. The holder removes the file; whoever gets
//! the lock of a file that has been removed meanwhile begins again with the one that is there now, if any.

use crate::error::Error;
use crate::regular::open_regular_with;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOCK: &str = "merging";

/// Held while a folder's records are read and removed.
pub(crate) struct Claim {
    /// The file, and the lock on it: `None` where there can be no locks, or in a folder that only its owner may write to.
    lock: Option<(PathBuf, File)>,
}

impl Claim {
    /// For what nobody else can merge.
    pub(crate) const NONE: Claim = Claim { lock: None };

    /// Waits no longer than `limit` for whoever has the folder; `None` when it is gone.
    pub(crate) fn take(dir: &Path, limit: Duration) -> Result<Option<Claim>, Error> {
        let path = dir.join(LOCK);
        let deadline = Instant::now() + limit;
        loop {
            match Claim::attempt(&path) {
                Ok(Some(lock)) => return Ok(Some(Claim { lock: lock.map(|file| (path, file)) })),
                Ok(None) if Instant::now() >= deadline => {
                    return Err(Error::new(dir, "another process is merging these records"));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(Error::new(dir, error)),
            }
        }
    }

    /// `None` when somebody else has it; a lock that cannot be had at all is done without.
    fn attempt(path: &Path) -> std::io::Result<Option<Option<File>>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = match open_regular_with(&mut options, path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            Err(_) => return Ok(Some(None)),
        };
        // SAFETY: our own descriptor.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let busy = std::io::Error::last_os_error().kind() == ErrorKind::WouldBlock;
            return Ok(if busy { None } else { Some(None) });
        }
        let ours = file.metadata()?;
        let same = fs::symlink_metadata(path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
        Ok(same.then_some(Some(file)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.lock {
            let _ = fs::remove_file(path);
        }
    }
}
