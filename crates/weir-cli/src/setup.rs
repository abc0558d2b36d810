//! What a program needs to run under Weir: the library, a directory, a name for the job.

use crate::elf;
use crate::launcher::{self, Launcher, Variables};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_profile::job::MAX_JOB_ID;

pub(crate) const LIBRARY: &str = "libweir.so";

/// Finds `libweir.so`: where the user says, or beside this program as built or as installed.
pub(crate) fn find_library(explicit: Option<&Path>) -> Result<PathBuf, String> {
    let from_environment = std::env::var_os("WEIR_LIB").filter(|value| !value.is_empty()).map(PathBuf::from);
    let (said, by) = match (explicit, from_environment) {
        (Some(path), _) => (Some(path.to_path_buf()), "--lib"),
        (None, Some(path)) => (Some(path), "WEIR_LIB"),
        (None, None) => (None, ""),
    };
    if let Some(said) = said {
        let path = if said.is_dir() { said.join(LIBRARY) } else { said };
        let found = path.canonicalize().map_err(|error| format!("{by} {}: {error}", path.display()))?;
        return preloadable(found);
    }
    let program =
        std::env::current_exe().and_then(|path| path.canonicalize()).map_err(|error| error.to_string())?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = ["", "../lib", "../lib/weir", "../lib64", "../lib64/weir", ".."];
    let found = places.iter().find_map(|place| beside.join(place).join(LIBRARY).canonicalize().ok());
    match found {
        Some(path) => preloadable(path),
        None => Err(format!(
            "{LIBRARY} is not in {} nor in ../lib, ../lib/weir or ../lib64 from there: say where with --lib or WEIR_LIB",
            beside.display()
        )),
    }
}

/// `LD_PRELOAD` separates its entries with colons and blanks and knows no way to escape them.
fn preloadable(path: PathBuf) -> Result<PathBuf, String> {
    if path.to_string_lossy().contains([':', ' ']) {
        return Err(format!(
            "{}: LD_PRELOAD cannot name a path with a blank or a colon in it",
            path.display()
        ));
    }
    Ok(path)
}

/// The value of `LD_PRELOAD` with the library before what is already there.
pub(crate) fn preload(library: &Path, existing: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_os_string();
    let existing = existing.unwrap_or_default();
    let others = existing.as_bytes().split(|byte| b": ".contains(byte)).map(OsStr::from_bytes);
    for other in
        others.filter(|other| !other.is_empty() && Path::new(other).file_name() != Some(OsStr::new(LIBRARY)))
    {
        value.push(":");
        value.push(other);
    }
    value
}

pub(crate) const ASAN_OPTIONS: &str = "ASAN_OPTIONS";
/// Programs with AddressSanitizer do not start when another library comes before it, unless they are told that this is meant.
pub(crate) const MAY_COME_FIRST: &str = "verify_asan_link_order=0";

fn asan_options(existing: Option<OsString>) -> OsString {
    let mut value = existing.unwrap_or_default();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(MAY_COME_FIRST);
    value
}

/// An absolute directory that can be written to, made if it is not there.
pub(crate) fn writable_dir(dir: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| {
        format!("cannot write to {}: {error}; --dir or WEIR_DIR says where profiles go", dir.display())
    };
    fs::create_dir_all(dir).map_err(failed)?;
    let dir = dir.canonicalize().map_err(failed)?;
    let trial = dir.join(format!(".weir-trial-{}", std::process::id()));
    let (_, trial) = weir_profile::new_file(&trial).map_err(failed)?;
    let _ = fs::remove_file(trial);
    Ok(dir)
}

/// `--dir`, `WEIR_DIR` or the current directory.
pub(crate) fn directory(explicit: Option<&Path>) -> PathBuf {
    let from_environment =
        || std::env::var_os("WEIR_DIR").filter(|value| !value.is_empty()).map(PathBuf::from);
    explicit.map(Path::to_path_buf).or_else(from_environment).unwrap_or_else(|| PathBuf::from("."))
}

/// A name no other job has: the batch system's job or this second, this host, this process.
pub(crate) fn new_job_id() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String =
        host.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(40).collect();
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let batch_job = weir_profile::batch::job(|name| std::env::var(name).ok());
    let name = |when: String| format!("{when}-{host}-{}", std::process::id());
    let fits = |name: &String| job_id(name).is_ok();
    batch_job.map(name).filter(fits).unwrap_or_else(|| name(since_1970.as_secs().to_string()))
}

/// A name that can be part of a file's.
pub(crate) fn job_id(value: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    match value {
        "" => Err("an empty name".into()),
        _ if value.len() > MAX_JOB_ID => Err(format!("longer than {MAX_JOB_ID} characters")),
        _ if !value.chars().all(fits) => Err("letters, digits and . _ - @ only".into()),
        _ => Ok(value.into()),
    }
}

/// A command that will run under Weir.
pub(crate) struct Setup {
    pub(crate) launcher: Launcher,
    words: Vec<OsString>,
    environment: Variables,
}

impl Setup {
    /// `settings` are `WEIR_*` variables; they stand above those of the environment.
    pub(crate) fn new(
        command: &[OsString],
        library: &Path,
        settings: Vec<(&str, OsString)>,
    ) -> Result<Setup, String> {
        let program = command.first().ok_or("no command to run")?;
        // One that cannot be run says so when it is run.
        let launcher = launcher::identify(program).unwrap_or(Launcher::UNKNOWN);
        let inherited =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let mut variables: BTreeMap<String, OsString> =
            inherited.filter(|(name, _)| name.starts_with("WEIR_") && name != "WEIR_LIB").collect();
        variables.extend(settings.into_iter().map(|(name, value)| (name.to_string(), value)));
        if let Ok(own) = std::env::current_exe() {
            // What the ranks start as the helper process of their node, unless somebody has said otherwise.
            variables.entry("WEIR_HELPER".into()).or_insert(own.into_os_string());
        }
        variables.insert("LD_PRELOAD".into(), preload(library, std::env::var_os("LD_PRELOAD")));
        if launcher::program_of(command).is_some_and(|program| elf::has_address_sanitizer(&program)) {
            variables.insert(ASAN_OPTIONS.into(), asan_options(std::env::var_os(ASAN_OPTIONS)));
        }
        let variables: Variables = variables.into_iter().collect();
        let (words, environment) = launcher::hand_over(launcher.kind, command, &variables)?;
        Ok(Setup { launcher, words, environment })
    }

    /// What the command preloads beyond the launcher's options, as in `env LD_PRELOAD=… ./app`, without Weir in it.
    pub(crate) fn other_preload(&self) -> Option<&OsStr> {
        let words = self.words.iter().map(OsString::as_os_str);
        words.filter(|word| word.as_bytes().starts_with(b"LD_PRELOAD=")).find(|word| {
            let mut entries = word.as_bytes()[b"LD_PRELOAD=".len()..].split(|byte| b": ".contains(byte));
            !entries.any(|entry| entry.ends_with(LIBRARY.as_bytes()))
        })
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_stands_before_others_and_once() {
        let library = Path::new("/opt/lib/libweir.so");
        assert_eq!(preload(library, None), "/opt/lib/libweir.so");
        assert_eq!(
            preload(library, Some("/a.so /b.so:/old/libweir.so".into())),
            "/opt/lib/libweir.so:/a.so:/b.so"
        );
        let latin_1 = OsStr::from_bytes(b"/caf\xe9.so");
        assert!(preload(library, Some(latin_1.into())).as_bytes().ends_with(b":/caf\xe9.so"));
        assert!(preloadable("/my libs/libweir.so".into()).unwrap_err().contains("blank"));
    }

    #[test]
    fn what_was_said_to_the_sanitizer_stays() {
        assert_eq!(asan_options(None), MAY_COME_FIRST);
        assert_eq!(asan_options(Some("detect_leaks=0".into())), "detect_leaks=0:verify_asan_link_order=0");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = find_library(Some(Path::new("/nowhere/libweir.so"))).unwrap_err();
        assert!(error.starts_with("--lib /nowhere/libweir.so: "), "{error}");
    }
}
