//! What a node has asked for beside its phase: places for its files, and turns for its aggregators.
//!
//! Every question is answered once, whatever becomes of the coordinator: with none, by "no opinion" and "go".

use crate::client::Word;
use crate::wire::{FileInfo, MAX_LIST, Message};
use std::collections::BTreeMap;

/// More files or calls are not asked about.
const MAX_FILES: usize = 4096;
const MAX_CALLS: usize = 1024;

#[derive(Default)]
pub(crate) struct Errands {
    files: BTreeMap<u64, File>,
    /// Per call and aggregator, whether its turn is still to come.
    calls: BTreeMap<u64, Vec<bool>>,
}

struct File {
    info: FileInfo,
    /// `None` until there is an answer.
    targets: Option<Vec<u32>>,
}

impl Errands {
    /// False: it cannot be asked.
    pub(crate) fn ask(&mut self, request: u64, info: &FileInfo) -> bool {
        if self.files.len() >= MAX_FILES {
            return false;
        }
        self.files.insert(request, File { info: info.clone(), targets: None });
        true
    }

    /// An answer came; false if nobody waits for it.
    pub(crate) fn allocated(&mut self, request: u64, targets: &[u32]) -> bool {
        let waits = self.files.get_mut(&request).filter(|file| file.targets.is_none());
        waits.map(|file| file.targets = Some(targets.to_vec())).is_some()
    }

    pub(crate) fn release(&mut self, request: u64) -> bool {
        self.files.remove(&request).is_some()
    }

    /// False: it cannot be asked.
    pub(crate) fn collect(&mut self, call: u64, aggregators: usize) -> bool {
        if self.calls.len() >= MAX_CALLS || !(1..=MAX_LIST).contains(&aggregators) {
            return false;
        }
        self.calls.insert(call, vec![true; aggregators]);
        true
    }

    /// The aggregator's turn has come or is not needed any more; false if it did not wait.
    pub(crate) fn turn(&mut self, call: u64, aggregator: u32) -> bool {
        let Some(waits) = self.calls.get_mut(&call) else { return false };
        let waited = waits.get_mut(aggregator as usize).is_some_and(std::mem::take);
        if !waits.contains(&true) {
            self.calls.remove(&call);
        }
        waited
    }

    /// The phase is over: nobody waits for a turn any more.
    pub(crate) fn end_phase(&mut self, words: &mut Vec<Word>) {
        for (call, waits) in std::mem::take(&mut self.calls) {
            words.extend(turns(call, waits));
        }
    }

    /// The coordinator is gone: whoever waits for its answer need not.
    pub(crate) fn let_go(&mut self, words: &mut Vec<Word>) {
        let unanswered = self.files.iter().filter(|(_, file)| file.targets.is_none());
        words.extend(unanswered.map(|(&request, _)| Word::no_opinion(request)));
        self.files.retain(|_, file| file.targets.is_some());
        self.end_phase(words);
    }

    /// What a new coordinator has to hear: the files that were placed and are still open.
    pub(crate) fn claims(&self) -> Vec<Message> {
        let placed = self.files.iter().filter_map(|(&request, file)| {
            let targets = file.targets.clone().filter(|targets| !targets.is_empty())?;
            Some(Message::Claim { request, file: file.info.clone(), targets })
        });
        placed.collect()
    }
}

fn turns(call: u64, waits: Vec<bool>) -> impl Iterator<Item = Word> {
    let waiting = waits.into_iter().enumerate().filter(|(_, waits)| *waits);
    waiting.map(move |(index, _)| Word::Turn { call, aggregator: index as u32 })
}
