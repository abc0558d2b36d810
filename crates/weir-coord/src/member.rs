//! A job's node in the world of coordination: a [`Session`] with real sockets, and the coordinator itself if elected.
//!
//! The member carries out what the session decides and tells it what came of that; it decides nothing itself. It is made
//! and driven by one thread, from which it never departs; it creates none.

use crate::address::Address;
use crate::auth::{self, Key};
use crate::election::{self, Office};
use crate::ledger::Sum;
use crate::server::Settings;
use crate::session::{Input, Limits, Output, Peer, Route, Session, Wanted, Word};
use crate::socket::{self, Channel, Interest, Poller, Ready, Stream, Waker, now_ns};
use crate::wire::Identity;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

/// How a job finds its coordinator.
#[derive(Clone, Debug)]
pub enum Way {
    /// A service.
    Service { address: Address, key: Option<Key> },
    /// The jobs that meet in this directory elect one among them.
    Elect {
        directory: PathBuf,
        /// Also reachable from other nodes, under this name of the node; then the directory is on a file
        /// system that they share.
        network_host: Option<String>,
        /// How to coordinate when elected.
        settings: Settings,
    },
}

pub struct Member {
    way: Way,
    session: Session,
    channel: Option<Channel>,
    office: Option<Office>,
    poller: Poller,
    waker: Waker,
    /// Attempts over TCP so far: of several addresses of a host, each takes the next.
    tcp_attempts: usize,
    ready: Vec<(u64, Ready)>,
    outputs: Vec<Output>,
    words: Vec<Word>,
}

const SOCKET: u64 = 0;
const WAKER: u64 = 1;
const SERVER: u64 = 2;

/// Some thousands of messages.
const MAX_UNSENT_BYTES: usize = 256 << 10;

impl Member {
    /// Nothing is tried before the first [`Member::step`]. `sum` is what the ranks do now; `waker` ends a step from other
    /// threads.
    pub fn new(way: Way, identity: Identity, limits: Limits, sum: &Sum, waker: Waker) -> io::Result<Member> {
        let wanted = match &way {
            Way::Service { .. } => Wanted::Service,
            Way::Elect { network_host, .. } => Wanted::Election { network: network_host.is_some() },
        };
        let poller = Poller::new()?;
        poller.add(&waker, WAKER, Interest::READ)?;
        Ok(Member {
            way,
            session: Session::new(now_ns(), identity, wanted, limits, sum),
            channel: None,
            office: None,
            poller,
            waker,
            tcp_attempts: 0,
            ready: Vec::new(),
            outputs: Vec::new(),
            words: Vec::new(),
        })
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Tells the session something of the ranks. Messages go out with the next step.
    pub fn tell(&mut self, input: Input) {
        self.session.step(now_ns(), input, &mut self.outputs);
        self.carry_out();
    }

    pub fn is_coordinator(&self) -> bool {
        self.office.is_some()
    }

    /// Connects if need be, coordinates if elected, sends and receives; waits until something happens, somebody
    /// wakes it, or `timeout` is over. What the ranks have to know is handed to `hear`.
    pub fn step(&mut self, timeout: Duration, hear: &mut dyn FnMut(Word)) {
        self.tell(Input::Seek);
        self.flush();
        self.wait(timeout);
        if let Some(office) = &mut self.office
            && office.server.step(Duration::ZERO).is_err()
        {
            self.resign();
        }
        // Only when everything that came has been heard may somebody be taken for silent.
        self.receive();
        self.tell(Input::Tick);
        self.flush();
        self.words.drain(..).for_each(hear);
    }

    /// Ends what [`Input::Leave`] began; another takes over if this was the coordinator.
    pub fn leave(mut self) {
        if let Some(office) = &mut self.office {
            // The others hear of it by their connections.
            let _ = office.server.step(Duration::ZERO);
        }
    }

    /// When [`Member::step`] wants to be called even if nothing comes.
    pub fn deadline_ns(&self) -> u64 {
        let office_ns = self.office.as_ref().map_or(u64::MAX, |office| office.server.deadline_ns());
        office_ns.min(self.session.deadline_ns())
    }

    fn wait(&mut self, timeout: Duration) {
        let wait_ns = self.deadline_ns().saturating_sub(now_ns());
        let timeout = timeout.min(Duration::from_nanos(wait_ns));
        self.ready.clear();
        // The coordinator's own job hears it without the system's help.
        if timeout.is_zero() && self.is_own() {
            return;
        }
        if self.poller.wait(timeout, &mut self.ready).is_err() {
            self.resign();
        }
        if self.ready.iter().any(|(token, _)| *token == WAKER) {
            self.waker.clear();
        }
    }

    /// Does what the session wants, and what follows from that.
    fn carry_out(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut more = Vec::new();
        while !outputs.is_empty() {
            for output in outputs.drain(..) {
                if let Some(answer) = self.perform(output) {
                    self.session.step(now_ns(), answer, &mut more);
                }
            }
            std::mem::swap(&mut outputs, &mut more);
        }
        self.outputs = outputs;
    }

    fn perform(&mut self, output: Output) -> Option<Input<'static>> {
        match output {
            Output::Send(message) => {
                self.channel.iter_mut().for_each(|channel| channel.queue(&message));
                None
            }
            Output::HangUp => {
                self.flush_last();
                None
            }
            Output::TakeOffice => Some(Input::Office(self.take_office())),
            Output::CheckOffice => {
                let Way::Elect { directory, .. } = &self.way else { return None };
                let is_found = self.office.as_ref().is_some_and(|office| office.is_in(directory));
                (!is_found).then(|| {
                    self.drop_office();
                    Input::OfficeLost
                })
            }
            Output::Connect(route) => Some(match self.connect(route) {
                Ok(peer) => Input::Connected(peer),
                Err(reason) => Input::NotConnected { reason },
            }),
            Output::Word(word) => {
                self.words.push(word);
                None
            }
        }
    }

    /// Sends what there is to say, as far as that goes at once, and closes.
    fn flush_last(&mut self) {
        if let Some(mut channel) = self.channel.take() {
            let _ = channel.flush();
            self.poller.remove(&channel.stream);
        }
    }

    /// Tries to become the coordinator of the directory.
    fn take_office(&mut self) -> Result<bool, String> {
        let Way::Elect { directory, network_host, settings } = &self.way else { return Ok(false) };
        let Some(office) = Office::take(directory, network_host.as_deref(), settings)? else {
            return Ok(false);
        };
        self.poller.add(&office.server, SERVER, Interest::READ).map_err(|error| format!("epoll: {error}"))?;
        self.office = Some(office);
        Ok(true)
    }

    fn connect(&mut self, route: Route) -> Result<Peer, String> {
        let attempt = self.tcp_attempts;
        self.tcp_attempts += usize::from(matches!(route, Route::Service | Route::Published));
        let (stream, peer) = match (route, &self.way) {
            (Route::Own, _) => {
                let office = self.office.as_mut().ok_or("this node does not coordinate")?;
                (office.server.own_connection(), Peer { name: String::new(), secret: None })
            }
            (Route::Service, Way::Service { address, key }) => reach(address, key.clone(), attempt)?,
            (Route::Socket, Way::Elect { directory, .. }) => {
                reach(&Address::Unix(election::socket_path(directory)), None, 0)?
            }
            (Route::Published, Way::Elect { directory, .. }) => {
                let (address, key) = election::published(directory)?;
                reach(&address, Some(key), attempt)?
            }
            _ => return Err("there is no such way".into()),
        };
        self.poller.add(&stream, SOCKET, Interest::READ).map_err(|error| format!("epoll: {error}"))?;
        self.channel = Some(Channel::new(stream));
        Ok(peer)
    }

    fn flush(&mut self) {
        let Some(channel) = &mut self.channel else { return };
        let broken = match channel.flush() {
            Err(error) => error.to_string(),
            // A coordinator that reads nothing is as good as none.
            Ok(()) if channel.unsent_bytes() > MAX_UNSENT_BYTES => "it reads nothing".into(),
            Ok(()) => return,
        };
        self.tell(Input::Broken { reason: broken });
    }

    /// Hears all that has come.
    fn receive(&mut self) {
        let is_ready = |(token, is): &(u64, Ready)| *token == SOCKET && is.read;
        if !self.is_own() && !self.ready.iter().any(is_ready) {
            return;
        }
        let mut scratch = [0; 4096];
        loop {
            let Some(channel) = &mut self.channel else { return };
            let input = channel.receive(&mut scratch);
            let end = match &input {
                socket::Input::Closed => Some("it closed the connection".into()),
                socket::Input::Failed(error) => Some(error.to_string()),
                socket::Input::Some | socket::Input::Empty => None,
            };
            if let Some(reason) = end {
                return self.tell(Input::Broken { reason });
            }
            while let Some(channel) = &mut self.channel {
                match channel.take() {
                    Ok(Some(message)) => self.tell(Input::Received(message)),
                    Ok(None) => break,
                    Err(error) => return self.tell(Input::Malformed { reason: error.to_string() }),
                }
            }
            if let socket::Input::Empty = input {
                return;
            }
        }
    }

    /// Whether this node is coordinated by itself.
    fn is_own(&self) -> bool {
        matches!(self.channel, Some(Channel { stream: Stream::Own(_), .. }))
    }

    fn resign(&mut self) {
        self.drop_office();
        self.tell(Input::OfficeLost);
    }

    fn drop_office(&mut self) {
        if let Some(office) = self.office.take() {
            self.poller.remove(&office.server);
        }
    }
}

/// Begins to connect to the address. Over TCP both sides have to prove that they have the key.
fn reach(address: &Address, key: Option<Key>, attempt: usize) -> Result<(Stream, Peer), String> {
    let failed = |why: String| format!("cannot reach the coordinator at {address}: {why}");
    let secret = match (address, key) {
        (Address::Unix(_), _) => None,
        (Address::Tcp(_), None) => return Err(failed("TCP needs a key".into())),
        (Address::Tcp(_), Some(key)) => {
            Some((key, auth::nonce().map_err(|error| failed(error.to_string()))?))
        }
    };
    let stream = Stream::begin_to_connect(address, attempt).map_err(|error| failed(error.to_string()))?;
    Ok((stream, Peer { name: format!("the coordinator at {address}: "), secret }))
}

impl AsRawFd for Member {
    /// Ready to be read when [`Member::step`] has something to do.
    fn as_raw_fd(&self) -> RawFd {
        self.poller.as_raw_fd()
    }
}
