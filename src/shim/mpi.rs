//! The calls of `MPI_File_*`: one row per function, from which come its wrapper, its `PMPI_` twin, their
//! large-count forms, the real slots and what `dlsym` answers. What they do before and after the real call
//! is in `around.rs`.

use super::around::*;
use super::caller::{Caller, Thread};
use super::real::{Row, Slot};
use super::wrap::{c_name, real_function};
use crate::abi::Handle;
use crate::arch;
use crate::lifecycle::armed;
use crate::measure::data::{Class, Direction, Op};
use crate::measure::exchange::Place;
use crate::measure::lane::Name;
use crate::measure::steady::{self, Same};
use std::ffi::{c_char, c_int, c_void};

/// What the small-count forms have in place of a smaller one.
mod small {
    pub(super) const IS_LARGE: bool = false;
    pub(super) static SMALL: super::Slot = super::Slot::new(std::ptr::null());
}

/// One exported function: `$fh`, … name the arguments that `$finish` needs.
macro_rules! data_call {
    (plain $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty last Place::Pointer] (fh: File, buf: Buffer, n: $count, ty: Handle, last: Address)
            $p $name $s $($how)* }
    };
    (shared $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty last Place::Shared] (fh: File, buf: Buffer, n: $count, ty: Handle, last: Address)
            $p $name $s $($how)* }
    };
    (at $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty last Place::At(offset)]
            (fh: File, offset: i64, buf: Buffer, n: $count, ty: Handle, last: Address) $p $name $s $($how)* }
    };
    (begin $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty ty Place::Pointer] (fh: File, buf: Buffer, n: $count, ty: Handle) $p $name $s $($how)* }
    };
    (shared_begin $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty ty Place::Shared] (fh: File, buf: Buffer, n: $count, ty: Handle) $p $name $s $($how)* }
    };
    (at_begin $p:literal $name:ident $s:literal $count:ty, $($how:tt)*) => {
        data_call! { @ [fh n ty ty Place::At(offset)] (fh: File, offset: i64, buf: Buffer, n: $count, ty: Handle)
            $p $name $s $($how)* }
    };
    (@ [$fh:ident $n:ident $ty:ident $last:ident $place:expr] ($($arg:ident: $type:ty),*)
        $p:literal $name:ident $s:literal $finish:ident $direction:ident $class:ident) => {
        real_function!(c_name!($p, stringify!($name), $s), fn($($arg: $type),*) -> c_int, {
            match i32::try_from($n) {
                // SAFETY: the small form of the function, which takes the same arguments in the same
                // registers and reads the lower half of the count.
                Ok(_) if IS_LARGE => unsafe { std::mem::transmute::<*mut c_void, Function>(SMALL.get())($($arg),*) },
                _ => missing(NAME),
            }
        });
        static OP: Op = Op::new(concat!("MPI_File_", stringify!($name), $s), Direction::$direction);

        #[unsafe(export_name = concat!($p, stringify!($name), $s))]
        pub(crate) unsafe extern "C-unwind" fn wrapper($($arg: $type),*) -> c_int {
            // SAFETY: the program's own call.
            if armed() { unsafe { measured($($arg),*) } } else { unsafe { real($($arg),*) } }
        }

        measured_call! { $finish [$fh $n $ty $last] ($($arg: $type),*) $direction $class }

        /// Any thread and any caller.
        #[inline(never)]
        unsafe extern "C-unwind" fn looked_at($($arg: $type),*) -> c_int {
            if !Thread::current().app_calls() {
                // SAFETY: the program's own call.
                return unsafe { real($($arg),*) };
            }
            let start = enter_data_call(Class::$class, &OP, $fh, $place, $n as u64, $ty);
            let inside = Inside(start);
            // SAFETY: the program's own call.
            let answer = unsafe { real($($arg),*) };
            std::mem::forget(inside);
            $finish::<{ Class::$class as usize }>(start, answer, &OP, $fh, $n as u64, $ty, $last as usize)
        }
        pub(crate) const ROW: Row = Row { name: NAME, wrapper: wrapper as *const (), slot: &REAL, stub: stub as *const () };
    };
}

/// What an armed wrapper does: for a blocking call of the owner of the first lane, nothing before the
/// real call but to say who is calling and to read the clock.
macro_rules! measured_call {
    (blocking [$fh:ident $n:ident $ty:ident $last:ident] ($($arg:ident: $type:ty),*) $direction:ident $class:ident) => {
        #[inline(never)]
        unsafe extern "C-unwind" fn measured($($arg: $type),*) -> c_int {
            let thread = Thread::current();
            if thread.owner_calls() != 0 || !steady::needs_no_look(Class::$class, &OP, $fh) {
                // SAFETY: the program's own call.
                return unsafe { looked_at($($arg),*) };
            }
            thread.enter_mpi();
            let start_ticks = arch::cycles();
            let inside = Inside(start_ticks);
            // SAFETY: the program's own call.
            let answer = unsafe { real($($arg),*) };
            let end_ticks = arch::cycles();
            std::mem::forget(inside);
            let thread = Thread::current();
            thread.caller.set(Caller::App);
            if answer != 0 {
                return failed($fh, OP.name(), start_ticks, answer);
            }
            let same = Same { fh: $fh, datatype: $ty, count: $n as u64 };
            if steady::mpiio(thread, Class::$class, &OP, start_ticks, end_ticks, same) {
                return answer;
            }
            done::<{ Class::$class as usize }>(start_ticks, end_ticks, &OP, $fh, $n as u64, $ty)
        }
    };
    ($finish:ident $roles:tt ($($arg:ident: $type:ty),*) $direction:ident $class:ident) => {
        #[inline(always)]
        unsafe extern "C-unwind" fn measured($($arg: $type),*) -> c_int {
            // SAFETY: the program's own call.
            unsafe { looked_at($($arg),*) }
        }
    };
}

/// Rows `name: shape, how it ends, direction, class`.
macro_rules! data_calls {
    ($($name:ident: $shape:ident, $finish:ident $direction:ident $class:ident;)+) => {
        $(mod $name {
            pub(super) mod mpi {
                use super::super::*;
                use super::super::small::*;
                data_call! { $shape "MPI_File_" $name "" c_int, $finish $direction $class }
            }
            pub(super) mod pmpi {
                use super::super::*;
                use super::super::small::*;
                data_call! { $shape "PMPI_File_" $name "" c_int, $finish $direction $class }
            }
            // An MPI before version 4 has no large-count forms. A program that looks whether they are
            // there, by a weak reference as mpi4py does, finds ours, so they must work.
            pub(super) mod mpi_c {
                use super::super::*;
                use super::mpi::REAL as SMALL;
                const IS_LARGE: bool = true;
                data_call! { $shape "MPI_File_" $name "_c" i64, $finish $direction $class }
            }
            pub(super) mod pmpi_c {
                use super::super::*;
                use super::pmpi::REAL as SMALL;
                const IS_LARGE: bool = true;
                data_call! { $shape "PMPI_File_" $name "_c" i64, $finish $direction $class }
            }
        })+
        pub(super) static DATA_ROWS: &[Row] = &[$($name::mpi::ROW, $name::pmpi::ROW, $name::mpi_c::ROW, $name::pmpi_c::ROW),+];
    };
}

data_calls! {
    read: plain, blocking Read Independent;
    write: plain, blocking Write Independent;
    read_at: at, blocking Read Independent;
    write_at: at, blocking Write Independent;
    read_shared: shared, blocking Read Independent;
    write_shared: shared, blocking Write Independent;
    read_all: plain, blocking Read Collective;
    write_all: plain, blocking Write Collective;
    read_at_all: at, blocking Read Collective;
    write_at_all: at, blocking Write Collective;
    read_ordered: shared, blocking Read Collective;
    write_ordered: shared, blocking Write Collective;
    iread: plain, nonblocking Read Nonblocking;
    iwrite: plain, nonblocking Write Nonblocking;
    iread_at: at, nonblocking Read Nonblocking;
    iwrite_at: at, nonblocking Write Nonblocking;
    iread_shared: shared, nonblocking Read Nonblocking;
    iwrite_shared: shared, nonblocking Write Nonblocking;
    iread_all: plain, nonblocking Read Nonblocking;
    iwrite_all: plain, nonblocking Write Nonblocking;
    iread_at_all: at, nonblocking Read Nonblocking;
    iwrite_at_all: at, nonblocking Write Nonblocking;
    read_all_begin: begin, split_begin Read Split;
    write_all_begin: begin, split_begin Write Split;
    read_at_all_begin: at_begin, split_begin Read Split;
    write_at_all_begin: at_begin, split_begin Write Split;
    read_ordered_begin: shared_begin, split_begin Read Split;
    write_ordered_begin: shared_begin, split_begin Write Split;
}

/// A call that has a file and other arguments but moves no data itself: `$finish` gets the file and
/// whatever argument it is told about.
macro_rules! file_call {
    ($p:literal $name:ident, [$fh:ident $extra:expr] ($($arg:ident: $type:ty),*), $finish:ident) => {
        real_function!(c_name!($p, stringify!($name)), fn($($arg: $type),*) -> c_int, missing(NAME));

        #[unsafe(export_name = concat!($p, stringify!($name)))]
        pub(crate) unsafe extern "C-unwind" fn wrapper($($arg: $type),*) -> c_int {
            if !armed() || !Thread::current().app_calls() {
                // SAFETY: the program's own call.
                return unsafe { real($($arg),*) };
            }
            let start = enter();
            let inside = Inside(start);
            // SAFETY: the program's own call.
            let answer = unsafe { real($($arg),*) };
            std::mem::forget(inside);
            $finish(Thread::current(), start, answer, $fh, $extra);
            answer
        }
        pub(crate) const ROW: Row = Row { name: NAME, wrapper: wrapper as *const (), slot: &REAL, stub: stub as *const () };
    };
}

/// Rows `name: (arguments), the file and an extra value for the function that counts the call`.
macro_rules! file_calls {
    ($($name:ident: $args:tt, $roles:tt $finish:ident;)+) => {
        $(mod $name {
            pub(super) mod mpi {
                use super::super::*;
                file_call! { "MPI_File_" $name, $roles $args, $finish }
            }
            pub(super) mod pmpi {
                use super::super::*;
                file_call! { "PMPI_File_" $name, $roles $args, $finish }
            }
        })+
        pub(super) static FILE_ROWS: &[Row] = &[$($name::mpi::ROW, $name::pmpi::ROW),+];
    };
}

/// The second half of a split collective as it is named among the slowest calls.
macro_rules! op {
    ($name:literal $direction:ident) => {{
        static OP: Op = Op::new(concat!("MPI_File_", $name), Direction::$direction);
        &OP
    }};
}

/// The name of a function as it stands among the errors.
macro_rules! name {
    ($name:literal) => {{
        static NAME_WORDS: Name = Name::new(concat!("MPI_File_", $name));
        &NAME_WORDS
    }};
}

file_calls! {
    read_all_end: (fh: File, buf: Buffer, st: Address), [fh op!("read_all_end" Read)] split_end;
    write_all_end: (fh: File, buf: Buffer, st: Address), [fh op!("write_all_end" Write)] split_end;
    read_at_all_end: (fh: File, buf: Buffer, st: Address), [fh op!("read_at_all_end" Read)] split_end;
    write_at_all_end: (fh: File, buf: Buffer, st: Address), [fh op!("write_at_all_end" Write)] split_end;
    read_ordered_end: (fh: File, buf: Buffer, st: Address), [fh op!("read_ordered_end" Read)] split_end;
    write_ordered_end: (fh: File, buf: Buffer, st: Address), [fh op!("write_ordered_end" Write)] split_end;
    sync: (fh: File), [fh name!("sync")] synced;
    set_size: (fh: File, size: i64), [fh name!("set_size")] resized;
    preallocate: (fh: File, size: i64), [fh name!("preallocate")] resized;
    set_view: (fh: File, displacement: i64, etype: Handle, filetype: Handle, datarep: *const c_char, info: Handle),
        [fh ViewArguments { displacement, etype, filetype, datarep, info }] view_set;
    set_info: (fh: File, info: Handle), [fh info] info_set;
    // Not counted, but what they do to files is the MPI library's doing.
    seek: (fh: File, offset: i64, whence: c_int), [fh name!("seek")] passed;
    seek_shared: (fh: File, offset: i64, whence: c_int), [fh name!("seek_shared")] passed;
    get_position_shared: (fh: File, offset: Address), [fh name!("get_position_shared")] passed;
    get_size: (fh: File, size: Address), [fh name!("get_size")] passed;
    set_atomicity: (fh: File, flag: c_int), [fh name!("set_atomicity")] passed;
}
