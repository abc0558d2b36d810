//! Calling `weir` as a person does.

use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) fn weir(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who refuses its arguments may be gone before it has read anything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// What `weir simulate KIND` answers to a scenario, by policy.
pub(crate) fn answer(kind: &str, scenario: &Value, more: &[&str]) -> Value {
    let output = weir(&[&["simulate", kind, "-", "--json"], more].concat(), &scenario.to_string());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["policies"].clone()
}

/// What it says to one that it does not take.
pub(crate) fn refusal(kind: &str, scenario: &str, more: &[&str]) -> String {
    let output = weir(&[&["simulate", kind, "-"], more].concat(), scenario);
    assert!(!output.status.success(), "{scenario} was accepted");
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn schema(kind: &str) -> Value {
    let path = format!("../../docs/scenarios/{kind}.schema.json");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
