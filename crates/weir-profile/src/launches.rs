//! Which of a folder's records belong together: a job's name may be used by several launches, one after the other (a batch
//! job that starts again, a script under one `weir run`) or at the same time.

use crate::record::Head;
use std::collections::BTreeMap;
use std::path::Path;

/// One launch: what its processes know of it without asking each other.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Made from what the launcher says; `None` in names of records that have none.
    pub id: Option<u64>,
    /// When it began, in nanoseconds since 1970: launchers use their names again.
    pub start_ns: u64,
}

/// The end of a record's name, before its extension.
pub fn suffix(id: u64) -> String {
    format!(".{id:016x}")
}

/// `<rank>-<host>-<pid>-<generation>.<launch>.rec`
pub(crate) fn id_in_name(path: &Path) -> Option<u64> {
    let stem = path.file_stem().map(Path::new)?;
    let digits = stem.extension()?.to_str().filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// When launches began, all of one name, as their records tell.
pub(crate) struct Starts {
    /// In order.
    pub(crate) launches: Vec<u64>,
    /// A process that initialises MPI again, or becomes another program, has several records.
    processes: BTreeMap<(u64, String, u64), u64>,
}

impl Starts {
    /// In one launch a rank is one process: as many as a rank had, so many launches there were.
    pub(crate) fn of(heads: &[&Head]) -> Starts {
        let mut processes: BTreeMap<(u64, String, u64), u64> = BTreeMap::new();
        // A child began with its parent, and tells no launches apart.
        for head in heads.iter().filter(|head| !head.is_child) {
            let start = processes.entry(process(head)).or_insert(u64::MAX);
            *start = head.start_ns.min(*start);
        }
        let mut ranks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for ((rank, ..), start) in &processes {
            ranks.entry(*rank).or_default().push(*start);
        }
        let mut launches = ranks.into_values().max_by_key(Vec::len).unwrap_or_default();
        launches.sort_unstable();
        Starts { launches, processes }
    }

    /// Which of the launches a record belongs to: all ranks of one leave `MPI_Init` at about the same time, if by clocks
    /// that differ from node to node.
    pub(crate) fn place(&self, head: &Head) -> usize {
        let start_ns = self.processes.get(&process(head)).copied().unwrap_or(head.start_ns);
        let distance = |index: &usize| self.launches[*index].abs_diff(start_ns);
        (0..self.launches.len()).min_by_key(distance).unwrap_or(0)
    }
}

fn process(head: &Head) -> (u64, String, u64) {
    (head.rank, head.host.clone(), head.pid)
}
