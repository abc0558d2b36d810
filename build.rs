//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // It registers functions that run at exit and at fork, and wrappers are called from anywhere.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // What Weir calls by a name it exports is its own, whatever was preloaded before it; and hundreds of
    // names need not be looked up whenever a program starts.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libweir.so");
}
