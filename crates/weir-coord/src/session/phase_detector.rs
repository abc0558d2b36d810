//! Finds the phases of a job in what its ranks do on a node.

use super::Gate;
use crate::ledger::{BUSY_UNIT_NS, Sum};
use crate::wire::Progress;
use weir_profile::phases::{self, Span};

/// Pauses up to this long are part of doing I/O.
const FLOOR_NS: u64 = 10_000_000;
/// The longest pause within a phase while nothing is known of the program …
const FIRST_GAP_NS: u64 = 50_000_000;
/// … and at most: nobody keeps its turn for longer without using it.
const MAX_GAP_NS: u64 = 1_000_000_000;
/// A request may take at least this long before it is taken to be lost, however little others are to wait.
const MIN_PATIENCE_NS: u64 = 1_000_000_000;
/// When all files are closed, this long a pause ends the phase: another file may follow.
const CLOSED_GAP_NS: u64 = 10_000_000;
/// What is moved without a turn is counted anew this often.
pub const FREE_WINDOW_NS: u64 = 100_000_000;
/// A phase that has moved this part of what phases of the job move on average is taken to be whole, once there were so many.
const WHOLE: f64 = 0.9;
const MIN_PHASES: usize = 2;
/// Bursts that are remembered, to learn the gap from.
const MAX_BURSTS: usize = 256;

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    None,
    Began,
    Ended(Ended),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    pub bytes: u64,
    pub io_ns: u64,
    pub waited_ns: u64,
}

#[derive(Default)]
pub struct PhaseDetector {
    /// Given by the user; else learnt.
    fixed_gap_ns: Option<u64>,
    gap_ns: Option<u64>,
    phase: Option<Phase>,
    /// All phases so far, for `w_iter`.
    phases: Vec<Span>,
    bursts: Vec<Span>,
    /// What was spent when last looked; between phases, when the bytes that may move without a turn were last counted.
    seen_bytes: u64,
    /// What may move without a turn on this node in [`FREE_WINDOW_NS`], and when that was last counted.
    free_bytes: u64,
    free_since_ns: u64,
    /// Time that requests had taken when last looked, as in [`Sum::busy`].
    seen_busy: u32,
    numbers: u64,
    /// When the leader is to be called, as bytes spent since the job began.
    call_at_bytes: u64,
    /// Marks that outlived their phase: they begin no other.
    stale_marks: u32,
    /// After so long without a sign of life, requests in flight are taken to be lost.
    patience_ns: u64,
    /// Those that are: a signal handler left them by `siglongjmp`, or the storage does not answer. They keep no turn.
    lost_in_flight: u32,
    /// The same of requests that wait, for longer than any may.
    lost_waiting: u32,
    /// What of [`Sum::announced_bytes`] and [`Sum::foretold_bytes`] belongs to earlier phases.
    past_announced_bytes: u64,
    past_foretold_bytes: u64,
    /// What was seen last of the requests, and since when it has been so.
    seen: (u32, u32, u64, u64),
    seen_since_ns: u64,
}

/// What the phase under way will move on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Volume {
    /// What the program says, unless it has moved more already.
    pub(super) said_bytes: Option<u64>,
    /// What collective writes were to move so far.
    pub(super) known_bytes: u64,
}

struct Phase {
    began_ns: u64,
    /// The sum when it began.
    base: Sum,
    first_burst: bool,
}

impl PhaseDetector {
    pub fn new(fixed_gap_ns: Option<u64>, patience_ns: u64, free_bytes: u64, sum: &Sum) -> PhaseDetector {
        // What was announced before anything was moved is announced of the first phase.
        let is_first = sum.spent_bytes == 0;
        PhaseDetector {
            past_announced_bytes: if is_first { 0 } else { sum.announced_bytes },
            past_foretold_bytes: if is_first { 0 } else { sum.foretold_bytes },
            fixed_gap_ns,
            patience_ns: patience_ns.max(MIN_PATIENCE_NS),
            free_bytes,
            seen_bytes: sum.spent_bytes,
            seen_busy: sum.busy,
            ..PhaseDetector::default()
        }
    }

    /// What the gate holds between phases if the next one has to ask.
    pub(super) fn free_gate(&self) -> Gate {
        match self.free_bytes {
            0 => Gate::Closed,
            free_bytes => Gate::Free { credit_bytes: self.seen_bytes.saturating_add(free_bytes) },
        }
    }

    /// Time that requests have taken since this was last asked.
    pub(super) fn take_busy_ns(&mut self, sum: &Sum) -> u64 {
        let before = std::mem::replace(&mut self.seen_busy, sum.busy);
        u64::from(sum.busy.wrapping_sub(before)) * BUSY_UNIT_NS
    }

    /// What was spent before the phase under way.
    pub(super) fn base_bytes(&self) -> u64 {
        self.phase.as_ref().map_or(0, |phase| phase.base.spent_bytes)
    }

    pub(super) fn progress(&self, sum: &Sum) -> Progress {
        let Some(phase) = &self.phase else { return Progress::default() };
        let spent_bytes = sum.spent_bytes.saturating_sub(phase.base.spent_bytes);
        let done_bytes = sum.done_bytes.saturating_sub(phase.base.done_bytes).min(spent_bytes);
        // A request of no bytes, such as a sync, is one that wants to be let in too.
        let waits = sum.waiting > self.lost_waiting;
        let waiting_bytes = if waits { sum.waiting_bytes.max(1) } else { 0 };
        Progress { done_bytes, spent_bytes, wanted_bytes: spent_bytes.saturating_add(waiting_bytes) }
    }

    pub(super) fn volume(&self, sum: &Sum) -> Volume {
        let Some(phase) = &self.phase else { return Volume::default() };
        let announced_bytes = sum.announced_bytes.wrapping_sub(self.past_announced_bytes);
        let said_bytes = if announced_bytes > 0 { announced_bytes } else { sum.usual_bytes };
        let spent_bytes = sum.spent_bytes.saturating_sub(phase.base.spent_bytes);
        Volume {
            said_bytes: Some(said_bytes).filter(|bytes| *bytes > 0 && *bytes >= spent_bytes),
            known_bytes: sum.foretold_bytes.wrapping_sub(self.past_foretold_bytes),
        }
    }

    /// No phase is under way, and none begins: what was announced before has come to nothing, unless it is still to come.
    fn forget_announcements(&mut self, sum: &Sum) {
        if sum.marks == 0 {
            self.past_announced_bytes = sum.announced_bytes;
        }
        if sum.calling == 0 {
            self.past_foretold_bytes = sum.foretold_bytes;
        }
    }

    /// Requests under way that may still end.
    pub(super) fn in_flight(&self, sum: &Sum) -> u32 {
        sum.in_flight.saturating_sub(self.lost_in_flight)
    }

    /// Whether the phase under way is as good as over: nothing is under way, and all files are closed or as much was moved as phases of
    /// this job do. Others need not wait for the pause that makes it sure.
    pub(super) fn is_resting(&self, sum: &Sum) -> bool {
        let Some(phase) = &self.phase else { return false };
        let is_busy = sum.in_flight > self.lost_in_flight || sum.waiting > self.lost_waiting;
        // The program itself says that more may come.
        let is_said_to_go_on = sum.marks > 0 || sum.calling > 0;
        let moved_bytes = sum.spent_bytes.saturating_sub(phase.base.spent_bytes);
        let is_whole = self.whole_bytes().is_some_and(|whole_bytes| moved_bytes >= whole_bytes);
        !is_busy && !is_said_to_go_on && (sum.open_files == 0 || is_whole)
    }

    /// What a phase of this job moves at least, by the phases so far.
    fn whole_bytes(&self) -> Option<u64> {
        let enough = self.phases.len() >= MIN_PHASES;
        enough.then(|| (WHOLE * self.mean_phase_bytes() as f64) as u64)
    }

    /// When a rank whose request ends has to call the leader: so much was spent then since the job began that the phase may be over.
    /// 0: not at all.
    pub(super) fn call_at_bytes(&self) -> u64 {
        if self.phase.is_some() { self.call_at_bytes } else { 0 }
    }

    /// A phase that goes on beyond what was expected is looked at less and less often.
    fn await_whole(&mut self, sum: &Sum) {
        if self.call_at_bytes != 0 && sum.spent_bytes >= self.call_at_bytes {
            let base_bytes = self.base_bytes();
            self.call_at_bytes =
                sum.spent_bytes.saturating_add(sum.spent_bytes.saturating_sub(base_bytes) / 4 + 1);
        }
    }

    pub fn look(&mut self, now_ns: u64, sum: &Sum) -> Change {
        let moved = sum.spent_bytes != self.seen_bytes;
        self.look_for_lost(now_ns, sum);
        self.await_whole(sum);
        if self.phase.is_none() && self.is_small(sum) {
            self.stale_marks = self.stale_marks.min(sum.marks);
            if now_ns >= self.free_since_ns.saturating_add(FREE_WINDOW_NS) {
                (self.free_since_ns, self.seen_bytes) = (now_ns, sum.spent_bytes);
            }
            self.forget_announcements(sum);
            return Change::None;
        }
        let busy = sum.in_flight > self.lost_in_flight || sum.waiting > self.lost_waiting;
        let active = busy || moved;
        self.stale_marks = self.stale_marks.min(sum.marks);
        if active || (sum.marks > self.stale_marks && !self.has_rested(now_ns, sum, MAX_GAP_NS)) {
            let began = self.phase.is_none();
            if began {
                self.begin(now_ns, sum);
            }
            if active {
                self.note_activity(now_ns, sum);
            }
            if began {
                return Change::Began;
            }
            // Others need not wait for the next look when the program has said that this was all.
            return if !busy && self.was_marked(sum) { self.end(sum) } else { Change::None };
        }
        if self.phase.is_none() {
            self.forget_announcements(sum);
            return Change::None;
        }
        self.stale_marks = sum.marks;
        let gap_ns = if sum.open_files == 0 { CLOSED_GAP_NS.min(self.gap_ns()) } else { self.gap_ns() };
        if self.has_rested(now_ns, sum, gap_ns) || self.was_marked(sum) {
            self.end(sum)
        } else {
            Change::None
        }
    }

    /// Whether what the ranks do is so little that it makes no phase, and needs no turn.
    fn is_small(&self, sum: &Sum) -> bool {
        let moved_bytes = sum.spent_bytes.saturating_sub(self.seen_bytes);
        let is_marked = sum.marks > self.stale_marks;
        self.free_bytes > 0
            && !is_marked
            && sum.waiting <= self.lost_waiting
            && moved_bytes <= self.free_bytes
    }

    /// Requests of which nothing has been heard for longer than anybody is to wait are lost, unless they end after all.
    fn look_for_lost(&mut self, now_ns: u64, sum: &Sum) {
        let seen = (sum.in_flight, sum.waiting, sum.spent_bytes, sum.done_bytes);
        if self.seen != seen {
            (self.seen, self.seen_since_ns) = (seen, now_ns);
            self.lost_in_flight = self.lost_in_flight.min(sum.in_flight);
            self.lost_waiting = self.lost_waiting.min(sum.waiting);
            return;
        }
        let quiet_ns = now_ns.saturating_sub(self.seen_since_ns);
        if quiet_ns > self.patience_ns {
            self.lost_in_flight = sum.in_flight;
        }
        if quiet_ns > self.patience_ns.saturating_add(MIN_PATIENCE_NS) {
            self.lost_waiting = sum.waiting;
        }
    }

    /// Whether the phase under way has done nothing for so long.
    fn has_rested(&self, now_ns: u64, sum: &Sum, gap_ns: u64) -> bool {
        let since_ns = self.phase.as_ref().map(|phase| phase.began_ns.max(sum.last_end_ns));
        since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > gap_ns)
    }

    /// The program said that it began this phase, and now that it has ended it.
    fn was_marked(&self, sum: &Sum) -> bool {
        self.phase.as_ref().is_some_and(|phase| phase.base.marks > 0) && sum.marks == 0
    }

    fn begin(&mut self, now_ns: u64, sum: &Sum) {
        self.numbers += 1;
        // What slipped in since the last look belongs to it.
        let base = Sum { spent_bytes: self.seen_bytes, done_bytes: self.seen_bytes, ..*sum };
        self.call_at_bytes =
            self.whole_bytes().map_or(0, |bytes| base.spent_bytes.saturating_add(bytes).max(1));
        self.phase = Some(Phase { began_ns: now_ns, base, first_burst: true });
    }

    fn note_activity(&mut self, now_ns: u64, sum: &Sum) {
        self.seen_bytes = sum.spent_bytes;
        let Some(phase) = &mut self.phase else { return };
        let first = std::mem::replace(&mut phase.first_burst, false);
        match self.bursts.last_mut() {
            Some(last) if !first && now_ns.saturating_sub(last.end_ns) <= FLOOR_NS => last.end_ns = now_ns,
            _ => self.bursts.push(Span { start_ns: now_ns, end_ns: now_ns, ..Span::default() }),
        }
        if self.bursts.len() > MAX_BURSTS {
            self.bursts.drain(..MAX_BURSTS / 2);
        }
    }

    /// The phase under way is over, now or at the end of the job.
    pub(super) fn end(&mut self, sum: &Sum) -> Change {
        let Some(phase) = self.phase.take() else { return Change::None };
        self.seen_bytes = sum.spent_bytes;
        self.gap_ns = None;
        let end_ns = sum.last_end_ns.max(phase.began_ns);
        let waited_ns = sum.waited_ns.min(end_ns - phase.began_ns);
        let bytes = sum.spent_bytes.saturating_sub(phase.base.spent_bytes);
        self.past_announced_bytes = sum.announced_bytes;
        // What a call that is under way was to move, and has not, is still to come.
        let foretold_bytes = sum.foretold_bytes.wrapping_sub(self.past_foretold_bytes);
        let past_bytes = if sum.calling == 0 { foretold_bytes } else { foretold_bytes.min(bytes) };
        self.past_foretold_bytes = self.past_foretold_bytes.wrapping_add(past_bytes);
        let span = Span {
            start_ns: phase.began_ns,
            end_ns,
            bytes_written: bytes,
            wait_ns: waited_ns,
            ..Span::default()
        };
        if self.phases.len() >= MAX_BURSTS {
            self.phases.remove(0);
        }
        self.phases.push(span);
        Change::Ended(Ended { bytes, io_ns: span.own_ns(), waited_ns })
    }

    /// The longest pause within a phase.
    fn gap_ns(&mut self) -> u64 {
        if let Some(gap_ns) = self.fixed_gap_ns {
            return gap_ns;
        }
        let bursts = &self.bursts;
        *self.gap_ns.get_or_insert_with(|| match bursts.len() {
            0..4 => FIRST_GAP_NS,
            _ => shortest_sure_gap_ns(bursts),
        })
    }

    pub(super) fn phases(&self) -> u64 {
        self.numbers
    }

    pub(super) fn w_iter_ns(&self) -> Option<u64> {
        phases::characteristic_time_ns(&self.phases)
    }

    pub(super) fn mean_phase_bytes(&self) -> u64 {
        let total_bytes: u64 = self.phases.iter().map(|phase| phase.bytes_written).sum();
        total_bytes / (self.phases.len() as u64).max(1)
    }
}

/// Others wait while the turn is not given back, so a pause need not be as long as one that lies between phases to
/// end one: it is enough that it is longer than all within.
fn shortest_sure_gap_ns(bursts: &[Span]) -> u64 {
    let learnt_ns = phases::learn_gap_ns(bursts, FLOOR_NS).clamp(FLOOR_NS, MAX_GAP_NS);
    let gaps_ns = bursts.windows(2).map(|pair| pair[1].start_ns.saturating_sub(pair[0].end_ns));
    let longest_within_ns = gaps_ns.filter(|gap_ns| *gap_ns <= learnt_ns).max().unwrap_or(0);
    (2 * longest_within_ns).clamp(FLOOR_NS, learnt_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A program that writes `calls` times in a phase, with pauses, looked at every 2 ms.
    struct Program {
        now_ns: u64,
        sum: Sum,
        detector: PhaseDetector,
        changes: Vec<(u64, Change)>,
    }

    impl Program {
        fn new(fixed_gap_ns: Option<u64>) -> Program {
            let sum = Sum { open_files: 1, ..Sum::default() };
            Program {
                now_ns: 0,
                sum,
                detector: PhaseDetector::new(fixed_gap_ns, 60_000 * MS, 0, &sum),
                changes: Vec::new(),
            }
        }

        fn look(&mut self) {
            let change = self.detector.look(self.now_ns, &self.sum);
            if change != Change::None {
                self.changes.push((self.now_ns / MS, change));
            }
        }

        fn pass(&mut self, ns: u64) {
            let until_ns = self.now_ns + ns;
            while self.now_ns < until_ns {
                self.now_ns += 2 * MS;
                self.look();
            }
        }

        /// A request that takes some time.
        fn write(&mut self, bytes: u64, ns: u64) {
            self.sum.in_flight = 1;
            self.sum.spent_bytes += bytes;
            self.look();
            self.pass(ns);
            self.sum.in_flight = 0;
            self.sum.done_bytes += bytes;
            self.sum.last_end_ns = self.now_ns;
        }

        fn ends(&self) -> Vec<Ended> {
            let ended = |(_, change): &(u64, Change)| match change {
                Change::Ended(ended) => Some(*ended),
                _ => None,
            };
            self.changes.iter().filter_map(ended).collect()
        }
    }

    #[test]
    fn a_phase_begins_with_the_first_request_and_ends_after_the_gap() {
        let mut program = Program::new(Some(20 * MS));
        program.pass(100 * MS);
        assert_eq!(program.changes, []);
        program.write(1000, 10 * MS);
        program.pass(10 * MS);
        program.write(1000, 10 * MS);
        program.pass(100 * MS);
        assert_eq!(program.changes[0], (100, Change::Began));
        let ended = Ended { bytes: 2000, io_ns: 30 * MS, waited_ns: 0 };
        assert_eq!(program.ends(), [ended]);
        assert_eq!(program.changes.len(), 2);
    }

    #[test]
    fn closing_the_last_file_ends_it_sooner() {
        let mut program = Program::new(None);
        program.write(1000, 10 * MS);
        program.sum.open_files = 0;
        program.pass(12 * MS);
        assert_eq!(program.ends().len(), 1);
    }

    #[test]
    fn pauses_within_phases_are_learnt() {
        let mut program = Program::new(None);
        for _ in 0..12 {
            for _ in 0..4 {
                program.write(1000, 10 * MS);
                program.pass(100 * MS);
            }
            program.pass(3000 * MS);
        }
        // The first pauses looked like ends; later phases are whole.
        assert_eq!(program.ends().last().map(|ended| ended.bytes), Some(4000));
        let mean_ns = program.detector.w_iter_ns().unwrap();
        assert!(mean_ns > 500 * MS, "{mean_ns}");
    }

    #[test]
    fn the_turn_of_a_program_without_pauses_is_given_back_soon() {
        let mut program = Program::new(None);
        for _ in 0..8 {
            program.write(1000, 500 * MS);
            program.pass(4000 * MS);
        }
        let [.., (began_ms, Change::Began), (ended_ms, Change::Ended(_))] = program.changes[..] else {
            panic!("{:?}", program.changes);
        };
        assert!((500..=514).contains(&(ended_ms - began_ms)), "{began_ms} {ended_ms}");
    }

    #[test]
    fn time_held_back_is_not_the_programs_own() {
        let mut program = Program::new(Some(20 * MS));
        program.sum.waiting = 1;
        program.sum.waiting_bytes = 1000;
        program.look();
        let progress = program.detector.progress(&program.sum);
        assert!(progress.is_waiting() && progress.wanted_bytes == 1000);
        program.pass(500 * MS);
        program.sum.waiting = 0;
        program.sum.waiting_bytes = 0;
        program.sum.waited_ns = 500 * MS;
        program.write(1000, 10 * MS);
        program.pass(100 * MS);
        assert_eq!(program.ends(), [Ended { bytes: 1000, io_ns: 10 * MS, waited_ns: 500 * MS }]);
    }

    #[test]
    fn a_marked_phase_lasts_as_long_as_the_program_says() {
        let mut program = Program::new(Some(20 * MS));
        program.sum.marks = 1;
        program.look();
        assert_eq!(program.changes, [(0, Change::Began)]);
        program.write(1000, 10 * MS);
        program.pass(1000 * MS);
        assert_eq!(program.ends(), []);
        // What it did last is seen with the end.
        program.sum.spent_bytes += 500;
        program.sum.done_bytes += 500;
        program.sum.marks = 0;
        program.look();
        assert_eq!(program.ends().iter().map(|ended| ended.bytes).collect::<Vec<_>>(), [1500]);
    }

    #[test]
    fn a_mark_that_is_forgotten_keeps_nobody_out() {
        let mut program = Program::new(Some(20 * MS));
        program.sum.marks = 1;
        program.write(1000, 10 * MS);
        program.pass(5000 * MS);
        assert_eq!(program.changes.len(), 2, "{:?}", program.changes);
        // I/O makes a phase all the same, and the next mark counts again.
        program.write(1000, 10 * MS);
        program.pass(100 * MS);
        assert_eq!(program.ends().len(), 2);
        program.sum.marks = 0;
        program.look();
        program.sum.marks = 1;
        program.look();
        assert_eq!(program.changes.last().map(|(_, change)| *change), Some(Change::Began));
    }

    #[test]
    fn a_request_that_never_comes_back_keeps_the_turn_no_longer_than_others_wait() {
        let mut program = Program::new(Some(20 * MS));
        program.write(1000, 50_000 * MS);
        assert_eq!(program.changes, [(0, Change::Began)], "a slow one keeps it");
        program.sum.in_flight = 1;
        program.pass(61_000 * MS);
        assert_eq!(program.ends().len(), 1, "a lost one does not");
        program.sum.in_flight = 2;
        program.sum.spent_bytes += 1000;
        program.pass(10 * MS);
        program.sum.in_flight = 1;
        program.sum.done_bytes += 1000;
        program.sum.last_end_ns = program.now_ns;
        program.pass(100 * MS);
        assert_eq!(program.ends().len(), 2, "nor in later phases");
        program.sum.in_flight = 0;
        program.look();
        program.write(1000, 50_000 * MS);
        assert_eq!(program.ends().len(), 2, "and when it came back after all, slow ones count again");
    }

    #[test]
    fn who_was_left_waiting_for_ever_keeps_no_turn() {
        let mut program = Program::new(Some(20 * MS));
        program.sum.waiting = 1;
        program.sum.waiting_bytes = 1000;
        program.pass(60_500 * MS);
        assert_eq!(program.ends(), [], "it may wait for as long as its patience lasts");
        assert!(program.detector.progress(&program.sum).is_waiting());
        program.pass(1_000 * MS);
        assert_eq!(program.ends().len(), 1);
        program.write(500, 10 * MS);
        assert!(!program.detector.progress(&program.sum).is_waiting(), "nobody does who can be told from it");
        program.pass(100 * MS);
        assert_eq!(program.ends().len(), 2);
    }

    #[test]
    fn a_request_that_slipped_in_after_the_end_begins_a_phase() {
        let mut program = Program::new(Some(20 * MS));
        program.write(1000, 10 * MS);
        program.pass(100 * MS);
        program.sum.spent_bytes += 500;
        program.sum.done_bytes += 500;
        program.sum.last_end_ns = program.now_ns;
        program.look();
        assert_eq!(program.detector.progress(&program.sum).spent_bytes, 500);
        program.pass(100 * MS);
        assert_eq!(program.ends().len(), 2);
    }
}
