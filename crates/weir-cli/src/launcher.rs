//! Which launcher a command begins with, and how that one hands variables to its ranks.

mod preload;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `-x NAME=VALUE`, for each part of a command with several programs.
    OpenMpi,
    /// MPICH and its relatives: `-genv NAME VALUE`.
    Hydra,
    /// Hands on its own environment unless `--export` says otherwise.
    Srun,
    /// Another launcher, or the program itself: what is in the environment is handed on.
    Other,
}

/// A launcher and what it says it is.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) kind: Kind,
    pub(crate) version: String,
}

impl Launcher {
    pub(crate) const UNKNOWN: Launcher = Launcher { kind: Kind::Other, version: String::new() };
}

/// Whether a program of this name starts MPI ranks.
pub(crate) fn is_launcher(program: &OsStr) -> bool {
    let name = base_name(program);
    let stem = name.split('.').next().unwrap_or_default();
    matches!(stem, "mpirun" | "mpiexec" | "orterun" | "oshrun" | "prterun" | "prun" | "srun")
}

/// Asks a launcher for its version; a program that is none is not asked.
pub(crate) fn identify(program: &OsStr) -> Result<Launcher, String> {
    if !is_launcher(program) {
        return Ok(Launcher::UNKNOWN);
    }
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .env_remove("LD_PRELOAD")
        .output()
        .map_err(|error| format!("cannot run {}: {error}", program.to_string_lossy()))?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok(classify(&base_name(program), &said))
}

fn classify(name: &str, said: &str) -> Launcher {
    let line =
        |with: &str| said.lines().find(|line| line.contains(with)).unwrap_or_default().trim().to_string();
    let first = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_string();
    let lower = said.to_ascii_lowercase();
    if lower.contains("open mpi")
        || lower.contains("open-mpi")
        || lower.contains("openrte")
        || lower.contains("prte")
    {
        Launcher { kind: Kind::OpenMpi, version: first }
    } else if said.contains("Intel(R) MPI") {
        Launcher { kind: Kind::Hydra, version: line("Intel(R) MPI") }
    } else if said.contains("HYDRA") {
        let version = line("Version:").trim_start_matches("Version:").trim().to_string();
        Launcher { kind: Kind::Hydra, version: format!("Hydra {version} (MPICH)") }
    } else if name == "srun" || lower.contains("slurm") {
        Launcher { kind: Kind::Srun, version: first }
    } else {
        Launcher { kind: Kind::Other, version: first }
    }
}

/// Names and values.
pub(crate) type Variables = Vec<(String, OsString)>;

/// The command with the variables in it, for launchers that need to be told, and what is to be in the
/// launcher's environment.
pub(crate) fn hand_over(
    kind: Kind,
    command: &[OsString],
    variables: &[(String, OsString)],
) -> Result<(Vec<OsString>, Variables), String> {
    let (program, rest) = command.split_first().ok_or("no command to run")?;
    let mut told = vec![program.clone()];
    match kind {
        Kind::OpenMpi => {
            // Behind a colon another program with options of its own begins.
            for (number, part) in rest.split(|word| word == ":").enumerate() {
                told.extend((number > 0).then(|| ":".into()));
                let (words, has_own) = preload::beside_own(kind, part, variables);
                // Said twice, Open MPI 4 takes the second value, Open MPI 5 the first.
                let ours = variables.iter().filter(|(name, _)| !has_own || name != preload::VARIABLE);
                told.extend(ours.flat_map(open_mpi_option));
                told.extend(words);
            }
            // What ranks spawn later gets the launcher's own environment, since Open MPI 5.
            Ok((told, variables.to_vec()))
        }
        Kind::Hydra => {
            for (name, value) in variables {
                told.extend(["-genv".into(), name.into(), value.clone()]);
            }
            for (number, part) in rest.split(|word| word == ":").enumerate() {
                told.extend((number > 0).then(|| ":".into()));
                told.extend(preload::beside_own(kind, part, variables).0);
            }
            Ok((told, Vec::new()))
        }
        Kind::Srun => {
            let named = std::env::var("SLURM_EXPORT_ENV").ok();
            told.extend(srun_words(rest, variables, named.as_deref()));
            Ok((told, variables.to_vec()))
        }
        Kind::Other => Ok((command.to_vec(), variables.to_vec())),
    }
}

fn open_mpi_option((name, value): &(String, OsString)) -> [OsString; 2] {
    let mut assignment = OsString::from(format!("{name}="));
    assignment.push(value);
    ["-x".into(), assignment]
}

/// The words behind `srun`, with the variables among those that ranks get: `srun` hands on its whole environment unless
/// `--export` names a list, or `SLURM_EXPORT_ENV` does, which `sbatch --export` leaves in a job's environment.
fn srun_words(words: &[OsString], variables: &[(String, OsString)], named: Option<&str>) -> Vec<OsString> {
    let option = |list: &str| -> OsString {
        // `NONE` is a list without names; `NIL` too, without Slurm's own variables.
        let list = Some(list).filter(|list| !matches!(*list, "NONE" | "NIL" | ""));
        let (list, has_own) = list.map_or_else(Default::default, |list| preload::in_list(list, variables));
        let names = variables.iter().map(|(name, _)| name.clone());
        let names = names.filter(|name| !has_own || name != preload::VARIABLE);
        format!("--export={}", list.into_iter().chain(names).collect::<Vec<_>>().join(",")).into()
    };
    // What stands behind the program is its own.
    let (options, program) = words.split_at(first_program(words).map_or(words.len(), |(index, _)| index));
    let mut told: Vec<OsString> = Vec::new();
    let mut is_said = false;
    let mut options = options.iter();
    while let Some(word) = options.next() {
        let list = match word.to_str() {
            Some("--export") => options.next().map(|list| list.to_string_lossy().into_owned()),
            Some(word) => word.strip_prefix("--export=").map(String::from),
            None => None,
        };
        is_said |= list.is_some();
        told.push(list.map_or_else(|| word.clone(), |list| option(&list)));
    }
    let named = named.filter(|list| !is_said && !matches!(*list, "ALL" | ""));
    told.splice(0..0, named.map(option));
    told.extend_from_slice(program);
    told
}

/// Ranks that another MPI's launcher started do not find each other: each takes itself for the whole job. `alone` of them did, of this
/// MPI.
pub(crate) fn lone_ranks(launcher: &Launcher, alone: u64, mpi: &str) -> Option<String> {
    let is_open_mpi = mpi.starts_with("Open MPI");
    let (is_strange, advice) = match launcher.kind {
        Kind::OpenMpi => (!is_open_mpi, ""),
        Kind::Hydra => (is_open_mpi, ""),
        Kind::Srun => (true, "; `srun --mpi=list` shows what it can start"),
        Kind::Other => (false, ""),
    };
    (is_strange && alone > 1).then(|| {
        let version = &launcher.version;
        format!("{alone} ranks, each alone in a job of its own: the launcher is {version}, the program's MPI {mpi}{advice}")
    })
}

/// The first word that is a program, and its place among the words behind a launcher: options and their values are none.
fn first_program(words: &[OsString]) -> Option<(usize, PathBuf)> {
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    words
        .iter()
        .enumerate()
        .filter(|(_, word)| !is_option(word))
        .find_map(|(index, word)| Some((index, resolve(word)?)))
}

/// The first word of the command, past the launcher and its options, that is a program.
pub(crate) fn program_of(command: &[OsString]) -> Option<PathBuf> {
    let (first, rest) = command.split_first()?;
    let words = if is_launcher(first) { rest } else { command };
    first_program(words).map(|(_, program)| program)
}

/// Whether the word ends a launcher's options. A bare name behind an option may be its value and the name of some
/// program as well (`--map-by node`).
fn is_program(word: &OsStr, before: Option<&OsStr>) -> bool {
    let is_option = |word: &OsStr| word.as_encoded_bytes().starts_with(b"-");
    let may_be_value = before.is_some_and(is_option) && !word.as_encoded_bytes().contains(&b'/');
    !is_option(word) && !may_be_value && resolve(word).is_some()
}

fn resolve(word: &OsStr) -> Option<PathBuf> {
    if word.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(word)).filter(|path| is_executable(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(word)).find(|path| is_executable(path))
}

pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn base_name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn handed(kind: Kind, command: &str) -> (String, usize) {
        let variables = [("LD_PRELOAD".to_string(), "/l.so".into()), ("WEIR_DIR".to_string(), "/d".into())];
        let (told, environment) = hand_over(kind, &words(command), &variables).unwrap();
        (told.join(OsStr::new(" ")).into_string().unwrap(), environment.len())
    }

    #[test]
    fn every_launcher_is_told_in_its_own_way() {
        assert_eq!(
            handed(Kind::OpenMpi, "mpirun -n 2 ./a : -n 1 ./b"),
            ("mpirun -x LD_PRELOAD=/l.so -x WEIR_DIR=/d -n 2 ./a : -x LD_PRELOAD=/l.so -x WEIR_DIR=/d -n 1 ./b".into(), 2)
        );
        assert_eq!(
            handed(Kind::Hydra, "mpiexec -n 2 ./a"),
            ("mpiexec -genv LD_PRELOAD /l.so -genv WEIR_DIR /d -n 2 ./a".into(), 0)
        );
        assert_eq!(handed(Kind::Srun, "srun -n 2 ./a"), ("srun -n 2 ./a".into(), 2));
        assert_eq!(
            handed(Kind::Srun, "srun --export=HOME ./a"),
            ("srun --export=HOME,LD_PRELOAD,WEIR_DIR ./a".into(), 2)
        );
        assert_eq!(handed(Kind::Other, "./a --x"), ("./a --x".into(), 2));
    }

    #[test]
    fn srun_hands_the_variables_on_whatever_else_it_keeps_back() {
        let told = |command: &str, named: Option<&str>| {
            let variables = [("LD_PRELOAD".to_string(), "/l.so".into())];
            srun_words(&words(command), &variables, named).join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(told("--export NONE ./a", None), "--export=LD_PRELOAD ./a");
        assert_eq!(told("--export=ALL,A=1 ./a", Some("NONE")), "--export=ALL,A=1,LD_PRELOAD ./a");
        assert_eq!(told("-n 2 ./a", Some("NONE")), "--export=LD_PRELOAD -n 2 ./a");
        assert_eq!(told("-n 2 ./a", Some("HOME")), "--export=HOME,LD_PRELOAD -n 2 ./a");
        assert_eq!(told("-n 2 ./a", Some("ALL")), "-n 2 ./a");
        assert_eq!(told("-n 2 /bin/true --export NONE", None), "-n 2 /bin/true --export NONE");
    }

    #[test]
    fn the_library_stands_before_what_the_command_preloads() {
        let told = |kind: Kind, command: &str| handed(kind, command).0.replace(" -x WEIR_DIR=/d", "");
        assert_eq!(
            told(Kind::OpenMpi, "mpirun --map-by node -x LD_PRELOAD=/m.so /bin/true : -n 1 /bin/true"),
            "mpirun --map-by node -x LD_PRELOAD=/l.so:/m.so /bin/true : -x LD_PRELOAD=/l.so -n 1 /bin/true"
        );
        // What is handed on from the launcher's environment has it already; what stands behind the program is its own.
        for own in ["-x LD_PRELOAD /bin/true", "-x OTHER=/m.so /bin/true", "/bin/true -x LD_PRELOAD=/m.so"] {
            let expected = format!("mpirun -x LD_PRELOAD=/l.so {own}");
            assert_eq!(told(Kind::OpenMpi, &format!("mpirun {own}")), expected);
        }
        let told = |options: &str| handed(Kind::Hydra, &format!("mpiexec {options} /bin/true")).0;
        let ours = "mpiexec -genv LD_PRELOAD /l.so -genv WEIR_DIR /d";
        for (options, expected) in [
            ("-genv LD_PRELOAD /m.so", "-genv LD_PRELOAD /l.so:/m.so"),
            ("--env LD_PRELOAD=/m.so", "--env LD_PRELOAD=/l.so:/m.so"),
            ("-genv A LD_PRELOAD=/m.so", "-genv A LD_PRELOAD=/m.so"),
            // A library may be executable.
            ("-env A /bin/true -env LD_PRELOAD /bin/sh", "-env A /bin/true -env LD_PRELOAD /l.so:/bin/sh"),
            ("/bin/true -env LD_PRELOAD /m.so", "/bin/true -env LD_PRELOAD /m.so"),
            ("-n 1 /bin/true : -env LD_PRELOAD /m.so", "-n 1 /bin/true : -env LD_PRELOAD /l.so:/m.so"),
        ] {
            assert_eq!(told(options), format!("{ours} {expected} /bin/true"));
        }
        assert_eq!(
            handed(Kind::Srun, "srun --export=ALL,LD_PRELOAD=/m.so ./a").0,
            "srun --export=ALL,LD_PRELOAD=/l.so:/m.so,WEIR_DIR ./a"
        );
    }

    #[test]
    fn launchers_are_known_by_what_they_say() {
        for (said, kind) in [
            ("mpirun (Open MPI) 5.0.5\n\nReport bugs to https://www.open-mpi.org/", Kind::OpenMpi),
            ("mpirun.openmpi (OpenRTE) 4.1.4\n", Kind::OpenMpi),
            ("HYDRA build details:\n    Version:                                 4.0.2\n", Kind::Hydra),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.17 Build 20251009\n", Kind::Hydra),
            ("slurm 23.11.4\n", Kind::Srun),
            ("mystery 1.0\n", Kind::Other),
        ] {
            assert_eq!(classify("mpirun", said).kind, kind, "{said}");
        }
        let mpich = classify("mpirun", "HYDRA build details:\n    Version:     4.0.2\n");
        assert_eq!(mpich.version, "Hydra 4.0.2 (MPICH)");
        assert!(is_launcher(OsStr::new("/usr/bin/mpirun.openmpi")));
        assert!(!is_launcher(OsStr::new("./mpirunner")));
    }
}
