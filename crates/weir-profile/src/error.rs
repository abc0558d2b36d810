//! The one error of this crate: which file, and what is wrong with it.

use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub path: PathBuf,
    pub what: String,
}

impl Error {
    pub fn new(path: &Path, what: impl fmt::Display) -> Self {
        Error { path: path.to_path_buf(), what: what.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for Error {}
