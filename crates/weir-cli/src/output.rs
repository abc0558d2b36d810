//! Standard output and standard error. What cannot be written to the first, because the disk behind it is full, is
//! an error with a reason; a reader that stops reading (`weir report | head`) ends the program by SIGPIPE, quietly.
//! What cannot be written to the second is lost and changes nothing, not even the exit code.

use std::fmt::Display;
use std::io::Write;
use weir_coord::text::printable;

pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(failed)
}

/// A line about Weir itself. Names of files in it may be others'.
pub(crate) fn say(line: impl Display) {
    let lines: Vec<String> = line.to_string().split('\n').map(printable).collect();
    print_aside(&format!("weir: {}\n", lines.join("\n")));
}

/// Text on standard error.
pub(crate) fn print_aside(text: &str) {
    // `eprint!` would panic.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// For commands that go on when nobody reads what they say.
pub(crate) fn outlive_readers() {
    // SAFETY: nothing else in this program concerns itself with the signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// What to say when standard output fails.
pub(crate) fn failed(error: std::io::Error) -> String {
    format!("cannot write to standard output: {error}")
}
