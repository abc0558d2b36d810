//! What a coordinator knows of a job: its own times, and those of its earlier runs.

use crate::live::{Directory, Live, SOON, Service, until};
use crate::turns::{Shape, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, scenario};
use serde_json::Value;
use std::time::Duration;
use weir_coord::address::Address;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("learnt::history", history).only(SYSTEM),
        scenario("learnt::own_time", own_time).only(SYSTEM),
        scenario("learnt::by_the_next", by_the_next).only(SYSTEM),
    ]
}

fn service(directory: &Directory) -> Verdict<(Service, Address, String)> {
    let path = directory.path().join("sock");
    let text = format!("unix:{}", path.display());
    Ok((Service::start(&["--listen", &text, "--policy", "exclusive"])?, Address::Unix(path), text))
}

/// What the service says of the job.
fn told(address: &Address, job: &Turns) -> Option<Value> {
    let status = crate::live::status(address, None)?;
    status["jobs"].as_array()?.iter().find(|told| told["job"] == job.id.as_str()).cloned()
}

/// The first run of an application is unknown to the coordinator in its first phase, the second is not.
fn history(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let (_service, address, text) = service(&directory)?;
    let state = directory.path().display().to_string();
    let run = |name: &str| -> Verdict<f64> {
        let job = Turns::new(place, name, &text, Shape { compute_ms: 300, ..USUAL })?;
        let job = job.variable("XDG_STATE_HOME", &state).variable("WEIR_APPLICATION", "the same");
        let live = job.start()?;
        let known_s = until("the job is in its first phase", SOON, || {
            let told = told(&address, &job)?;
            (told["state"] == "in I/O" && told["phases"] == 0)
                .then(|| told["characteristic_time_s"].as_f64())?
        });
        job.ended_well(&live.end()?)?;
        known_s
    };
    let (first_s, second_s) = (run("first")?, run("second")?);
    println!(
        "{}: characteristic time {first_s:.3} s in the first run, {second_s:.3} s in the second",
        place.name
    );
    // Nothing is known but for how long it has been there.
    ensure(first_s < 0.1, || format!("of the first run {first_s} s is known"))?;
    // It computes for 0.3 s between phases of some 0.1 s.
    ensure((0.3..20.0).contains(&second_s), || format!("of the second run {second_s} s is known"))
}

/// A service that comes back hears from the job what the one before had learnt of it.
fn by_the_next(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let (service, address, text) = service(&directory)?;
    let shape = Shape { phases: 12, pause_ms: 15, compute_ms: 300, ..USUAL };
    let job = Turns::new(place, "job", &text, shape)?;
    let live = job.start()?;
    until("the job has had some phases", SOON, || {
        told(&address, &job).filter(|told| told["phases"].as_u64() >= Some(3))
    })?;
    service.end(libc::SIGKILL)?;
    let (_service, address, _) = self::service(&directory)?;
    let known_s = until("the new service knows the job", SOON, || {
        told(&address, &job).filter(|told| told["phases"] == 0)?["characteristic_time_s"].as_f64()
    })?;
    job.ended_well(&live.end()?)?;
    println!("{}: characteristic time {known_s:.3} s when it joined again", place.name);
    // It computes for 0.3 s between phases that last as long: the service itself cannot have seen more than the former.
    ensure(known_s > 0.3, || format!("only {known_s} s is known"))
}

/// What a job waits for others is no part of its characteristic time: it is shorter than the time from phase to phase.
fn own_time(place: &Place) -> Verdict {
    const OTHERS: Duration = Duration::from_millis(1500);
    let directory = Directory::new()?;
    let (_service, address, text) = service(&directory)?;
    // Has its turn for long, and soon comes back.
    let requests = OTHERS.as_millis() as usize / USUAL.pause_ms;
    let other = Turns::new(place, "other", &text, Shape { phases: 1000, requests, compute_ms: 50, ..USUAL })?;
    let job = Turns::new(place, "job", &text, Shape { compute_ms: 100, ..USUAL })?;
    let competitor = other.start()?;
    competitor.said_first("IN")?;
    let live: Live = job.start()?;
    let last = until("the job has had most of its phases", SOON, || {
        told(&address, &job).filter(|told| told["phases"].as_u64() >= Some(USUAL.phases as u64 - 2))
    })?;
    let profile = job.ended_well(&live.end()?)?;
    drop(competitor);
    let (own_s, waited_s) = (&last["characteristic_time_s"], &last["waited_s"]);
    println!(
        "{}: characteristic time {own_s} s, waited {waited_s} s, held {} times",
        place.name,
        gate(&profile, "holds")
    );
    let (own_s, waited_s) = (own_s.as_f64().unwrap_or(0.0), waited_s.as_f64().unwrap_or(0.0));
    let per_phase_s = waited_s / (USUAL.phases as f64 - 2.0);
    ensure(per_phase_s > OTHERS.as_secs_f64() / 2.0, || format!("it waited for {per_phase_s} s per phase"))?;
    ensure(own_s > 0.05 && own_s < per_phase_s, || format!("waiting is part of it: {own_s} s"))
}
