//! The MPIs of the matrix, as `scripts/mpi.sh` describes them, and building programs with them.

use super::run::library;
use super::{Stop, Verdict};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::SystemTime;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A name, and the MPI or the reason why it is not here.
pub(crate) type Found = (String, Result<Arc<Mpi>, String>);

pub(crate) struct Mpi {
    pub(crate) name: String,
    pub(crate) variables: BTreeMap<String, String>,
}

pub(crate) fn all() -> Vec<Found> {
    let script = |arguments: &[&str]| {
        let output = Command::new(root().join("scripts/mpi.sh")).args(arguments).output();
        let output = output.expect("scripts/mpi.sh runs");
        let text = |bytes| String::from_utf8_lossy(bytes).trim().to_string();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    };
    let names = script(&["list"]).expect("scripts/mpi.sh list");
    let describe = |name: &str| {
        let text = script(&["env", name])?;
        Ok(Arc::new(Mpi { name: name.into(), variables: assignments(&text) }))
    };
    names.lines().map(|name| (name.to_string(), describe(name))).collect()
}

/// `export NAME='value'` lines.
fn assignments(text: &str) -> BTreeMap<String, String> {
    let parse = |line: &str| {
        let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
        Some((name.to_string(), value.trim_matches('\'').to_string()))
    };
    text.lines().filter_map(parse).collect()
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    C,
    Cxx,
    Fortran,
    /// C with the system's compiler, linked to no MPI.
    PlainC,
}

/// A program to build: its source beneath the repository's root, and flags that make a variant of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    pub(crate) language: Language,
    pub(crate) flags: &'static [&'static str],
}

pub(crate) const fn c(name: &'static str, source: &'static str, flags: &'static [&'static str]) -> Program {
    Program { name, source, language: Language::C, flags }
}

impl Mpi {
    /// A part of the description, if this MPI has it.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.variables.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The launcher, for so many ranks.
    pub(crate) fn launcher(&self, ranks: usize) -> Vec<String> {
        let launcher = self.get("MPI_EXEC").expect("every MPI has a launcher");
        launcher.split(' ').map(String::from).chain(["-n".into(), ranks.to_string()]).collect()
    }

    /// Builds `program` unless that was done after its last change; answers with the executable.
    pub(crate) fn build(&self, program: &Program) -> Verdict<PathBuf> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs").join(&self.name);
        std::fs::create_dir_all(&folder)?;
        let executable = folder.join(program.name);
        // Several trials share a program: the first builds it.
        static LOCKS: LazyLock<Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>> = LazyLock::new(Mutex::default);
        let lock = LOCKS.lock().unwrap().entry(executable.clone()).or_default().clone();
        let _guard = lock.lock().unwrap();
        let source = root().join(program.source);
        if !newer(&executable, &source) {
            self.compile(program, &source, &folder, &executable)?;
        }
        Ok(executable)
    }

    fn compile(&self, program: &Program, source: &Path, folder: &Path, executable: &Path) -> Verdict {
        let (compiler, language) = match program.language {
            Language::C => (self.get("MPI_CC"), "C"),
            Language::Cxx => (self.get("MPI_CXX"), "C++"),
            Language::Fortran => (self.get("MPI_FC"), "Fortran"),
            Language::PlainC => (Some("cc"), "C"),
        };
        let Some(compiler) = compiler else {
            return Err(Stop::Skip(format!("{} brings no {language} compiler", self.name)));
        };
        let mut words = compiler.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(["-O1", "-g", "-w", "-pthread"]).envs(&self.variables);
        if matches!(program.language, Language::Fortran) {
            // Module files of variants must not meet.
            let modules = folder.join(format!("{}.modules", program.name));
            std::fs::create_dir_all(&modules)?;
            command.arg("-J").arg(modules);
        }
        command.args(program.flags).arg(source).arg("-o").arg(executable).args(["-ldl", "-lm"]);
        if let Some(folder) = library().parent() {
            command.env("LIBRARY_PATH", folder); // for -lweir
        }
        let output = command.current_dir(root()).output()?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        if message.contains("mpi_f08.mod") {
            return Err(Stop::Skip(format!("{} has no mpi_f08 module for this compiler", self.name)));
        }
        Err(Stop::Fail(format!("{command:?}\n{message}")))
    }
}

/// Whether `executable` is newer than everything in the folder of `source` and the public headers.
fn newer(executable: &Path, source: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    let Some(built) = changed(executable) else { return false };
    let latest_in = |folder: &Path| -> Option<SystemTime> {
        std::fs::read_dir(folder).ok()?.flatten().filter_map(|entry| changed(&entry.path())).max()
    };
    let folders =
        [source.parent().unwrap_or(root()).to_path_buf(), root().join("include"), root().join("scripts")];
    folders.iter().all(|folder| latest_in(folder).is_none_or(|latest| latest < built))
}
