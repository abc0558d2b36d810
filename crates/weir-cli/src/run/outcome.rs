//! What `weir run` says when the command has ended: where the profiles are, or why there is none.

use super::ears::World;
use super::{Args, Job, WRITE_LIMIT};
use crate::launcher::lone_ranks;
use crate::output;
use crate::report::text::counted;
use crate::report::{dress, load, summary};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use weir_profile::helper;
use weir_profile::job::{self, FOLDER_PREFIX, PROFILE_PREFIX};
use weir_profile::profile::Profile;

/// Says where the profiles are that the job wrote, or its killed ranks left to be written.
pub(super) fn tell(args: &Args, job: &Job, status: ExitStatus) -> Result<(), String> {
    let worlds = job.ears.heard();
    // Ranks that were killed have left their records to the helper process, which may be about to write them.
    helper::flush_job(&job.name, WRITE_LIMIT);
    merge_leftovers(&job.dir, &job.name);
    let mut paths = profiles_of(&job.dir, &job.name).unwrap_or_default();
    paths.retain(|path| !job.before.contains(path));
    let mut profiles = Vec::new();
    for path in &paths {
        if !args.quiet {
            output::say(format_args!("profile {}", path.display()));
        }
        // A single one has nobody to be alone beside.
        if args.report || paths.len() > 1 {
            profiles.push(load(path)?);
        }
        if let Some(profile) = profiles.last().filter(|_| args.report) {
            let text = summary(profile, dress(std::io::stderr().is_terminal()));
            output::print_aside(&format!("\n{text}"));
        }
    }
    if args.quiet {
        return Ok(());
    }
    if let Some(reason) = alone(job, &worlds, &profiles) {
        output::say(reason);
    }
    if paths.is_empty() && job.is_recorded {
        output::say(why_nothing(&worlds, status));
    }
    Ok(())
}

/// Ranks that did not find each other: from what they said at their end, or from their profiles.
fn alone(job: &Job, worlds: &[World], profiles: &[Profile]) -> Option<String> {
    let said = worlds.iter().map(|world| (world.nprocs, world.mpi.as_str()));
    let recorded = profiles.iter().map(|profile| (profile.job.nprocs, profile.job.mpi.as_str()));
    let lone = |all: &mut dyn Iterator<Item = (u64, &str)>| {
        let found: Vec<String> =
            all.filter(|(ranks, _)| *ranks == 1).map(|(_, mpi)| mpi.to_string()).collect();
        (found.len() as u64, found.into_iter().next().unwrap_or_default())
    };
    let (count, mpi) = lone(&mut said.into_iter()).max(lone(&mut recorded.into_iter()));
    lone_ranks(&job.setup.launcher, count, &mpi)
}

/// Why there is no profile.
fn why_nothing(worlds: &[World], status: ExitStatus) -> String {
    let seen = "no I/O of an MPI program was seen";
    match (worlds.iter().max_by_key(|world| world.nprocs), status.success()) {
        (Some(world), _) => {
            let ranks = counted(worlds.iter().map(|world| world.nprocs).sum(), "rank");
            let mpi = world.mpi.split(',').next().unwrap_or_default();
            format!(
                "MPI ran ({ranks}, {mpi}) and did no I/O that is measured, so there is no profile; files in system directories \
                are left out unless --include names them"
            )
        }
        (None, true) => format!("{seen}, so there is no profile; `weir doctor -- …` says why"),
        // Whoever failed has said why, and would fail again under the doctor.
        (None, false) => format!("{seen} before the command failed ({status}), so there is no profile"),
    }
}

/// The job and the worlds it spawned, which have a dot and a number behind its name.
fn belongs(name: &str, job: &str) -> bool {
    name.strip_prefix(job).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Ranks that were killed left their records; now that the launcher has ended they are merged.
fn merge_leftovers(dir: &Path, job: &str) {
    let folders = job::find(dir).map(|found| found.folders).unwrap_or_default();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if name.strip_prefix(FOLDER_PREFIX).is_some_and(|name| belongs(name, job))
            && let Err(error) = job::merge_folder(&folder, true).and_then(|merged| merged.write(dir))
        {
            output::say(error);
        }
    }
}

/// `weir-<application>-<job>.json`, with what may stand behind the job.
pub(super) fn profiles_of(dir: &Path, job: &str) -> Result<Vec<PathBuf>, String> {
    let found = job::find(dir).map_err(|error| error.to_string())?;
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_prefix(PROFILE_PREFIX).and_then(|name| name.strip_suffix(".json"));
        name.and_then(|name| name.rfind(&format!("-{job}")).map(|at| &name[at + 1..])).is_some_and(|rest| {
            let rest = &rest[job.len()..];
            rest.is_empty() || rest.starts_with(['.', '-'])
        })
    };
    Ok(found.profiles.into_iter().filter(is_ours).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spawned_worlds_belong_to_the_job() {
        assert!(belongs("4711", "4711") && belongs("4711.1", "4711"));
        assert!(!belongs("47110", "4711") && !belongs("0-4711", "4711"));
    }
}
