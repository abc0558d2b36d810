//! What the instruction set decides: the cycle counter, the thread's own storage, and the trampolines
//! for functions that Rust cannot express (variadic ones, and `dlsym`, whose caller's address matters).

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("Weir runs on x86-64 Linux; another machine needs its own version of src/arch.rs");

use std::arch::{asm, global_asm};

/// The cycle counter. It is read at the start and the end of every measured call.
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has it, and `clock` uses it only where it ticks evenly.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Where the stack is.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let address: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Whether the cycle counter ticks at one rate in every power state (CPUID 8000_0007h, EDX bit 8).
pub(crate) fn cycles_are_even() -> bool {
    use std::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

// The thread's storage lies in the static TLS block (initial-exec), two instructions away. Rust's own
// `thread_local!` would call `__tls_get_addr` on every access of a shared library.
global_asm!(
    ".pushsection .tbss.weir_thread,\"awT\",@nobits",
    ".globl weir_thread",
    ".hidden weir_thread",
    ".type weir_thread, @object",
    ".size weir_thread, 64",
    ".balign 64",
    "weir_thread:",
    ".zero 64",
    ".popsection",
);

/// Address of this thread's 64 zero-initialised bytes. Not `pure`: to find it again after a call is
/// cheaper than to keep it across the call.
#[inline(always)]
pub(crate) fn thread_storage() -> *mut u8 {
    let address: *mut u8;
    // SAFETY: reads the thread pointer and a constant offset; `weir_thread` is defined above.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + weir_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) address,
            options(readonly, nostack),
        );
    }
    address
}

/// A variadic function: goes straight to the real one, once that was found, unless Weir is armed; else gathers its arguments
/// into a `va_list`, as a C prologue does, and hands that to `$handler` in place of the `...`.
///
/// `$fixed` is the number of named arguments, `$argument` the register after the last of them.
macro_rules! variadic {
    ($name:ident, $fixed:literal, $argument:literal, $real:path, $handler:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "cmp dword ptr [rip + {state}], {armed}",
                "je 2f",
                "cmp qword ptr [rip + {real}], 0",
                "je 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                "sub rsp, 0xd8",
                // The register save area of the System V ABI at rsp + 0x20.
                "mov [rsp + 0x20], rdi",
                "mov [rsp + 0x28], rsi",
                "mov [rsp + 0x30], rdx",
                "mov [rsp + 0x38], rcx",
                "mov [rsp + 0x40], r8",
                "mov [rsp + 0x48], r9",
                "test al, al",
                "je 3f",
                "movaps [rsp + 0x50], xmm0",
                "movaps [rsp + 0x60], xmm1",
                "movaps [rsp + 0x70], xmm2",
                "movaps [rsp + 0x80], xmm3",
                "movaps [rsp + 0x90], xmm4",
                "movaps [rsp + 0xa0], xmm5",
                "movaps [rsp + 0xb0], xmm6",
                "movaps [rsp + 0xc0], xmm7",
                "3:",
                // The va_list at rsp: gp_offset, fp_offset, overflow_arg_area, reg_save_area.
                "mov dword ptr [rsp], 8 * {fixed}",
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 0xe0]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 0x20]",
                "mov [rsp + 16], rax",
                concat!("lea ", $argument, ", [rsp]"),
                "call {handler}",
                "add rsp, 0xd8",
                "ret",
                state = sym $crate::lifecycle::STATE,
                armed = const $crate::lifecycle::ARMED,
                real = sym $real,
                fixed = const $fixed,
                handler = sym $handler,
            )
        }
    };
}
pub(crate) use variadic;

/// A function of a path and of arguments one by one: puts those that came in registers before the others,
/// which are on the stack behind the return address, and hands `$handler` the path and the whole row.
macro_rules! arguments_in_a_row {
    ($name:ident, $handler:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {handler}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                handler = sym $handler,
            )
        }
    };
}
pub(crate) use arguments_in_a_row;
