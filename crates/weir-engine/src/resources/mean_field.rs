//! What congestion costs, estimated: every application sees the others as an average.
//!
//! An application is *present* on its resources for a share `p = E / (T_cpu + E)` of its time, where
//! `E` is the time its I/O takes under congestion. Whoever shares a resource with others of presences
//! `p_1, p_2, …` is slowed there by `1 + p_1 + p_2 + …` (resources are shared equally), and an I/O
//! subphase ends with its last transfer: `E = T_io(n) · (1 + the largest presence of others on one of
//! its resources)`. The knowledge used is that of TA: `b`, `V_io`, `T_cpu` and `Q`.

use super::{Application, Platform};

/// What Machine-Idletime weighs against Mean-I/O-SlowDown. Slowdown alone lets the few applications
/// with most of the compute nodes wait for the many with few; above 8 or so some slowdowns on storage
/// targets become worse than TA's. Between, both metrics are better than TA's and BBA's at every load
/// of `weir reproduce resources`.
const IDLETIME_WEIGHT: f64 = 6.0;

/// What it costs all to serve one application on some resources, and what became of it there.
#[derive(Clone, Debug)]
struct Member {
    resources: Vec<usize>,
    presence: f64,
    sensitivity: f64,
}

/// Applications on resources, and how present and how sensitive they are on each.
pub(crate) struct MeanField<'a> {
    platform: Platform,
    applications: &'a [Application],
    members: Vec<Option<Member>>,
    /// Per resource, the sum of its applications' presences.
    presence: Vec<f64>,
    /// Per resource, what one more unit of presence costs its applications.
    sensitivity: Vec<f64>,
}

impl<'a> MeanField<'a> {
    pub(crate) fn new(platform: Platform, applications: &'a [Application]) -> Self {
        MeanField {
            platform,
            applications,
            members: vec![None; applications.len()],
            presence: vec![0.0; platform.resources],
            sensitivity: vec![0.0; platform.resources],
        }
    }

    /// Puts an application on resources that are not to be chosen.
    pub(crate) fn fix(&mut self, i: usize, resources: Vec<usize>) {
        self.take_out(i);
        let member = self.member(i, resources);
        self.put(i, member);
    }

    /// Puts an application where the estimated cost to all is least; the fewest resources, then the
    /// lowest indices, among equals. Answers whether that is somewhere else than before.
    pub(crate) fn settle(&mut self, i: usize) -> bool {
        let before = self.take_out(i);
        // More than n_perf would take longer and be in the way of more.
        let candidates = (1..=self.applications[i].n_perf(self.platform.resources))
            .map(|n| self.member(i, self.cheapest(i, n)))
            .map(|member| (self.cost(i, &member), member));
        let (_, best) = candidates
            .reduce(|best, next| if next.0 < best.0 { next } else { best })
            .expect("n_perf is at least 1");
        let moved = before.is_none_or(|before| before != best.resources);
        self.put(i, best);
        moved
    }

    pub(crate) fn placement(self) -> Vec<Vec<usize>> {
        self.members.into_iter().map(|member| member.map_or_else(Vec::new, |m| m.resources)).collect()
    }

    fn take_out(&mut self, i: usize) -> Option<Vec<usize>> {
        let member = self.members[i].take()?;
        for &r in &member.resources {
            self.presence[r] -= member.presence;
            self.sensitivity[r] -= member.sensitivity;
        }
        Some(member.resources)
    }

    fn put(&mut self, i: usize, member: Member) {
        for &r in &member.resources {
            self.presence[r] += member.presence;
            self.sensitivity[r] += member.sensitivity;
        }
        self.members[i] = Some(member);
    }

    /// The `n` resources that cost least if each counts for itself: what the others there do to the
    /// application, and what it does to them. How present it is depends on the resources chosen: they
    /// are chosen as if it met nobody, and then once more as if it met whom it met there.
    fn cheapest(&self, i: usize, n: usize) -> Vec<usize> {
        let alone_s = self.applications[i].io_time_s(n);
        let chosen = self.cheapest_if(i, n, alone_s);
        self.cheapest_if(i, n, self.congested_s(i, &chosen))
    }

    fn cheapest_if(&self, i: usize, n: usize, io_time_s: f64) -> Vec<usize> {
        let own = self.price(i, io_time_s) * self.applications[i].io_time_s(n) / n as f64;
        let presence = self.share(i, io_time_s);
        let cost = |r: usize| own * self.presence[r] + presence * self.sensitivity[r];
        let mut order: Vec<(f64, usize)> = (0..self.platform.resources).map(|r| (cost(r), r)).collect();
        if n < order.len() {
            order.select_nth_unstable_by(n, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            order.truncate(n);
        }
        let mut chosen: Vec<usize> = order.into_iter().map(|(_, r)| r).collect();
        chosen.sort_unstable();
        chosen
    }

    /// The application as it would be on these resources, with the others as they are.
    fn member(&self, i: usize, resources: Vec<usize>) -> Member {
        let n = resources.len();
        let alone_s = self.applications[i].io_time_s(n);
        let congested_s = self.congested_s(i, &resources);
        Member {
            presence: self.share(i, congested_s),
            sensitivity: self.price(i, congested_s) * alone_s / n as f64,
            resources,
        }
    }

    /// `E`, the time its I/O takes on these resources.
    fn congested_s(&self, i: usize, resources: &[usize]) -> f64 {
        let most = resources.iter().map(|&r| self.presence[r]).fold(0.0, f64::max);
        self.applications[i].io_time_s(resources.len()) * (1.0 + most)
    }

    /// Its own slowdown and idle time, and what its presence adds to those of others.
    fn cost(&self, i: usize, member: &Member) -> f64 {
        let slowdown = self.per_second_of_slowdown(i) * self.congested_s(i, &member.resources);
        let to_others: f64 = member.resources.iter().map(|&r| self.sensitivity[r]).sum();
        slowdown + self.idle_weight(i) * member.presence + member.presence * to_others
    }

    /// What a second more of I/O costs: the derivative of slowdown and idle time.
    fn price(&self, i: usize, io_time_s: f64) -> f64 {
        let cpu_time_s = self.applications[i].cpu_time_s;
        let cycle_s = cpu_time_s + io_time_s;
        self.per_second_of_slowdown(i) + self.idle_weight(i) * cpu_time_s / (cycle_s * cycle_s)
    }

    fn share(&self, i: usize, io_time_s: f64) -> f64 {
        io_time_s / (self.applications[i].cpu_time_s + io_time_s)
    }

    /// A second of I/O as a part of the shortest I/O there can be; an application without I/O has none.
    fn per_second_of_slowdown(&self, i: usize) -> f64 {
        let application = &self.applications[i];
        let shortest_s = application.io_time_s(application.n_perf(self.platform.resources));
        if shortest_s > 0.0 { 1.0 / shortest_s } else { 0.0 }
    }

    /// What it costs if all nodes of the application wait, in units of one application's slowdown:
    /// Mean-I/O-SlowDown divides by the number of applications, Machine-Idletime by the compute nodes.
    fn idle_weight(&self, i: usize) -> f64 {
        let nodes = self.applications[i].nodes as f64 / self.platform.compute_nodes as f64;
        IDLETIME_WEIGHT * nodes * self.applications.len() as f64
    }
}
