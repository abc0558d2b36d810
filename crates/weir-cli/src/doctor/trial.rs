//! A program is run under Weir, and what was seen of it is told.

use super::Findings;
use crate::elf;
use crate::launcher::{lone_ranks, program_of};
use crate::output;
use crate::report::load;
use crate::report::text::{bytes, counted};
use crate::run;
use crate::setup::{ASAN_OPTIONS, MAY_COME_FIRST, Setup, directory, new_job_id, writable_dir};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use weir_profile::job;
use weir_profile::profile::Profile;
use weir_profile::settings;

/// What the ranks said about themselves.
#[derive(Default)]
struct Heard {
    ranks: BTreeSet<u64>,
    nprocs: u64,
    /// How many said that they are the only rank.
    alone: u64,
    /// ABI and MPI of the first rank that spoke.
    mpi: String,
    /// Everything else Weir said.
    complaints: Vec<String>,
    /// The first paragraph of what others said, the launcher and the program.
    others: String,
    /// Whether that paragraph is over.
    others_over: bool,
}

impl Heard {
    /// `armed: openmpi ABI, rank 0 of 4, Open MPI v4.1.4`
    fn listen(&mut self, line: &str) {
        let parsed = line.strip_prefix("armed: ").and_then(|armed| {
            let (abi, rest) = armed.split_once(" ABI, rank ")?;
            let (rank, rest) = rest.split_once(" of ")?;
            let (nprocs, mpi) = rest.split_once(", ").unwrap_or((rest, ""));
            Some((abi, rank.parse().ok()?, nprocs.parse().ok()?, mpi))
        });
        match parsed {
            Some((abi, rank, nprocs, mpi)) => {
                self.ranks.insert(rank);
                self.nprocs = self.nprocs.max(nprocs);
                self.alone += u64::from(nprocs == 1);
                if self.mpi.is_empty() {
                    self.mpi = format!("{mpi}, ABI {abi}");
                }
            }
            None if line.starts_with("profile ") => {}
            None => self.complaints.push(line.to_string()),
        }
    }

    /// Launchers put rules and blank lines around what they say. What the dynamic linker says is no word of theirs.
    fn overhear(&mut self, line: &str) {
        let text = line.trim();
        if text.starts_with("ERROR: ld.so:") {
            return;
        }
        if text.chars().any(char::is_alphanumeric) {
            if !self.others_over {
                self.others += if self.others.is_empty() { "" } else { " " };
                self.others += text;
            }
        } else {
            self.others_over |= !self.others.is_empty();
        }
    }
}

/// Characters of what others said that are repeated.
const LONGEST_QUOTE: usize = 400;

/// A directory that goes with the trial. Beside the user's profiles, so that all nodes see it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn check_command(
    findings: &mut Findings,
    library: &Path,
    command: &[OsString],
) -> Result<(), String> {
    let job = new_job_id();
    let scratch = Scratch(directory(None).join(format!("weir-doctor-{job}")));
    let dir = writable_dir(&scratch.0)?;
    let settings = vec![
        ("WEIR_DIR", dir.clone().into()),
        ("WEIR_JOB_ID", job.clone().into()),
        ("WEIR_VERBOSE", "1".into()),
    ];
    let setup = Setup::new(command, library, settings)?;
    if program_of(command).is_some_and(|program| elf::has_address_sanitizer(&program)) {
        let what = "is built with AddressSanitizer, which wants to come first: `weir run` sets";
        let otherwise = "a plain LD_PRELOAD needs it too";
        findings.note("program", &format!("{what} {ASAN_OPTIONS}={MAY_COME_FIRST}; {otherwise}"));
    }
    let (status, heard) = listen_to(&setup)?;
    if !status.success() {
        findings.note("program", &format!("ended with {status}"));
    }
    for complaint in heard.complaints.iter().take(5) {
        findings.wrong("library", complaint);
    }
    weir_profile::helper::flush_job(&job, run::WRITE_LIMIT);
    let profiles = profiles_in(&dir);
    if heard.ranks.is_empty() && !status.success() && !heard.others.is_empty() {
        let said = heard.others.chars().take(LONGEST_QUOTE).collect::<String>();
        findings.wrong("program", &format!("failed before any rank called MPI_Init: {said}"));
        return Ok(());
    }
    if heard.ranks.is_empty() {
        let reasons = match setup.other_preload() {
            Some(word) => vec![replaced(word, library)],
            None => why_not_armed(command),
        };
        for reason in reasons {
            findings.wrong("program", &reason);
        }
        return Ok(());
    }
    match lone_ranks(&setup.launcher, heard.alone, &heard.mpi) {
        Some(reason) => findings.wrong("MPI", &reason),
        None => findings.fine("MPI", &heard.mpi),
    }
    if (heard.ranks.len() as u64) < heard.nprocs {
        let silent = heard.nprocs - heard.ranks.len() as u64;
        findings.wrong(
            "ranks",
            &format!(
                "{silent} of {} did not load Weir: {} does not pass LD_PRELOAD to them",
                heard.nprocs,
                launcher_name(&setup, command)
            ),
        );
    } else {
        findings.fine("ranks", &format!("all {} loaded Weir", heard.nprocs));
    }
    if profiles.is_empty() {
        let system = settings::SYSTEM_DIRECTORIES.join(" ");
        findings.wrong(
            "I/O",
            &format!(
                "none was seen after MPI_Init: the program did none, or only on files that are left out (by \
                WEIR_EXCLUDE, or beneath {system}, unless WEIR_INCLUDE names them or MPI opens them)"
            ),
        );
    }
    for profile in &profiles {
        tell_calls(findings, profile);
    }
    Ok(())
}

fn replaced(word: &OsStr, library: &Path) -> String {
    let (word, library) = (word.to_string_lossy(), library.display());
    format!("the command sets {word}, which takes Weir's place: put {library} before it, with a colon")
}

fn launcher_name(setup: &Setup, command: &[OsString]) -> String {
    let name = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if setup.launcher.version.is_empty() { name } else { setup.launcher.version.clone() }
}

/// Runs the command with its standard error passed on, but for what Weir says.
fn listen_to(setup: &Setup) -> Result<(ExitStatus, Heard), String> {
    let mut command = setup.command();
    let program = command.get_program().to_string_lossy().into_owned();
    // Whoever is interrupted tidies up all the same.
    let mut child = run::spawn(command.stderr(Stdio::piped()))
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let mut heard = Heard::default();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            match line.strip_prefix("weir: ") {
                Some(said) => heard.listen(said),
                None => {
                    heard.overhear(&line);
                    output::print_aside(&format!("{line}\n"));
                }
            }
        }
    }
    let status = run::wait(&mut child).map_err(|error| format!("cannot wait for {program}: {error}"))?;
    Ok((status, heard))
}

/// The profiles of the job and of those it spawned; what killed ranks left behind is merged first.
fn profiles_in(dir: &Path) -> Vec<Profile> {
    for folder in job::find(dir).map(|found| found.folders).unwrap_or_default() {
        let _ = job::merge_folder(&folder, true).and_then(|merged| merged.write(dir));
    }
    let profiles = job::find(dir).map(|found| found.profiles).unwrap_or_default();
    profiles.iter().filter_map(|path| load(path).ok()).collect()
}

fn tell_calls(findings: &mut Findings, profile: &Profile) {
    for (module, counters) in &profile.modules {
        let value = |name: &str| {
            let counter = counters.counters.get(format!("{module}_{name}").as_str());
            counter.map_or(0, |value| value.as_u64())
        };
        let classes: &[&str] = match module.as_ref() {
            "MPIIO" => &["INDEP", "COLL", "SPLIT", "NB"],
            _ => &[""],
        };
        let calls = |direction: &str| -> u64 {
            classes
                .iter()
                .map(|class| {
                    value(&if class.is_empty() {
                        direction.to_string()
                    } else {
                        format!("{class}_{direction}")
                    })
                })
                .sum()
        };
        let (reads, writes) = (calls("READS"), calls("WRITES"));
        let opens = value("OPENS") + value("INDEP_OPENS") + value("COLL_OPENS") + value("FDOPENS");
        if reads + writes + opens > 0 {
            let text = format!(
                "{}, {} ({}), {} ({}) intercepted",
                counted(opens, "open"),
                counted(reads, "read"),
                bytes(value("BYTES_READ") as f64),
                counted(writes, "write"),
                bytes(value("BYTES_WRITTEN") as f64)
            );
            findings.fine(module, &text);
        }
    }
    for note in &profile.notes {
        findings.wrong("record", note);
    }
}

/// Reasons why no rank said that it loaded Weir.
fn why_not_armed(command: &[OsString]) -> Vec<String> {
    let Some(program) = program_of(command) else {
        return vec!["no rank called MPI_Init, and no program was found in the command".into()];
    };
    let name = program.display();
    let mut reasons = Vec::new();
    if fs::metadata(&program).is_ok_and(|metadata| metadata.permissions().mode() & 0o6000 != 0) {
        reasons.push(format!("{name} is set-user-ID or set-group-ID: LD_PRELOAD has no effect on it"));
    }
    match elf::read(&program) {
        Some(elf) if !elf.has_interpreter => {
            reasons.push(format!("{name} is statically linked: LD_PRELOAD has no effect on it"));
        }
        Some(elf) if elf.needed.iter().any(|library| library.starts_with("libmpi")) => {
            let what = "is linked with MPI but did not call MPI_Init, or LD_PRELOAD did not reach it";
            reasons.push(format!("{name} {what}"));
        }
        Some(elf) if elf.mentions_mpi => {
            reasons.push(format!("{name} has MPI built in (a static libmpi): its calls cannot be intercepted; link the shared library"));
        }
        Some(_) => {
            reasons.push(format!("{name} called no MPI_Init and is not linked with MPI: not an MPI program?"))
        }
        None => reasons
            .push(format!("{name} is a script or of another machine; nothing it started called MPI_Init")),
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_heard() {
        let mut heard = Heard::default();
        heard.listen("armed: openmpi ABI, rank 1 of 4, Open MPI v4.1.4, package: Debian");
        heard.listen("armed: openmpi ABI, rank 0 of 4, Open MPI v4.1.4, package: Debian");
        heard.listen("profile /tmp/weir-a-1.json");
        heard.listen("cannot write to WEIR_DIR=/x: no; the program runs on, what it does is not recorded");
        assert_eq!((heard.ranks.len(), heard.nprocs), (2, 4));
        assert_eq!(heard.mpi, "Open MPI v4.1.4, package: Debian, ABI openmpi");
        assert_eq!(heard.complaints.len(), 1);
    }

    #[test]
    fn the_first_thing_a_launcher_says_is_kept() {
        let mut heard = Heard::default();
        let said = ["-----", "There are not enough slots available", "for 64 ranks:", "", "  ./app", "-----"];
        said.iter().for_each(|line| heard.overhear(line));
        assert_eq!(heard.others, "There are not enough slots available for 64 ranks:");
    }

    #[test]
    fn the_program_is_found_behind_the_launcher() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(program_of(&words("mpirun -n 4 --hostfile hosts /bin/true -x")), Some("/bin/true".into()));
        assert_eq!(program_of(&words("/bin/true")), Some("/bin/true".into()));
        assert_eq!(program_of(&words("mpirun -n 4 /no/such/program")), None);
    }

    #[test]
    fn what_is_no_mpi_program_is_told() {
        let reasons = why_not_armed(&["/bin/true".into()]);
        assert!(reasons[0].contains("not an MPI program"), "{reasons:?}");
    }
}
