//! Standard output and standard error that cannot take what a command has to say.

use std::fs::OpenOptions;
use std::io::Read;
use std::process::{Command, Stdio};

fn weir(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

#[test]
fn a_full_device_is_an_error_with_a_reason() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["report", "--schema"],
        &["doctor"],
        &["simulate", "collective", "tests/data/collective_figure3.json"],
        &["completions", "bash"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = weir(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "weir {arguments:?}: {said}");
        let reason = "weir: cannot write to standard output: No space left on device";
        assert!(said.contains(reason) && !said.contains("panicked"), "weir {arguments:?}: {said}");
    }
}

#[test]
fn what_cannot_be_said_changes_nothing() {
    // Any file: the dynamic linker complains and goes on without it.
    let library = env!("CARGO_BIN_EXE_weir");
    for (arguments, code) in [
        (&["run", "--lib", library, "--", "sh", "-c", "exit 3"][..], 3),
        (&["report", "/no/such/file"], 1),
        (&["report", "--no-such-option"], 2),
    ] {
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = weir(arguments).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "weir {arguments:?}");
    }
    // Who read has gone by the time the program ends: its own code is the answer all the same.
    let mut child = weir(&["run", "--lib", library, "--", "sh", "-c", "echo; read line; exit 3"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    drop(child.stderr.take());
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_reader_that_leaves_is_no_error_to_speak_of() {
    let mut child =
        weir(&["report", "--schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    assert_eq!(said, "");
}
