//! Questions of a node beside its phase: places for its files, and turns for its readers.
//!
//! Every question is answered once, whatever becomes of the coordinator: with none, by "no opinion" and "go".

use super::{Output, Word};
use crate::wire::{FileInfo, Message};
use std::collections::BTreeMap;

/// More files or readers are not asked about.
const MAX_FILES: usize = 4096;
const MAX_READERS: usize = 4096;

#[derive(Default)]
pub(super) struct Errands {
    files: BTreeMap<u64, File>,
    /// By number, the call in which each waits for its turn.
    readers: BTreeMap<u32, u64>,
}

struct File {
    info: FileInfo,
    /// `None` until there is an answer.
    targets: Option<Vec<u32>>,
}

impl Errands {
    /// False: it cannot be asked.
    pub(super) fn ask(&mut self, request: u64, info: &FileInfo) -> bool {
        if self.files.len() >= MAX_FILES {
            return false;
        }
        self.files.insert(request, File { info: info.clone(), targets: None });
        true
    }

    /// An answer came; false if nobody waits for it.
    pub(super) fn allocated(&mut self, request: u64, targets: &[u32]) -> bool {
        let waits = self.files.get_mut(&request).filter(|file| file.targets.is_none());
        waits.map(|file| file.targets = Some(targets.to_vec())).is_some()
    }

    pub(super) fn release(&mut self, request: u64) -> bool {
        self.files.remove(&request).is_some()
    }

    /// False: it cannot be asked.
    pub(super) fn read(&mut self, number: u32, call: u64) -> bool {
        let has_room = self.readers.len() < MAX_READERS;
        if has_room {
            self.readers.insert(number, call);
        }
        has_room
    }

    /// The reader's turn has come or is not needed any more; false if it did not wait for it.
    pub(super) fn turn(&mut self, number: u32, call: u64) -> bool {
        let waited = self.readers.get(&number) == Some(&call);
        if waited {
            self.readers.remove(&number);
        }
        waited
    }

    /// The phase is over: nobody waits for a turn any more.
    pub(super) fn end_phase(&mut self, out: &mut Vec<Output>) {
        let waiting = std::mem::take(&mut self.readers).into_iter();
        out.extend(waiting.map(|(number, call)| Output::Word(Word::Turn { number, call })));
    }

    /// The coordinator is gone: whoever waits for its answer need not.
    pub(super) fn let_go(&mut self, out: &mut Vec<Output>) {
        let unanswered = self.files.iter().filter(|(_, file)| file.targets.is_none());
        out.extend(unanswered.map(|(&request, _)| Output::Word(Word::no_opinion(request))));
        self.files.retain(|_, file| file.targets.is_some());
        self.end_phase(out);
    }

    /// What a new coordinator has to hear: the files that were placed and are still open.
    pub(super) fn claims(&self) -> impl Iterator<Item = Message> {
        self.files.iter().filter_map(|(&request, file)| {
            let targets = file.targets.clone().filter(|targets| !targets.is_empty())?;
            Some(Message::Claim { request, file: file.info.clone(), targets })
        })
    }
}
