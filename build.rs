//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // It registers functions that run at exit and at fork, and wrappers are called from anywhere.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libweir.so");
}
