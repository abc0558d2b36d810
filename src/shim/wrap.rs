//! How a row becomes a wrapper.

/// The real function behind a wrapper: a slot, the stub it starts with, and `real(...)` to call it.
/// `$missing` is the answer when no such function exists.
macro_rules! real_function {
    ($name:expr, fn($($arg:ident: $type:ty),*) -> $answer:ty, $missing:expr) => {
        pub(crate) const NAME: &std::ffi::CStr = $name;
        type Function = unsafe extern "C-unwind" fn($($type),*) -> $answer;

        pub(crate) unsafe extern "C-unwind" fn stub($($arg: $type),*) -> $answer {
            // Looked for once: a program may ask again and again for what is not there.
            static ABSENT: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
            if ABSENT.load(std::sync::atomic::Ordering::Relaxed) {
                return $missing;
            }
            let found = $crate::shim::real::find_shielded(NAME);
            if found.is_null() {
                ABSENT.store(true, std::sync::atomic::Ordering::Relaxed);
                return $missing;
            }
            REAL.set(found);
            // SAFETY: the function of that name has that type; the arguments are the program's own.
            unsafe { real($($arg),*) }
        }

        pub(crate) static REAL: $crate::shim::real::Slot =
            $crate::shim::real::Slot::new(stub as *const ());

        /// # Safety
        /// As for the real function.
        #[inline(always)]
        pub(crate) unsafe fn real($($arg: $type),*) -> $answer {
            // SAFETY: the slot holds the stub or the real function, both of this type.
            let function: Function = unsafe { std::mem::transmute(REAL.get()) };
            // SAFETY: passed on.
            unsafe { function($($arg),*) }
        }
    };
}
pub(crate) use real_function;

/// The same for a function of the C library, which is found as soon as Weir is loaded.
macro_rules! c_function {
    ($name:expr, $($signature:tt)+) => {
        real_function!($name, $($signature)+);
        $crate::shim::real::early!(NAME, REAL);
    };
}
pub(crate) use c_function;

/// `"MPI_"` + name as a C string, in a constant.
macro_rules! c_name {
    ($($part:expr),+) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!($($part,)+ "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name without zero bytes"),
        }
    };
}
pub(crate) use c_name;
