//! Finding the real function.
//!
//! A slot begins with a stub of the same signature, which looks the real function up at the first call
//! and puts it into the slot; from then on a call is one jump. A function that does not exist is an
//! answer, never an exit.
//!
//! Functions of the C library do not wait for their first call, for that may come where the loader must not be asked: in a
//! signal handler, in a child of a process with threads, or in a thread for which somebody waits who holds the loader's lock,
//! as a constructor does in a library that is being loaded.

use super::shield::shield;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// The real function behind a wrapper, or the stub that will find it.
#[repr(transparent)]
pub(crate) struct Slot(AtomicPtr<c_void>);

impl Slot {
    pub(crate) const fn new(stub: *const ()) -> Slot {
        Slot(AtomicPtr::new(stub as *mut c_void))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *mut c_void {
        self.0.load(Relaxed)
    }

    pub(crate) fn set(&self, real: *mut c_void) {
        self.0.store(real, Relaxed);
    }
}

/// A wrapper as `dlsym` must know it.
pub(crate) struct Row {
    pub(crate) name: &'static CStr,
    pub(crate) wrapper: *const (),
    pub(crate) slot: &'static Slot,
    pub(crate) stub: *const (),
}
// SAFETY: addresses of functions and statics, never changed.
unsafe impl Sync for Row {}

/// A function that is found when Weir is loaded.
pub(crate) struct Early {
    pub(crate) name: &'static CStr,
    pub(crate) slot: &'static Slot,
}

/// Enters a function into the list, which the linker makes.
macro_rules! early {
    ($name:expr, $slot:expr) => {
        #[used]
        #[unsafe(link_section = "weir_early")]
        static EARLY: $crate::shim::real::Early = $crate::shim::real::Early { name: $name, slot: &$slot };
    };
}
pub(crate) use early;

// The linker's names for the ends of the list are nobody else's business.
std::arch::global_asm!(".hidden __start_weir_early", ".hidden __stop_weir_early");

/// The whole list.
fn early_list() -> &'static [Early] {
    unsafe extern "C" {
        #[link_name = "__start_weir_early"]
        static START: u8;
        #[link_name = "__stop_weir_early"]
        static STOP: u8;
    }
    let (start, stop) = ((&raw const START).cast::<Early>(), (&raw const STOP).cast::<Early>());
    // SAFETY: the linker puts these before and behind the section, in which there is nothing but entries.
    unsafe { std::slice::from_raw_parts(start, stop.offset_from_unsigned(start)) }
}

/// Cannot panic. What is not there may come with a library that is loaded later, and is left to its stub.
pub(crate) fn find_early() {
    let mut is_complete = true;
    for early in early_list() {
        // SAFETY: a lookup by name.
        let found = unsafe { super::dlsym::real_dlsym(libc::RTLD_NEXT, early.name.as_ptr()) };
        if found.is_null() {
            is_complete = false;
        } else {
            early.slot.set(found);
        }
    }
    if !is_complete {
        // SAFETY: takes back what the lookup said, which the program might take for an answer to itself.
        unsafe { libc::dlerror() };
    }
}

/// The next definition of `name` after ours, wherever it is loaded; null when there is none.
pub(crate) fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a lookup by name; a private libmpi (RTLD_LOCAL, as Python loads it) is not found by it.
    let next = unsafe { super::dlsym::real_dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if next.is_null() { find_in_loaded_objects(name) } else { next }
}

/// As [`find`], from a wrapper that has not called the real function yet.
pub(crate) fn find_shielded(name: &CStr) -> *mut c_void {
    shield(std::ptr::null_mut(), || find(name))
}

/// The address of a variable as the program sees it: its own copy if the linker made one.
pub(crate) fn find_variable(name: &CStr) -> *mut c_void {
    // SAFETY: a lookup by name.
    let global = unsafe { super::dlsym::real_dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if global.is_null() { find_in_loaded_objects(name) } else { global }
}

/// Asks each loaded object for the symbol: the way to a libmpi that was loaded privately.
fn find_in_loaded_objects(name: &CStr) -> *mut c_void {
    unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, paths: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid info; `paths` is the vector given below.
        let (path, paths) = unsafe { ((*info).dlpi_name, &mut *paths.cast::<Vec<CString>>()) };
        // SAFETY: the loader's names are C strings.
        if !path.is_null() && unsafe { *path } != 0 {
            // SAFETY: as above.
            paths.push(unsafe { CStr::from_ptr(path) }.to_owned());
        }
        0
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: `collect` fits, and the vector outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut paths).cast()) };
    let own = object_of(find_in_loaded_objects as *const c_void);
    for path in &paths {
        if own.as_deref() == Some(path) {
            continue;
        }
        // SAFETY: RTLD_NOLOAD only finds what is loaded already.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: a valid handle and name.
        let symbol = unsafe { super::dlsym::real_dlsym(handle, name.as_ptr()) };
        // SAFETY: undoes the reference that RTLD_NOLOAD took; the object stays loaded.
        unsafe { libc::dlclose(handle) };
        if !symbol.is_null() && object_of(symbol) != own {
            pin(symbol);
            return symbol;
        }
    }
    std::ptr::null_mut()
}

/// Whether the object that contains an address, or one it needs, defines a symbol.
pub(crate) fn is_in_object_of(address: *const c_void, name: &CStr) -> bool {
    let Some(path) = object_of(address) else { return false };
    // SAFETY: RTLD_NOLOAD only finds what is loaded already; the reference is given back.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        let found = !handle.is_null() && !super::dlsym::real_dlsym(handle, name.as_ptr()).is_null();
        if !handle.is_null() {
            libc::dlclose(handle);
        }
        found
    }
}

/// Keeps the object that contains an address loaded, whoever closes it: slots point into it.
pub(crate) fn pin(address: *const c_void) {
    if let Some(path) = object_of(address) {
        // SAFETY: only finds what is loaded already, and marks it.
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY | libc::RTLD_NODELETE) };
    }
}

/// Path of the loaded object that contains an address.
///
/// Not by `dladdr`, which also looks for the nearest of the object's symbols: a libmpi has thousands.
pub(crate) fn object_of(address: *const c_void) -> Option<CString> {
    let mut asked = (address.addr() as u64, None);
    // SAFETY: `look` fits, and what it is given outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut asked).cast()) };
    return asked.1;

    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, asked: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid info; `asked` is the pair given above.
        let (info, (address, path)) = unsafe { (&*info, &mut *asked.cast::<(u64, Option<CString>)>()) };
        // SAFETY: as many headers as the loader says.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let contains = |header: &libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD
                && address.wrapping_sub(info.dlpi_addr.wrapping_add(header.p_vaddr)) < header.p_memsz
        };
        if !headers.iter().any(contains) {
            return 0;
        }
        if !info.dlpi_name.is_null() {
            // SAFETY: the loader's names are C strings.
            *path = Some(unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned());
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_c_library_are_found_at_the_start() {
        assert!(early_list().len() > 100);
        for early in early_list() {
            // SAFETY: a lookup by name.
            let found = unsafe { crate::shim::dlsym::real_dlsym(libc::RTLD_NEXT, early.name.as_ptr()) };
            assert!(found.is_null() || early.slot.get() == found, "{:?}", early.name);
        }
    }
}
