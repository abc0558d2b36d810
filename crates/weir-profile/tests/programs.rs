//! Programs whose phases are known: does detection find as many, with the same period, whatever the seed?

use weir_profile::phases::*;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// As the library makes bursts.
const FLOOR_NS: u64 = MS;
const SEEDS: u64 = 20;

/// A generator of numbers that a seed determines (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (self.unit() * (high - low) as f64) as u64
    }

    /// A value that is off by this part of it at most, in either direction.
    fn about(&mut self, value: u64, noise: f64) -> u64 {
        (value as f64 * (1.0 + noise * (2.0 * self.unit() - 1.0))) as u64
    }

    /// The waiting time for what comes at random.
    fn exponential(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean as f64) as u64
    }
}

/// What the ranks of a program do.
struct Program {
    random: Random,
    ranks: Vec<Vec<Span>>,
}

impl Program {
    fn new(seed: u64, ranks: usize) -> Program {
        Program { random: Random(seed), ranks: vec![Vec::new(); ranks] }
    }

    /// A burst; returns when it ends.
    fn burst(&mut self, rank: usize, start_ns: u64, length_ns: u64, bytes: u64, reads: bool) -> u64 {
        let (bytes_read, bytes_written) = if reads { (bytes, 0) } else { (0, bytes) };
        let end_ns = start_ns + length_ns;
        self.ranks[rank].push(Span {
            start_ns,
            end_ns,
            bytes_read,
            bytes_written,
            calls: 1,
            ..Span::default()
        });
        end_ns
    }

    /// Rank 0 writes in several bursts some milliseconds apart.
    fn dump(&mut self, start_ns: u64, bursts: u64, bytes: u64) -> u64 {
        let mut now_ns = start_ns;
        for _ in 0..bursts {
            let (length_ns, part) = (self.random.between(MS, 4 * MS), self.random.about(bytes / bursts, 0.5));
            now_ns = self.burst(0, now_ns, length_ns, part, false) + self.random.between(2 * MS, 6 * MS);
        }
        now_ns
    }

    fn log_lines(&mut self, from_ns: u64, to_ns: u64, every_ns: u64) {
        let mut now_ns = from_ns;
        while now_ns < to_ns {
            let bytes = self.random.between(200, 300);
            self.burst(0, now_ns, MS / 50, bytes, false);
            now_ns += self.random.about(every_ns, 0.1);
        }
    }

    fn bursts(&self) -> Vec<Span> {
        self.ranks.iter().fold(Vec::new(), |all, rank| {
            let mut rank = rank.clone();
            rank.sort_by_key(|span| span.start_ns);
            unite(&all, &unite(&rank, &[]))
        })
    }
}

/// What is known of a program.
#[derive(Debug)]
struct Truth {
    phases: u64,
    period_ns: Option<u64>,
}

fn known(phases: u64, period_ns: u64) -> Truth {
    Truth { phases, period_ns: Some(period_ns) }
}

/// The number of phases is right to a tenth and the period to a twentieth, for every seed.
fn check(name: &str, program: fn(u64) -> (Program, Truth)) {
    for seed in 0..SEEDS {
        let (program, truth) = program(seed);
        let bursts = program.bursts();
        let found = find(&bursts, FLOOR_NS);
        let count = count(&found.list);
        let what =
            || format!("{name}, seed {seed}: {count} phases, gap {} us, {truth:?}", found.gap_ns / 1000);
        assert!(count.abs_diff(truth.phases) * 10 <= truth.phases, "{}", what());
        if let Some(period_ns) = truth.period_ns {
            let said_ns = characteristic_time_ns(&found.list).unwrap_or(0);
            assert!(said_ns.abs_diff(period_ns) * 20 <= period_ns, "{}: {} us", what(), said_ns / 1000);
        }
        let bytes = |spans: &[Span]| spans.iter().map(Span::bytes).sum::<u64>();
        assert_eq!(bytes(&found.list) + found.outside.bytes(), bytes(&bursts), "{}: lost bytes", what());
    }
}

fn mean_interval_ns(starts_ns: &[u64]) -> u64 {
    (starts_ns[starts_ns.len() - 1] - starts_ns[0]) / (starts_ns.len() as u64 - 1)
}

/// Dumps at these times.
fn dumps(program: &mut Program, starts_ns: &[u64], bursts: u64, bytes: u64) {
    starts_ns.iter().for_each(|start_ns| _ = program.dump(*start_ns, bursts, bytes));
}

fn every(count: u64, first_ns: u64, period_ns: u64) -> Vec<u64> {
    (0..count).map(|phase| first_ns + phase * period_ns).collect()
}

#[test]
fn equal_checkpoints() {
    check("equal", |seed| {
        let mut program = Program::new(seed, 1);
        dumps(&mut program, &every(20, 0, S), 1, 8 * MIB);
        (program, known(20, S))
    });
}

#[test]
fn intervals_that_drift() {
    check("drift", |seed| {
        let mut program = Program::new(seed, 1);
        let mut starts_ns = vec![0];
        for phase in 0..29 {
            starts_ns.push(starts_ns[phase as usize] + 500 * MS + phase * 20 * MS);
        }
        dumps(&mut program, &starts_ns, 4, MIB);
        let period_ns = mean_interval_ns(&starts_ns);
        (program, known(30, period_ns))
    });
}

#[test]
fn noise_of_a_half() {
    for bursts in [1, 5] {
        let program: fn(u64) -> (Program, Truth) = match bursts {
            1 => |seed| noisy(seed, 1),
            _ => |seed| noisy(seed, 5),
        };
        check("noise", program);
    }
}

/// Pauses, lengths and bytes are off by up to a half.
fn noisy(seed: u64, bursts: u64) -> (Program, Truth) {
    let mut program = Program::new(seed, 1);
    let mut starts_ns = vec![0];
    for phase in 0..24 {
        let end_ns = program.dump(starts_ns[phase], bursts, MIB);
        starts_ns.push(end_ns + program.random.about(700 * MS, 0.5));
    }
    program.dump(starts_ns[24], bursts, MIB);
    let period_ns = mean_interval_ns(&starts_ns);
    // A short first or last interval of noise may be left out.
    (program, Truth { phases: 25, period_ns: Some(period_ns) })
}

#[test]
fn lines_of_a_log_are_no_phases() {
    check("log", |seed| {
        let mut program = Program::new(seed, 1);
        dumps(&mut program, &every(15, 0, 700 * MS), 5, 400 * KIB);
        program.log_lines(3 * MS, 15 * 700 * MS, 70 * MS);
        (program, known(15, 700 * MS))
    });
}

#[test]
fn lines_of_a_log_nearer_than_the_bursts_of_a_dump() {
    check("dense log", |seed| {
        let mut program = Program::new(seed, 1);
        dumps(&mut program, &every(15, 0, 700 * MS), 5, 400 * KIB);
        program.log_lines(3 * MS, 15 * 700 * MS, 4 * MS);
        (program, known(15, 700 * MS))
    });
}

#[test]
fn reads_at_the_start_and_a_checkpoint_at_the_end() {
    check("start and end", |seed| {
        let mut program = Program::new(seed, 2);
        let mut now_ns = 0;
        for _ in 0..12 {
            let length_ns = program.random.between(MS, 20 * MS);
            now_ns =
                program.burst(1, now_ns, length_ns, 5 * MIB, true) + program.random.between(2 * MS, 8 * MS);
        }
        let first_ns = program.random.between(2 * S, 5 * S);
        dumps(&mut program, &every(20, first_ns, S), 3, 300 * KIB);
        program.dump(first_ns + 20 * S + 400 * MS, 6, 200 * MIB);
        (program, known(22, S))
    });
}

#[test]
fn small_output_often_and_a_checkpoint_seldom() {
    let program = |seed| {
        let mut program = Program::new(seed, 1);
        dumps(&mut program, &every(60, 0, 500 * MS), 3, 200 * KIB);
        // Between two small ones.
        dumps(&mut program, &every(6, 200 * MS, 5 * S), 8, 64 * MIB);
        (program, Truth { phases: 66, period_ns: None })
    };
    check("two periods", program);
    for seed in 0..SEEDS {
        let found = find(&program(seed).0.bursts(), FLOOR_NS);
        let rhythm = rhythm(&found.list);
        let classes: Vec<(u64, u64)> =
            rhythm.classes.iter().map(|class| (class.count, class.period_ns.unwrap_or(0) / MS)).collect();
        let [(60, small_ms), (6, large_ms)] = classes[..] else { panic!("seed {seed}: {classes:?}") };
        assert!((475..=525).contains(&small_ms) && (4750..=5250).contains(&large_ms), "{classes:?}");
        assert!(!rhythm.is_irregular && rhythm.confidence > Some(0.8), "{:?}", rhythm.confidence);
    }
}

/// Every tenth output is a checkpoint too.
#[test]
fn a_checkpoint_together_with_small_output() {
    let program = |seed| {
        let mut program = Program::new(seed, 1);
        for (output, start_ns) in every(60, 0, 500 * MS).into_iter().enumerate() {
            let end_ns = program.dump(start_ns, 3, 200 * KIB);
            if output % 10 == 9 {
                program.dump(end_ns, 8, 64 * MIB);
            }
        }
        (program, known(60, 500 * MS))
    };
    check("two periods together", program);
    for seed in 0..SEEDS {
        let rhythm = rhythm(&find(&program(seed).0.bursts(), FLOOR_NS).list);
        let [small, large] = rhythm.classes[..] else { panic!("seed {seed}: {:?}", rhythm.classes) };
        assert_eq!((small.count, large.count), (54, 6));
        assert!(small.period_ns.unwrap().abs_diff(500 * MS) < 25 * MS, "{small:?}");
        assert!(large.period_ns.unwrap().abs_diff(5 * S) < 250 * MS, "{large:?}");
    }
}

#[test]
fn ranks_out_of_step() {
    check("out of step", |seed| {
        let mut program = Program::new(seed, 8);
        for start_ns in every(20, 0, 2 * S) {
            for rank in 0..8 {
                let (late_ns, length_ns) =
                    (program.random.between(0, 300 * MS), program.random.between(10 * MS, 40 * MS));
                program.burst(rank, start_ns + late_ns, length_ns, 4 * MIB, false);
            }
        }
        (program, known(20, 2 * S))
    });
}

/// Each rank writes in the background for most of the time; together they pause for a fifth of it.
#[test]
fn nonblocking_io_that_overlaps() {
    check("overlap", |seed| {
        let mut program = Program::new(seed, 4);
        for start_ns in every(25, 0, S) {
            for rank in 0..4 {
                let late_ns = program.random.between(0, 100 * MS);
                let length_ns = program.random.between(500 * MS, 680 * MS);
                program.burst(rank, start_ns + late_ns, length_ns, 16 * MIB, false);
            }
        }
        (program, known(25, S))
    });
}

/// Pauses within phases reach up to those between: only the period tells.
#[test]
fn pauses_that_tell_nothing() {
    check("period", |seed| {
        let mut program = Program::new(seed, 1);
        for start_ns in every(30, 0, 1200 * MS) {
            let mut now_ns = start_ns;
            for _ in 0..4 {
                let pause_ns = program.random.between(60 * MS, 180 * MS);
                now_ns = program.burst(0, now_ns, 20 * MS, MIB, false) + pause_ns;
            }
        }
        (program, known(30, 1200 * MS))
    });
}

#[test]
fn one_phase_only() {
    check("one", |seed| {
        let mut program = Program::new(seed, 1);
        program.dump(S, 12, 100 * MIB);
        program.log_lines(0, 30 * S, 500 * MS);
        (program, Truth { phases: 1, period_ns: None })
    });
}

#[test]
fn no_io_at_all() {
    assert_eq!(find(&[], FLOOR_NS), Found { gap_ns: FLOOR_NS, ..Found::default() });
    assert_eq!(rhythm(&[]), Rhythm::default());
}

/// Phases that come at random have no period, and those with noise of a half have one.
#[test]
fn chance_is_irregular_and_noise_is_not() {
    for seed in 0..SEEDS {
        let mut program = Program::new(seed, 1);
        let mut now_ns = 0;
        for _ in 0..60 {
            now_ns = program.burst(0, now_ns, 20 * MS, MIB, false) + 20 * MS + program.random.exponential(S);
        }
        let by_chance = rhythm(&find(&program.bursts(), FLOOR_NS).list);
        assert!(by_chance.is_irregular && by_chance.confidence < Some(0.5), "seed {seed}: {by_chance:?}");
        let by_noise = rhythm(&find(&noisy(seed, 3).0.bursts(), FLOOR_NS).list);
        assert!(!by_noise.is_irregular && by_noise.confidence > Some(0.5), "seed {seed}: {by_noise:?}");
    }
}

/// Dumps of rank 0 in bursts, per-rank dumps a little later, lines of thermodynamics, a read of the input.
#[test]
fn like_lammps() {
    check("lammps", |seed| {
        let mut program = Program::new(seed, 4);
        program.burst(0, 0, MS, 2 * KIB, true);
        program.burst(0, 9 * MS, MS, 200, false);
        for start_ns in every(11, 300 * MS, 700 * MS) {
            let start_ns = program.random.about(5 * MS, 1.0) + start_ns;
            let end_ns = program.dump(start_ns, 4, 600 * KIB);
            for rank in 0..4 {
                let late_ns = program.random.between(0, 3 * MS);
                program.burst(rank, end_ns + late_ns, 2 * MS, 150 * KIB, false);
            }
        }
        program.log_lines(310 * MS, 8 * S, 140 * MS);
        (program, known(11, 700 * MS))
    });
}

/// Small energies often, frames of two files, a checkpoint at the end that reads its trajectory anew.
#[test]
fn like_gromacs() {
    check("gromacs", |seed| {
        let mut program = Program::new(seed, 2);
        program.burst(0, 0, 5 * MS, 3 * MIB, true);
        for start_ns in every(40, 200 * MS, 250 * MS) {
            let end_ns = program.dump(start_ns, 2, 160 * KIB);
            program.burst(0, end_ns + 8 * MS, MS / 5, 1500, false);
        }
        program.log_lines(230 * MS, 10 * S, 60 * MS);
        program.dump(200 * MS + 40 * 250 * MS, 3, 2 * MIB);
        (program, known(42, 250 * MS))
    });
}

/// Start-up reads with pauses of all lengths, then some fifty files per rank and output time with pauses up to a tenth of a second.
#[test]
fn like_openfoam() {
    check("openfoam", |seed| {
        let mut program = Program::new(seed, 4);
        for rank in 0..4 {
            let mut now_ns = 0;
            for _ in 0..15 {
                let (bytes, length_ns) =
                    (program.random.between(KIB, 200 * KIB), program.random.between(MS / 10, MS));
                now_ns =
                    program.burst(rank, now_ns, length_ns, bytes, true) + program.random.between(MS, 40 * MS);
            }
        }
        for start_ns in every(8, 2 * S, 3 * S) {
            for rank in 0..4 {
                let mut now_ns = start_ns;
                for _ in 0..12 {
                    let pause_ns = program.random.exponential(15 * MS).clamp(MS, 100 * MS);
                    now_ns = program.burst(rank, now_ns, MS / 2, 60 * KIB, false) + pause_ns;
                }
            }
        }
        (program, known(9, 3 * S))
    });
}
