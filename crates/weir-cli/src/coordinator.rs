//! `weir coordinator`: the coordinator as a service.

use crate::{Outcome, output, status};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use weir_coord::Waker;
use weir_coord::address::Address;
use weir_coord::auth::Key;
use weir_coord::config::Config;
use weir_coord::election::{Office, default_directory};
use weir_coord::server::{Server, Settings};
use weir_coord::storage::Storage;
use weir_engine::aggregators;
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
    /// In which order a storage target serves the aggregators of collective reads: nio (none), sio, hio, slack
    /// [default: nio]
    #[arg(long, value_name = "ORDER")]
    order: Option<aggregators::Policy>,
    /// Whether a job may go out of turn while those whose turn it is leave the storage idle: on or off [default: on]
    #[arg(long, value_name = "ON", value_parser = on_or_off)]
    backfill: Option<bool>,
    /// A file of lines `key = value` with the keys listen, policy, order, backfill, key, plan_…, and of sections [storage PATH]
    /// and [application NAME]; what is said here stands above it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The file with the key that TCP peers must have; only its owner may read it
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

fn on_or_off(value: &str) -> Result<bool, String> {
    weir_profile::settings::flag(value).map_err(|wanted| format!("not {wanted}"))
}

impl Args {
    /// What the options and the file say together.
    fn config(&self) -> Result<Config, String> {
        let file = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        Ok(Config {
            listen: if self.listen.is_empty() { file.listen } else { self.listen.clone() },
            policy: self.policy.or(file.policy),
            order: self.order.or(file.order),
            backfill: self.backfill.or(file.backfill),
            key: self.key.clone().or(file.key),
            ..file
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

fn watch_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: the handler stores to an atomic and writes to a descriptor, both allowed in one.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// While it lives, no wait for a lock goes on for long: it is interrupted, and whoever waits can look around. A signal
/// that ends the program might come just before the wait and not be seen by it.
struct Ticks;

impl Ticks {
    const EVERY_US: libc::suseconds_t = 50_000;

    fn start() -> Ticks {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: all-zero is a valid action, whose waits do not go on by themselves; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        }
        Ticks::set(Ticks::EVERY_US);
        Ticks
    }

    fn set(tv_usec: libc::suseconds_t) {
        let every = libc::timeval { tv_sec: 0, tv_usec };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        // SAFETY: the timer outlives the call.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        Ticks::set(0);
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
    /// `None`: told to stop before there was a place.
    fn open(config: &Config) -> Result<Option<Service>, String> {
        let settings = Settings {
            policy: config.policy.unwrap_or(PolicyKind::Weir),
            order: config.order.unwrap_or(aggregators::DEFAULT),
            backfill: config.backfill.unwrap_or(true),
            key: config.key.as_deref().map(Key::read).transpose()?,
            title: format!("weir coordinator, pid {}", std::process::id()),
            storages: config.storages.clone(),
            planning: config.planning,
            applications: config.applications.clone(),
            ..Settings::default()
        };
        if config.listen.is_empty() {
            let directory = default_directory();
            let office = take_place(&directory, &settings)?;
            return Ok(office.map(|office| Service::Elected(office, directory)));
        }
        let mut server = Server::new(settings).map_err(|error| format!("cannot coordinate: {error}"))?;
        for address in &config.listen {
            let bound = server.listen(address, false).map_err(|error| match (address, &config.key) {
                (Address::Tcp(_), None) => format!("{error} (--key FILE)"),
                _ => error,
            })?;
            output::say(format_args!("listening on {bound}"));
        }
        Ok(Some(Service::Own(server)))
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

/// The place of those whom jobs elect. A job may have it, if this service was killed while jobs ran, or another service:
/// then it says so once, and waits.
fn take_place(directory: &Path, settings: &Settings) -> Result<Option<Office>, String> {
    if let Some(office) = Office::take(directory, None, settings)? {
        return Ok(Some(office));
    }
    let holder = status::coordinator(directory).unwrap_or_else(|| "somebody".into());
    output::say(format_args!(
        "{holder} coordinates in {} already (see weir status); waiting for its place",
        directory.display()
    ));
    let _ticks = Ticks::start();
    while !STOP.load(SeqCst) {
        if let Some(office) = Office::wait_for(directory, settings)? {
            return Ok(Some(office));
        }
    }
    Ok(None)
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut config = args.config()?;
    output::outlive_readers();
    raise_descriptor_limit();
    watch_signals();
    while !STOP.load(SeqCst)
        && let Some(service) = Service::open(&config)?
    {
        serve(service, args, &mut config)?;
    }
    output::say("the coordinator stops");
    Ok(ExitCode::SUCCESS)
}

/// Until told to stop, or until jobs that elect do not find it any more.
fn serve(mut service: Service, args: &Args, config: &mut Config) -> Result<(), String> {
    let _ = WAKER.set(service.server().waker());
    output::say(format_args!(
        "coordinating with policy {}, order {}, storages: {}",
        service.server().policy(),
        service.server().order(),
        names(&config.storages)
    ));
    while !STOP.load(SeqCst) {
        service.server().step(Duration::from_secs(1)).map_err(|error| format!("cannot go on: {error}"))?;
        if !service.is_in_place() {
            output::say("directory or socket were taken away: begins anew");
            return Ok(());
        }
        if RELOAD.swap(false, SeqCst) {
            reload(args, config, service.server());
        }
    }
    Ok(())
}

/// What files are placed on.
fn names(storages: &[Storage]) -> String {
    let paths: Vec<&str> = storages.iter().map(|storage| storage.path.as_str()).collect();
    if paths.is_empty() { "none described".into() } else { paths.join(", ") }
}

/// Reads the file again. What is wrong in it changes nothing.
fn reload(args: &Args, config: &mut Config, server: &mut Server) {
    let new = match args.config() {
        Ok(new) => new,
        Err(error) => return output::say(format_args!("not reloaded: {error}")),
    };
    if (&new.listen, &new.key) != (&config.listen, &config.key) {
        output::say("listen and key take effect with the next start");
    }
    let policy = new.policy.unwrap_or(PolicyKind::Weir);
    if policy != server.policy() {
        server.set_policy(policy);
    }
    let order = new.order.unwrap_or(aggregators::DEFAULT);
    if order != server.order() {
        server.set_order(order);
    }
    let is_site = |config: &Config| (config.storages.clone(), config.planning, config.applications.clone());
    if is_site(&new) != is_site(config) {
        server.set_site(new.storages.clone(), new.planning, new.applications.clone());
    }
    output::say(format_args!("reloaded, policy {policy}, order {order}, storages: {}", names(&new.storages)));
    // What begins anew begins with these.
    let Config { policy, order, storages, planning, applications, .. } = new;
    (config.policy, config.order, config.storages) = (policy, order, storages);
    (config.planning, config.applications) = (planning, applications);
}
