//! The constants and layouts Weir takes for granted are those of this MPI's `mpi.h`, and no function
//! that moves bytes or changes a file is missed.

use super::programs::EVERYTHING;
use super::{Place, Scenario, scenario};
use crate::mpi::c;
use crate::run::{Job, library};
use crate::{Verdict, ensure};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

pub(super) fn list() -> Vec<Scenario> {
    vec![scenario("abi", constants), scenario("every_function", every_function)]
}

fn constants(place: &Place) -> Verdict {
    let probe = place.mpi.build(&c("abi", "tests/programs/abi.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, 1, [probe.into_os_string(), "required".into()]);
    let ran = job.preload([library()]).run("weir")?;
    ensure(ran.code == 0, || format!("{}{}", ran.stderr, ran.stdout))
}

/// Functions that only ask, or belong to handles rather than to files.
fn is_of_no_interest(name: &str) -> bool {
    let name = name.trim_start_matches("MPI_File_").trim_end_matches("_c");
    let asks = ["get_", "c2f", "f2c", "fromint", "toint"].iter().any(|start| name.starts_with(start));
    asks || name.ends_with("errhandler") || ["seek", "seek_shared", "set_atomicity"].contains(&name)
}

/// What this MPI's library has of `MPI_File_*`, ours has.
fn every_function(place: &Place) -> Verdict {
    let program = place.mpi.build(&EVERYTHING)?;
    let linked = output(Command::new("ldd").arg(program).envs(&place.mpi.variables))?;
    let mpi = linked.lines().find_map(|line| {
        let (name, path) = line.trim().split_once(" => ")?;
        name.starts_with("libmpi").then(|| path.split(' ').next().unwrap_or_default().to_string())
    });
    let mpi = mpi.ok_or_else(|| format!("no MPI library among\n{linked}"))?;
    let ours = functions(&library())?;
    let missed: Vec<_> = functions(Path::new(&mpi))?
        .into_iter()
        .filter(|f| !is_of_no_interest(f) && !ours.contains(f))
        .collect();
    ensure(missed.is_empty(), || format!("in {mpi} but not intercepted: {missed:?}"))
}

fn functions(library: &Path) -> Verdict<BTreeSet<String>> {
    let symbols = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library))?;
    let names = symbols.lines().filter_map(|line| line.split(' ').next_back());
    let names: BTreeSet<_> = names.filter(|n| n.starts_with("MPI_File_")).map(String::from).collect();
    ensure(names.len() > 50, || format!("{} has only {names:?}", library.display()))?;
    Ok(names)
}

fn output(command: &mut Command) -> Verdict<String> {
    Ok(String::from_utf8_lossy(&command.output()?.stdout).into_owned())
}
