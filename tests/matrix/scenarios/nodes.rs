//! Several nodes: network namespaces with host names of their own (`tests/nodes`).

use super::{Place, SYSTEM, Scenario, scenario};
use crate::mpi::{Language, Program, root};
use crate::run::Job;
use crate::{Stop, Verdict, ensure, profile};
use std::ffi::OsString;
use std::process::Command;
use std::sync::Mutex;

const NODES: usize = 2;
const RANKS: usize = 4;

pub(super) fn list() -> Vec<Scenario> {
    vec![scenario("nodes", nodes).only(SYSTEM)]
}

fn nodes_script(verb: &str) -> Verdict<bool> {
    let script = root().join("tests/nodes/nodes.sh");
    Ok(Command::new(script).args([verb, &NODES.to_string()]).output()?.status.success())
}

/// The nodes, for one trial at a time; gone at its end.
struct Nodes;

impl Nodes {
    fn up() -> Verdict<Nodes> {
        if nodes_script("up")? {
            Ok(Nodes)
        } else {
            Err(Stop::Skip("may not make network namespaces (needs root and ip)".into()))
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = nodes_script("down");
    }
}

/// The launcher's options that put two ranks on each node.
fn launcher(mpi: &str) -> Vec<OsString> {
    let agent = root().join("tests/nodes/agent.sh").into_os_string();
    let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    let (before, after) = match mpi {
        "openmpi" => (
            "mpiexec.openmpi --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca plm_rsh_agent",
            "--host 10.77.0.1:2,10.77.0.2:2 -n 4",
        ),
        _ => (
            "mpiexec.mpich -launcher rsh -iface nodesbr -launcher-exec",
            "-hosts 10.77.0.1,10.77.0.2 -ppn 2 -n 4",
        ),
    };
    [words(before), vec![agent], words(after)].concat()
}

fn nodes(place: &Place) -> Verdict {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let program =
        Program { name: "cxx", source: "tests/programs/cxx.cpp", language: Language::Cxx, flags: &[] };
    let executable = place.mpi.build(&program)?;
    let _nodes = Nodes::up()?;
    let command = launcher(&place.mpi.name).into_iter().chain([executable.into()]);
    let mut job = Job::new(&place.name, command);
    for (name, value) in &place.mpi.variables {
        job = job.variable(name, value);
    }
    let job = job.variable("UCX_NET_DEVICES", "all");
    let ran = job.compare()?;
    let profile = profile::only(&ran, RANKS)?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])?;
    ensure(profile["job"]["nnodes"] == NODES as u64, || format!("nnodes: {}", profile["job"]["nnodes"]))?;
    let hosts: Vec<_> =
        profile["ranks"].as_array().into_iter().flatten().map(|rank| rank["host"].clone()).collect();
    ensure(hosts == ["node1", "node1", "node2", "node2"], || format!("hosts: {hosts:?}"))
}
