//! Another PMPI tool in the same process, before or after us: both count what they would alone.

use super::programs::EVERYTHING;
use super::{Place, Scenario, scenario};
use crate::mpi::{Program, c};
use crate::run::{Job, Ran, library, same};
use crate::{Verdict, ensure, profile};
use std::ffi::OsString;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("tool_before", |place| beside_a_tool(place, true)),
        scenario("tool_after", |place| beside_a_tool(place, false)),
        scenario("tool_in_the_command", beside_a_tool_of_the_command),
    ]
}

const TOOL: Program = c("pmpi_tool.so", "tests/programs/pmpi_tool.c", &["-shared", "-fPIC"]);

fn beside_a_tool(place: &Place, tool_first: bool) -> Verdict {
    let tool = place.mpi.build(&TOOL)?;
    let executable = place.mpi.build(&EVERYTHING)?;
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]);
    let alone = run_alone(&job.clone().preload([tool.clone()]))?;
    let order = if tool_first { [tool, library()] } else { [library(), tool] };
    let both = job.preload(order).run("both")?;
    same(&alone, &both)?;
    let profile = profile::only(&both, 2)?;
    profile::agrees(&profile::tally(&both.stdout)?, &[&profile])
}

/// The launcher is told to preload the tool, and `weir run` does not know of it from the environment.
fn beside_a_tool_of_the_command(place: &Place) -> Verdict {
    let tool = place.mpi.build(&TOOL)?.into_os_string();
    let executable = place.mpi.build(&EVERYTHING)?.into_os_string();
    let words = if place.mpi.name.contains("openmpi") {
        let mut assignment = OsString::from("LD_PRELOAD=");
        assignment.push(tool);
        vec!["-x".into(), assignment, executable]
    } else {
        vec!["-genv".into(), "LD_PRELOAD".into(), tool, executable]
    };
    let job = Job::mpi(&place.name, &place.mpi, 2, words);
    let alone = run_alone(&job)?;
    let both = job.under(&["run", "--quiet"]).run("both")?;
    same(&alone, &both)?;
    let profile = profile::only(&both, 2)?;
    profile::agrees(&profile::tally(&both.stdout)?, &[&profile])
}

fn run_alone(job: &Job) -> Verdict<Ran> {
    let alone = job.run("tool")?;
    ensure(alone.stdout.contains("TOOL opens="), || {
        format!("the tool is not at work:\n{}{}", alone.stdout, alone.stderr)
    })?;
    Ok(alone)
}
