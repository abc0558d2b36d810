//! What ranks and aggregators exchanged: how much, how long it took and should take, who has time to give.

use super::text::{bytes, counted, percent, seconds};
use std::collections::BTreeMap;
use weir_profile::profile::{AggregatorShare, Exchange, Network};

/// Delays below this share of the shuffle cost are not worth a word.
const WORTH_GIVING: f64 = 0.1;
const NAMED_GIVERS: usize = 3;

/// Lines for the summary; none when nothing is known.
pub(super) fn lines(exchange: &Exchange) -> Vec<String> {
    let aggregators = by_rank(exchange);
    let sum = |of: fn(&AggregatorShare) -> u64| aggregators.values().map(|a| of(a) as f64).sum::<f64>();
    let (own, intra, inter) = (sum(|a| a.own_bytes), sum(|a| a.intra_bytes), sum(|a| a.inter_bytes));
    let moved = own + intra + inter;
    if exchange.calls == 0 || moved <= 0.0 {
        return Vec::new();
    }
    let estimated = match exchange.estimated_bytes {
        0 => String::new(),
        some => format!("; {} of it estimated", percent(some as f64, exchange.bytes as f64)),
    };
    let mut lines = vec![format!(
        "{} in {} listed: {} kept by the rank that moved it, {} within nodes, {} between nodes{estimated}",
        bytes(moved),
        counted(exchange.calls, "call"),
        percent(own, moved),
        percent(intra, moved),
        percent(inter, moved),
    )];
    lines.extend(costs(exchange, &aggregators));
    lines.extend(givers(&aggregators));
    lines
}

/// Each aggregator's sums over the listed files.
fn by_rank(exchange: &Exchange) -> BTreeMap<u64, AggregatorShare> {
    let mut by_rank: BTreeMap<u64, AggregatorShare> = BTreeMap::new();
    for row in exchange.files.iter().flat_map(|file| &file.aggregators) {
        let add = |sum: &mut AggregatorShare| {
            sum.calls += row.calls;
            sum.own_bytes = sum.own_bytes.saturating_add(row.own_bytes);
            sum.intra_bytes = sum.intra_bytes.saturating_add(row.intra_bytes);
            sum.inter_bytes = sum.inter_bytes.saturating_add(row.inter_bytes);
            sum.shuffle_s += row.shuffle_s;
            sum.predicted_s = sum.predicted_s.zip(row.predicted_s).map(|(sum, more)| sum + more);
            sum.delay_s = sum.delay_s.zip(row.delay_s).map(|(sum, more)| sum + more);
        };
        by_rank.entry(row.rank).and_modify(add).or_insert_with(|| row.clone());
    }
    by_rank
}

fn per_call(sum_s: f64, row: &AggregatorShare) -> f64 {
    sum_s / row.calls.max(1) as f64
}

/// The slowest aggregator's shuffle, measured and predicted.
fn costs(exchange: &Exchange, aggregators: &BTreeMap<u64, AggregatorShare>) -> Option<String> {
    let cost_s = |row: &AggregatorShare| per_call(row.shuffle_s, row);
    let slowest = aggregators.values().max_by(|a, b| cost_s(a).total_cmp(&cost_s(b)))?;
    let measured = format!("{} a call at rank {}, the slowest", seconds(cost_s(slowest)), slowest.rank);
    let predicted = match (slowest.predicted_s, &exchange.network) {
        (Some(predicted_s), Some(network)) => {
            format!("predicted {} ({})", seconds(per_call(predicted_s, slowest)), speeds(network))
        }
        _ => "too few messages for a prediction".into(),
    };
    Some(format!("{measured}; {predicted}"))
}

fn speeds(network: &Network) -> String {
    let speed = |value: Option<f64>, place: &str| value.map(|v| format!("{}/s {place}", bytes(v)));
    let known = [
        speed(network.intra_bytes_per_s, "within nodes"),
        speed(network.inter_bytes_per_s, "between nodes"),
        network.latency_s.map(|latency_s| format!("latency {}", seconds(latency_s))),
    ];
    let mut known: Vec<String> = known.into_iter().flatten().collect();
    known.push(format!("typically {} off", percent(network.median_error, 1.0)));
    known.join(", ")
}

/// Aggregators that could be served later than the slowest without anybody noticing.
fn givers(aggregators: &BTreeMap<u64, AggregatorShare>) -> Option<String> {
    let longest_s =
        aggregators.values().map(|row| per_call(row.predicted_s.unwrap_or(0.0), row)).fold(0.0, f64::max);
    let mut givers: Vec<(u64, f64)> = aggregators
        .values()
        .map(|row| (row.rank, per_call(row.delay_s.unwrap_or(0.0), row)))
        .filter(|(_, delay_s)| *delay_s > WORTH_GIVING * longest_s)
        .collect();
    givers.sort_by(|a, b| b.1.total_cmp(&a.1));
    let named: Vec<String> = givers
        .iter()
        .take(NAMED_GIVERS)
        .map(|(rank, delay_s)| format!("rank {rank} {}", seconds(*delay_s)))
        .collect();
    let more = givers.len().saturating_sub(NAMED_GIVERS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("could wait, a call: {}{more}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_profile::profile::FileExchange;

    fn aggregator(rank: u64, inter_bytes: u64, delay_s: f64) -> AggregatorShare {
        AggregatorShare {
            rank,
            host: "node".into(),
            calls: 10,
            own_bytes: 1 << 20,
            intra_bytes: 1 << 20,
            inter_bytes,
            file_s: 0.1,
            gate_s: 0.0,
            late_s: 0.0,
            shuffle_s: if inter_bytes > 0 { 0.12 } else { 0.02 },
            predicted_s: Some(if inter_bytes > 0 { 0.11 } else { 0.01 }),
            delay_s: Some(delay_s),
            rad: None,
        }
    }

    fn exchange() -> Exchange {
        let aggregators = vec![aggregator(0, 2 << 20, 0.0), aggregator(2, 0, 0.1)];
        let file = FileExchange { file: "a".into(), calls: 10, bytes: 6 << 20, naggregators: 2, aggregators };
        let network = Network {
            intra_bytes_per_s: Some((1u64 << 30) as f64),
            inter_bytes_per_s: Some((100u64 << 20) as f64),
            latency_s: None,
            points: 20,
            median_error: 0.05,
        };
        Exchange {
            calls: 10,
            bytes: 6 << 20,
            network: Some(network),
            files: vec![file],
            ..Exchange::default()
        }
    }

    #[test]
    fn three_lines_say_what_was_exchanged() {
        let lines = lines(&exchange());
        assert_eq!(
            lines,
            [
                "6.00 MiB in 10 calls listed: 33 % kept by the rank that moved it, 33 % within nodes, 33 % between nodes",
                "12.0 ms a call at rank 0, the slowest; predicted 11.0 ms (1.00 GiB/s within nodes, 100 MiB/s between nodes, typically 5 % off)",
                "could wait, a call: rank 2 10.0 ms",
            ]
        );
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        assert!(lines(&Exchange::default()).is_empty());
        let mut unfitted = exchange();
        unfitted.network = None;
        unfitted.estimated_bytes = 3 << 20;
        for row in &mut unfitted.files[0].aggregators {
            (row.predicted_s, row.delay_s) = (None, None);
        }
        let lines = lines(&unfitted);
        assert!(lines[0].ends_with("; 50 % of it estimated"), "{lines:?}");
        assert!(lines[1].ends_with("; too few messages for a prediction"), "{lines:?}");
        assert_eq!(lines.len(), 2);
    }
}
