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
//! total_bandwidth_mb_per_s = 1700               # of all jobs together, and of one node: what a job can use at most
//! node_bandwidth_mb_per_s = 90                  # follows from its nodes
//! ```
//!
//! What the policies with a timetable (`periodic`, `apio`, `apio-barrier`) know in their paper:
//!
//! ```text
//! plan_objective = both                         # or sysefficiency, dilation
//! plan_period_s = 120                           # the one period, instead of the best
//! plan_longest = 10                             # K': periods up to so many times the shortest are tried
//! plan_epsilon = 0.05                           # ε: each is longer by this part than the one before
//!
//! [application lammps]                          # as the profile and weir status name it; may stand more than once
//! compute_s = 100                               # W_i: from the end of a phase to the beginning of the next
//! io_s = 12                                     # of a phase, at the storage's whole bandwidth
//! ```

use crate::address::Address;
use crate::site::ApplicationInfo;
use crate::storage::{MAX_STORAGES, Storage};
use std::fs;
use std::path::{Path, PathBuf};
use weir_engine::engine::InstanceInfo;
use weir_engine::sharing::PolicyKind;
use weir_engine::sharing::periodic::{Objective, Planning};
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
    pub planning: Planning,
    pub applications: Vec<ApplicationInfo>,
}

const KEYS: &str =
    "listen, policy, order, backfill, key, plan_objective, plan_period_s, plan_longest, plan_epsilon";
const STORAGE_KEYS: &str = "targets, bandwidth_mb_per_s, compute_nodes, allocation, total_bandwidth_mb_per_s, \
                            node_bandwidth_mb_per_s";
const APPLICATION_KEYS: &str = "compute_s, io_s";
const SECTIONS: &str = "[storage PATH] and [application NAME]";

/// More applications are not told apart.
const MAX_APPLICATIONS: usize = 1_000;

/// What the lines that are being read are about.
#[derive(Clone, Copy)]
enum Section {
    All,
    /// The latest of them, and the line where it began.
    Storage(usize),
    Application(usize),
}

impl Config {
    /// Every line is `key = value` or the heading of a section; what follows a `#` is a comment. Errors name the line
    /// and the key.
    pub fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let mut section = Section::All;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let wrong = |why: String| format!("line {number}: {why}");
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(heading) = line.strip_prefix('[') {
                config.end_section(section)?;
                section = config.begin_section(number, heading).map_err(wrong)?;
            } else if !line.is_empty() {
                let (key, value) = line
                    .split_once('=')
                    .map(|(key, value)| (key.trim(), value.trim()))
                    .ok_or_else(|| wrong(format!("{line:?} is not key = value")))?;
                let set = match section {
                    Section::All => config.set(key, value),
                    Section::Storage(_) => config.set_storage(key, value),
                    Section::Application(_) => config.set_application(key, value),
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

    fn begin_section(&mut self, line: usize, heading: &str) -> Result<Section, String> {
        let inner = heading.strip_suffix(']').map(str::trim);
        match inner.and_then(|inner| inner.split_once(char::is_whitespace)) {
            Some(("storage", path)) => {
                self.add_storage(path.trim())?;
                Ok(Section::Storage(line))
            }
            Some(("application", name)) => {
                self.add_application(name.trim())?;
                Ok(Section::Application(line))
            }
            _ => Err(format!("unknown section [{heading}; valid are {SECTIONS}")),
        }
    }

    fn add_application(&mut self, name: &str) -> Result<(), String> {
        if self.applications.iter().any(|known| known.name == name) {
            return Err(format!("application {name:?} stands twice"));
        }
        if self.applications.len() == MAX_APPLICATIONS {
            return Err(format!("more than {MAX_APPLICATIONS} applications"));
        }
        let instance = InstanceInfo { work_s: f64::NAN, io_s: f64::NAN };
        self.applications.push(ApplicationInfo { name: name.into(), instance });
        Ok(())
    }

    fn add_storage(&mut self, path: &str) -> Result<(), String> {
        if self.storages.iter().any(|storage| storage.path == path) {
            return Err(format!("storage {path:?} stands twice"));
        }
        if self.storages.len() == MAX_STORAGES {
            return Err(format!("more than {MAX_STORAGES} storages"));
        }
        self.storages.push(Storage::new(path));
        Ok(())
    }

    fn end_section(&self, section: Section) -> Result<(), String> {
        match (section, self.storages.last(), self.applications.last()) {
            (Section::Storage(line), Some(storage), _) => storage
                .check()
                .map_err(|why| format!("the section [storage {}] of line {line}: {why}", storage.path)),
            (Section::Application(line), _, Some(ApplicationInfo { name, instance })) => {
                let missing = [("compute_s", instance.work_s), ("io_s", instance.io_s)];
                match missing.iter().find(|(_, value)| value.is_nan()) {
                    Some((key, _)) => {
                        Err(format!("the section [application {name}] of line {line}: {key}: must be said"))
                    }
                    None => Ok(()),
                }
            }
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
            "plan_objective" => {
                self.planning.objective = match value {
                    "sysefficiency" => Objective::SysEfficiency,
                    "dilation" => Objective::Dilation,
                    "both" => Objective::Both,
                    _ => return Err(bad(format!("{value:?}: valid are sysefficiency, dilation, both"))),
                }
            }
            "plan_period_s" => self.planning.period_s = Some(seconds(value, 1e-3).map_err(bad)?),
            "plan_longest" => self.planning.longest = within(value, 1.0, 1000.0).map_err(bad)?,
            "plan_epsilon" => self.planning.epsilon = within(value, 1e-3, 1.0).map_err(bad)?,
            _ => return Err(format!("unknown key {key:?}; valid are {KEYS}, and sections {SECTIONS}")),
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
            "total_bandwidth_mb_per_s" => storage.total_bandwidth = rate(value).map_err(|why| bad(&why))?,
            "node_bandwidth_mb_per_s" => storage.node_bandwidth = rate(value).map_err(|why| bad(&why))?,
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

    fn set_application(&mut self, key: &str, value: &str) -> Result<(), String> {
        let Some(application) = self.applications.last_mut() else { return Err("no section".into()) };
        let bad = |why: String| format!("{key}: {value:?}: {why}");
        match key {
            "compute_s" => application.instance.work_s = seconds(value, 0.0).map_err(bad)?,
            "io_s" => application.instance.io_s = seconds(value, 1e-3).map_err(bad)?,
            _ => {
                return Err(format!(
                    "unknown key {key:?} of [application {}]; valid are {APPLICATION_KEYS}",
                    application.name
                ));
            }
        }
        Ok(())
    }
}

/// A number from `least` to `most`.
fn within(value: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("must be a number from {least} to {most}"))
}

/// A number of seconds, up to a year.
fn seconds(value: &str, least_s: f64) -> Result<f64, String> {
    within(value, least_s, 366.0 * 86400.0)
}

/// Megabytes per second, in bytes.
fn rate(value: &str) -> Result<f64, String> {
    within(value, 1e-3, 1e9).map(|megabytes| megabytes * 1e6)
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

    /// The examples of docs/COORDINATION.md.
    #[test]
    fn the_documented_file_is_one() {
        let document = include_str!("../../../docs/COORDINATION.md");
        let (_, behind) = document.split_once("The file:\n").expect("there are examples");
        let mut examples = behind.split("```").skip(1).step_by(2).map(|text| Config::parse(text).unwrap());
        let (first, second) = (examples.next().unwrap(), examples.next().unwrap());
        assert_eq!(first.storages[0].node_part(), Some(0.05));
        assert_eq!(second.planning.period_s, Some(120.0));
        assert_eq!(second.applications[0].instance, InstanceInfo { work_s: 100.0, io_s: 12.0 });
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
            ("[storag /a]", "line 1: unknown section [storag /a]; valid are [storage PATH]"),
            ("[storage /a", "line 1: unknown section [storage /a; valid are [storage PATH]"),
            (
                "[application]",
                "line 1: unknown section [application]; valid are [storage PATH] and [application",
            ),
            (
                "[application a]\nwork_s = 3",
                "line 2: unknown key \"work_s\" of [application a]; valid are compute_s, io_s",
            ),
            ("[application a]\ncompute_s = long", "line 2: compute_s: \"long\": must be a number from 0 to"),
            (
                "[application a]\ncompute_s = 1\n[storage /a]",
                "the section [application a] of line 1: io_s: must be said",
            ),
            ("plan_objective = all", "line 1: plan_objective: \"all\": valid are sysefficiency, dilation"),
            ("plan_epsilon = 0", "line 1: plan_epsilon: must be a number from 0.001 to 1"),
            (
                "[storage /a]\nnode_bandwidth_mb_per_s = 9",
                "the section [storage /a] of line 1: node_bandwidth_mb_per_s and total",
            ),
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
