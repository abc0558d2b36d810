//! What counts as I/O of the job: with `WEIR_GATE`, and by what the program says itself.

use crate::live::{Directory, Live, SOON, in_state, until};
use crate::mpi::{Program, c};
use crate::run::{Job, Ran, library};
use crate::turns::{RANKS, Shape, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, profile, scenario};
use std::path::PathBuf;
use std::time::Duration;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("counts::off", |place| beside(place, |_| "off".into(), false)).only(SYSTEM),
        scenario("counts::elsewhere", |place| beside(place, |_| "mpi:/nonexistent".into(), false))
            .only(SYSTEM),
        scenario("counts::here", |place| beside(place, |here| format!("mpi:{here}"), true)).only(SYSTEM),
        scenario("counts::current", |place| beside(place, |_| "mpi:./".into(), true)).only(SYSTEM),
        scenario("counts::many", many).only(SYSTEM),
        scenario("counts::marked", marked).only(SYSTEM),
        scenario("counts::own_pwrite", |place| held(place, "pwrite")).only(SYSTEM),
        scenario("counts::own_failed", |place| held(place, "fails")).only(SYSTEM),
        scenario("counts::own_fsync", |place| held(place, "fsync")).only(SYSTEM),
        scenario("counts::own_dprintf", |place| held(place, "dprintf")).only(SYSTEM),
        scenario("counts::own_fwrite", |place| held(place, "fwrite")).only(SYSTEM),
        scenario("counts::large_pwrite", |place| held_as(place, "auto", "pwrite")).only(SYSTEM),
        scenario("counts::large_fwrite", |place| held_as(place, "auto", "fwrite")).only(SYSTEM),
        scenario("counts::large_putc", |place| held_as(place, "auto", "putc")).only(SYSTEM),
        scenario("counts::free_log", |place| passes(place, "log")).only(SYSTEM),
        scenario("counts::free_fsync", |place| passes(place, "fsync")).only(SYSTEM),
        scenario("counts::free_pipe", |place| passes(place, "pipe")).only(SYSTEM),
        scenario("counts::free_output", |place| passes(place, "output")).only(SYSTEM),
        scenario("counts::free_handler", |place| passes(place, "handler")).only(SYSTEM),
        scenario("counts::free_child", |place| passes(place, "child")).only(SYSTEM),
    ]
}

/// A job that keeps its turn until it is released.
struct Keeper {
    job: Turns,
    live: Live,
    released: PathBuf,
}

impl Keeper {
    fn start(place: &Place, directory: &Directory) -> Verdict<Keeper> {
        let released = directory.path().join("released");
        let job = Turns::new(place, "keeper", &directory.elect(), Shape { phases: 1, ..USUAL })?;
        let job = job.until(&released);
        let live = job.start()?;
        live.said_first("IN")?;
        Ok(Keeper { job, live, released })
    }

    fn release(self) -> Verdict {
        std::fs::write(&self.released, "")?;
        self.job.ended_well(&self.live.end()?).map(drop)
    }
}

/// Whether a job that starts beside one that keeps its turn waits depends on what of it counts.
fn beside(place: &Place, counts: impl Fn(&str) -> String, waits: bool) -> Verdict {
    let directory = Directory::new()?;
    let keeper = Keeper::start(place, &directory)?;
    let beside = Turns::new(place, "beside", &directory.elect(), Shape { phases: 2, ..USUAL })?;
    let (_, files, _) = beside.job.prepare("beside")?;
    let beside = beside.variable("WEIR_GATE", &counts(&files.display().to_string()));
    let live = beside.start()?;
    if waits {
        let held = || {
            in_state(&directory.status()?, "waiting").iter().any(|(job, _)| *job == beside.id).then_some(())
        };
        until("the job beside it waits", SOON, held)?;
    } else {
        live.said_first("ENDED")?;
    }
    keeper.release()?;
    let profile = beside.ended_well(&live.end()?)?;
    let waited = profile["coordination"]["waits"].as_u64().unwrap_or(0) > 0;
    ensure(waited == waits, || format!("the profile says {}", profile["coordination"]))
}

/// The job has to wait beside one that keeps its turn, for this long at least, and ends well.
fn waits_for(place: &Place, job: Job, name: &str, long: Duration) -> Verdict<Ran> {
    let directory = Directory::new()?;
    let keeper = Keeper::start(place, &directory)?;
    let job = job.variable("WEIR_COORDINATOR", directory.elect()).variable("WEIR_FREE_BYTES", "0");
    let live = Live::start(&job, name)?;
    until("it waits", SOON, || in_state(&directory.status()?, "waiting").pop())?;
    std::thread::sleep(long);
    keeper.release()?;
    let ran = live.end()?;
    ensure(ran.code == 0, || format!("code {}: {}", ran.code, ran.stderr))?;
    Ok(ran)
}

/// Files for which there are no counters of their own wait as others do.
fn many(place: &Place) -> Verdict {
    let program = place.mpi.build(&c("many", "tests/programs/many.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, RANKS, [program]).preload([library()]);
    let ran = waits_for(place, job.variable("WEIR_MAX_FILES", "1"), "many", Duration::ZERO)?;
    let profile = profile::all(&ran.profiles)?.pop().ok_or("no profile")?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])
}

const HELD: Program = c("held", "tests/programs/held.c", &[]);

fn held(place: &Place, how: &str) -> Verdict {
    held_as(place, "all", how)
}

fn own_call(place: &Place, how: &str) -> Verdict<Job> {
    let program = [place.mpi.build(&HELD)?.into_os_string(), how.into()];
    Ok(Job::mpi(&place.name, &place.mpi, 1, program).preload([library()]))
}

/// What needs no turn, or may not be made to wait, ends while another job keeps its turn.
fn passes(place: &Place, how: &str) -> Verdict {
    let directory = Directory::new()?;
    let keeper = Keeper::start(place, &directory)?;
    let job = own_call(place, how)?.variable("WEIR_COORDINATOR", directory.elect());
    let ran = Live::start(&job.variable("WEIR_FREE_BYTES", "0"), how)?.end()?;
    keeper.release()?;
    ensure(ran.code == 0, || format!("code {}: {}", ran.code, ran.stderr))?;
    let profile = profile::only(&ran, 1)?;
    ensure(gate(&profile, "waits") == 0, || format!("the profile says {}", profile["coordination"]))
}

/// The time that a call of the program's own was held back belongs to its phase, and is no part of its I/O.
fn held_as(place: &Place, counts: &str, how: &str) -> Verdict {
    let job = own_call(place, how)?.variable("WEIR_GATE", counts);
    let ran = waits_for(place, job, "held", Duration::from_secs(1))?;
    let profile = profile::only(&ran, 1)?;
    let phases = profile["phases"]["list"].as_array().into_iter().flatten();
    let in_phases: f64 = phases.filter_map(|phase| phase["wait_s"].as_f64()).sum();
    let at_gate = profile["coordination"]["wait_s"].as_f64().unwrap_or(0.0);
    ensure(at_gate > 0.9 && in_phases > 0.9 * at_gate, || {
        format!("{at_gate} s at the gate, {in_phases} s of them in phases: {}", profile["phases"])
    })
}

const MARKS: Program = c("marks", "tests/programs/marks.c", &["-Iinclude"]);

/// A program says when its phase begins and ends: another waits for it though it does no I/O, for two seconds and no longer.
fn marked(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let job = Job::mpi(&place.name, &place.mpi, RANKS, [place.mpi.build(&MARKS)?]).preload([library()]);
    let job = job.variable("WEIR_COORDINATOR", directory.elect()).variable("WEIR_POLICY", "exclusive");
    // Nothing but the program's word ends its phase.
    let job = job.variable("WEIR_PHASE_GAP", "600s").variable("WEIR_BACKFILL", "off");
    let other = Turns::new(place, "other", &directory.elect(), Shape { phases: 1, ..USUAL })?;
    let marking = Live::start(&job, "marking")?;
    let begun = marking.said_first("BEGUN")?;
    let live = other.start()?;
    let went_in = live.said_first("IN")?;
    let profile = other.ended_well(&live.end()?)?;
    let ran = marking.end()?;
    ensure(ran.code == 0, || format!("code {}: {}", ran.code, ran.stderr))?;
    profile::only(&ran, RANKS)?;
    // Its phase lasts for four seconds, and then it goes on for ten with its file open.
    let after = went_in.saturating_duration_since(begun).as_secs_f64();
    println!("{}: the other job went in after {after:.2} s", place.name);
    ensure((1.8..10.0).contains(&after), || format!("went in after {after} s"))?;
    let held = gate(&profile, "holds") > 0 && gate(&profile, "limits") == 0 && gate(&profile, "alone") == 0;
    ensure(held, || format!("the profile says {}", profile["coordination"]))
}
