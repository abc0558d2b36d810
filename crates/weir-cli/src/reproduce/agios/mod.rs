//! `weir reproduce agios`: the decision trees of the paper, learnt from its Table III, and its situations
//! in a model of one server.

mod model;
mod outcomes;
mod trees;

use super::study::{Context, Study};

pub(super) fn study(context: &Context) -> Result<Study, String> {
    let mut study = Study {
        id: "agios",
        title: "AGIOS: automatic I/O scheduling algorithm selection for parallel file systems".into(),
        tables: Vec::new(),
        figures: Vec::new(),
        claims: Vec::new(),
    };
    trees::add(context, &mut study);
    outcomes::add(context, &mut study);
    Ok(study)
}

/// Text cells from anything that prints.
fn cells(values: &[&dyn std::fmt::Display]) -> Vec<String> {
    values.iter().map(|value| value.to_string()).collect()
}

fn percent(part: usize, whole: usize) -> String {
    format!("{:.2} %", 100.0 * part as f64 / whole as f64)
}
