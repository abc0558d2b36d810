//! What to look at: one sentence for each habit that costs time.

use super::errors;
use super::text::{bytes, counted, percent, seconds};
use weir_profile::profile::Profile;

/// Advice needs this many calls to speak of a habit.
const MANY_CALLS: u64 = 100;
/// What takes less than this share of the run is not worth a word.
const WORTH_A_WORD: f64 = 0.01;
/// A run of which this share or more is I/O stands out, whatever its habits.
const MUCH_IO: f64 = 0.25;

pub(super) struct View<'a> {
    profile: &'a Profile,
}

pub(super) fn advice(profile: &Profile) -> Vec<String> {
    let view = View { profile };
    let found = [
        view.held_back(),
        view.much_io(),
        view.small_independent_calls(),
        view.small_posix_calls(),
        view.one_aggregator(),
        view.shuffle(),
        view.imbalance(),
        view.metadata(),
        view.backwards(),
    ];
    errors::lines(profile).into_iter().chain(found.into_iter().flatten()).collect()
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

    fn held_back(&self) -> Option<String> {
        let phases = &self.profile.phases;
        let wait_s = phases.list.iter().map(|phase| phase.wait_s).sum::<f64>() + phases.unlisted.wait_s;
        (wait_s >= WORTH_A_WORD * self.profile.job.duration_s && wait_s > 0.0).then(|| {
            format!("held back for {}, by other jobs or a coordinator slow to answer", seconds(wait_s))
        })
    }

    /// Phases, or time in calls where there is more of it, and what most of it is.
    fn much_io(&self) -> Option<String> {
        let phases = &self.profile.phases;
        let ratio = phases.io_ratio.max(phases.io_time_ratio.unwrap_or(0.0));
        if ratio < MUCH_IO {
            return None;
        }
        let most = self.profile.io_time.and_then(|time| {
            let parts = [
                ("open and close", time.open_close_s),
                ("write", time.write_s),
                ("read", time.read_s),
                ("sync", time.sync_s),
                ("seek, stat and the like", time.other_s),
            ];
            let most = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            (most.1 > 0.0).then_some(most)
        });
        let most = most.map_or(String::new(), |(what, sum_s)| {
            format!(", most of it {what} ({} of the mean rank)", seconds(self.per_rank(sum_s)))
        });
        Some(format!("{} of the run is I/O{most}", percent(ratio, 1.0)))
    }

    /// A sum over ranks as the mean rank has it.
    fn per_rank(&self, sum: f64) -> f64 {
        sum / self.profile.job.nprocs.max(1) as f64
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

    /// On a single node one aggregator is what most file systems want: more of them only share its way to the storage.
    fn one_aggregator(&self) -> Option<String> {
        let collectives = &self.profile.collectives;
        let [only] = collectives.aggregators.as_slice() else { return None };
        let job = &self.profile.job;
        (job.nnodes > 1 && self.matters(collectives.time_s)).then(|| {
            format!(
                "rank {} alone moves the data of all {} ranks on {} nodes ({}): an aggregator on each node (hint cb_nodes)",
                only.rank,
                job.nprocs,
                job.nnodes,
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
        let time = self.profile.io_time?;
        let meta_s = time.open_close_s + time.sync_s + time.other_s;
        let opens = self.count("MPIIO_COLL_OPENS")
            + self.count("MPIIO_INDEP_OPENS")
            + self.count("POSIX_OPENS")
            + self.count("STDIO_OPENS");
        (meta_s > 0.3 * time.total_s() && self.matters(meta_s)).then(|| {
            format!(
                "{} of I/O time is open, close, sync, stat and the like: {} of the mean rank ({})",
                percent(meta_s, time.total_s()),
                seconds(self.per_rank(meta_s)),
                counted(opens, "open")
            )
        })
    }

    /// Calls that begin before where the one before them ended. The first after an open is no step back: every
    /// file that is written anew begins at its beginning.
    fn backwards(&self) -> Option<String> {
        let opens = self.count("POSIX_OPENS");
        [("READ", "reads"), ("WRITE", "writes")].into_iter().find_map(|(direction, noun)| {
            let calls = self.count(&format!("POSIX_{direction}S"));
            let forward = self.count(&format!("POSIX_SEQ_{direction}S"));
            let back = calls.saturating_sub(forward).saturating_sub(opens);
            let time_s = self.value(&format!("POSIX_F_{direction}_TIME"));
            (calls >= MANY_CALLS && 2 * back > calls && self.matters(time_s)).then(|| {
                format!("{} of POSIX {noun} go back in the file", percent(back as f64, calls as f64))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use weir_profile::profile::{Aggregator, Failure, IoTime, Value};

    /// A job of two ranks that ran for 100 s and did nothing that stands out.
    fn quiet() -> Profile {
        serde_json::from_value(serde_json::json!({
            "weir": { "version": "0", "schema": 1 },
            "job": {
                "id": "1", "application": "a", "nprocs": 2, "nnodes": 1, "mpi": "", "abi": "mpich", "start": "",
                "end": "", "duration_s": 100.0, "ended": "finalized", "spawned": false
            },
            "phases": {
                "count": 0, "characteristic_time_s": null, "io_ratio": 0.0, "gap_s": null, "gap_source": "learnt",
                "list": [], "outside": { "bytes_read": 0, "bytes_written": 0, "calls": 0 }
            },
            "modules": {}, "files": [], "histograms": {}, "slowest": [], "ranks": [], "notes": [],
            "collectives": {
                "calls": 0, "time_s": 0.0, "file_time_s": 0.0, "rest_s": 0.0, "aggregators": [], "list": []
            },
            "series": { "bin_s": 1.0, "bytes_read": [], "bytes_written": [] },
            "dropped": {
                "files": 0, "bursts": 0, "phases": 0, "collectives": 0, "requests": 0, "handles": 0, "ranks": 0
            }
        }))
        .unwrap()
    }

    fn count(profile: &mut Profile, counters: &[(&'static str, Value)]) {
        for (name, value) in counters {
            let module = Cow::Borrowed(name.split('_').next().unwrap_or_default());
            let module = profile.modules.entry(module).or_default();
            module.counters.insert(Cow::Borrowed(name), *value);
        }
    }

    #[test]
    fn more_aggregators_are_advised_where_there_are_several_nodes() {
        let mut profile = quiet();
        let host = "n0".to_string();
        profile.collectives.aggregators =
            vec![Aggregator { rank: 0, host, file_bytes: 1 << 20, file_time_s: 9.0 }];
        profile.collectives.time_s = 50.0;
        assert!(advice(&profile).is_empty(), "{:?}", advice(&profile));
        profile.job.nnodes = 2;
        let expected =
            "rank 0 alone moves the data of all 2 ranks on 2 nodes (1.00 MiB): an aggregator on each node";
        assert!(advice(&profile)[0].starts_with(expected), "{:?}", advice(&profile));
    }

    /// Three checkpoint files in rotation: each time a file is opened and written by one call at the same place.
    #[test]
    fn a_file_that_is_written_anew_does_not_go_backwards() {
        let mut profile = quiet();
        let calls = |forward: u64| {
            [
                ("POSIX_WRITES", Value::Count(600)),
                ("POSIX_SEQ_WRITES", Value::Count(forward)),
                ("POSIX_F_WRITE_TIME", Value::Seconds(50.0)),
            ]
        };
        count(&mut profile, &calls(3));
        count(&mut profile, &[("POSIX_OPENS", Value::Count(600))]);
        assert!(advice(&profile).is_empty(), "{:?}", advice(&profile));
        count(&mut profile, &[("POSIX_OPENS", Value::Count(60))]);
        assert_eq!(advice(&profile), ["90 % of POSIX writes go back in the file"]);
    }

    #[test]
    fn errors_name_call_file_and_error_and_harmless_ones_are_none() {
        let mut profile = quiet();
        let failure = |op: &str, error: &str, errno: Option<i32>, harmless: bool| Failure {
            op: op.into(),
            file: "/scratch/a.dat".into(),
            error: error.into(),
            errno,
            harmless,
            count: 2,
            nranks: 1,
            rank: 1,
            start_s: 12.0,
        };
        count(&mut profile, &[("MPIIO_ERRORS", Value::Count(2))]);
        profile.errors = vec![failure("MPI_File_delete", "MPI_ERR_NO_SUCH_FILE", None, true)];
        assert!(advice(&profile).is_empty(), "{:?}", advice(&profile));
        count(&mut profile, &[("POSIX_ERRORS", Value::Count(5))]);
        profile.errors.insert(0, failure("write", "ENOSPC", Some(28), false));
        assert_eq!(
            advice(&profile),
            [
                "write of /scratch/a.dat failed 2× on rank 1: no space left on device (ENOSPC), first at 12.0 s",
                "3 more I/O calls failed in other ways",
            ]
        );
    }

    #[test]
    fn a_run_of_which_a_third_is_io_stands_out() {
        let mut profile = quiet();
        profile.phases.io_ratio = 0.34;
        profile.io_time = Some(IoTime { write_s: 20.0, read_s: 3.0, ..IoTime::default() });
        assert_eq!(advice(&profile), ["34 % of the run is I/O, most of it write (10.0 s of the mean rank)"]);
        profile.phases.io_ratio = 0.04;
        profile.phases.io_time_ratio = Some(0.45);
        profile.io_time = Some(IoTime { open_close_s: 90.0, write_s: 0.2, ..IoTime::default() });
        assert_eq!(
            advice(&profile),
            [
                "45 % of the run is I/O, most of it open and close (45.0 s of the mean rank)",
                "over 99 % of I/O time is open, close, sync, stat and the like: 45.0 s of the mean rank (0 opens)",
            ]
        );
        profile.phases.io_time_ratio = Some(0.2);
        assert_eq!(advice(&profile).len(), 1);
    }

    #[test]
    fn a_wait_of_less_than_a_hundredth_of_the_run_is_no_verdict() {
        let mut profile = quiet();
        profile.phases.unlisted.wait_s = 0.9;
        assert!(advice(&profile).is_empty(), "{:?}", advice(&profile));
        profile.phases.unlisted.wait_s = 1.0;
        assert!(advice(&profile)[0].starts_with("held back for 1.00 s"), "{:?}", advice(&profile));
    }
}
