//! What a run is judged by.

/// What one job did within the window (`e_cpu` and `e_io` of IO-SETS section 4), and when it finished.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobOutcome {
    /// `None` when the run was stopped before.
    pub finish_ns: Option<u64>,
    pub release_ns: u64,
    pub nodes: u64,
    /// Compute done.
    pub compute_ns: f64,
    /// I/O done, as the time it would have taken alone.
    pub io_ns: f64,
    /// Time spent in I/O phases, waiting included.
    pub in_io_ns: f64,
}

/// One I/O phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseOutcome {
    /// Index of its job.
    pub job: usize,
    pub began_ns: u64,
    /// `None` when the run was stopped before.
    pub ended_ns: Option<u64>,
    pub volume_ns: u64,
}

/// A run, measured over a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub jobs: Vec<JobOutcome>,
    pub window_ns: (u64, u64),
    /// Events the engine was given.
    pub steps: u64,
}

impl Outcome {
    fn window_length_ns(&self) -> f64 {
        (self.window_ns.1 - self.window_ns.0) as f64
    }

    /// The part of the window in which the job was there.
    fn present_ns(&self, job: &JobOutcome) -> f64 {
        let from = job.release_ns.max(self.window_ns.0);
        let to = job.finish_ns.unwrap_or(u64::MAX).min(self.window_ns.1);
        to.saturating_sub(from) as f64
    }

    /// IO-SETS eq. (6). One where there was nothing to do: nobody was kept from computing.
    pub fn utilization(&self) -> f64 {
        let compute_ns: f64 = self.jobs.iter().map(|job| job.compute_ns).sum();
        let available_ns = self.jobs.len() as f64 * self.window_length_ns();
        if available_ns > 0.0 { compute_ns / available_ns } else { 1.0 }
    }

    /// IO-SETS eq. (7), as printed: a job that is not there for the whole window counts as stretched
    /// by its absence; choose a window that ends before any job does. Infinite when a job did nothing in
    /// a window, one when there was no time to do anything in.
    pub fn stretch(&self) -> f64 {
        let of_job = |job: &JobOutcome| self.window_length_ns() / (job.compute_ns + job.io_ns);
        self.jobs.iter().map(of_job).fold(1.0, f64::max)
    }

    /// APIO formula (1): node-weighted `ρ̃_i`, each over the time its job was there.
    pub fn sys_efficiency(&self) -> f64 {
        let nodes: f64 = self.jobs.iter().map(|job| job.nodes as f64).sum();
        let efficiency = |job: &JobOutcome| match self.present_ns(job) {
            0.0 => 0.0,
            present_ns => job.nodes as f64 * job.compute_ns / present_ns,
        };
        self.jobs.iter().map(efficiency).sum::<f64>() / nodes
    }

    /// APIO formula (2): the largest `ρ_i / ρ̃_i`, which is the time a job was there over the time it
    /// would have needed alone for what it did.
    pub fn dilation(&self) -> f64 {
        let of_job = |job: &JobOutcome| self.present_ns(job) / (job.compute_ns + job.io_ns);
        let there = self.jobs.iter().filter(|job| self.present_ns(job) > 0.0);
        there.map(of_job).fold(1.0, f64::max)
    }

    /// Time in I/O phases over the time they would have taken alone, mean over the jobs that did any.
    pub fn io_slowdown(&self) -> f64 {
        let slowdowns = self.jobs.iter().filter(|job| job.io_ns > 0.0).map(|job| job.in_io_ns / job.io_ns);
        let (sum, count) = slowdowns.fold((0.0, 0.0), |(sum, count), s| (sum + s, count + 1.0));
        if count == 0.0 { 1.0 } else { sum / count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_do_is_done_without_delay() {
        let outcome = Outcome { jobs: vec![JobOutcome::default()], window_ns: (5, 5), steps: 0 };
        assert_eq!((outcome.utilization(), outcome.stretch()), (1.0, 1.0));
        let nobody = Outcome { jobs: Vec::new(), window_ns: (0, 10), steps: 0 };
        assert_eq!((nobody.utilization(), nobody.stretch()), (1.0, 1.0));
    }
}
