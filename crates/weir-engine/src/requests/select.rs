//! `auto`: which of the five algorithms fits the access pattern and the device (section 4).

use super::tree::{Attribute, Example, Examples, Kind, Tree};
use super::{Algorithm, Operation, table3};

/// Whether an application's requests follow each other in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spatiality {
    Contiguous,
    NonContiguous,
}

/// Whether an application's request is smaller than a stripe, or so large that it needs every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSize {
    Small,
    Large,
}

impl Spatiality {
    pub fn name(self) -> &'static str {
        match self {
            Spatiality::Contiguous => "contiguous",
            Spatiality::NonContiguous => "non-contiguous",
        }
    }
}

impl RequestSize {
    pub fn name(self) -> &'static str {
        match self {
            RequestSize::Small => "small",
            RequestSize::Large => "large",
        }
    }
}

/// What is asked about a pattern and a device: attributes 1 to 6 of section 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    pub operation: Operation,
    pub files: u64,
    /// Only T1 asks for it: a server does not know it before the end.
    pub bytes_per_file: u64,
    pub spatiality: Spatiality,
    pub request_size: RequestSize,
    /// Sequential over random throughput, for this operation.
    pub seq_to_random: f64,
}

/// A situation, and the algorithm that was best in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    pub situation: Situation,
    pub best: Algorithm,
}

/// The paper's three trees differ in what they may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// T1: everything.
    All,
    /// T2: not the amount of data per file. This is what `auto` uses.
    Live,
    /// T3: nor the number of files.
    LiveWithoutFiles,
}

const ATTRIBUTES: [&str; 6] =
    ["operation", "files", "bytes_per_file", "spatiality", "request_size", "seq_to_random"];

impl Inputs {
    /// The attributes by name, in the order in which section 4 lists them.
    fn names(self) -> impl Iterator<Item = &'static str> {
        ATTRIBUTES.into_iter().filter(move |&name| match name {
            "bytes_per_file" => self == Inputs::All,
            "files" => self != Inputs::LiveWithoutFiles,
            _ => true,
        })
    }

    fn values(self, situation: &Situation) -> Vec<f64> {
        self.names().map(|name| situation.value(name)).collect()
    }
}

fn kind(attribute: &str) -> Kind {
    let choice = |values: [&str; 2]| Kind::Choice(values.map(String::from).to_vec());
    match attribute {
        "operation" => choice([Operation::Read.name(), Operation::Write.name()]),
        "spatiality" => choice([Spatiality::Contiguous.name(), Spatiality::NonContiguous.name()]),
        "request_size" => choice([RequestSize::Small.name(), RequestSize::Large.name()]),
        _ => Kind::Number,
    }
}

impl Situation {
    /// As the tree sees it: a number, or the index of the choice.
    fn value(&self, attribute: &str) -> f64 {
        match attribute {
            "operation" => f64::from(u8::from(self.operation == Operation::Write)),
            "files" => self.files as f64,
            "bytes_per_file" => self.bytes_per_file as f64,
            "spatiality" => f64::from(u8::from(self.spatiality == Spatiality::NonContiguous)),
            "request_size" => f64::from(u8::from(self.request_size == RequestSize::Large)),
            _ => self.seq_to_random,
        }
    }
}

/// The measurements as examples for a tree.
pub fn examples(measurements: &[Measurement], inputs: Inputs) -> Examples {
    let attributes =
        inputs.names().map(|name| Attribute { name: name.to_string(), kind: kind(name) }).collect();
    let class = |best| Algorithm::ALL.iter().position(|&algorithm| algorithm == best).unwrap_or(0);
    let row = |m: &Measurement| Example { values: inputs.values(&m.situation), class: class(m.best) };
    Examples {
        attributes,
        classes: Algorithm::ALL.iter().map(|algorithm| algorithm.name().to_string()).collect(),
        rows: measurements.iter().map(row).collect(),
    }
}

/// A tree that names an algorithm for a situation.
#[derive(Clone, Debug)]
pub struct Selector {
    inputs: Inputs,
    tree: Tree,
}

impl Selector {
    /// Learns from measurements, of the paper or one's own.
    pub fn learn(measurements: &[Measurement], inputs: Inputs) -> Self {
        Selector { inputs, tree: Tree::learn(&examples(measurements, inputs)) }
    }

    /// T2, learnt from the 192 situations of Table III.
    pub fn of_the_paper() -> Self {
        Selector::learn(&table3::measurements(&[8, 16]), Inputs::Live)
    }

    pub fn choose(&self, situation: &Situation) -> Algorithm {
        Algorithm::ALL[self.tree.classify(&self.inputs.values(situation))]
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// How many of these measurements it agrees with.
    pub fn correct(&self, measurements: &[Measurement]) -> usize {
        measurements.iter().filter(|m| self.choose(&m.situation) == m.best).count()
    }
}
