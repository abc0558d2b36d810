//! Looking for a coordinator: by election among the jobs of a directory, or at the address of a service.

use super::link::Link;
use super::{Output, Session};

/// How the job is to find its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Service,
    /// The jobs that meet in a directory elect one among them; `network` if also over TCP.
    Election {
        network: bool,
    },
}

/// A way to a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The address of the service.
    Service,
    /// This node coordinates itself.
    Own,
    /// The socket in the directory of the election.
    Socket,
    /// The address that the coordinator has published there for other nodes.
    Published,
}

const FIRST_BACKOFF_NS: u64 = 1_000_000;
/// A takeover waits for this at most.
const ELECTION_BACKOFF_NS: u64 = 50_000_000;
const SERVICE_BACKOFF_NS: u64 = 1_000_000_000;
/// How often a coordinator looks whether lock and socket are still where everybody looks for them.
const CHECK_NS: u64 = 250_000_000;

#[derive(Debug)]
pub(super) struct Seeker {
    wanted: Wanted,
    retry_ns: u64,
    backoff_ns: u64,
    /// When this node last looked whether it is found, if it coordinates.
    office_checked_ns: Option<u64>,
    /// The route that is being tried.
    trying: Option<Route>,
}

impl Seeker {
    pub(super) fn new(wanted: Wanted) -> Seeker {
        Seeker { wanted, retry_ns: 0, backoff_ns: FIRST_BACKOFF_NS, office_checked_ns: None, trying: None }
    }

    pub(super) fn is_for_service(&self) -> bool {
        self.wanted == Wanted::Service
    }

    pub(super) fn is_in_office(&self) -> bool {
        self.office_checked_ns.is_some()
    }

    pub(super) fn leave_office(&mut self) {
        branch!("the office is lost");
        self.office_checked_ns = None;
    }

    /// A coordinator has welcomed the job, and more.
    pub(super) fn found(&mut self) {
        self.backoff_ns = FIRST_BACKOFF_NS;
    }

    /// A coordinator has refused the job: to ask again at once would only be refused again.
    pub(super) fn refused(&mut self, now_ns: u64) {
        self.retry_ns = now_ns.saturating_add(SERVICE_BACKOFF_NS);
    }

    /// The connection is to the coordinator in this very thread.
    pub(super) fn is_trying_itself(&self) -> bool {
        self.trying == Some(Route::Own)
    }

    fn try_route(&mut self, route: Route) -> Output {
        self.trying = Some(route);
        Output::Connect(route)
    }
}

impl Session {
    /// When looking for a coordinator, or being one, wants [`super::Input::Tick`].
    pub(super) fn seek_deadline_ns(&self) -> u64 {
        let is_down = matches!(self.link, Link::Down);
        let seek_ns = if is_down { self.seeker.retry_ns } else { u64::MAX };
        seek_ns.min(self.seeker.office_checked_ns.map_or(u64::MAX, |checked_ns| checked_ns + CHECK_NS))
    }

    /// Looks for a coordinator if there is none, and whether it is still found if it is one itself.
    pub(super) fn seek(&mut self, now_ns: u64, out: &mut Vec<Output>) {
        let seeker = &mut self.seeker;
        if let Some(checked_ns) = &mut seeker.office_checked_ns
            && now_ns >= *checked_ns + CHECK_NS
        {
            *checked_ns = now_ns;
            out.push(Output::CheckOffice);
        }
        if !matches!(self.link, Link::Down) || now_ns < seeker.retry_ns {
            return;
        }
        let (attempt, max_backoff_ns) = match seeker.wanted {
            Wanted::Service => (seeker.try_route(Route::Service), SERVICE_BACKOFF_NS),
            Wanted::Election { .. } if seeker.is_in_office() => {
                branch!("a coordinator greets itself again");
                (seeker.try_route(Route::Own), ELECTION_BACKOFF_NS)
            }
            Wanted::Election { .. } => (Output::TakeOffice, ELECTION_BACKOFF_NS),
        };
        seeker.retry_ns = now_ns + seeker.backoff_ns;
        seeker.backoff_ns = (2 * seeker.backoff_ns).min(max_backoff_ns);
        out.push(attempt);
    }

    /// Whether this node coordinates now.
    pub(super) fn office_answered(
        &mut self,
        now_ns: u64,
        answer: Result<bool, String>,
        out: &mut Vec<Output>,
    ) {
        match answer {
            Ok(true) => {
                branch!("elected");
                self.seeker.office_checked_ns = Some(now_ns);
                out.push(self.seeker.try_route(Route::Own));
            }
            Ok(false) => {
                branch!("another is elected");
                out.push(self.seeker.try_route(Route::Socket));
            }
            Err(reason) => {
                branch!("an election is not possible");
                self.failure = reason;
            }
        }
    }

    /// The route that was tried leads nowhere, for now.
    pub(super) fn not_connected(&mut self, reason: String, out: &mut Vec<Output>) {
        let is_published = self.seeker.wanted == Wanted::Election { network: true };
        if self.seeker.trying.take() == Some(Route::Socket) && is_published {
            branch!("the socket leads nowhere, the published address may");
            out.push(self.seeker.try_route(Route::Published));
        } else {
            branch!("nobody answers");
            self.failure = reason;
        }
    }
}
