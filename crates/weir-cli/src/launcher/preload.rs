//! What a command preloads of its own: its value would take the place of Weir's, or Weir's that of its own.

use super::{Kind, is_program};
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
    let Some(library) = library(variables) else { return (part.to_vec(), false) };
    let mut words: Vec<OsString> = Vec::with_capacity(part.len());
    let mut has_own = false;
    let mut rest = part.iter();
    while let Some(word) = rest.next() {
        if is_program(word, words.last().map(OsString::as_os_str)) {
            words.push(word.clone());
            break;
        }
        words.push(word.clone());
        if sets_variable(kind, word)
            && let Some(word) = rest.next()
        {
            let own = assigned(word);
            has_own |= own.is_some();
            words.push(own.map_or_else(|| word.clone(), |value| assignment(library, value)));
            // Hydra takes `NAME=VALUE` and `NAME VALUE`.
            if kind == Kind::Hydra
                && !word.as_bytes().contains(&b'=')
                && let Some(value) = rest.next()
            {
                let is_own = word == VARIABLE;
                has_own |= is_own;
                words.push(if is_own { setup::preload(library, Some(value.clone())) } else { value.clone() });
            }
        }
    }
    words.extend(rest.cloned());
    (words, has_own)
}

/// The same for the list of `srun --export`.
pub(super) fn in_list(list: &str, variables: &[(String, OsString)]) -> (Vec<String>, bool) {
    let mut has_own = false;
    let beside = |item: &str| match (assigned(OsStr::new(item)), library(variables)) {
        (Some(value), Some(library)) => {
            has_own = true;
            assignment(library, value).to_string_lossy().into_owned()
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

fn assignment(library: &Path, own: OsString) -> OsString {
    let mut word = OsString::from(format!("{VARIABLE}="));
    word.push(setup::preload(library, Some(own)));
    word
}

/// Weir's own, the first of what it preloads.
fn library(variables: &[(String, OsString)]) -> Option<&Path> {
    let (_, value) = variables.iter().find(|(name, _)| name == VARIABLE)?;
    value.as_bytes().split(|byte| *byte == b':').next().map(|first| Path::new(OsStr::from_bytes(first)))
}
