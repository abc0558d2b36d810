//! Opening files in directories that others can write to as well.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opens a file to read it, if it is one: a pipe would wait for whoever writes to it, for good, and what a link points
/// to is not what its name says.
pub fn open_regular(path: &Path) -> Result<File> {
    open_regular_with(OpenOptions::new().read(true), path)
}

/// The same with other options.
pub(crate) fn open_regular_with(options: &mut OpenOptions, path: &Path) -> Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::new(ErrorKind::InvalidInput, NOT_A_FILE)) }
}

/// How many names that others have taken a new file may have to go past.
const MOST_NAMES_TAKEN: u32 = 100;

/// Makes a file that was not there before, under this name or one with a number behind it: what somebody else has made
/// there may be a link to a file of the user's.
pub fn new_file(path: &Path) -> Result<(File, PathBuf)> {
    let mut name = path.to_path_buf();
    let mut number = 1;
    loop {
        match File::create_new(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MOST_NAMES_TAKEN => {}
            made => return made.map(|file| (file, name)),
        }
        name = path.to_path_buf();
        name.as_mut_os_string().push(format!(".{number}"));
        number += 1;
    }
}

const NOT_A_FILE: &str = "not a regular file";

/// Whether this is a directory of this user's own: nobody else can have put anything there, unless the user let them.
pub fn is_own_directory(path: &Path) -> bool {
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    path.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == user)
}
