//! aarch64, AAPCS64 as Linux has it: named and variadic arguments are passed alike.

use std::arch::asm;

/// The counter that all cores share; it ticks at one rate. It is read at the start and the end of every measured call.
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    let count: u64;
    // SAFETY: Linux lets programs read it.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags)) };
    count
}

/// Where the stack is.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let address: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// The architecture says so.
pub(crate) fn cycles_are_even() -> bool {
    true
}

/// Address of this thread's 64 zero-initialised bytes. Not `pure`: to find it again after a call is
/// cheaper than to keep it across the call.
#[inline(always)]
pub(crate) fn thread_storage() -> *mut u8 {
    let address: *mut u8;
    // SAFETY: reads the thread pointer and a constant offset; `weir_thread` is defined beside this module.
    unsafe {
        asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:weir_thread",
            "ldr {1}, [{1}, :gottprel_lo12:weir_thread]",
            "add {0}, {0}, {1}",
            out(reg) address,
            out(reg) _,
            options(readonly, nostack, preserves_flags),
        );
    }
    address
}

/// A variadic function: goes straight to the real one, once that was found, unless Weir is armed; else gathers its arguments
/// into a `va_list`, as a C prologue does, and hands that to `$handler` in place of the `...`.
/// It says where the caller's frame is, as a compiler does: a thread may be cancelled in the middle of a call.
///
/// `$fixed` is the number of named arguments.
macro_rules! variadic {
    ($name:ident, $fixed:tt, $real:path, $handler:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "adrp x16, {state}",
                "ldr w16, [x16, :lo12:{state}]",
                "cmp w16, {armed}",
                "b.eq 2f",
                "adrp x16, {real}",
                "ldr x16, [x16, :lo12:{real}]",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "stp x29, x30, [sp, #-240]!",
                ".cfi_def_cfa_offset 240",
                ".cfi_offset 29, -240",
                ".cfi_offset 30, -232",
                "mov x29, sp",
                // What came in registers: the general ones at sp + 48, the others at sp + 112.
                "stp x0, x1, [sp, #48]",
                "stp x2, x3, [sp, #64]",
                "stp x4, x5, [sp, #80]",
                "stp x6, x7, [sp, #96]",
                "stp q0, q1, [sp, #112]",
                "stp q2, q3, [sp, #144]",
                "stp q4, q5, [sp, #176]",
                "stp q6, q7, [sp, #208]",
                // The va_list at sp + 16: stack, gr_top, vr_top, gr_offs, vr_offs.
                "add x16, sp, #240",
                "add x17, sp, #112",
                "stp x16, x17, [sp, #16]",
                "mov w17, 8 * ({fixed} - 8)",
                "str x16, [sp, #32]",
                "mov w16, -128",
                "stp w17, w16, [sp, #40]",
                concat!("add x", $fixed, ", sp, #16"),
                "bl {handler}",
                "ldp x29, x30, [sp], #240",
                ".cfi_restore 30",
                ".cfi_restore 29",
                ".cfi_def_cfa_offset 0",
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
/// which are on the stack, and hands `$handler` the path and the whole row.
macro_rules! arguments_in_a_row {
    ($name:ident, $handler:path) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "mov x29, sp",
                "str x1, [sp, #24]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x1, sp, #24",
                "bl {handler}",
                "ldp x29, x30, [sp], #80",
                "ret",
                handler = sym $handler,
            )
        }
    };
}
pub(crate) use arguments_in_a_row;

/// `dlsym` that asks `$answer` first: null lets the function in `$real` answer, with the stack and the return address
/// as they were; one stands for a name that nobody has, `$nobody`, so that `dlerror` says so.
macro_rules! dlsym {
    ($answer:path, $real:path, $nobody:path) => {
        #[unsafe(naked)]
        #[unsafe(export_name = "dlsym")]
        unsafe extern "C" fn dlsym() {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-32]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "bl {answer}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #32",
                "cbz x16, 2f",
                "cmp x16, #1",
                "b.ne 3f",
                "adrp x1, {nobody}",
                "add x1, x1, :lo12:{nobody}",
                "2:",
                "adrp x16, {real}",
                "ldr x16, [x16, :lo12:{real}]",
                "br x16",
                "3:",
                "mov x0, x16",
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
            ".pushsection .text.weir_late,\"ax\",%progbits",
            ".set weir_late_at, 0",
            $(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", %function"),
                ".balign 4",
                concat!($name, ":"),
                "adrp x16, {real} + weir_late_at",
                "ldr x16, [x16, :lo12:{real} + weir_late_at]",
                "cbnz x16, 2f",
                "stp x29, x30, [sp, #-64]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "stp d0, d1, [sp, #48]",
                "bl {find}",
                "ldp d0, d1, [sp, #48]",
                "ldr x2, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #64",
                "adrp x16, {real} + weir_late_at",
                "ldr x16, [x16, :lo12:{real} + weir_late_at]",
                "2:",
                "br x16",
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
