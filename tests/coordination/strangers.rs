//! Peers that are up to no good, and other users, while real jobs take turns.

use crate::live::{Directory, Live, SOON, Service, in_state, until};
use crate::run::weir;
use crate::turns::{Turns, USUAL, apart, gate};
use crate::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, scenario};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_coord::address::Address;
use weir_coord::wire::{Identity, Message, UNSEALED, VERSION};

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("strangers::garbage", garbage).only(SYSTEM),
        scenario("strangers::half_open", half_open).only(SYSTEM),
        scenario("strangers::flood", flood).only(SYSTEM),
        scenario("strangers::wire_version", wire_version).only(SYSTEM),
        scenario("strangers::other_user", other_user).only(SYSTEM),
        scenario("strangers::no_key", no_key).only(SYSTEM),
    ]
}

/// Two jobs that take turns while `disturb` does its worst to the coordinator's socket; it gets the socket,
/// and is to stop when the flag is set.
fn undisturbed(
    place: &Place,
    disturb: impl FnOnce(&Path, &AtomicBool) -> Verdict<String> + Send + 'static,
) -> Verdict {
    let directory = Directory::new()?;
    let one = Turns::new(place, "one", &directory.elect(), USUAL)?;
    let other = Turns::new(place, "other", &directory.elect(), USUAL)?;
    let live = [one.start()?, other.start()?];
    live[0].said_first("IN")?;
    let socket = directory.path().join("coordinator.sock");
    let stop = Arc::new(AtomicBool::new(false));
    let until_then = stop.clone();
    let stranger = std::thread::spawn(move || disturb(&socket, &until_then));
    let [first, second] = live.map(Live::end);
    stop.store(true, Relaxed);
    let report = stranger.join().map_err(|_| "the stranger panicked")??;
    println!("{}: {report}", place.name);
    let (first, second) = (first?, second?);
    for profile in [one.ended_well(&first)?, other.ended_well(&second)?] {
        let never_alone = ["limits", "alone", "opens"].iter().all(|what| gate(&profile, what) == 0);
        ensure(never_alone, || format!("the profile says {}", profile["coordination"]))?;
    }
    apart(&first, &second)?;
    Ok(())
}

fn frame(version: u8, kind: u8, fields: &[u8]) -> Vec<u8> {
    let length = (fields.len() as u32 + 3).to_le_bytes();
    [&length[..], &[version, kind, UNSEALED], fields].concat()
}

fn hello(name: &str) -> Vec<u8> {
    let identity =
        Identity { job: name.into(), ranks: 1, nodes: 1, storage: "disk".into(), ..Identity::default() };
    encoded(&Message::Hello { identity: Box::new(identity), rejoins: false, epoch: 0 })
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn connect(socket: &Path) -> Option<UnixStream> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(10))).ok()?;
    Some(stream)
}

/// Sends bytes; whether the coordinator then closed the connection, in good order or with bytes unread.
fn is_closed_after(stream: &mut UnixStream, bytes: &[u8]) -> bool {
    let _ = stream.write_all(bytes);
    let end = std::io::copy(stream, &mut std::io::sink());
    end.err().is_none_or(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Noise, a length of 4 GiB, a frame of no kind, a greeting that is cut off by a wrong one.
fn garbage(place: &Place) -> Verdict {
    undisturbed(place, |socket, stop| {
        let noise: Vec<u8> = (0..65536u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let long = [&u32::MAX.to_le_bytes()[..], &[VERSION, 1]].concat();
        let kinds =
            [noise, long, frame(VERSION, 200, &[]), [hello("x"), frame(VERSION, 3, &[0; 3])].concat()];
        let mut sent = 0;
        while !stop.load(Relaxed) {
            for bytes in &kinds {
                if let Some(mut stream) = connect(socket) {
                    sent += 1;
                    ensure(is_closed_after(&mut stream, bytes), || {
                        "garbage was not answered by a close".into()
                    })?;
                }
            }
        }
        ensure(sent > 0, || "the coordinator could not be reached".into())?;
        Ok(format!("{sent} connections with garbage"))
    })
}

/// Connections that say nothing, or half a frame, and stay.
fn half_open(place: &Place) -> Verdict {
    undisturbed(place, |socket, stop| {
        let mut kept = Vec::new();
        while !stop.load(Relaxed) {
            if kept.len() < 500
                && let Some(mut stream) = connect(socket)
            {
                let _ = stream.write_all(&hello("half")[..kept.len() % 12]);
                kept.push(stream);
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        ensure(!kept.is_empty(), || "the coordinator could not be reached".into())?;
        Ok(format!("{} connections that said nothing or half a frame", kept.len()))
    })
}

/// As many requests as fit through a socket.
fn flood(place: &Place) -> Verdict {
    undisturbed(place, |socket, stop| {
        let mut stream = connect(socket).ok_or("the coordinator could not be reached")?;
        let mut reader = stream.try_clone()?;
        stream.write_all(&hello("flood"))?;
        let answers = Arc::new(AtomicU64::new(0));
        let counted = answers.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                counted.fetch_add(n as u64, Relaxed);
            }
        });
        let started = Instant::now();
        let (mut requests, mut phase) = (0u64, 0u64);
        while !stop.load(Relaxed) {
            let mut bytes = Vec::new();
            for _ in 0..500 {
                phase += 1;
                Message::Begin { phase, bytes: None }.encode(&mut bytes);
                Message::End { phase, bytes: 0, io_ns: 0, waited_ns: 0 }.encode(&mut bytes);
            }
            // A coordinator that hands over to the next one ends it.
            if stream.write_all(&bytes).is_err() {
                break;
            }
            requests += 1000;
        }
        let rate = requests as f64 / started.elapsed().as_secs_f64();
        let _ = stream.shutdown(std::net::Shutdown::Both);
        Ok(format!("{rate:.0} requests per second taken, {} bytes of answers", answers.load(Relaxed)))
    })
}

/// Peers of an older and of a newer version are told which one is spoken.
fn wire_version(place: &Place) -> Verdict {
    undisturbed(place, |socket, stop| {
        let mut told = 0;
        while !stop.load(Relaxed) {
            for version in [VERSION - 1, VERSION + 1] {
                let Some(mut stream) = connect(socket) else { continue };
                let _ = stream.write_all(&frame(version, 1, &hello("other")[7..]));
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                let text = String::from_utf8_lossy(&answer).into_owned();
                // A coordinator that has just ended says nothing.
                if !answer.is_empty() {
                    let named = text.contains(&format!("version {VERSION}"));
                    ensure(named, || format!("version {version} was answered with {text:?}"))?;
                    told += 1;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        ensure(told > 0, || "nobody was told".into())?;
        Ok(format!("{told} peers were told the version"))
    })
}

/// Somebody else on this machine.
const NOBODY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn as_nobody(words: &[&str]) -> Verdict<Output> {
    let all: Vec<&str> = NOBODY.iter().chain(words).copied().collect();
    Ok(Command::new(all[0]).args(&all[1..]).current_dir("/").output()?)
}

/// A program where another user can run it.
fn public_copy(directory: &Directory, program: &Path) -> Verdict<String> {
    let copy = directory.path().join(program.file_name().unwrap_or_default());
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))?;
    std::fs::copy(program, &copy)?;
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755))?;
    Ok(copy.display().to_string())
}

/// What this program does when it is called as `… stranger ADDRESS`: for some seconds it makes as many connections as it can, to
/// keep them; on every other one it greets and asks for the status. Prints how many it has, and what it was told but that it
/// is not welcome and that a key is wanted.
pub(crate) fn act(address: &Address) {
    let (started, mut kept) = (Instant::now(), Vec::new());
    while started.elapsed() < Duration::from_secs(3) {
        match dial(address) {
            Some(mut stream) => {
                if kept.len() % 2 == 0 {
                    let _ = stream.write_all(&[hello("x"), encoded(&Message::StatusQuery {})].concat());
                }
                kept.push(stream);
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    println!("{} connections", kept.len());
    for mut stream in kept {
        let mut answer = [0; 4096];
        let told = stream.read(&mut answer).unwrap_or(0);
        if told > 0 && ![64, 71].contains(&answer[5]) {
            println!("{:?}", String::from_utf8_lossy(&answer[..told]));
        }
    }
}

trait Line: Read + Write {}
impl<T: Read + Write> Line for T {}

fn dial(address: &Address) -> Option<Box<dyn Line>> {
    let limit = Some(Duration::from_millis(1));
    Some(match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).ok()?;
            stream.set_read_timeout(limit).ok()?;
            Box::new(stream)
        }
        Address::Tcp(place) => {
            let stream = TcpStream::connect(place).ok()?;
            stream.set_read_timeout(limit).ok()?;
            Box::new(stream)
        }
    })
}

/// Another user can neither read the status nor join, and cannot keep jobs from joining and taking turns: with a directory
/// that is closed to them, with a socket that somebody opened to everybody, or over TCP without the key.
fn other_user(place: &Place) -> Verdict {
    if !as_nobody(&["true"]).is_ok_and(|output| output.status.success()) {
        return Err(Stop::Skip("may not become another user (needs root and setpriv)".into()));
    }
    let (closed, open) = (Directory::new()?, Directory::new()?);
    let socket = format!("unix:{}", open.path().join("sock").display());
    let tcp = format!("tcp://127.0.0.1:{}", crate::service::free_port("127.0.0.1")?);
    let key = open.key("key")?.display().to_string();
    let _service =
        Service::start(&["--listen", &socket, "--listen", &tcp, "--policy", "exclusive", "--key", &key])?;
    std::fs::set_permissions(open.path(), PermissionsExt::from_mode(0o755))?;
    std::fs::set_permissions(open.path().join("sock"), PermissionsExt::from_mode(0o666))?;
    unknown_to_others(place, &closed.elect(), &key, || {
        Some(format!("unix:{}", closed.path().join("coordinator.sock").display()))
    })?;
    // Others can find out on which port a coordinator that was elected listens.
    unknown_to_others(place, &closed.elect(), &key, || {
        let text = std::fs::read_to_string(closed.path().join("coordinator.at")).ok()?;
        Some(format!("tcp://127.0.0.1:{}", text.lines().next()?.rsplit(':').next()?))
    })?;
    unknown_to_others(place, &socket, &key, || Some(socket.clone()))?;
    unknown_to_others(place, &tcp, &key, || Some(tcp.clone()))
}

/// Another user is told nothing, in each of up to three tries, and keeps nobody from taking turns, in one of them: on a
/// machine that does other things as well the second job may not be answered in time.
fn unknown_to_others(
    place: &Place,
    coordinator: &str,
    key: &str,
    address: impl Fn() -> Option<String>,
) -> Verdict {
    let mut remarks = Vec::new();
    for _ in 0..3 {
        let said = beside_another_user(place, coordinator, key, &address)?;
        if said.is_empty() {
            return Ok(());
        }
        remarks.extend(said);
    }
    Err(format!("Weir said: {remarks:?}").into())
}

/// Two jobs take turns, of which the second starts while another user is at the coordinator's address. Answers what Weir
/// said meanwhile.
fn beside_another_user(
    place: &Place,
    coordinator: &str,
    key: &str,
    address: impl Fn() -> Option<String>,
) -> Verdict<Vec<String>> {
    let tools = Directory::new()?;
    let command = public_copy(&tools, &weir())?;
    let stranger = public_copy(&tools, &std::env::current_exe()?)?;
    let one = Turns::new(place, "one", coordinator, USUAL)?.variable("WEIR_KEY", key);
    let other = Turns::new(place, "other", coordinator, USUAL)?.variable("WEIR_KEY", key);
    let first = one.start()?;
    first.said_first("IN")?;
    let address = until("the coordinator has an address", SOON, address)?;
    let read = as_nobody(&[&command, "status", "--json", &address])?;
    ensure(!read.status.success() && read.stdout.is_empty(), || format!("another user read: {read:?}"))?;
    let words = [stranger, "stranger".into(), address.clone()];
    let stranger = std::thread::spawn(move || as_nobody(&words.each_ref().map(String::as_str)));
    // By then it has what it can get.
    std::thread::sleep(Duration::from_secs(1));
    let second = other.start()?;
    let [first, second] = [first, second].map(Live::end);
    let told = stranger.join().map_err(|_| "the stranger panicked")??;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    println!("{}: {address}: another user had {}", place.name, told.trim());
    ensure(told.lines().count() == 1, || format!("another user was told: {told}"))?;
    let (first, second) = (first?, second?);
    one.ended_well(&first)?;
    other.ended_well(&second)?;
    let remarks = [first.remarks(), second.remarks()].concat();
    if remarks.is_empty() {
        apart(&first, &second)?;
    }
    Ok(remarks.into_iter().map(String::from).collect())
}

/// A job with a wrong key runs by itself, says why, and the service has never heard of it.
fn no_key(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let (right, wrong) = (directory.key("right")?, directory.key("wrong")?);
    let text = format!("tcp://127.0.0.1:{}", crate::service::free_port("127.0.0.1")?);
    let _service =
        Service::start(&["--listen", &text, "--policy", "exclusive", "--key", &right.display().to_string()])?;
    let key = |path: &Path| path.display().to_string();
    let member = Turns::new(place, "member", &text, USUAL)?.variable("WEIR_KEY", &key(&right));
    let stranger = Turns::new(place, "stranger", &text, USUAL)?.variable("WEIR_KEY", &key(&wrong));
    let live = [member.start()?, stranger.start()?];
    let ask = || {
        let key = weir_coord::auth::Key::read(&right).ok()?;
        crate::live::status(&text.parse().ok()?, Some(&key))
    };
    until("the member is in I/O", SOON, || {
        let status = ask()?;
        let known = status["jobs"].as_array()?.len();
        (known == 1 && in_state(&status, "in I/O").len() == 1).then_some(())
    })?;
    let [first, second] = live.map(Live::end);
    let (first, second) = (first?, second?);
    member.ended_well(&first)?;
    stranger.ended_well(&second)?;
    ensure(first.remarks().is_empty(), || format!("the member heard: {:?}", first.remarks()))?;
    let remarks = second.remarks();
    ensure(remarks.len() == 1 && remarks[0].contains("key"), || format!("the stranger heard: {remarks:?}"))
}
