//! HIO (Liu, Zhuang, Chen 2015), Algorithm 1: each application's slowest aggregator first, then tuned by
//! acceptable delay, within windows that hold at most one aggregator of each application.

use super::Waiting;
use std::collections::{BTreeSet, VecDeque};

/// Algorithm 1 is printed twice, as text and as a listing, and the two differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Section 4.4: every aggregator is compared with its successor, once, from the front to the back.
    Text,
    /// The listing, to the letter: positions that need not be neighbours are exchanged, the aggregator that
    /// came forward is the one compared next, and `j` advances twice when a comparison fails.
    Listing,
}

/// The queue of one storage target, cut into windows (section 4.3).
#[derive(Clone, Debug)]
pub(super) struct Windows {
    reading: Reading,
    threshold: f64,
    width: usize,
    windows: VecDeque<Window>,
}

#[derive(Clone, Debug, Default)]
struct Window {
    /// Every application that has had an aggregator in this window, served ones too: whoever comes again
    /// opens the next window, so that nobody is overtaken for ever.
    applications: BTreeSet<u64>,
    waiting: VecDeque<Waiting>,
    ordered: bool,
}

impl Windows {
    pub(super) fn new(reading: Reading, threshold: f64, width: usize) -> Self {
        Windows { reading, threshold, width, windows: VecDeque::new() }
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        let fits = self.windows.back().is_some_and(|window| {
            window.applications.len() < self.width && !window.applications.contains(&waiting.application)
        });
        if !fits {
            self.windows.push_back(Window::default());
        }
        let window = self.windows.back_mut().expect("one was just made if there was none");
        window.applications.insert(waiting.application);
        window.waiting.push_back(waiting);
        window.ordered = false;
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&Waiting) -> bool) {
        for window in &mut self.windows {
            window.waiting.retain(&stays);
            window.ordered = false;
        }
    }

    /// Who is served next, without taking it away.
    pub(super) fn head(&mut self) -> Option<&Waiting> {
        // An empty last window stays: it remembers who has already been served from it.
        while self.windows.len() > 1 && self.windows[0].waiting.is_empty() {
            self.windows.pop_front();
        }
        let (reading, threshold) = (self.reading, self.threshold);
        let window = self.windows.front_mut()?;
        if !window.ordered {
            order(window.waiting.make_contiguous(), reading, threshold);
            window.ordered = true;
        }
        window.waiting.front()
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        self.head()?;
        self.windows.front_mut()?.waiting.pop_front()
    }
}

/// Algorithm 1 for one window of one storage target.
fn order(window: &mut [Waiting], reading: Reading, threshold: f64) {
    let sum = |cost: fn(&Waiting) -> u64| window.iter().map(|w| u128::from(cost(w))).sum::<u128>() as f64;
    let ratio = sum(|w| w.tail_ns) / sum(|w| w.service_ns);
    // 0/0 is not above the threshold: nothing to shuffle, nothing to gain.
    if ratio > threshold {
        window.sort_by_key(|w| (w.rad, w.call, w.aggregator));
    } else {
        window.sort_by_key(|w| (w.call, w.aggregator));
    }
    // What tuning takes from a delay counts for this order only; a newcomer has the window ordered afresh.
    let mut slots: Vec<Slot> =
        window.iter().map(|&waiting| Slot { waiting, delay_ns: waiting.acceptable_delay_ns }).collect();
    match reading {
        Reading::Text => tune_as_told(&mut slots),
        Reading::Listing => tune_as_listed(&mut slots),
    }
    for (place, slot) in window.iter_mut().zip(slots) {
        *place = slot.waiting;
    }
}

struct Slot {
    waiting: Waiting,
    delay_ns: u64,
}

impl Slot {
    fn can_let_pass(&self, other: &Slot) -> bool {
        self.delay_ns > other.waiting.service_ns
    }
}

/// Section 4.4: "each request's AD is compared with its successor's read cost". One pass: repeated until
/// nothing changes, two aggregators with long delays would exchange places for ever.
fn tune_as_told(slots: &mut [Slot]) {
    for j in 0..slots.len().saturating_sub(1) {
        if slots[j].can_let_pass(&slots[j + 1]) {
            exchange(slots, j, j + 1);
        }
    }
}

fn tune_as_listed(slots: &mut [Slot]) {
    let mut j = 0;
    while j + 1 < slots.len() {
        for k in j + 1..slots.len() {
            if slots[j].can_let_pass(&slots[k]) {
                exchange(slots, j, k);
            } else {
                j += 1;
                break;
            }
        }
        j += 1;
    }
}

/// The one that moves back loses the other's read time from its delay, the one that moves forward gains.
fn exchange(slots: &mut [Slot], front: usize, back: usize) {
    slots.swap(front, back);
    slots[back].delay_ns -= slots[front].waiting.service_ns;
    slots[front].delay_ns = slots[front].delay_ns.saturating_add(slots[back].waiting.service_ns);
}
