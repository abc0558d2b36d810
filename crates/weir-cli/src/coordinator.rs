//! `weir coordinator`: the coordinator as a service.

use crate::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use weir_coord::Waker;
use weir_coord::address::Address;
use weir_coord::auth::Key;
use weir_coord::election::{Office, default_directory};
use weir_coord::server::{Server, Settings};
use weir_engine::sharing::PolicyKind;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen: unix:/path or tcp://host:port; may be given more than once [default: where the jobs of this user
    /// and node elect one among them]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Address>,
    /// Who may do I/O when, and at what share [default: weir]
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyKind>,
    /// A file of lines `key = value` with the keys listen, policy, key; what is said here stands above it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The file with the key that TCP peers must have; only its owner may read it
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// What the options and the file say together.
#[derive(Clone, Debug, Default, PartialEq)]
struct Config {
    listen: Vec<Address>,
    policy: Option<PolicyKind>,
    key: Option<PathBuf>,
}

impl Config {
    /// Every line is `key = value`; what follows a `#` is a comment. Errors name the line and the key.
    fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        for (number, line) in text.lines().enumerate() {
            let wrong = |why: String| format!("line {}: {why}", number + 1);
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (key, value) = line
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
                .ok_or_else(|| wrong(format!("{line:?} is not key = value")))?;
            let bad = |why: String| wrong(format!("{key}: {why}"));
            match key {
                "listen" => config.listen.push(value.parse().map_err(bad)?),
                "policy" => config.policy = Some(value.parse().map_err(bad)?),
                "key" if value.is_empty() => return Err(bad("no file".into())),
                "key" => config.key = Some(value.into()),
                _ => return Err(wrong(format!("unknown key {key:?}; valid are listen, policy, key"))),
            }
        }
        Ok(config)
    }

    fn read(path: &Path) -> Result<Config, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Config::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Args {
    fn config(&self) -> Result<Config, String> {
        let file = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        Ok(Config {
            listen: if self.listen.is_empty() { file.listen } else { self.listen.clone() },
            policy: self.policy.or(file.policy),
            key: self.key.clone().or(file.key),
        })
    }
}

static STOP: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);
static WAKER: OnceLock<Waker> = OnceLock::new();

extern "C" fn on_signal(signal: libc::c_int) {
    let flag = if signal == libc::SIGHUP { &RELOAD } else { &STOP };
    flag.store(true, SeqCst);
    if let Some(waker) = WAKER.get() {
        waker.wake();
    }
}

fn watch_signals(waker: Waker) {
    let _ = WAKER.set(waker);
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: the handler stores to an atomic and writes to a descriptor, both allowed in one.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// One descriptor per node of every job: as many as the system allows.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// How the service was set up: on addresses of its own, or in the place of those whom jobs elect.
enum Service {
    Own(Server),
    Elected(Office, PathBuf),
}

impl Service {
    fn open(config: &Config) -> Result<Service, String> {
        let settings = Settings {
            policy: config.policy.unwrap_or(PolicyKind::Weir),
            key: config.key.as_deref().map(Key::read).transpose()?,
            title: format!("weir coordinator, pid {}", std::process::id()),
            ..Settings::default()
        };
        if config.listen.is_empty() {
            let directory = default_directory();
            return match Office::take(&directory, None, &settings)? {
                Some(office) => Ok(Service::Elected(office, directory)),
                None => {
                    Err(format!("somebody coordinates in {} already; see weir status", directory.display()))
                }
            };
        }
        let mut server = Server::new(settings).map_err(|error| format!("cannot coordinate: {error}"))?;
        for address in &config.listen {
            let bound = server.listen(address, false)?;
            eprintln!("weir: listening on {bound}");
        }
        Ok(Service::Own(server))
    }

    fn server(&mut self) -> &mut Server {
        match self {
            Service::Own(server) => server,
            Service::Elected(office, _) => &mut office.server,
        }
    }

    /// Jobs that elect must find it where they look.
    fn is_in_place(&self) -> bool {
        match self {
            Service::Own(_) => true,
            Service::Elected(office, directory) => office.is_in(directory),
        }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut config = args.config()?;
    raise_descriptor_limit();
    let mut service = Service::open(&config)?;
    watch_signals(service.server().waker());
    eprintln!("weir: coordinating with policy {}", service.server().policy());
    while !STOP.load(SeqCst) {
        service.server().step(Duration::from_secs(1)).map_err(|error| format!("cannot go on: {error}"))?;
        if !service.is_in_place() {
            return Err("the directory was taken away; the jobs meet elsewhere now".into());
        }
        if RELOAD.swap(false, SeqCst) {
            reload(args, &mut config, service.server());
        }
    }
    eprintln!("weir: the coordinator stops");
    Ok(ExitCode::SUCCESS)
}

/// Reads the file again. What is wrong in it changes nothing.
fn reload(args: &Args, config: &mut Config, server: &mut Server) {
    let new = match args.config() {
        Ok(new) => new,
        Err(error) => return eprintln!("weir: not reloaded: {error}"),
    };
    if (&new.listen, &new.key) != (&config.listen, &config.key) {
        eprintln!("weir: listen and key take effect with the next start");
    }
    let policy = new.policy.unwrap_or(PolicyKind::Weir);
    if policy != server.policy() {
        server.set_policy(policy);
    }
    eprintln!("weir: reloaded, policy {policy}");
    config.policy = new.policy;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_the_options_say() {
        let text = "# ours\nlisten = unix:/run/weir/a.sock\nlisten = tcp://node7:4711 # too\n\npolicy=set10\nkey = /etc/k\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.listen.len(), 2);
        assert_eq!(config.policy, Some(PolicyKind::Set10));
        assert_eq!(config.key, Some("/etc/k".into()));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named_with_its_line() {
        for (text, error) in [
            ("\npolice = set10", "line 2: unknown key \"police\"; valid are listen, policy, key"),
            ("policy = set11", "line 1: policy: unknown policy \"set11\"; valid are exclusive"),
            ("listen = here", "line 1: listen: address \"here\": must be"),
            ("policy set10", "line 1: \"policy set10\" is not key = value"),
            ("key =", "line 1: key: no file"),
        ] {
            let said = Config::parse(text).unwrap_err();
            assert!(said.starts_with(error), "{said}");
        }
    }
}
