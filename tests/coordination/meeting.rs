//! Where jobs meet unless told otherwise, and what becomes of them when there is no room or somebody else was there
//! first. In a mount namespace, so that they meet no other job of this machine.

use crate::live::Service;
use crate::peace::take_turns;
use crate::run::weir;
use crate::turns::{RANKS, Shape, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, scenario};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("meeting::by_default", by_default).only(SYSTEM),
        scenario("meeting::taken", taken).only(SYSTEM),
        scenario("meeting::service_comes_late", service_comes_late).only(SYSTEM),
    ]
}

/// Where the election's directory is, for the user of this shell.
const PLACE: &str =
    "meet=/tmp/weir-$(id -u); mkdir -p -m 700 $meet; mount -t tmpfs -o mode=700 weir-trial $meet";
const TAKE: &str = "chown 65534 $meet";

/// A process whose mounts are its own.
struct Seclusion(Child);

impl Seclusion {
    fn new(preparations: &[&str]) -> Verdict<Seclusion> {
        let script =
            [&["set -e", PLACE], preparations, &["echo ready", "exec sleep 600"]].concat().join("; ");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        let seclusion = Seclusion(child);
        match line.trim() {
            "ready" => Ok(seclusion),
            _ => Err(Stop::Skip("may not have mounts of its own (needs root)".into())),
        }
    }

    /// A job in there that is told nothing but to elect.
    fn job(&self, place: &Place, name: &str, shape: Shape) -> Verdict<Turns> {
        // To enter loses the working directory.
        let enter = format!(
            "here=$(pwd); exec nsenter --mount=/proc/{}/ns/mnt sh -c 'cd \"$0\" && exec \"$@\"' \"$here\" \"$@\"",
            self.0.id()
        );
        let words = ["sh".into(), "-c".into(), enter, "sh".into()].into_iter();
        let launcher: Vec<OsString> = words.chain(place.mpi.launcher(RANKS)).map(Into::into).collect();
        Turns::new(place, name, "elect", shape)?.launched_by(place, launcher, "elect")
    }

    fn take_turns(&self, place: &Place) -> Verdict {
        take_turns(self.job(place, "one", USUAL)?, self.job(place, "other", USUAL)?)
    }

    /// A job says in one line what is wrong, and with which path, and runs by itself.
    fn runs_alone(&self, place: &Place, path: &str) -> Verdict {
        let job = self.job(place, "job", Shape { phases: 2, ..USUAL })?;
        let profile = job.says_one_line(path)?;
        ensure(gate(&profile, "opens") > 0, || format!("the profile says {}", profile["coordination"]))
    }
}

impl Drop for Seclusion {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn by_default(place: &Place) -> Verdict {
    Seclusion::new(&[])?.take_turns(place)
}

/// Another user has the directory in which jobs meet.
fn taken(place: &Place) -> Verdict {
    Seclusion::new(&[TAKE])?.runs_alone(place, "/tmp/weir-")
}

/// A service that was killed comes back while a job has its place: it waits, and gets it when that job ends. The other
/// job goes on with the service.
fn service_comes_late(place: &Place) -> Verdict {
    let seclusion = Seclusion::new(&[])?;
    let first = seclusion.job(place, "first", Shape { phases: 6, ..USUAL })?;
    let second = seclusion.job(place, "second", Shape { phases: 12, ..USUAL })?;
    let live = first.start()?;
    live.said_first("IN")?;
    let mounts = format!("--mount=/proc/{}/ns/mnt", seclusion.0.id());
    let service = Service::launch(Command::new("nsenter").arg(mounts).arg(weir()).arg("coordinator"))?;
    service.says("weir: job first")?;
    let mut other = second.start()?;
    first.ended_well(&live.end()?)?;
    service.says("coordinating with policy")?;
    let when = if other.has_ended() { "after" } else { "before" };
    println!("{}: the service has its place {when} the second job ends", place.name);
    second.ended_well(&other.end()?)?;
    service.end(libc::SIGTERM)
}
