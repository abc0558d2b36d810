//! A storage that serves the requests under way evenly or one after the other, and that may hang.

use crate::plan::Discipline;

pub(crate) struct Storage {
    bytes_per_s: u64,
    serves: Discipline,
    hangs: u32,
    /// Rank and the bytes that are left, of every request under way.
    requests: Vec<(usize, f64)>,
    updated_ns: u64,
    /// Since when no request is under way; `None` while there are some.
    pub(crate) idle_since_ns: Option<u64>,
    /// Grows with every change: an older date of completion counts no more.
    pub(crate) generation: u32,
}

impl Storage {
    pub(crate) fn new(bytes_per_s: u64, serves: Discipline) -> Storage {
        Storage {
            bytes_per_s,
            serves,
            hangs: 0,
            requests: Vec::new(),
            updated_ns: 0,
            idle_since_ns: Some(0),
            generation: 0,
        }
    }

    /// Bytes per nanosecond of each request that is served.
    fn rate(&self) -> f64 {
        if self.hangs > 0 { 0.0 } else { self.bytes_per_s as f64 * 1e-9 / self.served().max(1) as f64 }
    }

    /// So many requests are served, those that came first.
    fn served(&self) -> usize {
        match self.serves {
            Discipline::Evenly => self.requests.len(),
            Discipline::FirstComeFirstServed => self.requests.len().min(1),
        }
    }

    fn update(&mut self, now_ns: u64) {
        let moved = self.rate() * (now_ns - self.updated_ns) as f64;
        let served = self.served();
        self.requests[..served].iter_mut().for_each(|(_, left)| *left -= moved);
        self.updated_ns = now_ns;
        self.generation += 1;
    }

    pub(crate) fn begin(&mut self, now_ns: u64, rank: usize, bytes: u64) {
        self.update(now_ns);
        // A request without bytes, such as a sync, takes its time as well.
        self.requests.push((rank, bytes.max(4096) as f64));
        self.note_idleness(now_ns);
    }

    /// The rank is gone, and its requests with it.
    pub(crate) fn forget(&mut self, now_ns: u64, rank: usize) {
        self.update(now_ns);
        self.requests.retain(|(of, _)| *of != rank);
        self.note_idleness(now_ns);
    }

    pub(crate) fn hang(&mut self, now_ns: u64, hangs: bool) {
        self.update(now_ns);
        self.hangs = if hangs { self.hangs + 1 } else { self.hangs - 1 };
    }

    /// Ranks whose requests have ended by now.
    pub(crate) fn ended(&mut self, now_ns: u64) -> Vec<usize> {
        self.update(now_ns);
        let mut ended = Vec::new();
        self.requests.retain(|(rank, left)| {
            let is_done = *left < 1.0;
            if is_done {
                ended.push(*rank);
            }
            !is_done
        });
        self.note_idleness(now_ns);
        ended
    }

    fn note_idleness(&mut self, now_ns: u64) {
        let is_idle = self.requests.is_empty();
        self.idle_since_ns = if is_idle { self.idle_since_ns.or(Some(now_ns)) } else { None };
    }

    /// When the next request ends, if nothing changes.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let least =
            self.requests[..self.served()].iter().map(|(_, left)| *left).fold(f64::INFINITY, f64::min);
        let wait_ns = least.max(0.0) / self.rate();
        (wait_ns < 1e15).then(|| self.updated_ns + wait_ns.ceil() as u64 + 1)
    }
}
