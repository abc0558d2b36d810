//! Tables III, IV and V, the trees of section 4, and their cross-validation.

use super::super::study::{Claim, Context, Study, Table};
use super::{cells, percent};
use weir_engine::requests::select::{Inputs, Measurement, Selector, examples};
use weir_engine::requests::{Algorithm, cross_validation_errors, table3};

/// What the paper says of a tree: section 4, Tables IV and V.
struct Printed {
    name: &'static str,
    inputs: Inputs,
    nodes: usize,
    leaves: usize,
    correct: usize,
    cross_validation_percent: f64,
    /// Learnt from 8 processes per application and tried on 16, and the other way round.
    halves: [&'static str; 2],
}

const TREES: [Printed; 3] = [
    Printed {
        name: "T1",
        inputs: Inputs::All,
        nodes: 53,
        leaves: 27,
        correct: 192,
        cross_validation_percent: 8.85,
        halves: ["18.75 %", "5.21 %"],
    },
    Printed {
        name: "T2",
        inputs: Inputs::Live,
        nodes: 53,
        leaves: 27,
        correct: 192,
        cross_validation_percent: 8.33,
        halves: ["5.21 %", "5.21 %"],
    },
    Printed {
        name: "T3",
        inputs: Inputs::LiveWithoutFiles,
        nodes: 17,
        leaves: 9,
        correct: 142,
        cross_validation_percent: 30.21,
        halves: ["26.04 %", "26.04 %"],
    },
];

pub(super) fn add(context: &Context, study: &mut Study) {
    let all = table3::measurements(&[8, 16]);
    study.tables.push(table_iii());
    study.tables.push(t2_itself());
    add_sizes(study, &all);
    add_correct_selections(study, &all);
    add_halves(study);
    add_cross_validation(context, study, &all);
}

fn table_iii() -> Table {
    let mut columns = cells(&[&"Applications", &"Files", &"Spatiality", &"Requests", &"Operation"]);
    columns.extend(table3::CLUSTERS.iter().map(|cluster| cluster.name.to_string()));
    let row = |pattern: table3::Pattern| {
        let files = if pattern.file_per_process { "N to N" } else { "N to 1" };
        let mut row = cells(&[
            &pattern.applications,
            &files,
            &pattern.spatiality.name(),
            &pattern.request_size.name(),
            &pattern.operation.name(),
        ]);
        row.extend(pattern.best.map(|best| best.name().to_string()));
        row
    };
    Table {
        id: "table3".into(),
        caption: "Table III: the best algorithm in each situation (\"no AGIOS\" is to)".into(),
        columns,
        rows: table3::patterns().map(row).collect(),
    }
}

fn t2_itself() -> Table {
    let tree = Selector::of_the_paper().tree().to_string();
    Table {
        id: "t2".into(),
        caption: "T2, the tree that auto uses: class (examples) at each leaf".into(),
        columns: vec!["T2".into()],
        rows: tree.lines().map(|line| vec![line.to_string()]).collect(),
    }
}

fn claim(study: &mut Study, text: String, paper: String, ours: String) {
    let holds = paper == ours;
    study.claims.push(Claim { text, paper, ours, holds: Some(holds) });
}

fn add_sizes(study: &mut Study, all: &[Measurement]) {
    let mut rows = Vec::new();
    for printed in &TREES {
        let tree = Selector::learn(all, printed.inputs).tree().clone();
        let Printed { name, nodes, leaves, .. } = printed;
        rows.push(cells(&[name, nodes, &tree.nodes(), leaves, &tree.leaves()]));
        claim(
            study,
            format!("Size of {name} (section 4)"),
            format!("{nodes} nodes, {leaves} leaves"),
            format!("{} nodes, {} leaves", tree.nodes(), tree.leaves()),
        );
    }
    study.tables.push(Table {
        id: "sizes".into(),
        caption: "Section 4: nodes and leaves of the trees".into(),
        columns: cells(&[&"Tree", &"Nodes, paper", &"Nodes, ours", &"Leaves, paper", &"Leaves, ours"]),
        rows,
    });
}

fn add_correct_selections(study: &mut Study, all: &[Measurement]) {
    let of = |count: usize| format!("{count} of {}", all.len());
    let always = |algorithm: Algorithm| all.iter().filter(|m| m.best == algorithm).count();
    let mut solutions =
        vec![("aIOLi-only", 60, always(Algorithm::Aioli)), ("SJF-only", 92, always(Algorithm::Sjf))];
    for printed in &TREES {
        solutions.push((printed.name, printed.correct, Selector::learn(all, printed.inputs).correct(all)));
    }
    let mut rows = Vec::new();
    for (name, paper, ours) in solutions {
        rows.push(cells(&[&name, &of(paper), &of(ours), &percent(ours, all.len())]));
        claim(study, format!("Correct selections of {name} (Table IV)"), of(paper), of(ours));
    }
    study.tables.push(Table {
        id: "table4".into(),
        caption: "Table IV: situations in which the best algorithm is selected".into(),
        columns: cells(&[&"Solution", &"Paper", &"Ours", &"Ours, share"]),
        rows,
    });
}

fn add_halves(study: &mut Study) {
    let mut rows = Vec::new();
    for (which, (learnt_from, tried_on)) in [(8, 16), (16, 8)].into_iter().enumerate() {
        let (learnt_from, tried_on) =
            (table3::measurements(&[learnt_from]), table3::measurements(&[tried_on]));
        let name = ["8 clients", "16 clients"][which];
        let mut row = vec![format!("Tree generated with {name}")];
        for printed in &TREES {
            let wrong = tried_on.len() - Selector::learn(&learnt_from, printed.inputs).correct(&tried_on);
            let (paper, ours) = (printed.halves[which].to_string(), percent(wrong, tried_on.len()));
            row.extend([paper.clone(), ours.clone()]);
            let text = format!("Misclassification by {} generated with {name} (Table V)", printed.name);
            claim(study, text, paper, ours);
        }
        rows.push(row);
    }
    let names = TREES.iter().flat_map(|t| [format!("{}, paper", t.name), format!("{}, ours", t.name)]);
    study.tables.push(Table {
        id: "table5".into(),
        caption: "Table V: misclassification of one half of the situations by a tree learnt from the other"
            .into(),
        columns: [String::new()].into_iter().chain(names).collect(),
        rows,
    });
}

/// The paper validated once, with a shuffle we do not know: its figure should lie among ours.
fn add_cross_validation(context: &Context, study: &mut Study, all: &[Measurement]) {
    let shuffles = if context.quick { 50 } else { 500 };
    let mut rows = Vec::new();
    for printed in &TREES {
        let examples = examples(all, printed.inputs);
        let mut wrong =
            context.map(&format!("agios: cross-validation of {}", printed.name), shuffles, |index| {
                cross_validation_errors(
                    &examples,
                    10,
                    context.seed.wrapping_mul(1_000_003).wrapping_add(index as u64),
                )
            });
        wrong.sort_unstable();
        let mean = wrong.iter().sum::<usize>() as f64 / (wrong.len() * all.len()) as f64 * 100.0;
        let (least, most) = (percent(wrong[0], all.len()), percent(wrong[shuffles - 1], all.len()));
        let paper = format!("{:.2} %", printed.cross_validation_percent);
        let paper_wrong = (printed.cross_validation_percent / 100.0 * all.len() as f64).round() as usize;
        rows.push(cells(&[&printed.name, &paper, &format!("{mean:.2} %"), &least, &most]));
        study.claims.push(Claim {
            text: format!("Misclassification by {} in 10-fold cross-validation (section 4)", printed.name),
            paper,
            ours: format!("{mean:.2} % on average, {least} to {most} in {shuffles} shuffles"),
            holds: Some((wrong[0]..=wrong[shuffles - 1]).contains(&paper_wrong)),
        });
    }
    study.tables.push(Table {
        id: "crossvalidation".into(),
        caption: format!("Section 4: 10-fold cross-validation, {shuffles} shuffles"),
        columns: cells(&[&"Tree", &"Paper", &"Ours, mean", &"Least", &"Most"]),
        rows,
    });
}
