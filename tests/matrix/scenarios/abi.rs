//! The constants and layouts Weir takes for granted are those of this MPI's `mpi.h`.

use super::{Place, Scenario, scenario};
use crate::ensure;
use crate::mpi::c;
use crate::run::{Job, library};

pub(super) fn list() -> Vec<Scenario> {
    vec![scenario("abi", |place: &Place| {
        let probe = place.mpi.build(&c("abi", "tests/programs/abi.c", &[]))?;
        let job = Job::mpi(&place.name, &place.mpi, 1, [probe.into_os_string(), "required".into()]);
        let ran = job.preload([library()]).run("weir")?;
        ensure(ran.code == 0, || format!("{}{}", ran.stderr, ran.stdout))
    })]
}
