//! `weir coordinator` and `weir status` as they are called.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_coord::Waker;
use weir_coord::ledger::Sum;
use weir_coord::member::{Member, Way};
use weir_coord::server::Settings;
use weir_coord::session::{Gate, Input, Limits, Word};
use weir_coord::wire::Identity;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("weir-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn weir(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(words).env_remove("WEIR_COORDINATOR").output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

struct Service {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Service {
    fn start(words: &[&str]) -> Service {
        Service::launch(Command::new(env!("CARGO_BIN_EXE_weir")).arg("coordinator").args(words))
    }

    fn launch(command: &mut Command) -> Service {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Service { child, lines }
    }

    fn line(&mut self, wanted: &str) -> String {
        self.lines.by_ref().map_while(Result::ok).find(|line| line.contains(wanted)).expect(wanted)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for yet.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where services find the place of those whom jobs elect empty and their own: in a mount namespace. `None`, said aloud,
/// where that is not allowed.
struct Seclusion(Child);

impl Seclusion {
    fn new(trial: &str) -> Option<Seclusion> {
        let script = "set -e; meet=/tmp/weir-$(id -u); mkdir -p -m 700 $meet; \
                      mount -t tmpfs -o mode=700 weir-trial $meet; echo ready; exec sleep 600";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).stdout(Stdio::piped());
        let mut line = String::new();
        if let Ok(mut child) = command.spawn() {
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let seclusion = Seclusion(child);
            if line == "ready\n" {
                return Some(seclusion);
            }
        }
        let _ = writeln!(std::io::stderr(), "SKIPPED {trial}: may not have mounts of its own (needs root)");
        None
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.0.id()));
        command.arg(env!("CARGO_BIN_EXE_weir")).args(words).env_remove("WEIR_COORDINATOR");
        command
    }

    fn service(&self, policy: &str) -> Service {
        Service::launch(&mut self.command(&["coordinator", "--policy", policy]))
    }
}

impl Drop for Seclusion {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whoever has the place of those whom jobs elect, a service gets it in the end, and does not give up before.
#[test]
fn a_service_waits_for_the_place_of_another() {
    let Some(seclusion) = Seclusion::new("a_service_waits_for_the_place_of_another") else { return };
    let mut first = seclusion.service("set10");
    first.line("coordinating with policy set10");
    let mut second = seclusion.service("fair");
    let holder = format!("weir: weir coordinator, pid {} coordinates in /tmp/weir-", first.child.id());
    let said = second.line("waiting for its place");
    assert!(said.starts_with(&holder), "{said}");
    let mut third = seclusion.service("exclusive");
    third.line("waiting for its place");
    third.signal(libc::SIGTERM);
    third.line("the coordinator stops");
    assert!(third.child.wait().unwrap().success());
    first.signal(libc::SIGKILL);
    second.line("coordinating with policy fair");
    let status = seclusion.command(&["status"]).output().unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("with policy fair"), "{text}{}", stderr(&status));
}

/// What cleans up /tmp may take its socket: jobs that come then must find it all the same.
#[test]
fn a_service_whose_socket_is_taken_away_begins_anew() {
    let Some(seclusion) = Seclusion::new("a_service_whose_socket_is_taken_away_begins_anew") else { return };
    let mut service = seclusion.service("set10");
    service.line("coordinating with policy set10");
    let mounts = format!("--mount=/proc/{}/ns/mnt", seclusion.0.id());
    let script = "rm /tmp/weir-$(id -u)/coordinator.sock";
    assert!(Command::new("nsenter").args([&mounts, "sh", "-c", script]).status().unwrap().success());
    service.line("begins anew");
    service.line("coordinating with policy set10");
    assert!(seclusion.command(&["status"]).output().unwrap().status.success());
}

/// What was reloaded counts when it begins anew.
#[test]
fn a_service_begins_anew_as_it_was_last_told() {
    let Some(seclusion) = Seclusion::new("a_service_begins_anew_as_it_was_last_told") else { return };
    let directory = Directory::new("anew");
    let config = directory.file("config", "policy = fair\norder = sio\n");
    let mut service = Service::launch(&mut seclusion.command(&["coordinator", "--config", &config]));
    service.line("coordinating with policy fair, order sio");
    directory.file("config", "policy = set10\norder = hio\n");
    service.signal(libc::SIGHUP);
    service.line("reloaded, policy set10, order hio");
    let mounts = format!("--mount=/proc/{}/ns/mnt", seclusion.0.id());
    let script = "rm /tmp/weir-$(id -u)/coordinator.sock";
    assert!(Command::new("nsenter").args([&mounts, "sh", "-c", script]).status().unwrap().success());
    service.line("begins anew");
    let said = service.line("coordinating with");
    assert!(said.contains("policy set10, order hio"), "{said}");
}

/// A directory that a member coordinates, for other nodes as well, in a thread until dropped.
struct Elected {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Elected {
    fn start(directory: &Path) -> Elected {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, directory) = (stop.clone(), directory.to_path_buf());
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let network_host = Some("127.0.0.1".into());
            let way = Way::Elect { directory, network_host, settings: Settings::default() };
            let mut member = member(way);
            while !stopped.load(SeqCst) {
                member.step(Duration::from_millis(10), &mut |word| {
                    if let Word::Joined { .. } = word {
                        let _ = tell.send(());
                    }
                });
            }
            member.leave();
        });
        told.recv().expect("it joins itself");
        Elected { stop, thread: Some(thread) }
    }
}

impl Drop for Elected {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

/// On a file system that nodes share, all see the socket, and it leads nowhere on all but one.
#[test]
fn a_status_is_had_on_other_nodes() {
    let (here, elsewhere) = (Directory::new("here"), Directory::new("elsewhere"));
    let _elected = Elected::start(&here.0);
    std::fs::copy(here.0.join("coordinator.at"), elsewhere.0.join("coordinator.at")).unwrap();
    drop(UnixListener::bind(elsewhere.0.join("coordinator.sock")).unwrap());
    for directory in [&here, &elsewhere] {
        let status = weir(&["status", &format!("elect:{}", directory.0.display())]);
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.status.success() && text.contains("lammps"), "{text}{}", stderr(&status));
    }
}

fn identity() -> Identity {
    Identity {
        storage: "disk".into(),
        job: "4711".into(),
        application: "lammps".into(),
        host: "node7".into(),
        ranks: 2,
        nodes: 1,
        ..Identity::default()
    }
}

fn member(way: Way) -> Member {
    let limits = Limits { phase_gap_ns: None, max_wait_ns: 60_000_000_000, free_bytes: 0 };
    Member::new(way, identity(), limits, &Sum::default(), Waker::new().unwrap()).unwrap()
}

/// A job in a phase that is granted.
fn join(address: &str) -> Member {
    let mut member = member(Way::Service { address: address.parse().unwrap(), key: None });
    member.tell(Input::Look(&Sum { marks: 1, ..Sum::default() }));
    while !matches!(member.session().gate(), Gate::Granted { .. }) {
        member.step(Duration::from_millis(50), &mut |_| {});
    }
    member
}

#[test]
fn a_service_serves_reloads_and_stops() {
    let directory = Directory::new("service");
    let address = format!("unix:{}", directory.0.join("weir.sock").display());
    let config = directory.file("config", &format!("policy = set10\nlisten = {address}\n"));
    let mut service = Service::start(&["--config", &config]);
    service.line("coordinating with policy set10, order nio, storages: none described");
    let job = join(&address);
    let status = weir(&["status", &address]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("with policy set10") && text.contains("lammps"), "{text}{}", stderr(&status));
    let status = weir(&["status", "--json", &address]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["jobs"][0]["state"], "in I/O");
    assert_eq!(status["jobs"][0]["share"], 1.0);

    directory.file("config", "police = fair\n");
    service.signal(libc::SIGHUP);
    assert!(service.line("not reloaded").contains("line 1: unknown key \"police\""));
    let storage = "[storage /scratch]\ntargets = 4\nbandwidth_mb_per_s = 500 900\ncompute_nodes = 8\n";
    let bad = storage.replace("900", "9OO");
    directory.file("config", &format!("policy = fair\nlisten = {address}\n{bad}"));
    service.signal(libc::SIGHUP);
    assert!(service.line("not reloaded").contains("line 5: bandwidth_mb_per_s"));
    directory.file("config", &format!("policy = fair\nlisten = {address}\n{storage}"));
    service.signal(libc::SIGHUP);
    service.line("reloaded, policy fair, order nio, storages: /scratch");
    let status = weir(&["status", &address]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("with policy fair") && text.contains("\n/scratch:"), "{text}");
    drop(job);
    service.signal(libc::SIGTERM);
    service.line("the coordinator stops");
    assert!(service.child.wait().unwrap().success());
    assert!(!Path::new(&directory.0.join("weir.sock")).exists());
}

#[test]
fn tcp_takes_a_key() {
    let directory = Directory::new("key");
    let key = directory.file("key", "0123456789abcdef0123456789abcdef\n");
    let mut service = Service::start(&["--listen", "tcp://127.0.0.1:0", "--key", &key]);
    let address = service.line("listening on ").split(' ').next_back().unwrap().to_string();
    service.line("coordinating");
    assert!(weir(&["status", &address, "--key", &key]).status.success());
    assert!(stderr(&weir(&["status", &address])).contains("it wants a key"));
    let wrong = directory.file("wrong", "another key, as long as it must be\n");
    assert!(stderr(&weir(&["status", &address, "--key", &wrong])).contains("wrong key"));
}

#[test]
fn bad_input_is_named() {
    let directory = Directory::new("bad");
    let config = directory.file("config", "policy = weir\n\nlisten = somewhere\n");
    let storage = directory.file("storage", "[storage /scratch]\nstripes = 4\n");
    let nowhere = format!("elect:{}", directory.0.display());
    for (words, error) in [
        (
            &["coordinator", "--policy", "set11"][..],
            "unknown policy \"set11\"; valid are exclusive, fair, set10",
        ),
        (&["coordinator", "--listen", "node7:1"], "must be unix:/path or tcp://host:port"),
        (&["coordinator", "--listen", "tcp://127.0.0.1:0"], "TCP needs a key (--key FILE)"),
        (&["coordinator", "--config", &config], "line 3: listen: address \"somewhere\""),
        (
            &["coordinator", "--config", &storage],
            "unknown key \"stripes\" of [storage /scratch]; valid are targets,",
        ),
        (&["coordinator", "--config", "/no/such"], "/no/such: No such file"),
        (&["coordinator", "--key", "/no/key", "--listen", "tcp://127.0.0.1:0"], "key file /no/key"),
        (&["status", "unix:/no/such/socket"], "cannot ask the coordinator at unix:/no/such/socket"),
        (&["status", "tcp://127.0.0.1:1"], "Connection refused"),
        (&["status", "here"], "must be off, elect, elect:/directory, unix:/path or tcp://host:port"),
        (&["status", &nowhere], "no coordinator in"),
    ] {
        let output = weir(words);
        assert!(!output.status.success(), "{words:?}");
        assert!(stderr(&output).contains(error), "{words:?}: {}", stderr(&output));
    }
}

/// A coordinator that goes is news to those who watch, and one that comes as well.
#[test]
fn a_watch_goes_on() {
    let directory = Directory::new("watch");
    let address = format!("unix:{}", directory.0.join("weir.sock").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let mut watch =
        command.args(["status", "--watch", &address]).stdout(Stdio::piped()).spawn().expect("a process");
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut line = |wanted: &str| lines.by_ref().find(|line| line.contains(wanted)).expect(wanted);
    line("cannot ask the coordinator");
    let mut service = Service::start(&["--policy", "set10", "--listen", &address]);
    service.line("coordinating");
    for _ in 0..2 {
        line("with policy set10");
    }
    drop(service);
    line("cannot ask the coordinator");
    watch.kill().unwrap();
    watch.wait().unwrap();
}
