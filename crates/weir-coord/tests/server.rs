//! A server and its jobs over real sockets.

mod common;

use common::{Directory, Job, Raw, identity, serve, settings};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use weir_coord::address::Address;
use weir_coord::auth::Key;
use weir_coord::member::Way;
use weir_coord::query::query_status;
use weir_coord::server::{Server, Settings};
use weir_coord::session::{Gate, Word};
use weir_coord::tokens::UNLIMITED;
use weir_coord::wire::{Identity, Message, Progress, VERSION};
use weir_engine::sharing::PolicyKind;

fn hello(job: &str) -> Message {
    let identity = Identity {
        job: job.into(),
        pid: 1,
        ranks: 1,
        nodes: 1,
        storage: "disk".into(),
        ..Identity::default()
    };
    Message::Hello { identity: Box::new(identity), rejoins: false, epoch: 0 }
}

fn begin(phase: u64) -> Message {
    Message::Begin { phase, bytes: None }
}

#[test]
fn one_after_the_other() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut first = Job::join("first", &server.address);
    let mut second = Job::join("second", &server.address);
    first.begin();
    assert_eq!(first.granted(), UNLIMITED);
    server.settle();
    second.begin();
    second.held();
    second.stays_closed("the first has it");
    first.end(100);
    assert_eq!(second.granted(), UNLIMITED);
    second.end(100);
    first.begin();
    first.granted();
}

#[test]
fn a_grant_is_withdrawn_in_the_middle_of_a_phase() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Weir));
    // From earlier runs: the one that asks for little goes first.
    let usual = |name: &str, bytes| Identity { mean_phase_bytes: Some(bytes), ..identity(name) };
    let mut large = Job::join_as(usual("large", 1 << 40), &server.address);
    let mut small = Job::join_as(usual("small", 1 << 10), &server.address);
    large.begin();
    large.granted();
    server.settle();
    small.begin();
    let start = Instant::now();
    while large.member.session().gate() != Gate::Closed {
        large.step(Duration::from_millis(10));
        small.step(Duration::from_millis(10));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?} {:?}", large.heard, small.heard);
    }
    small.granted();
    small.end(1 << 10);
    large.granted();
}

#[test]
fn a_job_that_vanishes_leaves_its_grant_to_the_next() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut holder = Raw::connect(&server.address);
    holder.send(&hello("holder"));
    holder.send(&begin(1));
    while !matches!(holder.receive(), Some(Message::Grant { .. })) {}
    let mut next = Job::join("next", &server.address);
    next.begin();
    next.held();
    drop(holder);
    next.granted();
}

#[test]
fn a_job_that_falls_silent_loses_its_lease() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut silent = Raw::connect(&server.address);
    silent.send(&hello("silent"));
    silent.send(&begin(1));
    while !matches!(silent.receive(), Some(Message::Grant { .. })) {}
    let mut next = Job::join("next", &server.address);
    next.begin();
    let start = Instant::now();
    next.granted();
    println!("the grant of a silent job went on after {:?}", start.elapsed());
    while silent.receive().is_some() {}
}

#[test]
fn nodes_of_one_job_share_its_phase() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut near = Job::join("job", &server.address);
    let mut far = Job::join("job", &server.address);
    let mut other = Job::join("other", &server.address);
    near.begin();
    near.granted();
    server.settle();
    other.begin();
    other.held();
    far.begin();
    far.granted();
    near.end(10);
    other.stays_closed("one node is in the phase");
    drop(far);
    other.granted();
}

#[test]
fn two_in_io_have_credits_and_one_alone_has_no_limit() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Fair));
    let mut first = Job::join("first", &server.address);
    let mut second = Job::join("second", &server.address);
    first.begin();
    assert_eq!(first.granted(), UNLIMITED);
    server.settle();
    first.busy(1 << 20);
    second.begin();
    let is_limited = |gate| matches!(gate, Gate::Granted { credit_bytes } if credit_bytes < UNLIMITED);
    second.until_gate("a limit", is_limited);
    second.busy(1 << 20);
    first.until_gate("a limit", is_limited);
    second.end(1 << 20);
    first.until_gate("no limit", |gate| gate == Gate::Granted { credit_bytes: UNLIMITED });
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut good = Job::join("good", &server.address);
    let mut frame = Vec::new();
    Message::Beat {}.encode(&mut frame);
    let mut newer = frame.clone();
    newer[4] = VERSION + 1;
    let mut older = frame.clone();
    older[4] = VERSION - 1;
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("4 GiB", vec![0xff; 4], "4294967295 bytes"),
        ("noise", b"GET / HTTP/1.1\r\n\r\n".to_vec(), "bytes"),
        ("newer", newer, "version 7; version 6 is spoken"),
        ("older", older, "version 5; version 6 is spoken"),
        ("no hello", frame, "before hello"),
        ("unknown kind", vec![3, 0, 0, 0, VERSION, 99, 0], "unknown kind 99"),
    ];
    for (name, bytes, reason) in cases {
        let mut raw = Raw::connect(&server.address);
        raw.stream.write_all(&bytes).unwrap();
        match raw.receive() {
            Some(Message::Refuse { reason: said }) => assert!(said.contains(reason), "{name}: {said}"),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(raw.receive(), None, "{name}");
    }
    good.begin();
    good.granted();
}

#[test]
fn half_a_frame_is_waited_for_but_not_forever() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut frame = Vec::new();
    hello("halves").encode(&mut frame);
    let mut patient = Raw::connect(&server.address);
    for byte in &frame {
        patient.stream.write_all(&[*byte]).unwrap();
    }
    assert!(matches!(patient.receive(), Some(Message::Welcome { .. })));
    let mut half = Raw::connect(&server.address);
    half.stream.write_all(&frame[..frame.len() / 2]).unwrap();
    assert_eq!(half.receive(), None);
}

#[test]
fn a_flood_does_not_stop_the_others() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut flooder = Raw::connect(&server.address);
    flooder.send(&hello("flooder"));
    let mut frames = Vec::new();
    for _ in 0..1000 {
        Message::Moved {
            phase: 1,
            progress: Progress::default(),
            in_flight: 0,
            busy_ns: 0,
            is_resting: false,
        }
        .encode(&mut frames);
    }
    let start = Instant::now();
    let flood = std::thread::spawn(move || {
        while start.elapsed() < Duration::from_secs(2) {
            flooder.stream.write_all(&frames).expect("a flooder is slowed, not closed");
        }
    });
    let mut good = Job::join("good", &server.address);
    let mut slowest = Duration::ZERO;
    let mut phase = 0;
    while start.elapsed() < Duration::from_secs(2) {
        phase += 1;
        let asked = Instant::now();
        good.begin();
        good.granted();
        slowest = slowest.max(asked.elapsed());
        good.end(0);
    }
    flood.join().unwrap();
    let status = query_status(&server.address, None, Duration::from_secs(5)).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    println!(
        "{phase} phases beside a flood of {} messages, the slowest answer {slowest:?}",
        status["messages"]
    );
    assert!(status["slowed"].as_u64() > Some(0), "{status}");
    assert!(phase > 100, "{phase}");
}

#[test]
fn tcp_needs_the_key() {
    let key = Key::from_text("a key that both sides have");
    let settings = Settings { key: Some(key.clone()), ..settings(PolicyKind::Exclusive) };
    let server = serve(&"tcp://127.0.0.1:0".parse().unwrap(), settings);
    let join =
        |key: Option<Key>| Job::new(Way::Service { address: server.address.clone(), key }, identity("tcp"));
    let mut good = join(Some(key.clone()));
    good.until("welcome", |word| matches!(word, Word::Joined { .. }));
    good.begin();
    good.granted();
    let mut wrong = join(Some(Key::from_text("another key, which is wrong")));
    let said = format!("{}: wrong key", server.address);
    wrong.until("a refusal", |word| matches!(word, Word::Refused { reason } if reason.contains(&said)));
    wrong.until_gate("an open gate", |gate| matches!(gate, Gate::Open { .. }));
    let mut keyless = join(None);
    keyless.until(
        "the reason",
        |word| matches!(word, Word::Opened { reason } if reason.contains("TCP needs a key")),
    );
    assert!(query_status(&server.address, Some(&key), Duration::from_secs(5)).unwrap().contains("\"tcp\""));
    let refused = query_status(&server.address, Some(&Key::from_text("wrong")), Duration::from_secs(5));
    assert!(refused.unwrap_err().ends_with("wrong key"));
    assert!(query_status(&server.address, None, Duration::from_secs(5)).unwrap_err().contains("wants a key"));
}

/// Somebody without the key has taken the port of a service.
struct Impostor {
    listener: std::net::TcpListener,
    address: Address,
}

impl Impostor {
    fn new() -> Impostor {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        Impostor { listener, address }
    }

    /// Says all of this to the next who calls, whatever that one says.
    fn say(&self, messages: &[Message]) -> std::net::TcpStream {
        let (mut peer, _) = self.listener.accept().unwrap();
        let mut frames = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut frames));
        peer.write_all(&frames).unwrap();
        peer
    }
}

fn welcome() -> Message {
    let policy = "fair".into();
    Message::Welcome { lease_ms: 800, beat_ms: 200, report_ms: 2, policy, orders: false, epoch: 0 }
}

#[test]
fn a_service_without_the_key_coordinates_nobody() {
    let impostor = Impostor::new();
    let key = Some(Key::from_text("a key that both sides have"));
    let address = impostor.address.clone();
    let mut job = Job::new(Way::Service { address, key }, identity("tcp"));
    job.begin();
    let _peer = impostor.say(&[
        Message::Ahead { granted: true },
        Message::Hold { phase: 1, expected_ns: u64::MAX },
        Message::Grant { phase: 1, share: 1.0, credit_bytes: 1, expected_ns: 0 },
        Message::Credit { phase: 1, share: 1.0, credit_bytes: 1, expected_ns: 0 },
        welcome(),
    ]);
    job.until("a refusal", |word| matches!(word, Word::Refused { reason } if reason.contains("not proven")));
    let only_that = |word: &Word| matches!(word, Word::Refused { .. } | Word::Opened { .. });
    assert!(job.heard.iter().all(only_that), "{:?}", job.heard);
}

#[test]
fn a_status_is_believed_of_who_has_the_key() {
    let impostor = Impostor::new();
    let address = impostor.address.clone();
    let asker = std::thread::spawn(move || {
        let key = Key::from_text("a key that both sides have");
        query_status(&address, Some(&key), Duration::from_secs(10))
    });
    let _peer = impostor.say(&[Message::Status { last: true, text: "{}".into() }]);
    assert!(asker.join().unwrap().unwrap_err().ends_with("it has not proven that it has the key"));
}

/// A coordinator gives no orders to the terminal on which a job explains itself.
#[test]
fn control_characters_in_a_refusal_are_spelt_out() {
    let directory = Directory::new();
    let Address::Unix(path) = directory.socket() else { panic!("a Unix socket") };
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut job = Job::new(Way::Service { address: directory.socket(), key: None }, identity("job"));
    job.begin();
    let (mut peer, _) = listener.accept().unwrap();
    let mut frames = Vec::new();
    let refusal = Message::Refuse { reason: "\u{1b}[2J".into() };
    [welcome(), refusal].iter().for_each(|message| message.encode(&mut frames));
    peer.write_all(&frames).unwrap();
    let spelt_out = |word: &Word| matches!(word, Word::Refused { reason } if reason.ends_with("\\u001b[2J"));
    job.until("a refusal that is spelt out", spelt_out);
}

#[test]
fn strangers_do_not_take_the_places_of_those_with_the_key() {
    let key = Key::from_text("a key that both sides have");
    let settings =
        Settings { key: Some(key.clone()), max_connections: 40, ..settings(PolicyKind::Exclusive) };
    let server = serve(&"tcp://127.0.0.1:0".parse().unwrap(), settings);
    let Address::Tcp(place) = &server.address else { panic!("TCP") };
    let strangers: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(place).unwrap()).collect();
    let address = server.address.clone();
    let mut job = Job::new(Way::Service { address, key: Some(key) }, identity("tcp"));
    job.until("welcome", |word| matches!(word, Word::Joined { .. }));
    drop(strangers);
}

#[test]
fn a_peer_without_proof_gets_nothing_and_is_closed() {
    use std::io::Read;
    let key = Key::from_text("a key that both sides have");
    let settings = Settings { key: Some(key), ..settings(PolicyKind::Exclusive) };
    let server = serve(&"tcp://127.0.0.1:0".parse().unwrap(), settings);
    let Address::Tcp(place) = &server.address else { panic!("TCP") };
    for first in [Message::StatusQuery {}, hello("stranger"), Message::Proof { nonce: [0; 32], mac: [0; 32] }]
    {
        let mut stream = std::net::TcpStream::connect(place).unwrap();
        let mut frame = Vec::new();
        first.encode(&mut frame);
        stream.write_all(&frame).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let (challenge, length) = Message::decode(&answer).unwrap().unwrap();
        assert!(matches!(challenge, Message::Challenge { .. }));
        let (refusal, _) = Message::decode(&answer[length..]).unwrap().unwrap();
        assert!(matches!(refusal, Message::Refuse { .. }), "{refusal:?}");
    }
    let mut silent = std::net::TcpStream::connect(place).unwrap();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).unwrap();
    assert!(Message::decode(&answer).unwrap().is_some(), "a challenge, then closed");
}

#[test]
fn a_socket_is_neither_stolen_nor_left_behind() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut second = weir_coord::server::Server::new(Settings::default()).unwrap();
    let error = second.listen(&directory.socket(), false).unwrap_err();
    assert!(error.ends_with("a coordinator is there already"), "{error}");
    drop(server);
    let Address::Unix(path) = directory.socket() else { panic!("a Unix socket") };
    assert!(!common::exists(&path));
    // One that nobody listens on is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    second.listen(&directory.socket(), false).unwrap();
    let error = second.listen(&"tcp://127.0.0.1:0".parse().unwrap(), false).unwrap_err();
    assert!(error.ends_with("TCP needs a key"), "{error}");
}

#[test]
fn the_gate_opens_when_a_server_stops_and_closes_when_there_is_one_again() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    let mut job = Job::join("job", &server.address);
    job.begin();
    job.granted();
    drop(server);
    job.until("the loss", |word| matches!(word, Word::Lost { .. }));
    job.until("an open gate", |word| matches!(word, Word::Opened { .. }));
    let _server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    job.until("welcome", |word| matches!(word, Word::Joined { .. }));
    job.granted();
}

/// A coordinator that takes over knows of a job what the one before had learnt, and what earlier runs showed counts
/// beside it.
#[test]
fn what_was_learnt_outlives_a_server() {
    let directory = Directory::new();
    let known_s = |history_ns: Option<u64>| {
        let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
        let identity = Identity { w_iter_ns: history_ns, ..identity("job") };
        let mut job = Job::join_as(identity, &server.address);
        // Phases whose starts are as far apart as they take, by the clock of the ranks.
        for phase in 1..=8 {
            job.begin();
            job.end(phase);
        }
        drop(server);
        job.until("the loss", |word| matches!(word, Word::Lost { .. }));
        let shown_s = job.member.session().habits().w_iter_ns.unwrap() as f64 * 1e-9;
        let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
        job.until("welcome", |word| matches!(word, Word::Joined { .. }));
        let status = query_status(&server.address, None, Duration::from_secs(5)).unwrap();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        (status["jobs"][0]["characteristic_time_s"].as_f64().unwrap(), shown_s)
    };
    let (known, shown) = known_s(None);
    assert!((known - shown).abs() < 1e-8, "{known} {shown}");
    // Eight phases against what counts as two.
    let (known, shown) = known_s(Some(0));
    assert!((known - shown * 0.8).abs() < 1e-8, "{known} {shown}");
}

/// Again and again somebody welcomes the job and then says nothing.
#[test]
fn the_gate_opens_when_nothing_follows_a_welcome() {
    let directory = Directory::new();
    let Address::Unix(path) = directory.socket() else { panic!("a Unix socket") };
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let policy = "fair".into();
            let (orders, epoch) = (false, 0);
            let welcome =
                Message::Welcome { lease_ms: 800, beat_ms: 50, report_ms: 2, policy, orders, epoch };
            let mut bytes = Vec::new();
            welcome.encode(&mut bytes);
            let _ = stream.write_all(&bytes);
            kept.push(stream);
        }
    });
    let way = Way::Service { address: directory.socket(), key: None };
    let mut job = Job::new(way, identity("job"));
    job.begin();
    job.until("an open gate", |word| matches!(word, Word::Opened { .. }));
}

#[test]
fn a_policy_is_changed_under_way() {
    let directory = Directory::new();
    let mut server = weir_coord::server::Server::new(settings(PolicyKind::Exclusive)).unwrap();
    let address = server.listen(&directory.socket(), false).unwrap();
    let tick = Duration::from_millis(5);
    let mut jobs: Vec<Raw> = (0..2).map(|_| Raw::connect(&address)).collect();
    for (index, job) in jobs.iter_mut().enumerate() {
        job.send(&hello(&index.to_string()));
        job.send(&begin(1));
    }
    for _ in 0..5 {
        server.step(tick).unwrap();
    }
    server.set_policy(PolicyKind::Fair);
    let answers: Vec<Message> = std::iter::from_fn(|| jobs[1].receive()).take(4).collect();
    assert!(matches!(answers[1], Message::Hold { phase: 1, .. }), "{answers:?}");
    assert!(matches!(&answers[2], Message::Welcome { policy, .. } if policy == "fair"), "{answers:?}");
    assert!(matches!(answers[3], Message::Grant { phase: 1, share: 0.5, .. }), "{answers:?}");
}

/// Runs a program as somebody else, which needs root and Python. Where that is not to be had it is written to standard
/// error itself: of what a test that passes says by `eprintln!` nothing is seen.
fn as_another_user(trial: &str, script: &str, path: &Path) -> Option<Child> {
    let skipped = |why: &str| {
        let _ = writeln!(std::io::stderr(), "SKIPPED {trial}: {why}");
        None
    };
    if weir_coord::auth::user() != 0 {
        return skipped("only root can become another user");
    }
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(path).uid(NOBODY).stdout(std::process::Stdio::piped());
    command.spawn().ok().or_else(|| skipped("no python3"))
}

const NOBODY: u32 = 65534;

#[test]
fn another_user_gets_nothing() {
    let directory = Directory::new();
    let server = serve(&directory.socket(), settings(PolicyKind::Exclusive));
    // Even if the directory's mode did not keep them out.
    let Address::Unix(path) = &server.address else { panic!("a Unix socket") };
    std::fs::set_permissions(&directory.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                  s.settimeout(5); sys.stdout.buffer.write(s.recv(65536))";
    let Some(asker) = as_another_user("another_user_gets_nothing", script, path) else { return };
    let answer = asker.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(text.contains("another user's"), "{text} {}", String::from_utf8_lossy(&answer.stderr));
}

/// Where a service was to listen, and everybody may, somebody else does.
#[test]
fn another_user_coordinates_nobody() {
    let directory = Directory::new();
    std::fs::set_permissions(&directory.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    let script = "import socket,sys,time; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); \
                  print('listens', flush=True); time.sleep(60)";
    let Address::Unix(path) = directory.socket() else { panic!("a Unix socket") };
    let Some(mut squatter) = as_another_user("another_user_coordinates_nobody", script, &path) else {
        return;
    };
    let mut line = String::new();
    BufReader::new(squatter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listens\n");
    let mut job = Job::new(Way::Service { address: directory.socket(), key: None }, identity("job"));
    let Word::Opened { reason } = job.until("the reason", |word| matches!(word, Word::Opened { .. })) else {
        unreachable!("only that is let through")
    };
    let status = query_status(&directory.socket(), None, Duration::from_millis(100));
    squatter.kill().unwrap();
    squatter.wait().unwrap();
    for error in [reason, status.unwrap_err()] {
        assert!(error.contains("the socket is of user 65534, and this is user 0"), "{error}");
    }
}

/// Whoever says something and closes in the same moment is gone at once, not when its lease expires.
#[test]
fn a_last_word_does_not_hide_the_end() {
    let directory = Directory::new();
    let mut server = Server::new(settings(PolicyKind::Exclusive)).unwrap();
    let address = server.listen(&directory.socket(), false).unwrap();
    let mut join = |name: &str| {
        let mut raw = Raw::connect(&address);
        raw.send(&hello(name));
        raw.send(&begin(1));
        (0..3).for_each(|_| server.step(Duration::ZERO).unwrap());
        assert!(matches!(raw.receive(), Some(Message::Welcome { .. })));
        raw
    };
    let (mut brief, mut other) = (join("brief"), join("other"));
    assert!(matches!(other.receive(), Some(Message::Hold { phase: 1, .. })));
    // Nothing is answered to this, so that no answer finds the socket closed.
    brief.send(&Message::Moved {
        phase: 1,
        progress: Progress::default(),
        in_flight: 0,
        busy_ns: 0,
        is_resting: false,
    });
    drop(brief);
    (0..3).for_each(|_| server.step(Duration::ZERO).unwrap());
    assert!(matches!(other.receive(), Some(Message::Grant { .. })));
}
