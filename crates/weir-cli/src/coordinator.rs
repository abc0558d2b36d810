//! `weir coordinator`: the coordinator as a service.

use crate::{Outcome, output};
use std::path::PathBuf;
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
    /// A file of lines `key = value` with the keys listen, policy, order, key, and of sections [storage PATH]; what is
    /// said here stands above it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The file with the key that TCP peers must have; only its owner may read it
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl Args {
    /// What the options and the file say together.
    fn config(&self) -> Result<Config, String> {
        let file = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        Ok(Config {
            listen: if self.listen.is_empty() { file.listen } else { self.listen.clone() },
            policy: self.policy.or(file.policy),
            order: self.order.or(file.order),
            key: self.key.clone().or(file.key),
            storages: file.storages,
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
            order: config.order.unwrap_or(aggregators::DEFAULT),
            key: config.key.as_deref().map(Key::read).transpose()?,
            title: format!("weir coordinator, pid {}", std::process::id()),
            storages: config.storages.clone(),
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
            let bound = server.listen(address, false).map_err(|error| match (address, &config.key) {
                (Address::Tcp(_), None) => format!("{error} (--key FILE)"),
                _ => error,
            })?;
            output::say(format_args!("listening on {bound}"));
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
    output::outlive_readers();
    raise_descriptor_limit();
    let mut service = Service::open(&config)?;
    watch_signals(service.server().waker());
    output::say(format_args!(
        "coordinating with policy {}, order {}, storages: {}",
        service.server().policy(),
        service.server().order(),
        names(&config.storages)
    ));
    while !STOP.load(SeqCst) {
        service.server().step(Duration::from_secs(1)).map_err(|error| format!("cannot go on: {error}"))?;
        if !service.is_in_place() {
            return Err("the directory was taken away; the jobs meet elsewhere now".into());
        }
        if RELOAD.swap(false, SeqCst) {
            reload(args, &mut config, service.server());
        }
    }
    output::say("the coordinator stops");
    Ok(ExitCode::SUCCESS)
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
    if new.storages != config.storages {
        server.set_storages(new.storages.clone());
    }
    output::say(format_args!("reloaded, policy {policy}, order {order}, storages: {}", names(&new.storages)));
    config.storages = new.storages;
}
