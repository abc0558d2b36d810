//! `weir status` while jobs take turns: what it says is what is going on.

use crate::live::{Directory, SOON, Service, until};
use crate::run::weir;
use crate::turns::{RANKS, Shape, Turns, USUAL};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, scenario};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

pub(super) fn list() -> Vec<Scenario> {
    vec![scenario("status::watch", watch).only(SYSTEM)]
}

/// Two jobs of two ranks each at a service, of which one has its turn and one waits, and which are watched until they end.
fn watch(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let address = format!("unix:{}", directory.path().join("sock").display());
    let _service = Service::start(&["--listen", &address, "--policy", "exclusive"])?;
    let shape = Shape { phases: 10, pause_ms: 20, ..USUAL };
    let (one, other) =
        (Turns::new(place, "one", &address, shape)?, Turns::new(place, "other", &address, shape)?);
    let live = [one.start()?, other.start()?];
    let mut watching = Command::new(weir())
        .args(["status", "--json", "--watch", &address])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(watching.stdout.take().ok_or("no stdout")?).lines().map_while(Result::ok);
    let seen = until("one has its turn, one waits, and both have had one before", SOON, || {
        let status: Value = serde_json::from_str(&lines.next()?).ok()?;
        is_telling(&status).then_some(status)
    });
    let text = Command::new(weir()).args(["status", &address]).output()?;
    watching.kill()?;
    watching.wait()?;
    let seen = seen?;
    for (job, live) in [&one, &other].into_iter().zip(live) {
        let text = String::from_utf8_lossy(&text.stdout);
        ensure(text.contains(&job.id), || format!("{} is not in\n{text}", job.id))?;
        job.ended_well(&live.end()?)?;
        is_told(&seen, job)?;
    }
    // However many ranks a job has, it is one connection.
    ensure(seen["connections"] == 2, || format!("{seen}"))?;
    let known =
        seen["policy"] == "exclusive" && seen["coordinator"].as_str().is_some_and(|who| who.contains("pid"));
    let at_work = ["bandwidth_bytes_per_s", "decisions_per_s", "decisions"];
    let at_work = at_work.iter().all(|what| seen[*what].as_f64().is_some_and(|rate| rate > 0.0));
    ensure(known && at_work && seen["listens_on"] == serde_json::json!([address]), || format!("{seen}"))
}

fn is_telling(status: &Value) -> bool {
    let jobs = || status["jobs"].as_array().into_iter().flatten();
    let is_there = |state: &str| jobs().any(|job| job["state"] == state);
    is_there("in I/O") && is_there("waiting") && jobs().all(|job| job["phases"].as_u64() > Some(1))
}

fn is_told(status: &Value, job: &Turns) -> Verdict {
    let told = status["jobs"].as_array().into_iter().flatten().find(|told| told["job"] == job.id.as_str());
    let told = told.ok_or_else(|| format!("{} is not in {status}", job.id))?;
    let number = |what: &str| told[what].as_f64().unwrap_or(-1.0);
    let node = &told["nodes"][0];
    let who = told["application"] == "turns" && node["ranks"] == RANKS as u64 && node["host"].is_string();
    // In turns with another: both were held and had ranks that waited for that.
    let did = ["moved_bytes", "held_s", "waited_s", "io_s", "characteristic_time_s"];
    let did =
        did.iter().all(|what| number(what) > 0.0) && told["set"].is_number() && number("state_s") >= 0.0;
    let share = if told["state"] == "in I/O" { 1.0 } else { 0.0 };
    ensure(who && did && number("share") == share, || format!("{}: {told}", job.id))
}
