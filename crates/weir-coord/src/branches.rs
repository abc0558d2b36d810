//! Which branches of the session were taken, by the names that stand at them. Only with the feature `branches`.

use std::collections::BTreeSet;
use std::sync::Mutex;

static TAKEN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

pub(crate) fn note(name: &'static str) {
    TAKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(name);
}

/// All branches there are, by file, and whether each was taken.
pub fn all() -> Vec<(&'static str, Vec<(&'static str, bool)>)> {
    let taken = TAKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sources = [
        ("session", include_str!("session.rs")),
        ("session/link", include_str!("session/link.rs")),
        ("session/seek", include_str!("session/seek.rs")),
    ];
    let names = |source: &'static str| {
        let behind = source.split("branch!(\"").skip(1);
        behind.filter_map(|text| text.split_once('"')).map(|(name, _)| (name, taken.contains(name))).collect()
    };
    sources.map(|(file, source)| (file, names(source))).into()
}
