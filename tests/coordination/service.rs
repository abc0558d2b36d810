//! The coordinator is a service that goes away, stops, or cannot be reached.

use crate::live::{Directory, Live, ONE_SECOND, SOON, Service, in_state, status, until};
use crate::nodes::Nodes;
use crate::turns::{Shape, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, scenario};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weir_coord::address::Address;
use weir_coord::auth::Key;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("service::sigkill", |place| restarted(place, libc::SIGKILL)).only(SYSTEM),
        scenario("service::sigterm", |place| restarted(place, libc::SIGTERM)).only(SYSTEM),
        scenario("service::sigstop", stopped).only(SYSTEM),
        scenario("service::sighup", reloaded).only(SYSTEM),
        scenario("service::network", network).only(SYSTEM),
    ]
}

const LONG: Shape = Shape { phases: 10, ..USUAL };

/// Where a service of the directory listens, and how jobs are told.
fn socket(directory: &Directory) -> (Address, String) {
    let path = directory.path().join("sock");
    let text = format!("unix:{}", path.display());
    (Address::Unix(path), text)
}

fn both_are_known(status: Option<Value>) -> Option<()> {
    (status?["jobs"].as_array()?.len() == 2).then_some(())
}

/// When both have said that they were let in, the later of the two.
fn both_go_on(live: &[Live; 2], since: Instant) -> Verdict<Duration> {
    let one = live[0].says("IN", since)?;
    let other = live[1].says("IN", since)?;
    Ok(one.max(other).duration_since(since))
}

fn restarted(place: &Place, number: i32) -> Verdict {
    let directory = Directory::new()?;
    let (address, text) = socket(&directory);
    let start = || Service::start(&["--listen", &text, "--policy", "exclusive"]);
    let service = start()?;
    let one = Turns::new(place, "one", &text, LONG)?;
    let other = Turns::new(place, "other", &text, LONG)?;
    let live = [one.start()?, other.start()?];
    until("one is in I/O, one waits", SOON, || one_waits(status(&address, None)?))?;
    service.end(number)?;
    let went_on = both_go_on(&live, Instant::now())?;
    println!("{}: both jobs went on after {:.0} ms", place.name, went_on.as_secs_f64() * 1e3);
    ensure(went_on < ONE_SECOND, || format!("went on after {went_on:?}"))?;
    let _service = start()?;
    until("both jobs joined the new service", SOON, || both_are_known(status(&address, None)))?;
    end_well([one, other], live)
}

fn one_waits(status: Value) -> Option<()> {
    (!in_state(&status, "in I/O").is_empty() && !in_state(&status, "waiting").is_empty()).then_some(())
}

fn end_well(jobs: [Turns; 2], live: [Live; 2]) -> Verdict {
    for (job, live) in jobs.iter().zip(live) {
        let profile = job.ended_well(&live.end()?)?;
        let at_gate = &profile["coordination"];
        let said = gate(&profile, "losses") > 0 && gate(&profile, "opens") > 0;
        ensure(said && at_gate["note"].is_string(), || format!("{}: the profile says {at_gate}", job.name))?;
    }
    Ok(())
}

fn stopped(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let (address, text) = socket(&directory);
    let service = Service::start(&["--listen", &text, "--policy", "exclusive"])?;
    let one = Turns::new(place, "one", &text, LONG)?;
    let other = Turns::new(place, "other", &text, LONG)?;
    let live = [one.start()?, other.start()?];
    until("one is in I/O, one waits", SOON, || one_waits(status(&address, None)?))?;
    service.signal(libc::SIGSTOP);
    let went_on = both_go_on(&live, Instant::now());
    service.signal(libc::SIGCONT);
    let went_on = went_on?;
    println!("{}: both jobs went on after {:.0} ms", place.name, went_on.as_secs_f64() * 1e3);
    ensure(went_on < ONE_SECOND, || format!("went on after {went_on:?}"))?;
    until("both jobs are with the service again", SOON, || both_are_known(status(&address, None)))?;
    end_well([one, other], live)
}

/// The policy changes under two jobs, one of which waits: they go on under the new one, and their profiles name it.
fn reloaded(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let config = directory.path().join("weir.conf");
    let (address, text) = socket(&directory);
    std::fs::write(&config, "policy = exclusive\n")?;
    let service = Service::start(&["--listen", &text, "--config", &config.display().to_string()])?;
    let one = Turns::new(place, "one", &text, LONG)?;
    let other = Turns::new(place, "other", &text, LONG)?;
    let live = [one.start()?, other.start()?];
    until("one is in I/O, one waits", SOON, || one_waits(status(&address, None)?))?;
    std::fs::write(&config, "policy = fair\n")?;
    service.signal(libc::SIGHUP);
    for (job, live) in [one, other].iter().zip(live) {
        let profile = job.ended_well(&live.end()?)?;
        let at_gate = &profile["coordination"];
        let undisturbed = ["losses", "opens", "limits", "alone"].iter().all(|what| gate(&profile, what) == 0);
        ensure(undisturbed && at_gate["policy"] == "fair", || {
            format!("{}: the profile says {at_gate}", job.name)
        })?;
    }
    Ok(())
}

/// A job on a node of its own has its turn when the node's link goes down: nobody hears of it, its connection stays
/// half open. The other gets its turn, the one that is cut off goes on by itself and comes back with the link.
fn network(place: &Place) -> Verdict {
    let nodes = Nodes::up(1)?;
    let directory = Directory::new()?;
    let key = directory.key("key")?;
    let text = format!("tcp://{}:{}", nodes.machine(), free_port(&nodes.machine())?);
    let key_text = key.display().to_string();
    let _service = Service::start(&["--listen", &text, "--policy", "exclusive", "--key", &key_text])?;
    let ask = || status(&text.parse().ok()?, Some(&Key::read(Path::new(&key)).ok()?));
    let away = Turns::new(place, "away", &text, LONG)?;
    let inside = ["ip", "netns", "exec", &nodes.namespace(1)].map(Into::into).to_vec();
    let launcher = place.mpi.launcher(crate::turns::RANKS).into_iter().map(Into::into);
    let launcher = inside.into_iter().chain(launcher).collect();
    let away = away.launched_by(place, launcher, &text)?.variable("WEIR_KEY", &key_text);
    let here = Turns::new(place, "here", &text, LONG)?.variable("WEIR_KEY", &key_text);
    let live = [away.start()?, here.start()?];
    until("the one away is in I/O, the other waits", SOON, || {
        let status = ask()?;
        one_waits(status.clone())?;
        in_state(&status, "in I/O").iter().any(|(job, _)| job.starts_with("away")).then_some(())
    })?;
    link(&nodes, "down")?;
    let went_on = both_go_on(&live, Instant::now());
    link(&nodes, "up")?;
    let went_on = went_on?;
    println!("{}: both jobs went on after {:.0} ms", place.name, went_on.as_secs_f64() * 1e3);
    ensure(went_on < ONE_SECOND, || format!("went on after {went_on:?}"))?;
    until("both jobs are with the service again", SOON, || both_are_known(ask()))?;
    let [cut_off, stayed] = live;
    let profile = away.ended_well(&cut_off.end()?)?;
    let said = gate(&profile, "losses") > 0 && gate(&profile, "opens") > 0;
    ensure(said, || format!("the profile says {}", profile["coordination"]))?;
    let profile = here.ended_well(&stayed.end()?)?;
    let said = gate(&profile, "losses") == 0 && gate(&profile, "opens") == 0;
    ensure(said, || format!("the profile says {}", profile["coordination"]))
}

fn link(nodes: &Nodes, state: &str) -> Verdict {
    let mut command = Command::new("ip");
    command.args(["-n", &nodes.namespace(1), "link", "set", "eth0", state]);
    ensure(command.status()?.success(), || format!("{command:?}"))
}

pub(crate) fn free_port(host: &str) -> Verdict<u16> {
    let listener = std::net::TcpListener::bind((host, 0)).map_err(|error| Stop::Fail(error.to_string()))?;
    Ok(listener.local_addr()?.port())
}
