//! The clients of the AGIOS experiments (section 3), as one server sees them: processes that issue a
//! request, which arrives in transfers of 8 KB, and wait until all of it is served before the next.

use super::select::{RequestSize, Spatiality};
use super::table3::Pattern;
use super::{Request, RequestId, Workload};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const TRANSFER_BYTES: u64 = 8192;

/// What an application's request of 16 or 256 KB is to each of four servers: it lies within one stripe,
/// or has two stripes on each.
fn local_bytes(size: RequestSize) -> u64 {
    match size {
        RequestSize::Small => 16 * 1024,
        RequestSize::Large => 64 * 1024,
    }
}

pub struct Clients {
    pattern: Pattern,
    processes: u64,
    requests_per_process: u64,
    latency_s: f64,
    random: Pcg64Mcg,
    clients: Vec<Client>,
    /// Transfers on their way: time in ns, order of sending, client, offset.
    arriving: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    sent: u64,
    /// The client of every transfer that has arrived.
    owners: Vec<usize>,
}

#[derive(Clone, Default)]
struct Client {
    requests: u64,
    outstanding: u64,
}

impl Clients {
    /// Every process moves `bytes_per_process` at this server; `latency_s` is the mean time from the end
    /// of one request to the arrival of the next.
    pub fn new(pattern: Pattern, processes: u64, bytes_per_process: u64, latency_s: f64, seed: u64) -> Self {
        let count = usize::try_from(pattern.applications * processes).unwrap_or(0);
        let mut clients = Clients {
            pattern,
            processes,
            requests_per_process: bytes_per_process / local_bytes(pattern.request_size),
            latency_s,
            random: Pcg64Mcg::seed_from_u64(seed),
            clients: vec![Client::default(); count],
            arriving: BinaryHeap::new(),
            sent: 0,
            owners: Vec::new(),
        };
        (0..count).for_each(|client| clients.issue(client, 0.0));
        clients
    }

    /// Figure 2: with a shared file, processes have a portion each, or take turns.
    fn offset(&self, process: u64, request: u64) -> u64 {
        let place = match (self.pattern.file_per_process, self.pattern.spatiality) {
            (true, _) => request,
            (false, Spatiality::Contiguous) => process * self.requests_per_process + request,
            (false, Spatiality::NonContiguous) => request * self.processes + process,
        };
        place * local_bytes(self.pattern.request_size)
    }

    /// The client's next request, between half and one and a half times the latency from now.
    fn issue(&mut self, client: usize, now: f64) {
        let request = self.clients[client].requests;
        if request == self.requests_per_process {
            return;
        }
        let transfers = local_bytes(self.pattern.request_size) / TRANSFER_BYTES;
        self.clients[client] = Client { requests: request + 1, outstanding: transfers };
        let arrival = now + self.latency_s * (0.5 + self.random.random::<f64>());
        let offset = self.offset(client as u64 % self.processes, request);
        for transfer in 0..transfers {
            let place = (client, offset + transfer * TRANSFER_BYTES);
            self.arriving.push(Reverse(((arrival * 1e9) as u64, self.sent, place.0, place.1)));
            self.sent += 1;
        }
    }
}

impl Workload for Clients {
    fn next_arrival(&self) -> Option<f64> {
        self.arriving.peek().map(|Reverse((time_ns, ..))| *time_ns as f64 / 1e9)
    }

    fn take(&mut self) -> Option<Request> {
        let Reverse((_, _, client, offset)) = self.arriving.pop()?;
        self.owners.push(client);
        let application = client as u64 / self.processes;
        let file = if self.pattern.file_per_process { client as u64 } else { application };
        Some(Request { file, operation: self.pattern.operation, offset, bytes: TRANSFER_BYTES })
    }

    fn completed(&mut self, now: f64, id: RequestId) {
        let client = self.owners[id as usize];
        self.clients[client].outstanding -= 1;
        if self.clients[client].outstanding == 0 {
            self.issue(client, now);
        }
    }
}
