//! Programs that are none of our business: nothing written, nothing printed, nothing broken. And what is said where nothing
//! can be measured.

use super::programs::EVERYTHING;
use super::{Place, Scenario, scenario};
use crate::mpi::{Language, Program, c};
use crate::run::{Job, Ran, contents};
use crate::{Verdict, ensure};

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("no_io", |place: &Place| {
            let executable = place.mpi.build(&c("quiet", "tests/programs/quiet.c", &[]))?;
            silent(&Job::mpi(&place.name, &place.mpi, 2, [executable]))
        }),
        // Open MPI's processes tell each other by files then.
        scenario("no_io_spawn", |place: &Place| {
            let executable = place.mpi.build(&c("quiet", "tests/programs/quiet.c", &[]))?;
            silent(&Job::mpi(&place.name, &place.mpi, 2, [executable.into_os_string(), "spawn".into()]))
        })
        .only(&["openmpi"]),
        scenario("disabled", |place: &Place| {
            let executable = place.mpi.build(&EVERYTHING)?;
            silent(&Job::mpi(&place.name, &place.mpi, 2, [executable]).variable("WEIR_DISABLE", "1"))
        }),
        scenario("launcher_of_others", |place: &Place| {
            silent(&Job::mpi(
                &place.name,
                &place.mpi,
                1,
                ["sh", "-c", "echo to a file >written.txt; cat written.txt"],
            ))
        }),
        shell(
            "bash",
            &["bash", "-c", "for i in 1 2 3; do echo $i | cat; done >list.txt; wc -l <list.txt; (exit 7)"],
        ),
        shell("sh", &["sh", "-c", "printf 'a\\nb\\n' | sort -r | tee out.txt; exec true"]),
        shell("ls", &["ls", "-l", "/usr/bin/env"]),
        shell("ls_error", &["ls", "/no/such/folder"]),
        shell(
            "python3",
            &[
                "/usr/bin/python3",
                "-c",
                "import subprocess, os; open('f', 'w').write('x'); print(subprocess.check_output(['ls']), os.fork() and os.wait()[1])",
            ],
        ),
        shell(
            "python3_looking_for_mpi",
            &["/usr/bin/python3", "-c", "import ctypes; print(hasattr(ctypes.CDLL(None), 'MPI_Init'))"],
        ),
        shell("mpirun_version", &["mpirun", "--version"]),
        scenario("plain_constructor", constructor).only(&["openmpi"]),
        scenario("no_unwinder", no_unwinder).only(&["mpich"]),
        scenario("absent_function", absent_function).only(&["openmpi"]),
    ]
}

fn shell(name: &str, command: &'static [&'static str]) -> Scenario {
    let test = move |place: &Place| silent(&Job::new(&place.name, command));
    scenario(format!("plain_{name}"), test).only(&["openmpi"])
}

/// The first I/O of a process by a thread for which a library waits that is being loaded.
fn constructor(place: &Place) -> Verdict {
    let plain = |name, source, flags| Program { name, source, language: Language::PlainC, flags };
    let host = place.mpi.build(&plain("host", "tests/programs/host.c", &[]))?;
    let flags = &["-shared", "-fPIC"];
    let library = place.mpi.build(&plain("constructor.so", "tests/programs/constructor.c", flags))?;
    silent(&Job::new(&place.name, [host, library]))
}

/// A machine on which a panic could not be caught, as its library for that is damaged: one line, and nothing else.
fn no_unwinder(place: &Place) -> Verdict {
    let executable = place.mpi.build(&EVERYTHING)?;
    let folder = place.mpi.build(&c("quiet", "tests/programs/quiet.c", &[]))?.with_file_name("no_unwinder");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("libgcc_s.so.1"), "no library")?;
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]).variable("LD_LIBRARY_PATH", folder);
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    crate::run::same(&bare, &with)?;
    ensure(with.remarks() == ["weir: no libgcc_s.so.1 on this machine: nothing is measured"], || {
        format!("one line was expected:\n{}", with.stderr)
    })?;
    no_trace(&with)
}

/// What is asked for in vain is named, in a process that is not armed too.
fn absent_function(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("absent", "tests/programs/absent.c", &[]))?;
    let job = Job::new(&place.name, [executable]);
    let (bare, with) = (job.run("bare")?.unless_skipped()?, job.with_library().run("weir")?);
    crate::run::same(&bare, &with)?;
    ensure(with.remarks() == ["weir: MPI_Session_init is not in this MPI library"], || {
        format!("one line was expected:\n{}", with.stderr)
    })?;
    no_trace(&with)
}

/// As without Weir, on standard error too, and no trace of it.
fn silent(job: &Job) -> Verdict {
    let (bare, with) = (job.run("bare")?, job.with_library().run("weir")?);
    crate::run::same(&bare, &with)?;
    ensure(bare.stderr == with.stderr, || {
        format!("standard error was:\n{}\nis:\n{}", bare.stderr, with.stderr)
    })?;
    no_trace(&with)
}

fn no_trace(ran: &Ran) -> Verdict {
    let left: Vec<_> = contents(&ran.profiles)?.into_keys().collect();
    ensure(left.is_empty(), || format!("left behind: {left:?}"))?;
    let folders = std::fs::read_dir(&ran.profiles)?.count();
    ensure(folders == 0, || "an empty folder was left behind".into())
}
