//! The APIO paper's stochastic iterative applications as jobs.

use super::{Job, Phase, Program, SECOND_NS};
use crate::engine::JobInfo;
use crate::sharing::periodic::Application;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal, Normal};
use rand_pcg::Pcg64;

/// Jobs that run one instance per computing time of theirs: `compute_s[i][k]` is `W_i^k`. The engine
/// is told the characteristic time that the application has on the average, alone.
pub fn as_jobs(applications: &[Application], bandwidth: f64, compute_s: &[Vec<f64>]) -> Vec<Job> {
    let job = |(application, lengths_s): (&Application, &Vec<f64>)| {
        let cap = (application.cap / bandwidth).min(1.0);
        let io = Phase::Io { volume_ns: to_ns(application.volume / bandwidth) };
        let instance = |&length_s: &f64| [Phase::Compute { length_ns: to_ns(length_s) }, io];
        Job {
            info: JobInfo {
                w_iter_ns: Some(to_ns(application.alone_s())),
                cap: Some(cap),
                nodes: (application.nodes as u64).max(1),
                ..JobInfo::default()
            },
            cap,
            release_ns: 0,
            program: Program::Listed(lengths_s.iter().flat_map(instance).collect()),
        }
    };
    applications.iter().zip(compute_s).map(job).collect()
}

fn to_ns(seconds: f64) -> u64 {
    (seconds * SECOND_NS as f64).round() as u64
}

/// How the lengths of computing phases are distributed (APIO, Table 4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    Uniform {
        lowest: f64,
        highest: f64,
    },
    TruncatedNormal {
        mean: f64,
        deviation: f64,
        lowest: f64,
        highest: f64,
    },
    /// The paper gives μ and σ once for all distributions. Here they are mean and deviation of the
    /// lengths, not of their logarithms: an application is as long under each distribution, and the
    /// distributions can be compared.
    LogNormal {
        mean: f64,
        deviation: f64,
    },
}

impl Lengths {
    /// `count` lengths. The same seed gives the same lengths.
    ///
    /// # Panics
    /// When the parameters make no distribution: a deviation that is not positive, an empty interval.
    pub fn draw(&self, seed: u64, count: usize) -> Vec<f64> {
        let mut random = Pcg64::seed_from_u64(seed);
        (0..count).map(|_| self.one(&mut random)).collect()
    }

    fn one(&self, random: &mut Pcg64) -> f64 {
        match *self {
            Lengths::Uniform { lowest, highest } => random.random_range(lowest..highest),
            Lengths::TruncatedNormal { mean, deviation, lowest, highest } => {
                let normal = Normal::new(mean, deviation).expect("a positive deviation");
                loop {
                    let length = normal.sample(random);
                    if (lowest..=highest).contains(&length) {
                        return length;
                    }
                }
            }
            Lengths::LogNormal { mean, deviation } => {
                let distribution = LogNormal::from_mean_cv(mean, deviation / mean).expect("a positive mean");
                distribution.sample(random)
            }
        }
    }
}
