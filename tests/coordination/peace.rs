//! Nothing breaks: jobs that know nothing of each other take turns.

use crate::live::{Directory, SOON, Service, status, until};
use crate::turns::{RANKS, Shape, Turns, USUAL, apart, gate};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, scenario};
use serde_json::Value;
use weir_coord::address::Address;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("turns::elected", elected).only(SYSTEM),
        scenario("turns::service", service).only(SYSTEM),
        scenario("turns::alone", alone).only(SYSTEM),
        scenario("turns::backfilled", backfilled).only(SYSTEM),
        scenario("turns::handover", handover).only(SYSTEM),
    ]
}

fn elected(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let job = |name| Turns::new(place, name, &directory.elect(), USUAL);
    take_turns(job("one")?, job("other")?)?;
    let left: Vec<_> =
        std::fs::read_dir(directory.path())?.flatten().map(|entry| entry.file_name()).collect();
    ensure(left == ["coordinator.lock"], || format!("left behind: {left:?}"))
}

fn service(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let address = format!("unix:{}", directory.path().join("sock").display());
    let _service = Service::start(&["--listen", &address, "--policy", "exclusive"])?;
    let job = |name| Turns::new(place, name, &address, USUAL);
    take_turns(job("one")?, job("other")?)
}

/// A job that is alone asks for its first phase at most: the others are granted before they begin, and heard of all the same.
fn alone(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let path = directory.path().join("sock");
    let text = format!("unix:{}", path.display());
    let _service = Service::start(&["--listen", &text, "--policy", "exclusive"])?;
    let shape = Shape { phases: 10, compute_ms: 100, ..USUAL };
    let job = Turns::new(place, "job", &text, shape)?;
    let live = job.start()?;
    let address = Address::Unix(path);
    let phases = |status: Value| status["jobs"][0]["phases"].as_u64();
    until("all phases but the last are known", SOON, || {
        (status(&address, None).and_then(phases)? >= shape.phases as u64 - 1).then_some(())
    })?;
    let profile = job.ended_well(&live.end()?)?;
    let (waits, holds) = (gate(&profile, "waits"), gate(&profile, "holds"));
    ensure(waits <= RANKS as u64 && holds == 0, || format!("the profile says {}", profile["coordination"]))
}

pub(crate) fn take_turns(one: Turns, other: Turns) -> Verdict {
    let (first, second) = (one.start()?, other.start()?);
    let (first, second) = (first.end()?, second.end()?);
    let profiles = [one.ended_well(&first)?, other.ended_well(&second)?];
    let told = apart(&first, &second)?;
    ensure(told >= USUAL.phases, || format!("only {told} turns could be told apart"))?;
    for profile in profiles {
        let at_gate = &profile["coordination"];
        let waited = gate(&profile, "waits") > 0 && gate(&profile, "holds") > 0 && at_gate["wait_s"] != 0.0;
        let never_alone = ["limits", "alone", "opens"].iter().all(|what| gate(&profile, what) == 0);
        let said = waited && never_alone && at_gate["policy"] == "exclusive" && at_gate["note"].is_null();
        ensure(said, || format!("the profile says {at_gate}"))?;
    }
    Ok(())
}

/// A job that has its turn and does nothing with it keeps nobody out, for more than a moment.
fn backfilled(place: &Place) -> Verdict {
    let (directory, marks) = (Directory::new()?, Directory::new()?);
    let released = marks.path().join("released");
    let on = |job: Turns| job.variable("WEIR_BACKFILL", "on");
    let keeper =
        on(Turns::new(place, "keeper", &directory.elect(), Shape { phases: 1, ..USUAL })?.until(&released));
    let kept = keeper.start()?;
    kept.said_first("IN")?;
    let other = on(Turns::new(place, "other", &directory.elect(), Shape { phases: 3, ..USUAL })?);
    let ran = other.start()?.end()?;
    std::fs::write(released, "")?;
    let profile = other.ended_well(&ran)?;
    keeper.ended_well(&kept.end()?)?;
    let at_gate = &profile["coordination"];
    let is_let_in = gate(&profile, "backfills") > 0 && gate(&profile, "waits") > 0;
    let in_order = ["limits", "alone", "opens"].iter().all(|what| gate(&profile, what) == 0);
    ensure(is_let_in && in_order, || format!("the profile says {at_gate}"))
}

/// The coordinator's job ends while the other has much left to do.
fn handover(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    // The first stays in its first phase until the second is there.
    let marks = Directory::new()?;
    let released = marks.path().join("released");
    let one = Turns::new(place, "one", &directory.elect(), USUAL)?.until(&released);
    let other = Turns::new(place, "other", &directory.elect(), Shape { phases: 10, ..USUAL })?;
    let first = one.start()?;
    first.said_first("IN")?;
    let second = other.start()?;
    let known = |count: usize| {
        move |status: Value| (status["jobs"].as_array()?.len() == count).then(|| status["pid"].clone())
    };
    let first_pid = until("both are known", SOON, || directory.status().and_then(known(2)))?;
    std::fs::write(released, "")?;
    let first = first.end()?;
    let next_pid = until("the other coordinates", SOON, || directory.status().and_then(known(1)))?;
    ensure(next_pid != first_pid, || format!("{next_pid} still coordinates"))?;
    let second = second.end()?;
    one.ended_well(&first)?;
    let profile = other.ended_well(&second)?;
    apart(&first, &second)?;
    let said = gate(&profile, "losses") > 0 && gate(&profile, "opens") == 0;
    ensure(said, || format!("the profile says {}", profile["coordination"]))
}
