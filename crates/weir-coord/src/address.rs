//! Where a coordinator listens, `unix:/path` or `tcp://host:port`, and what `WEIR_COORDINATOR` may say.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// `host:port`, the host a name or a number; IPv6 in brackets.
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = |why: &str| Err(format!("address {text:?}: {why}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => wrong("no path behind unix:"),
                _ if !path.starts_with('/') => wrong("the path must be absolute, as in unix:/run/weir.sock"),
                _ if path.contains('\0') => wrong("the path has a zero byte in it"),
                _ => Ok(Address::Unix(path.into())),
            };
        }
        let Some(place) = text.strip_prefix("tcp://") else {
            return wrong("must be unix:/path or tcp://host:port");
        };
        let Some((host, port)) = place.rsplit_once(':') else { return wrong("no port behind the host") };
        if host.is_empty() || (host.contains(':') && !(host.starts_with('[') && host.ends_with(']'))) {
            return wrong("no host, or an IPv6 address without brackets");
        }
        match port.parse::<u16>() {
            Ok(_) => Ok(Address::Tcp(place.into())),
            Err(_) => wrong("the port must be a number from 0 to 65535"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(place) => write!(f, "tcp://{place}"),
        }
    }
}

/// What `WEIR_COORDINATOR` may say: how a job is to be coordinated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// `off`: not at all.
    Off,
    /// `elect` or `elect:/directory`, and what holds if nothing is said: the jobs that meet in the directory
    /// elect one among them. `None` is [`crate::election::default_directory`].
    Elect(Option<PathBuf>),
    /// An address: by the service there.
    Service(Address),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        match (text, text.strip_prefix("elect:")) {
            ("off", _) => Ok(Choice::Off),
            ("" | "elect", _) => Ok(Choice::Elect(None)),
            (_, Some(directory)) if directory.starts_with('/') => Ok(Choice::Elect(Some(directory.into()))),
            (_, Some(_)) => {
                Err(format!("{text:?}: the directory must be absolute, as in elect:/scratch/me/weir"))
            }
            _ if text.starts_with("unix:") || text.starts_with("tcp:") => text.parse().map(Choice::Service),
            _ => {
                Err(format!("{text:?}: must be off, elect, elect:/directory, unix:/path or tcp://host:port"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_are_printed_as_they_were_read() {
        for good in ["unix:/run/weir.sock", "tcp://node7:4711", "tcp://[::1]:80", "tcp://10.0.0.1:0"] {
            assert_eq!(good.parse::<Address>().map(|address| address.to_string()), Ok(good.into()));
        }
    }

    #[test]
    fn bad_addresses_are_named_with_a_reason() {
        for bad in
            ["", "node7:4711", "unix:", "unix:relative", "tcp://", "tcp://node7", "tcp://:1", "tcp://::1:80"]
                .into_iter()
                .chain(["tcp://node7:port", "tcp://node7:70000", "udp://node7:1", "tcp://node7:-1"])
        {
            let error = bad.parse::<Address>().unwrap_err();
            assert!(error.starts_with(&format!("address {bad:?}: ")), "{error}");
        }
    }

    #[test]
    fn choices_are_told_apart() {
        assert_eq!("off".parse(), Ok(Choice::Off));
        assert_eq!("elect".parse(), Ok(Choice::Elect(None)));
        assert_eq!("elect:/a/b".parse(), Ok(Choice::Elect(Some("/a/b".into()))));
        assert_eq!("unix:/a".parse(), Ok(Choice::Service(Address::Unix("/a".into()))));
        for bad in ["on", "elect:here", "unix:a", "tcp:", "Off"] {
            assert!(bad.parse::<Choice>().is_err(), "{bad}");
        }
    }
}
