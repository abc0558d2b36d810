//! Who coordinates: one of the jobs themselves, found through nothing but a directory.
//!
//! ```text
//! coordinator.lock   a record lock on it makes its holder the coordinator; it dies with the process
//! coordinator.sock   where the jobs of this node reach it
//! coordinator.at     how other nodes reach it: host, TCP address and key (only if asked for)
//! ```
//!
//! Everybody who has no coordinator tries the lock. Who gets it opens the socket and coordinates, in the thread
//! that drives its [`crate::member::Member`]; everybody, the winner too, connects. When a coordinator goes, its
//! connections close and the race begins again.
//!
//! The lock is a POSIX record lock and no `flock`: a child that the program forks must not inherit it, or a dead
//! coordinator would live on in its children. Its weakness, that within a process it excludes nobody and
//! that closing any descriptor of the file drops it, is mended by a list of the locks that this process holds.

use crate::address::Address;
use crate::auth::{self, Key};
use crate::server::{Server, Settings};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Where the jobs of a user on this node meet unless told otherwise: the same for all of them, whatever
/// their environment.
pub fn default_directory() -> PathBuf {
    PathBuf::from(format!("/tmp/weir-{}", auth::user()))
}

/// The coordinator of a directory: its server, and the lock that makes it the only one. The fields are
/// dropped in this order: the socket is gone before the lock is.
pub struct Office {
    pub server: Server,
    /// The directory, if it is published there how other nodes reach it.
    published: Option<PathBuf>,
    lock: Lock,
}

impl Office {
    /// Coordinates the jobs that meet in the directory, unless somebody does: then `None`.
    pub fn take(
        directory: &Path,
        network_host: Option<&str>,
        settings: &Settings,
    ) -> Result<Option<Office>, String> {
        let lock = Lock::take(directory, Patience::None)?;
        lock.map(|lock| Office::open(lock, directory, network_host, settings)).transpose()
    }

    /// As [`Office::take`] for this node alone, but waits while somebody else coordinates: `None` after a signal that
    /// interrupts it. Who waits so comes before jobs that have lost their coordinator: the kernel wakes it when the place
    /// is free, and they look again after a moment.
    pub fn wait_for(directory: &Path, settings: &Settings) -> Result<Option<Office>, String> {
        let lock = Lock::take(directory, Patience::UntilSignal)?;
        lock.map(|lock| Office::open(lock, directory, None, settings)).transpose()
    }

    /// Whether those who look into the directory find this one there. If not, it should be dropped.
    pub fn is_in(&self, directory: &Path) -> bool {
        let is_published = || publication_path(directory).exists();
        let is_found = self.server.is_in_place() && (self.published.is_none() || is_published());
        is_found && self.lock.is_where(&lock_path(directory))
    }

    fn open(
        lock: Lock,
        directory: &Path,
        network_host: Option<&str>,
        settings: &Settings,
    ) -> Result<Office, String> {
        let mut settings = settings.clone();
        if network_host.is_some() {
            settings.key = Some(Key::random().map_err(|error| format!("no random key: {error}"))?);
        }
        let key = settings.key.clone();
        let mut server = Server::new(settings).map_err(|error| format!("cannot coordinate: {error}"))?;
        let _ = fs::remove_file(publication_path(directory));
        let mut published = None;
        if let (Some(host), Some(key)) = (network_host, key.as_ref().and_then(Key::as_text)) {
            let Address::Tcp(bound) = server.listen(&Address::Tcp("0.0.0.0:0".into()), true)? else {
                return Err("cannot coordinate: no TCP address".into());
            };
            let port = bound.rsplit(':').next().unwrap_or_default();
            let path = publication_path(directory);
            auth::write_private(&path, &format!("tcp://{host}:{port}\n{key}\n"))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            published = Some(directory.to_path_buf());
        }
        server.listen(&Address::Unix(socket_path(directory)), true)?;
        Ok(Office { server, published, lock })
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        // In a directory that was made anew it is a successor's.
        if let Some(directory) = &self.published
            && self.lock.is_where(&lock_path(directory))
        {
            let _ = fs::remove_file(publication_path(directory));
        }
    }
}

/// Where the coordinator of a directory may be reached: on this node, and as published for others. In a directory that
/// nodes share, all see the socket, which leads nowhere on all nodes but the coordinator's.
pub fn find(directory: &Path) -> Result<Vec<(Address, Option<Key>)>, String> {
    let socket = socket_path(directory);
    let mut places = Vec::new();
    if fs::symlink_metadata(&socket).is_ok() {
        places.push((Address::Unix(socket), None));
    }
    if let Ok((address, key)) = published(directory) {
        places.push((address, Some(key)));
    }
    if places.is_empty() {
        return Err(format!("no coordinator in {}", directory.display()));
    }
    Ok(places)
}

pub(crate) fn published(directory: &Path) -> Result<(Address, Key), String> {
    let path = publication_path(directory);
    let failed = |what: &str| format!("{}: {what}", path.display());
    let about = fs::metadata(&path).map_err(|error| failed(&error.to_string()))?;
    if about.uid() != auth::user() || about.mode() & 0o077 != 0 {
        return Err(failed("must be this user's alone (600)"));
    }
    let text = fs::read_to_string(&path).map_err(|error| failed(&error.to_string()))?;
    let mut lines = text.lines();
    match (lines.next(), lines.next()) {
        (Some(address), Some(key)) => Ok((address.parse()?, Key::from_text(key))),
        _ => Err(failed("not a coordinator's address and key")),
    }
}

pub(crate) fn socket_path(directory: &Path) -> PathBuf {
    directory.join("coordinator.sock")
}

fn lock_path(directory: &Path) -> PathBuf {
    directory.join("coordinator.lock")
}

fn publication_path(directory: &Path) -> PathBuf {
    directory.join("coordinator.at")
}

/// A file's device and number.
type FileId = (u64, u64);

/// The locks that this process holds.
static HELD: Mutex<Vec<FileId>> = Mutex::new(Vec::new());

fn held() -> MutexGuard<'static, Vec<FileId>> {
    HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The lock of a directory, held until dropped or until the process dies.
struct Lock {
    file: Option<File>,
    id: FileId,
}

/// For whom else holds a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    UntilSignal,
}

impl Lock {
    /// `None`: somebody else holds it.
    fn take(directory: &Path, patience: Patience) -> Result<Option<Lock>, String> {
        auth::private_directory(directory)?;
        let path = lock_path(directory);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        // To the end: no other thread may open and close the file while this one gets the lock.
        let mut held = held();
        if fs::metadata(&path).is_ok_and(|about| held.contains(&(about.dev(), about.ino()))) {
            return Ok(None);
        }
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let id = (about.dev(), about.ino());
        if held.contains(&id) {
            // Just replaced by one that is held: leave it open, for closing it would drop that lock.
            std::mem::forget(file);
            return Ok(None);
        }
        if !lock_record(&file, patience).map_err(failed)? {
            return Ok(None);
        }
        held.push(id);
        drop(held);
        let lock = Lock { file: Some(file), id };
        Ok(lock.is_where(&path).then_some(lock))
    }

    /// Whether the path still leads to the file that is locked.
    fn is_where(&self, path: &Path) -> bool {
        let open = self.file.as_ref().and_then(|file| file.metadata().ok());
        let open = open.is_some_and(|about| (about.dev(), about.ino()) == self.id);
        open && fs::metadata(path).is_ok_and(|about| (about.dev(), about.ino()) == self.id)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut held = held();
        held.retain(|id| *id != self.id);
        // Within the guard: closing drops the lock, and somebody else may have it a moment later.
        self.file = None;
    }
}

/// Takes a lock on the whole file, which belongs to this process and to none that it forks. False if another
/// process has it.
pub fn set_record_lock(file: &File) -> io::Result<bool> {
    lock_record(file, Patience::None)
}

fn lock_record(file: &File, patience: Patience) -> io::Result<bool> {
    let command = if patience == Patience::None { libc::F_SETLK } else { libc::F_SETLKW };
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and the description outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EAGAIN | libc::EINTR) => Ok(false),
        _ => Err(error),
    }
}
