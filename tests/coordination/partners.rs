//! Two jobs wait for each other in the middle of their phases, one of which the gate keeps out: every wait ends.

use crate::live::{Directory, Live};
use crate::run::{Job, Ran, library};
use crate::turns::{RANKS, Shape, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, scenario};
use std::ffi::OsString;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("partners::files", by_files).only(SYSTEM),
        scenario("partners::socket", by_socket).only(SYSTEM),
        scenario("partners::communicator", by_communicator).only(SYSTEM),
    ]
}

const SHAPE: Shape = Shape { phases: 3, requests: 4, ..USUAL };

/// A job that keeps its turn until it has met the other, and waits for its own no longer than it is told to.
fn partner(place: &Place, name: &str, directory: &Directory, meeting: [OsString; 2]) -> Verdict<Turns> {
    let mut turns = Turns::new(place, name, &directory.elect(), SHAPE)?;
    for word in meeting {
        turns.job = turns.job.argument(word);
    }
    Ok(turns.variable("WEIR_PHASE_GAP", "600s").variable("WEIR_MAX_WAIT", "300ms"))
}

fn by_files(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let mark = |name: &str| directory.path().join(name).into_os_string();
    let one = partner(place, "one", &directory, [mark("one"), mark("other")])?;
    let other = partner(place, "other", &directory, [mark("other"), mark("one")])?;
    both_end(place, one, other)
}

fn by_socket(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let meeting = || ["socket".into(), directory.path().join("line").into_os_string()];
    let one = partner(place, "one", &directory, meeting())?;
    let other = partner(place, "other", &directory, meeting())?;
    both_end(place, one, other)
}

fn both_end(place: &Place, one: Turns, other: Turns) -> Verdict {
    let live = [one.start()?, other.start()?];
    let [first, second] = live.map(Live::end);
    let profiles = [one.ended_well(&first?)?, other.ended_well(&second?)?];
    let limits: u64 = profiles.iter().map(|profile| gate(profile, "limits")).sum();
    println!("{}: {limits} waits reached the limit", place.name);
    ensure(limits > 0, || format!("no wait reached the limit: {}", profiles[0]["coordination"]))
}

/// The halves of one world are jobs of their own to the coordinator.
fn by_communicator(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let half = |name: &str| Turns::new(place, name, &directory.elect(), SHAPE);
    let (one, other) = (half("one")?, half("other")?);
    let words = |half: &Turns| -> Vec<OsString> {
        let named = ["env".into(), format!("WEIR_JOB_ID={}", half.id).into()];
        named.into_iter().chain(half.words()).chain(["world".into(), "".into()]).collect()
    };
    let between = [":", "-n", &RANKS.to_string()].map(OsString::from).to_vec();
    let job = Job::mpi(&place.name, &place.mpi, RANKS, [words(&one), between, words(&other)].concat())
        .preload([library()])
        .variable("WEIR_COORDINATOR", directory.elect())
        .variable("WEIR_POLICY", "exclusive")
        .variable("WEIR_PHASE_GAP", "600s")
        .variable("WEIR_MAX_WAIT", "300ms");
    let ran: Ran = Live::start(&job, "world")?.end()?;
    one.wrote_everything(&ran, RANKS)?;
    other.wrote_everything(&ran, RANKS)
}
