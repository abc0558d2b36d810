//! Rank, size, host, application and job: without any communication.

use crate::abi;
use crate::config::variable;
use crate::lifecycle::Model;
use std::ffi::c_int;
use std::path::PathBuf;
use weir_profile::host;

#[derive(Clone, Default)]
pub(crate) struct Identity {
    pub(crate) rank: u64,
    pub(crate) nprocs: u64,
    pub(crate) host: String,
    pub(crate) application: String,
    pub(crate) job: String,
    /// What tells this launch from others that have the same job's name.
    pub(crate) launch: u64,
    pub(crate) mpi: String,
    /// `MPI_THREAD_SINGLE` (0) to `MPI_THREAD_MULTIPLE` (3), by its place in that order.
    pub(crate) thread_level: u64,
    /// Whether this world was made by `MPI_Comm_spawn`.
    pub(crate) spawned: bool,
    /// `WEIR_DIR`, or the current directory when MPI was initialised.
    pub(crate) directory: PathBuf,
    /// The current directory when MPI was initialised.
    pub(crate) started_in: PathBuf,
    /// Whose process this was when MPI was initialised.
    pub(crate) user: u32,
}

impl Identity {
    pub(crate) fn find(model: Model) -> Identity {
        let abi = abi::current();
        let (mut rank, mut size): (c_int, c_int) = (-1, -1);
        if model == Model::World {
            // SAFETY: MPI is initialised, and the world exists.
            unsafe {
                abi::comm_rank(abi.comm_world, &mut rank);
                abi::comm_size(abi.comm_world, &mut size);
            }
        }
        let spawned = model == Model::World && has_parent();
        let rank = u64::try_from(rank).ok().or_else(rank_from_environment).unwrap_or(0);
        let nprocs = u64::try_from(size).ok().or_else(size_from_environment).unwrap_or(1);
        // Absolute from the start: the program may change its directory.
        let started_in = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        let mut level: c_int = 0;
        // SAFETY: MPI is initialised.
        unsafe { abi::query_thread(&mut level) };
        Identity {
            rank,
            nprocs: nprocs.max(rank + 1),
            host: file_name_safe(&host()),
            application: application(),
            job: file_name_safe(&job(nprocs, rank, spawned)),
            launch: launch_id(model == Model::World && size == 1),
            mpi: abi::library_version(),
            thread_level: u64::try_from(level).unwrap_or(0),
            spawned,
            directory: started_in.join(std::env::var_os("WEIR_DIR").unwrap_or_default()),
            started_in,
            // SAFETY: asks for a number.
            user: unsafe { libc::geteuid() },
        }
    }
}

/// Whether `MPI_Comm_spawn` made this world.
fn has_parent() -> bool {
    let abi = abi::current();
    let mut parent = [0u64; 1];
    // SAFETY: 8 zeroed bytes have room for a communicator of any ABI.
    unsafe {
        let place = parent.as_mut_ptr().cast();
        abi::comm_get_parent(place).is_some() && abi.load_handle(place) != abi.comm_null
    }
}

fn first_number(names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| variable(name)?.parse().ok())
}

/// What the launcher says; also known before MPI is up.
pub(crate) fn rank_from_environment() -> Option<u64> {
    first_number(&[
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "PMIX_RANK",
        "SLURM_PROCID",
        "PALS_RANKID",
        "FLUX_TASK_RANK",
    ])
}

fn size_from_environment() -> Option<u64> {
    first_number(&["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "FLUX_JOB_SIZE"])
}

/// What the launcher says.
pub(crate) fn ranks_on_this_node() -> Option<u64> {
    first_number(&["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE"])
}

/// Nodes that the job of so many ranks runs on: as the user says, as the launcher does, or as the batch system does of what
/// it has given to the job.
pub(crate) fn nodes(nprocs: u64) -> u64 {
    let said = crate::config::get(|c| c.nodes);
    let nodes = said
        .or_else(|| first_number(&["SLURM_STEP_NUM_NODES"]))
        .or_else(|| ranks_on_this_node().map(|here| nprocs.div_ceil(here.max(1))))
        .or_else(|| {
            first_number(&["SLURM_JOB_NUM_NODES", "SLURM_NNODES", "PBS_NUM_NODES", "FLUX_JOB_NNODES"])
        });
    nodes.unwrap_or(1).clamp(1, nprocs.max(1))
}

/// Whether all ranks are on this node, as far as the launcher says.
pub(crate) fn is_on_one_node() -> bool {
    let nprocs = super::identity().nprocs;
    nprocs == 1
        || ranks_on_this_node() == Some(nprocs)
        || first_number(&["SLURM_STEP_NUM_NODES", "SLURM_NNODES"]) == Some(1)
}

/// The program's name; for an interpreter, that of the script.
fn application() -> String {
    if let Some(name) = variable("WEIR_APPLICATION") {
        return name;
    }
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_string();
    let program = std::env::current_exe().map(|path| base(&path.to_string_lossy())).unwrap_or_default();
    if is_interpreter(&program)
        && let Some(script) = std::fs::read("/proc/self/cmdline").ok().as_deref().and_then(script_in)
    {
        return base(&script);
    }
    program
}

/// With or without a version behind its name.
fn is_interpreter(program: &str) -> bool {
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    ["python", "pypy", "julia", "Rscript", "R", "perl", "ruby"].contains(&name)
}

/// The first argument in a command line that is not an option, or the one that `Rscript` hands to `R`.
fn script_in(command_line: &[u8]) -> Option<String> {
    let arguments = command_line.split(|byte| *byte == 0).skip(1).map(String::from_utf8_lossy);
    arguments
        .map(|argument| argument.strip_prefix("--file=").unwrap_or(&argument).to_string())
        .find(|argument| !argument.is_empty() && !argument.starts_with('-'))
}

/// A name that all processes of the job find, and no other job.
fn job(nprocs: u64, rank: u64, spawned: bool) -> String {
    let launch = launch(nprocs);
    if !spawned {
        return launch;
    }
    // A spawned world runs under the same command but is a job of its own.
    match process_group() {
        Some(group) if launch.ends_with(&format!(".{group}")) && group != "0" => launch,
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

/// A name that all processes of a launch find by themselves.
fn launch(nprocs: u64) -> String {
    if let Some(id) = variable("WEIR_JOB_ID") {
        return id;
    }
    // These name a launch; a batch job may make several.
    if let (Some(job), Some(step)) = (variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID")) {
        return format!("{job}.{step}");
    }
    let batch_job = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"].iter().find_map(|name| variable(name));
    let launch = ["FLUX_JOB_ID", "PALS_APID", "PMIX_NAMESPACE"].iter().find_map(|name| variable(name));
    let launch = launch.or_else(|| if nprocs > 1 { hydra_launch() } else { None });
    if let Some(launch) = launch {
        return batch_job.map_or(launch.clone(), |job| format!("{job}.{launch}"));
    }
    let (process, host) = if nprocs > 1 { (parent(), host()) } else { (std::process::id(), host()) };
    format!("{host}-{process}-{}", start_ticks_of(process).unwrap_or_default())
}

/// From names that the launcher gives and that all its processes have in common, on whichever node: what they do not
/// have in common must not get in. 0 where there is none. Launchers use their names again, but not at the same time.
fn launch_id(alone: bool) -> u64 {
    let process = std::process::id();
    let name = if alone {
        Some(format!("{}-{process}-{}", host(), start_ticks_of(process).unwrap_or_default()))
    } else {
        let named = ["PMIX_NAMESPACE", "FLUX_JOB_ID", "PALS_APID"].iter().find_map(|name| variable(name));
        named.or_else(hydra_launch)
    };
    name.map_or(0, |name| weir_profile::fnv1a(name.bytes()))
}

fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

/// Hydra (MPICH, Intel MPI) tells its processes no name, but its proxy's command line has the address of
/// the launcher, the same on every node, and the number of the process group.
fn hydra_launch() -> Option<String> {
    let address = launcher_option("--control-port").or_else(|| launcher_option("--upstream-host"))?;
    Some(format!("{address}.{}", process_group().unwrap_or_default()))
}

/// Which world this is of those that one launch made: 0 for the first, then those that were spawned.
fn process_group() -> Option<String> {
    if let Some(namespace) = variable("PMIX_NAMESPACE") {
        // PRRTE counts the jobs of a launch from 1 behind an `@`; Open MPI 4 has a plain number.
        let number: u64 = namespace.rsplit_once('@')?.1.parse().ok()?;
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

/// When a process started, in the kernel's ticks since boot: with its number, a name nobody else has.
fn start_ticks_of(process: u32) -> Option<u64> {
    stat_field(process, 19)
}

/// A field of `/proc/<process>/stat`, counted from the state (0) on: 1 is the parent, 19 the start time.
pub(crate) fn stat_field<T: std::str::FromStr>(process: u32, index: usize) -> Option<T> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(index)?.parse().ok()
}

fn file_name_safe(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || "._-@".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_the_application_of_an_interpreter() {
        assert!(["python3.11", "R", "perl", "julia"].into_iter().all(is_interpreter));
        assert!(!["Ramses", "pythonic", "rubyred"].into_iter().any(is_interpreter));
        assert_eq!(script_in(b"python3\0-u\0/home/me/a.py\0x\0").as_deref(), Some("/home/me/a.py"));
        assert_eq!(script_in(b"R\0--no-echo\0--file=a.R\0--args\0").as_deref(), Some("a.R"));
        assert_eq!(script_in(b"perl\0-e\0"), None);
    }
}
