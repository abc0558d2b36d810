//! `weir node-helper`: the process beside the ranks of a job on a node. It keeps the memory of their records beyond their end,
//! and brings it to `WEIR_DIR`: soon after the first I/O, from time to time, and at the end. `libweir.so` starts it and hands it the
//! socket on which ranks call (`src/node`).
//!
//! Whatever a file system does, it does to this process and not to a rank. It ends with the last of the ranks.

mod kept;
mod surroundings;
mod writer;

use crate::Outcome;
use kept::{Kept, Sheet, wake_pair};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_profile::fnv1a;
use weir_profile::helper::{Answer, Request, SOCKET_KIND, peer, receive, send};
use weir_profile::memory::sealed;
use writer::{Task, Writer};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job, as its folder of records is called
    #[arg(value_name = "JOB")]
    _job: String,
}

/// The number of the socket that `libweir.so` hands over.
const LISTENER: RawFd = 3;
/// Between two looks at the records: at least, and what is added by chance.
const INTERVAL: Duration = Duration::from_secs(5);
const JITTER_MS: u64 = 10_000;
/// From the first record to the first file: others may be about to come, and other nodes do the same now.
const FIRST: Duration = Duration::from_millis(20);
const FIRST_JITTER_MS: u64 = 400;
/// From the end of one rank to the next file, while others run.
const SOON: Duration = Duration::from_millis(200);
/// So long it stays when there is nobody left to be heard of: a rank that has marked its end may ask for the profile.
const LINGER: Duration = Duration::from_secs(5);
/// How long a connection may take to say what it wants.
const SILENCE: Duration = Duration::from_secs(2);
/// How often processes are looked for where the system does not tell that they are gone.
const LOOK: Duration = Duration::from_millis(250);
/// Processes that ranks have forked, of which records are kept: a rank may have any number of them.
const MAX_CHILDREN: usize = 256;
/// Bounds of what ranks may ask for.
const MAX_PIECES: usize = 4096;
const MAX_PIECE_BYTES: u64 = 64 << 20;

/// What `libweir.so` has asked for, if it has: `weir node-helper JOB` with the socket.
pub(crate) fn run_at_once() -> Option<Outcome> {
    let mut words = std::env::args_os().skip(1);
    let is_helper = words.next().is_some_and(|word| word == "node-helper");
    let job = words.next().filter(|_| is_helper)?.into_string().ok()?;
    is_listening(LISTENER).then(|| serve(&job))
}

pub(crate) fn run(_: &Args) -> Outcome {
    Err("node-helper is started by libweir.so; there is nothing to be done by hand".into())
}

fn serve(job: &str) -> Outcome {
    surroundings::leave_behind(LISTENER);
    // SAFETY: ours alone, as `libweir.so` has left it.
    let listener = unsafe { OwnedFd::from_raw_fd(LISTENER) };
    Helper::new(job, listener)?.serve();
    Ok(ExitCode::SUCCESS)
}

fn is_listening(fd: RawFd) -> bool {
    let (mut answer, mut length): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    let place = (&raw mut answer).cast();
    // SAFETY: a place for the answer, and its size.
    unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, place, &mut length) == 0 && answer == 1
    }
}

/// The state of a sheet's file.
struct Page {
    records: Vec<Arc<Kept>>,
    /// When it is to be written next.
    due: Instant,
    is_on_disk: bool,
    /// Children of ranks beyond [`MAX_CHILDREN`].
    lost_children: u64,
    waiting: Vec<OwnedFd>,
    merge: Option<(u64, OwnedFd)>,
}

impl Page {
    fn hurry(&mut self, due: Instant) {
        self.due = self.due.min(due);
    }

    fn lose_child(&mut self) {
        self.lost_children += 1;
        if let Some(first) = self.records.first() {
            first.note_lost_children(self.lost_children);
        }
    }

    fn is_over(&self) -> bool {
        self.records.iter().all(|kept| kept.is_over())
    }

    /// Whether the writer is wanted although there is no hurry.
    fn is_asked_for(&self) -> bool {
        !self.waiting.is_empty() || self.merge.is_some()
    }
}

struct Helper {
    host: String,
    /// File mode creation mask, inherited from the program that started this process.
    umask: u32,
    listener: Option<OwnedFd>,
    /// Connections that have not said what they want, and since when.
    fresh: Vec<(OwnedFd, Instant)>,
    /// All records whose processes were not seen to be gone, and those that are not in a profile.
    kept: Vec<Arc<Kept>>,
    pages: BTreeMap<Sheet, Page>,
    pieces: BTreeMap<String, (OwnedFd, u64)>,
    writer: Writer,
    woken: File,
    looks: u64,
    /// Whether there ever was a record.
    has_kept: bool,
    /// When something last happened.
    last_event: Instant,
}

impl Helper {
    fn new(job: &str, listener: OwnedFd) -> Result<Helper, String> {
        let (woken, wake) = wake_pair().map_err(|error| error.to_string())?;
        let host = weir_profile::host();
        Ok(Helper {
            writer: Writer::start(job, &file_name_safe(&host), wake)?,
            host,
            umask: surroundings::umask(),
            listener: Some(listener),
            fresh: Vec::new(),
            kept: Vec::new(),
            pages: BTreeMap::new(),
            pieces: BTreeMap::new(),
            woken,
            looks: 0,
            has_kept: false,
            last_event: Instant::now(),
        })
    }

    fn serve(&mut self) {
        loop {
            self.wait();
            self.accept();
            self.hear();
            self.call_roll();
            self.take_reports();
            self.write_what_is_due();
            if self.is_done() && self.leave() {
                return;
            }
        }
    }

    /// Sleeps until something happens or is due.
    fn wait(&self) {
        let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = vec![wanted(self.woken.as_raw_fd())];
        fds.extend(self.listener.iter().map(|listener| wanted(listener.as_raw_fd())));
        fds.extend(self.fresh.iter().map(|(socket, _)| wanted(socket.as_raw_fd())));
        fds.extend(self.living().filter_map(|kept| kept.watch()).map(wanted));
        let limit = self.next_moment().saturating_duration_since(Instant::now());
        // SAFETY: as many entries as said.
        unsafe {
            libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit.as_millis() as libc::c_int + 1)
        };
    }

    fn living(&self) -> impl Iterator<Item = &Arc<Kept>> {
        self.kept.iter().filter(|kept| !kept.is_gone())
    }

    fn next_moment(&self) -> Instant {
        let now = Instant::now();
        let mut next = now + INTERVAL;
        if !self.writer.is_busy() {
            let due = |page: &Page| if page.is_asked_for() { now } else { page.due };
            next = self.pages.values().map(due).fold(next, Instant::min);
        }
        if self.living().any(|kept| kept.watch().is_none()) || !self.fresh.is_empty() {
            next = next.min(now + LOOK);
        }
        let leave = self.last_event + LINGER;
        if leave > now && self.living().all(|kept| kept.is_over()) {
            next = next.min(leave);
        }
        next
    }

    fn accept(&mut self) {
        while let Some(socket) = self.listener.as_ref().and_then(accept_one) {
            if peer(&socket).is_ok_and(|peer| self.is_welcome(&peer)) {
                self.fresh.push((socket, Instant::now()));
            }
        }
    }

    /// Takes the requests that have come.
    fn hear(&mut self) {
        for (socket, since) in std::mem::take(&mut self.fresh) {
            match receive(&socket) {
                Ok((bytes, memory)) => {
                    if let Some(request) = Request::decode(&bytes)
                        && let Ok(peer) = peer(&socket)
                    {
                        self.last_event = Instant::now();
                        self.perform(request, memory, peer.pid, socket);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && since.elapsed() < SILENCE => {
                    self.fresh.push((socket, since));
                }
                Err(_) => {}
            }
        }
    }

    /// This user's processes, and those that were when they came: a program may become another user.
    fn is_welcome(&self, peer: &libc::ucred) -> bool {
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        peer.uid == user || self.living().any(|kept| kept.process.pid == peer.pid as u64)
    }

    fn perform(&mut self, request: Request, memory: Option<OwnedFd>, pid: libc::pid_t, socket: OwnedFd) {
        let now = Instant::now();
        match request {
            Request::Keep { directory, name, launch, one_node } => {
                let sheet = Sheet { directory, launch };
                let name = self.free_name(name);
                let Some(memory) = memory else { return };
                let Ok(kept) = Kept::new(memory, name, sheet.clone(), pid, &socket, self.umask) else {
                    return;
                };
                let kept = Arc::new(kept);
                if kept.is_child() && self.kept.iter().filter(|kept| kept.is_child()).count() >= MAX_CHILDREN
                {
                    return self.page(sheet).lose_child();
                }
                self.kept.push(kept.clone());
                self.has_kept = true;
                let spread = if one_node { 0 } else { self.chance() % FIRST_JITTER_MS };
                let page = self.page(sheet);
                if !page.is_on_disk {
                    page.hurry(now + FIRST + Duration::from_millis(spread));
                }
                page.records.push(kept);
            }
            Request::Ended => {
                let mine = |page: &&mut Page| page.records.iter().any(|kept| kept.process.pid == pid as u64);
                let mut socket = Some(socket);
                for page in self.pages.values_mut().filter(mine) {
                    let mut records = page.records.iter().filter(|kept| kept.process.pid == pid as u64);
                    let is_on_disk = records.all(|kept| kept.is_on_disk());
                    if page.is_over() || !is_on_disk {
                        page.hurry(now);
                    }
                    match socket.take() {
                        Some(socket) if is_on_disk => {
                            _ = send(&socket, &Answer::Done(None).encode(), None);
                        }
                        Some(socket) => page.waiting.push(socket),
                        None => {}
                    }
                }
            }
            Request::Merge { directory, launch, start_ns } => {
                self.page(Sheet { directory, launch }).merge = Some((start_ns, socket));
            }
            Request::Flush => {
                self.pages.values_mut().for_each(|page| page.hurry(now));
                // They are written in their order.
                match self.pages.values_mut().next_back() {
                    Some(last) => last.waiting.push(socket),
                    None => _ = send(&socket, &Answer::Done(None).encode(), None),
                }
            }
            Request::Memory { name, bytes } => {
                let (answer, memory) = match self.piece(name, bytes) {
                    Ok(fd) => (Answer::Done(None), Some(fd)),
                    Err(reason) => (Answer::Failed(reason), None),
                };
                let _ = send(&socket, &answer.encode(), memory);
            }
            Request::Ran { .. } => {}
        }
    }

    /// A program that has replaced itself by exec is the same process, and has left a record.
    fn free_name(&self, name: String) -> String {
        let is_taken = |name: &str| self.kept.iter().any(|kept| kept.name() == name);
        let Some((front, rest)) = name.rsplit_once('-').filter(|_| is_taken(&name)) else { return name };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let generation: u64 = rest[..digits].parse().unwrap_or(0);
        let mut next = (generation + 1..).map(|number| format!("{front}-{number}{}", &rest[digits..]));
        next.find(|name| !is_taken(name)).unwrap_or(name)
    }

    fn page(&mut self, sheet: Sheet) -> &mut Page {
        self.pages.entry(sheet).or_insert_with(|| Page {
            records: Vec::new(),
            due: Instant::now() + INTERVAL,
            is_on_disk: false,
            lost_children: 0,
            waiting: Vec::new(),
            merge: None,
        })
    }

    fn piece(&mut self, name: String, bytes: u64) -> Result<RawFd, String> {
        if let Some((memory, size)) = self.pieces.get(&name) {
            let fits = *size >= bytes;
            return fits
                .then(|| memory.as_raw_fd())
                .ok_or_else(|| format!("{size} bytes, {bytes} are wanted"));
        }
        if self.pieces.len() >= MAX_PIECES || bytes > MAX_PIECE_BYTES {
            return Err("more memory than a job may share".into());
        }
        let memory = sealed(bytes).map_err(|error| error.to_string())?;
        let fd = memory.as_raw_fd();
        self.pieces.insert(name, (memory, bytes));
        Ok(fd)
    }

    /// The same on no two nodes, nor twice on one.
    fn chance(&mut self) -> u64 {
        self.looks += 1;
        fnv1a(self.host.bytes().chain(self.looks.to_le_bytes())) >> 16
    }

    /// Notes whose processes are gone.
    fn call_roll(&mut self) {
        let now = Instant::now();
        let gone: Vec<Sheet> =
            self.living().filter(|kept| kept.look()).map(|kept| kept.sheet.clone()).collect();
        for sheet in gone {
            self.last_event = now;
            if let Some(page) = self.pages.get_mut(&sheet) {
                let due = if page.is_over() { now } else { now + SOON };
                page.hurry(due);
            }
            self.let_go();
        }
    }

    /// Forgets the records of processes that are gone, once they are in a profile, and pages without records.
    fn let_go(&mut self) {
        let pages = &mut self.pages;
        let is_wanted = |kept: &Arc<Kept>| {
            let page = pages.get(&kept.sheet);
            page.is_some_and(|page| page.records.iter().any(|record| Arc::ptr_eq(record, kept)))
        };
        self.kept.retain(|kept| !kept.is_gone() || is_wanted(kept));
        pages.retain(|_, page| !page.records.is_empty() || page.is_asked_for());
    }

    fn take_reports(&mut self) {
        let _ = (&self.woken).read(&mut [0; 64]);
        let reports: Vec<_> = self.writer.reports().collect();
        for report in reports {
            let is_merged = |kept: &Arc<Kept>| report.merged.iter().any(|merged| Arc::ptr_eq(merged, kept));
            self.last_event = Instant::now();
            if let Some(page) = self.pages.get_mut(&report.sheet) {
                page.is_on_disk = true;
                page.records.retain(|kept| !is_merged(kept));
            }
            self.let_go();
        }
    }

    fn write_what_is_due(&mut self) {
        let now = Instant::now();
        if self.writer.is_busy() {
            return;
        }
        let pause = INTERVAL + Duration::from_millis(self.chance() % JITTER_MS);
        let is_due = |(_, page): &(&Sheet, &mut Page)| page.due <= now;
        let is_asked_for = |(_, page): &(&Sheet, &mut Page)| page.is_asked_for();
        let next = match self.pages.iter_mut().find(is_due) {
            None => self.pages.iter_mut().find(is_asked_for),
            due => due,
        };
        if let Some((sheet, page)) = next {
            page.due = now + pause;
            self.writer.begin(Task {
                sheet: sheet.clone(),
                records: page.records.clone(),
                waiting: std::mem::take(&mut page.waiting),
                merge: page.merge.take(),
            });
        }
    }

    /// Whether nobody is left, and all is written.
    fn is_done(&self) -> bool {
        let is_quiet = self.fresh.is_empty() && !self.writer.is_busy();
        let now = Instant::now();
        let is_written = |page: &Page| {
            !page.is_asked_for() && (page.due > now && page.is_on_disk || page.records.is_empty())
        };
        let waited_for = || self.kept.iter().filter(|kept| kept.is_waited_for());
        let are_gone = self.has_kept && waited_for().next().is_none();
        let is_silent = self.last_event.elapsed() >= LINGER && waited_for().all(|kept| kept.is_over());
        is_quiet && (are_gone || is_silent) && self.pages.values().all(is_written)
    }

    /// Closes the socket. `false` when somebody has called in the last moment: it goes on then, with another socket if it gets one.
    fn leave(&mut self) -> bool {
        let Some(listener) = self.listener.take() else { return true };
        // SAFETY: our own descriptor. From now on nobody new is let in; those who are, are answered.
        unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        while let Some(socket) = accept_one(&listener) {
            if peer(&socket).is_ok_and(|peer| self.is_welcome(&peer)) {
                self.fresh.push((socket, Instant::now()));
            }
        }
        if self.fresh.is_empty() {
            return true;
        }
        self.listener = listen_again(listener);
        false
    }
}

fn accept_one(listener: &OwnedFd) -> Option<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: our own descriptor; the new one is nobody else's.
    unsafe {
        let fd = libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// Another socket at the same address, unless somebody else has it already.
fn listen_again(listener: OwnedFd) -> Option<OwnedFd> {
    // SAFETY: places for the answers, and their sizes; the new descriptor is nobody else's.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        let place = (&raw mut address).cast();
        if libc::getsockname(listener.as_raw_fd(), place, &mut length) != 0 {
            return None;
        }
        drop(listener);
        let fd = libc::socket(libc::AF_UNIX, SOCKET_KIND, 0);
        if fd < 0 {
            return None;
        }
        let socket = OwnedFd::from_raw_fd(fd);
        let bound = libc::bind(fd, (&raw const address).cast(), length) == 0 && libc::listen(fd, 4096) == 0;
        bound.then_some(socket)
    }
}

fn file_name_safe(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || "._-@".contains(c) { c } else { '_' }).collect()
}
