//! `weir reproduce resources`: allocation and placement of I/O resources (RR-9549), Figures 5 to 13.

mod campaign;
mod claims;
mod figures;

use super::study::{Context, Study};
use campaign::{Campaign, Run};
use weir_engine::resources::{Allocator, Placer, Policy, curves};

/// Seed of the built-in curves: they are data, the same whatever the seed of a study.
const CURVES_SEED: u64 = 9549;

pub(super) fn study(context: &Context) -> Result<Study, String> {
    let (source, io_nodes) = match &context.curves {
        None => ("built-in curves".to_owned(), curves::synthetic(&curves::IO_NODES, CURVES_SEED)),
        Some(path) => {
            let name = path.display();
            let text =
                std::fs::read_to_string(path).map_err(|e| format!("cannot read curves {name}: {e}"))?;
            let curves = curves::parse_csv(&text).map_err(|e| format!("curves {name}: {e}"))?;
            (format!("{} measured curves", curves.len()), curves)
        }
    };
    let storage_targets = curves::synthetic(&curves::STORAGE_TARGETS, CURVES_SEED);
    let general = robust().map(Run::general);
    let runs = Policy::all().into_iter().map(Run::exact).chain(general).collect();
    let nodes = Campaign::new(context, "resources: I/O nodes", &io_nodes, runs)?;
    let runs = compared().into_iter().map(|(_, run)| run).collect();
    let targets = Campaign::new(context, "resources: storage targets", &storage_targets, runs)?;
    Ok(Study {
        id: "resources",
        title: format!("Allocation and placement of I/O resources (Inria RR-9549), {source}"),
        tables: figures::tables(&nodes, &targets, &io_nodes),
        figures: figures::figures(&nodes, &targets, &io_nodes),
        claims: claims::claims(&nodes, &targets),
    })
}

/// The allocations of Figures 8, 9 and 12, all with GNC, and ours.
fn compared() -> Vec<(&'static str, Run)> {
    let paper = Allocator::ALL.map(|a| (a.name(), Run::exact(Policy::TwoStep(a, Placer::Gnc))));
    let both_steps = [("mckp", Run::exact(Policy::Mckp)), ("weir", Run::exact(Policy::Weir))];
    paper.into_iter().chain(both_steps).collect()
}

/// The policies of Figure 11, and ours.
fn robust() -> [Policy; 4] {
    [
        Policy::TwoStep(Allocator::Ta, Placer::Gnc),
        Policy::TwoStep(Allocator::Bba, Placer::Gnc),
        Policy::TwoStep(Allocator::Bba, Placer::Gc),
        Policy::Weir,
    ]
}
