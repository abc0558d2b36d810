//! What the network gave a job's messages, fitted to its own collective calls: `B_a`, `B_e` and `γ` of
//! `T = max(max_i m_ai / B_a, max_j m_ej / B_e) + γ` (HIO, equation 1), measured, not assumed.

use weir_engine::aggregators::cost::Network;

/// Fewer calls of aggregators than this tell nothing.
const FEWEST_POINTS: usize = 8;
/// Sizes must differ this much for the part of the time that does not depend on them to show.
const SEPARATING_RATIO: f64 = 2.0;
/// More points than this add nothing but time.
const MOST_POINTS: usize = 1024;
const ROUNDS: usize = 20;
/// How many times slower than a node's memory the network may be: where the search begins.
const FIRST_GUESSES: [f64; 5] = [1.0, 4.0, 16.0, 64.0, 256.0];

/// One call of one aggregator: its largest messages, and how long the shuffle took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) intra_bytes: u64,
    pub(crate) inter_bytes: u64,
    pub(crate) shuffle_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fitted {
    /// A speed that no message showed is the other one's.
    pub(crate) network: Network,
    /// Whether messages within nodes, and between them, decided any call.
    pub(crate) intra_known: bool,
    pub(crate) inter_known: bool,
    /// Whether sizes differed enough to tell latency from speed; it counts as zero if not.
    pub(crate) latency_known: bool,
    pub(crate) points: u64,
    /// Half of the calls are predicted better than this: deviation as a share of the time measured.
    pub(crate) median_error: f64,
}

/// Time per byte within a node and between nodes, and time per call, in nanoseconds.
#[derive(Clone, Copy)]
struct Model {
    per_byte: [f64; 2],
    latency: f64,
}

const INTRA: usize = 0;
const INTER: usize = 1;

impl Model {
    /// Which message decides, and its size. Equal times are the network's: the slower of the two media.
    fn decisive(&self, point: &Point) -> (usize, f64) {
        let (intra, inter) = (point.intra_bytes as f64, point.inter_bytes as f64);
        let within = intra * self.per_byte[INTRA] > inter * self.per_byte[INTER] || point.inter_bytes == 0;
        if within { (INTRA, intra) } else { (INTER, inter) }
    }

    fn predict(&self, point: &Point) -> f64 {
        let (kind, bytes) = self.decisive(point);
        bytes * self.per_byte[kind] + self.latency
    }

    fn deviation(&self, points: &[Point]) -> f64 {
        points.iter().map(|point| (self.predict(point) - point.shuffle_ns as f64).abs()).sum()
    }
}

/// Weighted sums over the points that one kind of message decides.
#[derive(Clone, Copy, Default)]
struct Sums {
    x: f64,
    xx: f64,
    xt: f64,
}

/// Least absolute deviations: half of the points lie above and half below, so that a few calls in which
/// something else went on do not count for more than they are. Each round takes the message that decides
/// each point from the round before and solves weighted least squares, which for one unknown per point
/// and a common constant has a closed form. Which messages decide depends on where the search begins, so
/// it begins in several places.
pub(crate) fn fit(points: &[Point]) -> Option<Fitted> {
    let points: Vec<Point> = points
        .iter()
        .copied()
        .filter(|point| point.intra_bytes.max(point.inter_bytes) > 0)
        .step_by(points.len().div_ceil(MOST_POINTS).max(1))
        .collect();
    if points.len() < FEWEST_POINTS {
        return None;
    }
    let size = |point: &Point| point.intra_bytes.max(point.inter_bytes) as f64;
    let smallest = points.iter().map(size).fold(f64::INFINITY, f64::min);
    let largest = points.iter().map(size).fold(0.0, f64::max);
    let separable = largest >= SEPARATING_RATIO * smallest;
    let per_byte = median(points.iter().map(|point| point.shuffle_ns as f64 / size(point)));
    let guess = |ratio: f64| Model { per_byte: [per_byte, ratio * per_byte], latency: 0.0 };
    let found = FIRST_GUESSES.map(|ratio| settle(guess(ratio), &points, separable));
    let model = found.into_iter().min_by(|a, b| a.deviation(&points).total_cmp(&b.deviation(&points)))?;
    let decides = |kind: usize| points.iter().any(|point| model.decisive(point).0 == kind);
    let error = |point: &Point| {
        let measured = (point.shuffle_ns as f64).max(1.0);
        (model.predict(point) - measured).abs() / measured
    };
    let speed = |kind: usize| 1e9 / model.per_byte[kind];
    Some(Fitted {
        network: Network {
            intra_bytes_per_s: speed(INTRA),
            inter_bytes_per_s: speed(INTER),
            latency_ns: model.latency as u64,
        },
        intra_known: decides(INTRA) && model.per_byte[INTRA] > 0.0,
        inter_known: decides(INTER) && model.per_byte[INTER] > 0.0,
        latency_known: separable,
        points: points.len() as u64,
        median_error: median(points.iter().map(error)),
    })
}

fn settle(mut model: Model, points: &[Point], separable: bool) -> Model {
    let finest = (0.001 * median(points.iter().map(|point| point.shuffle_ns as f64))).max(1.0);
    for _ in 0..ROUNDS {
        model = improve(&model, points, finest, separable);
    }
    model
}

fn improve(model: &Model, points: &[Point], finest: f64, separable: bool) -> Model {
    let mut kinds = [Sums::default(); 2];
    let (mut weights, mut times) = (0.0, 0.0);
    for point in points {
        let time = point.shuffle_ns as f64;
        let weight = 1.0 / (time - model.predict(point)).abs().max(finest);
        let (kind, bytes) = model.decisive(point);
        let sums = &mut kinds[kind];
        sums.x += weight * bytes;
        sums.xx += weight * bytes * bytes;
        sums.xt += weight * bytes * time;
        weights += weight;
        times += weight * time;
    }
    let of_bytes = |sums: &Sums, latency: f64| match sums.xx > 0.0 {
        true => ((sums.xt - latency * sums.x) / sums.xx).max(0.0),
        false => 0.0,
    };
    // The constant, with the times per byte that fit it best put in.
    let (mut over, mut under) = (times, weights);
    for sums in kinds.iter().filter(|sums| sums.xx > 0.0) {
        over -= sums.x * sums.xt / sums.xx;
        under -= sums.x * sums.x / sums.xx;
    }
    let latency = if separable && under > 1e-9 * weights { (over / under).max(0.0) } else { 0.0 };
    let mut per_byte = kinds.map(|sums| of_bytes(&sums, latency));
    for kind in [INTRA, INTER] {
        if kinds[kind].xx == 0.0 {
            per_byte[kind] = per_byte[1 - kind];
        }
    }
    // When size does not matter at all, the constant is all there is.
    let latency = if per_byte == [0.0; 2] && separable { times / weights } else { latency };
    Model { per_byte, latency }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 GB/s within nodes, 0.1 GB/s between them, 50 µs.
    fn shuffle_ns(intra_bytes: u64, inter_bytes: u64) -> u64 {
        (intra_bytes as f64 / 2.0).max(inter_bytes as f64 / 0.1) as u64 + 50_000
    }

    fn point(intra_bytes: u64, inter_bytes: u64) -> Point {
        Point { intra_bytes, inter_bytes, shuffle_ns: shuffle_ns(intra_bytes, inter_bytes) }
    }

    fn close(found: f64, truth: f64) {
        assert!((found / truth - 1.0).abs() < 0.05, "{found} instead of {truth}");
    }

    #[test]
    fn speeds_and_latency_come_out_of_the_calls() {
        let mut points: Vec<Point> = (1..40).map(|i| point(i * 400_000, i % 3 * 100_000)).collect();
        // Every eighth call waited for something else.
        points.iter_mut().step_by(8).for_each(|point| point.shuffle_ns += 300_000_000);
        let fitted = fit(&points).unwrap();
        close(fitted.network.intra_bytes_per_s, 2e9);
        close(fitted.network.inter_bytes_per_s, 1e8);
        close(fitted.network.latency_ns as f64, 50_000.0);
        assert!(fitted.intra_known && fitted.inter_known && fitted.latency_known);
        assert!(fitted.median_error < 0.01, "{}", fitted.median_error);
    }

    #[test]
    fn messages_of_equal_size_show_the_network_only() {
        let points: Vec<Point> = (1..20).map(|i| point(i * 100_000, i * 100_000)).collect();
        let fitted = fit(&points).unwrap();
        close(fitted.network.inter_bytes_per_s, 1e8);
        assert!(fitted.inter_known && !fitted.intra_known);
    }

    #[test]
    fn calls_alike_tell_a_speed_but_no_latency() {
        let fitted = fit(&vec![point(1_000_000, 0); 20]).unwrap();
        assert!(!fitted.latency_known && fitted.network.latency_ns == 0);
        close(fitted.network.intra_bytes_per_s, 1e6 / 550_000.0 * 1e9);
        assert!(fitted.median_error < 1e-6);
    }

    #[test]
    fn a_time_that_does_not_depend_on_size_is_latency() {
        let points: Vec<Point> =
            (1..20).map(|i| Point { intra_bytes: i * 1000, inter_bytes: 0, shuffle_ns: 70_000 }).collect();
        let fitted = fit(&points).unwrap();
        close(fitted.network.latency_ns as f64, 70_000.0);
        assert!(fitted.median_error < 0.05);
    }

    #[test]
    fn too_few_calls_tell_nothing() {
        assert!(fit(&[point(1_000_000, 0); 7]).is_none());
        assert!(fit(&[point(0, 0); 100]).is_none());
    }
}
