//! A job's folder of records, from the side of those who write there.

use crate::job::{NODE_EXTENSION, NODE_PREFIX};
use crate::launches::suffix;
use crate::regular::is_own_directory;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder that nobody else can put anything into: whoever merges reads what is there.
fn own_folder(folder: &Path) -> Result<(), Error> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ if is_own_directory(folder) => Ok(()),
        _ => {
            let name = folder.file_name().unwrap_or_default().display();
            Err(Error::other(format!("{name} is there and not a directory of this user's")))
        }
    }
}

/// Makes a new file, and its folder if it is the first. Whoever merges another launch takes an empty folder away.
pub fn new_in_folder(path: &Path) -> Result<File, Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut attempts = 0;
    loop {
        own_folder(folder)?;
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && attempts < 3 => attempts += 1,
            made => return made,
        }
    }
}

/// Where the file of a node is: `name` is the host's and the helper process's.
pub fn node_path(folder: &Path, name: &str, launch: u64) -> PathBuf {
    folder.join(format!("{NODE_PREFIX}{name}{}.{NODE_EXTENSION}", suffix(launch)))
}

/// Puts a file in the place of the one before: whole, or not at all. What it could not finish is taken away, and so is a folder in
/// which there is nothing else.
pub fn put_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    // Of nobody else: the name has this process in it.
    let _ = fs::remove_file(&temporary);
    let put = new_in_folder(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if put.is_err() {
        let _ = fs::remove_file(&temporary);
        let _ = path.parent().map(fs::remove_dir);
    }
    put
}
