//! The paper's section 5: equations (4) to (9) against the same engine that schedules.

use super::super::study::{Claim, Context, Table};
use super::trials;
use weir_engine::aggregators::{self, Aggregator, Mode, Options, Policy};

/// The `t` of section 5, in which all figures of the table are.
const T: u64 = 1_000_000;
const SIZES: [(usize, usize); 4] = [(3, 2), (6, 6), (12, 6), (48, 16)];

/// An equation evaluated, and what the engine gives.
struct Check {
    equation: &'static str,
    policy: &'static str,
    m: usize,
    n: usize,
    formula: f64,
    simulated: f64,
}

pub(super) fn table(context: &Context) -> Result<(Table, Vec<Claim>), String> {
    let drawn: usize = if context.quick { 200_000 } else { 4_000_000 };
    let checks = context.map("hio: equations", SIZES.len(), |number| {
        let (m, n) = SIZES[number];
        checks(m, n, (drawn / (m * n)) as u64, trials::seed(context.seed, number as u64))
    });
    let checks: Vec<Check> =
        checks.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let rows = checks.iter().map(|c| {
        let deviation = 100.0 * (c.simulated / c.formula - 1.0);
        let numbers = [c.m.to_string(), c.n.to_string(), fixed(c.formula), fixed(c.simulated)];
        let words = [c.equation.to_owned(), c.policy.to_owned()];
        words.into_iter().chain(numbers).chain([format!("{deviation:+.2}%")]).collect()
    });
    let table = Table {
        id: "equations".into(),
        caption: "Section 5: mean execution time, in units of t; m applications on n storage nodes".into(),
        columns: ["equation", "policy", "m", "n", "formula", "simulated", "deviation"]
            .map(String::from)
            .to_vec(),
        rows: rows.collect(),
    };
    Ok((table, claims(&checks)))
}

fn fixed(value: f64) -> String {
    format!("{value:.3}")
}

/// `m` applications that need `t` at each of `n` targets; `shuffle(i, j)` is `s_ij`, in units of `t`.
fn calls(m: usize, n: usize, shuffle: impl Fn(usize, usize) -> usize) -> Vec<Vec<Aggregator>> {
    let aggregator = |i, j| Aggregator { target: j, service_ns: T, shuffle_ns: shuffle(i, j) as u64 * T };
    (0..m).map(|i| (0..n).map(|j| aggregator(i, j)).collect()).collect()
}

/// The mean finish, in units of `t`.
fn mean(policy: Policy, n: usize, calls: &[Vec<Aggregator>], seed: u64) -> Result<f64, String> {
    aggregators::run(policy, &Options { seed, ..Options::default() }, Mode::Read, n, calls)
        .map(|outcome| outcome.mean_ns() / T as f64)
        .map_err(|(call, refused)| format!("application {call}: {refused}"))
}

fn checks(m: usize, n: usize, repetitions: u64, seed: u64) -> Result<Vec<Check>, String> {
    let slowest = 2 * m;
    let (t, s) = (m as f64, slowest as f64);
    // Equation (4) adds the longest service to the longest shuffle: exact where all shuffles are alike.
    let alike = calls(m, n, |_, _| slowest);
    let sum: f64 = (1..m).map(|x| (x as f64 / t).powi(n as i32)).sum();
    let mut nio = 0.0;
    for repetition in 0..repetitions {
        nio += mean(Policy::Nio, n, &alike, trials::seed(seed, repetition))? / repetitions as f64;
    }
    let sio = mean(Policy::Sio, n, &alike, seed)?;
    let eq5 = (t + 1.0) / 2.0 + s;
    let check =
        |equation, policy, n, formula, simulated| Check { equation, policy, m, n, formula, simulated };
    let mut checks = vec![
        check("(4)", "nio", n, t - sum + s, nio),
        check("(5)", "sio", n, eq5, sio),
        check("(8) = (4) - (5)", "nio - sio", n, (t - 1.0) / 2.0 - sum, nio - sio),
    ];
    // The best case needs a storage node for each application's slowest aggregator.
    let apart = calls(m, m, |i, j| if i == j { slowest } else { 0 });
    let together = calls(m, n, |_, j| if j == 0 { slowest } else { 0 });
    for policy in [Policy::Hio, Policy::HioListing, Policy::Slack] {
        let best = mean(policy, m, &apart, seed)?;
        checks.push(check("(6) best case", policy.name(), m, 1.0 + s, best));
        checks.push(check("(7) worst case", policy.name(), n, eq5, mean(policy, n, &together, seed)?));
        let gained = mean(Policy::Sio, m, &apart, seed)? - best;
        checks.push(check("(9) = (5) - (6)", policy.name(), m, (t - 1.0) / 2.0, gained));
    }
    Ok(checks)
}

fn claims(checks: &[Check]) -> Vec<Claim> {
    let deviation = |random: bool| {
        let chosen = checks.iter().filter(|c| c.policy.starts_with("nio") == random);
        chosen.map(|c| 100.0 * (c.simulated / c.formula - 1.0).abs()).fold(0.0, f64::max)
    };
    let (random, exact) = (deviation(true), deviation(false));
    vec![
        Claim {
            text: "equations (4) and (8): expectations over random orders".into(),
            paper: "closed form".into(),
            ours: format!("at most {random:.2}% off"),
            holds: Some(random < 2.0),
        },
        Claim {
            text: "equations (5), (6), (7), (9), also for slack".into(),
            paper: "closed form".into(),
            ours: format!("at most {exact:.2}% off"),
            holds: Some(exact < 1e-6),
        },
    ]
}
