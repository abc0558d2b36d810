//! What users get wrong: one line that names it, and the program runs.

use crate::live::Directory;
use crate::turns::{Shape, Turns, USUAL};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, scenario};

/// Variable, value, and what the line must name.
const WRONG: &[(&str, &str, &str)] = &[
    ("WEIR_COORDINATOR", "somewhere", "WEIR_COORDINATOR=somewhere"),
    ("WEIR_COORDINATOR", "tcp://nowhere", "WEIR_COORDINATOR=tcp://nowhere"),
    ("WEIR_COORDINATOR", "elect:here", "WEIR_COORDINATOR=elect:here"),
    ("WEIR_COORDINATOR", "unix:/nonexistent/weir.sock", "unix:/nonexistent/weir.sock"),
    ("WEIR_COORDINATOR", "tcp://127.0.0.1:9", "tcp://127.0.0.1:9"),
    ("WEIR_COORDINATOR", "tcp://no-such-host.invalid:4711", "no-such-host.invalid"),
    ("WEIR_COORDINATOR", "elect:/nonexistent/directory", "/nonexistent/directory"),
    ("WEIR_POLICY", "best", "WEIR_POLICY=best"),
    ("WEIR_GATE", "posix", "WEIR_GATE=posix"),
    ("WEIR_MAX_WAIT", "-1", "WEIR_MAX_WAIT=-1"),
];

pub(super) fn list() -> Vec<Scenario> {
    vec![scenario("input::wrong", wrong).only(SYSTEM), scenario("input::key", key).only(SYSTEM)]
}

const SHORT: Shape = Shape { phases: 1, requests: 5, compute_ms: 0, ..USUAL };

fn wrong(place: &Place) -> Verdict {
    for (variable, value, named) in WRONG {
        let directory = Directory::new()?;
        one_line(Turns::new(place, "job", &directory.elect(), SHORT)?.variable(variable, value), named)?;
    }
    Ok(())
}

fn one_line(job: Turns, named: &str) -> Verdict {
    let ran = job.start()?.end()?;
    job.ended_well(&ran)?;
    let remarks = ran.remarks();
    ensure(remarks.len() == 1 && remarks[0].contains(named), || format!("{named}: Weir said {remarks:?}"))
}

/// A key that is not there, or that others may read.
fn key(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let open = directory.path().join("open");
    std::fs::write(&open, "0123456789abcdef0123456789abcdef")?;
    let make = || Turns::new(place, "job", "tcp://127.0.0.1:9", SHORT);
    one_line(make()?.variable("WEIR_KEY", "/nonexistent/key"), "/nonexistent/key")?;
    one_line(make()?.variable("WEIR_KEY", &open.display().to_string()), "only its owner may read it")?;
    one_line(make()?, "TCP needs a key")
}
