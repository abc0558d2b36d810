//! Whatever dies or stops: the other job goes on, and every byte is right.

use crate::live::{Directory, Live, SOON, in_state, is_alive, signal, until, within_a_second};
use crate::turns::{RANKS, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, scenario};
use std::time::{Duration, Instant};

/// Whose process is hit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    /// The coordinator's, while its own job is in I/O.
    Coordinator,
    /// The coordinator's, while the other job is in I/O and its own waits.
    Onlooker,
    /// The leader of the other job, while that is in I/O.
    Holder,
    /// The leader of the other job, while that waits.
    Waiter,
    /// Of the coordinator's job, a rank that neither coordinates nor leads.
    Rank,
}

/// A signal, and how long the other job takes to go on.
type Attempt = fn(&Place, Victim) -> Verdict<Duration>;

pub(super) fn list() -> Vec<Scenario> {
    let attempts: [(&str, Attempt); 3] = [
        ("sigkill", |place, victim| kill(place, victim, libc::SIGKILL)),
        ("sigterm", |place, victim| kill(place, victim, libc::SIGTERM)),
        ("sigstop", stop),
    ];
    let mut list = Vec::new();
    for victim in [Victim::Coordinator, Victim::Onlooker, Victim::Holder, Victim::Waiter, Victim::Rank] {
        for (signal, attempt) in attempts {
            let name = format!("{signal}::{victim:?}").to_lowercase();
            let trial = move |place: &Place| within_a_second(place, |place| attempt(place, victim));
            list.push(scenario(name, trial).only(SYSTEM));
        }
    }
    list
}

/// Two jobs, and a process of theirs in the state that is asked for.
struct Scene {
    jobs: [Turns; 2],
    live: Vec<Live>,
    /// Whose process it is, and whether that job coordinates.
    hit: usize,
    coordinates: bool,
    pid: i32,
    _directory: Directory,
}

fn scene(place: &Place, victim: Victim) -> Verdict<Scene> {
    let directory = Directory::new()?;
    // Nobody keeps its turn for longer than this without using it.
    let make = |name: &str| -> Verdict<Turns> {
        Ok(Turns::new(place, name, &directory.elect(), USUAL)?.variable("WEIR_PHASE_GAP", "500ms"))
    };
    let jobs = [make("one")?, make("other")?];
    let live = vec![jobs[0].start()?, jobs[1].start()?];
    let ranks = [live[0].pids(RANKS)?, live[1].pids(RANKS)?];
    let coordinates = matches!(victim, Victim::Coordinator | Victim::Onlooker | Victim::Rank);
    let waits = matches!(victim, Victim::Onlooker | Victim::Waiter);
    let (state, other_state) = if waits { ("waiting", "in I/O") } else { ("in I/O", "waiting") };
    let look = || {
        let status = directory.status()?;
        let coordinator = status["pid"].as_i64()? as i32;
        let hit = ranks.iter().position(|pids| pids.contains(&coordinator) == coordinates)?;
        let (_, leader) = in_state(&status, state).into_iter().find(|(job, _)| *job == jobs[hit].id)?;
        in_state(&status, other_state).into_iter().find(|(job, _)| *job == jobs[1 - hit].id)?;
        let beside = ranks[hit].iter().copied().find(|pid| *pid != leader);
        Some((hit, if victim == Victim::Rank { beside? } else { leader }))
    };
    let (hit, pid) = until(&format!("one job is {state}, the other {other_state}"), SOON, look)?;
    Ok(Scene { jobs, live, hit, coordinates, pid, _directory: directory })
}

fn kill(place: &Place, victim: Victim, number: i32) -> Verdict<Duration> {
    let mut scene = scene(place, victim)?;
    signal(scene.pid, number);
    let killed = Instant::now();
    let other = 1 - scene.hit;
    let went_on = scene.live[other].says("IN", killed)?.duration_since(killed);
    let second = scene.live.remove(1).end()?;
    let first = scene.live.remove(0).end()?;
    let ran = [first, second];
    scene.jobs[scene.hit].left_nothing_wrong(&ran[scene.hit])?;
    let profile = scene.jobs[other].ended_well(&ran[other])?;
    // The coordinator's end is news for the other job, that of others is not.
    let lost = gate(&profile, "losses") > 0;
    ensure(lost == scene.coordinates, || format!("the profile says {}", profile["coordination"]))?;
    ensure(!is_alive(scene.pid), || "what was killed lives on".into())?;
    Ok(went_on)
}

/// At least: longer than anybody waits for somebody who says nothing.
const STOPPED: Duration = Duration::from_millis(1500);

fn stop(place: &Place, victim: Victim) -> Verdict<Duration> {
    let mut scene = scene(place, victim)?;
    signal(scene.pid, libc::SIGSTOP);
    let stopped = Instant::now();
    let other = 1 - scene.hit;
    let went_on = scene.live[other].says("IN", stopped);
    std::thread::sleep(STOPPED.saturating_sub(stopped.elapsed()));
    signal(scene.pid, libc::SIGCONT);
    let went_on = went_on?.duration_since(stopped);
    let second = scene.live.remove(1).end()?;
    let first = scene.live.remove(0).end()?;
    let profiles = [scene.jobs[0].ended_well(&first)?, scene.jobs[1].ended_well(&second)?];
    let at_gate = &profiles[other]["coordination"];
    // A coordinator that stopped was missed; that another process stopped concerns its own job.
    let missed = gate(&profiles[other], "opens") > 0;
    let coordinated = matches!(victim, Victim::Coordinator | Victim::Onlooker);
    ensure(missed == coordinated, || format!("the profile says {at_gate}"))?;
    Ok(went_on)
}
