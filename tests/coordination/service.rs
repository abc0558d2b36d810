//! The coordinator is a service that goes away, stops, or cannot be reached.

use crate::live::{Directory, Live, SOON, Service, in_state, signal, status, until, within_a_second};
use crate::nodes::Nodes;
use crate::turns::{Shape, Turns, USUAL, gate};
use crate::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, scenario};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_coord::address::Address;
use weir_coord::auth::Key;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("service::sigkill", |place| within_a_second(place, |place| restarted(place, libc::SIGKILL)))
            .only(SYSTEM),
        scenario("service::sigterm", |place| within_a_second(place, |place| restarted(place, libc::SIGTERM)))
            .only(SYSTEM),
        scenario("service::sigstop", |place| within_a_second(place, stopped)).only(SYSTEM),
        scenario("service::sighup", reloaded).only(SYSTEM),
        scenario("service::preemption", preempted).only(SYSTEM),
        scenario("service::sighup_often", reloaded_often).only(SYSTEM),
        scenario("service::crowd", crowd).only(SYSTEM),
        scenario("service::network", |place| within_a_second(place, network)).only(SYSTEM),
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

fn restarted(place: &Place, number: i32) -> Verdict<Duration> {
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
    let _service = start()?;
    until("both jobs joined the new service", SOON, || both_are_known(status(&address, None)))?;
    end_well([one, other], live)?;
    Ok(went_on)
}

fn one_waits(status: Value) -> Option<()> {
    (!in_state(&status, "in I/O").is_empty() && !in_state(&status, "waiting").is_empty()).then_some(())
}

fn end_well(jobs: [Turns; 2], live: [Live; 2]) -> Verdict {
    for (job, live) in jobs.iter().zip(live) {
        let profile = job.ended_well(&live.end()?)?;
        let at_gate = &profile["coordination"];
        let said = gate(&profile, "losses") > 0 && gate(&profile, "opens") > 0;
        // They are coordinated again: there is nothing to be said of that.
        ensure(said && at_gate["note"].is_null(), || format!("{}: the profile says {at_gate}", job.name))?;
    }
    Ok(())
}

fn stopped(place: &Place) -> Verdict<Duration> {
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
    until("both jobs are with the service again", SOON, || both_are_known(status(&address, None)))?;
    end_well([one, other], live)?;
    Ok(went_on)
}

/// The policy changes under two jobs, one of which waits: they go on under the new one, and their profiles name it.
fn reloaded(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let (address, text) = socket(&directory);
    let configured = Configured::start(&directory, "policy = exclusive\n")?;
    let (jobs, live) = pair(place, &text, LONG)?;
    until("one is in I/O, one waits", SOON, || one_waits(status(&address, None)?))?;
    configured.reload("policy = fair\n")?;
    end_undisturbed(&jobs, live, "fair")?;
    Ok(())
}

/// A service whose file is written anew, and read by it.
struct Configured {
    service: Service,
    file: PathBuf,
}

impl Configured {
    fn start(directory: &Directory, text: &str) -> Verdict<Configured> {
        let file = directory.path().join("weir.conf");
        std::fs::write(&file, text)?;
        let words = ["--listen", &socket(directory).1, "--config", &file.display().to_string()];
        Ok(Configured { service: Service::start(&words)?, file })
    }

    fn reload(&self, text: &str) -> Verdict {
        std::fs::write(&self.file, text)?;
        self.service.signal(libc::SIGHUP);
        Ok(())
    }
}

/// Two jobs that go on undisturbed under whatever policy, to the last of these.
fn end_undisturbed(jobs: &[Turns; 2], live: [Live; 2], policy: &str) -> Verdict<[Value; 2]> {
    let mut profiles = Vec::new();
    for (job, live) in jobs.iter().zip(live) {
        let profile = job.ended_well(&live.end()?)?;
        let at_gate = &profile["coordination"];
        let undisturbed = ["losses", "opens", "limits", "alone"].iter().all(|what| gate(&profile, what) == 0);
        ensure(undisturbed && at_gate["policy"] == policy, || {
            format!("{}: the profile says {at_gate}", job.name)
        })?;
        profiles.push(profile);
    }
    profiles.try_into().map_err(|_| "two jobs".into())
}

fn pair(place: &Place, text: &str, shape: Shape) -> Verdict<([Turns; 2], [Live; 2])> {
    let jobs = [Turns::new(place, "one", text, shape)?, Turns::new(place, "other", text, shape)?];
    let live = [jobs[0].start()?, jobs[1].start()?];
    Ok((jobs, live))
}

/// Both are in I/O, in phases that last; then only one may be: the grant of the other is withdrawn in the middle.
fn preempted(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let (address, text) = socket(&directory);
    let configured = Configured::start(&directory, "policy = fair\n")?;
    let (jobs, live) = pair(place, &text, Shape { phases: 1, requests: 300, ..USUAL })?;
    let both = || (in_state(&status(&address, None)?, "in I/O").len() == 2).then_some(());
    until("both are in I/O", SOON, both)?;
    configured.reload("policy = exclusive\n")?;
    until("one is in I/O, one waits", SOON, || one_waits(status(&address, None)?))?;
    let profiles = end_undisturbed(&jobs, live, "exclusive")?;
    let held: u64 = profiles.iter().map(|profile| gate(profile, "holds")).sum();
    ensure(held > 0, || "nobody was held in the only phase there was".into())
}

/// A service is told again and again to do things otherwise, at times in words that make no sense.
fn reloaded_often(place: &Place) -> Verdict {
    const FILES: &[&str] = &[
        "policy = weir\n",
        "policy = set10\n",
        "polity = fair\n",
        "policy = exclusive\norder = hio\n",
        "policy = roundrobin\n",
        "policy = mindilation\n",
        "policy =",
        "policy = maxsyseff\norder = slack\n",
        "policy = minmax\n",
        "\u{0}\u{1}",
        "policy = fair\n",
    ];
    let directory = Directory::new()?;
    let (address, text) = socket(&directory);
    let configured = Configured::start(&directory, "policy = weir\n")?;
    let (jobs, mut live) = pair(place, &text, LONG)?;
    until("both are known", SOON, || both_are_known(status(&address, None)))?;
    let mut reloads = 0;
    while !live[0].has_ended() && !live[1].has_ended() && reloads < 100 {
        configured.reload(FILES[reloads % FILES.len()])?;
        reloads += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    configured.reload("policy = fair\n")?;
    println!("{}: told {reloads} times", place.name);
    ensure(reloads >= FILES.len(), || format!("only {reloads} times"))?;
    end_undisturbed(&jobs, live, "fair")?;
    Ok(())
}

/// Many jobs come and go, of which some are killed: of the service nothing grows.
fn crowd(place: &Place) -> Verdict {
    const ROUNDS: usize = 12;
    const AT_ONCE: usize = 6;
    let shape = Shape { phases: 1, requests: 3, bytes: 512, pause_ms: 1, compute_ms: 0 };
    let directory = Directory::new()?;
    let (address, text) = socket(&directory);
    let service = Service::start(&["--listen", &text, "--policy", "weir"])?;
    let mut sizes = Vec::new();
    for round in 0..ROUNDS {
        let name = |number: usize| format!("job{}", round * AT_ONCE + number);
        let jobs = (0..AT_ONCE)
            .map(|number| Turns::new(place, &name(number), &text, shape)?.launched_by(place, vec![], &text));
        let jobs: Vec<Turns> = jobs.collect::<Verdict<_>>()?;
        let live: Vec<Live> = jobs.iter().map(Turns::start).collect::<Verdict<_>>()?;
        signal(live[0].pids(1)?[0], libc::SIGKILL);
        for (job, live) in jobs.iter().zip(live).skip(1) {
            let profile = job.ended_well_with(&live.end()?, 1)?;
            ensure(gate(&profile, "opens") == 0, || format!("the profile says {}", profile["coordination"]))?;
        }
        until("all have left", SOON, || {
            status(&address, None)?["jobs"].as_array()?.is_empty().then_some(())
        })?;
        sizes.push(service.size()?);
    }
    println!("{}: descriptors, threads and KiB of memory after each round: {sizes:?}", place.name);
    // The first rounds bring it to its size; the question who is there may still have a connection.
    let (early, last) = (sizes[1], sizes[ROUNDS - 1]);
    let same = last.descriptors <= early.descriptors + 1 && last.threads == early.threads;
    ensure(same && last.memory_kib < early.memory_kib + 256, || format!("it grew: {sizes:?}"))
}

/// A job on a node of its own has its turn when the node's link goes down: nobody hears of it, its connection stays
/// half open. The other gets its turn, the one that is cut off goes on by itself and comes back with the link.
fn network(place: &Place) -> Verdict<Duration> {
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
    until("both jobs are with the service again", SOON, || both_are_known(ask()))?;
    let [cut_off, stayed] = live;
    let profile = away.ended_well(&cut_off.end()?)?;
    let said = gate(&profile, "losses") > 0 && gate(&profile, "opens") > 0;
    ensure(said, || format!("the profile says {}", profile["coordination"]))?;
    let profile = here.ended_well(&stayed.end()?)?;
    let said = gate(&profile, "losses") == 0 && gate(&profile, "opens") == 0;
    ensure(said, || format!("the profile says {}", profile["coordination"]))?;
    Ok(went_on)
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
