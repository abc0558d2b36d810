//! What travels between a job and its coordinator: bounded, versioned, little-endian frames.
//!
//! ```text
//! u32 length of the rest, at most 64 KiB | u8 version | u8 kind | u8 seal | the fields, in order
//! ```
//!
//! Integers and floats have their own width, an optional field has a byte of presence before it, text has
//! a `u16` of length and a list one of its number of items. A frame that is longer or shorter than its fields is
//! refused, and so is everything behind it: the next frame cannot be found after a wrong one. The decoder never
//! panics and never allocates more than the frame is long.
//!
//! The seal names how the frame is authenticated. The only one so far is [`UNSEALED`]: the fields end the frame. Any
//! other value is refused; a sealed frame will have its MAC behind the fields.
//!
//! Every message is one row of the table below; the encoder and the decoder are made from it.

use std::fmt;
use weir_engine::engine::{Past, SeenAlone};

/// The one version that is spoken. A peer of another one is told so and left alone.
pub const VERSION: u8 = 6;

/// The seal of a frame without a MAC.
pub const UNSEALED: u8 = 0;

/// No frame is longer, its four bytes of length not counted.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

/// No text in a frame is longer: what a `u16` can tell, less the rest of the largest frame.
pub const MAX_TEXT_BYTES: usize = 60 * 1024;

/// No list in a frame is longer: more than a storage has targets.
pub const MAX_LIST: usize = 1024;

const LENGTH_BYTES: usize = 4;
/// Version, kind and seal.
const HEAD_BYTES: u32 = 3;

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    TooLong {
        length_bytes: u32,
    },
    Version {
        theirs: u8,
    },
    Kind(u8),
    Seal(u8),
    /// The frame ends within a field, or goes on behind the last.
    Length {
        kind: u8,
    },
    /// A field has a value that it cannot have.
    Value {
        kind: u8,
        what: &'static str,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            WireError::TooLong { length_bytes } => {
                write!(f, "a frame of {length_bytes} bytes, where {MAX_FRAME_BYTES} are the most")
            }
            WireError::Version { theirs } => {
                write!(f, "a frame of version {theirs}; version {VERSION} is spoken here")
            }
            WireError::Kind(kind) => write!(f, "a frame of unknown kind {kind}"),
            WireError::Seal(seal) => write!(f, "a frame with seal {seal}, where none is expected"),
            WireError::Length { kind } => write!(f, "a frame of kind {kind} of a wrong length"),
            WireError::Value { kind, what } => write!(f, "a frame of kind {kind} with {what}"),
        }
    }
}

impl std::error::Error for WireError {}

/// One row per message: its kind on the wire, its name, its fields in order.
macro_rules! messages {
    ($( $(#[$about:meta])* $kind:literal $name:ident { $( $(#[$of:meta])* $field:ident: $type:ty, )* } )*) => {
        #[derive(Clone, Debug, PartialEq)]
        pub enum Message {
            $( $(#[$about])* $name { $( $(#[$of])* $field: $type, )* }, )*
        }

        impl Message {
            fn kind(&self) -> u8 {
                match self { $( Message::$name { .. } => $kind, )* }
            }

            fn put(&self, out: &mut Vec<u8>) {
                match self { $( Message::$name { $( $field, )* } => { $( $field.put(out); )* } )* }
            }

            fn take(kind: u8, fields: &mut Fields) -> Result<Message, Fault> {
                Ok(match kind {
                    $( $kind => Message::$name { $( $field: Field::take(fields)?, )* }, )*
                    _ => return Err(Fault::Kind),
                })
            }
        }
    };
}

messages! {
    /// Job → coordinator: who speaks. One connection per node of the job.
    1 Hello {
        identity: Box<Identity>,
        /// Whether the job has had a coordinator before: a new one gathers what it can from all before it decides.
        rejoins: bool,
        /// The highest epoch of a coordinator that the job has obeyed; 0 before the first.
        epoch: u64,
    }
    /// Job → coordinator, over TCP: the answer to `Challenge`, and a challenge in return.
    2 Proof { nonce: [u8; 32], mac: [u8; 32], }
    /// Job → coordinator: a phase begins; may it do I/O?
    3 Begin {
        /// The node's own count of phases. Answers carry it, so that late ones are told from new ones.
        phase: u64,
        /// What it will move, if it knows.
        bytes: Option<u64>,
    }
    /// Job → coordinator: how far the phase is. At most every few milliseconds.
    4 Moved {
        phase: u64,
        progress: Progress,
        /// Requests under way; a sync has no bytes.
        in_flight: u32,
        /// Time that requests of the phase have taken, all together; those under way not yet.
        busy_ns: u64,
        /// Nothing is under way and nothing more is expected: others need not wait for the phase to end.
        is_resting: bool,
    }
    /// Job → coordinator.
    5 End {
        phase: u64,
        bytes: u64,
        /// Time within I/O calls, waiting taken out.
        io_ns: u64,
        waited_ns: u64,
    }
    /// Both ways: I live. The coordinator answers each one.
    6 Beat {}
    /// Job → coordinator: no more will come.
    7 Bye {}
    /// Anybody who may connect → coordinator.
    8 StatusQuery {}
    /// Job → coordinator: a phase that began before this connection goes on.
    9 Resume {
        phase: u64,
        bytes: Option<u64>,
        /// Began this long ago.
        age_ns: u64,
        /// Whether it may do I/O, by the word of the coordinator before.
        granted: bool,
        progress: Progress,
    }
    /// Job → coordinator: a file is about to be created; how wide, and where? One node asks for the whole job.
    10 Ask {
        /// The node's own number of the file, as in `Allocated` and `Release`.
        request: u64,
        file: FileInfo,
    }
    /// Job → coordinator: the file is closed.
    11 Release { request: u64, }
    /// Job → coordinator: a file that another coordinator placed there is still open.
    12 Claim { request: u64, file: FileInfo, targets: Vec<u32>, }
    /// Job → coordinator: an aggregator is about to read in a collective call; when may it? It has one such
    /// question at a time. `pieces` says which bytes lie on which targets; if empty, the reader's target has all.
    13 Read { reader: Reader, pieces: Vec<Piece>, }
    /// Job → coordinator: it has read, with or without its turn.
    14 Served { number: u32, call: u64, }
    /// Job → coordinator: what the phase will move on this node, as is known by now. Replaces what was said before.
    15 Announce {
        phase: u64,
        /// As in `Begin`: what the program says.
        bytes: Option<u64>,
        /// What collective calls were asked to write in this phase so far: at least this much, if nothing is said.
        known_bytes: u64,
    }
    /// Job → coordinator: the program says from now on how long it is from the beginning of a phase to the next.
    16 Expect { period_ns: Option<u64>, }

    /// Coordinator → TCP peer, before anything else: prove that you have the key.
    64 Challenge { nonce: [u8; 32], }
    /// Coordinator → TCP peer: it has the key as well.
    65 Proven { mac: [u8; 32], }
    /// Coordinator → job: the answer to `Hello`; said again when the policy or the order changes.
    66 Welcome {
        /// A job that is silent for this long is taken for dead.
        lease_ms: u32,
        /// So it says something this often.
        beat_ms: u32,
        /// `Moved` no more often than this.
        report_ms: u32,
        policy: String,
        /// Whether readers take turns; else they need not ask.
        orders: bool,
        /// Grows with each coordinator of a service; a job obeys none that is older than one it has obeyed. 0: no epochs.
        epoch: u64,
    }
    /// Coordinator → job: go on. `credit_bytes` and `expected_ns` as in `Credit`. With a share of zero the phase is
    /// backfilled: it may use the storage while those whose turn it is do not.
    67 Grant { phase: u64, share: f64, credit_bytes: u64, expected_ns: u64, }
    /// Coordinator → job: start no more I/O until granted (again), which should be within this time.
    68 Hold { phase: u64, expected_ns: u64, }
    /// Coordinator → job: a request may start while the node has spent fewer bytes than this in this phase.
    /// Replaces what was said before, up or down; `u64::MAX` is no limit. Who has spent it all may go on within this time.
    /// The share may have changed since the grant.
    69 Credit { phase: u64, share: f64, credit_bytes: u64, expected_ns: u64, }
    /// Coordinator → anybody: a piece of JSON; the pieces up to the last make the answer.
    70 Status { last: bool, text: String, }
    /// Coordinator → anybody: no, and why. The connection is closed.
    71 Refuse { reason: String, }
    /// Coordinator → job: the answer to `Ask`. Zero aggregators or stripes, no targets: no opinion on that.
    72 Allocated { request: u64, aggregators: u32, stripes: u32, targets: Vec<u32>, }
    /// Coordinator → job: the answer to `Read`: now.
    73 Turn { number: u32, call: u64, }
    /// Coordinator → job: nobody else is in a phase, so the next one of the job is granted before it begins; or that
    /// holds no longer. Until the first word, and after `Welcome`, it does not.
    74 Ahead { granted: bool, }
    /// Coordinator → job: what it has seen of the job, which the job says to the next coordinator in `Hello`.
    75 Seen { alone: SeenAlone, }
}

/// Who a job is. The same for all its nodes but for `host`, `pid` and `ranks`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Common to all nodes of the job, and to no other job.
    pub job: String,
    pub application: String,
    pub host: String,
    /// Process number of the leader of this node.
    pub pid: u32,
    /// Number of ranks on this node.
    pub ranks: u32,
    /// Number of nodes of the whole job.
    pub nodes: u32,
    /// Characteristic time and mean phase of earlier runs of the application.
    pub w_iter_ns: Option<u64>,
    pub mean_phase_bytes: Option<u64>,
    /// What the program or its user says of the time from the beginning of a phase to the next.
    pub period_ns: Option<u64>,
    /// The job's part next to that of others; 0 counts as 1.
    pub weight: u32,
    /// For whom the job runs, as the job says: user number, and the account of the batch system if there is one.
    pub user: u32,
    pub account: String,
    /// The storage that this connection is about: only jobs that name the same one take turns. Empty: not known.
    pub storage: String,
    /// Where the storage is mounted: a site may have said more about it.
    pub mount: String,
    /// What earlier coordinators have made the job wait and seen of it, in this run.
    pub past: Past,
}

/// A file as far as its placement goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileInfo {
    /// Absolute, of the file or of its directory: which storage it is on.
    pub path: String,
    /// Of those who open it.
    pub ranks: u32,
    pub nodes: u32,
    /// What a phase will move to it; 0 if unknown.
    pub bytes: u64,
    /// What the program itself has said; 0 where it said nothing. `u32::MAX` stripes are all there are.
    pub fixed_aggregators: u32,
    pub fixed_stripes: u32,
}

/// An aggregator that is about to read in a collective call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// The node's own number of it, of those who read: the same in one call after the other, as far as may be.
    pub number: u32,
    /// The file and the number of the call on it: what all aggregators of the call have in common.
    pub file: u64,
    pub call: u64,
    /// Where the bytes come from; who shares it says the same.
    pub target: u64,
    /// How long reading should take, and then handing the data on to the ranks.
    pub service_ns: u64,
    pub shuffle_ns: u64,
}

/// Bytes of a request that lie on one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    pub target: u64,
    /// Where they begin in the target's own object.
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// How far a phase is: bytes since its beginning, on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Of requests that have completed.
    pub done_bytes: u64,
    /// Of requests that have started: those that were charged.
    pub spent_bytes: u64,
    /// Of requests that have started or wait at the gate.
    pub wanted_bytes: u64,
}

impl Progress {
    /// Nothing is inside or waits.
    pub fn all_done(bytes: u64) -> Progress {
        Progress { done_bytes: bytes, spent_bytes: bytes, wanted_bytes: bytes }
    }

    /// This report of a phase, after an earlier one: what is done stays so, and only what the report says is inside or waits. A
    /// rank that dies takes its counts with it, and its requests are not waited for.
    pub fn after(self, before: Progress) -> Progress {
        let done_bytes = self.done_bytes.max(before.done_bytes);
        let spent_bytes = done_bytes.saturating_add(self.spent_bytes.saturating_sub(self.done_bytes));
        let wanted_bytes = spent_bytes.saturating_add(self.wanted_bytes.saturating_sub(self.spent_bytes));
        Progress { done_bytes, spent_bytes, wanted_bytes }
    }

    /// Some request is inside or waits to be let in.
    pub fn is_busy(&self) -> bool {
        self.wanted_bytes > self.done_bytes
    }

    /// Some request is inside.
    pub fn is_inside(&self) -> bool {
        self.spent_bytes > self.done_bytes
    }

    /// Some request waits to be let in.
    pub fn is_waiting(&self) -> bool {
        self.wanted_bytes > self.spent_bytes
    }
}

impl Message {
    /// Appends the frame. Text beyond [`MAX_TEXT_BYTES`] is cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        out.extend_from_slice(&[VERSION, self.kind(), UNSEALED]);
        self.put(out);
        let length_bytes = (out.len() - start - LENGTH_BYTES) as u32;
        out[start..start + LENGTH_BYTES].copy_from_slice(&length_bytes.to_le_bytes());
    }

    /// The message that `bytes` begin with and how long its frame is; `None` while it is not all there.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Message, usize)>, WireError> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length_bytes = u32::from_le_bytes(*length);
        if length_bytes as usize > MAX_FRAME_BYTES {
            return Err(WireError::TooLong { length_bytes });
        }
        if length_bytes == 0 {
            return Err(WireError::Length { kind: 0 });
        }
        // The version is judged first, and as soon as it is there: the length of another one may mean something else.
        let Some(&theirs) = rest.first() else { return Ok(None) };
        if theirs != VERSION {
            return Err(WireError::Version { theirs });
        }
        if length_bytes < HEAD_BYTES {
            return Err(WireError::Length { kind: 0 });
        }
        let Some(frame) = rest.get(..length_bytes as usize) else { return Ok(None) };
        let [_, kind, seal, fields @ ..] = frame else { return Err(WireError::Length { kind: 0 }) };
        let kind = *kind;
        if *seal != UNSEALED {
            return Err(WireError::Seal(*seal));
        }
        let mut fields = Fields { bytes: fields };
        let message = Message::take(kind, &mut fields).map_err(|fault| match fault {
            Fault::Kind => WireError::Kind(kind),
            Fault::Short => WireError::Length { kind },
            Fault::Value(what) => WireError::Value { kind, what },
        })?;
        if !fields.bytes.is_empty() {
            return Err(WireError::Length { kind });
        }
        Ok(Some((message, LENGTH_BYTES + frame.len())))
    }
}

enum Fault {
    Kind,
    Short,
    Value(&'static str),
}

/// What is left of a frame.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (array, rest) = self.bytes.split_first_chunk::<N>().ok_or(Fault::Short)?;
        self.bytes = rest;
        Ok(*array)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (slice, rest) = self.bytes.split_at_checked(length).ok_or(Fault::Short)?;
        self.bytes = rest;
        Ok(slice)
    }
}

/// How a field looks on the wire.
trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(fields: &mut Fields) -> Result<Self, Fault>;
}

macro_rules! integers {
    ($($type:ty)*) => { $(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(fields: &mut Fields) -> Result<Self, Fault> {
                Ok(<$type>::from_le_bytes(fields.array()?))
            }
        }
    )* };
}

integers! { u16 u32 u64 }

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(fields: &mut Fields) -> Result<Self, Fault> {
        match fields.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Fault::Value("an invalid boolean")),
        }
    }
}

/// All floats on the wire are shares.
impl Field for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
    fn take(fields: &mut Fields) -> Result<Self, Fault> {
        let share = f64::from_le_bytes(fields.array()?);
        if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(Fault::Value("a share beyond 0 to 1")) }
    }
}

impl Field for [u8; 32] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn take(fields: &mut Fields) -> Result<Self, Fault> {
        fields.array()
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(fields: &mut Fields) -> Result<Self, Fault> {
        Ok(if bool::take(fields)? { Some(T::take(fields)?) } else { None })
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(fields: &mut Fields) -> Result<Self, Fault> {
        T::take(fields).map(Box::new)
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        let mut end = self.len().min(MAX_TEXT_BYTES);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        (end as u16).put(out);
        out.extend_from_slice(&self.as_bytes()[..end]);
    }
    fn take(fields: &mut Fields) -> Result<Self, Fault> {
        let length = usize::from(u16::take(fields)?);
        let text =
            str::from_utf8(fields.slice(length)?).map_err(|_| Fault::Value("text that is no UTF-8"))?;
        Ok(text.to_owned())
    }
}

impl Field for Progress {
    fn put(&self, out: &mut Vec<u8>) {
        for bytes in [self.done_bytes, self.spent_bytes, self.wanted_bytes] {
            bytes.put(out);
        }
    }
    fn take(fields: &mut Fields) -> Result<Self, Fault> {
        let [done_bytes, spent_bytes, wanted_bytes] =
            [u64::take(fields)?, u64::take(fields)?, u64::take(fields)?];
        if done_bytes > spent_bytes || spent_bytes > wanted_bytes {
            return Err(Fault::Value("more bytes done than spent, or spent than wanted"));
        }
        Ok(Progress { done_bytes, spent_bytes, wanted_bytes })
    }
}

/// Types whose fields follow each other.
macro_rules! structures {
    ($($type:ident { $($field:ident,)* })*) => { $(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $( self.$field.put(out); )*
            }
            fn take(fields: &mut Fields) -> Result<Self, Fault> {
                Ok($type { $( $field: Field::take(fields)?, )* })
            }
        }
    )* };
}

structures! {
    Identity {
        job, application, host, pid, ranks, nodes, w_iter_ns, mean_phase_bytes, period_ns, weight, user, account,
        storage, mount, past,
    }
    Past { life_ns, stalled_ns, alone, }
    SeenAlone { ns, bytes, }
    FileInfo { path, ranks, nodes, bytes, fixed_aggregators, fixed_stripes, }
    Reader { number, file, call, target, service_ns, shuffle_ns, }
    Piece { target, offset_bytes, length_bytes, }
}

/// A longer list is cut, as text is: its end has no answer then.
impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        let count = self.len().min(MAX_LIST);
        (count as u16).put(out);
        self[..count].iter().for_each(|item| item.put(out));
    }
    fn take(fields: &mut Fields) -> Result<Self, Fault> {
        let count = usize::from(u16::take(fields)?);
        if count > MAX_LIST {
            return Err(Fault::Value("a list that is too long"));
        }
        (0..count).map(|_| T::take(fields)).collect()
    }
}

/// Room that an empty inbox keeps: a few small messages, so that one is received without allocating.
const KEPT_BYTES: usize = 256;

/// Bytes that came in and are no whole frame yet.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Inbox {
    /// At most one frame and one `bytes` are kept, if [`Inbox::take`] is asked until it has no more.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn take(&mut self) -> Result<Option<Message>, WireError> {
        match Message::decode(&self.bytes[self.taken..])? {
            Some((message, length)) => {
                self.taken += length;
                Ok(Some(message))
            }
            None => {
                if self.taken == self.bytes.len() {
                    self.bytes.clear();
                    self.bytes.shrink_to(KEPT_BYTES);
                    self.taken = 0;
                }
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
