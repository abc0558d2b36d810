//! Programs that say what their phases are like, and ask how they stand: what they say reaches the coordinator.

use crate::live::{Directory, Live, SOON, Service, status, until};
use crate::mpi::{Language, Program, c};
use crate::run::{Job, library, same_files};
use crate::turns::{Shape, Turns, USUAL};
use crate::{Place, SYSTEM, Scenario, Verdict, ensure, scenario};
use serde_json::Value;
use std::ffi::OsString;
use weir_coord::address::Address;

const C: Program = c("says", "tests/programs/says.c", &["-Iinclude", "-pthread"]);
const FORTRAN: Program = fortran("says_mpi", &["include/weir.f90"]);
const FORTRAN_08: Program = fortran("says_mpi_f08", &["-DWITH_MPI_F08", "include/weir.f90"]);

const fn fortran(name: &'static str, flags: &'static [&'static str]) -> Program {
    Program { name, source: "tests/programs/says.F90", language: Language::Fortran, flags }
}

const RANKS: usize = 3;
/// What each rank of the programs says.
const ANNOUNCED: u64 = 100_000_000;
const EXPECTED: u64 = 50_000_000;
/// What each rank writes in the call of which nothing is said.
const HELD: u64 = 1 << 20;

pub(super) fn list() -> Vec<Scenario> {
    vec![
        scenario("says::c", |place| alone(place, &C)).only(SYSTEM),
        scenario("says::fortran", |place| alone(place, &FORTRAN)).only(SYSTEM),
        scenario("says::fortran_08", |place| alone(place, &FORTRAN_08)).only(SYSTEM),
        scenario("says::held", held).only(SYSTEM),
        scenario("says::by_variables", by_variables).only(SYSTEM),
    ]
}

struct Site {
    directory: Directory,
    _service: Service,
    address: Address,
    text: String,
}

impl Site {
    /// A service that knows its storage.
    fn start(policy: &str) -> Verdict<Site> {
        let directory = Directory::new()?;
        let config = directory.path().join("config");
        std::fs::write(
            &config,
            "[storage /]\ntargets = 3\nbandwidth_mb_per_s = 100 200 300\ncompute_nodes = 1\n",
        )?;
        let path = directory.path().join("sock");
        let text = format!("unix:{}", path.display());
        let words = ["--listen", &text, "--policy", policy];
        let config = config.display().to_string();
        let service = Service::start(&[&words[..], &["--config", &config]].concat())?;
        Ok(Site { directory, _service: service, address: Address::Unix(path), text })
    }

    /// What the service says of the job, if that is so.
    fn told(&self, job: &str, is_so: impl Fn(&Value) -> bool) -> Verdict<Value> {
        let (mut last, mut announced) = (Value::Null, Vec::new());
        let told = until("the coordinator knows it", SOON / 4, || {
            let status = status(&self.address, None)?;
            let told = status["jobs"].as_array()?.iter().find(|told| told["job"] == job).cloned()?;
            last = told.clone();
            announced.push((told["state"].clone(), told["announced_bytes"].clone()));
            announced.dedup();
            is_so(&told).then_some(told)
        });
        told.map_err(|_| format!("the coordinator knew {announced:?}, and last {last:#}").into())
    }
}

/// The name of the trial's job, which no other has: jobs of one name share what they do.
fn id(place: &Place) -> String {
    format!("{}-{}", place.name.replace("::", "-"), std::process::id())
}

fn job(place: &Place, site: &Site, program: &Program, words: &[&str]) -> Verdict<Job> {
    let executable = place.mpi.build(program)?.into_os_string();
    let words = words.iter().map(OsString::from);
    let job = Job::mpi(&place.name, &place.mpi, RANKS, [executable].into_iter().chain(words));
    // Nothing is known of earlier runs.
    let job = job.variable("XDG_STATE_HOME", site.directory.path());
    let job = job.variable("WEIR_COORDINATOR", &site.text).variable("WEIR_FREE_BYTES", "0");
    Ok(job
        .variable("WEIR_JOB_ID", id(place))
        .variable("WEIR_HINTS", "on")
        .variable("WEIR_PHASE_GAP", "100ms"))
}

fn is_period(told: &Value, period_s: f64) -> bool {
    told["characteristic_time_s"].as_f64().is_some_and(|known_s| (known_s - period_s).abs() < 1e-6)
}

fn alone(place: &Place, program: &Program) -> Verdict {
    let site = Site::start("weir")?;
    let job = job(place, &site, program, &["says.dat"])?;
    let bare = job.run("bare")?;
    ensure(bare.code == 0, || format!("fails without Weir: {}{}", bare.stdout, bare.stderr))?;
    let live = Live::start(&job.preload([library()]), "weir")?;
    live.said_first("ANNOUNCED")?;
    let of_all = |bytes: u64| bytes * RANKS as u64;
    let told = site.told(&id(place), |told| told["announced_bytes"] == of_all(ANNOUNCED))?;
    ensure(is_period(&told, 7.5), || format!("another period: {told:#}"))?;
    live.said_first("EXPECTED")?;
    site.told(&id(place), |told| told["announced_bytes"] == of_all(EXPECTED))?;
    let ran = live.end()?;
    ensure(ran.code == 0, || format!("{}{}", ran.stdout, ran.stderr))?;
    same_files(&bare.files, &ran.files)?;
    let given = ran.stdout.lines().find(|line| line.starts_with("GIVEN "));
    // On a busy machine an answer may take longer than the creation of a file waits for it.
    let is_it = matches!(given, Some("GIVEN 3 3" | "GIVEN 0 0"));
    println!("{}: {}", place.name, given.unwrap_or_default());
    ensure(is_it, || format!("{given:?} of three targets\n{}", ran.stdout))
}

/// What a collective call will move is known while its job still waits for its turn, from ranks too that move nothing
/// themselves; and the job can ask how it stands meanwhile.
fn held(place: &Place) -> Verdict {
    let site = Site::start("exclusive")?;
    let released = site.directory.path().join("released");
    let other = Turns::new(place, "other", &site.text, Shape { phases: 2, ..USUAL })?.until(&released);
    let other = (other.start()?, other);
    // How long its phases take is known when it is in the second.
    std::fs::write(released.with_extension("0"), "")?;
    other.0.said_first("IN 0 1")?;
    let job = job(place, &site, &C, &["held.dat", "held"])?;
    let live = Live::start(&job.preload([library()]), "weir")?;
    let told = site.told(&id(place), |told| told["announced_bytes"] == HELD * RANKS as u64)?;
    ensure(told["state"] == "waiting", || format!("it should wait: {told:#}"))?;
    std::fs::write(&released, "")?;
    let ran = live.end()?;
    other.1.ended_well(&other.0.end()?)?;
    ensure(ran.code == 0, || format!("{}{}", ran.stdout, ran.stderr))?;
    let lowest = ran.stdout.lines().find_map(|line| line.strip_prefix("LOWEST ")).unwrap_or_default();
    println!("{}: lowest share and longest expected wait {lowest}", place.name);
    ensure(lowest.starts_with("0.000 "), || format!("the share was never 0: {lowest}"))?;
    ensure(!lowest.ends_with(" 0.000"), || format!("no wait was expected: {lowest}"))
}

/// An unmodified program: its user knows its period and its nodes.
fn by_variables(place: &Place) -> Verdict {
    let site = Site::start("weir")?;
    let job = Turns::new(place, "told", &site.text, USUAL)?.variable("WEIR_PERIOD", "90s");
    let live = job.start()?;
    let told = site.told(&job.id, |told| is_period(told, 90.0));
    job.ended_well(&live.end()?)?;
    told.map(|_| ())
}
