//! `weir run` and `weir doctor` around programs and launchers made for the test: what they are given,
//! what comes back, and what happens to records that are left behind.

#[path = "../../weir-profile/tests/records/mod.rs"]
mod records;

use records::{Builder, Scratch};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use weir_profile::counters::{Module, posix};
use weir_profile::layout::{Ended, Header};

/// A directory with a library to preload (of no content: the dynamic linker says so and goes on).
fn prepared(name: &str) -> (Scratch, PathBuf) {
    let scratch = Scratch::new(name);
    let library = scratch.0.join("libweir.so");
    fs::write(&library, "").unwrap();
    (scratch, library)
}

fn weir(scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(&scratch.0).env("WEIR_LIB", scratch.0.join("libweir.so"));
    for name in ["WEIR_DIR", "WEIR_JOB_ID", "WEIR_COORDINATOR", "LD_PRELOAD", "WEIR_DISABLE", "SLURM_JOB_ID"]
    {
        command.env_remove(name);
    }
    command
}

/// Written by another process: a child that a test beside this one has just forked would have a file that is written here
/// open as well, and nobody could execute it until that child has become its program.
fn script(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.0.join(name);
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
    let written = Command::new("sh").args(["-c", write, "sh"]).arg(&path).arg(text).status();
    assert!(written.unwrap().success());
    path
}

fn terminate(child: &Child) {
    // SAFETY: a child of this process that nobody has waited for.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) }, 0);
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_program_gets_the_settings_and_its_exit_code_comes_back() {
    let (scratch, library) = prepared("run-env");
    let program = r#"echo "$LD_PRELOAD|$WEIR_DIR|$WEIR_PHASE_GAP|$WEIR_EXCLUDE|$WEIR_MAX_FILES|$WEIR_SIGNALS|$WEIR_APPLICATION|$WEIR_JOB_ID"; exit 7"#;
    let output = weir(&scratch)
        .env("LD_PRELOAD", "/nowhere/other.so")
        .args(["run", "--dir", "out", "--phase-gap", "200ms", "--exclude", "/a", "--exclude", "/b*"])
        .args(["--max-files", "10", "--no-signals", "--application", "mine", "--job-id", "4711"])
        .args(["--", "sh", "-c", program])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let out = scratch.0.join("out").canonicalize().unwrap();
    let expected =
        format!("{}:/nowhere/other.so|{}|200ms|/a:/b*|10|off|mine|4711\n", library.display(), out.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let said = "weir: no I/O of an MPI program was seen before the command failed (exit status: 7)";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("weir: made {}\n", out.display())), "{}", stderr(&output));
}

#[test]
fn two_runs_have_two_job_ids() {
    let (scratch, _) = prepared("run-ids");
    let id =
        || weir(&scratch).args(["run", "-q", "--", "sh", "-c", "echo $WEIR_JOB_ID"]).output().unwrap().stdout;
    let (first, second) = (id(), id());
    assert!(first.len() > 1 && first != second);
}

#[test]
fn a_program_that_was_killed_is_128_and_its_signal() {
    let (scratch, _) = prepared("run-killed");
    let status = weir(&scratch).args(["run", "-q", "--", "sh", "-c", "kill -KILL $$"]).status().unwrap();
    assert_eq!(status.code(), Some(128 + 9));
}

#[test]
fn signals_are_handed_on() {
    let (scratch, _) = prepared("run-signal");
    let program = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = weir(&scratch)
        .args(["run", "-q", "--", "sh", "-c", program])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

/// As `nohup weir run …` and `weir run … &` in a script begin.
#[test]
fn signals_that_are_ignored_stay_so() {
    let (scratch, _) = prepared("run-ignored");
    let ignored = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];
    let program =
        "for s in HUP INT QUIT; do kill -$s $PPID $$; done; sleep 0.2; grep SigIgn /proc/self/status";
    let mut command = weir(&scratch);
    command.args(["run", "-q", "--", "sh", "-c", program]);
    let begin = move || {
        // SAFETY: allowed between `fork` and `exec`.
        ignored.iter().for_each(|signal| _ = unsafe { libc::signal(*signal, libc::SIG_IGN) });
        Ok(())
    };
    // SAFETY: it does nothing that is not allowed there.
    let output = unsafe { command.pre_exec(begin) }.output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    let mask = u64::from_str_radix(said.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert!(ignored.iter().all(|signal| mask >> (signal - 1) & 1 == 1), "{said}");
    assert_eq!(mask >> (libc::SIGTERM - 1) & 1, 0, "{said}");
}

/// Where others may write, they know which name comes next.
#[test]
fn links_that_others_planted_are_not_followed() {
    let (scratch, _) = prepared("run-planted");
    fs::create_dir(scratch.0.join("out")).unwrap();
    fs::write(scratch.0.join("victim"), "precious").unwrap();
    let plant = r#"for end in "" -0 -1; do ln -s ../victim out/.weir-trial-$$$end; done; exec "$@""#;
    let output = Command::new("sh")
        .args(["-c", plant, "sh", env!("CARGO_BIN_EXE_weir"), "run", "--dir", "out", "--lib", "libweir.so"])
        .args(["--", "true"])
        .env("WEIR_COORDINATOR", "off")
        .current_dir(&scratch.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("was seen, so there is no profile; `weir doctor"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(scratch.0.join("victim")).unwrap(), "precious");
    // Nothing of its own stays, and nothing of others goes.
    assert_eq!(fs::read_dir(scratch.0.join("out")).unwrap().count(), 3);
}

/// A shell that leaves the records of a rank, as one that was killed does.
const LEAVE_RECORDS: &str =
    r#"mkdir "$WEIR_DIR/.weir-$WEIR_JOB_ID" && mv *.rec "$WEIR_DIR/.weir-$WEIR_JOB_ID""#;

#[test]
fn a_profile_is_found_under_every_name_that_a_job_can_have() {
    let longest = "j".repeat(96);
    for (id, expected) in [(longest.as_str(), longest.as_str()), (" abc ", "abc")] {
        let (scratch, _) = prepared("run-names");
        let mut record = Builder::new(0, 1);
        record.text(std::mem::offset_of!(Header, job), 16, expected);
        let file = record.file("/data/out");
        record.counters(file, Module::Posix, 0, &[(posix::POSIX_WRITES, 3)]);
        record.ended(Ended::Running, 0, 2.0).write(&scratch.0);
        let output = weir(&scratch)
            .env("WEIR_JOB_ID", id)
            .args(["run", "--", "sh", "-c", LEAVE_RECORDS])
            .output()
            .unwrap();
        let said = stderr(&output);
        assert!(output.status.success() && said.contains(&format!("-{expected}.json\n")), "{said}");
    }
    let (scratch, _) = prepared("run-names");
    let output = weir(&scratch).args(["run", "--job-id", &"j".repeat(97), "--", "true"]).output().unwrap();
    assert!(stderr(&output).contains("longer than 96 characters"), "{}", stderr(&output));
}

#[test]
fn records_of_killed_ranks_are_merged_when_the_launcher_has_ended() {
    let (scratch, _) = prepared("run-leftover");
    for rank in 0..2 {
        let mut record = Builder::new(rank, 2);
        let file = record.file("/data/out");
        record.counters(
            file,
            Module::Posix,
            0,
            &[(posix::POSIX_WRITES, 3), (posix::POSIX_BYTES_WRITTEN, 3000)],
        );
        record.burst(0, 1.0, 2.0, 3000, 0.0, 0).ended(Ended::Running, 0, 2.0).write(&scratch.0);
    }
    let program = format!("{LEAVE_RECORDS}; exit 9");
    let output = weir(&scratch)
        .args(["run", "--report", "--job-id", "4711", "--", "sh", "-c", &program])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(9));
    let said = stderr(&output);
    assert!(said.contains("weir: profile ") && said.contains("weir-stencil-4711.json"), "{said}");
    assert!(said.contains("killed: 2 of 2 ranks") && said.contains("5.86 KiB written"), "{said}");
    let left: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".weir")), "{left:?}");
}

#[test]
fn bad_values_are_named_before_anything_runs() {
    let (scratch, _) = prepared("run-bad");
    let ran = scratch.0.join("ran");
    let cases: [(&[&str], &str); 7] = [
        (&["--phase-gap", "soon"], "--phase-gap <TIME>': not a time"),
        (&["--max-files", "0"], "--max-files <N>'"),
        (&["--exclude", "/a:/b"], "--exclude <PATH>': a path with a colon"),
        (&["--job-id", "a/b"], "--job-id <ID>'"),
        (&["--strict", "--dir", "/dev/null/x"], "cannot write to /dev/null/x: "),
        (&["--lib", "/nowhere/libweir.so"], "--lib /nowhere/libweir.so: "),
        (&["--no-such-option"], "--no-such-option"),
    ];
    for (options, expected) in cases {
        let output =
            weir(&scratch).arg("run").args(options).args(["--", "touch"]).arg(&ran).output().unwrap();
        assert!(!output.status.success(), "{options:?}");
        assert!(stderr(&output).contains(expected), "{options:?}: {}", stderr(&output));
        assert!(!ran.exists(), "{options:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_costs_the_profile_and_not_the_job() {
    let (scratch, _) = prepared("run-unwritable");
    let program = ["run", "--dir", "/dev/null/x", "--", "sh", "-c", "echo $WEIR_DIR; exit 7"];
    let output = weir(&scratch).args(program).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), &b"/dev/null/x\n"[..]));
    let said: Vec<String> =
        stderr(&output).lines().filter(|line| line.starts_with("weir: ")).map(String::from).collect();
    let expected = "weir: cannot write to /dev/null/x: Not a directory (os error 20); --dir or WEIR_DIR says where profiles \
                    go. The command runs on, what it does is not recorded";
    assert_eq!(said, [expected]);
    let strict =
        weir(&scratch).args(["run", "--strict", "--dir", "/dev/null/x", "--", "true"]).output().unwrap();
    assert_eq!(strict.status.code(), Some(125));
}

/// Says to the `weir run` that it is started by what a rank says at its end.
#[test]
fn the_end_of_a_job_without_io_is_told_apart_from_no_mpi_at_all() {
    use weir_profile::helper::{Address, Request, connect, send_request};
    let (scratch, _) = prepared("run-quiet-mpi");
    let job = format!("quiet-{}", std::process::id());
    let go = scratch.0.join("go");
    let wait = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
    for (worlds, nprocs, expected) in [
        (
            1,
            4,
            "weir: MPI ran (4 ranks, MPICH 4.0.2) and did no I/O that is measured, so there is no profile",
        ),
        (
            2,
            1,
            "weir: 2 ranks, each alone in a job of its own: the launcher is mpirun (Open MPI) 4.1.4, the program's MPI MPICH",
        ),
    ] {
        let version = r#"[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit; }"#;
        let launcher = script(&scratch, "mpirun", &format!("{version}\n{wait}"));
        let mut command = weir(&scratch);
        command.args(["run", "--job-id", &job, "--"]).arg(launcher);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        for _ in 0..worlds {
            let socket = (0..500).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                connect(&Address::of_run(user, &job), user).ok()
            });
            let said = Request::Ran { nprocs, mpi: "MPICH 4.0.2".into() };
            send_request(&socket.expect("nobody listens"), &said, None).unwrap();
        }
        fs::write(&go, "").unwrap();
        let output = child.wait_with_output().unwrap();
        fs::remove_file(&go).unwrap();
        assert!(output.status.success() && stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn a_command_that_did_not_run_has_codes_of_its_own() {
    let (scratch, _) = prepared("run-not");
    for (arguments, code, expected) in [
        (&["--lib", "/no/lib.so", "--", "true"][..], 125, "--lib /no/lib.so: No such file"),
        (&["--", "/etc/passwd"], 126, "cannot run /etc/passwd: Permission denied"),
        (&["--", "/no/such/program"], 127, "cannot run /no/such/program: No such file"),
        (&["--", "/no/such/mpirun", "-n", "4", "./app"], 127, "cannot run /no/such/mpirun: No such file"),
    ] {
        let output = weir(&scratch).arg("run").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn what_the_environment_says_counts() {
    let (scratch, _) = prepared("run-environment");
    let run = |name: &str, value: &str| {
        let show = ["run", "-q", "--", "sh", "-c", "echo $WEIR_JOB_ID"];
        weir(&scratch).env(name, value).args(show).output().unwrap()
    };
    assert_eq!(String::from_utf8_lossy(&run("WEIR_JOB_ID", "mine").stdout), "mine\n");
    let batch = String::from_utf8(run("SLURM_JOB_ID", "4711").stdout).unwrap();
    assert!(batch.starts_with("4711-"), "{batch}");
    for (name, value) in [
        ("WEIR_JOB_ID", "a/b"),
        ("WEIR_PHASE_GAP", "soon"),
        ("WEIR_MAX_FILES", "many"),
        ("WEIR_SIGNALS", "perhaps"),
        ("WEIR_POLICY", "best"),
    ] {
        let output = run(name, value);
        assert_eq!(output.status.code(), Some(125), "{name}");
        assert!(stderr(&output).contains(&format!("weir: {name}={value}: ")), "{}", stderr(&output));
    }
}

#[test]
fn launchers_are_asked_who_they_are_and_told_in_their_own_way() {
    let (scratch, library) = prepared("run-launchers");
    let show = |version: &str| {
        format!(r#"[ "$1" = --version ] && {{ echo "{version}"; exit; }}; echo "$LD_PRELOAD|$*""#)
    };
    let first_words = |launcher: &PathBuf| {
        let output = weir(&scratch)
            .args(["run", "-q", "--job-id", "1", "--"])
            .arg(launcher)
            .args(["-n", "2", "./app"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap().trim_end().to_string()
    };
    let (library, dir) = (library.display(), scratch.0.canonicalize().unwrap());
    let dir = dir.display();
    let own = PathBuf::from(env!("CARGO_BIN_EXE_weir")).canonicalize().unwrap();
    let own = own.display();
    let open_mpi = script(&scratch, "mpirun.openmpi", &show("mpirun (Open MPI) 5.0.5"));
    let expected = format!(
        "{library}|-x LD_PRELOAD={library} -x WEIR_COORDINATOR=elect -x WEIR_DIR={dir} -x WEIR_HELPER={own} \
        -x WEIR_JOB_ID=1 -n 2 ./app"
    );
    assert_eq!(first_words(&open_mpi), expected);
    let mpich = script(&scratch, "mpiexec", &show("HYDRA build details:"));
    let expected = format!(
        "|-genv LD_PRELOAD {library} -genv WEIR_COORDINATOR elect -genv WEIR_DIR {dir} -genv WEIR_HELPER {own} \
        -genv WEIR_JOB_ID 1 -n 2 ./app"
    );
    assert_eq!(first_words(&mpich), expected);
    let srun = script(&scratch, "srun", &show("slurm 23.11.4"));
    assert_eq!(first_words(&srun), format!("{library}|-n 2 ./app"));
}

#[test]
fn the_doctor_finds_a_library_that_is_none() {
    let (scratch, _) = prepared("doctor-library");
    let output = weir(&scratch).arg("doctor").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        told.contains("WRONG  libweir.so") && told.contains("is not a shared library of this machine"),
        "{told}"
    );
    assert!(told.contains("ok     WEIR_DIR"), "{told}");
}

#[test]
fn a_doctor_that_is_interrupted_tidies_up() {
    let (scratch, _) = prepared("doctor-interrupted");
    let program = "trap 'exit 1' TERM; echo ready >ready; while :; do sleep 0.02; done";
    let mut child = weir(&scratch)
        .args(["doctor", "--", "sh", "-c", program])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !scratch.0.join("ready").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the program began");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let left: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("doctor")), "{left:?}");
}

#[test]
fn the_doctor_tells_why_nothing_was_seen() {
    let (scratch, _) = prepared("doctor-program");
    let output = weir(&scratch).args(["doctor", "--", "/bin/true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("/bin/true called no MPI_Init and is not linked with MPI"), "{told}");

    // A launcher that refuses: its own words are the reason.
    let refusal =
        "echo -----; echo 'There are not enough slots available'; echo 'for 4 ranks'; echo; echo -----";
    let launcher = script(&scratch, "refuse", &format!("{{ {refusal}; }} >&2; exit 1"));
    let output = weir(&scratch).args(["doctor", "--"]).arg(launcher).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let reason = "failed before any rank called MPI_Init: There are not enough slots available for 4 ranks\n";
    assert!(told.contains(reason) && !told.contains("LD_PRELOAD"), "{told}");

    // A program that is given another library than Weir's.
    let program = ["doctor", "--", "env", "LD_PRELOAD=/nowhere/other.so", "/bin/true"];
    let output = weir(&scratch).args(program).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let reason = "the command sets LD_PRELOAD=/nowhere/other.so, which takes Weir's place: put ";
    assert!(told.contains(reason), "{told}");

    // A launcher of four ranks of which two load Weir, and which do no I/O.
    let said = "armed: openmpi ABI, rank 0 of 4, Open MPI v4.1.4";
    let program = format!("echo 'weir: {said}' >&2; echo 'weir: {}' >&2", said.replace("rank 0", "rank 2"));
    let launcher = script(&scratch, "launch", &program);
    let output = weir(&scratch).args(["doctor", "--"]).arg(launcher).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("ok     MPI         Open MPI v4.1.4, ABI openmpi"), "{told}");
    assert!(told.contains("WRONG  ranks       2 of 4 did not load Weir"), "{told}");
    assert!(told.contains("WRONG  I/O"), "{told}");

    // Open MPI's launcher of two ranks of MPICH, which do not find each other; and of two worlds of its own.
    for (mpi, expected) in [("mpich ABI, rank 0 of 1, MPICH 4.0.2", "WRONG  MPI "), (said, "ok     MPI ")] {
        let mpi = mpi.trim_start_matches("armed: ").replace("0 of 4", "0 of 1");
        let twice = format!("for r in 1 2; do echo 'weir: armed: {mpi}' >&2; done");
        let version = r#"[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit; }"#;
        let launcher = script(&scratch, "mpirun", &format!("{version}\n{twice}"));
        let output = weir(&scratch).args(["doctor", "--"]).arg(launcher).args(["-n", "2"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        let reason = "2 ranks, each alone in a job of its own: the launcher is mpirun (Open MPI) 4.1.4, \
                      the program's MPI MPICH 4.0.2";
        assert!(told.contains(expected), "{told}");
        assert_eq!(told.contains(reason), expected.starts_with("WRONG"), "{told}");
    }
    let left: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("doctor")), "{left:?}");
}
