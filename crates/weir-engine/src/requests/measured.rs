//! One's own measurements, from CSV text: what `auto` learns from instead of the paper's.
//!
//! A line per situation. Columns, in any order: `operation` (read, write), `files`, `spatiality`
//! (contiguous, non-contiguous), `request_size` (small, large), `seq_to_random`, optionally
//! `bytes_per_file`; and either `best`, the name of an algorithm, or a column per algorithm (`to`,
//! `to-agg`, `sjf`, `mlf`, `aioli`) with the time it took, empty where it was not measured. The shortest
//! time is best, the first in this order among equals. Lines that begin with `#` are comments.

use super::select::{Measurement, RequestSize, Situation, Spatiality};
use super::{Algorithm, Operation};

/// Situations a file may have: a tree is learnt in seconds from as many.
const MAX_MEASUREMENTS: usize = 10_000;

/// Reads measurements. An error names the line and the column.
pub fn measurements_from_csv(text: &str) -> Result<Vec<Measurement>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (number, header) = lines.next().ok_or("line 1: no header")?;
    let columns = Columns::from_header(header).map_err(|e| format!("line {number}, {e}"))?;
    let mut measurements = Vec::new();
    for (number, line) in lines {
        if measurements.len() == MAX_MEASUREMENTS {
            return Err(format!("line {number}: more than {MAX_MEASUREMENTS} situations"));
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != columns.names.len() {
            let (found, wanted) = (fields.len(), columns.names.len());
            return Err(format!("line {number}: {found} columns where the header has {wanted}"));
        }
        let row = Row { columns: &columns, fields };
        measurements.push(row.measurement().map_err(|e| format!("line {number}, {e}"))?);
    }
    if measurements.is_empty() {
        return Err(format!("line {number}: a header and no situation"));
    }
    Ok(measurements)
}

const REQUIRED: [&str; 5] = ["operation", "files", "spatiality", "request_size", "seq_to_random"];

struct Columns<'a> {
    names: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn from_header(header: &'a str) -> Result<Self, String> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        for (index, &name) in names.iter().enumerate() {
            let known = REQUIRED.contains(&name) || Algorithm::named(name).is_some();
            if !known && !["best", "bytes_per_file"].contains(&name) {
                return Err(format!("column {name:?}: no such column"));
            }
            if names[..index].contains(&name) {
                return Err(format!("column {name}: given twice"));
            }
        }
        if let Some(missing) = REQUIRED.iter().find(|name| !names.contains(name)) {
            return Err(format!("column {missing}: missing"));
        }
        let timed = names.iter().any(|name| Algorithm::named(name).is_some());
        match (names.contains(&"best"), timed) {
            (true, true) => Err("column best: give it or times per algorithm, not both".into()),
            (false, false) => Err("column best: missing, and no times per algorithm either".into()),
            _ => Ok(Columns { names }),
        }
    }
}

struct Row<'a> {
    columns: &'a Columns<'a>,
    fields: Vec<&'a str>,
}

impl<'a> Row<'a> {
    fn field(&self, column: &str) -> Option<&'a str> {
        self.columns.names.iter().position(|&name| name == column).map(|index| self.fields[index])
    }

    fn choice<T: Copy>(&self, column: &str, choices: &[(&str, T)]) -> Result<T, String> {
        let found = self.field(column).unwrap_or_default();
        choices.iter().find(|(name, _)| *name == found).map(|&(_, value)| value).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|&(name, _)| name).collect();
            format!("column {column}: expected {}, found {found:?}", names.join(" or "))
        })
    }

    fn count(&self, column: &str) -> Result<u64, String> {
        let found = self.field(column).unwrap_or_default();
        found
            .parse()
            .ok()
            .filter(|&count| count > 0)
            .ok_or_else(|| format!("column {column}: expected a whole number above 0, found {found:?}"))
    }

    fn positive(&self, column: &str) -> Result<f64, String> {
        let found = self.field(column).unwrap_or_default();
        found
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite() && *number > 0.0)
            .ok_or_else(|| format!("column {column}: expected a number above 0, found {found:?}"))
    }

    fn measurement(&self) -> Result<Measurement, String> {
        let (read, write) = (Operation::Read, Operation::Write);
        let (contiguous, scattered) = (Spatiality::Contiguous, Spatiality::NonContiguous);
        let (small, large) = (RequestSize::Small, RequestSize::Large);
        let situation = Situation {
            operation: self.choice("operation", &[(read.name(), read), (write.name(), write)])?,
            files: self.count("files")?,
            bytes_per_file: match self.field("bytes_per_file") {
                None | Some("") => 0,
                Some(_) => self.count("bytes_per_file")?,
            },
            spatiality: self
                .choice("spatiality", &[(contiguous.name(), contiguous), (scattered.name(), scattered)])?,
            request_size: self.choice("request_size", &[(small.name(), small), (large.name(), large)])?,
            seq_to_random: self.positive("seq_to_random")?,
        };
        Ok(Measurement { situation, best: self.best()? })
    }

    fn best(&self) -> Result<Algorithm, String> {
        if self.field("best").is_some() {
            return self.choice("best", &Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm)));
        }
        let mut best: Option<(f64, Algorithm)> = None;
        for algorithm in Algorithm::ALL {
            if self.field(algorithm.name()).is_none_or(str::is_empty) {
                continue;
            }
            let time = self.positive(algorithm.name())?;
            if best.is_none_or(|(shortest, _)| time < shortest) {
                best = Some((time, algorithm));
            }
        }
        best.map(|(_, algorithm)| algorithm).ok_or_else(|| "columns to…aioli: no time in any".into())
    }
}
