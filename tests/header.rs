//! `include/weir.h` says what `src/capi.rs` exports. `WEIR_BLESS=1 cargo test --test header` writes it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_header_is_what_the_library_exports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/capi.rs"))
        .generate()
        .expect("src/capi.rs can be read")
        .write(&mut made);
    let made = String::from_utf8(made).expect("a header is text");
    let path = root.join("include/weir.h");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &made).expect("include/weir.h can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "include/weir.h has drifted: WEIR_BLESS=1 cargo test --test header");
}

/// Every function of the header has its inline fallback and its Fortran interface.
#[test]
fn fallback_and_fortran_know_every_function() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    let (header, fortran) = (read("include/weir.h"), read("include/weir.f90"));
    let (declared, fallback) =
        header.split_once("#else /* WEIR_INLINE */").expect("the header has two parts");
    let functions: Vec<&str> = declared
        .lines()
        .filter(|line| {
            line.ends_with(");") && line.contains(" *weir_")
                || line.contains(" weir_") && line.ends_with(");")
        })
        .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
        .collect();
    assert!(functions.len() >= 8, "{functions:?}");
    for function in functions {
        assert!(fallback.contains(&format!("weir_find_(\"{function}\"")), "no fallback for {function}");
        assert!(fortran.contains(&format!("'{function}'")), "no Fortran interface for {function}");
    }
}

/// A program includes it beside whatever else declares `dlsym`, before or after, in the strictest C and in C++.
#[test]
fn programs_with_the_header_compile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inline = "#define WEIR_INLINE\n#include <weir.h>\n";
    let (dlfcn, main) = ("#include <dlfcn.h>\n", "int main(void) { return weir_active(); }\n");
    let strict = ["-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"];
    for text in [
        format!("{inline}{main}"),
        format!("{inline}{dlfcn}{main}"),
        format!("{dlfcn}{inline}{main}"),
        format!("#define _GNU_SOURCE\n{inline}{dlfcn}{main}"),
        format!("#include <weir.h>\n{main}"),
    ] {
        for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
            let standard = if language == "c" { "-std=c99" } else { "-std=c++11" };
            // C++ compilers define it themselves.
            let text = text.replace("#define _GNU_SOURCE", "#undef _GNU_SOURCE\n#define _GNU_SOURCE");
            let mut child = Command::new(compiler)
                .args([standard, "-x", language])
                .args(strict)
                .arg(root.join("include"))
                .arg("-")
                .stdin(Stdio::piped())
                .spawn()
                .expect(compiler);
            child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
            assert!(child.wait().expect("it ends").success(), "{compiler} {standard}:\n{text}");
        }
    }
}
