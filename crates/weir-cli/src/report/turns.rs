//! How the job got on with others, if it was to take turns with them; and why it took none.

use super::text::{counted, seconds};
use weir_profile::profile::Coordination;

/// The line for the summary; `None` for a job that was only measured.
pub(super) fn line(coordination: &Coordination) -> Option<String> {
    let Coordination { policy, waits, wait_s, limits, alone, turns, turn_wait_s, losses, opens, .. } =
        coordination;
    let mut parts: Vec<String> = Vec::new();
    if *waits > 0 {
        parts.push(format!("{}, {} over all ranks", counted(*waits, "wait"), seconds(*wait_s)));
    }
    if *turns > 0 {
        parts.push(format!(
            "{} at storage targets, {} waited",
            counted(*turns, "turn"),
            seconds(*turn_wait_s)
        ));
    }
    let took_none = parts.is_empty();
    let times = [(limits, "beyond the limit"), (alone, "with nobody to ask")];
    parts.extend(times.iter().filter(|(n, _)| **n > 0).map(|(n, what)| format!("{n} {what}")));
    let events = [(losses, "coordinator lost"), (opens, "uncoordinated")];
    parts.extend(events.iter().filter(|(n, _)| **n > 0).map(|(n, what)| format!("{what} {n}×")));
    if took_none && let Some(why) = why_none(coordination) {
        parts.insert(0, format!("none: {why}"));
    } else {
        parts.extend(coordination.note.clone());
    }
    parts.splice(0..0, policy.iter().map(|policy| format!("policy {policy}")));
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Why nothing took turns although the job was to be coordinated, as far as the profile knows.
fn why_none(coordination: &Coordination) -> Option<String> {
    let (gate, seen) = (coordination.gate.as_deref()?, &coordination.seen);
    if gate == "off" {
        return Some("the gate is off (WEIR_GATE=off)".into());
    }
    if let Some(note) = &coordination.note {
        return Some(note.clone());
    }
    if seen.admitted {
        return Some("no other job was in its way".into());
    }
    let mut reasons: Vec<&str> = Vec::new();
    if seen.passed_calls {
        reasons.push(match gate {
            "mpi" => "its I/O is not MPI-IO (--gate auto makes it take turns)",
            "auto" => "it wrote to standard output only",
            _ => "the gate lets its calls pass",
        });
    }
    if seen.memory {
        reasons.push("files in memory");
    }
    if seen.unknown_storage {
        reasons.push("files on a storage that is not known");
    }
    if seen.small_requests {
        reasons.push("requests too small to take turns");
    }
    Some(if reasons.is_empty() { "it moved no data that takes turns".into() } else { reasons.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_profile::profile::SeenByGate;

    fn gated(gate: &str, seen: SeenByGate) -> Coordination {
        Coordination { gate: Some(gate.into()), seen, ..Coordination::default() }
    }

    #[test]
    fn a_job_that_took_no_turns_is_told_why() {
        let seen = SeenByGate { passed_calls: true, ..SeenByGate::default() };
        let text = line(&gated("mpi", seen));
        assert_eq!(text.as_deref(), Some("none: its I/O is not MPI-IO (--gate auto makes it take turns)"));
        let seen = SeenByGate { memory: true, small_requests: true, ..SeenByGate::default() };
        let text = line(&gated("all", seen));
        assert_eq!(text.as_deref(), Some("none: files in memory, requests too small to take turns"));
        let seen = SeenByGate { admitted: true, ..SeenByGate::default() };
        let alone = Coordination { policy: Some("weir".into()), ..gated("mpi", seen) };
        assert_eq!(line(&alone).as_deref(), Some("policy weir; none: no other job was in its way"));
        let off = line(&gated("off", SeenByGate::default()));
        assert_eq!(off.as_deref(), Some("none: the gate is off (WEIR_GATE=off)"));
    }

    #[test]
    fn turns_and_jobs_that_are_only_measured_need_no_reason() {
        assert_eq!(line(&Coordination::default()), None);
        let waited = Coordination { waits: 2, wait_s: 0.5, ..gated("mpi", SeenByGate::default()) };
        assert_eq!(line(&waited).as_deref(), Some("2 waits, 500 ms over all ranks"));
    }
}
