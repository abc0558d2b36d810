//! A decision tree learnt by C4.5 (Quinlan 1993) with the refinements of Weka's J48, which the AGIOS
//! paper used (section 4): gain ratio among splits of at least average gain, binary splits on numbers
//! with the description-length correction, collapsing, and pessimistic pruning with subtree raising.

use std::fmt;

/// J48's default: a split needs two branches with this many examples.
const MIN_EXAMPLES: f64 = 2.0;
/// J48's default confidence factor of the pessimistic error estimate.
const CONFIDENCE: f64 = 0.25;
/// The normal deviate that is exceeded with probability [`CONFIDENCE`].
const CONFIDENCE_DEVIATE: f64 = 0.674_489_750_196_081_7;
/// Gains closer than this are equal: the attribute named first keeps the split.
const SAME: f64 = 1e-6;

/// What an example is described by.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    pub name: String,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Split in two at a threshold.
    Number,
    /// Split into one branch per value; examples hold the index of the value.
    Choice(Vec<String>),
}

/// Attribute values in the order of [`Examples::attributes`], and the index of the right class.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    pub values: Vec<f64>,
    pub class: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Examples {
    pub attributes: Vec<Attribute>,
    pub classes: Vec<String>,
    pub rows: Vec<Example>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    attributes: Vec<Attribute>,
    classes: Vec<String>,
    root: Node,
}

/// `counts[class]` is the number of learnt examples that reach the node.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    counts: Vec<f64>,
    split: Option<Box<Split>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Split {
    test: Test,
    branches: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Test {
    attribute: usize,
    /// `None` for a choice.
    threshold: Option<f64>,
}

impl Test {
    fn branch(&self, values: &[f64]) -> usize {
        let value = values[self.attribute];
        match self.threshold {
            Some(threshold) => usize::from(value > threshold),
            None => value as usize,
        }
    }
}

impl Tree {
    /// Learns, collapses and prunes. Without examples the tree is one leaf that says the first class.
    pub fn learn(examples: &Examples) -> Tree {
        let learner = Learner { examples };
        let all: Vec<usize> = (0..examples.rows.len()).collect();
        let mut root = learner.grow(&all);
        collapse(&mut root);
        learner.prune(&mut root, &all);
        Tree { attributes: examples.attributes.clone(), classes: examples.classes.clone(), root }
    }

    /// The class for these attribute values, which are in the order of the examples'.
    pub fn classify(&self, values: &[f64]) -> usize {
        let mut node = &self.root;
        let mut class = majority(&node.counts);
        while let Some(split) = &node.split {
            match split.branches.get(split.test.branch(values)) {
                Some(branch) => node = branch,
                None => return class,
            }
            // A branch no example reached has no opinion: what held above it holds.
            if total(&node.counts) > 0.0 {
                class = majority(&node.counts);
            }
        }
        class
    }

    pub fn nodes(&self) -> usize {
        self.root.count(&|_| true)
    }

    pub fn leaves(&self) -> usize {
        self.root.count(&|node| node.split.is_none())
    }

    /// Whether any split asks for this attribute.
    pub fn uses(&self, name: &str) -> bool {
        let asks = |node: &Node| {
            node.split.as_ref().is_some_and(|split| self.attributes[split.test.attribute].name == name)
        };
        self.root.count(&asks) > 0
    }

    /// How many of these examples the tree classifies as they say.
    pub fn correct(&self, examples: &Examples) -> usize {
        examples.rows.iter().filter(|row| self.classify(&row.values) == row.class).count()
    }
}

/// One line per branch, indented by depth, as Weka prints trees.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_branches(&self.root, 0, f)
    }
}

impl Tree {
    fn write_branches(&self, node: &Node, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(split) = &node.split else {
            return if depth == 0 { writeln!(f, "{}", self.verdict(node)) } else { Ok(()) };
        };
        let Attribute { name, kind } = &self.attributes[split.test.attribute];
        for (index, branch) in split.branches.iter().enumerate() {
            write!(f, "{}{name} ", "|   ".repeat(depth))?;
            match (kind, split.test.threshold) {
                (Kind::Choice(values), _) => write!(f, "= {}", values[index])?,
                (Kind::Number, threshold) => {
                    write!(f, "{} {}", if index == 0 { "<=" } else { ">" }, threshold.unwrap_or_default())?;
                }
            }
            match branch.split {
                None if total(&branch.counts) > 0.0 => writeln!(f, ": {}", self.verdict(branch))?,
                None => writeln!(f, ": {}", self.verdict(node))?,
                Some(_) => {
                    writeln!(f)?;
                    self.write_branches(branch, depth + 1, f)?;
                }
            }
        }
        Ok(())
    }

    /// A leaf's class with its examples and, after a slash, those of another class.
    fn verdict(&self, leaf: &Node) -> String {
        let class = &self.classes[majority(&leaf.counts)];
        match errors(&leaf.counts) {
            0.0 => format!("{class} ({})", total(&leaf.counts)),
            wrong => format!("{class} ({}/{wrong})", total(&leaf.counts)),
        }
    }
}

impl Node {
    fn count(&self, wanted: &dyn Fn(&Node) -> bool) -> usize {
        let below = self.split.iter().flat_map(|split| &split.branches).map(|branch| branch.count(wanted));
        usize::from(wanted(self)) + below.sum::<usize>()
    }

    fn training_errors(&self) -> f64 {
        match &self.split {
            None => errors(&self.counts),
            Some(split) => split.branches.iter().map(Node::training_errors).sum(),
        }
    }

    fn estimated_errors(&self) -> f64 {
        match &self.split {
            None => pessimistic_errors(&self.counts),
            Some(split) => split.branches.iter().map(Node::estimated_errors).sum(),
        }
    }
}

/// Drops splits that do not even reduce the errors on the learnt examples.
fn collapse(node: &mut Node) {
    if node.split.is_some() && node.training_errors() >= errors(&node.counts) - 1e-3 {
        node.split = None;
    }
    node.split.iter_mut().flat_map(|split| &mut split.branches).for_each(collapse);
}

/// A split that may be taken: its test, how the examples fall, and its merits.
struct Candidate {
    test: Test,
    gain: f64,
    gain_ratio: f64,
}

struct Learner<'a> {
    examples: &'a Examples,
}

impl Learner<'_> {
    fn counts(&self, rows: &[usize]) -> Vec<f64> {
        let mut counts = vec![0.0; self.examples.classes.len()];
        for &row in rows {
            counts[self.examples.rows[row].class] += 1.0;
        }
        counts
    }

    fn branches(&self, test: &Test) -> usize {
        match &self.examples.attributes[test.attribute].kind {
            Kind::Number => 2,
            Kind::Choice(values) => values.len(),
        }
    }

    fn divide(&self, test: &Test, rows: &[usize]) -> Vec<Vec<usize>> {
        let mut parts = vec![Vec::new(); self.branches(test)];
        for &row in rows {
            parts[test.branch(&self.examples.rows[row].values)].push(row);
        }
        parts
    }

    fn grow(&self, rows: &[usize]) -> Node {
        let counts = self.counts(rows);
        let split = self.choose(rows, &counts).map(|test| {
            let branches = self.divide(&test, rows).iter().map(|part| self.grow(part)).collect();
            Box::new(Split { test, branches })
        });
        Node { counts, split }
    }

    /// The highest gain ratio among the splits whose gain is at least average: gain ratio alone
    /// would favour splits that hardly divide anything.
    fn choose(&self, rows: &[usize], counts: &[f64]) -> Option<Test> {
        if total(counts) < 2.0 * MIN_EXAMPLES || errors(counts) == 0.0 {
            return None;
        }
        let candidates: Vec<Candidate> = (0..self.examples.attributes.len())
            .filter_map(|attribute| match self.examples.attributes[attribute].kind {
                Kind::Number => self.number_split(attribute, rows, counts),
                Kind::Choice(_) => self.choice_split(attribute, rows, counts),
            })
            .collect();
        let average = candidates.iter().map(|c| c.gain).sum::<f64>() / candidates.len() as f64;
        let mut best: Option<&Candidate> = None;
        for candidate in candidates.iter().filter(|c| c.gain >= average - 1e-3) {
            if candidate.gain_ratio > best.map_or(0.0, |b| b.gain_ratio) + SAME {
                best = Some(candidate);
            }
        }
        best.map(|candidate| self.at_a_seen_value(candidate.test))
    }

    /// C4.5 names thresholds after values that occur: the largest one in all examples below the middle.
    fn at_a_seen_value(&self, test: Test) -> Test {
        let middle = test.threshold.unwrap_or(f64::NAN);
        let values = self.examples.rows.iter().map(|row| row.values[test.attribute]);
        let seen = values.filter(|&value| value <= middle).max_by(f64::total_cmp);
        Test { threshold: test.threshold.and(seen), ..test }
    }

    fn choice_split(&self, attribute: usize, rows: &[usize], counts: &[f64]) -> Option<Candidate> {
        let test = Test { attribute, threshold: None };
        let parts: Vec<_> = self.divide(&test, rows).iter().map(|part| self.counts(part)).collect();
        if parts.iter().filter(|part| total(part) >= MIN_EXAMPLES).count() < 2 {
            return None;
        }
        let gain = gain(counts, &parts);
        Some(Candidate { test, gain, gain_ratio: gain_ratio(gain, &parts) })
    }

    /// The threshold of highest gain, between two neighbouring values. Choosing it costs
    /// `log2(thresholds tried)` bits for all examples together, which the gain has to earn first.
    fn number_split(&self, attribute: usize, rows: &[usize], counts: &[f64]) -> Option<Candidate> {
        let value = |row: usize| self.examples.rows[row].values[attribute];
        let mut rows = rows.to_vec();
        rows.sort_by(|&a, &b| value(a).total_cmp(&value(b)).then(a.cmp(&b)));
        let smallest_side = (0.1 * total(counts) / counts.len() as f64).clamp(MIN_EXAMPLES, 25.0);
        let mut parts = vec![vec![0.0; counts.len()], counts.to_vec()];
        let (mut tried, mut best, mut best_parts, mut threshold) = (0_u32, 0.0, Vec::new(), 0.0);
        for pair in rows.windows(2) {
            let class = self.examples.rows[pair[0]].class;
            parts[0][class] += 1.0;
            parts[1][class] -= 1.0;
            let (below, above) = (value(pair[0]), value(pair[1]));
            if below + 1e-5 >= above || parts.iter().any(|part| total(part) < smallest_side) {
                continue;
            }
            tried += 1;
            let gain = gain(counts, &parts);
            if gain > best + SAME {
                (best, best_parts, threshold) = (gain, parts.clone(), below + (above - below) / 2.0);
            }
        }
        let gain = best - f64::from(tried).log2() / total(counts);
        if tried == 0 || gain <= SAME {
            return None;
        }
        let test = Test { attribute, threshold: Some(threshold) };
        Some(Candidate { test, gain, gain_ratio: gain_ratio(gain, &best_parts) })
    }

    /// Replaces a split by a leaf, or by its largest branch, where that is expected to err no more
    /// on examples not seen (C4.5's error-based pruning, with J48's tolerance of 0.1 errors).
    fn prune(&self, node: &mut Node, rows: &[usize]) {
        let Some(split) = &mut node.split else { return };
        let parts = self.divide(&split.test, rows);
        for (branch, part) in split.branches.iter_mut().zip(&parts) {
            self.prune(branch, part);
        }
        // The last of equally large branches, as in J48: T3 of the paper depends on it.
        let largest = (0..parts.len()).max_by_key(|&i| parts[i].len()).unwrap_or(0);
        let as_branch = self.estimated_errors_with(&split.branches[largest], rows);
        let as_leaf = pessimistic_errors(&node.counts);
        let as_is: f64 = split.branches.iter().map(Node::estimated_errors).sum();
        if as_leaf <= as_is + 0.1 && as_leaf <= as_branch + 0.1 {
            node.split = None;
        } else if as_branch <= as_is + 0.1 {
            *node = split.branches.swap_remove(largest);
            self.recount(node, rows);
            self.prune(node, rows);
        }
    }

    /// What `node` would be expected to err if all of `rows` came to it.
    fn estimated_errors_with(&self, node: &Node, rows: &[usize]) -> f64 {
        let Some(split) = &node.split else { return pessimistic_errors(&self.counts(rows)) };
        let parts = self.divide(&split.test, rows);
        split.branches.iter().zip(&parts).map(|(branch, part)| self.estimated_errors_with(branch, part)).sum()
    }

    fn recount(&self, node: &mut Node, rows: &[usize]) {
        node.counts = self.counts(rows);
        let Some(split) = &mut node.split else { return };
        let parts = self.divide(&split.test, rows);
        for (branch, part) in split.branches.iter_mut().zip(&parts) {
            self.recount(branch, part);
        }
    }
}

fn total(counts: &[f64]) -> f64 {
    counts.iter().sum()
}

/// The most frequent class, the first of equals.
fn majority(counts: &[f64]) -> usize {
    (0..counts.len()).rev().max_by(|&a, &b| counts[a].total_cmp(&counts[b])).unwrap_or(0)
}

/// Examples that are not of the most frequent class.
fn errors(counts: &[f64]) -> f64 {
    total(counts) - counts.iter().copied().fold(0.0, f64::max)
}

/// Entropy of a distribution, in bits, times its total.
fn entropy_bits(counts: &[f64]) -> f64 {
    let whole = total(counts);
    counts.iter().filter(|&&count| count > 0.0).map(|&count| count * (whole / count).log2()).sum()
}

/// Information gained per example by knowing the part.
fn gain(counts: &[f64], parts: &[Vec<f64>]) -> f64 {
    let after: f64 = parts.iter().map(|part| entropy_bits(part)).sum();
    (entropy_bits(counts) - after) / total(counts)
}

/// Gain per bit of the split itself.
fn gain_ratio(gain: f64, parts: &[Vec<f64>]) -> f64 {
    let sizes: Vec<f64> = parts.iter().map(|part| total(part)).collect();
    gain / (entropy_bits(&sizes) / total(&sizes))
}

/// Upper confidence limit of the errors of a leaf (Quinlan 1993, chapter 4), normal approximation
/// above one error.
fn pessimistic_errors(counts: &[f64]) -> f64 {
    let (n, errors) = (total(counts), errors(counts));
    if n == 0.0 {
        return 0.0;
    }
    if errors == 0.0 {
        return n * (1.0 - CONFIDENCE.powf(1.0 / n));
    }
    if errors + 0.5 >= n {
        return n;
    }
    let (z, f) = (CONFIDENCE_DEVIATE, (errors + 0.5) / n);
    let spread = z * (f / n - f * f / n + z * z / (4.0 * n * n)).sqrt();
    n * (f + z * z / (2.0 * n) + spread) / (1.0 + z * z / n)
}
