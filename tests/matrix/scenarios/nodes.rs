//! Several nodes.

use super::{Place, SYSTEM, Scenario, scenario};
use crate::mpi::{Language, Program, c};
use crate::nodes::Nodes;
use crate::run::{Job, Ran};
use crate::{Verdict, ensure, profile};
use serde_json::Value;

const NODES: usize = 2;
const RANKS: usize = 4;

pub(super) fn list() -> Vec<Scenario> {
    vec![scenario("nodes", nodes).only(SYSTEM), scenario("exchange_on_nodes", exchange).only(SYSTEM)]
}

/// A program on two nodes with and without Weir: what it left, and its profile.
fn on_nodes(place: &Place, program: &Program) -> Verdict<(Ran, Value)> {
    let executable = place.mpi.build(program)?;
    let nodes = Nodes::up(NODES)?;
    let launcher = nodes.launcher(&place.mpi.name, RANKS / NODES);
    let mut job = Job::new(&place.name, launcher.into_iter().chain([executable.into()]));
    for (name, value) in &place.mpi.variables {
        job = job.variable(name, value);
    }
    for (name, value) in nodes.variables() {
        job = job.variable(name, value);
    }
    let job = job.variable("UCX_NET_DEVICES", "all");
    let ran = job.compare()?;
    let profile = profile::only(&ran, RANKS)?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])?;
    Ok((ran, profile))
}

fn nodes(place: &Place) -> Verdict {
    let program =
        Program { name: "cxx", source: "tests/programs/cxx.cpp", language: Language::Cxx, flags: &[] };
    let (_, profile) = on_nodes(place, &program)?;
    ensure(profile["job"]["nnodes"] == NODES as u64, || format!("nnodes: {}", profile["job"]["nnodes"]))?;
    let hosts: Vec<_> =
        profile["ranks"].as_array().into_iter().flatten().map(|rank| rank["host"].clone()).collect();
    ensure(hosts == ["node1", "node1", "node2", "node2"], || format!("hosts: {hosts:?}"))
}

/// Of what a rank hands over in all calls on a file: the aggregator, and how many quarters of it each
/// aggregator keeps itself, exchanges with its node, and with the other node.
type Quarters = (u64, u64, u64, u64);

/// Whoever moves the first half of a call gets the pieces of ranks 0 and 1, or every other pair of blocks of all.
const PIECES: &[Quarters] = &[(0, 4, 4, 0), (2, 4, 4, 0)];
const BLOCKS: &[Quarters] = &[(0, 2, 2, 4), (2, 2, 2, 4)];
const ALL_TO_ONE: &[Quarters] = &[(0, 4, 4, 8)];

/// `tests/programs/exchange.c` on two nodes of two ranks: who exchanges how much with whom is known.
fn exchange(place: &Place) -> Verdict {
    let (ran, profile) = on_nodes(place, &c("exchange", "tests/programs/exchange.c", &[]))?;
    // Reading, an aggregator of Open MPI serves a group of ranks and not a part of the file.
    let groups = place.mpi.name == "openmpi";
    let expected = [
        ("pieces_to_one.dat", ALL_TO_ONE),
        ("blocks_to_one.dat", ALL_TO_ONE),
        ("pieces_to_two.dat", PIECES),
        ("blocks_to_two.dat", BLOCKS),
        ("pieces_from_two.dat", PIECES),
        ("blocks_from_two.dat", if groups { PIECES } else { BLOCKS }),
    ];
    for (file, quarters) in expected {
        aggregators_are(&profile, file, quarters)?;
    }
    let exchange = &profile["collectives"]["exchange"];
    ensure(exchange["estimated_bytes"] == 0 && exchange["left_out"] == 0, || format!("{exchange:#}"))?;
    ensure(exchange["network"]["points"].as_u64() >= Some(8), || format!("not fitted: {exchange:#}"))?;
    let (code, summary, errors) = profile::report(&[], &ran.profiles)?;
    let said = summary.contains("between nodes") && summary.contains("predicted");
    ensure(code == 0 && said, || format!("{summary}{errors}"))
}

fn aggregators_are(profile: &Value, file: &str, expected: &[Quarters]) -> Verdict {
    let files = profile["collectives"]["exchange"]["files"].as_array();
    let found = files.into_iter().flatten().find(|f| f["file"].as_str().is_some_and(|n| n.ends_with(file)));
    let Some(found) = found else { return Err(format!("nothing was exchanged of {file}").into()) };
    let quarter = found["bytes"].as_u64().unwrap_or(0) / RANKS as u64 / 4;
    let rows: Vec<Quarters> = found["aggregators"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().unwrap_or(u64::MAX);
            (number("rank"), number("own_bytes"), number("intra_bytes"), number("inter_bytes"))
        })
        .collect();
    let bytes: Vec<Quarters> = expected
        .iter()
        .map(|(rank, own, intra, inter)| (*rank, own * quarter, intra * quarter, inter * quarter))
        .collect();
    ensure(quarter > 0 && rows == bytes, || format!("{file}: {rows:?} instead of {bytes:?}\n{found:#}"))
}
