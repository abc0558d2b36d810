//! The decision trees of the AGIOS paper, and learning from one's own measurements.

use proptest::prelude::*;
use weir_engine::requests::select::{Inputs, Measurement, RequestSize, Selector, Situation, Spatiality};
use weir_engine::requests::tree::{Attribute, Example, Examples, Kind, Tree};
use weir_engine::requests::{Algorithm, Operation, measurements_from_csv, table3};

fn wrong(learnt_from: u64, tried_on: u64, inputs: Inputs) -> usize {
    let tried_on = table3::measurements(&[tried_on]);
    tried_on.len() - Selector::learn(&table3::measurements(&[learnt_from]), inputs).correct(&tried_on)
}

#[test]
fn table_iii_has_the_counts_of_table_iv() {
    let all = table3::measurements(&[8, 16]);
    let count = |algorithm| all.iter().filter(|m| m.best == algorithm).count();
    assert_eq!(all.len(), 192);
    assert_eq!(count(Algorithm::Aioli), 60);
    assert_eq!(count(Algorithm::Sjf), 92);
    assert!(Algorithm::ALL.into_iter().all(|algorithm| count(algorithm) > 0));
}

#[test]
fn trees_are_those_of_section_4_and_table_iv() {
    let all = table3::measurements(&[8, 16]);
    for (inputs, correct, nodes, leaves) in
        [(Inputs::All, 192, 53, 27), (Inputs::Live, 192, 53, 27), (Inputs::LiveWithoutFiles, 142, 17, 9)]
    {
        let selector = Selector::learn(&all, inputs);
        let tree = selector.tree();
        assert_eq!((selector.correct(&all), tree.nodes(), tree.leaves()), (correct, nodes, leaves));
    }
}

#[test]
fn t1_and_t2_use_every_attribute_they_are_given() {
    let all = table3::measurements(&[8, 16]);
    let live = ["operation", "files", "spatiality", "request_size", "seq_to_random"];
    let t1 = Selector::learn(&all, Inputs::All);
    let t2 = Selector::learn(&all, Inputs::Live);
    assert!(t1.tree().uses("bytes_per_file") && !t2.tree().uses("bytes_per_file"));
    for name in live {
        assert!(t1.tree().uses(name) && t2.tree().uses(name), "{name}");
    }
}

#[test]
fn misclassifications_are_those_of_table_v() {
    // 18.75 %, 5.21 % and 26.04 % of 96.
    assert_eq!((wrong(8, 16, Inputs::All), wrong(16, 8, Inputs::All)), (18, 5));
    assert_eq!((wrong(8, 16, Inputs::Live), wrong(16, 8, Inputs::Live)), (5, 5));
    assert_eq!((wrong(8, 16, Inputs::LiveWithoutFiles), wrong(16, 8, Inputs::LiveWithoutFiles)), (25, 25));
}

#[test]
fn half_the_situations_give_the_trees_that_section_5_describes() {
    let half =
        |processes, inputs| Selector::learn(&table3::measurements(&[processes]), inputs).tree().to_string();
    assert_eq!(half(8, Inputs::Live), half(16, Inputs::Live));
    assert_eq!(half(16, Inputs::All), half(16, Inputs::Live));
    assert_ne!(half(8, Inputs::All), half(8, Inputs::Live));
}

/// One number and one choice, which `class_of` decides from.
fn made_up(rows: &[(f64, usize)], class_of: impl Fn(f64, usize) -> usize) -> Examples {
    let choice = Kind::Choice(vec!["no".into(), "yes".into()]);
    Examples {
        attributes: vec![
            Attribute { name: "size".into(), kind: Kind::Number },
            Attribute { name: "shared".into(), kind: choice },
        ],
        classes: vec!["a".into(), "b".into()],
        rows: rows
            .iter()
            .map(|&(size, shared)| Example {
                values: vec![size, shared as f64],
                class: class_of(size, shared),
            })
            .collect(),
    }
}

#[test]
fn closed_forms_of_small_trees() {
    let rows: Vec<(f64, usize)> = (0..20).map(|i| (f64::from(i), (i % 2) as usize)).collect();
    // A threshold splits at the largest value seen below it.
    let tree = Tree::learn(&made_up(&rows, |size, _| usize::from(size > 9.0)));
    assert_eq!(tree.to_string(), "size <= 9: a (10)\nsize > 9: b (10)\n");
    let tree = Tree::learn(&made_up(&rows, |_, shared| shared));
    assert_eq!(tree.to_string(), "shared = no: a (10)\nshared = yes: b (10)\n");
    // One class needs no question; nor is one exception in twenty worth one.
    let tree = Tree::learn(&made_up(&rows, |_, _| 1));
    assert_eq!((tree.to_string().as_str(), tree.nodes(), tree.leaves()), ("b (20)\n", 1, 1));
    let tree = Tree::learn(&made_up(&rows, |size, _| usize::from(size != 7.0)));
    assert_eq!(tree.to_string(), "b (20/1)\n");
    // Nothing learnt, first class said.
    assert_eq!(Tree::learn(&made_up(&[], |_, _| 0)).classify(&[1.0, 0.0]), 0);
}

#[test]
fn a_branch_without_examples_says_what_holds_above_it() {
    let mut examples = made_up(&[(0.0, 0), (0.0, 0), (0.0, 1), (0.0, 1), (0.0, 1)], |_, shared| shared);
    examples.attributes[1].kind = Kind::Choice(["no", "yes", "maybe"].map(String::from).to_vec());
    let tree = Tree::learn(&examples);
    assert_eq!((tree.leaves(), tree.classify(&[0.0, 2.0])), (3, 1));
    assert_eq!(tree.classify(&[0.0, 7.0]), 1);
}

const HEADER: &str = "operation,files,spatiality,request_size,seq_to_random,best";

fn csv(m: &Measurement) -> String {
    let Situation { operation, files, spatiality, request_size, seq_to_random, .. } = m.situation;
    let (operation, spatiality, size) = (operation.name(), spatiality.name(), request_size.name());
    format!("{operation},{files},{spatiality},{size},{seq_to_random},{}", m.best.name())
}

#[test]
fn table_iii_written_as_csv_gives_t2() {
    let rows: Vec<String> = table3::measurements(&[8, 16]).iter().map(csv).collect();
    let read = measurements_from_csv(&format!("# Table III\n{HEADER}\r\n{}\n\n", rows.join("\r\n"))).unwrap();
    let ours = Selector::learn(&read, Inputs::Live);
    assert_eq!(ours.tree().to_string(), Selector::of_the_paper().tree().to_string());
}

#[test]
fn the_shortest_time_is_best() {
    let header = "request_size,spatiality,files,operation,seq_to_random,to,sjf,aioli";
    let text =
        format!("{header}\nsmall,contiguous,3,read,2.5,10,9,9\nlarge,non-contiguous,1,write,0.5,4,,4.5\n");
    let read = measurements_from_csv(&text).unwrap();
    assert_eq!(read.iter().map(|m| m.best).collect::<Vec<_>>(), [Algorithm::Sjf, Algorithm::To]);
    let Situation { operation, files, spatiality, request_size, seq_to_random, .. } = read[1].situation;
    assert_eq!((operation, files, seq_to_random), (Operation::Write, 1, 0.5));
    assert_eq!((spatiality, request_size), (Spatiality::NonContiguous, RequestSize::Large));
}

#[test]
fn bad_csv_names_line_and_column() {
    let row = "read,1,contiguous,small,2,sjf";
    for (text, expected) in [
        (String::new(), "line 1: no header"),
        (HEADER.to_string(), "line 1: a header and no situation"),
        (format!("{HEADER},color\n{row},red"), "line 1, column \"color\": no such column"),
        (format!("{HEADER},files\n{row},1"), "line 1, column files: given twice"),
        (HEADER.replace("files,", ""), "line 1, column files: missing"),
        (HEADER.replace(",best", ""), "line 1, column best: missing, and no times"),
        (format!("{HEADER},mlf\n{row},1"), "line 1, column best: give it or times"),
        (format!("{HEADER}\n{row}\n{row},1"), "line 3: 7 columns where the header has 6"),
        (
            format!("{HEADER}\n{row}\n{}", row.replace("read", "rite")),
            "line 3, column operation: expected read or write, found \"rite\"",
        ),
        (
            format!("{HEADER}\n{}", row.replace(",1,", ",0,")),
            "line 2, column files: expected a whole number above 0, found \"0\"",
        ),
        (
            format!("{HEADER}\n{}", row.replace("contiguous", "random")),
            "line 2, column spatiality: expected contiguous or non-contiguous",
        ),
        (
            format!("{HEADER}\n{}", row.replace("small", "")),
            "line 2, column request_size: expected small or large, found \"\"",
        ),
        (
            format!("{HEADER}\n{}", row.replace(",2,", ",NaN,")),
            "line 2, column seq_to_random: expected a number above 0, found \"NaN\"",
        ),
        (format!("{HEADER}\n{}", row.replace("sjf", "auto")), "line 2, column best: expected to or to-agg"),
        (
            format!("{}\n{}", HEADER.replace("best", "to,mlf"), row.replace("sjf", "3,-1")),
            "line 2, column mlf: expected a number above 0",
        ),
        (
            format!("{}\n{}", HEADER.replace("best", "to,mlf"), row.replace("sjf", ",")),
            "line 2, columns to…aioli: no time",
        ),
    ] {
        let error = measurements_from_csv(&text).expect_err(&text);
        assert!(error.starts_with(expected), "{text}\n{error}\n{expected}");
    }
}

proptest! {
    /// Whatever is learnt, a tree has one leaf more than splits (all attributes here have two branches),
    /// errs no more than its largest class would, and the same examples give the same tree.
    #[test]
    fn any_examples_give_a_sound_tree(rows in prop::collection::vec((0_u8..6, 0_usize..2, 0_usize..2), 0..60)) {
        let classes: Vec<usize> = rows.iter().map(|row| row.2).collect();
        let points: Vec<(f64, usize)> = rows.iter().map(|row| (f64::from(row.0), row.1)).collect();
        let mut examples = made_up(&points, |_, _| 0);
        for (example, &class) in examples.rows.iter_mut().zip(&classes) {
            example.class = class;
        }
        let tree = Tree::learn(&examples);
        let ones = classes.iter().sum::<usize>();
        prop_assert_eq!(tree.nodes(), 2 * tree.leaves() - 1);
        prop_assert!(tree.correct(&examples) >= ones.max(rows.len() - ones));
        prop_assert_eq!(tree, Tree::learn(&examples));
    }

    #[test]
    fn no_csv_panics(text in "[a-z0-9_,.\n#\"-]{0,200}") {
        let _ = measurements_from_csv(&text);
        let _ = measurements_from_csv(&format!("{HEADER}\n{text}"));
    }
}
