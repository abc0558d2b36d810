//! What the tests of real sockets share.
#![allow(dead_code, reason = "each test uses some of it")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_coord::Waker;
use weir_coord::address::Address;
use weir_coord::ledger::Sum;
use weir_coord::member::{Member, Way};
use weir_coord::query::query_status;
use weir_coord::server::{Server, Settings};
use weir_coord::session::{Gate, Input, Limits, Word};
use weir_coord::wire::{Identity, Inbox, Message};
use weir_engine::sharing::PolicyKind;

/// A private directory that goes away with its owner.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-test-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(name);
        weir_coord::auth::private_directory(&path).expect("a directory");
        Directory(path)
    }

    pub(crate) fn socket(&self) -> Address {
        Address::Unix(self.0.join("coordinator.sock"))
    }
}

impl Directory {
    /// The same directory on another node that shares it: the lock is the same, the socket leads nowhere.
    pub(crate) fn seen_from_another_node(&self) -> Directory {
        let other = Directory::new();
        for name in ["coordinator.lock", "coordinator.at"] {
            std::fs::hard_link(self.0.join(name), other.0.join(name)).expect("linked");
        }
        drop(std::os::unix::net::UnixListener::bind(other.0.join("coordinator.sock")).expect("bound"));
        other
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server in a thread of its own, until dropped.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    pub(crate) address: Address,
}

pub(crate) fn serve(address: &Address, settings: Settings) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let address = address.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut server = Server::new(settings).expect("a server");
        let address = server.listen(&address, false).expect("listens");
        tell.send((server.waker(), address)).expect("is heard");
        while !stopped.load(SeqCst) {
            server.step(Duration::from_secs(1)).expect("steps");
        }
    });
    let (waker, address) = told.recv().expect("a server");
    Running { stop, waker, thread: Some(thread), address }
}

impl Running {
    /// Waits until the server has heard what was said so far: a phase that is granted ahead does not wait for that.
    pub(crate) fn settle(&self) {
        query_status(&self.address, None, Duration::from_secs(10)).expect("an answer");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.waker.wake();
        self.thread.take().map(JoinHandle::join);
    }
}

pub(crate) fn settings(policy: PolicyKind) -> Settings {
    Settings { policy, ..Settings::default() }
}

pub(crate) fn identity(job: &str) -> Identity {
    Identity {
        storage: "disk".into(),
        job: job.into(),
        application: "test".into(),
        host: "here".into(),
        pid: std::process::id(),
        ranks: 4,
        nodes: 1,
        ..Identity::default()
    }
}

/// No limit that a test would reach.
pub(crate) const LIMITS: Limits = Limits { phase_gap_ns: None, max_wait_ns: 60_000_000_000, free_bytes: 0 };

pub(crate) fn member(way: Way, identity: Identity) -> Member {
    let waker = Waker::new().expect("a waker");
    Member::new(way, identity, LIMITS, &Sum::default(), waker).expect("a member")
}

/// A job whose ranks do what the test says.
pub(crate) struct Job {
    pub(crate) member: Member,
    pub(crate) sum: Sum,
    pub(crate) heard: Vec<Word>,
}

impl Job {
    pub(crate) fn new(way: Way, identity: Identity) -> Job {
        Job { member: member(way, identity), sum: Sum::default(), heard: Vec::new() }
    }

    pub(crate) fn join(name: &str, address: &Address) -> Job {
        Job::join_as(identity(name), address)
    }

    pub(crate) fn join_as(identity: Identity, address: &Address) -> Job {
        let mut job = Job::new(Way::Service { address: address.clone(), key: None }, identity);
        job.until("welcome", |word| matches!(word, Word::Joined { .. }));
        job
    }

    /// Says something, at once.
    pub(crate) fn tell(&mut self, input: Input) {
        self.member.tell(input);
        self.step(Duration::ZERO);
    }

    /// The leader looks at what the ranks do.
    pub(crate) fn look(&mut self) {
        let sum = self.sum;
        self.tell(Input::Look(&sum));
    }

    /// The program says that a phase begins.
    pub(crate) fn begin(&mut self) {
        self.sum.marks = 1;
        self.look();
    }

    /// The program says that the phase is over, in which so many bytes were moved.
    pub(crate) fn end(&mut self, bytes: u64) {
        self.sum = Sum { spent_bytes: bytes, done_bytes: bytes, ..Sum::default() };
        self.look();
    }

    /// A request of so many bytes is under way.
    pub(crate) fn busy(&mut self, bytes: u64) {
        self.sum = Sum { in_flight: 1, spent_bytes: bytes, ..self.sum };
        self.look();
    }

    pub(crate) fn step(&mut self, timeout: Duration) {
        let heard = &mut self.heard;
        self.member.step(timeout, &mut |word| heard.push(word));
    }

    /// The first word, of those not taken yet, that is wanted; the ones before it are dropped.
    pub(crate) fn until(&mut self, what: &str, wanted: impl Fn(&Word) -> bool) -> Word {
        let start = Instant::now();
        loop {
            if let Some(at) = self.heard.iter().position(&wanted) {
                return self.heard.drain(..=at).next_back().expect("just found");
            }
            assert!(start.elapsed() < Duration::from_secs(10), "waits for {what}, heard {:?}", self.heard);
            self.step(Duration::from_millis(10));
        }
    }

    /// Waits until the gate holds what is wanted.
    pub(crate) fn until_gate(&mut self, what: &str, wanted: impl Fn(Gate) -> bool) -> Gate {
        let start = Instant::now();
        while !wanted(self.member.session().gate()) {
            let gate = self.member.session().gate();
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "waits for {what}, is {gate:?}: {:?}",
                self.heard
            );
            self.step(Duration::from_millis(10));
        }
        self.member.session().gate()
    }

    /// Waits for a grant; its credit.
    pub(crate) fn granted(&mut self) -> u64 {
        match self.until_gate("a grant", |gate| matches!(gate, Gate::Granted { .. })) {
            Gate::Granted { credit_bytes } => credit_bytes,
            other => unreachable!("only grants are let through, not {other:?}"),
        }
    }

    pub(crate) fn held(&mut self) {
        self.until("a hold", |word| matches!(word, Word::Held));
        assert_eq!(self.member.session().gate(), Gate::Closed);
    }

    /// Lets some time pass in which the gate must stay closed.
    pub(crate) fn stays_closed(&mut self, why: &str) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            self.step(Duration::from_millis(10));
            assert_eq!(self.member.session().gate(), Gate::Closed, "{why}");
        }
    }

    /// Lets some time pass in which nothing of the kind may be heard.
    pub(crate) fn never(&mut self, what: &str, unwanted: impl Fn(&Word) -> bool) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            self.step(Duration::from_millis(10));
        }
        assert!(!self.heard.iter().any(unwanted), "{what}: {:?}", self.heard);
    }
}

/// A socket without manners.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
    inbox: Inbox,
}

impl Raw {
    pub(crate) fn connect(address: &Address) -> Raw {
        let Address::Unix(path) = address else { panic!("a Unix socket") };
        let stream = UnixStream::connect(path).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        Raw { stream, inbox: Inbox::default() }
    }

    pub(crate) fn send(&mut self, message: &Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.stream.write_all(&frame).expect("sends");
    }

    /// The next message; `None` when closed.
    pub(crate) fn receive(&mut self) -> Option<Message> {
        let mut scratch = [0; 4096];
        loop {
            if let Some(message) = self.inbox.take().expect("a good frame") {
                return Some(message);
            }
            match self.stream.read(&mut scratch) {
                Ok(0) => return None,
                Ok(length) => self.inbox.feed(&scratch[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("receives: {error}"),
            }
        }
    }
}

pub(crate) fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
