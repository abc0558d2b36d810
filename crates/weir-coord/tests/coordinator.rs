//! The coordinator without sockets, in virtual time: every policy serves everybody, in every order of events.

use proptest::prelude::*;
use weir_coord::coordinator::{Coordinator, JobState, Pace, Peer};
use weir_coord::site::{ApplicationInfo, Site};
use weir_coord::tokens::UNLIMITED;
use weir_coord::wire::{Identity, Message, Progress};
use weir_engine::engine::{InstanceInfo, Past};
use weir_engine::sharing::PolicyKind;

const MS: u64 = 1_000_000;

fn hello(job: &str, rejoins: bool) -> Message {
    let identity = Identity {
        job: job.into(),
        ranks: 1,
        nodes: 1,
        storage: "disk".into(),
        w_iter_ns: Some(1_000 * MS),
        ..Identity::default()
    };
    Message::Hello { identity: Box::new(identity), rejoins, epoch: 0 }
}

fn begin(phase: u64) -> Message {
    Message::Begin { phase, bytes: None }
}

fn end(phase: u64, bytes: u64) -> Message {
    Message::End { phase, bytes, io_ns: 1, waited_ns: 0 }
}

fn busy(phase: u64, bytes: u64) -> Message {
    {
        let progress = Progress { done_bytes: 0, spent_bytes: bytes, wanted_bytes: bytes };
        Message::Moved { phase, progress, in_flight: 1, busy_ns: 0, is_resting: false }
    }
}

fn answers(coordinator: &mut Coordinator) -> Vec<(Peer, Message)> {
    coordinator.outbox().drain(..).collect()
}

/// Five jobs make ten phases each; each holds its grant for a while, and a grant that is withdrawn waits.
fn everybody_is_served(policy: PolicyKind) {
    const JOBS: usize = 5;
    const PHASES: u64 = 10;
    let mut coordinator = Coordinator::new(0, policy, Pace::default());
    let mut phase = [0u64; JOBS];
    let mut in_phase = [false; JOBS];
    let mut left_ms = [0u64; JOBS];
    let mut granted = [false; JOBS];
    for job in 0..JOBS {
        coordinator.handle(0, job, hello(&job.to_string(), false)).unwrap();
    }
    let mut now_ms = 0;
    while phase.iter().any(|done| *done < PHASES) || in_phase.contains(&true) {
        now_ms += 1;
        assert!(
            now_ms < 600_000,
            "{policy}: after ten minutes {phase:?} are served, {in_phase:?} still in I/O"
        );
        let now_ns = now_ms * MS;
        for job in 0..JOBS {
            if in_phase[job] && granted[job] {
                left_ms[job] -= 1;
                if left_ms[job] == 0 {
                    in_phase[job] = false;
                    granted[job] = false;
                    coordinator.handle(now_ns, job, end(phase[job], 1 << 20)).unwrap();
                }
            } else if !in_phase[job] && phase[job] < PHASES && now_ms % (job as u64 + 3) == 0 {
                phase[job] += 1;
                in_phase[job] = true;
                left_ms[job] = 20 * (job as u64 + 1);
                coordinator.handle(now_ns, job, begin(phase[job])).unwrap();
            }
        }
        coordinator.tick(now_ns);
        for (job, message) in answers(&mut coordinator) {
            match message {
                Message::Grant { phase: of, .. } if of == phase[job] => granted[job] = in_phase[job],
                Message::Hold { phase: of, .. } if of == phase[job] => granted[job] = false,
                _ => {}
            }
        }
    }
}

#[test]
fn every_policy_serves_everybody() {
    PolicyKind::ALL.into_iter().for_each(everybody_is_served);
}

#[test]
fn credits_of_a_job_are_divided_among_its_nodes() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Fair, Pace::default());
    for (peer, job) in ["wide", "wide", "other"].into_iter().enumerate() {
        coordinator.handle(0, peer, hello(job, false)).unwrap();
        coordinator.handle(0, peer, begin(1)).unwrap();
        coordinator.handle(0, peer, busy(1, 1000)).unwrap();
    }
    answers(&mut coordinator);
    coordinator.handle(MS, 0, busy(1, 2000)).unwrap();
    coordinator.tick(MS);
    let credits: Vec<(Peer, u64)> = answers(&mut coordinator)
        .into_iter()
        .filter_map(|(peer, message)| match message {
            Message::Credit { credit_bytes, .. } => Some((peer, credit_bytes)),
            _ => None,
        })
        .collect();
    let left =
        |wanted: Peer, spent: u64| credits.iter().find(|(peer, _)| *peer == wanted).map(|(_, c)| c - spent);
    assert!(left(0, 2000).is_some_and(|left| left < UNLIMITED / 2), "{credits:?}");
    assert_eq!(left(0, 2000), left(1, 1000), "{credits:?}");
}

/// Under a new coordinator the job that held the grant keeps it, though the one that waited is heard first.
#[test]
fn a_new_coordinator_gathers_before_it_decides() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    let resume = |granted| {
        let progress = Progress::default();
        let age_ns = if granted { 5 } else { 99 };
        Message::Resume { phase: 4, bytes: None, age_ns, granted, progress }
    };
    for (peer, granted) in [(0, false), (1, true)] {
        coordinator.handle(MS, peer, hello(&peer.to_string(), true)).unwrap();
        coordinator.handle(MS, peer, resume(granted)).unwrap();
        coordinator.tick(MS);
    }
    assert!(answers(&mut coordinator).iter().all(|(_, message)| matches!(message, Message::Welcome { .. })));
    let gathered_ns = coordinator.deadline_ns().unwrap();
    coordinator.tick(gathered_ns);
    let said = answers(&mut coordinator);
    assert!(
        matches!(said[..], [(1, Message::Grant { phase: 4, .. }), (0, Message::Hold { phase: 4, .. })]),
        "{said:?}"
    );
}

/// Nobody waits for long for jobs that do not come back, nor again for one that comes back late.
#[test]
fn a_new_coordinator_decides_soon_after_the_last_job_has_come_back() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    for (now_ms, peer) in [(1, 0), (9, 1)] {
        coordinator.handle(now_ms * MS, peer, hello(&peer.to_string(), true)).unwrap();
    }
    coordinator.handle(10 * MS, 1, begin(1)).unwrap();
    assert_eq!(coordinator.deadline_ns(), Some(24 * MS));
    coordinator.tick(24 * MS);
    assert!(!coordinator.is_gathering());
    coordinator.handle(30 * MS, 2, hello("late", true)).unwrap();
    assert!(!coordinator.is_gathering());
    // However many come, it does not listen for ever.
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    for peer in 0..20 {
        let now_ns = (1 + 5 * peer as u64) * MS;
        coordinator.tick(now_ns);
        coordinator.handle(now_ns, peer, hello(&peer.to_string(), true)).unwrap();
        assert_eq!(coordinator.is_gathering(), now_ns < 61 * MS);
    }
}

/// What a phase moved counts, though it ended before the coordinator had gathered what all have to say.
#[test]
fn a_phase_that_ends_while_a_new_coordinator_gathers_is_not_forgotten() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    let progress = Progress { done_bytes: 5, spent_bytes: 5, wanted_bytes: 5 };
    for peer in [0, 1] {
        coordinator.handle(MS, peer, hello("job", true)).unwrap();
        let resume = Message::Resume { phase: 4, bytes: None, age_ns: 1, granted: true, progress };
        coordinator.handle(MS, peer, resume).unwrap();
    }
    assert!(coordinator.is_gathering());
    coordinator.handle(2 * MS, 0, end(4, 9)).unwrap();
    coordinator.gone(3 * MS, 1);
    let gathered_ns = coordinator.deadline_ns().unwrap();
    coordinator.tick(gathered_ns);
    let job = coordinator.jobs().next().unwrap();
    assert_eq!((job.done_bytes, job.state), (9 + 5, JobState::Computing));
}

/// Moves time on, with every tick that is due; who is granted and who is held meanwhile.
fn pass(coordinator: &mut Coordinator, now_ms: &mut u64, ms: u64) -> (Vec<Peer>, Vec<Peer>) {
    let until_ms = *now_ms + ms;
    while *now_ms < until_ms {
        *now_ms += 1;
        coordinator.tick(*now_ms * MS);
    }
    let (mut granted, mut held) = (Vec::new(), Vec::new());
    for (peer, message) in answers(coordinator) {
        match message {
            Message::Grant { .. } => granted.push(peer),
            Message::Hold { .. } => held.push(peer),
            _ => {}
        }
    }
    (granted, held)
}

#[test]
fn a_grant_without_progress_keeps_nobody_out_and_is_stopped_by_nobody() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    let mut now_ms = 0;
    for peer in [0, 1] {
        coordinator.handle(0, peer, hello(&peer.to_string(), false)).unwrap();
        coordinator.handle(0, peer, begin(1)).unwrap();
    }
    assert_eq!(pass(&mut coordinator, &mut now_ms, 1_900), (vec![0], vec![1]));
    assert_eq!(
        pass(&mut coordinator, &mut now_ms, 400),
        (vec![1], vec![]),
        "the next has its turn, nobody is stopped"
    );
    assert_eq!(coordinator.jobs().map(|job| job.state).next(), Some(JobState::Idle));
    // The idle job goes on after all: now it waits for its turn like everybody.
    coordinator.handle(now_ms * MS, 0, busy(1, 100)).unwrap();
    assert_eq!(pass(&mut coordinator, &mut now_ms, 10), (vec![], vec![0]));
    coordinator.handle(now_ms * MS, 1, end(1, 7)).unwrap();
    assert_eq!(pass(&mut coordinator, &mut now_ms, 10), (vec![0], vec![]));
    coordinator.handle(now_ms * MS, 0, end(1, 100)).unwrap();
    let moved: Vec<u64> = coordinator.jobs().map(|job| job.done_bytes).collect();
    assert_eq!(moved, [100, 7]);
}

#[test]
fn a_slow_request_is_progress_for_as_long_as_it_should_take() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    let mut now_ms = 0;
    for peer in [0, 1] {
        coordinator.handle(0, peer, hello(&peer.to_string(), false)).unwrap();
    }
    // A phase of its own has shown that the first job moves a byte in a millisecond.
    coordinator.handle(0, 0, begin(1)).unwrap();
    coordinator
        .handle(0, 0, Message::End { phase: 1, bytes: 1_000, io_ns: 1_000 * MS, waited_ns: 0 })
        .unwrap();
    coordinator.handle(0, 0, begin(2)).unwrap();
    coordinator.handle(0, 0, busy(2, 2_000)).unwrap();
    coordinator.handle(0, 1, begin(1)).unwrap();
    assert_eq!(
        pass(&mut coordinator, &mut now_ms, 9_900).0.last(),
        Some(&0),
        "two seconds, and four times two"
    );
    assert_eq!(pass(&mut coordinator, &mut now_ms, 400), (vec![1], vec![]));
    // A job that ends while it is idle has ended.
    coordinator.handle(now_ms * MS, 0, end(2, 2_000)).unwrap();
    assert_eq!(coordinator.jobs().map(|job| job.state).next(), Some(JobState::Computing));
}

#[test]
fn a_job_that_waits_for_tokens_is_not_idle() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    let mut now_ms = 0;
    for peer in [0, 1] {
        coordinator.handle(0, peer, hello(&peer.to_string(), false)).unwrap();
        coordinator.handle(0, peer, begin(1)).unwrap();
    }
    let progress = Progress { done_bytes: 1, spent_bytes: 1, wanted_bytes: 9 };
    coordinator
        .handle(0, 0, Message::Moved { phase: 1, progress, in_flight: 1, busy_ns: 0, is_resting: false })
        .unwrap();
    assert_eq!(pass(&mut coordinator, &mut now_ms, 20_000).0, [0]);
}

fn waiting(phase: u64) -> Message {
    let progress = Progress { wanted_bytes: 1 << 20, ..Progress::default() };
    Message::Moved { phase, progress, in_flight: 0, busy_ns: 0, is_resting: false }
}

fn moved(phase: u64, bytes: u64, in_flight: u32, busy_ns: u64) -> Message {
    let progress = Progress { done_bytes: bytes, spent_bytes: bytes, wanted_bytes: bytes };
    Message::Moved { phase, progress, in_flight, busy_ns, is_resting: false }
}

/// Two jobs of which the first is in its turn since 0 ms, and the other one begins to wait at 5 ms. In the first 4 ms the first one's
/// requests have taken `busy_ns`, and there is none under way.
fn waits_beside_one_that_took(busy_ns: u64) -> (Coordinator, u64) {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    for peer in [0, 1] {
        coordinator.handle(0, peer, hello(&peer.to_string(), false)).unwrap();
    }
    coordinator.handle(0, 0, begin(1)).unwrap();
    coordinator.handle(0, 0, busy(1, 1 << 20)).unwrap();
    coordinator.handle(4 * MS, 0, moved(1, 1 << 20, 0, busy_ns)).unwrap();
    coordinator.handle(5 * MS, 1, begin(1)).unwrap();
    coordinator.handle(5 * MS, 1, waiting(1)).unwrap();
    (coordinator, 5)
}

#[test]
fn a_job_that_waits_is_let_in_at_once_beside_one_that_hardly_uses_its_turn() {
    let (mut coordinator, mut now_ms) = waits_beside_one_that_took(MS);
    assert_eq!(pass(&mut coordinator, &mut now_ms, 1).0, [0, 1]);
    assert_eq!(coordinator.jobs().nth(1).map(|job| job.state), Some(JobState::Backfilled));
}

#[test]
fn a_job_that_uses_its_turn_is_left_alone_between_two_requests() {
    let (mut coordinator, mut now_ms) = waits_beside_one_that_took(4 * MS);
    assert_eq!(pass(&mut coordinator, &mut now_ms, 8), (vec![0], vec![1]));
    // It does not go on after all.
    assert_eq!(pass(&mut coordinator, &mut now_ms, 8).0, [1]);
}

#[test]
fn a_job_that_was_let_in_is_given_more_as_soon_as_it_waits_for_it() {
    let (mut coordinator, mut now_ms) = waits_beside_one_that_took(MS);
    pass(&mut coordinator, &mut now_ms, 1);
    let progress = Progress { done_bytes: 8 << 20, spent_bytes: 8 << 20, wanted_bytes: 9 << 20 };
    let message = Message::Moved { phase: 1, progress, in_flight: 0, busy_ns: MS / 10, is_resting: false };
    coordinator.handle(now_ms * MS, 1, message).unwrap();
    coordinator.tick((now_ms + 1) * MS);
    let credit = |(peer, message): (Peer, Message)| match message {
        Message::Credit { credit_bytes, .. } if peer == 1 => Some(credit_bytes),
        _ => None,
    };
    let credits: Vec<u64> = answers(&mut coordinator).into_iter().filter_map(credit).collect();
    assert!(credits.iter().any(|credit_bytes| *credit_bytes > 8 << 20), "{credits:?}");
}

/// Four jobs of 64 KiB every 3 ms, all in one endless phase, whichever has its turn: none waits for long.
#[test]
fn jobs_that_trickle_do_not_wait_for_each_other() {
    const JOBS: usize = 4;
    let mut coordinator = Coordinator::new(0, PolicyKind::Weir, Pace::default());
    let (mut spent, mut credit, mut ready_ms) = ([0u64; JOBS], [0u64; JOBS], [0u64; JOBS]);
    let mut waited_ms = [0u64; JOBS];
    for job in 0..JOBS {
        coordinator.handle(0, job, hello(&job.to_string(), false)).unwrap();
        coordinator.handle(0, job, begin(1)).unwrap();
    }
    for now_ms in 1..=2_000 {
        for job in 0..JOBS {
            if now_ms < ready_ms[job] {
                continue;
            }
            let is_let_in = spent[job] < credit[job];
            if is_let_in {
                spent[job] += 64 << 10;
                ready_ms[job] = now_ms + 3;
            } else {
                waited_ms[job] += 1;
            }
            let wanted_bytes = if is_let_in { spent[job] } else { spent[job] + (64 << 10) };
            let progress = Progress { done_bytes: spent[job], spent_bytes: spent[job], wanted_bytes };
            let busy_ns = spent[job] / (64 << 10) * MS / 20;
            coordinator
                .handle(
                    now_ms * MS,
                    job,
                    Message::Moved { phase: 1, progress, in_flight: 0, busy_ns, is_resting: false },
                )
                .unwrap();
        }
        coordinator.tick(now_ms * MS);
        for (job, message) in answers(&mut coordinator) {
            match message {
                Message::Grant { credit_bytes, .. } | Message::Credit { credit_bytes, .. } => {
                    credit[job] = credit_bytes;
                }
                Message::Hold { .. } => credit[job] = 0,
                _ => {}
            }
        }
    }
    assert!(waited_ms.iter().all(|ms| *ms < 300), "of 2 s: {waited_ms:?} ms");
}

/// Who is told now that its next phase is granted, or is not any more.
fn ahead(coordinator: &mut Coordinator) -> Vec<(Peer, bool)> {
    let of = |(peer, message)| match message {
        Message::Ahead { granted, .. } => Some((peer, granted)),
        _ => None,
    };
    answers(coordinator).into_iter().filter_map(of).collect()
}

#[test]
fn nobody_need_ask_while_nobody_uses_the_storage() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    let mut say = |peer, message| {
        coordinator.handle(MS, peer, message).unwrap();
        ahead(&mut coordinator)
    };
    // Peers 0 and 1 are nodes of one job.
    assert_eq!(say(0, hello("wide", false)), [(0, true)]);
    assert_eq!(say(1, hello("wide", false)), [(1, true)]);
    assert_eq!(say(2, hello("other", false)), [(2, true)]);
    assert_eq!(say(0, begin(1)), [(2, false)]);
    assert_eq!(say(2, begin(1)), [(0, false), (1, false)]);
    assert_eq!(say(0, end(1, 10)), [], "the other is in its phase");
    assert_eq!(say(2, end(1, 10)), [(0, true), (1, true), (2, true)]);
    assert_eq!(say(2, begin(2)), [(0, false), (1, false)]);
    assert_eq!(say(2, end(2, 10)), [(0, true), (1, true)], "it was not taken back");
    assert_eq!(say(1, begin(1)), [(2, false)]);
    coordinator.gone(MS, 1);
    assert_eq!(ahead(&mut coordinator), [(2, true)], "the phase ended with its node");
    // Under another policy everybody asks first; who is welcomed has no grant.
    coordinator.set_policy(MS, PolicyKind::Fair);
    assert_eq!(ahead(&mut coordinator), []);
    coordinator.handle(MS, 2, begin(3)).unwrap();
    coordinator.handle(MS, 2, end(3, 10)).unwrap();
    assert_eq!(ahead(&mut coordinator), [(0, true), (2, true)]);
}

fn rest(phase: u64, bytes: u64, is_resting: bool) -> Message {
    let progress = Progress { done_bytes: bytes, spent_bytes: bytes, wanted_bytes: bytes };
    Message::Moved { phase, progress, in_flight: u32::from(!is_resting), busy_ns: 0, is_resting }
}

/// A phase ends some time after its last byte, so that pauses within it are told from those between phases. Nobody waits for that.
#[test]
fn nobody_waits_for_a_phase_that_is_as_good_as_over() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    let mut now_ns = 0;
    let mut say = |peer, message| {
        now_ns += MS;
        coordinator.handle(now_ns, peer, message).unwrap();
        coordinator.tick(now_ns);
        answers(&mut coordinator)
    };
    let is_told = |answers: &[(Peer, Message)], peer: Peer, of: fn(&Message) -> bool| {
        answers.iter().any(|(to, message)| *to == peer && of(message))
    };
    let is_let_in = |message: &Message| matches!(message, Message::Grant { credit_bytes: u64::MAX, .. });
    (0..3).for_each(|peer| _ = say(peer, hello(&peer.to_string(), false)));
    say(0, begin(1));
    let held = say(1, begin(1));
    assert!(is_told(&held, 1, |message| matches!(message, Message::Hold { .. })), "{held:?}");
    say(1, waiting(1));
    let answers = say(0, rest(1, 100, true));
    assert!(is_told(&answers, 1, is_let_in), "{answers:?}");
    // It was not the end: whoever was let in is stopped, or has a little left.
    let answers = say(0, rest(1, 200, false));
    let is_stopped = |message: &Message| match message {
        Message::Credit { credit_bytes, .. } => *credit_bytes < 1 << 20,
        message => matches!(message, Message::Hold { .. }),
    };
    assert!(is_told(&answers, 1, is_stopped), "{answers:?}");
    // When all have done what they wanted, the next need not ask.
    say(1, rest(1, 100, true));
    let answers = say(0, rest(1, 300, true));
    assert!(
        is_told(&answers, 2, |message| matches!(message, Message::Ahead { granted: true })),
        "{answers:?}"
    );
}

/// A policy that may leave a job waiting though it is alone is asked, and so is a coordinator that does not know all yet.
#[test]
fn nothing_is_granted_before_it_is_sure() {
    for (policy, rejoins) in [(PolicyKind::ApioBarrier, false), (PolicyKind::Exclusive, true)] {
        let mut coordinator = Coordinator::new(0, policy, Pace::default());
        coordinator.handle(MS, 0, hello("job", rejoins)).unwrap();
        assert_eq!(ahead(&mut coordinator), [], "{policy}");
    }
}

#[test]
fn a_bad_hello_is_refused_by_its_field() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Weir, Pace::default());
    let refused = |coordinator: &mut Coordinator, change: fn(&mut Message)| {
        let mut message = hello("job", false);
        change(&mut message);
        coordinator.handle(0, 7, message).unwrap_err()
    };
    let nameless = refused(&mut coordinator, |message| {
        if let Message::Hello { identity, .. } = message {
            identity.job.clear();
        }
    });
    assert_eq!(nameless, "job: none");
    let endless = refused(&mut coordinator, |message| {
        if let Message::Hello { identity, .. } = message {
            identity.host = "x".repeat(256);
        }
    });
    assert!(endless.starts_with("host: more than 255 bytes"), "{endless}");
    let empty = refused(&mut coordinator, |message| {
        if let Message::Hello { identity, .. } = message {
            identity.ranks = 0;
        }
    });
    assert_eq!(empty, "ranks: none");
    assert!(!coordinator.is_node(7));
}

fn announced(coordinator: &Coordinator) -> Option<u64> {
    coordinator.jobs().next().and_then(|job| job.announced_bytes)
}

#[test]
fn a_size_is_known_when_all_nodes_have_said_theirs() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Weir, Pace::default());
    let mut say = |peer, message| {
        coordinator.handle(MS, peer, message).unwrap();
        announced(&coordinator)
    };
    for peer in [0, 1] {
        say(peer, hello("wide", false));
    }
    let sized = |phase, bytes| Message::Begin { phase, bytes: Some(bytes) };
    assert_eq!(say(0, sized(1, 100)), None, "the other node will have more");
    assert_eq!(say(1, sized(1, 50)), Some(150));
    assert_eq!(say(1, Message::Announce { phase: 1, bytes: Some(70), known_bytes: 0 }), Some(170));
    assert_eq!(
        say(1, Message::Announce { phase: 9, bytes: Some(1), known_bytes: 0 }),
        Some(170),
        "of another"
    );
    assert_eq!(say(1, busy(1, 60)), Some(170));
    assert_eq!(say(1, end(1, 60)), Some(160), "it has moved less");
    assert_eq!(say(0, busy(1, 101)), None, "more than it said");
    assert_eq!(say(0, end(1, 101)), None);
    // One of them is not in the next phase, and cannot be known not to come.
    assert_eq!(say(1, sized(2, u64::MAX)), None);
    assert_eq!(say(0, sized(2, u64::MAX)), Some(u64::MAX));
}

#[test]
fn what_is_known_to_come_counts_where_it_is_more_than_usual() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Weir, Pace::default());
    let mut say = |message| {
        coordinator.handle(MS, 0, message).unwrap();
        announced(&coordinator)
    };
    say(hello("job", false));
    let known = |phase, known_bytes| Message::Announce { phase, bytes: None, known_bytes };
    say(begin(1));
    assert_eq!(say(known(1, 100)), Some(100), "better than nothing");
    assert_eq!(say(busy(1, 100)), Some(100));
    assert_eq!(say(known(1, 300)), Some(300));
    say(end(1, 300));
    say(begin(2));
    assert_eq!(say(known(2, 100)), None, "the least of what it usually moves");
    assert_eq!(say(known(2, 400)), Some(400));
    assert_eq!(say(busy(2, 500)), None, "it goes on beyond that");
}

#[test]
fn a_period_that_is_told_counts_from_the_next_phase_on() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Set10, Pace::default());
    let w_iter_ns = |coordinator: &Coordinator| coordinator.jobs().next().map(|job| job.w_iter_ns());
    coordinator.handle(0, 0, hello("job", false)).unwrap();
    coordinator.handle(0, 0, begin(1)).unwrap();
    coordinator.handle(0, 0, Message::Expect { period_ns: Some(7 * MS) }).unwrap();
    assert_ne!(w_iter_ns(&coordinator), Some(7e6));
    coordinator.handle(MS, 0, end(1, 1)).unwrap();
    coordinator.handle(MS, 0, begin(2)).unwrap();
    assert_eq!(w_iter_ns(&coordinator), Some(7e6));
    coordinator.set_policy(MS, PolicyKind::Weir);
    assert_eq!(w_iter_ns(&coordinator), Some(7e6));
}

#[test]
fn a_site_knows_its_applications_and_what_a_node_can_do() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Weir, Pace::default());
    let instance = InstanceInfo { work_s: 100.0, io_s: 12.0 };
    let applications = vec![ApplicationInfo { name: "lammps".into(), instance }];
    coordinator.set_site(0, Site { applications, node_part: Some(0.25), ..Site::default() });
    for (peer, name) in ["lammps", "other"].into_iter().enumerate() {
        let Message::Hello { mut identity, .. } = hello(name, false) else { unreachable!() };
        (identity.application, identity.nodes) = (name.into(), peer as u32 + 1);
        coordinator.handle(0, peer, Message::Hello { identity, rejoins: false, epoch: 0 }).unwrap();
        coordinator.handle(0, peer, begin(1)).unwrap();
    }
    let known: Vec<f64> = coordinator.jobs().map(|job| job.w_iter_ns()).collect();
    assert_eq!(known[0], 112e9);
    assert_ne!(known[1], 112e9);
    // One and two nodes of four use three quarters: both go at once under a policy that serves one after the other otherwise.
    let states: Vec<JobState> = coordinator.jobs().map(|job| job.state).collect();
    assert_eq!(states, [JobState::Granted { share: 0.25 }, JobState::Granted { share: 0.5 }]);
}

#[derive(Clone, Debug)]
enum Deed {
    Join(Peer),
    Begin(Peer),
    End(Peer),
    Gone(Peer),
    Wait,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        (0..4usize).prop_map(Deed::Join),
        (0..4usize).prop_map(Deed::Begin),
        (0..4usize).prop_map(Deed::End),
        (0..4usize).prop_map(Deed::Gone),
        Just(Deed::Wait),
    ]
}

proptest! {
    /// Under `exclusive` at most one holds a grant, and while somebody asks, somebody has it.
    #[test]
    fn exclusive_grants_exactly_one(deeds in prop::collection::vec(deed(), 1..80)) {
        let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
        let mut phases: [Option<(u64, bool)>; 4] = [None; 4];
        let mut number = 0;
        for (at, deed) in deeds.into_iter().enumerate() {
            let now_ns = at as u64 * MS;
            number += 1;
            match deed {
                Deed::Join(peer) if !coordinator.is_node(peer) => {
                    coordinator.handle(now_ns, peer, hello(&peer.to_string(), false)).unwrap();
                }
                Deed::Begin(peer) if coordinator.is_node(peer) && phases[peer].is_none() => {
                    phases[peer] = Some((number, false));
                    coordinator.handle(now_ns, peer, begin(number)).unwrap();
                }
                Deed::End(peer) => {
                    if let Some((phase, _)) = phases[peer].take() {
                        coordinator.handle(now_ns, peer, end(phase, 1)).unwrap();
                    }
                }
                Deed::Gone(peer) => {
                    phases[peer] = None;
                    coordinator.gone(now_ns, peer);
                }
                _ => {}
            }
            coordinator.tick(now_ns);
            for (peer, message) in answers(&mut coordinator) {
                match (message, &mut phases[peer]) {
                    (Message::Grant { phase, credit_bytes, .. }, Some((own, granted))) if phase == *own => {
                        prop_assert_eq!(credit_bytes, UNLIMITED);
                        *granted = true;
                    }
                    (Message::Hold { phase, .. }, Some((own, granted))) if phase == *own => *granted = false,
                    _ => {}
                }
            }
            let granted = phases.iter().flatten().filter(|(_, granted)| *granted).count();
            prop_assert_eq!(granted, usize::from(phases.iter().flatten().next().is_some()));
        }
    }
}

fn hello_again(job: &str, past: Past) -> Message {
    let Message::Hello { identity, epoch, .. } = hello(job, true) else { unreachable!() };
    let identity = Box::new(Identity { past, ..*identity });
    Message::Hello { identity, rejoins: true, epoch }
}

/// A coordinator that takes over counts on from what the jobs tell, and of several nodes the one that knows most is believed.
#[test]
fn stalls_outlive_a_coordinator() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Exclusive, Pace::default());
    let past = |stalled_ms| Past { life_ns: 10_000 * MS, stalled_ns: stalled_ms * MS, ..Past::default() };
    coordinator.handle(0, 0, hello_again("first", past(0))).unwrap();
    coordinator.handle(0, 1, hello_again("second", past(300))).unwrap();
    coordinator.handle(0, 2, hello_again("second", past(500))).unwrap();
    coordinator.handle(0, 3, hello_again("second", past(200))).unwrap();
    coordinator.tick(100 * MS);
    let stalled_ms = |coordinator: &Coordinator, now_ms: u64| -> Vec<u64> {
        coordinator.jobs().map(|job| job.stalled_ns(now_ms * MS) / MS).collect()
    };
    assert_eq!(stalled_ms(&coordinator, 100), [0, 500]);
    coordinator.handle(200 * MS, 0, begin(1)).unwrap();
    coordinator.handle(300 * MS, 1, begin(1)).unwrap();
    assert_eq!(stalled_ms(&coordinator, 350), [0, 550], "held behind the first");
    coordinator.set_policy(400 * MS, PolicyKind::Weir);
    assert_eq!(stalled_ms(&coordinator, 450), [50, 600], "another policy knows of it, and turns them round");
    coordinator.handle(500 * MS, 0, end(1, 1)).unwrap();
    assert_eq!(stalled_ms(&coordinator, 900), [100, 600], "one has its turn and the other is done");
    coordinator.handle(1_000 * MS, 2, hello_again("second", past(9_000))).unwrap_err();
    coordinator.handle(1_000 * MS, 4, hello_again("second", past(9_000))).unwrap();
    assert_eq!(stalled_ms(&coordinator, 1_000), [100, 600], "it is too late to say so");
}

/// What was seen of a job while it was alone is told to it when it is much more than before, and only then.
#[test]
fn a_job_hears_what_was_seen_of_it() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Weir, Pace::default());
    coordinator.handle(0, 0, hello("job", false)).unwrap();
    let mut seen = Vec::new();
    for phase in 1..=8 {
        let began_ns = phase * 1_000 * MS;
        coordinator.handle(began_ns, 0, begin(phase)).unwrap();
        coordinator.handle(began_ns + 500 * MS, 0, end(phase, 1_000)).unwrap();
        let told = answers(&mut coordinator).into_iter().filter_map(|(_, message)| match message {
            Message::Seen { alone } => Some((phase, alone.ns / MS, alone.bytes)),
            _ => None,
        });
        seen.extend(told);
    }
    assert_eq!(
        seen,
        [(1, 500, 1_000), (2, 1_000, 2_000), (3, 1_500, 3_000), (5, 2_500, 5_000), (7, 3_500, 7_000)]
    );
}

/// What a job has reported as done stays done, whatever it reports later.
#[test]
fn reports_do_not_go_back() {
    let mut coordinator = Coordinator::new(0, PolicyKind::Fair, Pace::default());
    coordinator.handle(0, 0, hello("job", false)).unwrap();
    coordinator.handle(0, 0, begin(1)).unwrap();
    let mut done = |now_ms: u64, message| {
        coordinator.handle(now_ms * MS, 0, message).unwrap();
        coordinator.jobs().next().map(|job| job.done_bytes)
    };
    let moved = |done_bytes| {
        let progress = Progress { done_bytes, spent_bytes: done_bytes, wanted_bytes: done_bytes };
        Message::Moved { phase: 1, progress, in_flight: 1, busy_ns: 0, is_resting: false }
    };
    assert_eq!(done(1, moved(50)), Some(50));
    assert_eq!(done(2, moved(20)), Some(50));
    assert_eq!(done(3, moved(70)), Some(70));
    assert_eq!(done(4, end(1, 60)), Some(70));
}
