//! `weir run`: an MPI program with its I/O measured.

mod ears;
mod outcome;

use crate::setup::{Setup, directory, find_library, job_id, new_job_id, writable_dir};
use crate::{Outcome, output};
use ears::Ears;
use outcome::profiles_of;
use std::ffi::{OsString, c_int, c_void};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;
use weir_coord::address::Choice;
use weir_coord::{Order, PolicyKind};
use weir_profile::settings::{self, SAID_UNWRITABLE};

#[derive(clap::Args)]
#[command(
    after_help = "Exit code: the command's own, or 128 and the signal that ended it. If the command did not run: \
    125 Weir could not prepare it, 126 it cannot be executed, 127 there is none.\n\
    WEIR_… variables of the environment say the same as these options, which stand above them."
)]
pub(crate) struct Args {
    /// Where the profile goes, made if it is not there [default: WEIR_DIR or the current directory]
    #[arg(short, long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure files under this path too, even in system directories; with * as wildcard. Unless it begins with / or *,
    /// the path is one from the current directory on
    #[arg(long, value_name = "PATH", value_parser = path_pattern)]
    include: Vec<String>,
    /// Leave files under this path out; paths as with --include
    #[arg(long, value_name = "PATH", value_parser = path_pattern)]
    exclude: Vec<String>,
    /// The longest pause within an I/O phase, such as 0.5s or 200ms [default: learnt from the job]
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    phase_gap: Option<String>,
    /// Files with counters of their own in each rank [default: 2048]
    #[arg(long, value_name = "N", value_parser = max_files)]
    max_files: Option<String>,
    /// Name of the program in the profile
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Name of the job in the profile [default: WEIR_JOB_ID, or a new one that begins with the batch system's]
    #[arg(long, value_name = "ID", value_parser = job_id)]
    job_id: Option<String>,
    /// Leave the signals of the program alone; ranks that die of one then count as killed
    #[arg(long)]
    no_signals: bool,
    /// Who coordinates this job with others: off, elect, elect:/directory, unix:/path or tcp://host:port
    /// [default: WEIR_COORDINATOR or elect]
    #[arg(long, value_name = "WHERE", value_parser = coordinator)]
    coordinator: Option<String>,
    /// The key that a coordinator at tcp://… wants [default: WEIR_KEY]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// How to share if this job is elected to coordinate: weir, set10, fair, exclusive, …
    /// [default: WEIR_POLICY or weir]
    #[arg(long, value_name = "NAME", value_parser = policy)]
    policy: Option<String>,
    /// In which order it then has storage targets serve the aggregators of collective reads: nio (none), sio, hio, slack
    /// [default: WEIR_ORDER or nio]
    #[arg(long, value_name = "NAME", value_parser = order)]
    order: Option<String>,
    /// Whether a job may go out of turn while those whose turn it is leave the storage idle: on or off
    /// [default: WEIR_BACKFILL or on]
    #[arg(long, value_name = "ON", value_parser = flag)]
    backfill: Option<String>,
    /// Whose I/O waits for its turn: auto (MPI-IO, and much of the program's own), mpi, all or off; for some files only
    /// with their paths behind a colon, as in auto:/scratch [default: WEIR_GATE or auto]
    #[arg(long, value_name = "WHAT", value_parser = gate)]
    gate: Option<String>,
    /// The longest wait for a turn, such as 60s [default: WEIR_MAX_WAIT or 60s]
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    max_wait: Option<String>,
    /// What the job may move in a tenth of a second without taking turns, such as 512K; 0 for nothing
    /// [default: WEIR_FREE_BYTES or 512K]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    free_bytes: Option<String>,
    /// How long it is from the beginning of an I/O phase to the next, such as 60s [default: WEIR_PERIOD, or learnt]
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    period: Option<String>,
    /// Number of nodes of the job [default: WEIR_NODES, or what the launcher says]
    #[arg(long, value_name = "N", value_parser = count)]
    nodes: Option<String>,
    /// New files get hints from the coordinator (aggregators, stripes); every rank must run under Weir
    #[arg(long)]
    hints: bool,
    /// Do not run the command if its profile cannot be written
    #[arg(long)]
    strict: bool,
    /// The ranks say on standard error what they find
    #[arg(short, long)]
    verbose: bool,
    /// libweir.so or its directory [default: WEIR_LIB or beside this program]
    #[arg(long, value_name = "FILE")]
    lib: Option<PathBuf>,
    /// Print the summary when the program has ended
    #[arg(short, long)]
    report: bool,
    /// Do not say where the profile is
    #[arg(short, long)]
    quiet: bool,
    /// The command, as in `mpirun -n 4 ./app`
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Several patterns share one variable, with colons between them.
fn path_pattern(value: &str) -> Result<String, String> {
    match value {
        "" => Err("an empty path".into()),
        _ if value.contains(':') => Err("a path with a colon in it cannot be passed on".into()),
        _ => Ok(from_here(value)),
    }
}

/// What the path means where it was typed; the ranks may run elsewhere.
fn from_here(pattern: &str) -> String {
    let whole =
        std::env::current_dir().ok().map(|here| settings::from_directory(pattern, &here.to_string_lossy()));
    whole.filter(|path| !path.contains(':')).unwrap_or_else(|| pattern.into())
}

fn positive_time(value: &str) -> Result<String, String> {
    settings::time_ns(value).map(|_| value.into()).map_err(|wanted| format!("not {wanted}"))
}

fn size(value: &str) -> Result<String, String> {
    settings::bytes(value).map(|_| value.into()).map_err(|wanted| format!("not {wanted}"))
}

fn count(value: &str) -> Result<String, String> {
    settings::count(value).map(|_| value.into()).map_err(|wanted| format!("not {wanted}"))
}

fn coordinator(value: &str) -> Result<String, String> {
    value.parse::<Choice>().map(|_| value.into())
}

fn policy(value: &str) -> Result<String, String> {
    value.parse::<PolicyKind>().map(|_| value.into()).map_err(|error| error.to_string())
}

fn order(value: &str) -> Result<String, String> {
    value.parse::<Order>().map(|_| value.into())
}

fn gate(value: &str) -> Result<String, String> {
    let (_, paths) = settings::gate(value).map_err(|wanted| format!("not {wanted}"))?;
    let kind = value.split(':').next().unwrap_or_default().to_string();
    Ok(paths.iter().fold(kind, |so_far, path| so_far + ":" + &from_here(path)))
}

fn max_files(value: &str) -> Result<String, String> {
    let fits = value.parse().is_ok_and(|files: u32| (1..=65536).contains(&files));
    if fits { Ok(value.into()) } else { Err("not a number from 1 to 65536".into()) }
}

fn flag(value: &str) -> Result<String, String> {
    settings::flag(value).map(|_| value.into()).map_err(|wanted| format!("not {wanted}"))
}

/// A setting that makes no sense is better refused here than replaced by its default in the job.
pub(crate) fn check_environment() -> Result<(), String> {
    type Check = fn(&str) -> Result<String, String>;
    let checks: [(&str, Check); 16] = [
        ("WEIR_JOB_ID", job_id),
        ("WEIR_PHASE_GAP", positive_time),
        ("WEIR_MAX_FILES", max_files),
        ("WEIR_SIGNALS", flag),
        ("WEIR_DISABLE", flag),
        ("WEIR_VERBOSE", flag),
        ("WEIR_COORDINATOR", coordinator),
        ("WEIR_POLICY", policy),
        ("WEIR_ORDER", order),
        ("WEIR_BACKFILL", flag),
        ("WEIR_GATE", gate),
        ("WEIR_MAX_WAIT", positive_time),
        ("WEIR_FREE_BYTES", size),
        ("WEIR_HINTS", flag),
        ("WEIR_PERIOD", positive_time),
        ("WEIR_NODES", count),
    ];
    for (name, check) in checks {
        if let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) {
            let value = value.to_string_lossy();
            check(value.trim()).map_err(|reason| format!("{name}={value}: {reason}"))?;
        }
    }
    Ok(())
}

impl Args {
    fn settings(&self, dir: &Path, job: &str) -> Vec<(&'static str, OsString)> {
        let mut settings: Vec<(&str, OsString)> = vec![("WEIR_DIR", dir.into()), ("WEIR_JOB_ID", job.into())];
        if !self.include.is_empty() {
            settings.push(("WEIR_INCLUDE", self.include.join(":").into()));
        }
        if !self.exclude.is_empty() {
            settings.push(("WEIR_EXCLUDE", self.exclude.join(":").into()));
        }
        settings.extend(self.phase_gap.as_ref().map(|gap| ("WEIR_PHASE_GAP", gap.into())));
        settings.extend(self.max_files.as_ref().map(|files| ("WEIR_MAX_FILES", files.into())));
        settings.extend(self.application.as_ref().map(|name| ("WEIR_APPLICATION", name.into())));
        settings.extend(self.no_signals.then(|| ("WEIR_SIGNALS", "off".into())));
        let from_environment = || std::env::var_os("WEIR_COORDINATOR").filter(|value| !value.is_empty());
        let coordinator = self.coordinator.as_ref().map(OsString::from).or_else(from_environment);
        settings.push(("WEIR_COORDINATOR", coordinator.unwrap_or_else(|| "elect".into())));
        settings.extend(self.key.as_ref().map(|key| ("WEIR_KEY", key.into())));
        settings.extend(self.policy.as_ref().map(|policy| ("WEIR_POLICY", policy.into())));
        settings.extend(self.order.as_ref().map(|order| ("WEIR_ORDER", order.into())));
        settings.extend(self.backfill.as_ref().map(|on| ("WEIR_BACKFILL", on.into())));
        settings.extend(self.gate.as_ref().map(|gate| ("WEIR_GATE", gate.into())));
        settings.extend(self.hints.then(|| ("WEIR_HINTS", "on".into())));
        settings.extend(self.max_wait.as_ref().map(|time| ("WEIR_MAX_WAIT", time.into())));
        settings.extend(self.free_bytes.as_ref().map(|size| ("WEIR_FREE_BYTES", size.into())));
        settings.extend(self.period.as_ref().map(|time| ("WEIR_PERIOD", time.into())));
        settings.extend(self.nodes.as_ref().map(|nodes| ("WEIR_NODES", nodes.into())));
        settings.extend(self.verbose.then(|| ("WEIR_VERBOSE", "1".into())));
        settings
    }
}

/// Exit codes of a command that did not run, as `env`, `nice` and `timeout` have them: none is taken for the program's own.
const NOT_PREPARED: u8 = 125;
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How long the helper process of this node may take to write what it keeps.
pub(crate) const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// A command that is ready to run, and what its profiles are known by.
struct Job {
    setup: Setup,
    dir: PathBuf,
    name: String,
    /// Profiles of that name that were there before.
    before: Vec<PathBuf>,
    /// Whether there can be one, as far as that can be told from here.
    is_recorded: bool,
    ears: Ears,
}

pub(crate) fn run(args: &Args) -> Outcome {
    output::outlive_readers();
    let not_run = |message: String, code: u8| {
        output::say(message);
        Ok(ExitCode::from(code))
    };
    let job = match prepare(args) {
        Ok(job) => job,
        Err(message) => return not_run(message, NOT_PREPARED),
    };
    let status = match spawn(&mut job.setup.command()).and_then(|mut child| wait(&mut child)) {
        Ok(status) => status,
        Err(error) => {
            let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
            return not_run(format!("cannot run {}: {error}", args.command[0].to_string_lossy()), code);
        }
    };
    // Whatever becomes of the profile, the program's own code is the answer.
    if let Err(message) = outcome::tell(args, &job, status) {
        output::say(message);
    }
    Ok(exit_code(status))
}

fn prepare(args: &Args) -> Result<Job, String> {
    check_environment()?;
    let library = find_library(args.lib.as_deref())?;
    let (dir, is_recorded) = profile_dir(args)?;
    let from_environment = || std::env::var("WEIR_JOB_ID").ok().map(|value| value.trim().to_string());
    let name = args.job_id.clone().or_else(from_environment).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(new_job_id);
    let before = profiles_of(&dir, &name).unwrap_or_default();
    let mut settings = args.settings(&dir, &name);
    settings.extend((!is_recorded).then(|| (SAID_UNWRITABLE, "1".into())));
    let setup = Setup::new(&args.command, &library, settings)?;
    let ears = Ears::open(&name);
    Ok(Job { setup, dir, name, before, is_recorded, ears })
}

/// Where profiles go, absolute, and whether they can. That they cannot costs the user a profile and not the job, unless they would
/// rather have it so.
fn profile_dir(args: &Args) -> Result<(PathBuf, bool), String> {
    let dir = directory(args.dir.as_deref());
    let is_new = !dir.exists();
    match writable_dir(&dir) {
        Ok(dir) => {
            if is_new && !args.quiet {
                output::say(format_args!("made {}", dir.display()));
            }
            Ok((dir, true))
        }
        Err(reason) if args.strict => Err(reason),
        Err(reason) => {
            output::say(format_args!("{reason}. The command runs on, what it does is not recorded"));
            Ok((std::path::absolute(&dir).unwrap_or(dir), false))
        }
    }
}

/// As a shell has it: 128 and the signal for a program that was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The child that signals are handed on to, 0 for none.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A signal that came before there was a child, 0 for none.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Hands on what somebody sent to this process alone. What the terminal sends (Ctrl-C) has reached the
/// child as well, and a launcher that gets it twice kills its ranks at once.
extern "C" fn hand_on(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo.
    let by_kernel = !info.is_null() && unsafe { (*info).si_code } == libc::SI_KERNEL;
    let child = CHILD.load(Relaxed);
    if by_kernel {
        return;
    }
    if child > 0 {
        // SAFETY: `kill` is allowed in a handler; the child is not waited for before it has ended.
        unsafe { libc::kill(child, signal) };
    } else {
        EARLY.store(signal, Relaxed);
    }
}

/// What is ignored when Weir starts (`nohup weir run …`, `weir run … &` in a script) stays so, here and in the command:
/// one that had a handler here would begin with the default, and die of it.
fn watch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: all-zero is a valid sigaction, and the handler does only what is allowed in one.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = hand_on;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Starts the command; signals are handed on to it until it has been waited for.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    watch_signals();
    let child = command.spawn()?;
    CHILD.store(child.id() as i32, Relaxed);
    let early = EARLY.swap(0, Relaxed);
    if early != 0 {
        // SAFETY: the child was not waited for yet.
        unsafe { libc::kill(child.id() as i32, early) };
    }
    Ok(child)
}

pub(crate) fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    let status = loop {
        match child.wait() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            ended => break ended,
        }
    };
    CHILD.store(0, Relaxed);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_before_anything_runs() {
        assert!(coordinator("elect:/a").is_ok() && coordinator("somewhere").is_err());
        assert!(gate("mpi:/scratch").is_ok() && gate("auto").is_ok() && gate("posix").is_err());
        assert!(policy("set10").is_ok() && policy("best").is_err());
        assert!(positive_time("200ms") == Ok("200ms".into()) && positive_time("soon").is_err());
        assert!(path_pattern("/a:/b").is_err() && path_pattern("/scratch/*").is_ok());
        assert!(job_id("a/b").is_err() && job_id("4711.0").is_ok());
    }
}
