//! What to look at: one sentence for each habit that costs time, most costly first where that is known.

use super::text::{bytes, counted, percent, seconds};
use weir_profile::profile::Profile;

/// Advice needs this many calls to speak of a habit.
const MANY_CALLS: u64 = 100;
/// What takes less than this share of the run is not worth a word.
const WORTH_A_WORD: f64 = 0.01;

pub(super) struct View<'a> {
    profile: &'a Profile,
}

pub(super) fn advice(profile: &Profile) -> Vec<String> {
    let view = View { profile };
    let found = [
        view.errors(),
        view.held_back(),
        view.small_independent_calls(),
        view.small_posix_calls(),
        view.one_aggregator(),
        view.shuffle(),
        view.imbalance(),
        view.metadata(),
        view.backwards(),
    ];
    found.into_iter().flatten().collect()
}

impl View<'_> {
    fn count(&self, counter: &str) -> u64 {
        self.value(counter) as u64
    }

    /// A counter by its name, which begins with the name of its module.
    fn value(&self, counter: &str) -> f64 {
        let module = counter.split('_').next().unwrap_or_default();
        let counters = self.profile.modules.get(module).map(|module| &module.counters);
        counters.and_then(|counters| counters.get(counter)).map_or(0.0, |value| value.as_f64())
    }

    /// Whether so many rank-seconds matter to the job.
    fn matters(&self, rank_s: f64) -> bool {
        let job = &self.profile.job;
        rank_s > WORTH_A_WORD * job.duration_s * job.nprocs as f64
    }

    fn errors(&self) -> Option<String> {
        let (mpiio, posix) = (self.count("MPIIO_ERRORS"), self.count("POSIX_ERRORS"));
        (mpiio + posix > 0).then(|| format!("{mpiio} MPI-IO and {posix} POSIX calls returned an error"))
    }

    fn held_back(&self) -> Option<String> {
        let phases = &self.profile.phases;
        let wait_s = phases.list.iter().map(|phase| phase.wait_s).sum::<f64>() + phases.unlisted.wait_s;
        (wait_s > WORTH_A_WORD * self.profile.job.duration_s).then(|| {
            format!("held back for {}, by other jobs or a coordinator slow to answer", seconds(wait_s))
        })
    }

    fn small_independent_calls(&self) -> Option<String> {
        let small = |direction: &str| -> u64 {
            ["0_100", "100_1K", "1K_10K"]
                .iter()
                .map(|class| self.count(&format!("MPIIO_SIZE_{direction}_AGG_{class}")))
                .sum()
        };
        // Sizes are counted of all kinds of calls together: of the small ones, as many may be of other kinds as there are.
        let others = |direction: &str| -> u64 {
            ["COLL", "SPLIT", "NB"].iter().map(|kind| self.count(&format!("MPIIO_{kind}_{direction}S"))).sum()
        };
        let worst = [("READ", "reads"), ("WRITE", "writes")].into_iter().find_map(|(direction, noun)| {
            let independent = self.count(&format!("MPIIO_INDEP_{direction}S"));
            let small = small(direction).saturating_sub(others(direction)).min(independent);
            let at_least = if others(direction) > 0 && small < independent { "at least " } else { "" };
            (independent >= MANY_CALLS && 2 * small >= independent).then_some((
                noun,
                at_least,
                small,
                independent,
            ))
        })?;
        let (noun, at_least, small, independent) = worst;
        Some(format!(
            "{at_least}{small} of {independent} independent MPI-IO {noun} are of 10 KiB or less: collective calls or larger buffers"
        ))
    }

    fn small_posix_calls(&self) -> Option<String> {
        [("READ", "reads"), ("WRITE", "writes")].into_iter().find_map(|(direction, noun)| {
            let calls = self.count(&format!("POSIX_{direction}S"));
            let small: u64 = ["0_100", "100_1K", "1K_10K"]
                .iter()
                .map(|class| self.count(&format!("POSIX_SIZE_{direction}_{class}")))
                .sum();
            let time_s = self.value(&format!("POSIX_F_{direction}_TIME"));
            (calls >= 10 * MANY_CALLS && 2 * small >= calls && self.matters(time_s))
                .then(|| format!("{small} of {calls} POSIX {noun} are of 10 KiB or less"))
        })
    }

    fn one_aggregator(&self) -> Option<String> {
        let collectives = &self.profile.collectives;
        let [only] = collectives.aggregators.as_slice() else { return None };
        let nprocs = self.profile.job.nprocs;
        (nprocs > 1 && self.matters(collectives.time_s)).then(|| {
            format!(
                "rank {} alone moves the data of all {nprocs} ranks ({}): more aggregators (hint cb_nodes)",
                only.rank,
                bytes(only.file_bytes as f64)
            )
        })
    }

    /// Of each listed call, what the slowest rank spent beyond the slowest file access.
    fn shuffle(&self) -> Option<String> {
        let collectives = &self.profile.collectives;
        let (mut time_s, mut file_s) = (0.0, 0.0);
        for call in &collectives.list {
            time_s += call.max_rank_s;
            file_s += call.ranks.iter().map(|rank| rank.file_s).fold(0.0, f64::max);
        }
        let rest_s = time_s - file_s;
        (rest_s > file_s && self.matters(collectives.rest_s)).then(|| {
            format!(
                "{} of the time of collective calls is not the file's: shuffle and waiting for late ranks",
                percent(rest_s, time_s)
            )
        })
    }

    fn imbalance(&self) -> Option<String> {
        let ranks = &self.profile.ranks;
        let busiest = ranks.iter().max_by(|a, b| a.io_s.total_cmp(&b.io_s))?;
        let mean_s = ranks.iter().map(|rank| rank.io_s).sum::<f64>() / ranks.len() as f64;
        (ranks.len() > 1 && busiest.io_s > 2.0 * mean_s && busiest.io_s > 0.05 * self.profile.job.duration_s)
            .then(|| {
                format!(
                    "rank {} spends {} in I/O, the mean rank {}",
                    busiest.rank,
                    seconds(busiest.io_s),
                    seconds(mean_s)
                )
            })
    }

    fn metadata(&self) -> Option<String> {
        let sum = |times: &[&str]| -> f64 { times.iter().map(|time| self.value(time)).sum() };
        let meta_s = sum(&["MPIIO_F_META_TIME", "STDIO_F_META_TIME"])
            .max(sum(&["POSIX_F_META_TIME", "STDIO_F_META_TIME"]));
        let io_s: f64 = self.profile.ranks.iter().map(|rank| rank.io_s).sum();
        let opens = self.count("POSIX_OPENS") + self.count("STDIO_OPENS");
        (meta_s > 0.3 * io_s && self.matters(meta_s)).then(|| {
            format!(
                "{} of I/O time is open, close, sync and the like ({})",
                percent(meta_s, io_s),
                counted(opens, "open")
            )
        })
    }

    fn backwards(&self) -> Option<String> {
        [("READ", "reads"), ("WRITE", "writes")].into_iter().find_map(|(direction, noun)| {
            let calls = self.count(&format!("POSIX_{direction}S"));
            let forward = self.count(&format!("POSIX_SEQ_{direction}S"));
            let time_s = self.value(&format!("POSIX_F_{direction}_TIME"));
            (calls >= MANY_CALLS && 2 * forward < calls && self.matters(time_s)).then(|| {
                format!(
                    "only {} of POSIX {noun} go forward in the file",
                    percent(forward as f64, calls as f64)
                )
            })
        })
    }
}
