//! Another PMPI tool in the same process, before or after us: both count what they would alone.

use super::programs::EVERYTHING;
use super::{Place, Scenario, scenario};
use crate::mpi::c;
use crate::run::{Job, library, same};
use crate::{Verdict, ensure, profile};

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("tool_before", |place| beside_a_tool(place, true)),
        scenario("tool_after", |place| beside_a_tool(place, false)),
    ]
}

fn beside_a_tool(place: &Place, tool_first: bool) -> Verdict {
    let tool = place.mpi.build(&c("pmpi_tool.so", "tests/programs/pmpi_tool.c", &["-shared", "-fPIC"]))?;
    let executable = place.mpi.build(&EVERYTHING)?;
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]);
    let alone = job.clone().preload([tool.clone()]).run("tool")?;
    ensure(alone.stdout.contains("TOOL opens="), || {
        format!("the tool is not at work:\n{}{}", alone.stdout, alone.stderr)
    })?;
    let order = if tool_first { [tool, library()] } else { [library(), tool] };
    let both = job.preload(order).run("both")?;
    same(&alone, &both)?;
    let profile = profile::only(&both, 2)?;
    profile::agrees(&profile::tally(&both.stdout)?, &[&profile])
}
