//! What a command preloads of its own: its value would take the place of Weir's, or Weir's that of its own.

use super::{Kind, launcher_words};
use crate::setup;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

pub(super) const VARIABLE: &str = "LD_PRELOAD";

/// A part of the launcher's command, between colons, with the library before what its options preload; and whether
/// there was such an option.
pub(super) fn beside_own(
    kind: Kind,
    part: &[OsString],
    variables: &[(String, OsString)],
) -> (Vec<OsString>, bool) {
    let mut words = part.to_vec();
    let mut has_own = false;
    let Some(library) = library(variables) else { return (words, has_own) };
    let mut options = words[..launcher_words(part)].iter_mut();
    while let Some(option) = options.next() {
        if !sets_variable(kind, option) {
            continue;
        }
        let Some(word) = options.next() else { break };
        if let Some(value) = assigned(word) {
            *word = OsString::from(format!("{VARIABLE}="));
            word.push(setup::preload(library, Some(value)));
            has_own = true;
        } else if kind == Kind::Hydra && !word.as_bytes().contains(&b'=') {
            let Some(value) = options.next() else { break };
            if word == VARIABLE {
                *value = setup::preload(library, Some(value.clone()));
                has_own = true;
            }
        }
    }
    (words, has_own)
}

/// The same for the list of `srun --export`.
pub(super) fn in_list(list: &str, variables: &[(String, OsString)]) -> (Vec<String>, bool) {
    let mut has_own = false;
    let beside = |item: &str| match (assigned(OsStr::new(item)), library(variables)) {
        (Some(value), Some(library)) => {
            has_own = true;
            format!("{VARIABLE}={}", setup::preload(library, Some(value)).to_string_lossy())
        }
        _ => item.to_string(),
    };
    let items = list.split(',').map(beside).collect();
    (items, has_own)
}

/// Whether a variable stands behind this option. Launchers take one dash or two.
fn sets_variable(kind: Kind, option: &OsStr) -> bool {
    let names: &[&str] = match kind {
        Kind::OpenMpi => &["-x", "--x"],
        Kind::Hydra => &["-genv", "--genv", "-env", "--env"],
        Kind::Srun | Kind::Other => &[],
    };
    names.iter().any(|name| option == *name)
}

fn assigned(word: &OsStr) -> Option<OsString> {
    let value = word.as_bytes().strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"=")?;
    Some(OsString::from_vec(value.to_vec()))
}

/// Weir's own, the first of what it preloads.
fn library(variables: &[(String, OsString)]) -> Option<&Path> {
    let (_, value) = variables.iter().find(|(name, _)| name == VARIABLE)?;
    value.as_bytes().split(|byte| *byte == b':').next().map(|first| Path::new(OsStr::from_bytes(first)))
}
