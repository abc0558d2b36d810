//! The directory in which jobs elect their coordinator is not what it should be.

use crate::live::{Directory, SOON, until, within_a_second};
use crate::turns::{Shape, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, scenario};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("directory::disappears", |place| within_a_second(place, disappears)).only(SYSTEM),
        scenario("directory::turns_read_only", |place| within_a_second(place, turns_read_only)).only(SYSTEM),
        scenario("directory::read_only", |place| cannot_meet(place, "ro")).only(SYSTEM),
        scenario("directory::no_inodes", |place| cannot_meet(place, "nr_inodes=1")).only(SYSTEM),
        scenario("directory::full", full).only(SYSTEM),
        scenario("directory::foreign", foreign).only(SYSTEM),
    ]
}

fn disappears(place: &Place) -> Verdict<Duration> {
    let directory = Directory::new()?;
    let shape = Shape { phases: 10, ..USUAL };
    let one = Turns::new(place, "one", &directory.elect(), shape)?;
    let other = Turns::new(place, "other", &directory.elect(), shape)?;
    let live = [one.start()?, other.start()?];
    live[0].said_first("IN")?;
    live[1].said_first("IN")?;
    std::fs::remove_dir_all(directory.path())?;
    let removed = Instant::now();
    let went_on = live[0].says("IN", removed)?.max(live[1].says("IN", removed)?).duration_since(removed);
    until("there is a coordinator again", SOON, || {
        (directory.status()?["jobs"].as_array()?.len() == 2).then_some(())
    })?;
    let [first, second] = live;
    one.ended_well(&first.end()?)?;
    other.ended_well(&second.end()?)?;
    Ok(went_on)
}

/// A small file system in memory on a directory, until dropped.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn on<'a>(path: &'a Path, options: &str) -> Verdict<Mounted<'a>> {
        let options = format!("mode=700,{options}");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "weir-trial"]).arg(path).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Mounted(path)),
            _ => Err(Stop::Skip("may not mount a file system (needs root)".into())),
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Jobs that coordinate find another file system in the place of their directory, which is read-only.
fn turns_read_only(place: &Place) -> Verdict<Duration> {
    let directory = Directory::new()?;
    let shape = Shape { phases: 10, ..USUAL };
    let job = |name: &str| Turns::new(place, name, &directory.elect(), shape);
    let jobs = [job("one")?, job("other")?];
    let live = [jobs[0].start()?, jobs[1].start()?];
    until("both are known", SOON, || (directory.status()?["jobs"].as_array()?.len() == 2).then_some(()))?;
    let _mounted = Mounted::on(directory.path(), "ro")?;
    let mounted = Instant::now();
    let went_on = live[0].says("IN", mounted)?.max(live[1].says("IN", mounted)?).duration_since(mounted);
    for (job, live) in jobs.iter().zip(live) {
        let profile = job.ended_well(&live.end()?)?;
        ensure(gate(&profile, "opens") > 0, || format!("the profile says {}", profile["coordination"]))?;
    }
    Ok(went_on)
}

/// The job says so in one line and runs by itself.
fn cannot_meet(place: &Place, options: &str) -> Verdict {
    let directory = Directory::new()?;
    let _mounted = Mounted::on(directory.path(), options)?;
    runs_alone(place, &directory)
}

fn runs_alone(place: &Place, directory: &Directory) -> Verdict {
    let job = Turns::new(place, "job", &directory.elect(), Shape { phases: 2, ..USUAL })?;
    let path = directory.path().display().to_string();
    let profile = job.says_one_line(&path)?;
    let at_gate = &profile["coordination"];
    let said =
        gate(&profile, "opens") > 0 && at_gate["note"].as_str().is_some_and(|note| note.contains(&path));
    ensure(said && at_gate["policy"].is_null(), || format!("the profile says {at_gate}"))
}

/// There is room for a lock and a socket, but not for the address that other nodes read.
fn full(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let _mounted = Mounted::on(directory.path(), "size=4k")?;
    std::fs::write(directory.path().join("filler"), [1; 4096])?;
    runs_alone(place, &directory)
}

/// Another user's directory is nobody's to meet in.
fn foreign(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    if std::os::unix::fs::chown(directory.path(), Some(65534), Some(65534)).is_err() {
        return Err(Stop::Skip("may not give a directory to another user (needs root)".into()));
    }
    runs_alone(place, &directory)
}
