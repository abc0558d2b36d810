//! Several nodes on one machine: network namespaces with host names of their own (`tests/nodes`).

use super::mpi::root;
use super::{Stop, Verdict};
use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// So many nodes, for one trial; gone at its end.
pub(crate) struct Nodes {
    count: usize,
    name: String,
    net: String,
}

impl Nodes {
    pub(crate) fn up(count: usize) -> Verdict<Nodes> {
        // Other tests on the machine have theirs.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id().wrapping_add(MADE.fetch_add(1, Relaxed) << 12);
        let nodes = Nodes {
            count,
            name: format!("wn{:x}", number & 0xffffff),
            net: format!("10.{}.{}", 64 + (number >> 8) % 64, number % 256),
        };
        match nodes.script("up") {
            Ok(true) => Ok(nodes),
            _ => Err(Stop::Skip("may not make network namespaces (needs root and ip)".into())),
        }
    }

    fn script(&self, verb: &str) -> std::io::Result<bool> {
        let mut command = Command::new(root().join("tests/nodes/nodes.sh"));
        command.args([verb, &self.count.to_string()]).env("NODES", &self.name).env("NODES_NET", &self.net);
        Ok(command.output()?.status.success())
    }

    /// The network namespace of a node, from 1 on.
    pub(crate) fn namespace(&self, node: usize) -> String {
        format!("{}{node}", self.name)
    }

    /// The address of the machine itself.
    pub(crate) fn machine(&self) -> String {
        format!("{}.254", self.net)
    }

    /// What the agent needs to find the nodes.
    pub(crate) fn variables(&self) -> [(&'static str, &str); 2] {
        [("NODES", &self.name), ("NODES_NET", &self.net)]
    }

    /// The launcher of a system's MPI with so many ranks on each node.
    pub(crate) fn launcher(&self, mpi: &str, ranks: usize) -> Vec<OsString> {
        let agent = root().join("tests/nodes/agent.sh").into_os_string();
        let hosts: Vec<String> = (1..=self.count).map(|node| format!("{}.{node}", self.net)).collect();
        let all = ranks * self.count;
        let (before, after) = if mpi == "openmpi" {
            let net = format!("{}.0/24", self.net);
            let hosts: Vec<String> = hosts.iter().map(|host| format!("{host}:{ranks}")).collect();
            (
                format!(
                    "mpiexec.openmpi --mca oob_tcp_if_include {net} --mca btl_tcp_if_include {net} --mca plm_rsh_agent"
                ),
                format!("--host {} -n {all}", hosts.join(",")),
            )
        } else {
            (
                format!("mpiexec.mpich -launcher rsh -iface {}br -launcher-exec", self.name),
                format!("-hosts {} -ppn {ranks} -n {all}", hosts.join(",")),
            )
        };
        let words = |text: String| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        [words(before), vec![agent], words(after)].concat()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = self.script("down");
    }
}
