//! A name for the job that all of its processes find by themselves, on whichever node, and no other job has: the batch system's, with
//! the launcher's behind it, for a batch job may make several launches at once.

use super::{start_ticks_of, stat_field};
use crate::abi;
use crate::config::variable;
use std::ffi::c_int;
use weir_profile::{batch, host};

/// The name of this process's job.
pub(super) fn job(nprocs: u64, rank: u64, spawned: bool) -> String {
    let launch = launch(nprocs);
    if !spawned {
        return launch;
    }
    // A spawned world runs under the same command but is a job of its own.
    match process_group() {
        Some(group) if group != "0" => format!("{launch}.{group}"),
        _ => format!("{launch}.{}", name_from_rank_0(rank)),
    }
}

/// What only rank 0 knows, sent to the others: in worlds made by `MPI_Comm_spawn` under a launcher that does not tell
/// them apart (MPICH 5). All of them are inside `MPI_Init` here.
fn name_from_rank_0(rank: u64) -> String {
    let abi = abi::current();
    let process = std::process::id();
    let mut name =
        if rank == 0 { [u64::from(process), start_ticks_of(process).unwrap_or_default()] } else { [0, 0] };
    // SAFETY: a buffer of that many bytes, in a world whose processes all make this call.
    unsafe { abi::bcast(name.as_mut_ptr().cast(), size_of_val(&name) as c_int, abi.byte, 0, abi.comm_world) };
    format!("spawned-{}-{}", name[0], name[1])
}

/// The name of the launch, without that of a world it spawned.
fn launch(nprocs: u64) -> String {
    if let Some(id) = variable("WEIR_JOB_ID") {
        return id;
    }
    let namespace = variable("PMIX_NAMESPACE");
    // On other nodes the daemons of Open MPI's launcher run in steps of their own: its ranks are in none that they have in common.
    let is_in_step = namespace.as_ref().is_none_or(|namespace| namespace.starts_with("slurm"));
    let job = batch::job(variable);
    let step = batch::slurm_step(variable).filter(|step| is_in_step && batch::is_launched(step));
    if let (Some(job), Some(step)) = (&job, step) {
        return format!("{job}.{step}");
    }
    let launch = ["FLUX_JOB_ID", "PALS_APID"].iter().find_map(|name| variable(name));
    // Flux takes `f` for the letter that it begins numbers with, where there is none.
    let launch = launch.map(|id| id.replace('ƒ', "f"));
    let launch = launch.or_else(|| namespace.as_deref().map(of_namespace));
    let launch =
        launch.or_else(|| if nprocs > 1 { hydra_launch().map(|at| format!("mpiexec-{at}")) } else { None });
    let launch = launch.unwrap_or_else(|| {
        let process = if nprocs > 1 { parent() } else { std::process::id() };
        format!("{}-{process}-{}", host(), start_ticks_of(process).unwrap_or_default())
    });
    job.map_or(launch.clone(), |job| format!("{job}.{launch}"))
}

/// What people know a launch of Open MPI by: host and process of `mpirun` (PRRTE's `prterun-host-1234@1`), or the first number in what
/// Open MPI 4 calls `[11186,1]` in its messages.
fn of_namespace(namespace: &str) -> String {
    match (open_mpi_4(namespace), namespace.strip_prefix("prterun-").and_then(|name| name.rsplit_once('@'))) {
        (Some((family, _)), _) => format!("mpirun-{family}"),
        (_, Some((name, _))) => format!("mpirun-{name}"),
        _ => namespace.into(),
    }
}

/// Which launch a namespace of Open MPI 4 names, and which world of it, counted from 1.
fn open_mpi_4(namespace: &str) -> Option<(u32, u32)> {
    let number: u32 = namespace.parse().ok()?;
    Some((number >> 16, number & 0xffff))
}

/// From names that the launcher gives and that all its processes have in common, on whichever node: what they do not
/// have in common must not get in. 0 where there is none. Launchers use their names again, but not at the same time.
pub(super) fn launch_id(alone: bool) -> u64 {
    let process = std::process::id();
    let name = if alone {
        Some(format!("{}-{process}-{}", host(), start_ticks_of(process).unwrap_or_default()))
    } else {
        let named = ["PMIX_NAMESPACE", "FLUX_JOB_ID", "PALS_APID"].iter().find_map(|name| variable(name));
        named.or_else(|| hydra_launch().map(|at| format!("{at}.{}", process_group().unwrap_or_default())))
    };
    name.map_or(0, |name| weir_profile::fnv1a(name.bytes()))
}

fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

/// Hydra (MPICH, Intel MPI) tells its processes no name, but its proxy's command line has the address of
/// the launcher, the same on every node.
fn hydra_launch() -> Option<String> {
    launcher_option("--control-port").or_else(|| launcher_option("--upstream-host"))
}

/// Which world this is of those that one launch made: 0 for the first, then those that were spawned.
fn process_group() -> Option<String> {
    if let Some(namespace) = variable("PMIX_NAMESPACE") {
        // PRRTE counts the jobs of a launch from 1 behind an `@`.
        let behind = |(_, number): (&str, &str)| number.parse().ok();
        let number: u32 =
            namespace.rsplit_once('@').and_then(behind).or(open_mpi_4(&namespace).map(|(_, n)| n))?;
        return Some(number.saturating_sub(1).to_string());
    }
    launcher_option("--pgid")
}

/// An option of the launcher's proxy, the parent of this process or, when it was started through a shell
/// or another wrapper, one of its ancestors.
fn launcher_option(option: &str) -> Option<String> {
    let mut process = parent();
    for _ in 0..8 {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let mut words = line.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        if words.any(|word| word == option) {
            return words.next();
        }
        process = stat_field(process, 1)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_called_as_people_know_them() {
        for (namespace, expected) in [
            ("733085697", "mpirun-11186"),
            ("prterun-node3-1234@1", "mpirun-node3-1234"),
            ("prte-node3-1234@7", "prte-node3-1234@7"),
        ] {
            assert_eq!(of_namespace(namespace), expected);
        }
        assert_eq!(open_mpi_4("733085698"), Some((11186, 2)));
    }
}
