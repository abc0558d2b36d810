//! `weir reproduce iosets`: SET-10 against its references, and against `weir`.

use super::study::{Claim, Context, Figure, FigureKind, Series, Study, Table};
use weir_engine::sharing::PolicyKind;
use weir_engine::sim::{Mix, SECOND_NS, Setting, Storage, iosets, simulate};

const POLICIES: [PolicyKind; 5] =
    [PolicyKind::Exclusive, PolicyKind::Fair, PolicyKind::Set10, PolicyKind::Weir, PolicyKind::MinDilation];
const EXCLUSIVE: usize = 0;
const FAIR: usize = 1;
const SET10: usize = 2;
const WEIR: usize = 3;
const MINDILATION: usize = 4;

const N_HIGH: [u64; 5] = [0, 10, 20, 30, 40];

/// One policy's result on one workload, or a mean of such.
#[derive(Clone, Copy, Default)]
struct Score {
    utilization: f64,
    stretch: f64,
}

/// What is varied around the paper's design.
struct Variant {
    caption: &'static str,
    change: fn(&mut Mix),
}

const VARIANTS: [Variant; 14] = [
    Variant { caption: "as in the paper", change: |_| {} },
    Variant { caption: "phases vary by 10 %", change: |mix| mix.noise = 0.1 },
    Variant { caption: "phases vary by 30 %", change: |mix| mix.noise = 0.3 },
    Variant { caption: "phases vary by 50 %", change: |mix| mix.noise = 0.5 },
    Variant { caption: "w_iter wrong by 10^N(0,1)", change: |mix| mix.w_iter_error = 1.0 },
    Variant { caption: "w_iter not told", change: |mix| mix.w_iter_known = false },
    Variant { caption: "jobs can use 10 to 100 %", change: |mix| mix.lowest_cap = 0.1 },
    Variant {
        caption: "the same, phases vary by 50 %",
        change: |mix| (mix.lowest_cap, mix.noise) = (0.1, 0.5),
    },
    Variant {
        caption: "the same, not told what they can use",
        change: |mix| (mix.lowest_cap, mix.caps_known) = (0.1, false),
    },
    Variant { caption: "ω = 0.4", change: |mix| mix.stress = 0.4 },
    Variant { caption: "ω = 0.6", change: |mix| mix.stress = 0.6 },
    Variant { caption: "ω = 1.0", change: |mix| mix.stress = 1.0 },
    Variant { caption: "ω = 1.1", change: |mix| mix.stress = 1.1 },
    Variant { caption: "ω = 1.2", change: |mix| mix.stress = 1.2 },
];

pub(super) fn study(context: &Context) -> Result<Study, String> {
    let design = paper_design(context);
    let repetitions = if context.quick { 1 } else { 40 };
    let sweep = sweep(context, repetitions);
    Ok(Study {
        id: "iosets",
        title: "IO-SETS: simple and efficient approaches for I/O bandwidth management".into(),
        tables: vec![
            gains_table(&design),
            means_table(&sweep[0]),
            how_often_table(&sweep[0]),
            variants_table(&sweep, repetitions),
        ],
        figures: figures(&design, &sweep[0]),
        claims: claims(context, &design, &sweep),
    })
}

/// The window of section 4: from 1000 to 9000 seconds.
fn score(mix: &Mix, seed: u64, kind: PolicyKind) -> Score {
    let setting = Setting {
        storage: Storage::WorkConserving,
        window_ns: Some((1_000 * SECOND_NS, 9_000 * SECOND_NS)),
        stop_at_window: true,
    };
    let outcome = simulate(&iosets(mix, seed), kind.build(), &setting);
    Score { utilization: outcome.utilization(), stretch: outcome.stretch() }
}

fn scores(mix: &Mix, seed: u64) -> [Score; POLICIES.len()] {
    POLICIES.map(|kind| score(mix, seed, kind))
}

/// Seeds far apart for all that is drawn: `part` of the study, `group` within it, repetition.
fn seed(context: &Context, part: u64, group: u64, repetition: u64) -> u64 {
    context.seed.wrapping_mul(1_000_003).wrapping_add((part << 40) | (group << 20) | repetition)
}

/// A workload of the paper's design: its n_H and every policy's score.
type Workload = (u64, [Score; POLICIES.len()]);

/// The paper has 200 workloads with n_H in {0, …, 40}, and does not say how they are spread: here
/// evenly, so that every n_H has five of them, but for a few with four. A quick run has two of each.
fn paper_design(context: &Context) -> Vec<Workload> {
    let count = if context.quick { 82 } else { 200 };
    context.map("iosets: workloads", count, |index| {
        let high = index as u64 * 41 / count as u64;
        (high, scores(&Mix::paper(high), seed(context, 0, 0, index as u64)))
    })
}

/// All policies on the same workloads, of one variant and one n_H.
#[derive(Default)]
struct Group {
    runs: Vec<[Score; POLICIES.len()]>,
    means: [Score; POLICIES.len()],
}

/// By n_H.
type Groups = [Group; N_HIGH.len()];

/// By variant.
fn sweep(context: &Context, repetitions: usize) -> Vec<Groups> {
    let groups = VARIANTS.len() * N_HIGH.len();
    // The paper's design is compared with the paper's numbers, so it is repeated more often.
    let of_group = |group: usize| if group < N_HIGH.len() { 5 * repetitions } else { repetitions };
    let runs: Vec<(usize, u64)> =
        (0..groups).flat_map(|group| (0..of_group(group)).map(move |run| (group, run as u64))).collect();
    let results = context.map("iosets: variants", runs.len(), |index| {
        let (group, run) = runs[index];
        let high = group % N_HIGH.len();
        let mut mix = Mix::paper(N_HIGH[high]);
        (VARIANTS[group / N_HIGH.len()].change)(&mut mix);
        scores(&mix, seed(context, 1, high as u64, run))
    });
    let mut sweep: Vec<Groups> = VARIANTS.iter().map(|_| Groups::default()).collect();
    for ((index, _), scores) in runs.iter().zip(results) {
        let group = &mut sweep[index / N_HIGH.len()][index % N_HIGH.len()];
        group.runs.push(scores);
        for (mean, score) in group.means.iter_mut().zip(scores) {
            mean.utilization += score.utilization / of_group(*index) as f64;
            mean.stretch += score.stretch / of_group(*index) as f64;
        }
    }
    sweep
}

/// In per cent, with its standard error; the error of a single run is infinite.
#[derive(Clone, Copy)]
struct Gain {
    percent: f64,
    error: f64,
}

impl Gain {
    /// More than two standard errors above zero, or below; `None` in between.
    fn is_positive(self) -> Option<bool> {
        (self.percent.abs() > 2.0 * self.error).then_some(self.percent > 0.0)
    }

    fn lower(self, other: Gain) -> Gain {
        if other.percent < self.percent { other } else { self }
    }

    fn text(self) -> String {
        if self.error.is_finite() {
            format!("{:+.2} ± {:.2}", self.percent, self.error)
        } else {
            format!("{:+.2}", self.percent)
        }
    }
}

impl Group {
    /// What `weir` gains over another policy in the mean of a metric, where `sign` says whether more is better.
    /// The policies ran on the same workloads, so it is the differences that vary: the standard
    /// error is that of a ratio of means.
    fn gain_over(&self, other: usize, metric: Metric, sign: f64) -> Gain {
        let runs = self.runs.len() as f64;
        let base = metric(&self.means[other]);
        let ratio = metric(&self.means[WEIR]) / base;
        let squares: f64 =
            self.runs.iter().map(|run| (metric(&run[WEIR]) - ratio * metric(&run[other])).powi(2)).sum();
        let error = if runs < 2.0 { f64::INFINITY } else { (squares / (runs - 1.0) / runs).sqrt() / base };
        Gain { percent: 100.0 * sign * (ratio - 1.0), error: 100.0 * error }
    }

    /// `weir` against the better of SET-10 and FAIR-SHARE, each metric for itself.
    fn margin(&self) -> [Gain; 2] {
        METRICS.map(|(_, metric, sign)| {
            self.gain_over(SET10, metric, sign).lower(self.gain_over(FAIR, metric, sign))
        })
    }
}

type Metric = fn(&Score) -> f64;

/// Name, value, and whether more of it is better.
const METRICS: [(&str, Metric, f64); 2] =
    [("utilization", |score| score.utilization, 1.0), ("stretch", |score| score.stretch, -1.0)];

/// How much better `a` is than `b`, in per cent: more utilization, less stretch.
fn gain(a: Score, b: Score) -> (f64, f64) {
    (100.0 * (a.utilization / b.utilization - 1.0), 100.0 * (1.0 - a.stretch / b.stretch))
}

/// The largest gain of `a` over `b` on any one workload, in utilization and in stretch.
fn largest_gain(design: &[Workload], a: usize, b: usize) -> (f64, f64) {
    let gains = design.iter().map(|(_, scores)| gain(scores[a], scores[b]));
    gains.fold((f64::MIN, f64::MIN), |most, one| (most.0.max(one.0), most.1.max(one.1)))
}

fn strings<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn gains_table(design: &[Workload]) -> Table {
    let row = |name: &str, a: usize, b: usize, paper: [&str; 2]| {
        let (utilization, stretch) = largest_gain(design, a, b);
        let cells = [name, &format!("{utilization:.1}"), paper[0], &format!("{stretch:.1}"), paper[1]];
        strings(cells)
    };
    Table {
        id: "gains".into(),
        caption: format!(
            "Largest gain on any one of {} workloads, in per cent (the paper's beside)",
            design.len()
        ),
        columns: strings(["of", "utilization", "paper", "stretch", "paper"]),
        rows: vec![
            row("set10 over fair", SET10, FAIR, ["4.4", "15.3"]),
            row("weir over fair", WEIR, FAIR, ["", ""]),
            row("weir over set10", WEIR, SET10, ["", ""]),
        ],
    }
}

fn means_table(groups: &Groups) -> Table {
    let rows = N_HIGH.iter().zip(groups).map(|(high, group)| {
        let means = group.means.iter();
        let cells = means.flat_map(|s| [format!("{:.4}", s.utilization), format!("{:.4}", s.stretch)]);
        std::iter::once(high.to_string()).chain(cells).collect()
    });
    let columns = POLICIES.iter().flat_map(|kind| [format!("{kind} utilization"), "stretch".to_owned()]);
    let runs = groups[0].runs.len();
    Table {
        id: "means".into(),
        caption: format!("Means over {runs} workloads at each n_H (N = 60, n_M = 20, ω = 0.8)"),
        columns: std::iter::once("n_H".to_owned()).chain(columns).collect(),
        rows: rows.collect(),
    }
}

/// Gains within this, in per cent, are ties, and count as ahead.
const TIE_PERCENT: f64 = 0.05;

/// Means hide single workloads: on how many of them a policy is ahead of SET-10 on both metrics, on how many it is behind on
/// both, and its worst single results.
fn how_often_table(groups: &Groups) -> Table {
    let mut rows = Vec::new();
    for (high, group) in N_HIGH.iter().zip(groups) {
        for policy in [WEIR, MINDILATION] {
            let gains: Vec<(f64, f64)> = group.runs.iter().map(|run| gain(run[policy], run[SET10])).collect();
            let percent = |holds: fn(&(f64, f64)) -> bool| {
                100.0 * gains.iter().filter(|gain| holds(gain)).count() as f64 / gains.len() as f64
            };
            let ahead = percent(|gain| gain.0.min(gain.1) >= -TIE_PERCENT);
            let behind = percent(|gain| gain.0.max(gain.1) < 0.0);
            let worst = gains
                .iter()
                .fold((f64::MAX, f64::MAX), |worst, gain| (worst.0.min(gain.0), worst.1.min(gain.1)));
            rows.push(strings([
                &high.to_string(),
                &POLICIES[policy].to_string(),
                &format!("{ahead:.1}"),
                &format!("{behind:.1}"),
                &format!("{:+.2}", worst.0),
                &format!("{:+.2}", worst.1),
            ]));
        }
    }
    Table {
        id: "how-often".into(),
        caption: format!(
            "Against set10 on single workloads ({} at each n_H), in per cent; ahead within {TIE_PERCENT} % counts as ahead",
            groups[0].runs.len()
        ),
        columns: strings([
            "n_H",
            "policy",
            "ahead on both",
            "behind on both",
            "worst util.",
            "worst stretch",
        ]),
        rows,
    }
}

fn variants_table(sweep: &[Groups], repetitions: usize) -> Table {
    let mut rows = Vec::new();
    for (variant, groups) in VARIANTS.iter().zip(sweep) {
        for (high, group) in N_HIGH.iter().zip(groups) {
            let mut row = strings([variant.caption, &high.to_string()]);
            for score in [FAIR, SET10, WEIR].map(|policy| group.means[policy]) {
                row.push(format!("{:.4}", score.utilization));
                row.push(format!("{:.4}", score.stretch));
            }
            row.extend(group.margin().map(Gain::text));
            rows.push(row);
        }
    }
    Table {
        id: "variants".into(),
        caption: format!(
            "weir against the better of fair and set10, in per cent with the standard error; means over \
             {repetitions} workloads (as in the paper: {})",
            5 * repetitions
        ),
        columns: strings([
            "variant",
            "n_H",
            "fair util.",
            "stretch",
            "set10 util.",
            "stretch",
            "weir util.",
            "stretch",
            "gain util.",
            "gain stretch",
        ]),
        rows,
    }
}

fn figures(design: &[Workload], groups: &Groups) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ((name, metric, _), number) in METRICS.into_iter().zip(["Figure 1a", "Figure 1b"]) {
        let series = |points: &dyn Fn(usize) -> Vec<(f64, f64)>| -> Vec<Series> {
            let one = |(index, kind): (usize, &PolicyKind)| Series {
                name: kind.to_string(),
                points: points(index),
            };
            POLICIES.iter().enumerate().map(one).collect()
        };
        let figure = |id: String, caption: String, kind, series| Figure {
            id,
            caption,
            x: "n_H".into(),
            y: name.into(),
            kind,
            series,
        };
        figures.push(figure(
            format!("fig1-{name}"),
            format!("{number}: {name}, all {} workloads", design.len()),
            FigureKind::Scatter,
            series(&|index| design.iter().map(|(high, s)| (*high as f64, metric(&s[index]))).collect()),
        ));
        figures.push(figure(
            format!("fig1-{name}-means"),
            format!("{number}: {name}, means"),
            FigureKind::Line,
            series(&|index| {
                let means = groups.iter().map(|group| metric(&group.means[index]));
                N_HIGH.iter().map(|&high| high as f64).zip(means).collect()
            }),
        ));
    }
    figures
}

fn claims(context: &Context, design: &[Workload], sweep: &[Groups]) -> Vec<Claim> {
    let mut claims = of_the_paper(context, design, &sweep[0]);
    claims.extend(VARIANTS.iter().zip(sweep).map(|(variant, groups)| of_ours(variant, groups)));
    claims
}

/// The paper's two numbers are each the largest of 200 draws, which varies from seed to seed: they are
/// taken to hold within 4.2 to 5.9 % and 13.3 to 17.1 %. A quick run has fewer draws.
fn of_the_paper(context: &Context, design: &[Workload], groups: &Groups) -> Vec<Claim> {
    let (utilization, stretch) = largest_gain(design, SET10, FAIR);
    let none = groups[0].means;
    let many = groups[N_HIGH.len() - 1].means;
    let many = gain(many[SET10], many[FAIR]);
    let exclusive_is_worst =
        groups.iter().all(|g| g.means[EXCLUSIVE].stretch > g.means[FAIR].stretch.max(g.means[SET10].stretch));
    let with_200 = |holds: bool| (!context.quick).then_some(holds);
    vec![
        Claim {
            text: "SET-10 improves utilization over FAIR-SHARE by up to".into(),
            paper: "4.4 %".into(),
            ours: format!("{utilization:.1} %"),
            holds: with_200((4.2..=5.9).contains(&utilization)),
        },
        Claim {
            text: "SET-10 improves stretch over FAIR-SHARE by".into(),
            paper: "15.3 %".into(),
            ours: format!("{stretch:.1} %"),
            holds: with_200((13.3..=17.1).contains(&stretch)),
        },
        Claim {
            text: "the difference disappears as n_H increases (means at n_H = 40)".into(),
            paper: "no difference".into(),
            ours: format!("utilization {:+.1} %, stretch {:+.1} %", many.0, many.1),
            holds: Some(many.0.abs() < 0.5 && many.1.abs() < 0.5),
        },
        Claim {
            text: "EXCLUSIVE-FCFS has the worst stretch in all cases (means)".into(),
            paper: "yes".into(),
            ours: if exclusive_is_worst { "yes".into() } else { "not at every n_H".into() },
            holds: Some(exclusive_is_worst),
        },
        Claim {
            text: "means at n_H = 0, fair and set10".into(),
            paper: "SET-10 better (no numbers printed)".into(),
            ours: format!(
                "{:.3} and {:.3}, {:.3} and {:.3}",
                none[FAIR].utilization, none[SET10].utilization, none[FAIR].stretch, none[SET10].stretch
            ),
            holds: Some(
                none[SET10].utilization > none[FAIR].utilization && none[SET10].stretch < none[FAIR].stretch,
            ),
        },
    ]
}

/// One that is lost for certain is lost; one that is not won for certain leaves it open.
fn of_ours(variant: &Variant, groups: &Groups) -> Claim {
    let margins: Vec<[Gain; 2]> = groups.iter().map(Group::margin).collect();
    let verdicts = || margins.iter().flatten().map(|gain| gain.is_positive());
    let decided = verdicts().all(|verdict| verdict.is_some());
    let lost = verdicts().any(|verdict| verdict == Some(false));
    let least = |metric: usize| margins.iter().map(|gains| gains[metric]).reduce(Gain::lower);
    let [utilization, stretch] = [0, 1].map(|metric| least(metric).map_or(String::new(), Gain::text));
    Claim {
        text: format!("ours: weir beats fair and set10 at every n_H, {}", variant.caption),
        paper: "-".into(),
        ours: format!("least gain: utilization {utilization} %, stretch {stretch} %"),
        holds: (decided || lost).then_some(!lost),
    }
}
