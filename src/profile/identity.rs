//! Rank, size, host, application and job: without any communication.

mod application;
mod launch;

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
            application: application::application(),
            job: file_name_safe(&launch::job(nprocs, rank, spawned)),
            launch: launch::launch_id(model == Model::World && size == 1),
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
