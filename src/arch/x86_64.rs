//! x86-64, System V ABI.

use std::arch::asm;

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
/// It says where the caller's frame is, as a compiler does: a thread may be cancelled in the middle of a call.
///
/// `$fixed` is the number of named arguments: two or three.
macro_rules! variadic {
    ($name:ident, 2, $real:path, $handler:path) => { $crate::arch::variadic!($name, 2, "rdx", $real, $handler); };
    ($name:ident, 3, $real:path, $handler:path) => { $crate::arch::variadic!($name, 3, "rcx", $real, $handler); };
    ($name:ident, $fixed:literal, $argument:literal, $real:path, $handler:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "cmp dword ptr [rip + {state}], {armed}",
                "je 2f",
                "cmp qword ptr [rip + {real}], 0",
                "je 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                "sub rsp, 0xd8",
                ".cfi_adjust_cfa_offset 0xd8",
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
                ".cfi_adjust_cfa_offset -0xd8",
                "ret",
                ".cfi_endproc",
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

/// `dlsym` that asks `$answer` first: null lets the function in `$real` answer, with the stack as it was; one stands
/// for a name that nobody has, `$nobody`, so that `dlerror` says so.
macro_rules! dlsym {
    ($answer:path, $real:path, $nobody:path) => {
        #[unsafe(naked)]
        #[unsafe(export_name = "dlsym")]
        unsafe extern "C" fn dlsym() {
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "sub rsp, 8",
                "call {answer}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                "test rax, rax",
                "jnz 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                "cmp rax, 1",
                "jne 3f",
                "lea rsi, [rip + {nobody}]",
                "jmp qword ptr [rip + {real}]",
                "3:",
                "ret",
                answer = sym $answer,
                real = sym $real,
                nobody = sym $nobody,
            )
        }
    };
}
pub(crate) use dlsym;

/// Functions of this library's own that jump to those in `$real`, in the same order, after `$find` has found them. None
/// has more than three integers or two numbers as arguments, which pass unharmed.
macro_rules! jumps {
    ($real:path, $find:path, $($name:literal)+) => {
        std::arch::global_asm!(
            ".pushsection .text.weir_late,\"ax\",@progbits",
            ".set weir_late_at, 0",
            $(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                "cmp qword ptr [rip + {real} + weir_late_at], 0",
                "jne 2f",
                "push rdi",
                "push rsi",
                "push rdx",
                "sub rsp, 32",
                "movups [rsp], xmm0",
                "movups [rsp + 16], xmm1",
                "call {find}",
                "movups xmm0, [rsp]",
                "movups xmm1, [rsp + 16]",
                "add rsp, 32",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "2:",
                "jmp qword ptr [rip + {real} + weir_late_at]",
                concat!(".size ", $name, ", . - ", $name),
                ".set weir_late_at, weir_late_at + 8",
            )+
            ".popsection",
            real = sym $real,
            find = sym $find,
        );
    };
}
pub(crate) use jumps;
