//! What a study hands back, and how it is computed in parallel with the same bytes for any number of threads.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One paper reproduced: its tables and figures, and what became of its claims.
pub(crate) struct Study {
    /// `iosets`, `hio`, …: names the files written under `--out`.
    pub(crate) id: &'static str,
    pub(crate) title: String,
    pub(crate) tables: Vec<Table>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) claims: Vec<Claim>,
}

/// A table of text cells; numbers are formatted by who makes the table.
pub(crate) struct Table {
    pub(crate) id: String,
    pub(crate) caption: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

pub(crate) struct Figure {
    pub(crate) id: String,
    pub(crate) caption: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) kind: FigureKind,
    pub(crate) series: Vec<Series>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FigureKind {
    /// Points joined by a line.
    Line,
    /// Points alone.
    Scatter,
    /// One group of bars per x; `Figure::series[i].points[j].0` is the index of the group.
    Bars,
}

pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A claim of the paper, what it says, what came out here, and whether it holds; `None` where what was run
/// is too little to tell.
pub(crate) struct Claim {
    pub(crate) text: String,
    pub(crate) paper: String,
    pub(crate) ours: String,
    pub(crate) holds: Option<bool>,
}

impl Claim {
    /// One that what was run can tell.
    pub(crate) fn new(text: &str, paper: &str, ours: String, holds: bool) -> Claim {
        Claim { text: text.to_owned(), paper: paper.to_owned(), ours, holds: Some(holds) }
    }
}

pub(crate) struct Context {
    pub(crate) quick: bool,
    pub(crate) seed: u64,
    pub(crate) curves: Option<PathBuf>,
    threads: usize,
}

impl Context {
    /// With as many threads as there are processors, unless said otherwise.
    pub(crate) fn new(
        quick: bool,
        seed: u64,
        threads: Option<NonZeroUsize>,
        curves: Option<PathBuf>,
    ) -> Self {
        let threads = threads.or_else(|| std::thread::available_parallelism().ok());
        Context { quick, seed, curves, threads: threads.map_or(1, NonZeroUsize::get) }
    }

    /// `work(0) … work(count - 1)` on all threads, answers in order. `work` seeds itself from
    /// `self.seed` and its index, so the number of threads cannot be seen in the result.
    pub(crate) fn map<R: Send>(&self, label: &str, count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
        let bar = progress_bar(label, count);
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(count));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(count) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= count {
                            break;
                        }
                        let result = work(index);
                        bar.inc(1);
                        done.lock().expect("no worker panics while holding this").push((index, result));
                    }
                });
            }
        });
        bar.finish_and_clear();
        let mut done = done.into_inner().expect("no worker panics while holding this");
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

/// On standard error, and only when somebody is looking.
fn progress_bar(label: &str, count: usize) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(count as u64), target);
    if let Ok(style) = ProgressStyle::with_template("{msg:32} {bar:40} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.with_message(label.to_owned())
}
