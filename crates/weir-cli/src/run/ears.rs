//! What ranks say at their end to the `weir run` they were started by: that MPI ran, which a job without I/O leaves no other trace of.
//!
//! They connect to an address that follows from user and job, as that of the helper process does, and nobody waits for anybody: what
//! is said is read when the command has ended.

use std::io::Result;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use weir_profile::helper::{Address, Request, SOCKET_KIND, peer, receive};

/// As many ranks can have spoken before the command ends; the others are not heard.
const MAX_UNREAD: libc::c_int = 4096;

/// The socket at the address of a job.
pub(super) struct Ears(Option<OwnedFd>);

/// What rank 0 of a world has said at its end.
pub(super) struct World {
    pub(super) nprocs: u64,
    /// First line of `MPI_Get_library_version`.
    pub(super) mpi: String,
}

impl Ears {
    /// Without an address, which another `weir run` of the same job may have, nobody is heard.
    pub(super) fn open(job: &str) -> Ears {
        Ears(listen(job).ok())
    }

    /// What has been said since.
    pub(super) fn heard(&self) -> Vec<World> {
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        let callers = std::iter::from_fn(|| accept(self.0.as_ref()?));
        let own = callers.filter(|caller| peer(caller).is_ok_and(|peer| peer.uid == user));
        own.filter_map(|caller| match Request::decode(&receive(&caller).ok()?.0)? {
            Request::Ran { nprocs, mpi } => Some(World { nprocs, mpi }),
            _ => None,
        })
        .collect()
    }
}

fn listen(job: &str) -> Result<OwnedFd> {
    // SAFETY: asks for a number.
    let (address, length) = Address::of_run(unsafe { libc::geteuid() }, job).socket_address();
    // SAFETY: no pointers; the descriptor is new, and nobody else's.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_UNIX, SOCKET_KIND, 0);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: an address and its length.
    let is_listening = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) == 0
            && libc::listen(socket.as_raw_fd(), MAX_UNREAD) == 0
    };
    if is_listening { Ok(socket) } else { Err(std::io::Error::last_os_error()) }
}

fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: our own descriptor; the new one is nobody else's.
    unsafe {
        let fd = libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}
