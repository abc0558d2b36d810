//! What a shuffle costs an aggregator, and how long it may be kept waiting for free (HIO, section 4).

/// What the network gives one message, as measured on the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// `B_a`: saturated throughput between processes of one node.
    pub intra_bytes_per_s: f64,
    /// `B_e`: saturated throughput between nodes.
    pub inter_bytes_per_s: f64,
    /// `γ`.
    pub latency_ns: u64,
}

/// Equation (1): the slowest message decides, `max(max_i m_ai / B_a, max_j m_ej / B_e) + γ`.
///
/// `messages` holds `(node, bytes)` for every process that the aggregator on `own_node` exchanges data with.
/// Which node a process is on comes from MPI; the paper's equation (2) guesses it from the rank.
/// An aggregator without messages does not shuffle, so it pays no latency either.
pub fn shuffle_cost_ns(
    network: &Network,
    own_node: u64,
    messages: impl IntoIterator<Item = (u64, u64)>,
) -> u64 {
    let slowest_s = messages
        .into_iter()
        .map(|(node, bytes)| {
            let bandwidth =
                if node == own_node { network.intra_bytes_per_s } else { network.inter_bytes_per_s };
            bytes as f64 / bandwidth
        })
        .max_by(f64::total_cmp);
    // A float-to-integer cast saturates: a bandwidth of zero costs for ever, not a panic.
    slowest_s.map_or(0, |seconds| ((seconds * 1e9).round() as u64).saturating_add(network.latency_ns))
}

/// Equation (3): `AD_i = max_k T_k − T_i` over the aggregators of one application.
pub fn acceptable_delays_ns(shuffle_ns: &[u64]) -> Vec<u64> {
    let slowest = shuffle_ns.iter().copied().max().unwrap_or(0);
    shuffle_ns.iter().map(|cost| slowest - cost).collect()
}

/// RAD (section 4.2): the rank of each acceptable delay in ascending order, 0 for the slowest aggregator.
/// The paper does not say what equal delays rank; here they rank equal.
pub fn relative_acceptable_delays(acceptable_delay_ns: &[u64]) -> Vec<usize> {
    let mut ascending = acceptable_delay_ns.to_vec();
    ascending.sort_unstable();
    acceptable_delay_ns.iter().map(|delay| ascending.partition_point(|other| other < delay)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Network = Network { intra_bytes_per_s: 1e9, inter_bytes_per_s: 1e8, latency_ns: 5_000 };

    #[test]
    fn the_slowest_message_decides() {
        // 1 MB to a neighbour takes 1 ms, 0.2 MB across the network 2 ms.
        assert_eq!(shuffle_cost_ns(&NETWORK, 7, [(7, 1_000_000), (8, 200_000)]), 2_005_000);
        assert_eq!(shuffle_cost_ns(&NETWORK, 7, [(7, 3_000_000), (8, 200_000)]), 3_005_000);
        assert_eq!(shuffle_cost_ns(&NETWORK, 7, []), 0);
    }

    #[test]
    fn a_dead_network_costs_for_ever() {
        let dead = Network { inter_bytes_per_s: 0.0, ..NETWORK };
        assert_eq!(shuffle_cost_ns(&dead, 0, [(1, 1)]), u64::MAX);
    }

    #[test]
    fn delays_and_ranks_of_the_motivating_example() {
        // Figure 3: p0 and p2 redistribute for 6t, p4 not at all.
        let delays = acceptable_delays_ns(&[6, 6, 0]);
        assert_eq!(delays, [0, 0, 6]);
        assert_eq!(relative_acceptable_delays(&delays), [0, 0, 2]);
        assert_eq!(relative_acceptable_delays(&[30, 10, 20]), [2, 0, 1]);
        assert!(acceptable_delays_ns(&[]).is_empty());
    }
}
