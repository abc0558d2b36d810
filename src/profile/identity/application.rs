//! The name of the program; for an interpreter, that of its script or module.
//!
//! It becomes part of file names and is told to the coordinator: code that stands in the command line (`python3 -c '…'`) must not
//! get into it.

use crate::config::variable;

/// What the command line of an interpreter means. Options of one letter may be joined (`-uc code`).
struct Interpreter {
    /// With or without a version behind them.
    names: &'static [&'static str],
    /// Letters whose value is code.
    code: &'static str,
    /// Letters whose value is a module to run.
    module: &'static str,
    /// Letters whose value is the script.
    script: &'static str,
    /// Letters whose value is the rest of the word or, if that is empty, the next word.
    value: &'static str,
    /// Letters whose value, if they have one, is the rest of the word.
    attached: &'static str,
    /// Long options whose value is code, and those that have another value in the next word.
    long_code: &'static [&'static str],
    long_value: &'static [&'static str],
}

const PLAIN: Interpreter = Interpreter {
    names: &[],
    code: "",
    module: "",
    script: "",
    value: "",
    attached: "",
    long_code: &[],
    long_value: &[],
};

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["python", "pypy"],
        code: "c",
        module: "m",
        value: "WX",
        long_value: &["--check-hash-based-pycs"],
        ..PLAIN
    },
    Interpreter { names: &["perl"], code: "eE", value: "I", attached: "mMiFx", ..PLAIN },
    Interpreter { names: &["ruby"], code: "e", value: "IrCEX", attached: "Fix", ..PLAIN },
    Interpreter {
        names: &["julia"],
        code: "eE",
        value: "LtpJHC",
        attached: "Og",
        long_code: &["--eval", "--print"],
        long_value: &["--load", "--threads", "--procs", "--sysimage", "--machine-file", "--home"],
        ..PLAIN
    },
    Interpreter { names: &["Rscript", "R"], code: "e", script: "f", value: "gd", ..PLAIN },
    Interpreter { names: &["octave", "octave-cli"], long_code: &["--eval"], value: "p", ..PLAIN },
    Interpreter {
        names: &["sh", "bash", "dash", "ksh", "zsh"],
        code: "c",
        value: "oO",
        long_value: &["--rcfile", "--init-file"],
        ..PLAIN
    },
];

/// Modules of Python that run a script, a module or code in their turn (`python3 -m mpi4py script.py`), and their options with a
/// value.
const RUNNERS: &[&str] = &["mpi4py", "mpi4py.run", "mpi4py.futures", "cProfile", "profile", "pdb", "trace"];
const RUNNER: Interpreter =
    Interpreter { code: "c", module: "m", value: "os", long_value: &["-rc", "--rc"], ..PLAIN };

/// The program's name as the profile has it.
pub(super) fn application() -> String {
    if let Some(name) = variable("WEIR_APPLICATION") {
        return name;
    }
    let program = std::env::current_exe().map(|path| base(&path.to_string_lossy()).to_string());
    let program = program.unwrap_or_default();
    match interpreter(&program) {
        None => program,
        Some(interpreter) => {
            let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
            interpreted(&program, interpreter, &line)
        }
    }
}

/// The name of what an interpreter runs, or its own, as it was called, for code and for what comes from standard input.
fn interpreted(program: &str, interpreter: &Interpreter, command_line: &[u8]) -> String {
    let words: Vec<String> = command_line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let (called, arguments) = words.split_first().map_or(("", &[][..]), |(first, rest)| (base(first), rest));
    let own = if self::interpreter(called).is_some() { called } else { program };
    subject(interpreter, arguments).unwrap_or_else(|| own.to_string())
}

/// The script or module in the arguments of an interpreter; `None` for code and standard input.
fn subject(interpreter: &Interpreter, arguments: &[String]) -> Option<String> {
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if let Some(script) = word.strip_prefix("--file=") {
            return script_name(script);
        }
        let name = word.split('=').next().unwrap_or_default();
        if interpreter.long_code.contains(&name) {
            return None;
        }
        if interpreter.long_value.contains(&word) {
            words.next();
            continue;
        }
        let letters = match word.strip_prefix('-') {
            None => return script_name(word),
            Some("") => return None,
            // Another long option, or a `--` before the script.
            Some(letters) if letters.starts_with('-') => continue,
            Some(letters) => letters,
        };
        for (at, letter) in letters.char_indices() {
            let rest = &letters[at + letter.len_utf8()..];
            let mut value = || if rest.is_empty() { words.next() } else { Some(rest) };
            if interpreter.code.contains(letter) {
                return None;
            } else if interpreter.module.contains(letter) {
                let module = value()?;
                let is_runner = RUNNERS.contains(&module);
                let behind: Vec<String> =
                    if is_runner { words.map(String::from).collect() } else { Vec::new() };
                return if is_runner { subject(&RUNNER, &behind) } else { Some(module.into()) };
            } else if interpreter.script.contains(letter) {
                return script_name(value()?);
            } else if interpreter.value.contains(letter) {
                value();
                break;
            } else if interpreter.attached.contains(letter) {
                break;
            }
        }
    }
    None
}

/// The script's name; what the shell has put in its place has none, and what looks like code is taken for code, whatever option it
/// stands behind.
fn script_name(path: &str) -> Option<String> {
    let is_file = !path.starts_with("/dev/") && !path.starts_with("/proc/");
    let is_code = |c: char| c.is_control() || "\"'`;(){}<>|&$*\\".contains(c);
    let is_name = |name: &&str| !name.is_empty() && !name.contains(char::is_whitespace);
    Some(base(path)).filter(is_name).filter(|_| is_file && !path.contains(is_code)).map(String::from)
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn interpreter(program: &str) -> Option<&'static Interpreter> {
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().find(|interpreter| interpreter.names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name for a command line with `|` between its words.
    fn named(words: &str) -> String {
        let program = base(words.split('|').next().unwrap()).to_string();
        let line = words.replace('|', "\0") + "\0";
        interpreted(&program, interpreter(&program).expect("an interpreter"), line.as_bytes())
    }

    #[test]
    fn a_script_or_module_names_the_application_of_an_interpreter() {
        for (words, expected) in [
            ("python3|-u|/home/me/a.py|x", "a.py"),
            ("python3.11|-W|ignore|-X|dev|a.py", "a.py"),
            ("/usr/bin/python3|-m|solver.main|-c|7", "solver.main"),
            ("python3|-um|solver", "solver"),
            ("python3|-m|mpi4py|-rc|threads=0|a.py", "a.py"),
            ("python3|-m|mpi4py.futures|-m|solver", "solver"),
            ("perl|-w|-I|lib|-MMPI|a.pl", "a.pl"),
            ("ruby|-r|mpi|a.rb", "a.rb"),
            ("julia|-t|4|--project=.|-L|init.jl|a.jl", "a.jl"),
            ("R|--no-echo|--no-restore|--file=a.R|--args", "a.R"),
            ("R|-f|my dir/a.R", "a.R"),
            ("bash|-e|run.sh", "run.sh"),
        ] {
            assert_eq!(named(words), expected, "{words}");
        }
    }

    #[test]
    fn code_of_the_command_line_does_not_get_into_the_name() {
        for (words, expected) in [
            ("/usr/bin/python3|-c|import os; open('/a/b')|x", "python3"),
            ("python3|-Ic|secret()", "python3"),
            ("python3|-csecret()", "python3"),
            ("python3|-m|mpi4py|-c|secret()", "python3"),
            ("python3|-", "python3"),
            ("python3", "python3"),
            ("python3|/dev/stdin", "python3"),
            ("python3|/dev/fd/63", "python3"),
            ("perl|-e|secret", "perl"),
            ("perl|-lane|secret", "perl"),
            ("perl|-de|secret", "perl"),
            ("python3|--unknown-option|secret()", "python3"),
            ("perl|-I|lib|-Mstrict|-E|secret", "perl"),
            ("ruby|-ne|secret", "ruby"),
            ("julia|-e|secret", "julia"),
            ("julia|--eval=secret", "julia"),
            ("julia|-E|secret", "julia"),
            ("R|--no-echo|--no-restore|-e|secret", "R"),
            ("Rscript|-e|secret", "Rscript"),
            ("bash|-lc|secret", "bash"),
            ("sh|-o|errexit|-c|secret", "sh"),
        ] {
            assert_eq!(named(words), expected, "{words}");
        }
        assert!(interpreter("Ramses").is_none() && interpreter("pythonic").is_none());
    }
}
