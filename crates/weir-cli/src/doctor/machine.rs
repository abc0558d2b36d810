//! What is on this machine: the library, MPIs, the directory for profiles, the environment.

use super::Findings;
use crate::elf;
use crate::launcher::{self, Kind, is_executable};
use crate::report::text::bytes;
use crate::run;
use crate::setup::{directory, writable_dir};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_profile::settings;

pub(super) fn check_library(findings: &mut Findings, library: &Path) {
    let size = fs::metadata(library).map(|metadata| metadata.len()).unwrap_or(0);
    let Some(elf) = elf::read(library) else {
        return findings
            .wrong("libweir.so", &format!("{} is not a shared library of this machine", library.display()));
    };
    let count = |wanted: fn(&str) -> bool| elf.exported.iter().filter(|name| wanted(name)).count();
    let (mpi, pmpi, own) = (
        count(|n| n.starts_with("MPI_")),
        count(|n| n.starts_with("PMPI_")),
        count(|n| n.starts_with("weir_")),
    );
    let posix = elf.exported.len() - mpi - pmpi - own;
    findings.fine("libweir.so", &format!("{}, {}", library.display(), bytes(size as f64)));
    let text = format!(
        "{mpi} MPI_, {pmpi} PMPI_ and {posix} POSIX and STDIO functions; {own} weir_ functions to call"
    );
    if mpi == 0 || posix == 0 {
        findings.wrong("symbols", &format!("exports {text}"));
    } else {
        findings.fine("symbols", &format!("intercepts {text}"));
    }
    match loads(library) {
        Ok(()) => findings.fine("preload", "a program starts with it"),
        Err(error) => findings.wrong("preload", &error),
    }
}

/// The dynamic linker only complains on standard error when it cannot preload something.
fn loads(library: &Path) -> Result<(), String> {
    let output = Command::new("/bin/true")
        .env("LD_PRELOAD", library)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run /bin/true: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().next() {
        None if output.status.success() => Ok(()),
        None => Err(format!("/bin/true with it: {}", output.status)),
        Some(line) => Err(line.to_string()),
    }
}

/// Programs on `PATH` whose name is `stem` or begins with `stem.`, each file once.
fn programs(stem: &str) -> BTreeMap<PathBuf, PathBuf> {
    let mut found = BTreeMap::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    for entry in std::env::split_paths(&path).filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let fits = name == stem || name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.'));
        if fits && is_executable(&entry.path()) {
            let file = entry.path().canonicalize().unwrap_or_else(|_| entry.path());
            found.entry(file).or_insert_with(|| entry.path());
        }
    }
    found
}

pub(super) fn check_mpis(findings: &mut Findings) {
    let mut launchers = programs("mpirun");
    launchers.extend(programs("mpiexec").into_iter().filter(|(file, _)| !is_also_mpirun(file)));
    launchers.extend(programs("srun"));
    for program in launchers.values() {
        match launcher::identify(program.as_os_str()) {
            Ok(launcher) => {
                let abi = match launcher.kind {
                    Kind::OpenMpi => ", ABI openmpi",
                    Kind::Hydra => ", ABI mpich or standard",
                    _ => "",
                };
                findings.fine("launcher", &format!("{}: {}{abi}", program.display(), launcher.version));
            }
            Err(error) => findings.note("launcher", &error),
        }
    }
    if launchers.is_empty() {
        findings.note("launcher", "no mpirun, mpiexec or srun on PATH");
    }
    for compiler in programs("mpicc").values() {
        let version = compiler_version(compiler.as_os_str()).unwrap_or_else(|| "of unknown version".into());
        findings.fine("compiler", &format!("{}: {version}", compiler.display()));
    }
}

/// `mpiexec` is mostly another name of `mpirun`.
fn is_also_mpirun(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().replace("mpiexec", "mpirun");
    file.with_file_name(name).exists()
}

fn compiler_version(compiler: &OsStr) -> Option<String> {
    ["--showme:version", "-v"].iter().find_map(|option| {
        let output = Command::new(compiler).arg(option).stdin(Stdio::null()).output().ok()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let names_mpi =
            |line: &&str| ["Open MPI", "MPICH", "Intel(R) MPI"].iter().any(|mpi| line.contains(mpi));
        let line = said.lines().find(names_mpi)?.trim();
        Some(line.split_once(": ").map_or(line, |(_, version)| version).to_string())
    })
}

pub(super) fn check_directory(findings: &mut Findings) {
    let dir = directory(None);
    match writable_dir(&dir) {
        Ok(dir) => {
            let kind = file_system_of(&dir).unwrap_or_else(|| "unknown".into());
            let shared =
                ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "pvfs2", "cifs", "9p", "fuse.sshfs"];
            let reach = if shared.contains(&kind.as_str()) {
                ""
            } else {
                "; ranks on other nodes must see the same directory"
            };
            findings.fine("WEIR_DIR", &format!("{} is writable, on {kind}{reach}", dir.display()));
        }
        Err(error) => findings.wrong("WEIR_DIR", &error),
    }
}

/// Type of the file system a directory is on: that of the longest mount point above it.
fn file_system_of(dir: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let kind = |line: &str| {
        let (mount, options) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        dir.starts_with(point)
            .then(|| (point.len(), options.split(' ').next().unwrap_or_default().to_string()))
    };
    mounts.lines().filter_map(kind).max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

pub(super) fn check_environment(findings: &mut Findings) {
    if let Err(error) = run::check_environment() {
        findings.wrong("environment", &error);
    }
    if std::env::var("WEIR_DISABLE").is_ok_and(|value| settings::flag(value.trim()) == Ok(true)) {
        findings.wrong("environment", "WEIR_DISABLE is set: nothing will be measured");
    }
    if let Some(preload) = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty()) {
        findings.note("environment", &format!("LD_PRELOAD is already {}", preload.to_string_lossy()));
    }
}
