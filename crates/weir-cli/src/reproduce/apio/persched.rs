//! PerSched's timetables beside those published, and beside the online heuristics.

use super::sets::{self, Set};
use super::{Score, counts};
use crate::reproduce::study::{Claim, Context, Figure, FigureKind, Series, Study, Table};
use crate::simulate::periodic::{POLICIES, execute, informed};
use weir_engine::sharing::periodic::{Plan, Search, Strategy, persched};

/// What became of one set.
struct Row {
    ours: Plan,
    /// Algorithm 1 to the letter: MaxSysEff, SysEfficiency alone, no tightening.
    printed: Plan,
    /// The same with MinDilation, which is how the published results were made.
    min_dilation: Plan,
    /// The policies at work, computing times as planned.
    runs: Vec<Score>,
}

/// The unit of Table 4 under which its applications contend for the storage.
pub(super) const MINUTE_S: f64 = 60.0;

pub(super) fn add(context: &Context, study: &mut Study) -> Result<(), String> {
    let (sets, origin) = match sets::persched()? {
        Some(sets) => (sets, "PerSched's published sets (WEIR_DATA)"),
        None => (
            sets::apex(MINUTE_S),
            "the sets of Table 3 in minutes; with WEIR_DATA set, PerSched's own are used",
        ),
    };
    let instances = if context.quick { 10 } else { 40 };
    let rows = context.map("apio: timetables", sets.len(), |index| row(&sets[index], instances));
    study.tables.push(plans(&sets, &rows, origin));
    study.tables.push(runs(&sets, &rows, origin));
    if sets.iter().all(|set| set.published.is_some()) {
        study.figures.push(figure("persched-sys-efficiency", "SysEfficiency", &sets, &rows, true));
        study.figures.push(figure("persched-dilation", "Dilation", &sets, &rows, false));
        study.claims.push(published_claim(&sets, &rows));
    }
    study.claims.push(online_claim(&sets, &rows));
    Ok(())
}

fn row(set: &Set, instances: usize) -> Row {
    let plan = |search: &Search| persched(&set.applications, set.bandwidth, search);
    let counts = counts(set, instances);
    let compute_s: Vec<Vec<f64>> =
        set.applications.iter().zip(counts).map(|(a, count)| vec![a.work_s; count]).collect();
    let run = |&kind: &_| {
        let policy = informed(kind, &set.applications, set.bandwidth, None);
        Score::of(&execute(kind, policy, &set.applications, set.bandwidth, &compute_s))
    };
    Row {
        ours: plan(&Search::BEST),
        printed: plan(&Search::PRINTED),
        min_dilation: plan(&Search { strategies: &[Strategy::MinDilation], ..Search::PRINTED }),
        runs: POLICIES.iter().map(run).collect(),
    }
}

fn score(plan: &Plan) -> Score {
    Score { sys_efficiency: plan.sys_efficiency, dilation: plan.dilation }
}

fn plans(sets: &[Set], rows: &[Row], origin: &str) -> Table {
    let row = |(set, row): (&Set, &Row)| {
        let (published, period) = match &set.published {
            Some(published) => (
                format!("{:.4} / {:.4}", published.sys_efficiency, published.dilation),
                format!("{:.0}", published.period_s),
            ),
            None => ("-".into(), "-".into()),
        };
        vec![
            set.number.to_string(),
            set.applications.len().to_string(),
            format!("{:.2}", set.load()),
            format!("{:.4}", set.bound()),
            published,
            score(&row.ours).cell(),
            score(&row.min_dilation).cell(),
            score(&row.printed).cell(),
            period,
            format!("{:.0}", row.ours.period_s),
        ]
    };
    Table {
        id: "persched".into(),
        caption: format!("Timetables, SysEfficiency / dilation: {origin}"),
        columns: [
            "set",
            "applications",
            "load",
            "bound",
            "published",
            "ours",
            "Algorithm 1, MinDilation",
            "Algorithm 1 as printed",
            "published period (s)",
            "our period (s)",
        ]
        .map(String::from)
        .to_vec(),
        rows: sets.iter().zip(rows).map(row).collect(),
    }
}

fn runs(sets: &[Set], rows: &[Row], origin: &str) -> Table {
    let mut columns = vec!["set".to_owned(), "timetable".to_owned()];
    columns.extend(POLICIES.iter().map(|kind| kind.to_string()));
    let row = |(set, row): (&Set, &Row)| {
        let mut cells = vec![set.number.to_string(), score(&row.ours).cell()];
        cells.extend(row.runs.iter().map(Score::cell));
        cells
    };
    Table {
        id: "online".into(),
        caption: format!("Policies at work, computing times as planned, SysEfficiency / dilation: {origin}"),
        columns,
        rows: sets.iter().zip(rows).map(row).collect(),
    }
}

fn figure(id: &str, y: &str, sets: &[Set], rows: &[Row], efficiency: bool) -> Figure {
    let pick = |score: Score| if efficiency { score.sys_efficiency } else { score.dilation };
    let series = |name: &str, value: &dyn Fn(usize) -> f64| Series {
        name: name.into(),
        points: sets.iter().enumerate().map(|(i, set)| (set.number as f64, value(i))).collect(),
    };
    let published = |i: usize| {
        let published = sets[i].published.as_ref();
        published.map_or(f64::NAN, |p| if efficiency { p.sys_efficiency } else { p.dilation })
    };
    Figure {
        id: id.into(),
        caption: format!("{y} of the timetables of PerSched's ten sets"),
        x: "set".into(),
        y: y.into(),
        kind: FigureKind::Scatter,
        series: vec![
            series("published", &published),
            series("ours", &|i| pick(score(&rows[i].ours))),
            series("Algorithm 1 as printed", &|i| pick(score(&rows[i].printed))),
        ],
    }
}

fn published_claim(sets: &[Set], rows: &[Row]) -> Claim {
    let mut lowest_efficiency: f64 = f64::INFINITY;
    let mut highest_dilation: f64 = 0.0;
    for (set, row) in sets.iter().zip(rows) {
        if let Some(published) = &set.published {
            lowest_efficiency = lowest_efficiency.min(row.ours.sys_efficiency / published.sys_efficiency);
            highest_dilation = highest_dilation.max(row.ours.dilation / published.dilation);
        }
    }
    Claim {
        text: "PerSched's published SysEfficiency and dilation are reached within 1 % on every set".into(),
        paper: "1 and 1, relative to what was published".into(),
        ours: format!("at least {lowest_efficiency:.4} and at most {highest_dilation:.4}"),
        holds: Some(lowest_efficiency >= 0.99 && highest_dilation <= 1.01),
    }
}

fn online_claim(sets: &[Set], rows: &[Row]) -> Claim {
    let online = POLICIES.iter().position(|kind| kind.to_string() == "minmax").unwrap_or(0);
    let better = |row: &&Row| {
        row.ours.sys_efficiency >= row.runs[online].sys_efficiency
            && row.ours.dilation <= row.runs[online].dilation
    };
    let count = rows.iter().filter(better).count();
    Claim {
        text: "The timetable is better than online scheduling (MinMax-0.5) when computing times are fixed"
            .into(),
        paper: "better on SysEfficiency and dilation".into(),
        ours: format!("better or equal on both in {count} of {} sets", sets.len()),
        holds: Some(count == sets.len()),
    }
}
