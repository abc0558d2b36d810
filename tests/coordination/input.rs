//! What users get wrong: one line that names it, and the program runs.

use crate::live::Directory;
use crate::turns::{Shape, Turns, USUAL};
use crate::{Place, SYSTEM, Scenario, Verdict, scenario};

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
        let job = Turns::new(place, "job", &directory.elect(), SHORT)?.variable(variable, value);
        job.says_one_line(named)?;
    }
    Ok(())
}

/// A key that is not there, or that others may read.
fn key(place: &Place) -> Verdict {
    let directory = Directory::new()?;
    let open = directory.path().join("open");
    std::fs::write(&open, "0123456789abcdef0123456789abcdef")?;
    let make = || Turns::new(place, "job", "tcp://127.0.0.1:9", SHORT);
    make()?.variable("WEIR_KEY", "/nonexistent/key").says_one_line("/nonexistent/key")?;
    let open = open.display().to_string();
    make()?.variable("WEIR_KEY", &open).says_one_line("mode 644, but only")?;
    make()?.says_one_line("TCP needs a key")?;
    Ok(())
}
