//! Programs that make it hard for a library inside them: no heap to be had, a folder, a user and descriptors that
//! change; and paths that are to be measured or not.

use super::{Place, SYSTEM, Scenario, scenario};
use crate::mpi::c;
use crate::run::{Job, Ran, same};
use crate::{Verdict, ensure, profile};
use std::ffi::OsString;

pub(super) fn list() -> Vec<Scenario> {
    [
        scenario("heap_interrupted", |place: &Place| exact(heap(place, "interrupted")?)),
        scenario("heap_forked", forked),
        scenario("heap_exhausted", exhausted),
        scenario("surroundings_moved", |place: &Place| exact(surroundings(place, "moved")?)),
        scenario("surroundings_user", other_user),
        scenario("replaced_by_itself", again),
        scenario("more_files_than_places", many),
        scenario("paths_include_exclude", paths),
        scenario("paths_relative", relative_paths),
    ]
    .into_iter()
    .map(|scenario| scenario.only(SYSTEM))
    .collect()
}

fn heap(place: &Place, kind: &str) -> Verdict<Job> {
    let executable = place.mpi.build(&c("heap", "tests/programs/heap.c", &["-pthread"]))?;
    let command: [OsString; 2] = [executable.into(), kind.into()];
    Ok(Job::mpi(&place.name, &place.mpi, 2, command))
}

/// Children that came into being while another thread was within one of Weir's locks are not measured; the others are, as far as
/// records of them are kept. None of them hangs.
fn forked(place: &Place) -> Verdict {
    let ran = heap(place, "forked")?.compare()?;
    let profiles = profile::all(&ran.profiles)?;
    let [profile] = profiles.as_slice() else { return Err(format!("{} profiles", profiles.len()).into()) };
    profile::agrees(&profile::tally(&ran.stdout)?, &[profile])?;
    let children = profile["ranks"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|rank| rank["children"]["count"].as_u64());
    let (kept, lost) = (children.sum::<u64>(), profile["dropped"]["children"].as_u64().unwrap_or(0));
    ensure((1..=256).contains(&kept) && kept + lost <= 2 * 200, || {
        format!("{kept} children, and {lost} left out")
    })
}

fn exact(job: Job) -> Verdict {
    agrees(&job.compare()?, 2)
}

fn agrees(ran: &Ran, ranks: usize) -> Verdict {
    let profile = profile::only(ran, ranks)?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])
}

/// The record has its room from the start, and its pages are not the heap's: every file is in it, or counted as dropped.
fn exhausted(place: &Place) -> Verdict {
    let ran = heap(place, "exhausted")?.compare()?;
    let profile = profile::all(&ran.profiles)?.pop().ok_or("no profile")?;
    let dropped = profile["dropped"]["files"].as_u64().unwrap_or(0);
    let listed = profile["files"].as_array().map_or(0, Vec::len) as u64;
    ensure(listed + dropped >= 2 * 501, || format!("{listed} files listed, {dropped} dropped"))
}

fn surroundings(place: &Place, kind: &str) -> Verdict<Job> {
    let executable = place.mpi.build(&c("surroundings", "tests/programs/surroundings.c", &[]))?;
    let command: [OsString; 2] = [executable.into(), kind.into()];
    Ok(Job::mpi(&place.name, &place.mpi, 2, command))
}

/// Who the program has become may not write to `WEIR_DIR`, but the helper process may: it is whom the program was.
fn other_user(place: &Place) -> Verdict {
    let job = surroundings(place, "user")?;
    let bare = job.run("bare")?.unless_skipped()?;
    let with = job.with_library().run("weir")?;
    same(&bare, &with)?;
    ensure(with.remarks().is_empty(), || format!("nothing was to be said:\n{}", with.stderr))?;
    agrees(&with, 2)
}

/// A program that replaces itself by exec, without a launcher: one job, with what both of its images did.
fn again(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("again", "tests/programs/again.c", &[]))?;
    // Open MPI would start a launcher for it.
    let job = Job::new(&place.name, [executable]).variable("OMPI_MCA_ess_singleton_isolated", "1");
    let ran = job.compare()?;
    let profiles = profile::all(&ran.profiles)?;
    let [profile] = profiles.as_slice() else { return Err(format!("{} profiles", profiles.len()).into()) };
    let ended: Vec<_> =
        profile["ranks"].as_array().into_iter().flatten().map(|rank| &rank["ended"]).collect();
    ensure(ended == ["finalized"], || format!("ranks are {}", profile["ranks"]))?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[profile])
}

/// Files that have no counters of their own are summed up, with what the MPI library does beneath.
fn many(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("many", "tests/programs/many.c", &[]))?;
    let ran = Job::mpi(&place.name, &place.mpi, 2, [executable]).variable("WEIR_MAX_FILES", "1").compare()?;
    let profile = profile::all(&ran.profiles)?.pop().ok_or("no profile")?;
    let dropped = &profile["dropped"]["files"];
    ensure(*dropped == 2 * 5, || format!("{dropped} files dropped"))?;
    profile::agrees(&profile::tally(&ran.stdout)?, &[&profile])
}

/// `WEIR_INCLUDE` beats `WEIR_EXCLUDE`, which beats what is left out by itself.
fn paths(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("posix", "tests/programs/posix.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, 1, [executable]);
    let job = job.variable("WEIR_EXCLUDE", "*.dat").variable("WEIR_INCLUDE", "/etc/passwd:*/plain.*.dat");
    let ran = job.with_library().run("weir")?;
    ensure(ran.code == 0, || format!("{}\n{}", ran.code, ran.stderr))?;
    let profile = profile::all(&ran.profiles)?.pop().ok_or("no profile")?;
    let files = profile["files"].as_array().into_iter().flatten();
    let mut names: Vec<_> = files.filter_map(|file| file["name"].as_str()?.rsplit('/').next()).collect();
    names.sort_unstable();
    ensure(names == ["passwd", "plain.0.dat"], || format!("files are {names:?}"))?;
    let reads = profile["files"].as_array().into_iter().flatten();
    let reads =
        reads.filter(|file| file["name"] == "/etc/passwd").map(|f| &f["modules"]["POSIX"]["POSIX_READS"]);
    ensure(reads.clone().eq([&serde_json::json!(1)]), || {
        format!("reads of passwd: {:?}", reads.collect::<Vec<_>>())
    })
}

/// A path that begins with a name is one from the current directory on, as is what `weir run` is told.
fn relative_paths(place: &Place) -> Verdict {
    let executable = place.mpi.build(&c("many", "tests/programs/many.c", &[]))?;
    let job = Job::mpi(&place.name, &place.mpi, 2, [executable]);
    let (all, kept) = (["first.0", "first.1", "many.0"], ["first.0"]);
    let names = |ran: &Ran| -> Verdict<Vec<String>> {
        ensure(ran.code == 0, || format!("{}\n{}", ran.code, ran.stderr))?;
        let profile = profile::all(&ran.profiles)?.pop().ok_or("no profile")?;
        let files = profile["files"].as_array().into_iter().flatten();
        let names = files.filter_map(|file| file["name"].as_str()?.rsplit('/').next().map(String::from));
        let mut names: Vec<_> = names.filter(|name| all.contains(&name.as_str())).collect();
        names.sort_unstable();
        Ok(names)
    };
    let excluded =
        |value: &str| names(&job.clone().variable("WEIR_EXCLUDE", value).with_library().run("weir")?);
    for (value, left) in [("none.dat", &all[..]), ("./first.1:many.*", &kept), ("first.1:././/many.0", &kept)]
    {
        let measured = excluded(value)?;
        ensure(measured == left, || format!("with {value} files are {measured:?}"))?;
    }
    let job = job.variable("WEIR_EXCLUDE", "./").variable("WEIR_INCLUDE", "first.0");
    let measured = names(&job.with_library().run("weir")?)?;
    ensure(measured == kept, || format!("with ./ files are {measured:?}"))?;
    let told =
        names(&job.variable("WEIR_EXCLUDE", "").under(&["run", "--quiet", "--exclude", "."]).run("run")?)?;
    ensure(told == kept, || format!("with weir run --exclude . files are {told:?}"))
}
