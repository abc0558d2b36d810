//! Who exchanged how much with whom in the listed collective calls, put together from what each rank noted
//! by itself: a rank's bytes belong to the aggregator that moved the place of the file they lie in.
//!
//! What lies where is exact for views of equal blocks at equal distances; other data counts as spread evenly
//! over what it covers. A rank's own transfers serve it before others' do, and bytes that several others
//! moved (reading, aggregators may read more than they need) are shared out among them.

use crate::extents::{Access, Blocks};
use crate::fnv1a;
use crate::network::{self, Fitted, Point};
use crate::profile::{self, AggregatorShare, CallExchange, FileExchange};
use crate::record;
use crate::totals::seconds;
use std::collections::BTreeMap;
use weir_engine::aggregators::cost::{acceptable_delays_ns, relative_acceptable_delays, shuffle_cost_ns};

/// Parts of calls, one per rank and call, that are kept while ranks are merged.
const KEPT_PARTS: u64 = 1 << 16;
/// Pairs of a rank and a row of an aggregator's blocks that are laid over each other.
const COMPARED_PAIRS: u64 = 1 << 22;
const LISTED_FILES: usize = 16;
const LISTED_AGGREGATORS: usize = 64;
const LISTED_SLOWEST: usize = 8;

/// A call on a file as one rank saw it.
struct Part {
    rank: u64,
    node: u64,
    start_ns: u64,
    end_ns: u64,
    file_ns: u64,
    gate_ns: u64,
    bytes: u64,
    nranks: u64,
    access: Option<Access>,
    transfers: Vec<Blocks>,
    /// It moved bytes, but it is not known which.
    blind: bool,
}

#[derive(Default)]
struct Call {
    op: String,
    parts: Vec<Part>,
}

/// Whose call it is: the rank, its node, which of its records, which lane of that.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) rank: u64,
    pub(crate) node: u64,
    pub(crate) generation: u64,
    pub(crate) lane: usize,
}

/// Which record of a process, which lane, and which call on the file.
type Number = (u64, usize, u64);

/// Calls of a job of which everybody's part is wanted. When there are too many, some of them go: the same
/// ones for every rank, whatever the order in which they come.
pub(crate) struct Exchanges {
    calls: BTreeMap<(String, Number), Call>,
    hosts: Vec<String>,
    parts: u64,
    /// Of so many calls one is kept; a power of two.
    thinned: u64,
    gone: u64,
}

impl Default for Exchanges {
    fn default() -> Self {
        Exchanges { calls: BTreeMap::new(), hosts: Vec::new(), parts: 0, thinned: 1, gone: 0 }
    }
}

/// By a hash of the name and the number: the choice does not follow the program's own rhythm.
fn is_kept(file: &str, (generation, lane, sequence): Number, thinned: u64) -> bool {
    let numbers = [generation, lane as u64, sequence];
    let bytes = file.bytes().chain(numbers.into_iter().flat_map(u64::to_le_bytes));
    (fnv1a(bytes) >> 32) & (thinned - 1) == 0
}

impl Exchanges {
    /// A rank's part of a call. A file that one process has open by itself is no matter of exchange.
    pub(crate) fn add(&mut self, source: Source, file: &str, call: &record::Collective) {
        let number = (source.generation, source.lane, call.sequence);
        if call.nranks == 1 || !is_kept(file, number, self.thinned) {
            return;
        }
        let seen = self.calls.entry((file.to_string(), number)).or_default();
        seen.op.clone_from(&call.op);
        seen.parts.push(Part {
            rank: source.rank,
            node: source.node,
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            file_ns: call.file_ns,
            gate_ns: call.gate_ns,
            bytes: call.bytes,
            nranks: call.nranks,
            access: call.access,
            transfers: call.transfers.clone(),
            blind: call.file_bytes > 0 && call.transfers.is_empty(),
        });
        self.parts += 1;
        while self.parts > KEPT_PARTS && self.calls.len() > 1 {
            self.thin();
        }
    }

    /// The number of a host.
    pub(crate) fn node(&mut self, host: &str) -> u64 {
        let known = self.hosts.iter().position(|known| known == host);
        let node = known.unwrap_or_else(|| {
            self.hosts.push(host.to_string());
            self.hosts.len() - 1
        });
        node as u64
    }

    fn thin(&mut self) {
        self.thinned *= 2;
        let before = self.calls.len();
        self.calls.retain(|(file, number), _| is_kept(file, *number, self.thinned));
        self.gone += (before - self.calls.len()) as u64;
        self.parts = self.calls.values().map(|call| call.parts.len() as u64).sum();
    }

    pub(crate) fn finish(mut self, start_ns: u64) -> profile::Exchange {
        while self.calls.values().map(Call::pairs).sum::<u64>() > COMPARED_PAIRS && self.calls.len() > 1 {
            self.thin();
        }
        let listed = self.calls.len() as u64 + self.gone;
        let mut derived: Vec<Derived> = Vec::new();
        for ((file, (_, _, sequence)), call) in std::mem::take(&mut self.calls) {
            if call.pairs() <= COMPARED_PAIRS && call.is_complete() {
                derived.push(Derived::new(file, sequence, call));
            }
        }
        let points: Vec<Point> = derived.iter().flat_map(|call| call.rows.iter().map(Row::point)).collect();
        let fitted = network::fit(&points);
        for call in &mut derived {
            call.predict(fitted.as_ref());
        }
        let sum = |bytes: fn(&Derived) -> u64| derived.iter().map(bytes).fold(0, u64::saturating_add);
        profile::Exchange {
            calls: derived.len() as u64,
            left_out: listed - derived.len() as u64,
            bytes: sum(|call| call.bytes),
            estimated_bytes: sum(|call| call.estimated_bytes),
            network: fitted.map(network_of),
            files: self.files(&derived),
            slowest: self.slowest(derived, start_ns),
        }
    }

    /// The files of which most was exchanged, with their aggregators' sums over calls.
    fn files(&self, derived: &[Derived]) -> Vec<FileExchange> {
        let mut by_file: BTreeMap<&str, (u64, u64, BTreeMap<u64, Row>)> = BTreeMap::new();
        for call in derived {
            let (calls, bytes, rows) = by_file.entry(&call.file).or_default();
            *calls += 1;
            *bytes = bytes.saturating_add(call.bytes);
            for row in &call.rows {
                rows.entry(row.rank).and_modify(|sum| sum.add(row)).or_insert_with(|| row.clone());
            }
        }
        let mut files: Vec<_> = by_file.into_iter().collect();
        files.sort_by_key(|(_, (_, bytes, _))| std::cmp::Reverse(*bytes));
        files.truncate(LISTED_FILES);
        let entry = |(file, (calls, bytes, rows)): (&str, (u64, u64, BTreeMap<u64, Row>))| {
            let rows: Vec<Row> = rows.into_values().collect();
            let naggregators = rows.len() as u64;
            FileExchange {
                file: file.into(),
                calls,
                bytes,
                naggregators,
                aggregators: self.shares(rows, false),
            }
        };
        files.into_iter().map(entry).collect()
    }

    /// The calls whose shuffle took longest, slowest first.
    fn slowest(&self, mut derived: Vec<Derived>, start_ns: u64) -> Vec<CallExchange> {
        derived.sort_by_key(|call| {
            std::cmp::Reverse(call.rows.iter().map(|row| row.shuffle_ns).max().unwrap_or(0))
        });
        derived.truncate(LISTED_SLOWEST);
        let entry = |call: Derived| CallExchange {
            file: call.file,
            op: call.op,
            sequence: call.sequence,
            start_s: seconds(call.start_ns.saturating_sub(start_ns)),
            bytes: call.bytes,
            naggregators: call.rows.len() as u64,
            aggregators: self.shares(call.rows, true),
        };
        derived.into_iter().map(entry).collect()
    }

    /// The aggregators with most bytes, in order of rank.
    fn shares(&self, mut rows: Vec<Row>, of_one_call: bool) -> Vec<AggregatorShare> {
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes()));
        rows.truncate(LISTED_AGGREGATORS);
        rows.sort_by_key(|row| row.rank);
        let share = |row: Row| AggregatorShare {
            rank: row.rank,
            host: self.hosts.get(row.node as usize).cloned().unwrap_or_default(),
            calls: row.calls,
            own_bytes: row.own_bytes,
            intra_bytes: row.intra_bytes,
            inter_bytes: row.inter_bytes,
            file_s: seconds(row.file_ns),
            gate_s: seconds(row.gate_ns),
            late_s: seconds(row.late_ns),
            shuffle_s: seconds(row.shuffle_ns),
            predicted_s: row.predicted.map(|predicted| seconds(predicted.cost_ns)),
            delay_s: row.predicted.map(|predicted| seconds(predicted.delay_ns)),
            rad: row.predicted.filter(|_| of_one_call).map(|predicted| predicted.rad),
        };
        rows.into_iter().map(share).collect()
    }
}

fn network_of(fitted: Fitted) -> profile::Network {
    let Fitted { network, .. } = fitted;
    profile::Network {
        intra_bytes_per_s: fitted.intra_known.then_some(network.intra_bytes_per_s),
        inter_bytes_per_s: fitted.inter_known.then_some(network.inter_bytes_per_s),
        latency_s: fitted.latency_known.then(|| seconds(network.latency_ns)),
        points: fitted.points,
        median_error: fitted.median_error,
    }
}

impl Call {
    fn pairs(&self) -> u64 {
        let rows: u64 = self.parts.iter().map(|part| part.transfers.len() as u64).sum();
        rows.saturating_mul(self.parts.len() as u64)
    }

    /// Whether every process that has the file open is here, once, and all is known that is needed.
    fn is_complete(&self) -> bool {
        let nranks = self.parts.len() as u64;
        let different = self.parts.windows(2).all(|pair| pair[0].rank != pair[1].rank);
        different
            && self.parts.iter().all(|part| part.nranks == nranks && !part.blind)
            && self.parts.iter().any(|part| !part.transfers.is_empty())
    }
}

/// What the formulas say of an aggregator.
#[derive(Clone, Copy)]
struct Predicted {
    cost_ns: u64,
    delay_ns: u64,
    rad: u64,
}

/// An aggregator in one call, or its sums over several.
#[derive(Clone)]
struct Row {
    rank: u64,
    node: u64,
    calls: u64,
    own_bytes: u64,
    intra_bytes: u64,
    inter_bytes: u64,
    largest_intra_bytes: u64,
    largest_inter_bytes: u64,
    file_ns: u64,
    gate_ns: u64,
    late_ns: u64,
    shuffle_ns: u64,
    predicted: Option<Predicted>,
}

impl Row {
    /// The time of the call is divided: at the gate, in the file, before the last rank had come (by the
    /// nodes' clocks), and the shuffle.
    fn new(part: &Part, last_start_ns: u64) -> Row {
        let rest_ns = (part.end_ns - part.start_ns).saturating_sub(part.file_ns + part.gate_ns);
        let late_ns = last_start_ns.saturating_sub(part.start_ns).min(rest_ns);
        Row {
            rank: part.rank,
            node: part.node,
            calls: 1,
            own_bytes: 0,
            intra_bytes: 0,
            inter_bytes: 0,
            largest_intra_bytes: 0,
            largest_inter_bytes: 0,
            file_ns: part.file_ns,
            gate_ns: part.gate_ns,
            late_ns,
            shuffle_ns: rest_ns - late_ns,
            predicted: None,
        }
    }

    fn bytes(&self) -> u64 {
        self.own_bytes.saturating_add(self.intra_bytes).saturating_add(self.inter_bytes)
    }

    /// What goes between the aggregator and a rank is one message.
    fn exchange(&mut self, rank: u64, node: u64, bytes: u64) {
        if rank == self.rank {
            self.own_bytes = bytes;
        } else if node == self.node {
            self.intra_bytes = self.intra_bytes.saturating_add(bytes);
            self.largest_intra_bytes = self.largest_intra_bytes.max(bytes);
        } else {
            self.inter_bytes = self.inter_bytes.saturating_add(bytes);
            self.largest_inter_bytes = self.largest_inter_bytes.max(bytes);
        }
    }

    fn point(&self) -> Point {
        let (intra_bytes, inter_bytes) = (self.largest_intra_bytes, self.largest_inter_bytes);
        Point { intra_bytes, inter_bytes, shuffle_ns: self.shuffle_ns }
    }

    /// Equation 1 of HIO asks for the largest message of each kind only.
    fn cost_ns(&self, fitted: &Fitted) -> u64 {
        let messages = [(self.node, self.largest_intra_bytes), (u64::MAX, self.largest_inter_bytes)];
        shuffle_cost_ns(&fitted.network, self.node, messages.into_iter().filter(|(_, bytes)| *bytes > 0))
    }

    fn add(&mut self, other: &Row) {
        self.calls += other.calls;
        for (sum, more) in [
            (&mut self.own_bytes, other.own_bytes),
            (&mut self.intra_bytes, other.intra_bytes),
            (&mut self.inter_bytes, other.inter_bytes),
            (&mut self.file_ns, other.file_ns),
            (&mut self.gate_ns, other.gate_ns),
            (&mut self.late_ns, other.late_ns),
            (&mut self.shuffle_ns, other.shuffle_ns),
        ] {
            *sum = sum.saturating_add(more);
        }
        if let (Some(sum), Some(more)) = (&mut self.predicted, other.predicted) {
            sum.cost_ns = sum.cost_ns.saturating_add(more.cost_ns);
            sum.delay_ns = sum.delay_ns.saturating_add(more.delay_ns);
        }
    }
}

/// A call with its aggregators.
struct Derived {
    file: String,
    op: String,
    sequence: u64,
    start_ns: u64,
    bytes: u64,
    /// Bytes of ranks of which it is not known exactly which aggregator moved how many.
    estimated_bytes: u64,
    rows: Vec<Row>,
}

impl Derived {
    fn new(file: String, sequence: u64, call: Call) -> Derived {
        let parts = &call.parts;
        let last_start_ns = parts.iter().map(|part| part.start_ns).max().unwrap_or(0);
        let aggregators: Vec<&Part> = parts.iter().filter(|part| !part.transfers.is_empty()).collect();
        let mut rows: Vec<Row> = aggregators.iter().map(|part| Row::new(part, last_start_ns)).collect();
        let mut estimated_bytes = 0u64;
        for part in parts {
            let (shares, exact) = shares(part, &aggregators);
            for (row, bytes) in rows.iter_mut().zip(shares) {
                row.exchange(part.rank, part.node, bytes);
            }
            if !exact {
                estimated_bytes = estimated_bytes.saturating_add(part.bytes);
            }
        }
        Derived {
            file,
            sequence,
            start_ns: parts.iter().map(|part| part.start_ns).min().unwrap_or(0),
            bytes: parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add),
            estimated_bytes,
            rows,
            op: call.op,
        }
    }

    fn predict(&mut self, fitted: Option<&Fitted>) {
        let Some(fitted) = fitted else { return };
        let costs: Vec<u64> = self.rows.iter().map(|row| row.cost_ns(fitted)).collect();
        let delays = acceptable_delays_ns(&costs);
        let rads = relative_acceptable_delays(&delays);
        for (((row, cost_ns), delay_ns), rad) in self.rows.iter_mut().zip(costs).zip(delays).zip(rads) {
            row.predicted = Some(Predicted { cost_ns, delay_ns, rad: rad as u64 });
        }
    }
}

/// How much of a rank's bytes each aggregator moved, and whether that is exact.
fn shares(part: &Part, aggregators: &[&Part]) -> (Vec<u64>, bool) {
    let Some(access) = &part.access else {
        let moved = |part: &Part| part.transfers.iter().map(Blocks::total_bytes).fold(0, u64::saturating_add);
        let moved: Vec<u64> = aggregators.iter().map(|aggregator| moved(aggregator)).collect();
        return (divide(part.bytes, &moved), aggregators.len() == 1 || part.bytes == 0);
    };
    let covered = |aggregator: &&Part| {
        aggregator.transfers.iter().map(|row| access.within_blocks(row)).fold(0, u64::saturating_add)
    };
    let mut shares: Vec<u64> = aggregators.iter().map(covered).collect();
    let own = aggregators.iter().position(|aggregator| aggregator.rank == part.rank);
    let own_bytes = own.map_or(0, |own| std::mem::take(&mut shares[own]).min(part.bytes));
    let (rest, others) = (part.bytes - own_bytes, shares.iter().copied().fold(0, u64::saturating_add));
    if others > rest {
        shares = divide(rest, &shares);
    }
    if let Some(own) = own {
        shares[own] = own_bytes;
    }
    let rows = || aggregators.iter().flat_map(|aggregator| &aggregator.transfers);
    let no_choice = others <= rest || rest == 0;
    let exact = no_choice && access.view.is_exact() && rows().all(Blocks::is_exact);
    let one_moved_all = aggregators.len() == 1 && shares[0] == part.bytes;
    (shares, exact || one_moved_all)
}

/// Divides an amount by these weights; what rounding leaves goes to the heaviest.
fn divide(amount: u64, weights: &[u64]) -> Vec<u64> {
    let whole: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let share = |weight: &u64| (u128::from(amount) * u128::from(*weight) / whole.max(1)) as u64;
    let mut shares: Vec<u64> = weights.iter().map(share).collect();
    if let Some(heaviest) = (0..weights.len()).max_by_key(|index| weights[*index])
        && whole > 0
    {
        shares[heaviest] += amount - shares.iter().sum::<u64>();
    }
    shares
}

#[cfg(test)]
mod tests;
