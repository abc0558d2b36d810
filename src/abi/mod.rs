//! The only place that knows an MPI ABI: what the constants are, how large handles are.
//!
//! Handles go through the wrappers as machine words. Here is what must be known beyond that: which
//! word means "null", how far apart the elements of an array of requests are, and so on.

mod mpich;
mod openmpi;
mod standard;

use crate::shim::real;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::*};
use weir_profile::layout;

/// A handle as a machine word: an address in Open MPI and the standard ABI, an `int` in MPICH.
pub(crate) type Handle = usize;

/// What a program compiled against one `mpi.h` takes for granted.
#[derive(Debug)]
pub(crate) struct Abi {
    pub(crate) kind: layout::Abi,
    /// Bytes of an `MPI_Request`, an `MPI_Comm`, an `MPI_Datatype`: all handles but `MPI_File`, which
    /// is an address everywhere.
    pub(crate) handle_bytes: usize,
    pub(crate) status_bytes: usize,
    /// Where in an `MPI_Status` its `MPI_ERROR` is.
    pub(crate) status_error_offset: usize,
    pub(crate) comm_world: Handle,
    pub(crate) comm_null: Handle,
    pub(crate) request_null: Handle,
    pub(crate) info_null: Handle,
    pub(crate) file_null: Handle,
    pub(crate) byte: Handle,
    pub(crate) status_ignore: usize,
    pub(crate) statuses_ignore: usize,
    pub(crate) undefined: c_int,
    pub(crate) mode_create: c_int,
    pub(crate) mode_sequential: c_int,
    pub(crate) err_intern: c_int,
    /// Tells the size of a predefined type from its handle alone, or 0.
    pub(crate) predefined_size: fn(Handle) -> u64,
}

static CURRENT: AtomicPtr<Abi> = AtomicPtr::new(std::ptr::null_mut());

/// The ABI of this process; MPICH's before it is known (nothing is measured then).
#[inline(always)]
pub(crate) fn current() -> &'static Abi {
    let current = CURRENT.load(Relaxed);
    // SAFETY: null or a leaked `Abi`.
    if current.is_null() { &mpich::ABI } else { unsafe { &*current } }
}

/// Finds out which of the three ABIs this process runs in: by the name of the library that holds
/// `MPI_Init`, and by Open MPI's own symbols.
pub(crate) fn detect() {
    if !CURRENT.load(Relaxed).is_null() {
        return;
    }
    let init = real::find(c"PMPI_Init");
    let library = real::object_of(init).unwrap_or_default();
    let library = library.to_string_lossy().into_owned();
    let file_name = library.rsplit('/').next().unwrap_or_default();
    let abi = if file_name.starts_with("libmpi_abi.") {
        standard::ABI
    } else if real::is_in_object_of(init, c"ompi_mpi_comm_world") {
        openmpi::abi(|name| real::find_variable(name) as Handle).unwrap_or(mpich::ABI)
    } else {
        mpich::ABI
    };
    CURRENT.store(Box::into_raw(Box::new(abi)), Relaxed);
}

pub(crate) fn name() -> &'static str {
    match current().kind {
        layout::Abi::Unknown => "unknown",
        layout::Abi::Mpich => "MPICH",
        layout::Abi::OpenMpi => "Open MPI",
        layout::Abi::Standard => "standard",
    }
}

impl Abi {
    /// A handle out of memory the program gave us.
    ///
    /// # Safety
    /// `place` must point to a handle of this ABI.
    #[inline(always)]
    pub(crate) unsafe fn load_handle(&self, place: *const c_void) -> Handle {
        if self.handle_bytes == 4 {
            // SAFETY: the caller's word, and a handle of 4 bytes.
            unsafe { place.cast::<u32>().read_unaligned() as Handle }
        } else {
            // SAFETY: the caller's word.
            unsafe { place.cast::<Handle>().read_unaligned() }
        }
    }

    /// A handle that came as an argument: MPICH's are `int`s, the rest of the register is undefined.
    #[inline(always)]
    pub(crate) fn argument(&self, word: Handle) -> Handle {
        if self.handle_bytes == 4 { word as u32 as Handle } else { word }
    }

    /// The table as text, a `NAME value` per line: tests compare it with what a compiler makes of `mpi.h`.
    pub(crate) fn describe(&self) -> String {
        let hex = |value: usize| format!("{value:#x}");
        [
            ("abi", name().to_string()),
            ("sizeof_MPI_Request", self.handle_bytes.to_string()),
            ("sizeof_MPI_Comm", self.handle_bytes.to_string()),
            ("sizeof_MPI_Status", self.status_bytes.to_string()),
            ("offset_MPI_ERROR", self.status_error_offset.to_string()),
            ("MPI_COMM_WORLD", hex(self.comm_world)),
            ("MPI_COMM_NULL", hex(self.comm_null)),
            ("MPI_REQUEST_NULL", hex(self.request_null)),
            ("MPI_INFO_NULL", hex(self.info_null)),
            ("MPI_FILE_NULL", hex(self.file_null)),
            ("MPI_BYTE", hex(self.byte)),
            ("MPI_STATUS_IGNORE", hex(self.status_ignore)),
            ("MPI_STATUSES_IGNORE", hex(self.statuses_ignore)),
            ("MPI_UNDEFINED", self.undefined.to_string()),
            ("MPI_MODE_CREATE", self.mode_create.to_string()),
            ("MPI_MODE_SEQUENTIAL", self.mode_sequential.to_string()),
            ("MPI_ERR_INTERN", self.err_intern.to_string()),
        ]
        .into_iter()
        .map(|(name, value)| format!("{name} {value}\n"))
        .collect()
    }
}

/// Calls of ours into MPI, each by its `PMPI_` name.
macro_rules! pmpi {
    ($($name:ident($symbol:literal; $($arg:ident: $type:ty),*);)+) => {$(
        /// `None` when this MPI does not have it or it returned an error.
        ///
        /// # Safety
        /// As for the MPI function; MPI must be initialised.
        pub(crate) unsafe fn $name($($arg: $type),*) -> Option<()> {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let mut function = FOUND.load(Relaxed);
            if function.is_null() {
                function = real::find($symbol);
                FOUND.store(function, Relaxed);
            }
            if function.is_null() {
                return None;
            }
            // SAFETY: the MPI function of that name has this type (handles are machine words).
            let function: unsafe extern "C" fn($($type),*) -> c_int = unsafe { std::mem::transmute(function) };
            // SAFETY: passed on.
            (unsafe { function($($arg),*) } == 0).then_some(())
        }
    )+};
}

pmpi! {
    initialized(c"PMPI_Initialized"; flag: *mut c_int);
    finalized(c"PMPI_Finalized"; flag: *mut c_int);
    mpi_error_class(c"PMPI_Error_class"; code: c_int, class: *mut c_int);
    comm_rank(c"PMPI_Comm_rank"; comm: Handle, rank: *mut c_int);
    comm_size(c"PMPI_Comm_size"; comm: Handle, size: *mut c_int);
    comm_get_parent(c"PMPI_Comm_get_parent"; parent: *mut c_void);
    type_size_x(c"PMPI_Type_size_x"; datatype: Handle, size: *mut i64);
    type_size(c"PMPI_Type_size"; datatype: Handle, size: *mut c_int);
    type_get_extent(c"PMPI_Type_get_extent"; datatype: Handle, lower: *mut i64, extent: *mut i64);
    file_get_position(c"PMPI_File_get_position"; fh: usize, offset: *mut i64);
    file_get_byte_offset(c"PMPI_File_get_byte_offset"; fh: usize, offset: i64, position: *mut i64);
    get_library_version(c"PMPI_Get_library_version"; version: *mut u8, length: *mut c_int);
    query_thread(c"PMPI_Query_thread"; provided: *mut c_int);
    info_create(c"PMPI_Info_create"; info: *mut c_void);
    info_dup(c"PMPI_Info_dup"; info: Handle, copy: *mut c_void);
    info_get(c"PMPI_Info_get"; info: Handle, key: *const c_char, room: c_int, value: *mut c_char, found: *mut c_int);
    info_set(c"PMPI_Info_set"; info: Handle, key: *const c_char, value: *const c_char);
    info_free(c"PMPI_Info_free"; info: *mut c_void);
    bcast(c"PMPI_Bcast"; buffer: *mut c_void, count: c_int, datatype: Handle, root: c_int, comm: Handle);
}

/// Whether the world model of MPI is initialised and not finalised.
pub(crate) fn world_is_up() -> bool {
    let (mut up, mut down) = (0, 0);
    // SAFETY: both may be asked at any time.
    unsafe { initialized(&mut up).is_some() && finalized(&mut down).is_some() && up != 0 && down == 0 }
}

/// The class of an error, asked of MPI; the error itself when it will not say.
#[cold]
pub(crate) fn error_class(code: c_int) -> u32 {
    let mut class = code;
    // SAFETY: a code that MPI returned, and a place for the answer.
    unsafe { mpi_error_class(code, &mut class) };
    class as u32
}

/// Size of a datatype, asked of MPI; 0 when it will not say.
#[cold]
#[inline(never)]
pub(crate) fn ask_type_size(datatype: Handle) -> u64 {
    let mut size = 0i64;
    // SAFETY: the datatype is one the program just used in a call.
    if unsafe { type_size_x(datatype, &mut size) }.is_some() {
        return size.max(0) as u64;
    }
    let mut size = 0;
    // SAFETY: as above.
    unsafe { type_size(datatype, &mut size) };
    size.max(0) as u64
}

/// First line of what the MPI library says of itself.
pub(crate) fn library_version() -> String {
    // 8,192 is the largest MPI_MAX_LIBRARY_VERSION_STRING of any MPI.
    let mut text = [0u8; 8192 + 1];
    let mut length = 0;
    // SAFETY: the buffer is as large as any MPI asks for.
    if unsafe { get_library_version(text.as_mut_ptr(), &mut length) }.is_none() {
        return "unknown".into();
    }
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy();
    // "Open MPI v4.1.4, package: …", "MPICH Version:\t4.0.2\n…", "Intel(R) MPI Library 2021.19 for Linux* OS"
    let first = text.lines().next().and_then(|line| line.split(',').next()).unwrap_or_default();
    first.replace("Version:", " ").split_whitespace().collect::<Vec<_>>().join(" ")
}
