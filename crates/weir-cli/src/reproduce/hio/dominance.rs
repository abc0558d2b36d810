//! Where HIO helps and where it hurts, and what `slack` makes of the same calls.

use super::super::study::{Claim, Figure, FigureKind, Series, Table};
use super::trials::{Case, Summary, Workload, index};
use weir_engine::aggregators::workload::Slowest;
use weir_engine::aggregators::{Mode, Policy};

const DOMINANCE: [f64; 9] = [0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0];
const PLACES: [Slowest; 3] = [Slowest::Apart, Slowest::Anywhere, Slowest::Nowhere];
const APPLICATIONS: [usize; 2] = [6, 24];
const STORAGE_NODES: usize = 6;

fn words(slowest: Slowest) -> (&'static str, &'static str) {
    match slowest {
        Slowest::Apart => ("apart", "one slow aggregator per application, at different storage nodes"),
        Slowest::Anywhere => ("anywhere", "one slow aggregator per application, anywhere"),
        Slowest::Nowhere => ("nowhere", "all shuffle costs alike"),
    }
}

/// Reads with the slowest aggregators everywhere; of writes, whose order no shuffle cost touches, one kind.
pub(super) fn cases() -> Vec<Case> {
    let reads = PLACES.map(|slowest| (Mode::Read, slowest));
    let mut cases = Vec::new();
    for (mode, slowest) in reads.into_iter().chain([(Mode::Write, Slowest::Nowhere)]) {
        for applications in APPLICATIONS {
            for dominance in DOMINANCE {
                let workload = Workload::Synthetic { slowest, dominance };
                cases.push(Case { mode, applications, targets: STORAGE_NODES, workload });
            }
        }
    }
    cases
}

pub(super) fn report(cases: &[Case], summaries: &[Summary]) -> (Table, Vec<Figure>, Vec<Claim>) {
    let results: Vec<(&Case, &Summary)> = cases.iter().zip(summaries).collect();
    let figures = PLACES.map(|slowest| figure(slowest, &results));
    (table(&results), figures.into(), claims(&results))
}

/// HIO was made for reads; its figures are for as many applications as storage nodes, its best case.
fn figure(place: Slowest, results: &[(&Case, &Summary)]) -> Figure {
    let (id, text) = words(place);
    let chosen: Vec<(f64, &Summary)> = results
        .iter()
        .filter_map(|(case, summary)| match case.workload {
            Workload::Synthetic { slowest, dominance }
                if slowest == place && case.applications == STORAGE_NODES && case.mode == Mode::Read =>
            {
                Some((dominance, *summary))
            }
            _ => None,
        })
        .collect();
    let series = |policy: Policy| Series {
        name: policy.name().into(),
        points: chosen.iter().map(|(x, summary)| (*x, summary.gain(policy, Policy::Sio))).collect(),
    };
    Figure {
        id: format!("dominance-{id}"),
        caption: format!("Gain over SIO, 6 applications, 6 storage nodes: {text}"),
        x: "slowest shuffle / (m - 1)t".into(),
        y: "gain over SIO (%)".into(),
        kind: FigureKind::Line,
        series: [Policy::Hio, Policy::HioListing, Policy::Slack].map(series).into(),
    }
}

fn table(results: &[(&Case, &Summary)]) -> Table {
    let rows = results.iter().filter_map(|(case, summary)| {
        let Workload::Synthetic { slowest, dominance } = case.workload else { return None };
        let percent = |policy| format!("{:+.2}%", summary.gain(policy, Policy::Sio));
        let later = |policy| {
            format!("{:.1}%", 100.0 * summary.later[index(policy)] as f64 / summary.applications as f64)
        };
        Some(vec![
            if case.mode == Mode::Read { "read" } else { "write" }.into(),
            case.applications.to_string(),
            words(slowest).0.into(),
            dominance.to_string(),
            percent(Policy::Nio),
            percent(Policy::Hio),
            percent(Policy::HioListing),
            percent(Policy::Slack),
            later(Policy::Hio),
            later(Policy::HioListing),
            later(Policy::Slack),
        ])
    });
    let columns = [
        "mode",
        "m",
        "slowest",
        "dominance",
        "nio",
        "hio",
        "hio-listing",
        "slack",
        "hio later",
        "listing later",
        "slack later",
    ];
    Table {
        id: "dominance".into(),
        caption: "Gain over SIO in the mean, and applications that finish later than under SIO; 6 storage nodes, the \
                  slowest aggregator shuffles for dominance x (m - 1)t"
            .into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

fn claims(results: &[(&Case, &Summary)]) -> Vec<Claim> {
    let reads = |wanted: fn(f64, Slowest) -> bool| {
        let mut sum = Summary::default();
        for (case, summary) in results.iter().filter(|(case, _)| case.mode == Mode::Read) {
            if let Workload::Synthetic { slowest, dominance } = case.workload
                && wanted(dominance, slowest)
            {
                sum.add(summary);
            }
        }
        sum
    };
    let hio = index(Policy::Hio);
    let all = reads(|_, _| true);
    let best = reads(|dominance, slowest| dominance > 1.0 && slowest == Slowest::Apart);
    let small = reads(|dominance, _| dominance > 0.0 && dominance <= 0.5);
    let best_gain = best.gain(Policy::Hio, Policy::Sio);
    let small_gain = small.gain(Policy::Hio, Policy::Sio);
    vec![
        Claim {
            text: "section 5: at worst HIO performs as SIO".into(),
            paper: "never worse".into(),
            ours: format!("worse mean in {} of {} trials", all.worse[hio], all.trials()),
            holds: Some(all.worse[hio] == 0),
        },
        Claim {
            text: "HIO helps where the slowest aggregators dominate and are apart".into(),
            paper: "equation (9)".into(),
            ours: format!("{best_gain:+.1}% over SIO"),
            holds: Some(best_gain > 0.0),
        },
        Claim {
            text: "HIO helps where the slowest aggregator does not dominate (up to half of (m - 1)t)".into(),
            paper: "as SIO or better".into(),
            ours: format!("{small_gain:+.1}% over SIO"),
            holds: Some(small_gain >= 0.0),
        },
    ]
}
