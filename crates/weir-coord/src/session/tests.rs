//! The session in virtual time, one input after the other.

use super::*;
use crate::auth::Key;
use crate::wire::Message;
use weir_engine::engine::Past;

const MS: u64 = 1_000_000;

/// A session whose outputs are kept.
struct Play {
    now_ns: u64,
    session: Session,
    out: Vec<Output>,
    sum: Sum,
}

impl Play {
    fn new(wanted: Wanted) -> Play {
        let limits = Limits { phase_gap_ns: Some(20 * MS), max_wait_ns: 2_000 * MS, free_bytes: 0 };
        let identity = Identity { job: "job".into(), ranks: 1, nodes: 1, ..Identity::default() };
        let session = Session::new(0, identity, wanted, limits, &Sum::default());
        Play { now_ns: 0, session, out: Vec::new(), sum: Sum::default() }
    }

    /// A session that was welcomed.
    fn joined() -> Play {
        let mut play = Play::new(Wanted::Service);
        play.tell(Input::Tick);
        play.tell(Input::Connected(Peer { name: String::new(), secret: None }));
        play.hear(welcome(0));
        assert!(play.session.is_joined());
        play.out.clear();
        play
    }

    fn tell(&mut self, input: Input) {
        self.session.step(self.now_ns, input, &mut self.out);
    }

    fn hear(&mut self, message: Message) {
        self.tell(Input::Received(message));
    }

    fn look(&mut self) {
        let sum = self.sum;
        self.session.step(self.now_ns, Input::Look(&sum), &mut self.out);
    }

    /// Lets time pass, with every tick that is due.
    fn pass(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.session.deadline_ns() <= until_ns {
            self.now_ns = self.session.deadline_ns().max(self.now_ns + 1);
            self.tell(Input::Tick);
        }
        self.now_ns = until_ns;
    }

    /// A rank begins to wait for a request.
    fn begin(&mut self) {
        self.sum.waiting = 1;
        self.sum.waiting_bytes = 100;
        self.look();
    }

    fn said(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }
}

fn welcome(epoch: u64) -> Message {
    let policy = "fair".into();
    Message::Welcome { lease_ms: 800, beat_ms: 200, report_ms: 2, policy, orders: false, epoch }
}

fn grant(phase: u64, credit_bytes: u64) -> Message {
    Message::Grant { phase, share: 1.0, credit_bytes, expected_ns: 0 }
}

fn hold(phase: u64) -> Message {
    Message::Hold { phase, expected_ns: u64::MAX }
}

fn ahead(granted: bool) -> Message {
    Message::Ahead { granted }
}

#[test]
fn a_phase_asks_and_the_answer_moves_the_gate() {
    let mut play = Play::joined();
    play.begin();
    assert!(play.said().contains(&Output::Send(Message::Begin { phase: 1, bytes: None })));
    assert_eq!(play.session.gate(), Gate::Closed);
    assert!(play.session.is_asking());
    play.hear(hold(1));
    assert_eq!((play.session.gate(), play.session.is_asking()), (Gate::Closed, false));
    assert_eq!(play.said(), [Output::Word(Word::Held)]);
    play.hear(grant(1, 500));
    assert_eq!(play.session.gate(), Gate::Granted { credit_bytes: 500 });
    play.hear(Message::Credit { phase: 1, share: 0.5, credit_bytes: 700, expected_ns: 0 });
    assert_eq!(play.session.gate(), Gate::Granted { credit_bytes: 700 });
    play.hear(grant(7, 1));
    play.hear(Message::Credit { phase: 7, share: 0.5, credit_bytes: 1, expected_ns: 0 });
    assert_eq!(play.session.gate(), Gate::Granted { credit_bytes: 700 }, "words on another phase");
    play.hear(hold(1));
    play.hear(Message::Credit { phase: 1, share: 0.5, credit_bytes: 900, expected_ns: 0 });
    assert_eq!(play.session.gate(), Gate::Closed, "a credit without a grant");
}

#[test]
fn a_phase_that_is_granted_ahead_begins_open_and_says_so() {
    let mut play = Play::joined();
    play.hear(ahead(true));
    assert_eq!(play.session.gate(), Gate::Ahead);
    play.sum = Sum { in_flight: 1, spent_bytes: 10, ..Sum::default() };
    play.look();
    assert_eq!(play.session.gate(), Gate::Granted { credit_bytes: UNLIMITED });
    assert!(!play.session.is_asking());
    play.hear(ahead(false));
    assert_eq!(play.session.gate(), Gate::Granted { credit_bytes: UNLIMITED }, "this phase goes on");
    play.sum = Sum { spent_bytes: 10, done_bytes: 10, ..Sum::default() };
    play.now_ns += 100 * MS;
    play.look();
    assert_eq!(play.session.phase(), None);
    assert_eq!(play.session.gate(), Gate::Closed, "the next one asks");
}

#[test]
fn a_silent_coordinator_is_lost_and_the_gate_opens_within_a_second() {
    let mut play = Play::joined();
    play.begin();
    play.hear(hold(1));
    play.said();
    play.pass(599 * MS);
    assert!(play.session.is_joined());
    play.pass(MS);
    assert!(!play.session.is_joined());
    assert_eq!(play.session.gate(), Gate::Closed, "what was said last holds");
    play.pass(299 * MS);
    assert_eq!(play.session.gate(), Gate::Closed);
    play.pass(MS);
    assert_eq!(play.session.gate(), Gate::Open { reason: OpenReason::NoCoordinator });
    let words: Vec<Output> =
        play.said().into_iter().filter(|output| matches!(output, Output::Word(_))).collect();
    assert!(
        matches!(&words[..], [Output::Word(Word::Lost { .. }), Output::Word(Word::Opened { .. })]),
        "{words:?}"
    );
}

#[test]
fn a_new_coordinator_hears_of_the_phase_and_its_grant() {
    let mut play = Play::joined();
    play.begin();
    play.hear(grant(1, UNLIMITED));
    play.now_ns += 50 * MS;
    play.tell(Input::Broken { reason: "gone".into() });
    assert_eq!(play.session.gate(), Gate::Granted { credit_bytes: UNLIMITED });
    play.pass(10 * MS);
    play.tell(Input::Connected(Peer { name: String::new(), secret: None }));
    play.said();
    play.hear(welcome(0));
    let resumed = play.said().into_iter().find_map(|output| match output {
        Output::Send(Message::Resume { phase, age_ns, granted, .. }) => Some((phase, age_ns, granted)),
        _ => None,
    });
    assert_eq!(resumed, Some((1, 60 * MS, true)));
    play.hear(hold(1));
    assert_eq!(play.session.gate(), Gate::Closed);
}

#[test]
fn a_limit_opens_the_phase_and_no_other() {
    let mut play = Play::joined();
    play.begin();
    play.hear(hold(1));
    play.sum.limit_reached = true;
    play.look();
    assert_eq!(play.session.gate(), Gate::Open { reason: OpenReason::Limit });
    play.hear(hold(1));
    assert_eq!(play.session.gate(), Gate::Open { reason: OpenReason::Limit });
    play.sum = Sum::default();
    play.now_ns += 100 * MS;
    play.look();
    assert_eq!((play.session.phase(), play.session.gate()), (None, Gate::Closed));
}

#[test]
fn a_coordinator_of_an_older_epoch_is_not_obeyed() {
    let mut play = Play::new(Wanted::Service);
    let peer = || Peer { name: "it: ".into(), secret: None };
    play.tell(Input::Tick);
    play.tell(Input::Connected(peer()));
    play.hear(welcome(7));
    play.tell(Input::Broken { reason: "gone".into() });
    play.pass(100 * MS);
    play.tell(Input::Connected(peer()));
    play.said();
    play.hear(welcome(6));
    assert!(!play.session.is_joined());
    let refused = Word::Refused { reason: "it: it was replaced by another coordinator".into() };
    assert!(play.said().contains(&Output::Word(refused)));
    play.pass(2_000 * MS);
    play.tell(Input::Connected(peer()));
    play.hear(welcome(7));
    assert!(play.session.is_joined());
}

#[test]
fn nothing_is_obeyed_before_the_key_is_proven() {
    let (key, other) = (Key::from_text("a key that both have"), Key::from_text("another key"));
    for (coordinators_key, is_joined) in [(&key, true), (&other, false)] {
        let mut play = Play::new(Wanted::Service);
        play.begin();
        play.tell(Input::Tick);
        play.tell(Input::Connected(Peer { name: String::new(), secret: Some((key.clone(), [7; 32])) }));
        play.hear(grant(1, UNLIMITED));
        assert_eq!(play.session.gate(), Gate::Closed);
        play.said();
        play.hear(Message::Challenge { nonce: [9; 32] });
        let Some(Output::Send(Message::Proof { nonce, mac })) = play.said().pop() else { panic!("no proof") };
        assert!(key.is_client_mac(&[9; 32], &nonce, &mac));
        play.hear(Message::Proven { mac: coordinators_key.server_mac(&[9; 32], &nonce) });
        play.hear(welcome(0));
        assert_eq!(play.session.is_joined(), is_joined);
    }
}

#[test]
fn an_election_tries_the_office_then_the_socket_then_the_published_address() {
    let mut play = Play::new(Wanted::Election { network: true });
    play.tell(Input::Tick);
    assert_eq!(play.said(), [Output::TakeOffice]);
    play.tell(Input::Office(Ok(false)));
    assert_eq!(play.said(), [Output::Connect(Route::Socket)]);
    play.tell(Input::NotConnected { reason: "nobody".into() });
    assert_eq!(play.said(), [Output::Connect(Route::Published)]);
    play.tell(Input::NotConnected { reason: "nobody".into() });
    assert_eq!(play.said(), []);
    play.pass(MS);
    assert_eq!(play.said(), [Output::TakeOffice]);
    play.tell(Input::Office(Ok(true)));
    assert_eq!(play.said(), [Output::Connect(Route::Own)]);
    assert!(play.session.seeker.is_in_office());
    play.tell(Input::Connected(Peer { name: String::new(), secret: None }));
    play.hear(welcome(0));
    play.said();
    play.pass(250 * MS);
    assert!(play.said().contains(&Output::CheckOffice));
    play.tell(Input::OfficeLost);
    assert!(!play.session.seeker.is_in_office());
}

#[test]
fn questions_without_a_coordinator_are_answered_at_once() {
    let mut play = Play::new(Wanted::Service);
    play.tell(Input::Ask { request: 3, file: FileInfo::default() });
    play.tell(Input::Read(Reader { number: 2, call: 5, ..Reader::default() }));
    let answers = [Output::Word(Word::no_opinion(3)), Output::Word(Word::Turn { number: 2, call: 5 })];
    assert_eq!(play.said(), answers);
    let mut play = Play::joined();
    play.tell(Input::Ask { request: 3, file: FileInfo::default() });
    play.tell(Input::Read(Reader { number: 2, call: 5, ..Reader::default() }));
    play.said();
    play.tell(Input::Broken { reason: "gone".into() });
    let said = play.said();
    assert!(answers.iter().all(|answer| said.contains(answer)), "{said:?}");
}

/// What was said of phases, in order: what each was announced to move when it began and later, and at least.
fn announced(play: &mut Play) -> Vec<(u64, Option<u64>, u64)> {
    let of = |output| match output {
        Output::Send(Message::Begin { phase, bytes }) => Some((phase, bytes, 0)),
        Output::Send(Message::Announce { phase, bytes, known_bytes }) => Some((phase, bytes, known_bytes)),
        _ => None,
    };
    play.said().into_iter().filter_map(of).collect()
}

#[test]
fn what_a_program_announces_of_a_phase_is_said_until_it_moves_more() {
    let mut play = Play::joined();
    play.sum = Sum { marks: 1, announced_bytes: 100, ..Sum::default() };
    play.look();
    assert_eq!(announced(&mut play), [(1, Some(100), 0)]);
    // Another rank of the node comes later.
    play.now_ns += 5 * MS;
    play.sum = Sum { marks: 2, announced_bytes: 300, in_flight: 1, spent_bytes: 300, ..Sum::default() };
    play.look();
    assert_eq!(announced(&mut play), [(1, Some(300), 0)]);
    play.now_ns += 5 * MS;
    play.sum.spent_bytes = 301;
    play.look();
    assert_eq!(announced(&mut play), [(1, None, 0)], "more than it said");
    play.sum = Sum { announced_bytes: 300, spent_bytes: 301, done_bytes: 301, ..Sum::default() };
    play.now_ns += 5 * MS;
    play.look();
    assert_eq!(play.session.phase(), None);
    // The next one is not announced, but expected.
    play.now_ns += 5 * MS;
    play.sum = Sum { waiting: 1, waiting_bytes: 9, usual_bytes: 40, ..play.sum };
    play.look();
    assert_eq!(announced(&mut play), [(2, Some(40), 0)]);
}

#[test]
fn what_collective_writes_will_move_is_said_while_they_wait() {
    let mut play = Play::joined();
    play.sum = Sum { foretold_bytes: 1000, calling: 1, ..Sum::default() };
    play.look();
    assert_eq!(announced(&mut play), [], "data is exchanged before anything is moved");
    play.begin();
    assert_eq!(announced(&mut play), [(1, None, 0), (1, None, 1000)]);
    play.hear(grant(1, UNLIMITED));
    play.now_ns += 5 * MS;
    play.sum = Sum { foretold_bytes: 1200, calling: 2, ..play.sum };
    play.look();
    assert_eq!(announced(&mut play), [], "hardly more");
    play.now_ns += 5 * MS;
    play.sum = Sum { foretold_bytes: 2000, calling: 2, ..play.sum };
    play.look();
    assert_eq!(announced(&mut play), [(1, None, 2000)]);
    // The calls return, and what they were to move is no matter of the next phase.
    play.sum = Sum { foretold_bytes: 2000, spent_bytes: 1500, done_bytes: 1500, ..Sum::default() };
    play.look();
    play.now_ns += 100 * MS;
    play.look();
    assert_eq!(play.session.phase(), None);
    play.said();
    play.begin();
    assert_eq!(announced(&mut play), [(2, None, 0)]);
}

#[test]
fn the_period_is_said_when_it_changes_and_to_the_next_coordinator() {
    let mut play = Play::joined();
    play.sum.period_ns = 7 * MS;
    play.look();
    play.look();
    assert_eq!(play.said(), [Output::Send(Message::Expect { period_ns: Some(7 * MS) })]);
    play.tell(Input::Broken { reason: "cut".into() });
    play.said();
    play.tell(Input::Connected(Peer { name: String::new(), secret: None }));
    let hello = play.said().into_iter().find_map(|output| match output {
        Output::Send(Message::Hello { identity, .. }) => Some(identity.period_ns),
        _ => None,
    });
    assert_eq!(hello, Some(Some(7 * MS)));
}

#[test]
fn ranks_can_ask_how_their_job_stands() {
    let mut play = Play::new(Wanted::Service);
    assert_eq!(play.session.prospect(), None, "nobody coordinates");
    play = Play::joined();
    play.now_ns = 10 * MS;
    play.begin();
    play.hear(Message::Hold { phase: 1, expected_ns: 5 * MS });
    assert_eq!(play.session.prospect(), Some(Prospect { share: 0.0, go_on_ns: 15 * MS }));
    play.hear(Message::Grant { phase: 1, share: 0.5, credit_bytes: 1, expected_ns: 3 * MS });
    assert_eq!(play.session.prospect(), Some(Prospect { share: 0.5, go_on_ns: 13 * MS }));
    play.sum = Sum { in_flight: 1, spent_bytes: 100, ..Sum::default() };
    play.look();
    assert_eq!(play.session.prospect(), Some(Prospect { share: 0.5, go_on_ns: 0 }), "nothing waits");
    play.hear(Message::Credit { phase: 1, share: 0.25, credit_bytes: 1, expected_ns: 0 });
    assert_eq!(play.session.prospect().map(|prospect| prospect.share), Some(0.25));
    play.hear(grant(1, UNLIMITED));
    assert_eq!(play.session.prospect(), Some(Prospect { share: 1.0, go_on_ns: 0 }));
}

/// What the job says of its past to a coordinator that it finds now.
fn told_past(play: &mut Play) -> Past {
    play.tell(Input::Broken { reason: "closed".into() });
    play.tell(Input::Tick);
    play.said();
    play.tell(Input::Connected(Peer { name: String::new(), secret: None }));
    let hello = play.said().into_iter().find_map(|output| match output {
        Output::Send(Message::Hello { identity, .. }) => Some(identity.past),
        _ => None,
    });
    hello.expect("it greets")
}

#[test]
fn a_new_coordinator_hears_how_long_the_job_was_held() {
    let mut play = Play::joined();
    play.now_ns += 50 * MS;
    play.begin();
    play.now_ns += 100 * MS;
    play.hear(Message::Grant { phase: 1, share: 0.0, credit_bytes: 9, expected_ns: 0 });
    play.now_ns += 20 * MS;
    play.hear(grant(1, UNLIMITED));
    play.now_ns += 30 * MS;
    play.hear(hold(1));
    play.now_ns += 5 * MS;
    let alone = SeenAlone { ns: 7, bytes: 9 };
    play.hear(Message::Seen { alone });
    let past = told_past(&mut play);
    assert_eq!(
        past,
        Past { life_ns: 205 * MS, stalled_ns: 125 * MS, alone },
        "held, backfilled and held again"
    );
}

#[test]
fn a_job_that_nobody_coordinates_is_not_held() {
    let mut play = Play::joined();
    play.begin();
    play.hear(hold(1));
    play.tell(Input::Broken { reason: "closed".into() });
    play.pass(1_000 * MS);
    assert_eq!(play.session.gate(), Gate::Open { reason: OpenReason::NoCoordinator });
    assert_eq!(play.session.stalled_ns(play.now_ns), 300 * MS, "until the gate opened");
}

/// A rank that dies takes what it has not said with it: what the coordinator has heard stays so.
#[test]
fn what_a_phase_has_done_does_not_go_back() {
    let mut play = Play::joined();
    let mut done = |in_flight, spent_bytes, done_bytes| {
        play.sum = Sum { in_flight, spent_bytes, done_bytes, ..Sum::default() };
        play.now_ns += 5 * MS;
        play.look();
        let moved = play.said().into_iter().find_map(|output| match output {
            Output::Send(Message::Moved { progress, .. }) => Some(progress),
            _ => None,
        });
        moved.map(|progress| (progress.done_bytes, progress.spent_bytes))
    };
    assert_eq!(done(2, 100, 50), Some((50, 100)));
    assert_eq!(done(0, 100, 100), Some((100, 100)), "the rank is dead, so nothing is under way");
    assert_eq!(done(1, 200, 150), Some((150, 200)), "another rank goes on");
    assert_eq!(done(1, 120, 100), Some((150, 170)), "it has died too: only the last one's request is inside");
}
