//! What listens where the coordinator should be is none: the job says so in one line and runs by itself.

use crate::live::Directory;
use crate::turns::{Shape, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, scenario};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use weir_coord::wire::{Message, VERSION};

/// What it does to whoever calls.
type Act = fn(&mut UnixStream);

/// Its name, what it does, and what the job's line names.
const IMPOSTORS: &[(&str, Act, &str)] = &[
    ("silent", |_| {}, "does not answer"),
    ("deaf", |stream| drop(stream.shutdown(std::net::Shutdown::Both)), "the coordinator at"),
    ("noisy", |stream| drop(stream.write_all(&[0xa5; 4096])), "frame"),
    ("endless", |stream| drop(stream.write_all(&u32::MAX.to_le_bytes())), "frame"),
    ("half", |stream| drop(stream.write_all(&welcome()[..9])), "does not answer"),
    ("older", |stream| drop(stream.write_all(&of_version(VERSION - 1))), "version"),
    ("newer", |stream| drop(stream.write_all(&of_version(VERSION + 1))), "version"),
    // Speaks as it should, once, and then no more.
    ("forgetful", |stream| drop(stream.write_all(&welcome())), "silent"),
];

pub(super) fn list() -> Vec<Scenario> {
    let trial = |&(name, act, named): &(&str, Act, &'static str)| {
        scenario(format!("impostors::{name}"), move |place| runs_by_itself(place, act, named)).only(SYSTEM)
    };
    let mut trials: Vec<Scenario> = IMPOSTORS.iter().map(trial).collect();
    trials.push(scenario("impostors::without_key", without_key).only(SYSTEM));
    trials
}

fn welcome() -> Vec<u8> {
    let policy = "exclusive".into();
    let mut bytes = Vec::new();
    Message::Welcome { lease_ms: 800, beat_ms: 200, report_ms: 2, policy, orders: false, epoch: 0 }
        .encode(&mut bytes);
    bytes
}

fn of_version(version: u8) -> Vec<u8> {
    let mut bytes = welcome();
    bytes[4] = version;
    bytes
}

fn runs_by_itself(place: &Place, act: Act, named: &str) -> Verdict {
    let directory = Directory::new()?;
    let path = directory.path().join("sock");
    let listener = UnixListener::bind(&path)?;
    let callers = Arc::new(AtomicUsize::new(0));
    let count = callers.clone();
    // It ends with the trial's process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Relaxed);
            act(&mut stream);
            // Keeps the connection until the job has had enough.
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    let text = format!("unix:{}", path.display());
    let job = Turns::new(place, "job", &text, Shape { phases: 4, ..USUAL })?;
    is_not_held(place, &job, &callers, named)
}

/// On the port of a service that is down somebody orders the job to wait, for ever, and proves nothing.
fn without_key(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let key = directory.key("key")?.display().to_string();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let text = format!("tcp://{}", listener.local_addr()?);
    let callers = Arc::new(AtomicUsize::new(0));
    let count = callers.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Relaxed);
            let mut bytes = Vec::new();
            (1..=10).for_each(|phase| Message::Hold { phase, expected_ns: u64::MAX }.encode(&mut bytes));
            let _ = stream.write_all(&bytes);
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    let job = Turns::new(place, "job", &text, Shape { phases: 4, ..USUAL })?.variable("WEIR_KEY", &key);
    is_not_held(place, &job, &callers, "does not answer")
}

fn is_not_held(place: &Place, job: &Turns, callers: &AtomicUsize, named: &str) -> Verdict {
    let profile = job.says_one_line(named)?;
    ensure(callers.load(Relaxed) > 0, || "nobody called".into())?;
    let at_gate = &profile["coordination"];
    ensure(gate(&profile, "opens") > 0 && gate(&profile, "limits") == 0, || {
        format!("the profile says {at_gate}")
    })?;
    let waited_s = at_gate["wait_s"].as_f64().unwrap_or(f64::MAX);
    println!("{}: waited {waited_s:.2} s in all", place.name);
    // Both ranks, in each of the four phases.
    ensure(waited_s < 2.0 * 4.0 * 1.25, || format!("waited {waited_s} s"))
}
