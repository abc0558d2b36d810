//! What the instruction set decides: the cycle counter, the thread's own storage, and the trampolines
//! for functions that Rust cannot express: variadic ones, `dlsym`, whose caller's address matters, and
//! those that are found late and must leave no frame.
//!
//! The thread's storage lies in the static TLS block (initial-exec), two or three instructions away. Rust's own
//! `thread_local!` would call a function on every access of a shared library.

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    target_env = "gnu"
)))]
compile_error!(
    "Weir runs on x86-64 and aarch64 Linux with glibc; another machine needs its own file in src/arch/"
);

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod machine;

pub(crate) use machine::*;

std::arch::global_asm!(
    ".pushsection .tbss.weir_thread,\"awT\",%nobits",
    ".globl weir_thread",
    ".hidden weir_thread",
    ".type weir_thread, %object",
    ".size weir_thread, 64",
    ".balign 64",
    "weir_thread:",
    ".zero 64",
    ".popsection",
);
