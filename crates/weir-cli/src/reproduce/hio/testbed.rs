//! Figures 8 to 13 on a model of the paper's cluster.

use super::super::study::{Claim, Figure, FigureKind, Series, Table};
use super::trials::{Case, Summary, Workload, index};
use weir_engine::aggregators::{Mode, Policy};

const MB: f64 = 1e6;

/// One of the paper's figures: what its x axis says, and the case at each x.
pub(super) struct Experiment {
    id: &'static str,
    caption: &'static str,
    x: &'static str,
    points: Vec<(f64, Case)>,
}

fn case(
    mode: Mode,
    applications: usize,
    targets: usize,
    aggregators: usize,
    request_bytes: f64,
    spread: f64,
) -> Case {
    Case { mode, applications, targets, workload: Workload::Testbed { aggregators, request_bytes, spread } }
}

/// What the paper leaves open is filled in from its other experiments: six storage nodes, six aggregators, 16 MB.
pub(super) fn experiments() -> Vec<Experiment> {
    let points = |xs: &[f64], case: &dyn Fn(f64) -> Case| xs.iter().map(|&x| (x, case(x))).collect();
    vec![
        Experiment {
            id: "fig8",
            caption: "Figure 8: mean execution time with concurrent applications (16 MB, 6 storage nodes)",
            x: "applications",
            points: points(&[6.0, 12.0, 24.0, 48.0], &|x| case(Mode::Read, x as usize, 6, 6, 16.0 * MB, 0.0)),
        },
        Experiment {
            id: "fig9",
            caption: "Figure 9: mean execution time by request size (6 applications, 6 storage nodes)",
            x: "request size (MB)",
            points: points(&[0.065536, 1.0, 5.0, 10.0], &|x| case(Mode::Read, 6, 6, 6, x * MB, 0.0)),
        },
        Experiment {
            id: "fig10",
            caption: "Figure 10: mean execution time by storage nodes (6 applications, 15 MB)",
            x: "storage nodes",
            points: points(&[2.0, 4.0, 6.0, 8.0, 16.0], &|x| {
                case(Mode::Read, 6, x as usize, x as usize, 15.0 * MB, 0.0)
            }),
        },
        Experiment {
            id: "fig11",
            caption: "Figure 11: mean execution time by aggregators (6 applications, 6 storage nodes, 16 MB)",
            x: "aggregators",
            points: points(&[5.0, 10.0, 15.0], &|x| case(Mode::Read, 6, 6, x as usize, 16.0 * MB, 0.0)),
        },
        Experiment {
            id: "fig12",
            caption: "Figure 12: collective write, mean execution time (16 MB, 6 storage nodes)",
            x: "applications",
            points: points(&[6.0, 12.0, 24.0, 48.0], &|x| {
                case(Mode::Write, x as usize, 6, 6, 16.0 * MB, 0.0)
            }),
        },
        Experiment {
            id: "fig13",
            caption: "Figure 13: 20 concurrent queries of normally distributed size, by their mean size",
            x: "query size per storage node (MB)",
            points: points(&[1.0, 4.0, 16.0, 64.0], &|x| case(Mode::Read, 20, 6, 6, x * MB, 0.4)),
        },
    ]
}

impl Experiment {
    pub(super) fn cases(&self) -> impl Iterator<Item = Case> {
        self.points.iter().map(|(_, case)| *case)
    }

    fn figure(&self, summaries: &[Summary]) -> Figure {
        let series = |policy: Policy| Series {
            name: policy.name().into(),
            points: self.points.iter().zip(summaries).map(|((x, _), s)| (*x, s.mean_s(policy))).collect(),
        };
        Figure {
            id: self.id.into(),
            caption: self.caption.into(),
            x: self.x.into(),
            y: "mean execution time (s)".into(),
            kind: FigureKind::Line,
            series: Policy::ALL.map(series).into(),
        }
    }
}

/// What the paper prints beside its figures; the figures themselves have no numbers in the text.
const PRINTED: [(&str, &str); 6] = [
    ("fig8", "HIO over NIO up to 34.1%, over SIO up to 15.2%"),
    ("fig9", "HIO 6.8% to 18.3%; shuffle 0.7% to 5.6% of the cost"),
    ("fig10", "HIO and SIO scale better than NIO, HIO best"),
    ("fig11", "HIO and SIO better than NIO, HIO best"),
    ("fig12", "HIO and SIO alike, about 12% over NIO"),
    ("fig13", "HIO over NIO up to 59.8%"),
];

/// `summaries` holds, experiment by experiment, one summary per point.
pub(super) fn report(experiments: &[Experiment], summaries: &[Summary]) -> (Table, Vec<Figure>, Vec<Claim>) {
    let mut rest = summaries;
    let mut results: Vec<(&Experiment, &[Summary])> = Vec::new();
    for experiment in experiments {
        let (these, others) = rest.split_at(experiment.points.len());
        results.push((experiment, these));
        rest = others;
    }
    let figures = results.iter().map(|(experiment, summaries)| experiment.figure(summaries)).collect();
    (gains(&results), figures, claims(&results))
}

fn gains(results: &[(&Experiment, &[Summary])]) -> Table {
    let mut rows = Vec::new();
    for (experiment, summaries) in results {
        let printed = PRINTED.iter().find(|(id, _)| *id == experiment.id).map_or("", |(_, text)| text);
        for ((x, _), summary) in experiment.points.iter().zip(*summaries) {
            let percent = |policy, base| format!("{:+.2}%", summary.gain(policy, base));
            rows.push(vec![
                experiment.id.into(),
                format!("{x} {}", experiment.x),
                format!("{:.2}%", 100.0 * summary.shuffle_share()),
                percent(Policy::Sio, Policy::Nio),
                percent(Policy::Hio, Policy::Nio),
                percent(Policy::Slack, Policy::Nio),
                percent(Policy::Hio, Policy::Sio),
                percent(Policy::HioListing, Policy::Sio),
                percent(Policy::Slack, Policy::Sio),
                printed.into(),
            ]);
        }
    }
    let columns = [
        "figure",
        "at",
        "shuffle share",
        "sio/nio",
        "hio/nio",
        "slack/nio",
        "hio/sio",
        "listing/sio",
        "slack/sio",
        "paper",
    ];
    Table {
        id: "gains".into(),
        caption: "Figures 8 to 13: how much shorter the mean execution time is than under another policy"
            .into(),
        columns: columns.map(String::from).to_vec(),
        rows,
    }
}

fn claims(results: &[(&Experiment, &[Summary])]) -> Vec<Claim> {
    let of = |id: &str| results.iter().find(|(e, _)| e.id == id).map_or(&[][..], |(_, summaries)| summaries);
    let most = |id: &str, policy, base| {
        of(id).iter().map(|s| s.gain(policy, base)).fold(f64::NEG_INFINITY, f64::max)
    };
    let reads = || ["fig8", "fig9", "fig10", "fig11"].into_iter().flat_map(of);
    let over_sio = reads().map(|s| s.gain(Policy::Hio, Policy::Sio)).fold(f64::NEG_INFINITY, f64::max);
    let over_nio = most("fig8", Policy::Hio, Policy::Nio);
    let by_size: Vec<f64> = of("fig9").iter().map(|s| s.gain(Policy::Hio, Policy::Nio)).collect();
    let share: Vec<f64> = of("fig9").iter().map(|s| 100.0 * s.shuffle_share()).collect();
    let ends = |values: &[f64]| match values {
        [first, .., last] => format!("{first:.1}% to {last:.1}%"),
        _ => String::new(),
    };
    let grows =
        by_size.windows(2).all(|pair| pair[1] > pair[0]) && share.windows(2).all(|pair| pair[1] > pair[0]);
    let hio = index(Policy::Hio);
    let writes = of("fig12");
    let (same, trials): (u64, u64) =
        writes.iter().fold((0, 0), |(same, trials), s| (same + s.same[hio], trials + s.trials()));
    let fasm = of("fig13").iter().map(|s| 100.0 * s.hio_best_over_nio).fold(f64::NEG_INFINITY, f64::max);
    vec![
        Claim::new(
            "figure 8: HIO is faster than NIO",
            "up to 34.1%",
            format!("up to {over_nio:.1}%"),
            over_nio > 25.0,
        ),
        Claim::new(
            "figures 8 to 11: HIO is faster than SIO; at these shuffle shares Algorithm 1 falls back to SIO's order",
            "up to 15.2%",
            format!("up to {over_sio:.1}%"),
            over_sio > 1.0,
        ),
        Claim::new(
            "figure 9: the shuffle's share grows with the request size",
            "0.7% to 5.6%",
            ends(&share),
            share.windows(2).all(|pair| pair[1] > pair[0]),
        ),
        Claim::new("figure 9: HIO's gain over NIO grows with it", "6.8% to 18.3%", ends(&by_size), grows),
        Claim::new(
            "figure 12: a collective write under HIO is one under SIO",
            "do not distinguish a lot",
            format!("the same in {same} of {trials} trials"),
            same == trials,
        ),
        Claim::new(
            "figure 13: HIO over NIO in one run; with equal requests equations (4) and (5) allow less than 50%",
            "up to 59.8%",
            format!("up to {fasm:.1}%"),
            fasm >= 59.8,
        ),
    ]
}
