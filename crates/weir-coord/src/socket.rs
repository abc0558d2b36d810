//! Sockets that never block, and the one place that waits for them.

use crate::address::Address;
use crate::auth;
use crate::pipe::Pipe;
use crate::wire::{Inbox, Message, WireError};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest path that fits into a socket's address.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// How long a connection over TCP may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// What waits to be sent to a peer that does not read is bounded by this; a status may be longer.
pub(crate) const MAX_OUTBOX_BYTES: usize = 16 << 20;
/// Room that an empty outbox keeps.
const KEPT_OUTBOX_BYTES: usize = 4 << 10;

/// Of a stream that is no socket: a poller leaves it alone.
const NO_DESCRIPTOR: RawFd = -1;

pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    /// Within this thread: nobody can wait for it, those who use it look by themselves.
    Own(Pipe),
}

impl Stream {
    pub(crate) fn connect(address: &Address) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => {
                let stream = with_short_path(path, connect_unix)?;
                check_owner(auth::peer_user(&stream)?, auth::user())?;
                Ok(Stream::Unix(stream))
            }
            Address::Tcp(place) => {
                let mut outcome = Err(io::Error::new(ErrorKind::NotFound, "no such host"));
                for place in place.to_socket_addrs()? {
                    outcome = TcpStream::connect_timeout(&place, CONNECT_TIMEOUT);
                    if outcome.is_ok() {
                        break;
                    }
                }
                Stream::tcp(outcome?)
            }
        }
    }

    /// As [`Stream::connect`], but does not wait for a host that does not answer: nothing can be read from the stream until
    /// it has, and an error comes then. Of several addresses of a host, each attempt takes the next.
    pub(crate) fn begin_to_connect(address: &Address, attempt: usize) -> io::Result<Stream> {
        let Address::Tcp(place) = address else { return Stream::connect(address) };
        let places: Vec<SocketAddr> = place.to_socket_addrs()?.collect();
        let place = places.get(attempt % places.len().max(1));
        let place = place.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "no such host"))?;
        Stream::tcp(connect_tcp(place)?)
    }

    fn tcp(stream: TcpStream) -> io::Result<Stream> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(bytes),
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Own(pipe) => pipe.read(bytes),
        }
    }

    /// Never raises SIGPIPE: sockets send with MSG_NOSIGNAL.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Stream::Own(pipe) = self {
            return pipe.write(bytes);
        }
        // SAFETY: pointer and length are those of a slice, and the descriptor is open.
        let sent =
            unsafe { libc::send(self.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Own(_) => NO_DESCRIPTOR,
        }
    }
}

/// A stream that speaks in messages.
pub(crate) struct Channel {
    pub(crate) stream: Stream,
    inbox: Inbox,
    outbox: Vec<u8>,
    sent: usize,
}

/// What became of reading.
pub(crate) enum Input {
    /// There may be more at once.
    Some,
    /// Nothing more for now.
    Empty,
    Closed,
    Failed(io::Error),
}

impl Channel {
    pub(crate) fn new(stream: Stream) -> Channel {
        Channel { stream, inbox: Inbox::default(), outbox: Vec::new(), sent: 0 }
    }

    /// One read, as long as `scratch`.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> Input {
        match self.stream.read(scratch) {
            Ok(0) => Input::Closed,
            Ok(length) => {
                self.inbox.feed(&scratch[..length]);
                if length == scratch.len() { Input::Some } else { Input::Empty }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Input::Empty,
            Err(error) if error.kind() == ErrorKind::Interrupted => Input::Some,
            Err(error) => Input::Failed(error),
        }
    }

    pub(crate) fn take(&mut self) -> Result<Option<Message>, WireError> {
        self.inbox.take()
    }

    pub(crate) fn queue(&mut self, message: &Message) {
        message.encode(&mut self.outbox);
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outbox.len() - self.sent
    }

    /// Sends what can be sent now. An error means that the connection is of no use any more.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outbox.len() {
            match self.stream.write(&self.outbox[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outbox.clear();
        self.outbox.shrink_to(KEPT_OUTBOX_BYTES);
        self.sent = 0;
        Ok(())
    }
}

pub(crate) enum Listener {
    /// With the file's number, to tell it from one that took its place.
    Unix {
        socket: UnixListener,
        path: PathBuf,
        inode: u64,
    },
    Tcp(TcpListener),
}

impl Listener {
    /// A Unix socket that is left over from a coordinator that died is replaced; one that is alive only if
    /// `replace` says so.
    pub(crate) fn bind(address: &Address, replace: bool) -> Result<Listener, String> {
        let failed = |error: io::Error| format!("cannot listen on {address}: {error}");
        match address {
            Address::Unix(path) => {
                let parent =
                    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("/"));
                auth::private_directory(parent)?;
                if fs::symlink_metadata(path).is_ok() {
                    if !replace && with_short_path(path, connect_unix).is_ok() {
                        return Err(format!("cannot listen on {address}: a coordinator is there already"));
                    }
                    fs::remove_file(path).map_err(failed)?;
                }
                let socket = with_short_path(path, |short| UnixListener::bind(short)).map_err(failed)?;
                socket.set_nonblocking(true).map_err(failed)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
                let inode = fs::symlink_metadata(path).map_err(failed)?.ino();
                Ok(Listener::Unix { socket, path: path.clone(), inode })
            }
            Address::Tcp(place) => {
                let socket = TcpListener::bind(place.as_str()).map_err(failed)?;
                socket.set_nonblocking(true).map_err(failed)?;
                Ok(Listener::Tcp(socket))
            }
        }
    }

    /// Where it really listens: a port of 0 has become one that was free.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Unix { path, .. } => Ok(Address::Unix(path.clone())),
            Listener::Tcp(socket) => Ok(Address::Tcp(socket.local_addr()?.to_string())),
        }
    }

    /// Whether those who look for it find this one.
    pub(crate) fn is_in_place(&self) -> bool {
        match self {
            Listener::Unix { path, inode, .. } => {
                fs::symlink_metadata(path).is_ok_and(|about| about.ino() == *inode)
            }
            Listener::Tcp(_) => true,
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix { socket, .. } => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }
            Listener::Tcp(socket) => Stream::tcp(socket.accept()?.0),
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Listener::Unix { socket, .. } => socket.as_raw_fd(),
            Listener::Tcp(socket) => socket.as_raw_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Listener::Unix { path, .. } = self
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Connects at once or not at all. A blocking connect would wait for room in the queue of a coordinator that is
/// stopped, for as long as it is.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; the new descriptor is owned by nobody else.
    let socket = unsafe { owned(libc::socket(libc::AF_UNIX, kind, 0))? };
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the path of the socket is too long"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is as long as said and its path ends with a zero; the descriptor is open.
    let result = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(UnixStream::from(socket)) } else { Err(io::Error::last_os_error()) }
}

/// Begins to connect: whether it succeeds shows when the stream can be read.
fn connect_tcp(place: &SocketAddr) -> io::Result<TcpStream> {
    let family = if place.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; the new descriptor is owned by nobody else.
    let socket = unsafe { owned(libc::socket(family, kind, 0))? };
    let result = match place {
        SocketAddr::V4(place) => {
            // SAFETY: all-zero is a valid address.
            let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            address.sin_family = family as libc::sa_family_t;
            address.sin_port = place.port().to_be();
            address.sin_addr.s_addr = u32::from_ne_bytes(place.ip().octets());
            let length = size_of_val(&address) as libc::socklen_t;
            // SAFETY: the address is as long as said, and the descriptor is open.
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) }
        }
        SocketAddr::V6(place) => {
            // SAFETY: all-zero is a valid address.
            let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            address.sin6_family = family as libc::sa_family_t;
            address.sin6_port = place.port().to_be();
            address.sin6_addr.s6_addr = place.ip().octets();
            address.sin6_scope_id = place.scope_id();
            let length = size_of_val(&address) as libc::socklen_t;
            // SAFETY: the address is as long as said, and the descriptor is open.
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) }
        }
    };
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(TcpStream::from(socket)),
        error if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(TcpStream::from(socket)),
        error => Err(error),
    }
}

/// Where the path is not this user's alone, somebody else may listen there while no coordinator does.
fn check_owner(owner: u32, user: u32) -> io::Result<()> {
    if owner == user {
        return Ok(());
    }
    let why = format!("the socket is of user {owner}, and this is user {user}");
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

/// Socket addresses are short; a longer path is named through its directory's descriptor.
fn with_short_path<R>(path: &Path, act: impl FnOnce(&Path) -> io::Result<R>) -> io::Result<R> {
    if path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
        return act(path);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "no path of a socket"));
    };
    let directory = File::open(parent)?;
    act(&Path::new("/proc/thread-self/fd").join(directory.as_raw_fd().to_string()).join(name))
}

/// So many are heard before they are answered: enough to make the wait itself cost nothing, and few enough that
/// those who were answered can go on while others are heard.
const MAX_EVENTS: usize = 64;

/// Waits for many sockets at once (epoll).
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Told once of what has come, who asked reads until there is no more.
    pub(crate) once: bool,
}

/// What a socket is ready for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// The other side has ended: behind what is to be read there is no more.
    pub(crate) ended: bool,
}

impl Interest {
    pub(crate) const READ: Interest = Interest { read: true, write: false, once: false };
    pub(crate) const NONE: Interest = Interest { read: false, write: false, once: false };

    fn bits(self) -> u32 {
        let read = if self.read { libc::EPOLLIN } else { 0 };
        let write = if self.write { libc::EPOLLOUT } else { 0 };
        let once = if self.once { libc::EPOLLET | libc::EPOLLRDHUP } else { 0 };
        (read | write | once) as u32
    }
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        // SAFETY: no pointers; the new descriptor is owned by nobody else.
        let epoll = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))? };
        Ok(Poller { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; MAX_EVENTS] })
    }

    pub(crate) fn add(&self, socket: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, token, interest)
    }

    pub(crate) fn change(&self, socket: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, token, interest)
    }

    /// Must come before the socket is closed: a child that the program forked may keep it open, and then
    /// closing alone would not end its being watched.
    pub(crate) fn remove(&self, socket: &impl AsRawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, socket, 0, Interest::READ);
    }

    fn control(&self, what: i32, socket: &impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        if socket.as_raw_fd() == NO_DESCRIPTOR {
            return Ok(());
        }
        let mut event = libc::epoll_event { events: interest.bits(), u64: token };
        // SAFETY: the event outlives the call, and both descriptors are open.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, socket.as_raw_fd(), &mut event) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Appends the tokens of the sockets that are ready. A socket that failed counts as ready to be read.
    pub(crate) fn wait(&mut self, timeout: Duration, ready: &mut Vec<(u64, Ready)>) -> io::Result<()> {
        let capacity = self.events.len() as i32;
        // SAFETY: the events are as many as said.
        let count = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                capacity,
                milliseconds(timeout),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        for event in &self.events[..count as usize] {
            let bits = event.events as i32;
            let read = bits & !libc::EPOLLOUT != 0;
            let ended = bits & (libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLERR) != 0;
            ready.push((event.u64, Ready { read, write: bits & libc::EPOLLOUT != 0, ended }));
        }
        Ok(())
    }
}

impl AsRawFd for Poller {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// Rounded up: waking early would only mean to wait again.
fn milliseconds(timeout: Duration) -> i32 {
    timeout.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(i32::MAX)
}

/// # Safety
/// The descriptor, if it is one, belongs to nobody else.
unsafe fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just checked and, by the caller, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Ends a wait from another thread, or from a signal handler. Clones of one wake the same waiter.
#[derive(Clone, Debug)]
pub struct Waker(std::sync::Arc<OwnedFd>);

impl Waker {
    pub fn new() -> io::Result<Waker> {
        // SAFETY: no pointers; the new descriptor is owned by nobody else.
        let event = unsafe { owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))? };
        Ok(Waker(std::sync::Arc::new(event)))
    }

    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes, as an eventfd takes them. It fails only when the waiter has been woken already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    pub(crate) fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight bytes, as an eventfd gives them. It fails when nobody has woken.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Nanoseconds of a clock that never goes back.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
