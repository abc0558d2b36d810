//! Credits against a model of a storage: jobs of closed loops, reports and credits that take time.

use super::*;
use std::collections::VecDeque;

const TICK_NS: u64 = 100_000;
const MESSAGE_NS: u64 = 200_000;
const REPORT_NS: u64 = 2_000_000;

/// A job of `ranks` that each make one request after the other, with a pause in between.
#[derive(Clone)]
struct Load {
    share: f64,
    ranks: usize,
    request_bytes: u64,
    pause_ns: u64,
    /// Of the storage: what the job's own link can carry.
    cap: f64,
    starts_ns: u64,
}

impl Load {
    fn new(share: f64, request_bytes: u64) -> Load {
        Load { share, ranks: 2, request_bytes, pause_ns: 0, cap: 1.0, starts_ns: 0 }
    }
}

#[derive(Clone)]
enum Rank {
    Paused { until_ns: u64 },
    Waiting,
    Inside { left_bytes: f64 },
}

struct Runner {
    load: Load,
    ranks: Vec<Rank>,
    progress: Progress,
    reported: Progress,
    credit_bytes: u64,
    history: Vec<u64>,
}

impl Runner {
    fn start_requests(&mut self, now_ns: u64) {
        for rank in &mut self.ranks {
            if matches!(rank, Rank::Paused { until_ns } if *until_ns <= now_ns) {
                self.progress.wanted_bytes += self.load.request_bytes;
                *rank = Rank::Waiting;
            }
            if matches!(rank, Rank::Waiting) && self.progress.spent_bytes < self.credit_bytes {
                self.progress.spent_bytes += self.load.request_bytes;
                *rank = Rank::Inside { left_bytes: self.load.request_bytes as f64 };
            }
        }
    }

    fn inside(&self) -> usize {
        self.ranks.iter().filter(|rank| matches!(rank, Rank::Inside { .. })).count()
    }

    /// Serves at most `bytes`, one request after the other; several may end within a tick.
    fn serve(&mut self, now_ns: u64, mut bytes: f64) {
        while bytes > 0.0 {
            let inside = self.ranks.iter_mut().find_map(|rank| match rank {
                Rank::Inside { left_bytes } => Some(left_bytes),
                _ => None,
            });
            let Some(left_bytes) = inside else { return };
            let served = left_bytes.min(bytes);
            *left_bytes -= served;
            bytes -= served;
            if *left_bytes <= 0.0 {
                self.progress.done_bytes += self.load.request_bytes;
                let until_ns = now_ns + self.load.pause_ns;
                for rank in &mut self.ranks {
                    if matches!(rank, Rank::Inside { left_bytes } if *left_bytes <= 0.0) {
                        *rank = Rank::Paused { until_ns };
                    }
                }
                self.start_requests(now_ns);
            }
        }
    }
}

/// Runs for `seconds`; the bytes that each job had completed at every tenth of a second.
fn run(bandwidth: f64, loads: &[Load], seconds: u64) -> Vec<Vec<u64>> {
    let mut tokens = Tokens::default();
    let mut runners: Vec<Runner> = Vec::new();
    for (index, load) in loads.iter().enumerate() {
        tokens.enter(0, JobId(index as u32), load.share, Progress::default());
        runners.push(Runner {
            load: load.clone(),
            ranks: vec![Rank::Paused { until_ns: load.starts_ns }; load.ranks],
            progress: Progress::default(),
            reported: Progress::default(),
            credit_bytes: tokens.credit_bytes(JobId(index as u32)),
            history: Vec::new(),
        });
    }
    let mut reports: VecDeque<(u64, usize, Progress)> = VecDeque::new();
    let mut credits: VecDeque<(u64, usize, u64)> = VecDeque::new();
    for now_ns in (0..seconds * 1_000_000_000).step_by(TICK_NS as usize) {
        while let Some((_, job, progress)) = reports.pop_front_if(|report| report.0 <= now_ns) {
            tokens.report(now_ns, JobId(job as u32), progress);
        }
        tokens.settle(now_ns, |job, credit| credits.push_back((now_ns + MESSAGE_NS, job.0 as usize, credit)));
        while let Some((_, job, credit_bytes)) = credits.pop_front_if(|credit| credit.0 <= now_ns) {
            runners[job].credit_bytes = credit_bytes;
        }
        // The storage serves all who are inside alike, up to what their links carry.
        let busy = runners.iter().filter(|runner| runner.inside() > 0).count().max(1) as f64;
        let mut spare_bytes = bandwidth * TICK_NS as f64 / 1e9;
        let fair_bytes = spare_bytes / busy;
        for runner in runners.iter_mut().filter(|runner| runner.inside() > 0) {
            let carried = fair_bytes.min(runner.load.cap * bandwidth * TICK_NS as f64 / 1e9);
            runner.serve(now_ns, carried);
            spare_bytes -= carried;
        }
        for runner in &mut runners {
            if runner.load.cap == 1.0 && runner.inside() > 0 && spare_bytes > 1.0 {
                runner.serve(now_ns, std::mem::take(&mut spare_bytes));
            }
            runner.start_requests(now_ns);
        }
        if now_ns % REPORT_NS == 0 {
            for (job, runner) in runners.iter_mut().enumerate() {
                if runner.progress != runner.reported {
                    runner.reported = runner.progress;
                    reports.push_back((now_ns + MESSAGE_NS, job, runner.progress));
                }
            }
        }
        if now_ns % 100_000_000 == 0 {
            runners.iter_mut().for_each(|runner| runner.history.push(runner.progress.done_bytes));
        }
    }
    runners.into_iter().map(|runner| runner.history).collect()
}

/// The largest deviation from the shares over all windows of two seconds behind the first second, beyond
/// the `granule` bytes that whole requests cannot avoid, relative to what the job should have had.
fn worst_deviation(loads: &[Load], histories: &[Vec<u64>]) -> f64 {
    let share_sum: f64 = loads.iter().map(|load| load.share).sum();
    let mut worst = 0.0f64;
    for begin in 10..histories[0].len() - 20 {
        let moved: Vec<f64> =
            histories.iter().map(|history| (history[begin + 20] - history[begin]) as f64).collect();
        let all: f64 = moved.iter().sum();
        for (load, moved) in loads.iter().zip(&moved) {
            let due = all * load.share / share_sum;
            let granule = (load.ranks as u64 * load.request_bytes) as f64;
            worst = worst.max(((moved - due).abs() - granule).max(0.0) / due);
        }
    }
    worst
}

#[test]
fn bytes_follow_the_shares_over_any_two_seconds() {
    for jobs in [2usize, 4, 16] {
        for ratio in [1.0, 3.0, 10.0, 100.0] {
            for (request_bytes, bandwidth) in
                [(4 << 10, 40e6), (64 << 10, 200e6), (1 << 20, 1e9), (16 << 20, 1e10), (256 << 20, 1e11)]
            {
                let loads: Vec<Load> = (0..jobs)
                    .map(|job| Load::new(if job % 2 == 0 { ratio } else { 1.0 }, request_bytes))
                    .collect();
                let histories = run(bandwidth, &loads, 6);
                let worst = worst_deviation(&loads, &histories);
                let all: u64 = histories.iter().map(|history| history[history.len() - 1]).sum();
                let used = all as f64 / (bandwidth * 6.0);
                assert!(worst < 0.05, "{jobs} jobs, {ratio}:1, {request_bytes} bytes: off by {worst:.3}");
                assert!(used > 0.95, "{jobs} jobs, {ratio}:1, {request_bytes} bytes: used {used:.3}");
            }
        }
    }
}

/// A single rank is outside between any two requests: that is no pause, however long the requests are.
#[test]
fn single_ranks_follow_their_shares() {
    for (request_bytes, bandwidth) in [(64 << 10, 200e6), (1 << 20, 200e6), (4 << 20, 400e6)] {
        let single = |share| Load { ranks: 1, ..Load::new(share, request_bytes) };
        let loads = [single(10.0), single(1.0)];
        let worst = worst_deviation(&loads, &run(bandwidth, &loads, 6));
        assert!(worst < 0.05, "{request_bytes} bytes: off by {worst:.3}");
    }
}

/// What completes after a long time inside is heard with a report that shows nothing inside.
#[test]
fn a_request_that_has_just_completed_is_no_pause() {
    let mut tokens = Tokens::default();
    let inside = |bytes| Progress { done_bytes: 0, spent_bytes: bytes, wanted_bytes: bytes };
    for job in [JobId(0), JobId(1)] {
        tokens.enter(0, job, 0.5, Progress::default());
        tokens.report(0, job, inside(1 << 30));
    }
    let later_ns = 10 * IDLE_NS;
    tokens.report(later_ns, JobId(0), Progress { done_bytes: 1 << 30, ..inside(1 << 30) });
    let mut unlimited = false;
    tokens.settle(later_ns, |_, credit_bytes| unlimited |= credit_bytes == UNLIMITED);
    assert!(!unlimited);
    tokens.settle(later_ns + IDLE_NS, |_, credit_bytes| unlimited |= credit_bytes == UNLIMITED);
    assert!(unlimited);
}

#[test]
fn a_job_alone_has_no_limit() {
    let mut tokens = Tokens::default();
    tokens.enter(0, JobId(3), 0.1, Progress::default());
    assert_eq!(tokens.credit_bytes(JobId(3)), UNLIMITED);
    let mut told = Vec::new();
    tokens.settle(0, |job, credit| told.push((job, credit)));
    assert_eq!(told, []);
    // A second one limits both; when it has gone there is no limit again.
    tokens.enter(0, JobId(1), 0.9, Progress::default());
    assert!(tokens.credit_bytes(JobId(1)) < UNLIMITED);
    tokens.settle(0, |job, credit| told.push((job, credit)));
    assert!(matches!(told[..], [(JobId(3), credit)] if credit < UNLIMITED), "{told:?}");
    tokens.leave(JobId(1));
    tokens.settle(0, |job, credit| told.push((job, credit)));
    assert_eq!(told[1..], [(JobId(3), UNLIMITED)]);
}

#[test]
fn an_idle_job_holds_nobody_back_and_claims_nothing_later() {
    let mut idler = Load::new(0.9, 1 << 20);
    idler.pause_ns = 100_000_000;
    let histories = run(1e9, &[idler, Load::new(0.1, 1 << 20)], 6);
    let last = |job: usize| histories[job][histories[job].len() - 1] as f64;
    assert!(last(1) > 0.85 * 6e9, "{:.0}", last(1));
    assert!(last(0) > 0.9 * 2.0 * 60.0 * (1 << 20) as f64 * 0.85, "{:.0}", last(0));
}

#[test]
fn what_a_slow_job_cannot_use_goes_to_the_others() {
    let rate = |histories: &[Vec<u64>], job: usize| (histories[job][90] - histories[job][40]) as f64 / 5.0;
    let slow = Load { cap: 0.3, starts_ns: 1_000_000_000, ..Load::new(0.9, 1 << 20) };
    // What the storage can do was seen while the other job was alone.
    let histories = run(1e9, &[slow, Load::new(0.1, 1 << 20)], 10);
    let (slow, other) = (rate(&histories, 0), rate(&histories, 1));
    assert!(slow > 0.28e9 && other > 0.5e9, "slow {slow:.3e}, other {other:.3e}");
    // The same shares without a slow link: nothing is missing, so nothing is given away.
    let quick = Load { starts_ns: 1_000_000_000, ..Load::new(0.9, 1 << 20) };
    let histories = run(1e9, &[quick, Load::new(0.1, 1 << 20)], 10);
    let (quick, other) = (rate(&histories, 0), rate(&histories, 1));
    assert!((quick / other - 9.0).abs() < 0.45, "quick {quick:.3e}, other {other:.3e}");
}

/// The storage was faster before (a cache, say): the shares hold all the same once that is found out.
#[test]
fn a_storage_that_became_slower_is_not_mistaken_for_one_with_room() {
    let mut meter = Meter { best_rate: 10.0, ..Meter::default() };
    let mut window = |number: u64, bytes: u64, free_bytes: f64| {
        (0..WINDOW_STEPS).for_each(|_| meter.add(bytes / u64::from(WINDOW_STEPS)));
        meter.free_bytes = free_bytes;
        meter.look(number * WINDOW_NS, true, true)
    };
    assert_eq!(window(1, 0, 0.0), Some(0.0), "contention begins");
    let given = window(2, WINDOW_NS, 0.0).expect("a window");
    assert!(given > 7.0 * WINDOW_NS as f64, "much is missing, {given}");
    assert_eq!(window(3, WINDOW_NS, given), Some(0.0), "nothing came of it");
    assert_eq!(window(4, WINDOW_NS, 0.0), Some(0.0), "and that is remembered");
}

/// The one does I/O all the time; the other makes a phase of every request, as a program that writes one file after the
/// other. Shares and requests differ, and a phase may be over before anything is settled.
#[test]
fn phases_of_one_request_follow_their_shares() {
    for (share, request_bytes) in [(0.5, 8 << 20), (0.1, 8 << 20), (0.01, 1 << 20), (0.9, 64 << 20)] {
        let mut tokens = Tokens::default();
        let (steady, brief) = (JobId(0), JobId(1));
        let mut now_ns = 0;
        let mut moved = [0u64; 2];
        let mut progress = Progress::default();
        let mut in_phase = false;
        tokens.enter(now_ns, steady, 1.0 - share, progress);
        while now_ns < 60_000_000_000 {
            if tokens.credit_bytes(steady) > progress.spent_bytes {
                let spent_bytes = progress.spent_bytes + (1 << 20);
                progress =
                    Progress { done_bytes: progress.spent_bytes, spent_bytes, wanted_bytes: spent_bytes };
                now_ns += 1 << 20;
            }
            tokens.report(now_ns, steady, progress);
            moved[0] = progress.done_bytes;
            if !in_phase {
                tokens.enter(now_ns, brief, share, Progress::default());
                in_phase = true;
            }
            tokens.settle(now_ns, |_, _| {});
            let mut own = Progress { wanted_bytes: request_bytes, ..Progress::default() };
            if tokens.credit_bytes(brief) > 0 {
                now_ns += request_bytes;
                moved[1] += request_bytes;
                own = Progress {
                    done_bytes: request_bytes,
                    spent_bytes: request_bytes,
                    wanted_bytes: request_bytes,
                };
                tokens.report(now_ns, brief, own);
                tokens.leave(brief);
                in_phase = false;
            } else {
                tokens.report(now_ns, brief, own);
            }
            now_ns += 10_000;
            tokens.settle(now_ns, |_, _| {});
        }
        let part = moved[1] as f64 / (moved[0] + moved[1]) as f64;
        assert!((part - share).abs() < 0.05 * share, "{request_bytes} bytes: {part:.4} where {share} is due");
    }
}

#[test]
fn what_is_spent_alone_is_owed_to_nobody() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut tokens = Tokens::default();
    let spend = |tokens: &mut Tokens, job, now_ns, bytes| {
        tokens.report(now_ns, job, Progress { done_bytes: bytes, spent_bytes: bytes, wanted_bytes: bytes });
    };
    tokens.enter(0, JobId(0), 0.5, Progress::default());
    tokens.settle(0, |_, _| {});
    spend(&mut tokens, JobId(0), 1, 1 << 40);
    tokens.leave(JobId(0));
    tokens.enter(2, JobId(1), 0.5, Progress::default());
    tokens.enter(3, JobId(0), 0.5, Progress::default());
    assert!(tokens.credit_bytes(JobId(0)) > 0, "nobody was kept waiting");
    // Both are busy now: this is owed, unless the job goes for good.
    tokens.settle(4, |_, _| {});
    for (gone, owes) in [(false, true), (true, false)] {
        spend(&mut tokens, JobId(0), SECOND_NS, 1 << 40);
        if gone {
            tokens.forget(JobId(0));
        } else {
            tokens.leave(JobId(0));
        }
        tokens.enter(SECOND_NS + 1, JobId(0), 0.5, Progress::default());
        assert_eq!(tokens.credit_bytes(JobId(0)) == 0, owes);
        tokens.settle(SECOND_NS + 2, |_, _| {});
    }
}

/// Before anything is known of a slow storage, nobody gets far ahead on a lead made for a fast one.
#[test]
fn the_first_reports_tell_how_far_a_lead_reaches() {
    let mut tokens = Tokens::default();
    let busy = |bytes| Progress { done_bytes: bytes, spent_bytes: bytes, wanted_bytes: bytes + 4096 };
    for job in [JobId(0), JobId(1)] {
        tokens.enter(0, job, 0.5, Progress::default());
    }
    tokens.settle(0, |_, _| {});
    assert!(tokens.credit_bytes(JobId(0)) > 1 << 20);
    // 4 MB/s.
    for job in [JobId(0), JobId(1)] {
        tokens.report(GUESS_NS, job, busy(40_960));
    }
    tokens.settle(GUESS_NS, |_, _| {});
    assert!(tokens.credit_bytes(JobId(0)) < 256 << 10, "{}", tokens.credit_bytes(JobId(0)));
}

/// One with small requests and a pause behind each is all that is left at the end of a round: whoever waits may go
/// rather than leave the storage idle.
#[test]
fn the_storage_is_not_idle_while_somebody_waits() {
    let hesitant = Load { ranks: 1, pause_ns: 9_000_000, ..Load::new(1.0, 64 << 10) };
    let mut loads = vec![Load { ranks: 1, ..Load::new(1.0, 8 << 20) }; 7];
    loads.push(hesitant);
    let histories = run(60e6, &loads, 8);
    let all: u64 = histories.iter().map(|history| history[history.len() - 1]).sum();
    let used = all as f64 / (60e6 * 8.0);
    assert!(used > 0.9, "used {used:.3}");
}

/// Where many jobs share few processors, reports come late: who was let in is inside, though it has not said so yet.
#[test]
fn a_late_report_is_not_taken_for_an_idle_storage() {
    let (behind, let_in) = (JobId(0), JobId(1));
    let at = |bytes: u64, waiting_bytes: u64| Progress {
        done_bytes: bytes,
        spent_bytes: bytes,
        wanted_bytes: bytes + waiting_bytes,
    };
    let mut tokens = Tokens::default();
    for job in [behind, let_in] {
        tokens.enter(0, job, 0.5, Progress::default());
    }
    tokens.report(0, behind, at(1 << 20, 0));
    tokens.report(0, let_in, at(2 << 20, 1 << 20));
    tokens.settle(0, |_, _| {});
    assert!(tokens.credit_bytes(let_in) > 2 << 20);
    let tag_bytes = |tokens: &Tokens| tokens.accounts[&behind].tag_bytes;
    let before = tag_bytes(&tokens);
    tokens.settle(STALL_NS, |_, _| {});
    tokens.settle(2 * STALL_NS - 1, |_, _| {});
    assert_eq!(tag_bytes(&tokens), before);
}

/// What the lead for a storage of unknown speed let through is not held against anybody later.
#[test]
fn what_was_spent_before_the_storage_was_known_is_owed_to_nobody() {
    let mut tokens = Tokens::default();
    for (job, share) in [(0, 0.99), (1, 0.01)] {
        tokens.enter(0, JobId(job), share, Progress::default());
    }
    let waiting = |bytes| Progress { done_bytes: bytes, spent_bytes: bytes, wanted_bytes: bytes + 4096 };
    let settle_at = |tokens: &mut Tokens, now_ns| {
        for (job, bytes) in [(0, now_ns / 1000), (1, 45_056)] {
            tokens.report(now_ns, JobId(job), waiting(bytes));
        }
        tokens.settle(now_ns, |_, _| {});
    };
    settle_at(&mut tokens, 0);
    settle_at(&mut tokens, GUESS_NS);
    assert!(tokens.credit_bytes(JobId(1)) > 45_056, "{}", tokens.credit_bytes(JobId(1)));
}

/// Who overdraws a small share by a large request waits for long, and is told for how long.
#[test]
fn what_is_owed_says_how_long_to_wait() {
    const MB_PER_MS: u64 = 100_000;
    let (large, small) = (JobId(0), JobId(1));
    let mut tokens = Tokens::default();
    tokens.enter(0, large, 0.99, Progress::default());
    tokens.enter(0, small, 0.01, Progress::default());
    let mut done_bytes = 0;
    for ms in 1..=3000 {
        done_bytes += MB_PER_MS;
        let spent_bytes = done_bytes + MB_PER_MS;
        let of_large = Progress { done_bytes, spent_bytes, wanted_bytes: spent_bytes };
        // Not before it is known what the storage does: until then nobody owes anything.
        let spent_bytes = if ms < 1500 { 1 } else { 1 << 28 };
        let of_small = Progress { done_bytes: 0, spent_bytes, wanted_bytes: spent_bytes };
        tokens.report(ms * 1_000_000, large, of_large);
        tokens.report(ms * 1_000_000, small, of_small);
        tokens.settle(ms * 1_000_000, |_, _| {});
    }
    // A hundredth of 100 MB/s for 256 MiB.
    let expected_s = tokens.expected_wait_ns(small) / 1_000_000_000;
    assert!((200..300).contains(&expected_s), "{expected_s} s");
    assert_eq!(tokens.expected_wait_ns(large), 0);
}

/// Neither a report that cannot be true nor a share of nothing spoils the virtual time: all go on when the liar is gone.
#[test]
fn an_absurd_report_stops_nobody_for_good() {
    let (liar, first, second) = (JobId(0), JobId(1), JobId(2));
    let mut tokens = Tokens::default();
    tokens.enter(0, liar, 0.0, Progress::default());
    tokens.enter(0, first, 0.5, Progress::default());
    tokens.report(1_000_000, liar, Progress::all_done(1 << 62));
    let waiting = Progress { wanted_bytes: 1 << 20, ..Progress::default() };
    tokens.report(1_000_000, first, waiting);
    tokens.settle(1_000_000, |_, _| {});
    tokens.leave(first);
    tokens.report(2_000_000, liar, Progress::all_done(u64::MAX));
    tokens.settle(2_000_000, |_, _| {});
    tokens.leave(liar);
    for job in [first, second] {
        tokens.enter(3_000_000, job, 0.5, Progress::default());
        tokens.report(3_000_000, job, waiting);
    }
    tokens.settle(3_000_000, |_, _| {});
    for job in [first, second] {
        assert!(tokens.credit_bytes(job) > 0, "{job:?}");
    }
}

/// Who waits though it has credit may have told it to a node that does not need it.
#[test]
fn unused_credit_is_told_again_when_the_storage_is_idle() {
    let mut tokens = Tokens::default();
    let waiting = Progress { wanted_bytes: 1 << 20, ..Progress::default() };
    for job in [JobId(0), JobId(1)] {
        tokens.enter(0, job, 0.5, Progress::default());
        tokens.report(0, job, waiting);
    }
    let told_at = |tokens: &mut Tokens, now_ns| {
        let mut told = Vec::new();
        tokens.settle(now_ns, |job, _| told.push(job));
        told
    };
    told_at(&mut tokens, 0);
    let late_ns = ON_ITS_WAY_NS + STALL_NS;
    assert!(told_at(&mut tokens, ON_ITS_WAY_NS).is_empty());
    assert_eq!(told_at(&mut tokens, late_ns), [JobId(0), JobId(1)]);
    assert!(told_at(&mut tokens, late_ns + STALL_NS).is_empty(), "not at once again");
}
