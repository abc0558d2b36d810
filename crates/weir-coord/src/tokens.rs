//! Bandwidth tokens: while several jobs are in I/O, the bytes they move follow their shares.
//!
//! This is start-time fair queueing with credits in place of a queue. Every job has a *tag*: the bytes
//! it has spent, each divided by its share. Jobs with equal tags have had what their shares
//! say. When a share changes, what the job is ahead of the others stays the same in bytes. The job with the lowest tag among those that are busy sets the *virtual time*; everybody may spend
//! up to the tag `virtual time + lead` and then waits for the slowest. So nothing needs to be known of the storage's
//! bandwidth: whoever is behind is never stopped, and its own pace is what lets the others go on.
//!
//! - A request may start while its job has spent *less* than its credit, however long it is. A job is thus ahead
//!   by at most the lead and one request, which is the best that can be done without cutting requests.
//! - The lead is what the storage moves in [`LEAD_NS`]: enough to never wait for a message, too little to matter.
//! - A job alone has no limit. A job is *busy* while a request of its is inside or waits; one that has been
//!   idle for [`IDLE_NS`] holds nobody back, and when it comes back it starts at the virtual time, without
//!   a claim on what it left to others.
//! - What a job overdrew while others were busy it still owes in its next phase: a program that opens, writes and closes one
//!   file after the other makes a phase of each.
//! - While somebody waits the storage is not left idle: when nothing has been inside for 5 ms, the virtual time
//!   moves on to the first who waits, and who was behind loses its claim.
//! - A job that is always busy but slower than its share (its own network, small requests) would hold the others back.
//!   It shows in the sum: a meter knows what the storage can do, and what is missing is given, free of charge,
//!   to those who wait. If the sum does not rise then, the storage cannot do more, and that is learnt instead.

use crate::wire::Progress;
use std::collections::BTreeMap;
use weir_engine::engine::JobId;

/// A credit without limit.
pub const UNLIMITED: u64 = u64::MAX;

/// How far ahead of the slowest a job may run, as time of the whole storage.
pub const LEAD_NS: u64 = 50_000_000;

/// A job whose last request ended this long ago is not busy. Shorter pauses are part of doing I/O.
pub const IDLE_NS: u64 = 10_000_000;

/// When nothing has been inside for this long while somebody waits, whoever holds the others back is not waited for.
const STALL_NS: u64 = 5_000_000;

/// Who was given credit while it waited is taken to use it, though it may not have said so yet: where processors are short a
/// report takes its time.
const ON_ITS_WAY_NS: u64 = 50_000_000;

/// The lead while nothing is known of the storage, and the least lead there is.
const FIRST_LEAD_BYTES: f64 = (4 << 20) as f64;
const LEAST_LEAD_BYTES: f64 = (16 << 10) as f64;

/// A virtual time from here on begins anew: of 2^53 bytes each can still be told from the next.
const LARGE_BYTES: f64 = (1_u64 << 50) as f64;

/// A share of nothing would make a tag of infinity.
const LEAST_SHARE: f64 = 1e-9;

#[derive(Default)]
pub struct Tokens {
    /// The jobs that hold a grant. Ordered, so that equal histories give equal credits.
    accounts: BTreeMap<JobId, Account>,
    /// Of jobs that left in debt: their tags, and the shares that these were reckoned with.
    debts: BTreeMap<JobId, (f64, f64)>,
    /// Everybody has the same share, whatever it is: only how shares compare matters here.
    all_alike: bool,
    common_share: f64,
    /// The virtual time: never goes back.
    virtual_bytes: f64,
    meter: Meter,
    /// When the first busy job may turn out idle.
    fades_ns: Option<u64>,
    /// Since when nothing is inside though somebody waits.
    stalled_ns: Option<u64>,
    /// Something happened since credits were last settled.
    unsettled: bool,
    /// Several were busy then, with these shares together.
    contested: bool,
    share_sum: f64,
}

struct Account {
    share: f64,
    progress: Progress,
    tag_bytes: f64,
    /// What it may spend without paying for it, until the meter's window ends.
    free_bytes: f64,
    busy: bool,
    active_ns: u64,
    credit_bytes: u64,
    /// When it was last told of its credit.
    told_ns: u64,
}

impl Tokens {
    /// The job is granted a share. `progress` is that of its phase so far, which was not charged here if
    /// it was made under another grant.
    pub fn enter(&mut self, now_ns: u64, job: JobId, share: f64, progress: Progress) {
        let share = share.max(LEAST_SHARE);
        let alone = self.accounts.is_empty();
        let lead_bytes = if alone { f64::INFINITY } else { self.meter.lead_bytes() };
        let owed_bytes = self.take_debt(job, alone);
        // The cast saturates: infinity is no limit, and less than nothing is nothing.
        let allowed_bytes = (lead_bytes * share - owed_bytes).ceil() as u64;
        let account = Account {
            share,
            progress,
            tag_bytes: self.virtual_bytes + owed_bytes / if self.all_alike { 1.0 } else { share },
            free_bytes: 0.0,
            busy: true,
            active_ns: now_ns,
            credit_bytes: progress.spent_bytes.saturating_add(allowed_bytes),
            told_ns: now_ns,
        };
        self.accounts.insert(job, account);
        self.fades_ns = self.fades_ns.or(Some(now_ns + IDLE_NS));
        self.unsettled = true;
    }

    /// The number of jobs that hold a grant.
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// The jobs that hold a grant.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.accounts.keys().copied()
    }

    /// What the storage moves in [`LEAD_NS`], as far as is known.
    pub fn lead_bytes(&self) -> f64 {
        self.meter.lead_bytes()
    }

    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// The grant is over: held or ended.
    pub fn leave(&mut self, job: JobId) {
        let Some(account) = self.accounts.remove(&job) else { return };
        self.unsettled = true;
        // What was spent while nobody else was busy is owed to nobody.
        if self.contested && account.tag_bytes > self.virtual_bytes {
            let share = account.weight(self.all_alike);
            self.debts.insert(job, (account.tag_bytes, share));
        }
    }

    /// The job is gone, and what it owes with it.
    pub fn forget(&mut self, job: JobId) {
        self.leave(job);
        self.debts.remove(&job);
    }

    /// What the job overdrew and the others have not caught up with yet. If there are no others, all is forgiven.
    fn take_debt(&mut self, job: JobId, alone: bool) -> f64 {
        if alone {
            self.debts.clear();
        }
        let debt = self.debts.remove(&job);
        debt.map_or(0.0, |(tag_bytes, share)| (tag_bytes - self.virtual_bytes).max(0.0) * share)
    }

    /// What the job is ahead it stays ahead, in bytes: shares change whenever somebody comes or goes.
    pub fn set_share(&mut self, job: JobId, share: f64) {
        self.tell_apart();
        if let Some(account) = self.accounts.get_mut(&job) {
            let share = share.max(LEAST_SHARE);
            account.reckon(self.virtual_bytes, account.share, share);
            account.share = share;
            self.unsettled = true;
        }
    }

    /// Everybody has this share, until somebody is given one of its own.
    pub fn set_all_shares(&mut self, share: f64) {
        if !self.all_alike {
            self.all_alike = true;
            let virtual_bytes = self.virtual_bytes;
            self.accounts.values_mut().for_each(|account| account.reckon(virtual_bytes, account.share, 1.0));
        }
        self.common_share = share.max(LEAST_SHARE);
        self.unsettled = true;
    }

    /// Everybody has a share of its own from now on.
    fn tell_apart(&mut self) {
        if self.all_alike {
            self.all_alike = false;
            for account in self.accounts.values_mut() {
                account.share = self.common_share;
                account.reckon(self.virtual_bytes, 1.0, account.share);
            }
        }
    }

    /// What the job has done so far in its phase. What went back is taken as no progress.
    pub fn report(&mut self, now_ns: u64, job: JobId, progress: Progress) {
        let Some(account) = self.accounts.get_mut(&job) else { return };
        let before = std::mem::replace(&mut account.progress, progress);
        let spent_bytes = progress.spent_bytes.saturating_sub(before.spent_bytes);
        account.wake(now_ns, self.virtual_bytes, progress != before);
        let free_bytes = account.free_bytes.min(spent_bytes as f64);
        account.free_bytes -= free_bytes;
        self.meter.free_bytes += free_bytes;
        let share = account.weight(self.all_alike);
        account.tag_bytes += (spent_bytes as f64 - free_bytes) / share;
        if !progress.is_busy() {
            self.fades_ns = self.fades_ns.or(Some(now_ns + IDLE_NS));
        }
        self.meter.add(progress.done_bytes.saturating_sub(before.done_bytes));
        self.unsettled = true;
    }

    /// The cumulative bytes that the job may spend in its phase; nothing for one without a grant.
    pub fn credit_bytes(&self, job: JobId) -> u64 {
        self.accounts.get(&job).map_or(0, |account| account.credit_bytes)
    }

    /// How long a job that has overdrawn its credit should have to wait until the others have caught up, going by what the
    /// storage does.
    pub fn expected_wait_ns(&self, job: JobId) -> u64 {
        let Some(account) = self.accounts.get(&job).filter(|_| self.contested) else { return 0 };
        let lead_bytes = self.meter.lead_bytes();
        let ahead_bytes = (account.tag_bytes - self.virtual_bytes) * self.share_sum - lead_bytes;
        // The cast saturates: who is not ahead waits for nothing.
        (ahead_bytes / lead_bytes * LEAD_NS as f64) as u64
    }

    /// How long the storage should take for so many bytes, by what it does or, before that is known, by a guess.
    pub(crate) fn time_for_ns(&self, bytes: u64) -> f64 {
        bytes as f64 / self.meter.lead_bytes() * LEAD_NS as f64
    }

    /// Whether [`Tokens::settle`] could change something at this moment.
    pub fn needs_settling(&self) -> bool {
        self.unsettled
    }

    /// When to settle even if nothing is reported: a busy job may turn out idle. `None`: not needed.
    pub fn settle_by_ns(&self) -> Option<u64> {
        let stall_ns = self.stalled_ns.map(|since_ns| since_ns + STALL_NS);
        self.fades_ns.into_iter().chain(stall_ns).min().filter(|_| self.accounts.len() > 1)
    }

    /// Brings the credits up to date and names the jobs whose credit changed by enough to be told.
    pub fn settle(&mut self, now_ns: u64, mut tell: impl FnMut(JobId, u64)) {
        self.unsettled = false;
        let (busy, share_sum) = self.advance(now_ns);
        self.contested = busy > 1;
        self.share_sum = share_sum;
        let waits = |account: &Account| account.busy && account.progress.is_waiting();
        let limited = busy > 1 && self.accounts.values().any(waits);
        let was_known = self.meter.is_known();
        if let Some(free_bytes) = self.meter.look(now_ns, busy > 1, limited) {
            self.give(free_bytes);
        }
        if self.meter.is_known() && !was_known {
            // What the first lead let through was a guess, and is owed to nobody.
            let virtual_bytes = self.virtual_bytes;
            self.accounts.values_mut().for_each(|account| account.tag_bytes = virtual_bytes);
        }
        let lead_bytes = if busy > 1 { self.meter.lead_bytes() / share_sum } else { f64::INFINITY };
        // Who is idle hears when it is busy again: a report is enough, and nothing is lost meanwhile.
        for (&job, account) in self.accounts.iter_mut().filter(|(_, account)| account.busy) {
            let share = account.weight(self.all_alike);
            let tag_bytes = account.tag_now(self.virtual_bytes);
            let paid_bytes = ((self.virtual_bytes + lead_bytes - tag_bytes) * share).max(0.0);
            let allowed_bytes = (paid_bytes + account.free_bytes).ceil();
            // The cast saturates: infinity is no limit.
            let credit_bytes = account.progress.spent_bytes.saturating_add(allowed_bytes as u64);
            if account.is_news(credit_bytes, lead_bytes * share) {
                account.credit_bytes = credit_bytes;
                account.told_ns = now_ns;
                tell(job, credit_bytes);
            }
        }
    }

    /// Moves the virtual time on; the number of busy jobs and the sum of their shares. A job that need not pay is
    /// no measure of it: its tag stands still though it is served.
    fn advance(&mut self, now_ns: u64) -> (u32, f64) {
        let (mut busy, mut share_sum, mut lowest_bytes) = (0, 0.0, f64::INFINITY);
        self.fades_ns = None;
        for account in self.accounts.values_mut() {
            account.busy &= account.progress.is_busy() || now_ns < account.active_ns + IDLE_NS;
            if account.busy {
                busy += 1;
                share_sum += account.weight(self.all_alike);
            }
            if account.busy && !account.progress.is_busy() {
                let fades_ns = account.active_ns + IDLE_NS;
                self.fades_ns = Some(self.fades_ns.map_or(fades_ns, |first_ns| first_ns.min(fades_ns)));
            }
            if account.busy && account.free_bytes == 0.0 {
                lowest_bytes = lowest_bytes.min(account.tag_bytes);
            }
        }
        if lowest_bytes.is_finite() {
            self.virtual_bytes = self.virtual_bytes.max(lowest_bytes);
        }
        self.end_stall(now_ns);
        self.begin_anew();
        (busy, share_sum)
    }

    /// Only how tags compare with the virtual time matters. Both stay small, so that a lead is not lost in rounding: a share of
    /// nearly nothing, or a report that is not true, makes large ones.
    fn begin_anew(&mut self) {
        if self.virtual_bytes > LARGE_BYTES {
            let past_bytes = std::mem::take(&mut self.virtual_bytes);
            self.accounts.values_mut().for_each(|account| account.tag_bytes -= past_bytes);
            self.debts.values_mut().for_each(|(tag_bytes, _)| *tag_bytes -= past_bytes);
        }
    }

    /// The storage must not be idle while somebody waits: then time moves on to the first of those who do, and who
    /// had its chance loses its claim. Credit that is not used is told again: a job divides it among its nodes when it hears of it,
    /// and those that wait may be others by now.
    fn end_stall(&mut self, now_ns: u64) {
        let inside = self.accounts.values().any(|account| account.is_served(now_ns));
        let waiting = self.accounts.values().filter(|account| account.busy && account.progress.is_waiting());
        let lowest_bytes = waiting.map(|account| account.tag_bytes).fold(f64::INFINITY, f64::min);
        if inside || lowest_bytes.is_infinite() {
            self.stalled_ns = None;
        } else if now_ns >= *self.stalled_ns.get_or_insert(now_ns) + STALL_NS {
            self.stalled_ns = Some(now_ns);
            self.virtual_bytes = self.virtual_bytes.max(lowest_bytes);
            for account in self.accounts.values_mut().filter(|account| account.busy) {
                account.tag_bytes = account.tag_bytes.max(self.virtual_bytes);
                if account.progress.is_waiting() {
                    account.credit_bytes = account.progress.spent_bytes;
                }
            }
        }
    }

    /// Those who wait need not pay for these bytes, by their shares. What was given before is forfeited.
    fn give(&mut self, free_bytes: f64) {
        let share = |account: &Account| account.weight(self.all_alike);
        let waiting = self.accounts.values().filter(|account| account.progress.is_waiting());
        let share_sum: f64 = waiting.map(share).sum();
        for account in self.accounts.values_mut() {
            let part =
                if account.progress.is_waiting() { account.weight(self.all_alike) / share_sum } else { 0.0 };
            account.free_bytes = free_bytes * part;
        }
    }
}

impl Account {
    /// What its bytes are divided by.
    fn weight(&self, all_alike: bool) -> f64 {
        if all_alike { 1.0 } else { self.share }
    }

    /// Its bytes are divided by another share from now on.
    fn reckon(&mut self, virtual_bytes: f64, before: f64, after: f64) {
        self.tag_bytes = virtual_bytes + (self.tag_bytes - virtual_bytes) * before / after;
    }

    /// A report came: if the job was idle, what it did not use while it was is forgotten.
    /// What has just completed counts as being busy, like what goes on.
    fn wake(&mut self, now_ns: u64, virtual_bytes: f64, news: bool) {
        if news || self.progress.is_busy() {
            self.tag_bytes = self.tag_now(virtual_bytes);
            self.busy = true;
            self.active_ns = now_ns;
        }
    }

    /// Who is idle or need not pay falls behind without a claim to catch up.
    fn tag_now(&self, virtual_bytes: f64) -> f64 {
        if self.busy && self.free_bytes == 0.0 { self.tag_bytes } else { self.tag_bytes.max(virtual_bytes) }
    }

    /// A request of its is inside, or must be by now.
    fn is_served(&self, now_ns: u64) -> bool {
        let has_credit = self.credit_bytes > self.progress.spent_bytes;
        let is_on_its_way = has_credit && self.progress.is_waiting() && now_ns < self.told_ns + ON_ITS_WAY_NS;
        self.progress.is_inside() || is_on_its_way
    }

    /// Whether the job should hear of the credit: it waits for it, or it has less than half of its lead
    /// left, or a limit came or went, or it has far more than it should.
    fn is_news(&self, credit_bytes: u64, lead_bytes: f64) -> bool {
        let told_bytes = self.credit_bytes;
        if credit_bytes == told_bytes {
            return false;
        }
        let left_bytes = told_bytes.saturating_sub(self.progress.spent_bytes) as f64;
        if credit_bytes > told_bytes {
            credit_bytes == UNLIMITED || self.progress.is_waiting() || left_bytes < lead_bytes / 2.0
        } else {
            left_bytes > 2.0 * lead_bytes
        }
    }
}

/// What the storage does, and what it is able to do.
///
/// Time is cut into windows in which there was contention all along or never. They are long enough to count
/// [`WINDOW_STEPS`] completed requests or reports of them, so that a rate means something with large requests too.
#[derive(Default)]
struct Meter {
    began_ns: u64,
    contested: bool,
    limited: bool,
    steps: u32,
    done_bytes: u64,
    /// Spent free of charge in this window.
    free_bytes: f64,
    /// Of the latest window, in bytes per nanosecond.
    rate: f64,
    /// Of the latest contested window in which nothing was given.
    plain_rate: f64,
    /// What the storage is able to do, as far as was seen.
    best_rate: f64,
    /// The same before a window was full: the best since the beginning of one.
    guess: f64,
    rate_is_contested: bool,
}

/// Storages serve in fits and starts; a window is long enough that these do not look like room, and half as long
/// while a job is alone.
const WINDOW_NS: u64 = 1_000_000_000;
const LONGEST_WINDOW_NS: u64 = 5_000_000_000;
const WINDOW_STEPS: u32 = 16;

/// A guess is made after this long: a slow storage should be known before anybody is far ahead.
const GUESS_NS: u64 = 20_000_000;

/// Less than this part missing is noise.
const MISSING: f64 = 0.2;

impl Meter {
    fn add(&mut self, done_bytes: u64) {
        self.done_bytes = self.done_bytes.saturating_add(done_bytes);
        self.steps += u32::from(done_bytes > 0);
    }

    /// Ends the window when it is time; the answer is then what to give free of charge in the next one.
    fn look(&mut self, now_ns: u64, contested: bool, limited: bool) -> Option<f64> {
        self.limited |= limited;
        let elapsed_ns = now_ns.saturating_sub(self.began_ns);
        if elapsed_ns >= GUESS_NS {
            self.guess = self.guess.max(self.done_bytes as f64 / elapsed_ns as f64);
        }
        let window_ns = if self.contested { WINDOW_NS } else { WINDOW_NS / 2 };
        let is_full = elapsed_ns >= window_ns && self.steps >= WINDOW_STEPS;
        let is_over = is_full || elapsed_ns >= LONGEST_WINDOW_NS;
        if contested == self.contested && !is_over {
            return None;
        }
        let missing_rate = if is_full { self.conclude(elapsed_ns as f64) } else { 0.0 };
        self.began_ns = now_ns;
        self.contested = contested;
        self.limited = limited;
        self.steps = 0;
        self.done_bytes = 0;
        self.free_bytes = 0.0;
        Some(if limited { missing_rate * WINDOW_NS as f64 } else { 0.0 })
    }

    /// Learns from the window; the answer is the rate that the storage could do on top.
    fn conclude(&mut self, elapsed_ns: f64) -> f64 {
        self.rate = self.done_bytes as f64 / elapsed_ns;
        self.rate_is_contested = self.contested;
        let free_rate = self.free_bytes / elapsed_ns;
        if free_rate == 0.0 {
            self.plain_rate = self.rate;
        } else if self.rate - self.plain_rate < free_rate / 2.0 {
            // What was given came out of the others' pockets: the storage does what it can.
            self.best_rate = self.rate;
            return 0.0;
        }
        self.best_rate = self.best_rate.max(self.rate);
        let missing_rate = 0.9 * self.best_rate - (self.rate - free_rate).max(0.0);
        if self.limited && missing_rate > MISSING * self.best_rate { missing_rate } else { 0.0 }
    }

    /// Anything at all of what the storage does.
    fn is_known(&self) -> bool {
        self.best_rate > 0.0 || self.guess > 0.0
    }

    /// Contention may make the storage slower: then its rate now says more than what it was able to do.
    fn lead_bytes(&self) -> f64 {
        let rate = match self.best_rate {
            0.0 => self.guess,
            _ if self.rate_is_contested => self.rate,
            best_rate => best_rate,
        };
        if rate == 0.0 { FIRST_LEAD_BYTES } else { (rate * LEAD_NS as f64).max(LEAST_LEAD_BYTES) }
    }
}

#[cfg(test)]
mod tests;
