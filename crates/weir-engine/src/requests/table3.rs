//! The measurements of the AGIOS paper: Table III (the best scheduling algorithm in each situation),
//! with the attributes of the situations from Tables I, II and VI.
//!
//! Boito, Kassick, Navaux, Denneulin: Automatic I/O scheduling algorithm selection for parallel file
//! systems. Concurrency and Computation: Practice and Experience, 2016, doi:10.1002/cpe.3606.
//!
//! Table III is printed with merged cells. Where the extent of a cell is not plain, sections 3.1 to 3.4
//! say in words which algorithm was best, and Table IV counts the situations of two of them (60 of 192
//! for aIOLi, 92 for SJF). The reading below agrees with all three.

use super::Algorithm::{self, Aioli, Mlf, Sjf, To, ToAgg};
use super::Operation::{self, Read, Write};
use super::select::RequestSize::{self, Large, Small};
use super::select::Spatiality::{self, Contiguous, NonContiguous};
use super::select::{Measurement, Situation};

const MB: u64 = 1 << 20;

/// A cluster of Table I, with its device's sequential to random throughput ratio.
pub struct Cluster {
    pub name: &'static str,
    pub device: &'static str,
    pub write_ratio: f64,
    pub read_ratio: f64,
}

pub const CLUSTERS: [Cluster; 4] = [
    Cluster { name: "Pastel", device: "HDD", write_ratio: 21.29, read_ratio: 38.91 },
    Cluster { name: "Graphene", device: "HDD", write_ratio: 15.12, read_ratio: 40.68 },
    Cluster { name: "Suno", device: "RAID-0", write_ratio: 8.17, read_ratio: 25.46 },
    Cluster { name: "Edel", device: "SSD", write_ratio: 0.66, read_ratio: 2.37 },
];

impl Cluster {
    pub fn ratio(&self, operation: Operation) -> f64 {
        match operation {
            Read => self.read_ratio,
            Write => self.write_ratio,
        }
    }
}

/// A row of Table III.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Instances of the benchmark that run at the same time.
    pub applications: u64,
    /// N to N: a file per process; otherwise (N to 1) each application shares a file.
    pub file_per_process: bool,
    pub spatiality: Spatiality,
    pub request_size: RequestSize,
    pub operation: Operation,
    /// The best choice on each of [`CLUSTERS`]; `To` where the paper says "no AGIOS", since the file
    /// system's own order is time order.
    pub best: [Algorithm; 4],
}

type Row = (u64, bool, Spatiality, RequestSize, Operation, [Algorithm; 4]);

/// N to N access is always contiguous: a process has its file to itself.
#[rustfmt::skip]
const ROWS: [Row; 24] = [
    //                                                     Pastel  Graphene Suno   Edel
    (1, false, Contiguous,    Small, Write, [To,    Sjf,   Sjf,   Sjf  ]),
    (1, false, Contiguous,    Small, Read,  [To,    Sjf,   Sjf,   Sjf  ]),
    (1, false, Contiguous,    Large, Write, [Aioli, Aioli, Aioli, Aioli]),
    (1, false, Contiguous,    Large, Read,  [To,    Sjf,   Sjf,   Aioli]),
    (1, false, NonContiguous, Small, Write, [To,    Sjf,   Sjf,   Sjf  ]),
    (1, false, NonContiguous, Small, Read,  [To,    Sjf,   Sjf,   Sjf  ]),
    (1, false, NonContiguous, Large, Write, [Aioli, Aioli, Aioli, Aioli]),
    (1, false, NonContiguous, Large, Read,  [To,    Sjf,   Sjf,   Aioli]),
    (1, true,  Contiguous,    Small, Write, [Aioli, Sjf,   Sjf,   ToAgg]),
    (1, true,  Contiguous,    Small, Read,  [Aioli, Sjf,   Sjf,   ToAgg]),
    (1, true,  Contiguous,    Large, Write, [Aioli, Sjf,   Sjf,   ToAgg]),
    (1, true,  Contiguous,    Large, Read,  [Aioli, Sjf,   Sjf,   ToAgg]),
    (4, false, Contiguous,    Small, Write, [Aioli, Mlf,   Sjf,   Sjf  ]),
    (4, false, Contiguous,    Small, Read,  [Aioli, To,    Sjf,   ToAgg]),
    (4, false, Contiguous,    Large, Write, [Aioli, Mlf,   Sjf,   Sjf  ]),
    (4, false, Contiguous,    Large, Read,  [Aioli, Mlf,   Sjf,   Aioli]),
    (4, false, NonContiguous, Small, Write, [Aioli, Mlf,   Sjf,   Sjf  ]),
    (4, false, NonContiguous, Small, Read,  [Aioli, Mlf,   Sjf,   ToAgg]),
    (4, false, NonContiguous, Large, Write, [Aioli, Mlf,   Sjf,   Sjf  ]),
    (4, false, NonContiguous, Large, Read,  [Aioli, Mlf,   Sjf,   Aioli]),
    (4, true,  Contiguous,    Small, Write, [Aioli, Sjf,   Sjf,   Sjf  ]),
    (4, true,  Contiguous,    Small, Read,  [Aioli, Sjf,   Sjf,   Aioli]),
    (4, true,  Contiguous,    Large, Write, [Aioli, Sjf,   Sjf,   Sjf  ]),
    (4, true,  Contiguous,    Large, Read,  [Aioli, Sjf,   Sjf,   Aioli]),
];

pub fn patterns() -> impl Iterator<Item = Pattern> {
    ROWS.into_iter().map(|(applications, file_per_process, spatiality, request_size, operation, best)| {
        Pattern { applications, file_per_process, spatiality, request_size, operation, best }
    })
}

impl Pattern {
    /// Accessed files with this many processes per application (Table II).
    pub fn files(&self, processes: u64) -> u64 {
        self.applications * if self.file_per_process { processes } else { 1 }
    }

    /// Size of each file at a server (Table VI).
    pub fn bytes_per_file(&self, processes: u64) -> u64 {
        match (self.file_per_process, self.applications) {
            (false, _) => processes * 16 * MB,
            (true, 1) => 256 * MB,
            (true, _) => 128 * MB,
        }
    }

    pub fn situation(&self, processes: u64, cluster: &Cluster) -> Situation {
        Situation {
            operation: self.operation,
            files: self.files(processes),
            spatiality: self.spatiality,
            request_size: self.request_size,
            seq_to_random: cluster.ratio(self.operation),
            bytes_per_file: self.bytes_per_file(processes),
        }
    }
}

/// The situations measured with these numbers of processes per application, with the best algorithm of
/// each. Section 4 learns from 8 and 16: 192 situations.
pub fn measurements(processes: &[u64]) -> Vec<Measurement> {
    let each = |processes: u64| {
        patterns().flat_map(move |pattern| {
            let on = move |(cluster, best): (&Cluster, Algorithm)| Measurement {
                situation: pattern.situation(processes, cluster),
                best,
            };
            CLUSTERS.iter().zip(pattern.best).map(on)
        })
    };
    processes.iter().flat_map(|&count| each(count)).collect()
}
