//! `weir merge`: profiles of what killed jobs have left, as the owners of the records would have written them.

mod owner;

use crate::run::WRITE_LIMIT;
use crate::{Outcome, output};
use owner::Owner;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_profile::helper;
use weir_profile::job::{self, FOLDER_PREFIX, Merged};

/// For a job whose processes did not tell their mask (there was no helper process): its owner alone.
const DEFAULT_UMASK: u32 = 0o077;

#[derive(clap::Args)]
#[command(
    after_help = "A job that still runs is left alone. As root the profile becomes the owner's: Weir becomes that user before it \
    opens anything of theirs, and keeps the umask that the job had. Other users' records are refused to everybody else.\n\n\
    Examples:\n  \
    weir merge                          what is left in the current directory\n  \
    weir merge /scratch/me/weir         what is left in a WEIR_DIR\n  \
    weir merge --ended .weir-4711.0     a job that is known to be over, though a node of it was lost\n  \
    sudo weir merge /scratch/*/weir     everybody's; docs/SITE.md has the lines for an epilog\n\n\
    Exit code: 0 if all was merged or there was nothing to merge, 1 if something could not be."
)]
pub(crate) struct Args {
    /// Directories of profiles (WEIR_DIR) or jobs' folders of records
    #[arg(value_name = "DIR", default_value = ".")]
    paths: Vec<PathBuf>,
    /// The jobs are over: ranks of which nothing is known any more were killed
    #[arg(long)]
    ended: bool,
    /// Do not say where the profiles are
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut is_all_merged = true;
    for path in &args.paths {
        match job::find(path) {
            Ok(found) => {
                for folder in &found.folders {
                    is_all_merged &= merge_folder(folder, args);
                }
            }
            Err(error) => is_all_merged = told(Err(error.to_string())),
        }
    }
    Ok(if is_all_merged { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether it went well; if not, the reason is said.
fn told(outcome: Result<(), String>) -> bool {
    outcome.map_err(output::say).is_ok()
}

/// Whether the records of a folder were merged, if there was anything to merge.
fn merge_folder(folder: &Path, args: &Args) -> bool {
    let owner = match Owner::of(folder) {
        Ok(owner) => owner,
        Err(error) => return told(Err(format!("{}: {error}", folder.display()))),
    };
    if owner.is_this_process() {
        return told(merge_own(folder, args, |_| {}));
    }
    let with_their_umask = |merged: &Merged| {
        let umask = merged.umask.unwrap_or(DEFAULT_UMASK);
        // SAFETY: takes a number.
        unsafe { libc::umask(umask as libc::mode_t) };
    };
    let merge = || told(merge_own(folder, args, with_their_umask));
    owner.do_as(folder, merge).unwrap_or_else(|reason| told(Err(reason)))
}

/// Merges this user's records. `before` is done before a profile is written.
fn merge_own(folder: &Path, args: &Args, before: impl Fn(&Merged)) -> Result<(), String> {
    let name = folder.canonicalize().unwrap_or_default();
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    if let Some(job) = name.strip_prefix(FOLDER_PREFIX) {
        // Ranks that were killed just now have left their records to the helper process of the node.
        helper::flush_job(job, WRITE_LIMIT);
    }
    let merged = job::merge_folder(folder, args.ended).map_err(|error| error.to_string())?;
    for launch in merged.0 {
        let (job, ended) = (launch.profile.job.id.clone(), launch.profile.job.ended.clone());
        if launch.is_live() {
            if !args.quiet {
                output::print(&format!("job {job} still runs, as far as can be told: left alone\n"))?;
            }
            continue;
        }
        before(&launch);
        let path = launch.write(&job::directory_of(folder)).map_err(|error| error.to_string())?;
        if let Some(path) = path.filter(|_| !args.quiet) {
            output::print(&format!("job {job} {ended}; merged into {}\n", path.display()))?;
        }
    }
    Ok(())
}
