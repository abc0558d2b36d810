//! The order of single requests at one device: the five scheduling algorithms of AGIOS (section 2), and
//! `auto`, which picks the one that fits the access pattern and the device (section 4).
//!
//! ```
//! use weir_engine::requests::{Algorithm, Next, Operation, Request, Scheduler, Settings};
//!
//! let mut scheduler = Scheduler::new(Algorithm::Sjf, Settings::default());
//! let write = |offset| Request { file: 7, operation: Operation::Write, offset, bytes: 8192 };
//! let late = scheduler.add(0, write(8192));
//! let early = scheduler.add(0, write(0));
//! let Next::Dispatch(both) = scheduler.next(0) else { panic!("two requests are pending") };
//! assert_eq!((both.offset, both.bytes), (0, 16384));
//! assert_eq!(both.ids().collect::<Vec<_>>(), [early, late]);
//! scheduler.complete();
//! ```
//!
//! Requests pending at the same time may be served in any order, so overlapping ones must not depend on
//! each other: a client that needs an order waits for one request before it issues the next.

mod clients;
mod device;
mod feedback;
mod measured;
mod queues;
mod scheduler;
pub mod select;
mod simulate;
mod sjf;
pub mod table3;
mod time_order;
pub mod tree;
mod validate;
mod window;

pub use clients::Clients;
pub use device::Device;
pub use measured::measurements_from_csv;
pub use queues::{Part, VirtualRequest};
pub use scheduler::{Next, Scheduler};
pub use simulate::{Outlook, Run, Service, Workload, simulate};
pub use validate::cross_validation_errors;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Read,
    Write,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
        }
    }
}

/// A contiguous piece of one file to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub file: u64,
    pub operation: Operation,
    pub offset: u64,
    pub bytes: u64,
}

/// Names a request; later requests have higher numbers.
pub type RequestId = u64;

/// The scheduling algorithms of section 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    To,
    ToAgg,
    Sjf,
    Mlf,
    Aioli,
}

impl Algorithm {
    pub const ALL: [Algorithm; 5] =
        [Algorithm::To, Algorithm::ToAgg, Algorithm::Sjf, Algorithm::Mlf, Algorithm::Aioli];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::To => "to",
            Algorithm::ToAgg => "to-agg",
            Algorithm::Sjf => "sjf",
            Algorithm::Mlf => "mlf",
            Algorithm::Aioli => "aioli",
        }
    }

    pub fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What a step of aIOLi or MLF adds to a request's quantum at least. A request as large as the
    /// transfer size (8 KB in the paper) is then served at its first step.
    pub quantum_bytes: u64,
    /// How long aIOLi and MLF wait for a better aggregation. The paper gives no figure; this is the
    /// default of the tool it describes.
    pub waiting_ns: u64,
    /// How many dispatches of later requests the oldest one lets pass. The paper has no such bound:
    /// SJF starves a long queue while short ones keep coming, and offset order starves a high offset.
    pub patience_dispatches: u64,
    /// `auto` chooses anew after this many requests, looking at as many.
    pub selection_requests: usize,
    /// An application's request is large if it is longer than this.
    pub stripe_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            quantum_bytes: 8192,
            waiting_ns: 900_000,
            patience_dispatches: 64,
            selection_requests: 1024,
            stripe_bytes: 32 * 1024,
        }
    }
}
