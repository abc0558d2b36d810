//! The tables and figures. The paper prints its results as plots only, without values: what it says about
//! them in words stands in the captions.

use super::super::study::{Figure, FigureKind, Series, Table};
use super::campaign::{Campaign, Measured, Run, Summary, mean};
use super::{compared, robust};
use weir_engine::resources::curves::{self, Behaviour};
use weir_engine::resources::{Allocator, Placer, Policy};

const LOAD: &str = "I/O-load(pi_sys)";

type Value = fn(&Measured) -> f64;
const SLOWDOWN: Value = |m| m.slowdown;
const SLOWDOWN_IO: Value = |m| m.slowdown_io;
const SLOWDOWN_CONGESTION: Value = Measured::slowdown_congestion;
const IDLETIME: Value = |m| m.idletime;
const SPREAD: Value = |m| m.spread;

/// What the figures do not show: how many curves and sets there are, the spread over the sets, and MCKP
/// and random, which are off every scale that shows the others.
pub(super) fn tables(nodes: &Campaign, targets: &Campaign, curves: &[Vec<f64>]) -> Vec<Table> {
    vec![
        behaviours(curves),
        by_load(
            nodes,
            "fig8_spread",
            "Figure 8 (I/O nodes): Mean-I/O-SlowDown, mean (10th-90th percentile)",
            SLOWDOWN,
        ),
        by_load(nodes, "fig9_spread", "Figure 9 (I/O nodes): Machine-Idletime", IDLETIME),
        by_load(targets, "fig12a_spread", "Figure 12 (storage targets): Mean-I/O-SlowDown", SLOWDOWN),
        by_load(targets, "fig12b_spread", "Figure 12 (storage targets): Machine-Idletime", IDLETIME),
    ]
}

pub(super) fn figures(nodes: &Campaign, targets: &Campaign, curves: &[Vec<f64>]) -> Vec<Figure> {
    let slowdown_above_gc = "Mean-I/O-SlowDown above GC's (%)";
    vec![
        line("fig5a", "GNC against GC", slowdown_above_gc, against_gc(nodes, Placer::Gnc)),
        line("fig5b", "RandP against GC", slowdown_above_gc, against_gc(nodes, Placer::Rand)),
        spreads(nodes),
        line("fig7", "I/O-spread of the placements under BBA", "I/O-spread", spread_by_load(nodes)),
        lines(nodes, "fig8a", "I/O nodes, GNC", "Mean-I/O-SlowDown", SLOWDOWN),
        lines(nodes, "fig8b", "I/O nodes, GNC", "rho_io", SLOWDOWN_IO),
        lines(nodes, "fig8c", "I/O nodes, GNC", "rho_con", SLOWDOWN_CONGESTION),
        lines(nodes, "fig9", "I/O nodes, GNC", "Machine-Idletime", IDLETIME),
        profiles(curves),
        line("fig11a", "What general curves cost", "Mean-I/O-SlowDown above exact (%)", generality(nodes)),
        line("fig11b", "With general curves", "Machine-Idletime", general_idletime(nodes)),
        lines(targets, "fig12a", "Storage targets, GNC", "Mean-I/O-SlowDown", SLOWDOWN),
        lines(targets, "fig12b", "Storage targets, GNC", "Machine-Idletime", IDLETIME),
        line(
            "fig13",
            "Storage targets against I/O nodes",
            "Mean-I/O-SlowDown above (%)",
            between(nodes, targets),
        ),
    ]
}

fn points(summaries: &[Summary], scale: f64) -> Vec<(f64, f64)> {
    summaries.iter().map(|s| (s.load, s.mean * scale)).collect()
}

fn line(id: &str, caption: &str, y: &str, series: Vec<Series>) -> Figure {
    let text = |s: &str| s.to_owned();
    Figure { id: text(id), caption: text(caption), x: text(LOAD), y: text(y), kind: FigureKind::Line, series }
}

/// The compared policies, without MCKP and random.
fn lines(campaign: &Campaign, id: &str, caption: &str, y: &str, value: Value) -> Figure {
    let shown = compared().into_iter().filter(|(name, _)| !["mckp", "random"].contains(name));
    let series = shown.map(|(name, run)| Series {
        name: name.to_owned(),
        points: points(&campaign.by_load(run, value), 1.0),
    });
    line(id, caption, y, series.collect())
}

fn against_gc(nodes: &Campaign, placer: Placer) -> Vec<Series> {
    let series = |allocator: Allocator| {
        let run = |placer| Run::exact(Policy::TwoStep(allocator, placer));
        let above = nodes.above(run(placer), run(Placer::Gc), SLOWDOWN);
        Series { name: allocator.name().to_owned(), points: points(&above, 100.0) }
    };
    Allocator::ALL.map(series).into()
}

fn spreads(nodes: &Campaign) -> Figure {
    let series = |placer: Placer| {
        let spread = |(i, &allocator): (usize, &Allocator)| {
            let run = Run::exact(Policy::TwoStep(allocator, placer));
            (i as f64, mean(&nodes.within(0.45, 0.55, run, SPREAD)))
        };
        Series {
            name: placer.name().to_owned(),
            points: Allocator::ALL.iter().enumerate().map(spread).collect(),
        }
    };
    let names = Allocator::ALL.map(Allocator::name).join(", ");
    Figure {
        id: "fig6".into(),
        caption: "I/O-spread at I/O-load(pi_sys) 0.5 ± 0.05".into(),
        x: format!("allocation: {names}"),
        y: "I/O-spread".into(),
        kind: FigureKind::Bars,
        series: Placer::ALL.map(series).into(),
    }
}

fn spread_by_load(nodes: &Campaign) -> Vec<Series> {
    let series = |placer: Placer| {
        let run = Run::exact(Policy::TwoStep(Allocator::Bba, placer));
        Series { name: placer.name().to_owned(), points: points(&nodes.by_load(run, SPREAD), 1.0) }
    };
    Placer::ALL.map(series).into()
}

fn generality(nodes: &Campaign) -> Vec<Series> {
    let series = |policy: Policy| {
        let above = nodes.above(Run::general(policy), Run::exact(policy), SLOWDOWN);
        Series { name: policy.name(), points: points(&above, 100.0) }
    };
    robust().map(series).into()
}

fn general_idletime(nodes: &Campaign) -> Vec<Series> {
    let series = |policy: Policy| {
        let idletime = nodes.by_load(Run::general(policy), IDLETIME);
        Series { name: policy.name(), points: points(&idletime, 1.0) }
    };
    robust().map(series).into()
}

/// Per policy, by how much the mean slowdown on storage targets is above that on I/O nodes.
fn between(nodes: &Campaign, targets: &Campaign) -> Vec<Series> {
    let shown = compared().into_iter().filter(|(name, _)| !["mckp", "random"].contains(name));
    let series = shown.map(|(name, run)| {
        let ours = targets.by_load(run, SLOWDOWN);
        let theirs = nodes.by_load(run, SLOWDOWN);
        let same =
            |s: &Summary| theirs.iter().find(|t| t.load == s.load).map(|t| (s.mean / t.mean - 1.0) * 100.0);
        let points = ours.iter().filter_map(|s| Some((s.load, same(s)?))).collect();
        Series { name: name.to_owned(), points }
    });
    series.collect()
}

fn profiles(curves: &[Vec<f64>]) -> Figure {
    let series = |(behaviour, profile): (Behaviour, &Option<Vec<f64>>)| {
        let profile = profile.as_ref()?;
        let points = profile.iter().enumerate().map(|(i, b)| ((i + 1) as f64, *b)).collect();
        Some(Series { name: behaviour.name().to_owned(), points })
    };
    let fitted = curves::profiles(curves);
    let series = Behaviour::ALL.into_iter().zip(&fitted).filter_map(series).collect();
    let caption = "The general curve of each behaviour: the mean of the normalised curves";
    Figure { x: "I/O resources".into(), ..line("fig10", caption, "bandwidth, normalised", series) }
}

fn table(id: &str, caption: &str, columns: Vec<String>, rows: Vec<Vec<String>>) -> Table {
    Table { id: id.to_owned(), caption: caption.to_owned(), columns, rows }
}

/// A first column of names, then the bins of a campaign.
fn columns(first: &str, campaign: &Campaign) -> Vec<String> {
    let bins = campaign.bins().map(|(load, sets)| format!("{:.1}-{:.1} ({sets})", load - 0.05, load + 0.05));
    std::iter::once(first.to_owned()).chain(bins).collect()
}

fn by_load(campaign: &Campaign, id: &str, caption: &str, value: Value) -> Table {
    let cell = |s: &Summary| format!("{:.3} ({:.2}-{:.2})", s.mean, s.p10, s.p90);
    let row = |(name, run): (&str, Run)| {
        let cells = campaign.by_load(run, value);
        std::iter::once(name.to_owned()).chain(cells.iter().map(cell)).collect()
    };
    table(id, caption, columns("allocation", campaign), compared().into_iter().map(row).collect())
}

fn behaviours(curves: &[Vec<f64>]) -> Table {
    let row = |behaviour: Behaviour| {
        let alike = curves.iter().filter(|c| Behaviour::of(c) == behaviour).count();
        vec![behaviour.name().to_owned(), alike.to_string()]
    };
    let columns = vec!["behaviour".into(), "curves".into()];
    table("fig1", "Figure 1: behaviours of the curves in use", columns, Behaviour::ALL.map(row).into())
}
