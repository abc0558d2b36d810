//! The hot path cannot panic: its machine code never reaches for a function that does.

use std::path::PathBuf;
use std::process::Command;

fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("WEIR_LIB") {
        return path.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target"));
    target.join("release/libweir.so")
}

#[test]
fn measured_calls_cannot_panic() {
    let library = library();
    assert!(library.exists(), "{} is missing: cargo build --release", library.display());
    let dump = Command::new("objdump").args(["-d", "-C", "--no-show-raw-insn"]).arg(&library).output();
    let dump = dump.expect("objdump, from binutils, which every linker brings");
    let text = String::from_utf8_lossy(&dump.stdout);
    let mut functions = 0;
    let mut inside = "";
    for line in text.lines() {
        if line.ends_with(">:") {
            inside = if line.contains("::measured>:") { line } else { "" };
            functions += usize::from(!inside.is_empty());
        }
        let reaches =
            line.contains("panic") || line.contains("unwrap_failed") || line.contains("expect_failed");
        assert!(inside.is_empty() || !reaches, "{inside} can panic: {line}");
    }
    // Blocking data calls of MPI in four forms each, POSIX and stdio data calls.
    assert!(functions >= 80, "only {functions} hot functions found in {}", library.display());
}
