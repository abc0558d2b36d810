//! Figures 5 and 6: computing times that vary.

use super::persched::MINUTE_S;
use super::sets::{self, Set, Shape};
use super::{Score, counts};
use crate::reproduce::study::{Claim, Context, Figure, FigureKind, Series, Study, Table};
use crate::simulate::periodic::{POLICIES, execute, informed};
use weir_engine::sharing::PolicyKind;

const HOUR_S: f64 = 3600.0;

/// `scores[set][policy]`, means over the repetitions, and the worst ratio of `apio-barrier`'s
/// SysEfficiency to `minmax`'s in a single run.
struct Findings {
    shape: Shape,
    scores: Vec<Vec<Score>>,
    worst: f64,
}

impl Findings {
    fn of(&self, set: usize, kind: PolicyKind) -> Score {
        self.scores[set][position(kind)]
    }
}

const BIOS: PolicyKind = PolicyKind::MinMax { gamma: PolicyKind::DEFAULT_GAMMA };

fn position(kind: PolicyKind) -> usize {
    POLICIES.iter().position(|&other| other == kind).expect("one of the policies of this study")
}

pub(super) fn add(context: &Context, study: &mut Study) {
    let repetitions = if context.quick { 3 } else { 20 };
    let minutes = sets::apex(MINUTE_S);
    let results = run(context, "apio: minutes", &minutes, MINUTE_S, &Shape::ALL, repetitions);
    let hours = sets::apex(HOUR_S);
    let in_hours = run(context, "apio: hours", &hours, HOUR_S, &[Shape::Uniform], repetitions.min(5));
    for result in &results {
        study.tables.push(table(result, &minutes, "minutes", repetitions));
    }
    for result in &in_hours {
        study.tables.push(table(result, &hours, "hours", repetitions.min(5)));
    }
    study.figures.extend(figures(&results));
    study.claims.extend([
        superior(&results[0], PolicyKind::ApioBarrier, "APIO as printed, with its barrier"),
        superior(&results[0], PolicyKind::Apio, "APIO with reservations as priorities"),
        congestion(&minutes, &results[0]),
        two_factors(&results),
        symmetric(&results),
    ]);
}

fn run(
    context: &Context,
    label: &str,
    sets: &[Set],
    unit_s: f64,
    shapes: &[Shape],
    repetitions: usize,
) -> Vec<Findings> {
    let runs = context.map(label, shapes.len() * sets.len() * repetitions, |index| {
        let (shape, set) = (shapes[index / repetitions / sets.len()], index / repetitions % sets.len());
        let seed = context.seed.wrapping_mul(1_000_003).wrapping_add(index as u64);
        one_run(set, &sets[set], shape, unit_s, seed)
    });
    let per_shape = runs.chunks(sets.len() * repetitions);
    shapes.iter().zip(per_shape).map(|(&shape, runs)| summary(shape, runs, repetitions)).collect()
}

/// Every policy meets the same computing times.
fn one_run(index: usize, set: &Set, shape: Shape, unit_s: f64, seed: u64) -> Vec<Score> {
    let compute_s = sets::draw(index, shape, unit_s, &counts(set, 50), seed);
    let run = |&kind: &PolicyKind| {
        let policy = informed(kind, &set.applications, set.bandwidth, None);
        Score::of(&execute(kind, policy, &set.applications, set.bandwidth, &compute_s))
    };
    POLICIES.iter().map(run).collect()
}

fn summary(shape: Shape, runs: &[Vec<Score>], repetitions: usize) -> Findings {
    let of_set = |runs: &[Vec<Score>]| {
        let of_policy = |policy: usize| Score::mean(&runs.iter().map(|run| run[policy]).collect::<Vec<_>>());
        (0..POLICIES.len()).map(of_policy).collect()
    };
    let (barrier, online) = (position(PolicyKind::ApioBarrier), position(BIOS));
    let ratio = |run: &Vec<Score>| run[barrier].sys_efficiency / run[online].sys_efficiency;
    Findings {
        shape,
        scores: runs.chunks(repetitions).map(of_set).collect(),
        worst: runs.iter().map(ratio).fold(f64::INFINITY, f64::min),
    }
}

fn table(result: &Findings, sets: &[Set], unit: &str, repetitions: usize) -> Table {
    let mut columns = vec!["set".to_owned(), "load".to_owned(), "bound".to_owned()];
    columns.extend(POLICIES.iter().map(PolicyKind::to_string));
    let row = |(set, scores): (&Set, &Vec<Score>)| {
        let mut cells =
            vec![set.number.to_string(), format!("{:.2}", set.load()), format!("{:.4}", set.bound())];
        cells.extend(scores.iter().map(Score::cell));
        cells
    };
    let name = result.shape.name();
    Table {
        id: format!("{}-{unit}", name.to_lowercase().replace(' ', "-")),
        caption: format!(
            "{name} computing times, Table 4 read in {unit}: SysEfficiency / dilation, mean of {repetitions} runs \
             (the paper has 5)"
        ),
        columns,
        rows: sets.iter().zip(&result.scores).map(row).collect(),
    }
}

fn figures(results: &[Findings]) -> Vec<Figure> {
    let compared = [PolicyKind::Apio, PolicyKind::ApioBarrier, BIOS, PolicyKind::Weir];
    let figure = |id: &str, results: &[Findings], efficiency: bool| {
        let pick = |score: Score| if efficiency { score.sys_efficiency } else { score.dilation };
        let series = |result: &Findings, kind: PolicyKind| Series {
            name: if results.len() == 1 {
                kind.to_string()
            } else {
                format!("{kind}, {}", result.shape.name())
            },
            points: (0..result.scores.len()).map(|i| (i as f64 + 1.0, pick(result.of(i, kind)))).collect(),
        };
        let y = if efficiency { "System efficiency" } else { "Application dilation" };
        let shapes: Vec<&str> = results.iter().map(|result| result.shape.name()).collect();
        Figure {
            id: id.into(),
            caption: format!("{y} under {} computing times (minutes)", shapes.join(" and ")),
            x: "set".into(),
            y: y.into(),
            kind: FigureKind::Line,
            series: results.iter().flat_map(|r| compared.map(|kind| series(r, kind))).collect(),
        }
    };
    vec![
        figure("fig5a", &results[..1], true),
        figure("fig5b", &results[..1], false),
        figure("fig6a", &results[1..], true),
        figure("fig6b", &results[1..], false),
    ]
}

/// Equal to the fourth digit is not worse.
fn superior(result: &Findings, kind: PolicyKind, name: &str) -> Claim {
    let sets = result.scores.len();
    let not_below = |a: f64, b: f64| a - b >= -5e-5;
    let efficient =
        |&i: &usize| not_below(result.of(i, kind).sys_efficiency, result.of(i, BIOS).sys_efficiency);
    let fair = |&i: &usize| not_below(result.of(i, BIOS).dilation, result.of(i, kind).dilation);
    let (more_efficient, fairer) = ((0..sets).filter(efficient).count(), (0..sets).filter(fair).count());
    let gain = |i: usize| result.of(i, kind).sys_efficiency / result.of(i, BIOS).sys_efficiency - 1.0;
    let slower = |i: usize| result.of(i, kind).dilation / result.of(i, BIOS).dilation - 1.0;
    let mean = |value: &dyn Fn(usize) -> f64| 100.0 * (0..sets).map(value).sum::<f64>() / sets as f64;
    Claim {
        text: format!("{name}: superior to BIOS (MinMax-0.5) on all sets (Fig. 5)"),
        paper: "superior on system efficiency and dilation".into(),
        ours: format!(
            "not worse on {more_efficient} and {fairer} of {sets} sets; on average {:+.2} % and {:+.2} %",
            mean(&gain),
            mean(&slower)
        ),
        holds: Some(more_efficient == sets && fairer == sets),
    }
}

fn congestion(sets: &[Set], result: &Findings) -> Claim {
    let loads: Vec<String> = sets.iter().map(|set| format!("{:.2}", set.load())).collect();
    let efficiency = |i: usize| result.of(i, BIOS).sys_efficiency;
    Claim {
        text: "Contention decreases from set 1 to set 10, and system efficiency increases (Table 3, Fig. 5)"
            .into(),
        paper: "set 1 is the most congested".into(),
        ours: format!(
            "the loads that Tables 2 to 4 make are {}: sets with Silverton are, not those with LAP",
            loads.join(" ")
        ),
        holds: Some((1..sets.len()).all(|i| efficiency(i) >= efficiency(i - 1))),
    }
}

fn two_factors(results: &[Findings]) -> Claim {
    let worst = results.iter().map(|result| result.worst).fold(f64::INFINITY, f64::min);
    Claim {
        text: "APIO is within two factors of online scheduling (Theorem 1)".into(),
        paper: "at least 0.5 of its performance".into(),
        ours: format!("with the barrier, at least {worst:.3} of MinMax-0.5's SysEfficiency in every run"),
        holds: Some(worst >= 0.5),
    }
}

fn symmetric(results: &[Findings]) -> Claim {
    let mean = |result: &Findings| {
        let of = |i: usize| result.of(i, PolicyKind::Apio).sys_efficiency / result.of(i, BIOS).sys_efficiency;
        (0..result.scores.len()).map(of).sum::<f64>() / result.scores.len() as f64
    };
    let (normal, log_normal) = (mean(&results[1]), mean(&results[2]));
    Claim {
        text: "APIO does better under the symmetric Truncated Normal than under LogNormal (Fig. 6)".into(),
        paper: "better overall".into(),
        ours: format!("SysEfficiency relative to MinMax-0.5: {normal:.4} and {log_normal:.4}"),
        holds: Some(normal > log_normal),
    }
}
