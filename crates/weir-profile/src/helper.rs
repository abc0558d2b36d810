//! How ranks and commands speak with the helper process of their node.
//!
//! The helper listens at an abstract address, which has no file: no state of a file system, nor anybody who cleans up, can take it
//! away, and it is gone with the process. The name follows from the user, the job and the namespace of process numbers. Others
//! could take the name, so both sides look at the other's user before anything else; a name that is taken by a stranger
//! is left to it, and the next one tried.
//!
//! A request is one message with at most one descriptor, and so is an answer. Nothing here waits longer than it is told to.

use crate::fnv1a;
use std::ffi::OsStr;
use std::fs::metadata;
use std::io::{Error, ErrorKind, Result};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Begins each message: a helper of another version is not understood, and does not understand.
const MAGIC: &[u8; 8] = b"WEIRHLP\x01";
/// No message is longer.
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Names that strangers may have taken before the helper finds none.
pub const NAMES: usize = 4;
/// Begins the name of every address.
const PREFIX: &str = "weir-";

/// Where the helper process of a job listens.
#[derive(Clone, Debug)]
pub struct Address(Vec<u8>);

impl Address {
    /// One of the [`NAMES`] of a job's helper on this node.
    pub fn of(user: u32, job: &str, number: usize) -> Address {
        let name = fnv1a(job.bytes().chain(pid_namespace().to_le_bytes()));
        Address(format!("{PREFIX}{user}-{name:016x}.{number}").into_bytes())
    }

    /// Of the `weir run` that a job was started by.
    pub fn of_run(user: u32, job: &str) -> Address {
        let name = fnv1a(job.bytes().chain(pid_namespace().to_le_bytes()));
        Address(format!("{PREFIX}run-{user}-{name:016x}").into_bytes())
    }

    /// Of all helpers of a user on this node.
    pub fn all(user: u32) -> Vec<Address> {
        // "… @weir-1000-0123456789abcdef.0": the last column.
        let begin = format!("@{PREFIX}{user}-");
        let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let mut names: Vec<&str> = table
            .lines()
            .filter_map(|line| line.split_ascii_whitespace().nth(7)?.strip_prefix('@'))
            .collect();
        names.retain(|name| name.starts_with(&begin[1..]));
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| Address(name.as_bytes().to_vec())).collect()
    }

    /// As the kernel takes it, with its length.
    pub fn socket_address(&self) -> (libc::sockaddr_un, libc::socklen_t) {
        // SAFETY: numbers, for which zero is a value.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        // A zero before it makes it abstract.
        let room = &mut address.sun_path[1..];
        room.iter_mut().zip(&self.0).for_each(|(to, from)| *to = *from as libc::c_char);
        let length = size_of::<libc::sa_family_t>() + 1 + self.0.len().min(room.len());
        (address, length as libc::socklen_t)
    }
}

/// Which numbers of processes mean what they mean here.
fn pid_namespace() -> u64 {
    metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// The kind of all sockets here: messages in order, over a connection.
pub const SOCKET_KIND: libc::c_int = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Connects, without waiting. `NotFound` for an address at which nobody listens or that has another user's process behind it.
pub fn connect(address: &Address, user: u32) -> Result<OwnedFd> {
    let (name, length) = address.socket_address();
    // SAFETY: no pointers.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, SOCKET_KIND, 0) })?;
    // SAFETY: made just now, for nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: an address and its length.
    let answer = unsafe { libc::connect(fd, (&raw const name).cast(), length) };
    match checked(answer) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Err(ErrorKind::NotFound.into()),
        Err(error) => Err(error),
        Ok(_) if peer(&socket).is_ok_and(|peer| peer.uid == user) => Ok(socket),
        Ok(_) => Err(ErrorKind::PermissionDenied.into()),
    }
}

/// Who is at the other end: as it was when it connected, or began to listen.
pub fn peer(socket: &OwnedFd) -> Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a place for the answer, and its size.
    checked(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut length,
        )
    })?;
    Ok(peer)
}

fn checked(answer: libc::c_int) -> Result<libc::c_int> {
    if answer < 0 { Err(Error::last_os_error()) } else { Ok(answer) }
}

/// What is asked of the helper.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Keep the record in the memory behind the descriptor that comes with it. No answer.
    Keep {
        /// `WEIR_DIR`, absolute.
        directory: PathBuf,
        /// `<rank>-<host>-<pid>-<generation>.<launch>.rec`
        name: String,
        launch: u64,
        /// Whether all ranks of the launch are on this node, as far as the launcher says.
        one_node: bool,
    },
    /// The records of this process are at their end. Answered when they are in `WEIR_DIR`, if there is a descriptor left to
    /// answer to.
    Ended,
    /// Merge the records of a launch that has ended. Answered with the path of the profile.
    Merge { directory: PathBuf, launch: u64, start_ns: u64 },
    /// Bring all records to `WEIR_DIR`. Answered when that is done.
    Flush,
    /// A piece of memory with this name, made if it is not there: zeros at first, sealed, of that size at least. It lives as
    /// long as the helper. Answered with a descriptor of it.
    Memory { name: String, bytes: u64 },
    /// Said to `weir run`, not to the helper: a world of so many ranks of this MPI has come to its end. No answer.
    Ran { nprocs: u64, mpi: String },
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It was done. The path of the profile, if there is one.
    Done(Option<PathBuf>),
    /// It was not, for this reason.
    Failed(String),
}

impl Request {
    fn encode(&self) -> Vec<u8> {
        let mut message = Message::begin();
        match self {
            Request::Keep { directory, name, launch, one_node } => message
                .number(1)
                .number(*launch)
                .number(u64::from(*one_node))
                .bytes(directory.as_os_str().as_bytes())
                .bytes(name.as_bytes()),
            Request::Ended => message.number(2),
            Request::Merge { directory, launch, start_ns } => {
                message.number(3).number(*launch).number(*start_ns).bytes(directory.as_os_str().as_bytes())
            }
            Request::Flush => message.number(4),
            Request::Memory { name, bytes } => message.number(5).number(*bytes).bytes(name.as_bytes()),
            Request::Ran { nprocs, mpi } => message.number(6).number(*nprocs).bytes(mpi.as_bytes()),
        };
        message.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let mut message = Parts::begin(bytes)?;
        let request = match message.number()? {
            1 => Request::Keep {
                launch: message.number()?,
                one_node: message.number()? != 0,
                directory: message.path()?,
                name: message.text()?,
            },
            2 => Request::Ended,
            3 => Request::Merge {
                launch: message.number()?,
                start_ns: message.number()?,
                directory: message.path()?,
            },
            4 => Request::Flush,
            5 => Request::Memory { bytes: message.number()?, name: message.text()? },
            6 => Request::Ran { nprocs: message.number()?, mpi: message.text()? },
            _ => return None,
        };
        message.0.is_empty().then_some(request)
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let mut message = Message::begin();
        match self {
            Answer::Done(None) => message.number(1),
            Answer::Done(Some(path)) => message.number(2).bytes(path.as_os_str().as_bytes()),
            Answer::Failed(reason) => {
                message.number(3).bytes(&reason.as_bytes()[..reason.len().min(MAX_MESSAGE_BYTES / 2)])
            }
        };
        message.0
    }

    fn decode(bytes: &[u8]) -> Option<Answer> {
        let mut message = Parts::begin(bytes)?;
        Some(match message.number()? {
            1 => Answer::Done(None),
            2 => Answer::Done(Some(message.path()?)),
            3 => Answer::Failed(String::from_utf8_lossy(message.bytes()?).into_owned()),
            _ => return None,
        })
    }
}

/// A message in the making.
struct Message(Vec<u8>);

impl Message {
    fn begin() -> Message {
        Message(MAGIC.to_vec())
    }

    fn number(&mut self, value: u64) -> &mut Message {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Message {
        self.number(bytes.len() as u64).0.extend(bytes);
        self
    }
}

/// What is left of a message.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn begin(bytes: &'a [u8]) -> Option<Parts<'a>> {
        bytes.strip_prefix(MAGIC).map(Parts)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(Path::new(OsStr::from_bytes(self.bytes()?)).to_path_buf())
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}

/// Sends a request, with a descriptor if there is one.
pub fn send_request(socket: &OwnedFd, request: &Request, with: Option<RawFd>) -> Result<()> {
    send(socket, &request.encode(), with)
}

/// Room for one descriptor beside a message, aligned as the kernel wants it.
type Aside = [u64; 4];

/// Sends a message, without waiting.
pub fn send(socket: &OwnedFd, bytes: &[u8], with: Option<RawFd>) -> Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut aside: Aside = [0; 4];
    // SAFETY: zeros are a message of nothing; the parts outlive the call, and the room beside it is large enough for one descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if let Some(fd) = with {
            message.msg_control = aside.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        }
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    if sent < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// The next message and the descriptor that came with it, without waiting. Empty when the other end is closed.
pub fn receive(socket: &OwnedFd) -> Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0u8; MAX_MESSAGE_BYTES];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut aside: Aside = [0; 4];
    // SAFETY: as in `send`; a descriptor that comes is this process's, and nobody else's.
    let (length, fd) = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = aside.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        let length = libc::recvmsg(socket.as_raw_fd(), &mut message, flags);
        if length < 0 {
            return Err(Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&message);
        let fd = (!header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS)
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()));
        (length as usize, fd)
    };
    bytes.truncate(length);
    Ok((bytes, fd))
}

/// Waits for the answer to a request; `None` when none came in time, or the helper is gone.
pub fn wait_for_answer(socket: &OwnedFd, limit: Duration) -> Option<(Answer, Option<OwnedFd>)> {
    let deadline = Instant::now() + limit;
    loop {
        match receive(socket) {
            Ok((bytes, fd)) => return Answer::decode(&bytes).map(|answer| (answer, fd)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return None,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let mut wanted = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut wanted, 1, left.as_millis() as libc::c_int + 1) };
    }
}

/// Has all helpers of this user on this node bring what they keep to where it belongs, within a limit in all: before somebody looks
/// there.
pub fn flush_all(limit: Duration) {
    // SAFETY: asks for a number.
    flush(&Address::all(unsafe { libc::geteuid() }), limit);
}

/// The same for the helper of one job.
pub fn flush_job(job: &str, limit: Duration) {
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    flush(&(0..NAMES).map(|number| Address::of(user, job, number)).collect::<Vec<_>>(), limit);
}

fn flush(addresses: &[Address], limit: Duration) {
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let reached = addresses.iter().filter_map(|address| connect(address, user).ok());
    let asked: Vec<OwnedFd> =
        reached.filter(|socket| send_request(socket, &Request::Flush, None).is_ok()).collect();
    let deadline = Instant::now() + limit;
    for socket in &asked {
        wait_for_answer(socket, deadline.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let directory = PathBuf::from(OsStr::from_bytes(b"/scratch/caf\xe9"));
        for request in [
            Request::Keep {
                directory: directory.clone(),
                name: "0-a-1-1.rec".into(),
                launch: 7,
                one_node: true,
            },
            Request::Ended,
            Request::Merge { directory: directory.clone(), launch: 7, start_ns: u64::MAX },
            Request::Flush,
            Request::Memory { name: "gate".into(), bytes: 4096 },
            Request::Ran { nprocs: 4, mpi: "Open MPI v4.1.4".into() },
        ] {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Some(request));
            for length in 0..bytes.len() {
                assert_eq!(Request::decode(&bytes[..length]), None);
            }
        }
        for answer in
            [Answer::Done(None), Answer::Done(Some(directory)), Answer::Failed("no space left".into())]
        {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn addresses_tell_users_and_jobs_apart() {
        let name = |user, job, number| Address::of(user, job, number).0;
        assert_eq!(name(1, "a", 0), name(1, "a", 0));
        let all = [name(1, "a", 0), name(2, "a", 0), name(1, "b", 0), name(1, "a", 1)];
        for (at, one) in all.iter().enumerate() {
            assert!(one.len() < 107 && !all[..at].contains(one));
        }
    }
}
