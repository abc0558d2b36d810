//! Standard output. What cannot be written there, because the disk behind it is full, is an error with a
//! reason; a reader that stops reading (`weir report | head`) ends the program by SIGPIPE, quietly.

use std::io::Write;

pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(failed)
}

/// What to say when standard output fails.
pub(crate) fn failed(error: std::io::Error) -> String {
    format!("cannot write to standard output: {error}")
}
