//! Nobody is kept by a job that does no I/O; elections at the same instant have one winner; without a helper process jobs run alone.

use crate::live::{Directory, Live, SOON, signal, until};
use crate::mpi::{Program, c};
use crate::run::{Job, Ran, library};
use crate::turns::{RANKS, Shape, Turns, USUAL, apart, gate};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, profile, scenario};
use serde_json::Value;
use std::time::Duration;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("limits::elections", elections).only(SYSTEM),
        scenario("limits::overlap", overlap).only(SYSTEM),
        scenario("limits::lost", lost).only(SYSTEM),
        scenario("limits::left_waiting", left_waiting).only(SYSTEM),
        scenario("limits::successor", successor).only(SYSTEM),
        scenario("limits::without_helper", without_helper).only(SYSTEM),
    ]
}

/// As many pairs of real jobs with each MPI, each of one process, that start at once in a fresh directory.
const PAIRS: usize = 50;

fn elections(place: &Place) -> Verdict {
    let shape = Shape { phases: 1, requests: 3, bytes: 512, pause_ms: 1, compute_ms: 0 };
    let mut told = 0;
    for round in 0..PAIRS {
        let directory = Directory::new()?;
        let make = |name: &str| -> Verdict<Turns> {
            Turns::new(place, name, &directory.elect(), shape)?.launched_by(place, vec![], &directory.elect())
        };
        let (one, other) = (make("one")?, make("other")?);
        let live = [one.start()?, other.start()?];
        let [first, second] = live.map(Live::end);
        let (first, second) = (first?, second?);
        one.ended_well_with(&first, 1)?;
        other.ended_well_with(&second, 1)?;
        let remarks = [first.remarks(), second.remarks()].concat();
        ensure(remarks.is_empty(), || format!("round {round}: {remarks:?}"))?;
        told += apart(&first, &second)?;
    }
    ensure(told >= PAIRS, || format!("only {told} turns could be told apart"))
}

const OVERLAP: Program = c("overlap", "tests/programs/overlap.c", &[]);
const LOST: Program = c("lost", "tests/programs/lost.c", &[]);

/// A job that computes while its block is written does not keep the others out meanwhile.
fn overlap(place: &Place) -> Verdict {
    let ran = in_while_it_computes(place, &OVERLAP, |job| job)?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile::only(&ran, RANKS)?])
}

/// Nor does one with a request that never comes back, for longer than it would have had to wait itself.
fn lost(place: &Place) -> Verdict {
    in_while_it_computes(place, &LOST, impatient).map(drop)
}

fn impatient(job: Job) -> Job {
    job.variable("WEIR_GATE", "all").variable("WEIR_MAX_WAIT", "1s").variable("WEIR_FREE_BYTES", "0")
}

/// Nor one with a request that a signal handler took out of the gate, where it waited for its turn.
fn left_waiting(place: &Place) -> Verdict {
    let (directory, marks) = (Directory::new()?, Directory::new()?);
    let released = marks.path().join("released");
    let other =
        Turns::new(place, "other", &directory.elect(), Shape { phases: 2, ..USUAL })?.until(&released);
    let live = other.start()?;
    live.said_first("IN")?;
    let computing = Live::start(&impatient(computes(place, &LOST, &directory)?), LOST.name)?;
    let since = computing.said_first("COMPUTING")?;
    std::fs::write(released, "")?;
    let went_in = live.says("IN 0 1", since)?.duration_since(since);
    ensure(went_in < COMPUTES / 2, || format!("the other job went in again after {went_in:?}"))?;
    other.ended_well(&live.end()?)?;
    let ran = computing.end()?;
    ensure(ran.code == 0, || format!("code {}: {}", ran.code, ran.stderr))?;
    // Both ranks were seen to end, so both went on as what they are: the program.
    profile::only(&ran, RANKS).map(drop)
}

const COMPUTES: Duration = Duration::from_secs(10);

/// A job that computes for a while after its I/O.
fn computes(place: &Place, program: &Program, directory: &Directory) -> Verdict<Job> {
    let words = [place.mpi.build(program)?.into_os_string(), COMPUTES.as_secs().to_string().into()];
    let job = Job::mpi(&place.name, &place.mpi, RANKS, words).preload([library()]);
    Ok(job.variable("WEIR_COORDINATOR", directory.elect()).variable("WEIR_POLICY", "exclusive"))
}

/// Another job goes in while the program computes.
fn in_while_it_computes(place: &Place, program: &Program, set: impl FnOnce(Job) -> Job) -> Verdict<Ran> {
    let directory = Directory::new()?;
    let job = computes(place, program, &directory)?;
    let other = Turns::new(place, "other", &directory.elect(), Shape { phases: 2, ..USUAL })?;
    let computing = Live::start(&set(job), program.name)?;
    let since = computing.said_first("COMPUTING")?;
    let live = other.start()?;
    let went_in = live.says("IN", since)?.duration_since(since);
    ensure(went_in < COMPUTES / 2, || format!("the other job went in after {went_in:?}"))?;
    other.ended_well(&live.end()?)?;
    let ran = computing.end()?;
    ensure(ran.code == 0, || format!("code {}: {}", ran.code, ran.stderr))?;
    Ok(ran)
}

/// Two processes of a job. The one that leads is killed while there is credit, so that the other has nothing to wait for.
fn successor(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let id = format!("pair-{}-{}", place.name, std::process::id());
    let make = |name: &str| -> Verdict<Turns> {
        let job = Turns::new(place, name, &directory.elect(), Shape { phases: 10, ..USUAL })?;
        Ok(job.launched_by(place, vec![], &directory.elect())?.variable("WEIR_JOB_ID", &id))
    };
    let (one, other) = (make("one")?, make("other")?);
    let leading = one.start()?;
    leading.said_first("IN")?;
    let live = other.start()?;
    live.said_first("IN")?;
    let leader = |status: Value| status["jobs"][0]["nodes"][0]["pid"].as_i64();
    let (first, second) = (leading.pids(1)?[0], live.pids(1)?[0]);
    until("the first leads", SOON, || (leader(directory.status()?)? == i64::from(first)).then_some(()))?;
    signal(first, libc::SIGKILL);
    until("the other leads", SOON, || (leader(directory.status()?)? == i64::from(second)).then_some(()))?;
    one.left_nothing_wrong(&leading.end()?)?;
    other.ended_well_with(&live.end()?, 1)?;
    Ok(())
}

/// What ranks share lies in no file system, so that nothing is left there, and no file that somebody empties ends them. Without the
/// helper process that keeps it the job runs by itself, and says so.
fn without_helper(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    // Longer than a rank takes to ask a second time.
    let shape = Shape { phases: 8, compute_ms: 200, ..USUAL };
    let job = Turns::new(place, "job", &directory.elect(), shape)?;
    let job = job.variable("WEIR_HELPER", "/nonexistent/weir");
    let ran = job.start()?.end()?;
    job.wrote_everything(&ran, RANKS)?;
    let remarks = ran.remarks();
    let is_said = remarks.len() == 1 && remarks[0].contains("helper process");
    ensure(is_said, || format!("Weir said {remarks:?}"))?;
    let profile = profile::all(&ran.profiles)?.pop().ok_or("no profile")?;
    ensure(gate(&profile, "opens") > 0, || format!("the profile says {}", profile["coordination"]))
}
