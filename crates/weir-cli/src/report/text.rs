//! Numbers as people read them.

/// `20.0 MiB`, three digits at most.
pub(crate) fn bytes(value: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    // The sum of no numbers is -0.
    let (mut value, mut unit) = (value.abs(), 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{} {}", three_digits(value), UNITS[unit]) }
}

/// `1.50 ms`, `12.0 s`, `3 h 12 min`.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        v if v <= 0.0 => "0 s".into(),
        v if v < 999.5e-9 => format!("{} ns", three_digits(v * 1e9)),
        v if v < 999.5e-6 => format!("{} µs", three_digits(v * 1e6)),
        v if v < 0.9995 => format!("{} ms", three_digits(v * 1e3)),
        v if v < 119.5 => format!("{} s", three_digits(v)),
        v if v < 7170.0 => format!("{} min {} s", v.round() as u64 / 60, v.round() as u64 % 60),
        v => format!("{} h {} min", (v / 60.0).round() as u64 / 60, (v / 60.0).round() as u64 % 60),
    }
}

fn three_digits(value: f64) -> String {
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "0 %".into();
    }
    let share = 100.0 * part / whole;
    match share {
        s if s > 0.0 && s < 1.0 => "under 1 %".into(),
        // So that a part beside another does not pass for the whole.
        s if s > 99.0 && s < 100.0 => "over 99 %".into(),
        s => format!("{s:.0} %"),
    }
}

/// `1 file`, `3 files`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// One character for each of `width` stretches of the values, as high as their sum.
pub(crate) fn sparkline(values: &[u64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = width.clamp(1, values.len().max(1));
    let edge = |column: usize| column * values.len() / width;
    let sum =
        |column: usize| values[edge(column)..edge(column + 1)].iter().fold(0u64, |a, b| a.saturating_add(*b));
    let sums: Vec<u64> = (0..width).map(sum).collect();
    let highest = sums.iter().copied().max().unwrap_or(0).max(1);
    let bar = |sum: u64| match sum {
        0 => ' ',
        _ => BARS[((sum as f64 / highest as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    sums.into_iter().map(bar).collect()
}

/// The end of a path, which says more than its beginning.
pub(crate) fn tail(path: &str, width: usize) -> String {
    let length = path.chars().count();
    if length <= width {
        return path.to_string();
    }
    format!("…{}", path.chars().skip(length + 1 - width).collect::<String>())
}

/// `0–3, 7, 9` for ranks in ascending order; the first few stretches only.
pub(crate) fn ranks(ranks: &[u64]) -> String {
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    for rank in ranks {
        match stretches.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => stretches.push((*rank, *rank)),
        }
    }
    let stretch = |(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    let shown: Vec<String> = stretches.iter().take(6).map(stretch).collect();
    let more = if stretches.len() > 6 { ", …" } else { "" };
    shown.join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!([bytes(0.0), bytes(-0.0)], ["0 B", "0 B"]);
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(1000.0), "0.98 KiB");
        assert_eq!(bytes((20u64 << 20) as f64), "20.0 MiB");
        assert_eq!(bytes(u64::MAX as f64), "16.0 EiB");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(0.0015), "1.50 ms");
        assert_eq!(seconds(61.0), "61.0 s");
        assert_eq!(seconds(192.0), "3 min 12 s");
        assert_eq!(seconds(11_520.0), "3 h 12 min");
        assert_eq!(percent(1.0, 3.0), "33 %");
        assert_eq!(percent(1.0, 0.0), "0 %");
        assert_eq!(percent(1.0, 1000.0), "under 1 %");
        assert_eq!(percent(999.0, 1000.0), "over 99 %");
        assert_eq!(percent(1.0, 1.0), "100 %");
    }

    #[test]
    fn a_sparkline_keeps_every_byte_in_sight() {
        assert_eq!(sparkline(&[0, 0, 8, 0, 0, 4, 0, 1], 8), "  █  ▄ ▁");
        assert_eq!(sparkline(&[0, 0, 8, 0, 0, 4, 0, 1], 4), " █▄▁");
        assert_eq!(sparkline(&[], 10), " ");
        assert_eq!(sparkline(&[u64::MAX, u64::MAX], 1), "█");
    }

    #[test]
    fn ranks_are_listed_as_stretches() {
        assert_eq!(ranks(&[0, 1, 2, 3, 7, 9, 10]), "0–3, 7, 9, 10");
        assert_eq!(ranks(&[0, 2, 4, 6, 8, 10, 12]), "0, 2, 4, 6, 8, 10, …");
        assert_eq!(tail("/scratch/run/out.dat", 9), "…/out.dat");
    }
}
