//! A study as text for a person, JSON and CSV for a program; the plots are in `plot`.

use super::plot;
use super::study::{Claim, Figure, FigureKind, Series, Study, Table};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

impl Study {
    pub(crate) fn text(&self) -> String {
        let mut out = format!("{}\n{}\n", self.title, "=".repeat(self.title.chars().count()));
        for table in &self.tables {
            let _ = write!(out, "\n{}\n\n{}", table.caption, grid(&table.columns, &table.rows));
        }
        for figure in &self.figures {
            let table = figure.table();
            let _ = write!(out, "\n{}\n\n{}", table.caption, grid(&table.columns, &table.rows));
        }
        if !self.claims.is_empty() {
            let columns = ["claim", "paper", "here", "holds"].map(String::from);
            let rows: Vec<Vec<String>> = self.claims.iter().map(Claim::row).collect();
            let _ = write!(out, "\nClaims\n\n{}", grid(&columns, &rows));
        }
        out.push('\n');
        out
    }

    /// `<id>.txt`, `<id>.json`, `<id>-<table>.csv` for every table and figure, `<id>-<figure>.svg`.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), String> {
        write_file(dir, &format!("{}.txt", self.id), &self.text())?;
        write_file(dir, &format!("{}.json", self.id), &format!("{:#}\n", self.json()))?;
        for table in &self.tables {
            write_file(dir, &format!("{}-{}.csv", self.id, table.id), &csv(&table.columns, &table.rows))?;
        }
        for figure in &self.figures {
            let data = figure.table();
            write_file(dir, &format!("{}-{}.csv", self.id, figure.id), &csv(&data.columns, &data.rows))?;
            write_file(dir, &format!("{}-{}.svg", self.id, figure.id), &plot::svg(figure)?)?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let tables = self.tables.iter().map(|table| {
            json!({ "id": table.id, "caption": table.caption, "columns": table.columns, "rows": table.rows })
        });
        let figures = self.figures.iter().map(|figure| {
            let series = figure.series.iter().map(|s| json!({ "name": s.name, "points": s.points }));
            json!({
                "id": figure.id, "caption": figure.caption, "x": figure.x, "y": figure.y,
                "kind": figure.kind.name(), "series": series.collect::<Vec<_>>(),
            })
        });
        let claims = self.claims.iter().map(|claim| {
            json!({ "text": claim.text, "paper": claim.paper, "ours": claim.ours, "holds": claim.holds })
        });
        json!({
            "id": self.id, "title": self.title, "tables": tables.collect::<Vec<_>>(),
            "figures": figures.collect::<Vec<_>>(), "claims": claims.collect::<Vec<_>>(),
        })
    }
}

impl Claim {
    fn row(&self) -> Vec<String> {
        let holds = match self.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "too few",
        };
        vec![self.text.clone(), self.paper.clone(), self.ours.clone(), holds.into()]
    }
}

impl FigureKind {
    fn name(self) -> &'static str {
        match self {
            FigureKind::Line => "line",
            FigureKind::Scatter => "scatter",
            FigureKind::Bars => "bars",
        }
    }
}

impl Figure {
    /// The plotted numbers: a column per series where all share their x, else a row per point.
    fn table(&self) -> Table {
        let xs = |series: &Series| series.points.iter().map(|p| p.0.to_bits()).collect::<Vec<u64>>();
        let common = self.series.first().map(xs).unwrap_or_default();
        let mut table = Table {
            id: self.id.clone(),
            caption: format!("{} (figure {})", self.caption, self.id),
            columns: vec![self.x.clone()],
            rows: Vec::new(),
        };
        if self.series.iter().all(|series| xs(series) == common) {
            table.columns.extend(self.series.iter().map(|series| series.name.clone()));
            for (i, x) in common.iter().enumerate() {
                let ys = self.series.iter().map(|series| number(series.points[i].1));
                table.rows.push(std::iter::once(number(f64::from_bits(*x))).chain(ys).collect());
            }
        } else {
            table.columns.extend([self.y.clone(), "series".to_owned()]);
            for series in &self.series {
                let rows =
                    series.points.iter().map(|&(x, y)| vec![number(x), number(y), series.name.clone()]);
                table.rows.extend(rows);
            }
        }
        table
    }
}

/// Six significant digits, without a trailing zero.
fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Columns padded to their widest cell; numbers to the right, words to the left.
pub(crate) fn grid(columns: &[String], rows: &[Vec<String>]) -> String {
    let cell = |row: &Vec<String>, i: usize| row.get(i).cloned().unwrap_or_default();
    let width = |i: usize| {
        let cells = rows.iter().map(|row| cell(row, i).chars().count());
        cells.chain([columns[i].chars().count()]).max().unwrap_or(0)
    };
    let is_number = |i: usize| {
        rows.iter().all(|row| cell(row, i).chars().all(|c| c.is_ascii_digit() || "+-.,%/e ".contains(c)))
    };
    let layout: Vec<(usize, bool)> = (0..columns.len()).map(|i| (width(i), is_number(i))).collect();
    let line = |cells: &dyn Fn(usize) -> String| {
        let padded = layout.iter().enumerate().map(|(i, &(width, right))| {
            let text = cells(i);
            let pad = " ".repeat(width.saturating_sub(text.chars().count()));
            if right { format!("{pad}{text}") } else { format!("{text}{pad}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut out = line(&|i| columns[i].clone());
    out += &line(&|i| "-".repeat(layout[i].0));
    for row in rows {
        out += &line(&|i| cell(row, i));
    }
    out
}

/// RFC 4180.
fn csv(columns: &[String], rows: &[Vec<String>]) -> String {
    let quoted = |cell: &String| {
        if cell.contains([',', '"', '\n']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    };
    let line = |cells: &[String]| cells.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
    std::iter::once(line(columns)).chain(rows.iter().map(|row| line(row))).collect()
}

fn write_file(dir: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = dir.join(name);
    std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&c| c.to_owned()).collect()
    }

    #[test]
    fn numbers_align_to_the_right_and_words_to_the_left() {
        let text =
            grid(&strings(&["policy", "mean"]), &[strings(&["set10", "0.9"]), strings(&["x", "10.25"])]);
        assert_eq!(text, "policy   mean\n------  -----\nset10     0.9\nx       10.25\n");
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let text = csv(&strings(&["a,b", "c"]), &[strings(&["say \"x\"", "1"])]);
        assert_eq!(text, "\"a,b\",c\n\"say \"\"x\"\"\",1\n");
    }

    #[test]
    fn a_figure_whose_series_share_their_x_becomes_one_row_per_x() {
        let series =
            |name: &str, y: f64| Series { name: name.into(), points: vec![(0.0, y), (10.0, 2.0 * y)] };
        let mut figure = Figure {
            id: "f".into(),
            caption: "c".into(),
            x: "n_H".into(),
            y: "y".into(),
            kind: FigureKind::Line,
            series: vec![series("a", 1.0), series("b", 0.125)],
        };
        assert_eq!(figure.table().rows, [strings(&["0", "1", "0.125"]), strings(&["10", "2", "0.25"])]);
        figure.series[1].points.pop();
        assert_eq!(figure.table().rows.len(), 3);
        assert!(plot::svg(&figure).is_ok_and(|svg| svg.starts_with("<svg") && svg.contains("n_H")));
    }

    #[test]
    fn six_significant_digits() {
        assert_eq!(number(1.0 / 3.0), "0.333333");
        assert_eq!(number(1234567.0), "1234567");
        assert_eq!(number(0.5), "0.5");
        assert_eq!(number(-20.0), "-20");
    }
}
