//! Programs of all kinds at a gate, while another job wants its turns: what they do is what they do alone.

use crate::live::{Directory, Live, SOON, in_state, until};
use crate::mpi::{Program, c};
use crate::nodes::Nodes;
use crate::run::{Job, Ran, library, same};
use crate::turns::{Shape, Turns, USUAL, apart};
use crate::{Place, SYSTEM, Scenario, Stop, Verdict, ensure, profile, scenario};
use serde_json::Value;
use std::path::Path;

/// Nonblocking and split calls, shared and ordered pointers, several files and communicators; threads; POSIX;
/// streams; children. With their own I/O held back too where there is much of it.
const PROGRAMS: &[(Program, &str)] = &[
    (c("everything", "tests/programs/everything.c", &[]), "mpi"),
    (c("everything", "tests/programs/everything.c", &[]), "all"),
    // What of these calls Open MPI does in others, such as barriers, is its I/O all the same.
    (c("meanwhile", "tests/programs/meanwhile.c", &["-DSPLIT_ONLY"]), "mpi"),
    (c("threads", "tests/programs/threads.c", &[]), "mpi"),
    (c("threads", "tests/programs/threads.c", &[]), "all"),
    (c("posix", "tests/programs/posix.c", &[]), "all"),
    (c("stdio", "tests/programs/stdio.c", &[]), "all"),
    (c("process", "tests/programs/process.c", &[]), "all"),
    (c("rough", "tests/programs/rough.c", &["-pthread"]), "all"),
    (c("descriptors", "tests/programs/descriptors.c", &[]), "all"),
];

const HARSH: Program = c("harsh", "tests/programs/harsh.c", &[]);

pub(super) fn list() -> Vec<Scenario> {
    let mut list: Vec<Scenario> = PROGRAMS
        .iter()
        .map(|(program, gate)| {
            let name = format!("programs::{}::{gate}", program.name);
            scenario(name, move |place| same_at_a_gate(place, program, gate)).only(SYSTEM)
        })
        .collect();
    list.push(scenario("programs::harsh", |place| harsh(place, "", "elect:", 0)).only(SYSTEM));
    list.push(scenario("programs::contained", |place| harsh(place, "contained", "elect:", 1)).only(SYSTEM));
    list.push(scenario("programs::stderr", |place| harsh(place, "stderr", "unix:", 0)).only(SYSTEM));
    list.push(scenario("programs::nodes", nodes).only(SYSTEM));
    list
}

/// A job that has its turn until it is released, and then wants it again and again, for as long as it is kept.
fn competitor(place: &Place, coordinator: &str, released: &Path) -> Verdict<(Live, Turns)> {
    let shape = Shape { phases: 10_000, requests: 10, ..USUAL };
    let job = Turns::new(place, "competitor", coordinator, shape)?.until(released);
    let live = job.start()?;
    live.said_first("IN")?;
    Ok((live, job))
}

/// What the program does by itself, if it can do that here.
fn without_weir(job: &Job) -> Verdict<Ran> {
    let bare = job.run("bare")?;
    if let Some(reason) = bare.stdout.lines().find_map(|line| line.strip_prefix("SKIP ")) {
        return Err(Stop::Skip(reason.into()));
    }
    ensure(bare.code == 0, || format!("fails without Weir\n{}{}", bare.stdout, bare.stderr))?;
    Ok(bare)
}

fn same_at_a_gate(place: &Place, program: &Program, gate: &str) -> Verdict {
    let executable = place.mpi.build(program)?;
    // UCX may overwrite `mmap` in the whole process; nobody else sees it then.
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]).variable("UCX_MEM_EVENTS", "no");
    let bare = without_weir(&job)?;
    let directory = Directory::new()?;
    let released = directory.path().join("released");
    let competitor = competitor(place, &directory.elect(), &released)?;
    let job = job
        .preload([library()])
        .variable("WEIR_COORDINATOR", directory.elect())
        .variable("WEIR_POLICY", "exclusive")
        .variable("WEIR_BACKFILL", "off")
        .variable("WEIR_FREE_BYTES", "0")
        .variable("WEIR_GATE", gate);
    let gated = Live::start(&job, "gated")?;
    let waits = || in_state(&directory.status()?, "waiting").pop();
    until("the program waits for its turn", SOON, waits)?;
    std::fs::write(released, "")?;
    let ran = gated.end()?;
    drop(competitor);
    same(&bare, &ran)?;
    ensure(ran.remarks().is_empty(), || format!("Weir printed:\n{}", ran.remarks().join("\n")))?;
    let profile = profile::only(&ran, 2)?;
    let at_gate = &profile["coordination"];
    let waited = ["waits", "holds"].iter().all(|what| at_gate[*what].as_u64() > Some(0));
    ensure(waited, || format!("it never waited for its turn: {at_gate}"))?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])
}

/// A program that a gate could hurt is not hurt; so many lines tell that it runs by itself.
fn harsh(place: &Place, kind: &str, coordinator: &str, remarks: usize) -> Verdict {
    let executable = place.mpi.build(&HARSH)?.into_os_string();
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable, kind.into()]);
    let bare = without_weir(&job)?;
    let directory = Directory::new()?;
    let coordinator = format!("{coordinator}{}", directory.path().display());
    let ran = job.preload([library()]).variable("WEIR_COORDINATOR", coordinator).run("gated")?;
    same(&bare, &ran)?;
    let said = ran.remarks();
    ensure(said.len() == remarks, || format!("Weir printed:\n{}", said.join("\n")))?;
    let profile = profile::only(&ran, 2)?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])
}

/// Two jobs on two nodes each; the directory is on a file system that the nodes share.
fn nodes(place: &Place) -> Verdict {
    let nodes = Nodes::up(2)?;
    let directory = Directory::new()?;
    let make = |name: &str| -> Verdict<Turns> {
        let job = Turns::new(place, name, &directory.elect(), USUAL)?;
        let mut job = job.launched_by(place, nodes.launcher(&place.mpi.name, 1), &directory.elect())?;
        for (name, value) in nodes.variables() {
            job = job.variable(name, value);
        }
        // The nodes' names are known to nobody here.
        Ok(job.variable("UCX_NET_DEVICES", "all"))
    };
    let (one, other) = (make("one")?, make("other")?);
    let (first, second) = (one.start()?, other.start()?);
    // Each node of a job has a gate, a leader and a connection of its own.
    let hosts = |status: Value| -> Option<()> {
        let of = |job: &Value| -> Option<Vec<String>> {
            job["nodes"].as_array()?.iter().map(|node| Some(node["host"].as_str()?.to_string())).collect()
        };
        let mut all: Vec<_> = status["jobs"].as_array()?.iter().filter_map(of).collect();
        all.iter_mut().for_each(|hosts| hosts.sort());
        (all == [["node1", "node2"], ["node1", "node2"]]).then_some(())
    };
    until("two jobs with two nodes each are known", SOON, || directory.status().and_then(hosts))?;
    let (first, second) = (first.end()?, second.end()?);
    for (job, ran) in [(&one, &first), (&other, &second)] {
        let profile = job.ended_well(ran)?;
        ensure(profile["job"]["nnodes"] == 2, || format!("nnodes: {}", profile["job"]["nnodes"]))?;
        ensure(ran.remarks().is_empty(), || format!("Weir printed:\n{}", ran.remarks().join("\n")))?;
    }
    apart(&first, &second)?;
    Ok(())
}
