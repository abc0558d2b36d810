//! `weir report` on profiles, records and directories, sound and otherwise.

#[path = "../../weir-profile/tests/records/mod.rs"]
mod records;

use records::{Builder, Scratch, duration};
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::{Command, Output};
use weir_profile::counters::{Module, mpiio};
use weir_profile::layout::{Ended, Header};
use weir_profile::profile::JSON_SCHEMA;

fn report(arguments: &[&str], path: &Path) -> Output {
    report_at("UTC0", arguments, path)
}

/// In a time zone.
fn report_at(zone: &str, arguments: &[&str], path: &Path) -> Output {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg("report").args(arguments).arg(path).env("TZ", zone).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A rank that writes a thousand small pieces in two phases, and one collective piece through rank 0.
fn rank(rank: u64) -> Builder {
    let mut record = Builder::new(rank, 4);
    let file = record.file("/scratch/result.dat");
    let aggregator = rank == 0;
    record.counters(
        file,
        Module::Mpiio,
        0,
        &[
            (mpiio::MPIIO_INDEP_WRITES, 1000),
            (mpiio::MPIIO_COLL_WRITES, 1),
            (mpiio::MPIIO_SIZE_WRITE_AGG_100_1K, 1000),
            (mpiio::MPIIO_SIZE_WRITE_AGG_1M_4M, 1),
            (mpiio::MPIIO_BYTES_WRITTEN, 5 << 20),
            (mpiio::MPIIO_F_WRITE_TIME, duration(2.0)),
            (mpiio::MPIIO_F_COLL_TIME, duration(1.0)),
            (mpiio::MPIIO_F_COLL_FILE_TIME, if aggregator { duration(0.1) } else { 0 }),
            (mpiio::MPIIO_COLL_FILE_BYTES, if aggregator { 4 << 20 } else { 0 }),
        ],
    );
    record.burst(0, 1.0, 2.0, 3 << 20, 0.0, 0).burst(0, 6.0, 7.0, 2 << 20, 0.0, 0).series(0, 15, 5 << 20);
    record.collective(file, 1, 6.0, 7.0, if aggregator { 0.1 } else { 0.0 });
    record.slow(0, file, "MPI_File_write_at_all", 6.0, 1.0);
    record
}

fn leave_records(scratch: &Scratch) {
    for number in 0..4 {
        let mut record = rank(number);
        if number == 3 {
            record.ended(Ended::Running, 0, 7.0);
        }
        record.write(&scratch.job());
    }
}

#[test]
fn what_a_dead_job_left_is_merged_and_told_in_thirty_lines() {
    let scratch = Scratch::new("report-dead");
    leave_records(&scratch);
    let output = report(&[], &scratch.0);
    let text = stdout(&output);
    assert!(stderr(&output).contains("job 4711 killed: rank 3; merged into"), "{}", stderr(&output));
    assert!(text.lines().count() <= 30 && !text.contains('\x1b'), "{text}");
    for expected in [
        "stencil  job 4711  killed: rank 3\n",
        "4 ranks on 1 node, Open MPI v4.1.4 (openmpi ABI), 2023-11-14 22:13:20 UTC, ran 10.0 s\n",
        "20.0 MiB written, 0 B read, 10.0 MiB/s while in I/O\n",
        "MPI-IO 4 collective, 4000 independent; POSIX 0; STDIO 0\n",
        "20 % of the run in I/O: open/close 0 s, write 2.00 s, read 0 s, sync 0 s (mean rank; slowest rank 3: 20 %)\n",
        "20.0 MiB written  /scratch/result.dat, 4 ranks\n",
        "2 phases, characteristic time 5.00 s, I/O ratio 20 %",
        "1 rank of 4: 0 on ",
        "3 finalized; killed: rank 3\n",
        "at least 3996 of 4000 independent MPI-IO writes are of 10 KiB or less",
        "90 % of the time of collective calls is not the file's",
    ] {
        assert!(text.contains(expected), "{expected}\n in \n{text}");
    }
    assert!(!text.contains("alone moves the data"), "on one node one aggregator is enough: {text}");
    assert!(!scratch.0.join(".weir-4711").exists());
    let profile = scratch.0.join("weir-stencil-4711.json");
    assert_eq!(stdout(&report(&[], &profile)), text, "the profile says the same");
    assert_eq!(stdout(&report(&[], &scratch.0)), text, "so does the directory, again");
}

/// Sizes are counted of all calls together: those of small collective ones are not the independent ones'.
#[test]
fn small_collective_calls_are_no_small_independent_ones() {
    let scratch = Scratch::new("report-collective");
    let mut record = Builder::new(0, 1);
    let file = record.file("/scratch/result.dat");
    let counters = [
        (mpiio::MPIIO_COLL_WRITES, 200),
        (mpiio::MPIIO_INDEP_WRITES, 121),
        (mpiio::MPIIO_SIZE_WRITE_AGG_0_100, 201),
        (mpiio::MPIIO_SIZE_WRITE_AGG_1M_4M, 120),
    ];
    record.counters(file, Module::Mpiio, 0, &counters).burst(0, 1.0, 2.0, 1 << 20, 0.0, 0);
    record.write(&scratch.job());
    let text = stdout(&report(&[], &scratch.0));
    assert!(text.contains("200 collective, 121 independent") && !text.contains("10 KiB or less"), "{text}");
}

#[test]
fn moments_are_told_in_local_time_beside_utc() {
    let scratch = Scratch::new("report-zone");
    leave_records(&scratch);
    for (zone, expected) in [
        ("CET-1", "2023-11-14 23:13:20 CET (22:13:20 UTC), ran 10.0 s\n"),
        ("<+0530>-5:30", "2023-11-15 03:43:20 +05:30 (2023-11-14 22:13:20 UTC), ran 10.0 s\n"),
    ] {
        let text = stdout(&report_at(zone, &[], &scratch.0));
        assert!(text.contains(expected), "{expected}\n in \n{text}");
    }
}

#[test]
fn pipes_in_a_directory_are_not_waited_for() {
    let scratch = Scratch::new("report-pipes");
    leave_records(&scratch);
    for pipe in [scratch.job().join("9-node-1-0.rec"), scratch.0.join("weir-other-1.json")] {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let output = report(&[], &scratch.0);
    assert!(stdout(&output).contains("stencil  job 4711"));
    assert!(stderr(&output).contains("weir-other-1.json: not a regular file"), "{}", stderr(&output));
}

/// Two marked phases that overlap, three seconds together, and I/O outside of them.
#[test]
fn the_speed_in_io_is_that_of_the_phases() {
    let scratch = Scratch::new("report-speed");
    let mut record = Builder::new(0, 1);
    let file = record.file("/data/out");
    record.counters(file, Module::Mpiio, 0, &[(mpiio::MPIIO_BYTES_WRITTEN, 100 << 20)]);
    record.burst(0, 1.0, 3.0, 2 << 20, 0.0, 1).named(0, "checkpoint");
    record.burst(1, 2.0, 4.0, 4 << 20, 0.0, 2).burst(0, 6.0, 7.0, 94 << 20, 0.0, 0);
    record.write(&scratch.job());
    let text = stdout(&report(&[], &scratch.0));
    assert!(text.contains("100 MiB written, 0 B read, 2.00 MiB/s while in I/O\n"), "{text}");
}

#[test]
fn several_paths_are_reported_one_after_the_other() {
    let (first, second) = (Scratch::new("report-several-1"), Scratch::new("report-several-2"));
    leave_records(&first);
    leave_records(&second);
    let one = stdout(&report(&[], &first.0));
    let paths = [first.0.to_str().unwrap(), "/no/such/profile"];
    let output = report(&paths, &second.0);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("weir: /no/such/profile: No such file"), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{one}\n{one}"), "the others are shown");
    let both = stdout(&report(&["--json", paths[0]], &second.0));
    let profiles: Vec<serde_json::Value> =
        serde_json::Deserializer::from_str(&both).into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(profiles.len(), 2);
}

#[test]
fn a_folder_of_records_and_a_single_record() {
    let scratch = Scratch::new("report-folder");
    leave_records(&scratch);
    let record = scratch.job().join(format!("2-{}-1073741824-0.rec", records::this_host()));
    let one = stdout(&report(&[], &record));
    assert!(one.contains("5.00 MiB written") && one.contains("1 finalized; 3 without I/O"), "{one}");
    assert!(record.exists(), "looking at a record changes nothing");
    let all = stdout(&report(&[], &scratch.job()));
    assert!(all.contains("20.0 MiB written"), "{all}");
    assert!(scratch.0.join("weir-stencil-4711.json").exists(), "the profile goes beside the folder");
}

#[test]
fn json_is_the_profile_and_the_schema_describes_it() {
    let scratch = Scratch::new("report-json");
    leave_records(&scratch);
    let json: serde_json::Value = serde_json::from_str(&stdout(&report(&["--json"], &scratch.0))).unwrap();
    let schema = stdout(&report(&["--schema"], &scratch.0));
    assert_eq!(schema, JSON_SCHEMA);
    let validator = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    let errors: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let file = fs::read(scratch.0.join("weir-stencil-4711.json")).unwrap();
    assert_eq!(json, serde_json::from_slice::<serde_json::Value>(&file).unwrap());
}

#[test]
fn several_jobs_are_listed_newest_first() {
    let scratch = Scratch::new("report-list");
    for (id, seconds) in [("older", 0), ("newest", 7200), ("newer", 3600)] {
        let folder = scratch.0.join(format!(".weir-{id}"));
        fs::create_dir_all(&folder).unwrap();
        let mut record = rank(0);
        let start_ns = records::START_NS + seconds * 1_000_000_000;
        record.set(offset_of!(Header, clock_first.realtime_ns), start_ns).text(
            offset_of!(Header, job),
            16,
            id,
        );
        record.write(&folder);
    }
    let text = stdout(&report(&[], &scratch.0));
    let lines: Vec<&str> = text.lines().collect();
    for (line, name) in
        lines.iter().zip(["weir-stencil-newest.json", "weir-stencil-newer.json", "weir-stencil-older.json"])
    {
        assert!(line.contains(name), "{text}");
    }
    assert!(lines[4].starts_with("stencil  job newest"), "{text}");
}

#[test]
fn a_newer_schema_is_named_and_shown_as_far_as_it_is_understood() {
    let scratch = Scratch::new("report-newer");
    leave_records(&scratch);
    let mut json: serde_json::Value =
        serde_json::from_str(&stdout(&report(&["--json"], &scratch.0))).unwrap();
    let path = scratch.0.join("newer.json");
    json["weir"]["schema"] = 7.into();
    json["surprise"] = "a key of the future".into();
    fs::write(&path, json.to_string()).unwrap();
    let output = report(&[], &path);
    assert!(stdout(&output).contains("20.0 MiB written"));
    let said = "newer.json: profile of schema 7, this version knows 1; showing what it understands";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));

    json["phases"] = "told in another way".into();
    fs::write(&path, json.to_string()).unwrap();
    let output = report(&[], &path);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("newer.json: profile of schema 7 cannot be read by this version"));
}

/// Puts orders to a terminal behind every string of a profile but those that have few values.
fn taint(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => text.push_str(ORDERS),
        serde_json::Value::Array(items) => items.iter_mut().for_each(taint),
        serde_json::Value::Object(fields) => {
            let is_free = |key: &str| !["gap_source"].contains(&key);
            fields.iter_mut().filter(|(key, _)| is_free(key)).for_each(|(_, value)| taint(value));
        }
        _ => {}
    }
}

/// Of a title, of a cleared screen in the 8-bit form, of a new line.
const ORDERS: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\n";

/// Names of files, phases and programs are chosen by others than who reads the report.
#[test]
fn no_string_of_a_profile_gives_orders_to_the_terminal() {
    let scratch = Scratch::new("report-orders");
    leave_records(&scratch);
    let tame = stdout(&report(&[], &scratch.0));
    let mut profile: serde_json::Value =
        serde_json::from_str(&stdout(&report(&["--json"], &scratch.0))).unwrap();
    let ranks = std::mem::take(&mut profile["ranks"]);
    taint(&mut profile);
    profile["ranks"] = ranks;
    let json = profile.to_string();
    for name in ["weir-a-2.json", "weir-\u{1b}[2J-1.json"] {
        fs::write(scratch.0.join(name), &json).unwrap();
    }
    fs::write(scratch.0.join("weir-\u{1b}[2J-0.json"), "").unwrap();
    let is_order = |c: char| c.is_control() && c != '\n';
    let one = stdout(&report(&[], &scratch.0.join("weir-a-2.json")));
    assert!(!one.contains(is_order), "{one:?}");
    assert_eq!(one.lines().count(), tame.lines().count(), "{one}");
    assert!(one.contains("result.dat\\u001b]0;owned\\u0007\\u009b2J\\u000a"), "{one}");
    let listed = report(&[], &scratch.0);
    let (list, said) = (stdout(&listed), stderr(&listed));
    assert!(list.contains("weir-\\u001b[2J-1.json") && !list.contains(is_order), "{list:?}");
    assert!(said.contains("weir-\\u001b[2J-0.json: an empty file") && !said.contains(is_order), "{said:?}");
    let as_json = stdout(&report(&["--json"], &scratch.0.join("weir-a-2.json")));
    assert!(!as_json.contains(is_order), "{as_json:?}");
    let again: serde_json::Value = serde_json::from_str(&as_json).unwrap();
    assert_eq!(again["files"], profile["files"]);
}

#[test]
fn what_is_not_a_profile_is_named() {
    let scratch = Scratch::new("report-bad");
    let cases: [(&str, &[u8], &str); 6] = [
        ("text.json", b"hello", "text.json: neither a profile nor a record"),
        ("empty.json", b"", "empty.json: an empty file"),
        ("cut.json", br#"{"weir":{"version":"1","schema":1},"job":{"#, "cut.json: ends in the middle"),
        (
            "part.json",
            br#"{"weir":{"version":"1","schema":1}}"#,
            "part.json: not a complete profile: missing field",
        ),
        ("short.rec", b"WEIRREC\x05", "short.rec: truncated record"),
        ("newer.rec", b"WEIRREC\x06", "newer.rec: record of layout version 6; this Weir reads version 5"),
    ];
    for (name, bytes, expected) in cases {
        let path = scratch.0.join(name);
        fs::write(&path, bytes).unwrap();
        let output = report(&[], &path);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        fs::remove_file(path).unwrap();
    }
    // What has no end does not fill the memory.
    let endless = report(&[], std::path::Path::new("/dev/zero"));
    assert!(stderr(&endless).contains("/dev/zero: larger than any profile"), "{}", stderr(&endless));
    let nothing = report(&[], &scratch.0);
    assert!(stderr(&nothing).contains("no profile and no record of a job here"), "{}", stderr(&nothing));
    let nowhere = report(&[], &scratch.0.join("nowhere"));
    assert!(stderr(&nowhere).contains("nowhere: No such file"), "{}", stderr(&nowhere));
}

#[test]
fn manual_pages_and_completions_know_every_command() {
    let scratch = Scratch::new("man");
    let weir = || Command::new(env!("CARGO_BIN_EXE_weir"));
    assert!(weir().arg("man").arg(&scratch.0).status().unwrap().success());
    for page in
        ["weir.1", "weir-run.1", "weir-report.1", "weir-doctor.1", "weir-simulate.1", "weir-reproduce.1"]
    {
        assert!(fs::read_to_string(scratch.0.join(page)).unwrap().starts_with(".ie"), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = weir().args(["completions", shell]).output().unwrap();
        assert!(stdout(&output).contains("doctor"), "{shell}");
    }
}
