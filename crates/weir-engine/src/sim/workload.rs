//! What jobs do: lists of phases, iterations with noise, and the workloads of the IO-SETS paper.

use super::SECOND_NS;
use crate::engine::JobInfo;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    Compute {
        length_ns: u64,
    },
    /// The volume is the time the whole storage needs for it.
    Io {
        volume_ns: u64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    Listed(Vec<Phase>),
    /// Compute, then I/O, over and over. With `noise` ν every length is drawn anew, uniformly from
    /// its mean times `1 − ν … 1 + ν`, from a stream of random numbers of the job's own, so that
    /// every policy meets the same lengths.
    Iterations {
        compute_ns: u64,
        volume_ns: u64,
        count: u64,
        noise: f64,
        seed: u64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What the engine is told.
    pub info: JobInfo,
    /// What the job can really use of the storage's bandwidth.
    pub cap: f64,
    pub release_ns: u64,
    pub program: Program,
}

impl Program {
    /// The phases, one after the other; the same each time.
    pub fn phases(&self) -> Phases<'_> {
        Phases::new(self)
    }
}

/// A job's phases, one after the other.
#[derive(Debug)]
pub struct Phases<'a> {
    program: &'a Program,
    next: u64,
    random: Option<Pcg64>,
}

impl<'a> Phases<'a> {
    pub(super) fn new(program: &'a Program) -> Phases<'a> {
        let random = match program {
            Program::Iterations { noise, seed, .. } if *noise > 0.0 => Some(Pcg64::seed_from_u64(*seed)),
            _ => None,
        };
        Phases { program, next: 0, random }
    }

    fn noisy(&mut self, mean_ns: u64, noise: f64) -> u64 {
        match &mut self.random {
            Some(random) => (mean_ns as f64 * (1.0 + noise * random.random_range(-1.0..1.0))).round() as u64,
            None => mean_ns,
        }
    }
}

impl Iterator for Phases<'_> {
    type Item = Phase;

    fn next(&mut self) -> Option<Phase> {
        let index = self.next;
        self.next += 1;
        match *self.program {
            Program::Listed(ref phases) => phases.get(index as usize).copied(),
            Program::Iterations { count, .. } if index / 2 >= count => None,
            Program::Iterations { compute_ns, noise, .. } if index.is_multiple_of(2) => {
                Some(Phase::Compute { length_ns: self.noisy(compute_ns, noise) })
            }
            Program::Iterations { volume_ns, noise, .. } => {
                Some(Phase::Io { volume_ns: self.noisy(volume_ns, noise) })
            }
        }
    }
}

/// One workload of IO-SETS section 4, and what is varied around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Jobs with a characteristic time around 10, 100 and 1000 seconds.
    pub high: u64,
    pub medium: u64,
    pub low: u64,
    /// I/O stress ω, eq. (3).
    pub stress: f64,
    /// ν of [`Program::Iterations`].
    pub noise: f64,
    /// Whether the engine is told `w_iter`, or has to learn it.
    pub w_iter_known: bool,
    /// The engine is told `w_iter` times 10 to a power drawn from `N(0, this)`.
    pub w_iter_error: f64,
    /// Every job's cap is drawn uniformly from here to one.
    pub lowest_cap: f64,
    /// Whether the engine is told the caps, or has to find out.
    pub caps_known: bool,
}

impl Mix {
    /// The paper's: 60 jobs, 20 of them of medium frequency, and ω = 0.8.
    pub fn paper(high: u64) -> Mix {
        Mix {
            high,
            medium: 20,
            low: 40 - high.min(40),
            stress: 0.8,
            noise: 0.0,
            w_iter_known: true,
            w_iter_error: 0.0,
            lowest_cap: 1.0,
            caps_known: true,
        }
    }
}

/// The horizon h of the paper's jobs.
const HORIZON_NS: u64 = 20_000 * SECOND_NS;

/// Draws a workload as described in section 4 (steps 1 to 3). I/O lengths are those in isolation: a
/// job that can use a part of the bandwidth only has a volume smaller by that part.
pub fn iosets(mix: &Mix, seed: u64) -> Vec<Job> {
    let mut random = Pcg64::seed_from_u64(seed);
    let groups = [(mix.high, 10.0), (mix.medium, 100.0), (mix.low, 1000.0)];
    let means: Vec<f64> = groups.iter().flat_map(|&(n, mean)| (0..n).map(move |_| mean)).collect();
    let draws: Vec<f64> = means.iter().map(|_| random.random_range(0.0..1.0)).collect();
    let drawn: f64 = draws.iter().sum();
    let jobs = means.iter().zip(draws).map(|(&mean_s, draw)| {
        let w_iter_s = truncated_normal(&mut random, mean_s, mean_s / 10.0);
        // α_io of one job, kept below one for small workloads under great stress.
        let io_ratio = (mix.stress / drawn * draw).min(0.99);
        let cap = if mix.lowest_cap < 1.0 { random.random_range(mix.lowest_cap..1.0) } else { 1.0 };
        let error = if mix.w_iter_error > 0.0 { normal(&mut random, 0.0, mix.w_iter_error) } else { 0.0 };
        let w_iter_ns = w_iter_s * SECOND_NS as f64;
        Job {
            info: JobInfo {
                w_iter_ns: mix.w_iter_known.then_some((w_iter_ns * 10f64.powf(error)) as u64),
                cap: mix.caps_known.then_some(cap),
                ..JobInfo::default()
            },
            cap,
            release_ns: 0,
            program: Program::Iterations {
                compute_ns: ((1.0 - io_ratio) * w_iter_ns) as u64,
                volume_ns: (io_ratio * w_iter_ns * cap) as u64,
                count: (HORIZON_NS as f64 / w_iter_ns).ceil() as u64,
                noise: mix.noise,
                seed: random.random(),
            },
        }
    });
    jobs.collect()
}

fn normal(random: &mut Pcg64, mean: f64, deviation: f64) -> f64 {
    Normal::new(mean, deviation).expect("finite and positive").sample(random)
}

fn truncated_normal(random: &mut Pcg64, mean: f64, deviation: f64) -> f64 {
    loop {
        let value = normal(random, mean, deviation);
        if value > 0.0 {
            return value;
        }
    }
}
