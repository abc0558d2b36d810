//! The situations of section 3 at one modelled server.
//!
//! Of a cluster the model knows what the tree knows: the sequential to random ratios of Table I. The
//! paper gives neither bandwidths nor costs per request, so these are ours and the same for all. There is
//! no cache, no network and no cost of the scheduler itself.

use super::super::study::Context;
use weir_engine::requests::table3::{CLUSTERS, Pattern};
use weir_engine::requests::{Algorithm, Clients, Device, Outlook, Scheduler, Settings, simulate};

const BANDWIDTH_BYTES_S: f64 = 100e6;
const COST_PER_REQUEST_S: f64 = 100e-6;
/// From the end of a client's request to the arrival of its next.
const LATENCY_S: f64 = 300e-6;

/// How a request scheduler is run.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Contender {
    pub(super) algorithm: Algorithm,
    pub(super) outlook: Outlook,
}

/// The paper's five in the order of [`Algorithm::ALL`], and then the two that wait, once more, for
/// nothing that cannot come.
pub(super) fn contenders() -> Vec<Contender> {
    let blind = Algorithm::ALL.map(|algorithm| Contender { algorithm, outlook: Outlook::Blind });
    let seeing = [Algorithm::Mlf, Algorithm::Aioli]
        .map(|algorithm| Contender { algorithm, outlook: Outlook::SeesBlockedClients });
    blind.into_iter().chain(seeing).collect()
}

impl Contender {
    pub(super) fn name(self) -> String {
        match self.outlook {
            Outlook::Blind => self.algorithm.name().into(),
            Outlook::SeesBlockedClients => format!("{}, seeing", self.algorithm.name()),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) pattern: Pattern,
    pub(super) processes: u64,
    /// Index into [`CLUSTERS`].
    pub(super) cluster: usize,
}

pub(super) struct Measured {
    pub(super) place: Place,
    /// Of each of [`contenders`].
    pub(super) makespans: Vec<f64>,
}

impl Measured {
    /// Time over the time with time order, as in Figures 3 and 4.
    pub(super) fn normalized(&self, contender: usize) -> f64 {
        self.makespans[contender] / self.makespans[0]
    }

    pub(super) fn of(&self, algorithm: Algorithm) -> f64 {
        let index = Algorithm::ALL.iter().position(|&a| a == algorithm).unwrap_or(0);
        self.normalized(index)
    }

    /// The best of the paper's five.
    pub(super) fn best(&self) -> Algorithm {
        let shortest = |a: &Algorithm, b: &Algorithm| self.of(*a).total_cmp(&self.of(*b));
        Algorithm::ALL.into_iter().min_by(shortest).unwrap_or(Algorithm::To)
    }
}

/// Every contender in every place. The clients of a place are the same for all contenders.
pub(super) fn measure(context: &Context, label: &str, places: &[Place]) -> Vec<Measured> {
    let contenders = contenders();
    // The longest first would finish sooner, but the order of the answers is what matters.
    let makespans = context.map(label, places.len() * contenders.len(), |index| {
        let (place, contender) = (index / contenders.len(), contenders[index % contenders.len()]);
        makespan(context, &places[place], place as u64, contender)
    });
    places
        .iter()
        .zip(makespans.chunks(contenders.len()))
        .map(|(&place, makespans)| Measured { place, makespans: makespans.to_vec() })
        .collect()
}

fn makespan(context: &Context, place: &Place, index: u64, contender: Contender) -> f64 {
    let cluster = &CLUSTERS[place.cluster];
    let device = Device {
        bandwidth_bytes_s: BANDWIDTH_BYTES_S,
        read_ratio: cluster.read_ratio,
        write_ratio: cluster.write_ratio,
        cost_per_request_s: COST_PER_REQUEST_S,
    };
    // The paper moves 16 to 256 MB per process and server; what matters is settled long before.
    let bytes_per_process = if context.quick { 128 << 10 } else { 2 << 20 };
    let seed = context.seed.wrapping_mul(1_000_003).wrapping_add(index);
    let mut clients = Clients::new(place.pattern, place.processes, bytes_per_process, LATENCY_S, seed);
    let mut scheduler = Scheduler::new(contender.algorithm, Settings::default());
    simulate(&mut scheduler, &device, &mut clients, 1, contender.outlook).makespan
}
