//! A job's side of the connection: one per node, driven by one thread, which it never creates.
//!
//! The thread alternates between looking at what its ranks do ([`Client::begin`], [`Client::moved`],
//! [`Client::end`]) and [`Client::step`], which sends, receives and says what changed in [`Word`]s. The client
//! remembers the phase under way: after a reconnection it tells a new coordinator, and nobody else needs to know.

use crate::address::Address;
use crate::auth::{Key, Nonce};
use crate::errands::Errands;
use crate::history::Habits;
use crate::socket::{Channel, Input, Interest, Poller, Ready, Stream, Waker, now_ns};
use crate::text::printable;
use crate::wire::{FileInfo, Message, Progress, Reader};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use weir_engine::engine::mean_with_usual;

mod greeting;

use greeting::is_greeting;

/// Who the job is; the same for all nodes but for `host`, `pid` and `ranks`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// No other job has it.
    pub job: String,
    pub application: String,
    pub host: String,
    pub pid: u32,
    pub ranks: u32,
    pub nodes: u32,
    /// From earlier runs; see [`Client::set_habits`].
    pub w_iter_ns: Option<u64>,
    pub mean_phase_bytes: Option<u64>,
}

/// What the gate has to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// There is a coordinator and it knows the job, whose next phase has to ask. Without orders no reader needs to ask
    /// for its turn.
    Joined { policy: String, orders: bool },
    /// The phase may do I/O; a request may start while fewer bytes than the credit were spent in this phase.
    /// Who has spent it all should get more within the time that is expected.
    Granted { phase: u64, share: f64, credit_bytes: u64, expected_ns: u64 },
    /// As above; `u64::MAX` is no limit. Replaces the credit before, up or down.
    Credit { phase: u64, credit_bytes: u64, expected_ns: u64 },
    /// No request may start until granted, which should be within this time.
    Held { phase: u64, expected_ns: u64 },
    /// The next phase may do I/O as soon as it begins, without limit, and say so afterwards; or has to ask again.
    Ahead { granted: bool },
    /// The answer to [`Client::ask`]. Zero aggregators or stripes, no targets: no opinion on that.
    Allocated { request: u64, aggregators: u32, stripes: u32, targets: Vec<u32> },
    /// This reader may read now; see [`Client::read`].
    Turn { number: u32, call: u64 },
    /// The coordinator is gone. What it said last holds until `Joined` or `Open`.
    Lost { reason: String },
    /// Nobody has coordinated for too long: everybody may go, until `Joined`.
    Open { reason: String },
    /// The coordinator will not have this job (another version, a wrong key). Follows with `Open`.
    Refused { reason: String },
}

impl Word {
    pub(crate) fn no_opinion(request: u64) -> Word {
        Word::Allocated { request, aggregators: 0, stripes: 0, targets: Vec::new() }
    }
}

/// The phase under way, as a new coordinator would have to hear of it.
#[derive(Clone, Copy, Debug)]
struct Phase {
    number: u64,
    began_ns: u64,
    bytes: Option<u64>,
    granted: bool,
    progress: Progress,
    /// What the coordinator was told last, and when.
    told: Progress,
    told_ns: u64,
}

/// A connection that takes longer than this to answer is of no use.
const HANDSHAKE_NS: u64 = 500_000_000;

/// Until `Welcome` says otherwise.
const FIRST_BEAT_NS: u64 = 200_000_000;

/// Without a coordinator for this long, the gate opens.
const OPEN_AFTER_NS: u64 = 300_000_000;

/// A coordinator that has not answered this many beats is lost. Its lease for the job is longer.
const BEATS_MISSED: u64 = 3;

/// Nobody is expected to wait for longer than a day: the gate's own limit is counted from there.
const MOST_EXPECTED_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Some thousands of messages.
const MAX_UNSENT_BYTES: usize = 256 << 10;

enum Link {
    Down,
    /// Connected, the coordinator has not answered yet.
    Greeting {
        channel: Channel,
        since_ns: u64,
        proof: Option<(Nonce, Nonce)>,
        /// It need not prove that it has the key, or has done so.
        is_trusted: bool,
    },
    Up {
        channel: Channel,
    },
}

pub struct Client {
    identity: Identity,
    /// Of earlier runs: `w_iter_ns` and `mean_phase_bytes`.
    usual: (Option<u64>, Option<u64>),
    key: Option<Key>,
    link: Link,
    poller: Poller,
    waker: Waker,
    phase: Option<Phase>,
    /// The next phase is granted before it begins.
    is_ahead: bool,
    errands: Errands,
    heard_ns: u64,
    beat_sent_ns: u64,
    beat_ns: u64,
    report_ns: u64,
    /// Had a coordinator before.
    rejoins: bool,
    /// Since when there is none, for `Open`; `None` once that was said.
    down_since_ns: Option<u64>,
    /// The same from before the latest welcome, until something else is heard: one that can do no more is none.
    unproven_since_ns: Option<u64>,
    /// How to begin a sentence on what the one spoken to says.
    peer: String,
    /// Why the latest attempt to reach one failed.
    failure: String,
    ready: Vec<(u64, Ready)>,
    words: Vec<Word>,
}

const SOCKET: u64 = 0;
const WAKER: u64 = 1;

impl Client {
    /// Not connected yet. `waker` ends a [`Client::step`] from other threads.
    pub fn new(identity: Identity, key: Option<Key>, waker: Waker) -> std::io::Result<Client> {
        let poller = Poller::new()?;
        poller.add(&waker, WAKER, Interest::READ)?;
        Ok(Client {
            usual: (identity.w_iter_ns, identity.mean_phase_bytes),
            identity,
            key,
            link: Link::Down,
            poller,
            waker,
            phase: None,
            is_ahead: false,
            errands: Errands::default(),
            heard_ns: 0,
            beat_sent_ns: 0,
            beat_ns: FIRST_BEAT_NS,
            report_ns: 2_000_000,
            rejoins: false,
            down_since_ns: Some(now_ns()),
            unproven_since_ns: None,
            peer: String::new(),
            failure: "there is no coordinator".into(),
            ready: Vec::new(),
            words: Vec::new(),
        })
    }

    /// Connects and says hello; the answer comes as a [`Word`]. A connection that there was is dropped.
    pub fn connect(&mut self, address: &Address) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot reach the coordinator at {address}: {error}");
        self.hang_up();
        let is_tcp = matches!(address, Address::Tcp(_));
        if is_tcp && self.key.is_none() {
            return Err(format!("cannot reach the coordinator at {address}: TCP needs a key"));
        }
        self.greet(Stream::connect(address).map_err(failed)?).map_err(failed)?;
        self.failure = format!("the coordinator at {address} does not answer");
        self.peer = format!("the coordinator at {address}: ");
        Ok(())
    }

    /// For connections from now on.
    pub fn set_key(&mut self, key: Option<Key>) {
        self.key = key;
    }

    /// What the job has shown of itself so far in this run: the next coordinator hears of it when the job joins.
    pub fn set_habits(&mut self, own: Habits) {
        let mean = |usual: Option<u64>, shown: u64| {
            usual.map_or(shown, |usual| mean_with_usual(usual as f64, shown as f64, own.phases) as u64)
        };
        let (usual_ns, usual_bytes) = self.usual;
        self.identity.w_iter_ns = own.w_iter_ns.map(|shown_ns| mean(usual_ns, shown_ns)).or(usual_ns);
        self.identity.mean_phase_bytes = Some(mean(usual_bytes, own.mean_phase_bytes));
    }

    /// Why there is no coordinator, for [`Word::Open`].
    pub(crate) fn note_failure(&mut self, reason: String) {
        self.failure = reason;
    }

    pub fn is_connected(&self) -> bool {
        !matches!(self.link, Link::Down)
    }

    pub fn is_joined(&self) -> bool {
        matches!(self.link, Link::Up { .. })
    }

    /// A phase begins. `phase` grows with each; `bytes` if it is known what it will move. Without a
    /// coordinator nothing is sent, and the next one will hear of it.
    pub fn begin(&mut self, phase: u64, bytes: Option<u64>) {
        let progress = Progress::default();
        self.phase = Some(Phase {
            number: phase,
            began_ns: now_ns(),
            bytes,
            granted: self.is_ahead,
            progress,
            told: progress,
            told_ns: 0,
        });
        if self.is_joined() {
            self.send(&Message::Begin { phase, bytes });
        }
    }

    /// How far the phase under way is. May be called at any rate: it is sent when it is due.
    pub fn moved(&mut self, progress: Progress) {
        if let Some(phase) = &mut self.phase {
            phase.progress = progress;
        }
        self.report(now_ns());
    }

    /// The phase under way is over.
    pub fn end(&mut self, bytes: u64, io_ns: u64, waited_ns: u64) {
        if let Some(phase) = self.phase.take()
            && self.is_joined()
        {
            self.send(&Message::End { phase: phase.number, bytes, io_ns, waited_ns });
        }
        self.errands.end_phase(&mut self.words);
    }

    /// A file is about to be created: how wide shall it be, and where? [`Word::Allocated`] is the answer, without an
    /// opinion if there is nobody to ask or if the coordinator goes. `request` is the node's own number of
    /// the file. Who does not wait for the answer, or closes the file, says [`Client::release`].
    pub fn ask(&mut self, request: u64, file: FileInfo) {
        if self.is_joined() && self.errands.ask(request, &file) {
            self.send(&Message::Ask { request, file });
        } else {
            self.words.push(Word::no_opinion(request));
        }
    }

    /// The file is closed.
    pub fn release(&mut self, request: u64) {
        if self.errands.release(request) && self.is_joined() {
            self.send(&Message::Release { request });
        }
    }

    /// An aggregator of this node is about to read in a collective call: when may it? [`Word::Turn`] is the answer, at
    /// once if there is nobody to ask or if the coordinator goes. [`Client::served`] must follow.
    pub fn read(&mut self, reader: Reader) {
        let Reader { number, call, .. } = reader;
        if self.is_joined() && self.errands.read(number, call) {
            self.send(&Message::Read { reader });
        } else {
            self.words.push(Word::Turn { number, call });
        }
    }

    /// It has read, whether or not it had waited for its turn.
    pub fn served(&mut self, number: u32, call: u64) {
        self.errands.turn(number, call);
        if self.is_joined() {
            self.send(&Message::Served { number, call });
        }
    }

    /// Tells the coordinator that no more will come, and closes.
    pub fn bye(&mut self) {
        self.send(&Message::Bye {});
        self.flush();
        self.hang_up();
    }

    /// Closes the connection, if there is one; whether the job had joined.
    fn hang_up(&mut self) -> bool {
        let (joined, channel) = match std::mem::replace(&mut self.link, Link::Down) {
            Link::Down => return false,
            Link::Greeting { channel, .. } => (false, channel),
            Link::Up { channel } => (true, channel),
        };
        self.poller.remove(&channel.stream);
        self.errands.let_go(&mut self.words);
        joined
    }

    /// Sends, receives and keeps the lease; waits until something happens, somebody wakes it, or `timeout`
    /// is over. What changed is handed to `hear`.
    pub fn step(&mut self, timeout: Duration, hear: &mut dyn FnMut(Word)) {
        self.flush();
        match self.channel() {
            Some(Channel { stream: Stream::Own(_), .. }) => self.receive(),
            _ => self.wait(timeout),
        }
        self.keep_time(now_ns());
        self.flush();
        self.words.drain(..).for_each(hear);
    }

    fn wait(&mut self, timeout: Duration) {
        let wait_ns = self.deadline_ns().saturating_sub(now_ns());
        let timeout = timeout.min(Duration::from_nanos(wait_ns));
        self.ready.clear();
        if let Err(error) = self.poller.wait(timeout, &mut self.ready) {
            self.lose(&error.to_string());
        }
        let ready = std::mem::take(&mut self.ready);
        for &(token, is) in &ready {
            match token {
                WAKER => self.waker.clear(),
                _ if is.read => self.receive(),
                _ => {}
            }
        }
        self.ready = ready;
    }

    /// When [`Client::step`] wants to be called even if nothing comes.
    pub fn deadline_ns(&self) -> u64 {
        let open_ns = self.down_since_ns.map(|since_ns| since_ns + OPEN_AFTER_NS);
        let link_ns = match &self.link {
            Link::Down => None,
            Link::Greeting { since_ns, .. } => Some(since_ns + HANDSHAKE_NS),
            Link::Up { .. } => {
                let report_ns = self.phase.filter(|phase| phase.told != phase.progress);
                let report_ns = report_ns.map(|phase| phase.told_ns + self.report_ns);
                let beat_ns =
                    (self.beat_sent_ns + self.beat_ns).min(self.heard_ns + BEATS_MISSED * self.beat_ns);
                Some(report_ns.map_or(beat_ns, |report_ns| report_ns.min(beat_ns)))
            }
        };
        open_ns.into_iter().chain(link_ns).min().unwrap_or(u64::MAX)
    }

    fn channel(&mut self) -> Option<&mut Channel> {
        match &mut self.link {
            Link::Down => None,
            Link::Greeting { channel, .. } | Link::Up { channel } => Some(channel),
        }
    }

    /// With the next step, together with what else there is to say.
    fn send(&mut self, message: &Message) {
        if let Some(channel) = self.channel() {
            channel.queue(message);
        }
    }

    pub(crate) fn flush(&mut self) {
        let Some(channel) = self.channel() else { return };
        match channel.flush() {
            Err(error) => self.lose(&error.to_string()),
            // A coordinator that reads nothing is as good as none.
            Ok(()) if channel.unsent_bytes() > MAX_UNSENT_BYTES => self.lose("it reads nothing"),
            Ok(()) => {}
        }
    }

    fn receive(&mut self) {
        let mut scratch = [0; 4096];
        loop {
            let Some(channel) = self.channel() else { return };
            let input = channel.receive(&mut scratch);
            if let Input::Closed = input {
                return self.lose("it closed the connection");
            }
            self.heard_ns = now_ns();
            loop {
                let Some(channel) = self.channel() else { return };
                match channel.take() {
                    Ok(Some(message)) => self.hear(message),
                    Ok(None) => break,
                    Err(error) => return self.refuse(error.to_string()),
                }
            }
            if let Input::Empty = input {
                return;
            }
        }
    }

    fn hear(&mut self, message: Message) {
        self.unproven_since_ns = None;
        match message {
            // Over TCP anybody may have answered: until it is known who, nothing is obeyed.
            other if !self.is_joined() && !is_greeting(&other) => {}
            Message::Challenge { nonce } => self.prove(nonce),
            Message::Proven { mac } => self.check(&mac),
            Message::Welcome { beat_ms, report_ms, policy, orders, .. } => {
                self.beat_ns = u64::from(beat_ms.max(1)) * 1_000_000;
                self.report_ns = u64::from(report_ms) * 1_000_000;
                self.joined(printable(&policy), orders);
            }
            Message::Grant { phase, share, credit_bytes, expected_ns } => {
                if let Some(own) = self.phase.as_mut().filter(|own| own.number == phase) {
                    own.granted = true;
                    let expected_ns = expected_ns.min(MOST_EXPECTED_NS);
                    self.words.push(Word::Granted { phase, share, credit_bytes, expected_ns });
                }
            }
            Message::Credit { phase, credit_bytes, expected_ns } if self.is_current(phase) => {
                let expected_ns = expected_ns.min(MOST_EXPECTED_NS);
                self.words.push(Word::Credit { phase, credit_bytes, expected_ns });
            }
            Message::Hold { phase, expected_ns } => {
                if let Some(own) = self.phase.as_mut().filter(|own| own.number == phase) {
                    own.granted = false;
                    let expected_ns = expected_ns.min(MOST_EXPECTED_NS);
                    self.words.push(Word::Held { phase, expected_ns });
                }
            }
            Message::Ahead { granted } => {
                self.is_ahead = granted;
                self.words.push(Word::Ahead { granted });
            }
            Message::Allocated { request, aggregators, stripes, targets }
                if self.errands.allocated(request, &targets) =>
            {
                self.words.push(Word::Allocated { request, aggregators, stripes, targets });
            }
            Message::Turn { number, call } if self.errands.turn(number, call) => {
                self.words.push(Word::Turn { number, call });
            }
            Message::Refuse { reason } => self.refuse(printable(&reason)),
            // Beats are heard by being received; answers to an earlier phase and what is not ours to
            // hear change nothing.
            _ => {}
        }
    }

    fn is_current(&self, phase: u64) -> bool {
        self.phase.is_some_and(|own| own.number == phase)
    }

    /// Sends the progress if there is any and it is time.
    fn report(&mut self, now: u64) {
        let report_ns = self.report_ns;
        let joined = self.is_joined();
        let Some(phase) = &mut self.phase else { return };
        let news = phase.told != phase.progress;
        // Who begins to wait is heard at once: others may have what it needs.
        let urgent = phase.progress.is_waiting() && !phase.told.is_waiting();
        if joined && news && (urgent || now >= phase.told_ns + report_ns) {
            phase.told = phase.progress;
            phase.told_ns = now;
            let (phase, progress) = (phase.number, phase.progress);
            self.send(&Message::Moved { phase, progress });
        }
    }

    fn keep_time(&mut self, now: u64) {
        match &self.link {
            Link::Greeting { since_ns, .. } if now >= since_ns + HANDSHAKE_NS => {
                self.lose("it does not answer")
            }
            Link::Up { .. } if now >= self.heard_ns + BEATS_MISSED * self.beat_ns => {
                let unproven_since_ns = self.unproven_since_ns;
                self.lose("it has fallen silent");
                self.down_since_ns = unproven_since_ns.or(self.down_since_ns);
            }
            Link::Up { .. } => {
                self.report(now);
                if now >= self.beat_sent_ns + self.beat_ns {
                    self.beat_sent_ns = now;
                    self.send(&Message::Beat {});
                }
            }
            _ => {}
        }
        if self.down_since_ns.is_some_and(|since_ns| now >= since_ns + OPEN_AFTER_NS) {
            self.down_since_ns = None;
            self.words.push(Word::Open { reason: self.failure.clone() });
        }
    }

    fn lose(&mut self, reason: &str) {
        self.failure = format!("the coordinator is lost: {reason}");
        if self.hang_up() {
            self.down_since_ns = Some(now_ns());
            self.words.push(Word::Lost { reason: reason.into() });
        }
    }

    fn refuse(&mut self, reason: String) {
        let reason = format!("{}{reason}", self.peer);
        self.hang_up();
        self.down_since_ns = None;
        self.words.push(Word::Refused { reason: reason.clone() });
        self.words.push(Word::Open { reason });
    }
}

impl AsRawFd for Client {
    /// Ready to be read when [`Client::step`] has something to do.
    fn as_raw_fd(&self) -> RawFd {
        self.poller.as_raw_fd()
    }
}
