//! What the values of `WEIR_*` mean: to `libweir.so`, which reads them, and to `weir run`, which checks them first.

/// Begins what is said of a `WEIR_DIR` that cannot be written to.
pub const CANNOT_WRITE: &str = "cannot write to WEIR_DIR=";
/// Set by `weir run` when it has said that itself.
pub const SAID_UNWRITABLE: &str = "WEIR_SAID_UNWRITABLE";

/// Whose I/O is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    Off,
    /// What the MPI library moves for `MPI_File_*`.
    Mpi,
    /// That, and what the program itself moves to or from regular files if it is much.
    Auto,
    /// Every data call.
    All,
}

impl Gate {
    /// The value of `WEIR_GATE` that asks for it.
    pub fn name(self) -> &'static str {
        match self {
            Gate::Off => "off",
            Gate::Mpi => "mpi",
            Gate::Auto => "auto",
            Gate::All => "all",
        }
    }
}

/// Beneath these is what a program reads because it is a program, not because it does I/O. `docs/PROFILE.md` lists them.
pub const SYSTEM_DIRECTORIES: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/run", "/sbin", "/snap",
    "/sys", "/usr", "/var",
];
/// So do the names of such files end elsewhere.
pub const PROGRAM_ENDINGS: &[&str] = &[".py", ".pyc", ".pyi", ".so", ".pth", ".jl", ".mod"];
/// And that is in the names of libraries that have a version, and of what Open MPI's processes tell each other by.
pub const PROGRAM_PARTS: &[&str] = &[".so.", "/pmix_dstor_"];

/// `on` or `off`, and other words for them.
pub fn flag(value: &str) -> Result<bool, &'static str> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err("on or off"),
    }
}

/// `0.5`, `0.5s` or `500ms`, in nanoseconds; more than nothing and at most a year.
pub fn time_ns(value: &str) -> Result<u64, &'static str> {
    let (number, unit_s) = match value.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (value.strip_suffix('s').unwrap_or(value), 1.0),
    };
    match number.trim().parse::<f64>().map(|number| number * unit_s) {
        Ok(seconds) if seconds > 0.0 && seconds <= 366.0 * 86400.0 => Ok((seconds * 1e9) as u64),
        _ => Err("a time such as 0.5, 500ms or 2s"),
    }
}

/// `4096`, `512K`, `4M` or `1G`, in bytes; the units are powers of 1024.
pub fn bytes(value: &str) -> Result<u64, &'static str> {
    let value = value.trim().trim_end_matches(['B', 'b']).trim_end_matches(['i', 'I']);
    let (number, shift) = match value.chars().last().map(|last| last.to_ascii_uppercase()) {
        Some('K') => (&value[..value.len() - 1], 10),
        Some('M') => (&value[..value.len() - 1], 20),
        Some('G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    let number = number.trim().parse::<u64>().ok();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or("a size such as 512K, 4M or 0")
}

/// A number of things of which there is at least one.
pub fn count(value: &str) -> Result<u64, &'static str> {
    let number = value.trim().parse().ok().filter(|number| (1..=u64::from(u32::MAX)).contains(number));
    number.ok_or("a whole number from 1 on")
}

/// Paths with colons between them.
pub fn paths(value: &str) -> Vec<String> {
    value.split(':').filter(|path| !path.is_empty()).map(String::from).collect()
}

/// A pattern as it is compared with the whole paths of files: one that begins with a name is meant from a directory on.
pub fn from_directory(pattern: &str, directory: &str) -> String {
    match pattern.as_bytes().first() {
        Some(b'*') | None => pattern.into(),
        Some(b'/') => tidy(pattern),
        Some(_) => tidy(&format!("{directory}/{pattern}")),
    }
}

/// Without `//`, `/./` and `/../`: one name for one file. Links are not followed.
pub fn tidy(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// `auto`, `mpi`, `all` or `off`, and behind a colon the files it is about; all if none are named.
pub fn gate(value: &str) -> Result<(Gate, Vec<String>), &'static str> {
    let (kind, rest) = value.split_once(':').unwrap_or((value, ""));
    let gate = match kind {
        "off" => Gate::Off,
        "mpi" => Gate::Mpi,
        "auto" => Gate::Auto,
        "all" => Gate::All,
        _ => return Err("auto, mpi, all or off, and paths behind a colon"),
    };
    Ok((gate, paths(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in [("0.5", 500_000_000), ("500ms", 500_000_000), ("2s", 2_000_000_000)] {
            assert_eq!(time_ns(text), Ok(ns), "{text}");
        }
        for bad in ["", "0", "-1", "soon", "inf", "NaN", "5 min", "1e30"] {
            assert!(time_ns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, size) in
            [("0", 0), ("4096", 4096), ("512K", 512 << 10), ("4 MiB", 4 << 20), ("1gb", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for bad in ["", "K", "-1", "1.5M", "much", "99999999999999G"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gate_may_be_for_some_paths_only() {
        let some = vec!["/scratch".to_string(), "/projects/*".to_string()];
        assert_eq!(gate("all:/scratch:/projects/*"), Ok((Gate::All, some)));
        assert_eq!(gate("mpi"), Ok((Gate::Mpi, vec![])));
        assert_eq!(gate("auto:"), Ok((Gate::Auto, vec![])));
        assert!(gate("posix").is_err() && gate("").is_err());
    }

    #[test]
    fn patterns_that_begin_with_a_name_are_meant_from_the_directory_on() {
        for (pattern, meant) in [
            ("s.dat", "/here/s.dat"),
            ("./", "/here"),
            (".", "/here"),
            ("../there/*.h5", "/there/*.h5"),
            ("*.h5", "*.h5"),
            ("*/s.dat", "*/s.dat"),
            ("/scratch//me/", "/scratch/me"),
            ("/", "/"),
        ] {
            assert_eq!(from_directory(pattern, "/here"), meant, "{pattern}");
        }
    }

    #[test]
    fn paths_are_tidied() {
        assert_eq!(tidy("/a//b/./c/../d"), "/a/b/d");
        assert_eq!(tidy("/../x"), "/x");
    }

    #[test]
    fn flags_have_several_names() {
        assert_eq!((flag("On"), flag("0")), (Ok(true), Ok(false)));
        assert!(flag("maybe").is_err());
    }
}
