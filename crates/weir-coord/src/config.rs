//! The file that tells a coordinator what it is to do.
//!
//! ```text
//! listen = unix:/run/weir/coordinator.sock      # may stand more than once
//! policy = weir
//! order = hio                                   # of readers at a target: nio, sio, hio, slack …
//! backfill = on                                 # jobs go out of turn while the storage would be idle
//! key = /etc/weir/key
//!
//! [storage /scratch]                            # may stand more than once; what lies beneath is one storage
//! targets = 8                                   # this and what follows: where files can be placed
//! bandwidth_mb_per_s = 500 980 1400 1700        # of one application on 1, 2, 3 … targets
//! compute_nodes = 128
//! allocation = weir                             # or ta+gc, mckp …
//! ```

use crate::address::Address;
use crate::storage::{MAX_STORAGES, Storage};
use std::fs;
use std::path::{Path, PathBuf};
use weir_engine::sharing::PolicyKind;
use weir_engine::{aggregators, resources};
use weir_profile::settings::flag;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    pub listen: Vec<Address>,
    pub policy: Option<PolicyKind>,
    pub order: Option<aggregators::Policy>,
    pub backfill: Option<bool>,
    pub key: Option<PathBuf>,
    pub storages: Vec<Storage>,
}

const KEYS: &str = "listen, policy, order, backfill, key";
const STORAGE_KEYS: &str = "targets, bandwidth_mb_per_s, compute_nodes, allocation";

impl Config {
    /// Every line is `key = value` or `[storage PATH]`; what follows a `#` is a comment. Errors name the line
    /// and the key.
    pub fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        // The line where the section that is being read began.
        let mut section = None;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let wrong = |why: String| format!("line {number}: {why}");
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(heading) = line.strip_prefix('[') {
                config.end_section(section.replace(number))?;
                config.storages.push(config.heading(heading).map_err(wrong)?);
            } else if !line.is_empty() {
                let (key, value) = line
                    .split_once('=')
                    .map(|(key, value)| (key.trim(), value.trim()))
                    .ok_or_else(|| wrong(format!("{line:?} is not key = value")))?;
                let set = match section {
                    None => config.set(key, value),
                    Some(_) => config.set_storage(key, value),
                };
                set.map_err(wrong)?;
            }
        }
        config.end_section(section)?;
        Ok(config)
    }

    pub fn read(path: &Path) -> Result<Config, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Config::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn heading(&self, heading: &str) -> Result<Storage, String> {
        let path = heading.strip_suffix(']').and_then(|inner| inner.trim().strip_prefix("storage"));
        let path = path.ok_or_else(|| format!("unknown section [{heading}; valid is [storage PATH]"))?.trim();
        if self.storages.iter().any(|storage| storage.path == path) {
            return Err(format!("storage {path:?} stands twice"));
        }
        if self.storages.len() == MAX_STORAGES {
            return Err(format!("more than {MAX_STORAGES} storages"));
        }
        Ok(Storage::new(path))
    }

    fn end_section(&self, began: Option<usize>) -> Result<(), String> {
        match (began, self.storages.last()) {
            (Some(line), Some(storage)) => storage
                .check()
                .map_err(|why| format!("the section [storage {}] of line {line}: {why}", storage.path)),
            _ => Ok(()),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bad = |why: String| format!("{key}: {why}");
        match key {
            "listen" => self.listen.push(value.parse().map_err(bad)?),
            "policy" => self.policy = Some(value.parse().map_err(bad)?),
            "order" => self.order = Some(value.parse().map_err(bad)?),
            "backfill" => self.backfill = Some(flag(value).map_err(|wanted| bad(format!("not {wanted}")))?),
            "key" if value.is_empty() => return Err(bad("no file".into())),
            "key" => self.key = Some(value.into()),
            _ => return Err(format!("unknown key {key:?}; valid are {KEYS}, and [storage PATH]")),
        }
        Ok(())
    }

    fn set_storage(&mut self, key: &str, value: &str) -> Result<(), String> {
        let Some(storage) = self.storages.last_mut() else { return Err("no section".into()) };
        let bad = |why: &str| format!("{key}: {value:?}: {why}");
        match key {
            "targets" => storage.targets = value.parse().map_err(|_| bad("must be a whole number"))?,
            "compute_nodes" => {
                storage.compute_nodes = value.parse().map_err(|_| bad("must be a whole number"))?
            }
            "bandwidth_mb_per_s" => {
                let values: Result<Vec<f64>, _> = value.split_whitespace().map(str::parse).collect();
                let values = values.map_err(|_| bad("must be numbers with blanks between"))?;
                storage.bandwidth = values.into_iter().map(|megabytes| megabytes * 1e6).collect();
            }
            "allocation" => {
                storage.allocation = resources::Policy::parse(value).map_err(|error| bad(&error.reason))?
            }
            _ => {
                return Err(format!(
                    "unknown key {key:?} of [storage {}]; valid are {STORAGE_KEYS}",
                    storage.path
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRATCH: &str =
        "[storage /scratch]\ntargets = 8\nbandwidth_mb_per_s = 500 980 1400\ncompute_nodes = 128\n";

    #[test]
    fn a_file_says_all_there_is_to_say() {
        let text = "# ours\nlisten = unix:/run/weir/a.sock\nlisten = tcp://node7:4711 # too\n\npolicy=set10\norder = sio\nkey = /etc/k\n";
        let more =
            "[ storage /home ]\ntargets=1\nbandwidth_mb_per_s=90.5\ncompute_nodes=4\nallocation=ta+gc\n";
        let config = Config::parse(&format!("{text}{SCRATCH}\n{more}")).unwrap();
        assert_eq!(config.listen.len(), 2);
        assert_eq!(config.policy, Some(PolicyKind::Set10));
        assert_eq!(config.key, Some("/etc/k".into()));
        let [scratch, home] = &config.storages[..] else { panic!("two storages") };
        assert_eq!((scratch.path.as_str(), scratch.targets, scratch.compute_nodes), ("/scratch", 8, 128));
        assert_eq!(scratch.bandwidth, [500e6, 980e6, 1400e6]);
        assert_eq!(scratch.allocation, resources::Policy::Weir);
        assert_eq!(config.order, Some(aggregators::Policy::Sio));
        assert_eq!(home.path, "/home");
        assert_eq!(home.allocation.name(), "ta+gc");
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named_with_its_line() {
        for (text, error) in [
            (
                "\npolice = set10",
                "line 2: unknown key \"police\"; valid are listen, policy, order, backfill, key",
            ),
            ("policy = set11", "line 1: policy: unknown policy \"set11\"; valid are exclusive"),
            ("listen = here", "line 1: listen: address \"here\": must be"),
            ("policy set10", "line 1: \"policy set10\" is not key = value"),
            ("key =", "line 1: key: no file"),
            ("[storag /a]", "line 1: unknown section [storag /a]; valid is [storage PATH]"),
            ("[storage /a", "line 1: unknown section [storage /a; valid is [storage PATH]"),
            ("[storage a]", "the section [storage a] of line 1: storage \"a\": must be the path"),
            (
                "policy = weir\n[storage /a]\ntargets = 3",
                "the section [storage /a] of line 2: compute_nodes: must",
            ),
            (
                "[storage /a]\ntarget = 3",
                "line 2: unknown key \"target\" of [storage /a]; valid are targets,",
            ),
            ("[storage /a]\ntargets = many", "line 2: targets: \"many\": must be a whole number"),
            (
                "[storage /a]\nbandwidth_mb_per_s = 1, 2",
                "line 2: bandwidth_mb_per_s: \"1, 2\": must be numbers",
            ),
            (
                "[storage /a]\nallocation = best",
                "line 2: allocation: \"best\": there is no \"best\"; there are",
            ),
            ("order = best", "line 1: order: unknown order \"best\"; valid are nio, sio, hio"),
        ] {
            let said = Config::parse(text).unwrap_err();
            assert!(said.starts_with(error), "{said}");
        }
        let said = Config::parse(&format!("{SCRATCH}{SCRATCH}")).unwrap_err();
        assert_eq!(said, "line 5: storage \"/scratch\" stands twice");
    }
}
