//! A figure as SVG.

use super::study::{Figure, FigureKind, Series};
use plotters::prelude::*;
use std::ops::Range;

/// Distinguishable in print and by the colour-blind (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
];

pub(super) fn svg(figure: &Figure) -> Result<String, String> {
    let mut text = String::new();
    draw(figure, &mut text).map_err(|e| format!("figure {}: {e}", figure.id))?;
    Ok(text)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(figure: &Figure, text: &mut String) -> Drawn {
    let root = SVGBackend::with_string(text, (800, 500)).into_drawing_area();
    root.fill(&WHITE)?;
    let (x_range, y_range) = ranges(figure);
    let mut chart = ChartBuilder::on(&root)
        .caption(&figure.caption, ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(x_range, y_range)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&figure.x).y_desc(&figure.y).light_line_style(TRANSPARENT);
    if figure.kind == FigureKind::Bars {
        mesh.disable_x_mesh();
    }
    mesh.draw()?;
    for (index, series) in figure.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = finite(series);
        let drawn = match figure.kind {
            FigureKind::Line => {
                let dots = points.clone().map(|point| Circle::new(point, 2, colour.filled()));
                chart.draw_series(dots)?;
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            }
            FigureKind::Scatter => {
                chart.draw_series(points.map(|point| Circle::new(point, 2, colour.filled())))?
            }
            FigureKind::Bars => {
                let width = 0.8 / figure.series.len() as f64;
                let left = index as f64 * width - 0.4;
                chart.draw_series(points.map(|(x, y)| {
                    Rectangle::new([(x + left, 0.0), (x + left + width, y)], colour.filled())
                }))?
            }
        };
        drawn
            .label(&series.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    root.present()?;
    Ok(())
}

fn finite(series: &Series) -> impl Iterator<Item = (f64, f64)> + Clone {
    series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

/// What is drawn, with a little air; bars start at zero and keep half a group on either side.
fn ranges(figure: &Figure) -> (Range<f64>, Range<f64>) {
    let points = || figure.series.iter().flat_map(finite);
    let (mut x, mut y) = (span(points().map(|p| p.0)), span(points().map(|p| p.1)));
    let pad = |r: Range<f64>, part: f64| {
        let air = ((r.end - r.start) * part).max(1e-9 * r.end.abs()).max(1e-12);
        r.start - air..r.end + air
    };
    if figure.kind == FigureKind::Bars {
        x = x.start - 0.6..x.end + 0.6;
        y = y.start.min(0.0)..y.end.max(0.0);
        y.end += (y.end - y.start).max(1e-12) * 0.05;
        return (x, y);
    }
    (pad(x, 0.02), pad(y, 0.05))
}

fn span(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low <= high { low..high } else { 0.0..1.0 }
}
