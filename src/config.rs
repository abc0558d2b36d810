//! The `WEIR_*` variables: read once when armed, a bad value gets one line and its default.

use crate::{child, profile};
use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weir_coord::address::Choice;
use weir_coord::auth::Key;
use weir_coord::election;
use weir_coord::member::Way;
use weir_coord::server::Settings;
use weir_coord::{DEFAULT_ORDER, Order, PolicyKind};
pub(crate) use weir_profile::settings::Gate;
use weir_profile::settings::{SAID_UNWRITABLE, bytes, count, flag, from_directory, gate, paths, time_ns};

/// What the environment asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    /// 0 for "learn it".
    pub(crate) phase_gap_ns: u64,
    pub(crate) max_files: usize,
    pub(crate) signals: bool,
    /// `None`: the program is only measured.
    pub(crate) coordinator: Option<Choice>,
    pub(crate) key: Option<PathBuf>,
    /// What this job does if it is elected to coordinate.
    pub(crate) policy: PolicyKind,
    pub(crate) order: Order,
    pub(crate) backfill: bool,
    pub(crate) gate: Gate,
    /// Files that are held back; all if there are none.
    pub(crate) gate_paths: Vec<String>,
    pub(crate) max_wait_ns: u64,
    /// What the job may move in a tenth of a second without a turn.
    pub(crate) free_bytes: u64,
    /// Whether new files get hints from the coordinator.
    pub(crate) hints: bool,
    /// From the beginning of a phase to the next, as the user says.
    pub(crate) period_ns: Option<u64>,
    /// Nodes of the job, as the user says.
    pub(crate) nodes: Option<u64>,
}

const DEFAULT: Config = Config {
    include: Vec::new(),
    exclude: Vec::new(),
    phase_gap_ns: 0,
    max_files: 2048,
    signals: true,
    coordinator: None,
    key: None,
    policy: PolicyKind::Weir,
    order: DEFAULT_ORDER,
    backfill: true,
    gate: Gate::Auto,
    gate_paths: Vec::new(),
    max_wait_ns: 60_000_000_000,
    free_bytes: 512 << 10,
    hints: false,
    period_ns: None,
    nodes: None,
};

static CONFIG: RwLock<Config> = RwLock::new(DEFAULT);
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Every variable that `libweir.so` or the `weir` command reads.
const KNOWN: &[&str] = &[
    "WEIR_DIR",
    "WEIR_JOB_ID",
    "WEIR_APPLICATION",
    "WEIR_INCLUDE",
    "WEIR_EXCLUDE",
    "WEIR_PHASE_GAP",
    "WEIR_MAX_FILES",
    "WEIR_SIGNALS",
    "WEIR_DISABLE",
    "WEIR_VERBOSE",
    "WEIR_LIB",
    "WEIR_HELPER",
    SAID_UNWRITABLE,
    "WEIR_ROOT", // what modulefiles call the place where something is installed
    "WEIR_COORDINATOR",
    "WEIR_KEY",
    "WEIR_POLICY",
    "WEIR_ORDER",
    "WEIR_BACKFILL",
    "WEIR_GATE",
    "WEIR_MAX_WAIT",
    "WEIR_FREE_BYTES",
    "WEIR_HINTS",
    "WEIR_PERIOD",
    "WEIR_NODES",
];

pub(crate) fn is_lock_free() -> bool {
    child::is_unused(&CONFIG)
}

pub(crate) fn get<R>(look: impl FnOnce(&Config) -> R) -> R {
    look(&CONFIG.read().unwrap_or_else(|e| e.into_inner()))
}

/// `WEIR_DISABLE=1` keeps Weir inert.
pub(crate) fn disabled() -> bool {
    variable("WEIR_DISABLE").is_some_and(|value| flag(&value) == Ok(true))
}

pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|v| !v.is_empty())
}

/// Reads the environment. Complaints come from rank 0 alone, one line each.
pub(crate) fn read() {
    let (mut config, complaints) = parse(variable);
    if let Ok(directory) = std::env::current_dir() {
        let directory = directory.to_string_lossy();
        let patterns = [&mut config.include, &mut config.exclude, &mut config.gate_paths];
        for pattern in patterns.into_iter().flatten() {
            *pattern = from_directory(pattern, &directory);
        }
    }
    VERBOSE.store(variable("WEIR_VERBOSE").is_some_and(|v| flag(&v) == Ok(true)), Relaxed);
    *CONFIG.write().unwrap_or_else(|e| e.into_inner()) = config;
    if profile::rank_from_environment().unwrap_or(0) == 0 {
        let unknown = own_variables().into_iter().filter(|name| !KNOWN.contains(&name.as_str()));
        let unknown = unknown.map(|name| format!("{name} is not a setting of this version; ignored"));
        complaints.into_iter().chain(unknown).for_each(|line| say(&line));
    }
}

/// The names of all variables that are called as ours are. `std::env::vars_os` would copy the whole environment, which
/// can be large.
fn own_variables() -> Vec<String> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let mut names = Vec::new();
    // SAFETY: a list of C strings that ends with a null pointer, or is one. Nobody changes it while MPI is initialised.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let name =
                CStr::from_ptr(*entry).to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
            if name.starts_with(b"WEIR_") {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
            entry = entry.add(1);
        }
    }
    names
}

/// The settings that `lookup` gives, and a line for each that is wrong.
fn parse(lookup: impl Fn(&str) -> Option<String>) -> (Config, Vec<String>) {
    let mut config = DEFAULT;
    let mut complaints = Vec::new();
    let mut setting = |name: &str, wanted: &str, used: &str, take: &mut dyn FnMut(&str) -> bool| {
        if let Some(value) = lookup(name)
            && !take(value.trim())
        {
            complaints.push(format!("{name}={value} is not {wanted}; using {used}"));
        }
    };
    setting("WEIR_INCLUDE", "a list of paths", "none", &mut |v| {
        config.include = paths(v);
        true
    });
    setting("WEIR_EXCLUDE", "a list of paths", "none", &mut |v| {
        config.exclude = paths(v);
        true
    });
    setting("WEIR_PHASE_GAP", "a time such as 0.5, 500ms or 2s", "a learnt gap", &mut |v| {
        time_ns(v).map(|ns| config.phase_gap_ns = ns).is_ok()
    });
    setting("WEIR_MAX_FILES", "a number from 1 to 65536", "2048", &mut |v| {
        v.parse().ok().filter(|n| (1..=65536).contains(n)).map(|n| config.max_files = n).is_some()
    });
    setting("WEIR_SIGNALS", "on or off", "on", &mut |v| flag(v).map(|on| config.signals = on).is_ok());
    setting(
        "WEIR_COORDINATOR",
        "off, elect, elect:/directory, unix:/path or tcp://host:port",
        "off",
        &mut |v| {
            let choice = v.parse().ok();
            config.coordinator = choice.clone().filter(|choice| *choice != Choice::Off);
            choice.is_some()
        },
    );
    setting("WEIR_KEY", "the path of a file", "none", &mut |v| {
        config.key = Some(v.into());
        true
    });
    setting("WEIR_POLICY", "a policy such as weir, set10, fair or exclusive", "weir", &mut |v| {
        v.parse().map(|policy| config.policy = policy).is_ok()
    });
    setting("WEIR_ORDER", "an order such as hio, sio, slack or nio", "nio", &mut |v| {
        v.parse().map(|order| config.order = order).is_ok()
    });
    setting("WEIR_BACKFILL", "on or off", "on", &mut |v| flag(v).map(|on| config.backfill = on).is_ok());
    setting("WEIR_GATE", "auto, mpi, all or off, and paths behind a colon", "auto", &mut |v| {
        gate(v).map(|(gate, paths)| (config.gate, config.gate_paths) = (gate, paths)).is_ok()
    });
    setting("WEIR_MAX_WAIT", "a time such as 60, 500ms or 2s", "60", &mut |v| {
        time_ns(v).map(|ns| config.max_wait_ns = ns).is_ok()
    });
    setting("WEIR_FREE_BYTES", "a size such as 512K, 4M or 0", "512K", &mut |v| {
        bytes(v).map(|bytes| config.free_bytes = bytes).is_ok()
    });
    setting("WEIR_HINTS", "on or off", "off", &mut |v| flag(v).map(|on| config.hints = on).is_ok());
    setting("WEIR_PERIOD", "a time such as 60, 500ms or 2s", "what is learnt", &mut |v| {
        time_ns(v).map(|ns| config.period_ns = Some(ns)).is_ok()
    });
    setting("WEIR_NODES", "a number of nodes", "what the launcher says", &mut |v| {
        count(v).map(|nodes| config.nodes = Some(nodes)).is_ok()
    });
    for name in ["WEIR_VERBOSE", "WEIR_DISABLE"] {
        setting(name, "0 or 1", "0", &mut |v| flag(v).is_ok());
    }
    (config, complaints)
}

/// Whether a service coordinates, which may have been told more of the storages than can be seen here.
pub(crate) fn has_service() -> bool {
    get(|c| matches!(c.coordinator, Some(Choice::Service(_))))
}

/// How this job finds its coordinator.
pub(crate) fn coordinator_way() -> Result<Way, String> {
    let Config { coordinator: choice, key, policy, order, backfill, .. } = get(Config::clone);
    match choice {
        Some(Choice::Service(address)) => {
            let key = key.map(|path| Key::read(&path)).transpose()?;
            Ok(Way::Service { address, key })
        }
        Some(Choice::Elect(directory)) => {
            let own = profile::identity();
            let settings = Settings {
                policy,
                order,
                backfill,
                max_connections: MOST_CONNECTIONS,
                title: format!("job {} ({}, pid {})", own.job, own.application, std::process::id()),
                ..Settings::default()
            };
            // A directory that was named is one that other nodes see too.
            let network_host = directory.is_some().then(|| own.host.clone());
            let directory = directory.unwrap_or_else(election::default_directory);
            Ok(Way::Elect { directory, network_host, settings })
        }
        Some(Choice::Off) | None => Err("WEIR_COORDINATOR is off".into()),
    }
}

/// Nodes of jobs that a coordinator inside a program serves at most; many systems allow 1,024 descriptors.
const MOST_CONNECTIONS: usize = 960;

/// What standard error was when Weir was loaded, and again when it was armed: device and number, 0 for nothing.
static STANDARD_ERROR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn standard_error() -> [u64; 2] {
    // SAFETY: all-zero is a valid description, and it outlives the call.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        if libc::fstat(2, &mut about) == 0 { [about.st_dev, about.st_ino] } else { [0, 0] }
    }
}

/// To be called before anything is said. Cannot panic.
pub(crate) fn note_standard_error() {
    for (number, now) in STANDARD_ERROR.iter().zip(standard_error()) {
        number.store(now, Relaxed);
    }
}

/// Whether descriptor 2 is what it was. A program may close it and open a file of its own in its place.
pub(crate) fn may_speak() -> bool {
    let known = STANDARD_ERROR.each_ref().map(|number| number.load(Relaxed));
    known != [0, 0] && standard_error() == known
}

/// As [`say`], by rank 0 alone: what is the same for all.
pub(crate) fn say_for_all(line: &str) {
    if profile::rank_from_environment().unwrap_or(0) == 0 {
        say(line);
    }
}

/// One line on standard error, in one write.
pub(crate) fn say(line: &str) {
    if !may_speak() {
        return;
    }
    let line = format!("weir: {line}\n");
    // SAFETY: a valid buffer; a short or failed write loses a message and nothing else.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// A line for `WEIR_VERBOSE=1`, which `weir doctor` reads.
pub(crate) fn say_verbose(line: impl FnOnce() -> String) {
    if VERBOSE.load(Relaxed) {
        say(&line());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_one(name: &str, value: &str) -> (Config, Vec<String>) {
        parse(|asked| (asked == name).then(|| value.to_string()))
    }

    #[test]
    fn nothing_set_is_the_default_without_a_word() {
        assert_eq!(parse(|_| None), (DEFAULT, vec![]));
    }

    #[test]
    fn a_bad_value_is_named_and_its_default_used() {
        let (config, complaints) = parse_one("WEIR_PHASE_GAP", "soon");
        assert_eq!(config, DEFAULT);
        assert_eq!(
            complaints,
            ["WEIR_PHASE_GAP=soon is not a time such as 0.5, 500ms or 2s; using a learnt gap"]
        );
        for (name, value) in [
            ("WEIR_PHASE_GAP", "-1"),
            ("WEIR_PHASE_GAP", "NaN"),
            ("WEIR_PHASE_GAP", "inf"),
            ("WEIR_MAX_FILES", "0"),
            ("WEIR_MAX_FILES", "1e3"),
            ("WEIR_SIGNALS", "maybe"),
            ("WEIR_VERBOSE", "2"),
            ("WEIR_COORDINATOR", "somewhere"),
            ("WEIR_COORDINATOR", "tcp://nowhere"),
            ("WEIR_POLICY", "best"),
            ("WEIR_GATE", "posix"),
            ("WEIR_MAX_WAIT", "0"),
            ("WEIR_FREE_BYTES", "much"),
            ("WEIR_PERIOD", "often"),
            ("WEIR_NODES", "0"),
        ] {
            assert_eq!(parse_one(name, value).1.len(), 1, "{name}={value}");
        }
    }
}
