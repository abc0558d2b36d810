//! Running a program with and without Weir, and comparing what it left.

use super::mpi::Mpi;
use super::{Stop, Verdict, ensure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// A run that hangs is a failed one. The slowest takes a few seconds on an idle machine.
const LIMIT_S: u64 = 240;

fn built(variable: &str, name: &str) -> PathBuf {
    std::env::var_os(variable).map(PathBuf::from).unwrap_or_else(|| {
        // CARGO_TARGET_TMPDIR is `tmp` in the target directory.
        Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("release").join(name)
    })
}

pub(crate) fn library() -> PathBuf {
    built("WEIR_LIB", "libweir.so")
}

pub(crate) fn weir() -> PathBuf {
    built("WEIR_BIN", "weir")
}

/// What one command left behind.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Where it ran.
    pub(crate) files: PathBuf,
    /// `WEIR_DIR`.
    pub(crate) profiles: PathBuf,
}

impl Ran {
    /// Lines that Weir printed.
    pub(crate) fn remarks(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("weir:")).collect()
    }

    /// A program that cannot do here what it is for says so.
    pub(crate) fn unless_skipped(self) -> Verdict<Ran> {
        match self.stdout.lines().find_map(|line| line.strip_prefix("SKIP ")) {
            Some(reason) => Err(Stop::Skip(reason.into())),
            None => Ok(self),
        }
    }
}

/// A command to run in a fresh folder.
#[derive(Clone)]
pub(crate) struct Job {
    folder: PathBuf,
    command: Vec<OsString>,
    variables: BTreeMap<String, OsString>,
    preload: Vec<PathBuf>,
    ranks: usize,
}

impl Job {
    /// `name` is the trial's: it names the folder.
    pub(crate) fn new(name: &str, command: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Job {
            folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join("runs").join(name.replace("::", "/")),
            command: command.into_iter().map(Into::into).collect(),
            variables: BTreeMap::new(),
            preload: Vec::new(),
            ranks: 0,
        }
    }

    pub(crate) fn mpi(
        name: &str,
        mpi: &Mpi,
        ranks: usize,
        command: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        let launcher = mpi.launcher(ranks).into_iter().map(OsString::from);
        let job = Job::new(name, launcher.chain(command.into_iter().map(Into::into)));
        let variables = mpi.variables.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        Job { variables, ranks, ..job }
    }

    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// One more word behind the command.
    pub(crate) fn argument(mut self, word: impl Into<OsString>) -> Self {
        self.command.push(word.into());
        self
    }

    /// Libraries to preload; `library()` is ours.
    pub(crate) fn preload(mut self, libraries: impl IntoIterator<Item = PathBuf>) -> Self {
        self.preload = libraries.into_iter().collect();
        self
    }

    /// With `weir run --quiet` or the like in front.
    pub(crate) fn under(mut self, subcommand: &[&str]) -> Self {
        let mut front = vec![weir().into_os_string()];
        front.extend(subcommand.iter().map(OsString::from));
        // By itself the command takes the library beside it.
        if std::env::var_os("WEIR_LIB").is_some() {
            front.extend(["--lib".into(), library().into_os_string()]);
        }
        front.push("--".into());
        self.command = front.into_iter().chain(self.command).collect();
        self
    }

    /// With these words in front.
    pub(crate) fn within(mut self, front: &[&str]) -> Self {
        self.command = front.iter().map(OsString::from).chain(self.command).collect();
        self
    }

    /// The command in a fresh folder `variant` of its own, and its folders for files and profiles.
    pub(crate) fn prepare(&self, variant: &str) -> Verdict<(Command, PathBuf, PathBuf)> {
        let folder = self.folder.join(variant);
        let (files, profiles) = (folder.join("files"), folder.join("profiles"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&files)?;
        fs::create_dir_all(&profiles)?;
        let mut command = Command::new("timeout");
        command.args(["-k", "5", &LIMIT_S.to_string()]).args(&self.command).current_dir(&files);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_")) {
            command.env_remove(name);
        }
        command.env("WEIR_DIR", &profiles).envs(&self.variables);
        if !self.preload.is_empty() {
            let list: Vec<_> = self.preload.iter().map(|path| path.to_string_lossy()).collect();
            command.env("LD_PRELOAD", list.join(":"));
        }
        Ok((command, files, profiles))
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, variant: &str) -> Verdict<Ran> {
        let (mut command, files, profiles) = self.prepare(variant)?;
        let started = Instant::now();
        let output = command.output()?;
        let ran = Ran {
            code: code_of(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            files,
            profiles,
        };
        ensure(started.elapsed().as_secs() < LIMIT_S, || {
            format!("{variant}: no end after {LIMIT_S} s\n{}{}", ran.stdout, ran.stderr)
        })?;
        Ok(ran)
    }

    /// Runs it bare and with the library; all a user can see must be the same.
    pub(crate) fn compare(&self) -> Verdict<Ran> {
        let mut bare = self.run("bare")?.unless_skipped()?;
        // An MPI may crash by itself, in one run of many: that says nothing of Weir.
        for _ in 0..2 {
            if bare.code != 0 {
                bare = self.run("bare")?;
            }
        }
        ensure(bare.code == 0, || {
            format!("fails without Weir: {}\n{}{}", bare.code, bare.stdout, bare.stderr)
        })?;
        let with = self.with_library().run("weir")?;
        same(&bare, &with)?;
        ensure(with.remarks().is_empty(), || format!("Weir printed:\n{}", with.remarks().join("\n")))?;
        Ok(with)
    }

    /// The same with our library preloaded, unless a preload was given already.
    pub(crate) fn with_library(&self) -> Job {
        if self.preload.contains(&library()) { self.clone() } else { self.clone().preload([library()]) }
    }
}

/// As a shell has it.
pub(crate) fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Fails unless both runs printed the same, ended alike and left the same bytes.
pub(crate) fn same(bare: &Ran, with: &Ran) -> Verdict {
    ensure(bare.code == with.code, || {
        format!("code {} without Weir, {} with\n{}{}", bare.code, with.code, with.stdout, with.stderr)
    })?;
    ensure(bare.stdout == with.stdout, || {
        format!("without Weir it printed:\n{}\nwith Weir:\n{}\n{}", bare.stdout, with.stdout, with.stderr)
    })?;
    same_files(&bare.files, &with.files)
}

pub(crate) fn same_files(bare: &Path, with: &Path) -> Verdict {
    let (bare, with) = (contents(bare)?, contents(with)?);
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| {
        files.keys().map(|p| p.display().to_string()).collect::<Vec<_>>()
    };
    ensure(names(&bare) == names(&with), || {
        format!("files without Weir: {:?}\nwith: {:?}", names(&bare), names(&with))
    })?;
    for (name, bytes) in &bare {
        ensure(with[name] == *bytes, || format!("{} differs", name.display()))?;
    }
    Ok(())
}

/// Every file beneath `folder`.
pub(crate) fn contents(folder: &Path) -> Verdict<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap_or(&path).to_path_buf(), fs::read(&path)?);
            }
        }
    }
    Ok(found)
}
