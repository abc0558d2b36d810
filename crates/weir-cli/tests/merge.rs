//! `weir merge`, and the scripts of docs/SITE.md that use it: profiles of killed jobs in the name of their owners.
//! What needs to become another user is tried as root only.

#[path = "../../weir-profile/tests/records/mod.rs"]
mod records;

use records::{Builder, Scratch};
use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_profile::counters::{Module, posix};
use weir_profile::layout::{Ended, Header, UMASK_KNOWN};

/// A user and a group that no database knows.
const USER: u32 = 3_000_000_001;
const GROUP: u32 = 3_000_000_002;

fn is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}

fn weir(arguments: &[&str], path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).arg(path).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a killed rank has left in a WEIR_DIR.
fn leave_records(dir: &Path) -> PathBuf {
    let folder = dir.join(".weir-4711");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let mut record = Builder::new(0, 1);
    let file = record.file("/data/out");
    record.counters(file, Module::Posix, 0, &[(posix::POSIX_WRITES, 3), (posix::POSIX_BYTES_WRITTEN, 3000)]);
    record.set(offset_of!(Header, umask), UMASK_KNOWN | 0o027).ended(Ended::Running, 0, 2.0).write(&folder);
    folder
}

/// The same of another user, in a directory of theirs.
fn leave_theirs(scratch: &Scratch) -> PathBuf {
    let dir = scratch.0.join(USER.to_string()).join("weir");
    let folder = leave_records(&dir);
    let records = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<PathBuf> = records.chain([folder.clone(), dir.clone()]).collect();
    all.iter().for_each(|path| chown(path, Some(USER), Some(GROUP)).unwrap());
    dir
}

/// Everything beneath a directory: name, owner, mode, when it was changed.
fn listing(dir: &Path) -> Vec<(PathBuf, u32, u32, i64)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let about = fs::symlink_metadata(&folder).unwrap();
        found.push((folder.clone(), about.uid(), about.mode(), about.ctime_nsec()));
        if about.is_dir() {
            folders.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_left_becomes_a_profile_once() {
    let scratch = Scratch::new("merge-own");
    let folder = leave_records(&scratch.0);
    let output = weir(&["merge"], &scratch.0);
    let profile = scratch.0.join("weir-stencil-4711.json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("job 4711 killed: rank 0; merged into {}\n", profile.display()));
    assert!(profile.exists() && !folder.exists());
    let again = weir(&["merge"], &scratch.0);
    assert!(again.status.success() && again.stdout.is_empty() && again.stderr.is_empty());
    let nowhere = weir(&["merge"], &scratch.0.join("nowhere"));
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("nowhere: No such file"), "{}", text(&nowhere.stderr));
}

#[test]
fn a_job_that_may_still_run_is_left_alone_unless_it_is_known_to_be_over() {
    let scratch = Scratch::new("merge-live");
    let folder = scratch.job();
    let mut record = Builder::new(0, 1);
    let file = record.file("/data/out");
    record.counters(file, Module::Posix, 0, &[(posix::POSIX_WRITES, 3)]);
    // On another node, from where nothing is heard.
    record.text(offset_of!(Header, host), 8, "elsewhere").ended(Ended::Running, 0, 2.0).write(&folder);
    let output = weir(&["merge"], &scratch.0);
    assert!(output.status.success() && folder.exists(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("job 4711 still runs"), "{}", text(&output.stdout));
    let output = weir(&["merge", "--ended"], &scratch.0);
    assert!(
        text(&output.stdout).contains("job 4711 killed: rank 0; merged into "),
        "{}",
        text(&output.stdout)
    );
    assert!(!folder.exists());
}

#[test]
fn a_report_on_another_users_records_leaves_them_as_they_are() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("merge-report");
    let dir = leave_theirs(&scratch);
    let before = listing(&dir);
    let output = weir(&["report"], &dir);
    assert!(
        text(&output.stdout).starts_with("stencil  job 4711  killed: rank 0"),
        "{}",
        text(&output.stdout)
    );
    let said = format!("records of another user (uid {USER}), shown and not written");
    assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
    assert_eq!(listing(&dir), before);
}

#[test]
fn root_merges_as_the_owner_and_follows_no_links() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("merge-links");
    let dir = leave_theirs(&scratch);
    let victim = scratch.0.join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, dir.join("weir-stencil-4711.json")).unwrap();
    symlink(scratch.0.join("made"), dir.join("weir-stencil-4711-2.json")).unwrap();
    // A folder that is none, and one that belongs to somebody else.
    symlink(dir.join(".weir-4711"), dir.join(".weir-4712")).unwrap();
    let output = weir(&["merge"], &dir);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!scratch.0.join("made").exists());
    let about = fs::symlink_metadata(dir.join("weir-stencil-4711-3.json")).unwrap();
    assert_eq!((about.uid(), about.gid(), about.mode() & 0o7777), (USER, GROUP, 0o640));
    assert!(!dir.join(".weir-4711").exists());
}

#[test]
fn what_the_owner_may_not_write_root_does_not_write_either() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("merge-forbidden");
    let dir = leave_theirs(&scratch);
    chown(&dir, Some(0), Some(0)).unwrap();
    let before = fs::read_dir(&dir).unwrap().count();
    let output = weir(&["merge"], &dir);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("Permission denied"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), before);
}

#[test]
fn other_users_are_refused() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("merge-refused");
    let dir = leave_theirs(&scratch);
    let before = listing(&dir);
    // Beside the records: where this program was built, that user may not be let in.
    let program = scratch.0.join("weir");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_weir")).arg(&program).status().unwrap().success());
    let output = Command::new(program).arg("merge").arg(&dir).uid(USER + 1).gid(GROUP + 1).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = format!("records of another user (uid {USER}); that user or root can merge them");
    assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
    assert_eq!(listing(&dir), before);
}

/// The scripts of docs/SITE.md, in their order: the TaskProlog and the Epilog.
fn scripts() -> Vec<String> {
    let site = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SITE.md")).unwrap();
    site.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_string()).collect()
}

#[test]
fn the_prolog_of_a_site_gives_each_user_a_directory_without_an_environment() {
    let prolog = &scripts()[0];
    let run = |user: Option<u32>, variables: &[(&str, &str)]| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", prolog]).env_clear().envs(variables.iter().copied());
        user.into_iter().for_each(|user| _ = command.uid(user).gid(user));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let preload = "export LD_PRELOAD=/opt/weir/lib/libweir.so\n";
    let own = text(&Command::new("id").arg("-un").output().unwrap().stdout);
    let expected = |user: &str| format!("{preload}export WEIR_DIR=/scratch/{user}/weir\n");
    assert_eq!(run(None, &[]), expected(own.trim()));
    assert_eq!(run(None, &[("SLURM_JOB_USER", "alice"), ("USER", "")]), expected("alice"));
    assert_eq!(run(None, &[("WEIR_DISABLE", "1")]), "");
    if is_root() {
        assert_eq!(run(Some(USER), &[]), expected(&USER.to_string()));
    }
}

#[test]
fn the_epilog_of_a_site_makes_their_owners_profiles() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("merge-epilog");
    let dir = leave_theirs(&scratch);
    let epilog = scripts()[1]
        .replace("/opt/weir/bin/weir", env!("CARGO_BIN_EXE_weir"))
        .replace("/scratch/", &format!("{}/", scratch.0.display()));
    let run = || {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &epilog]).env_clear().env("SLURM_JOB_USER", USER.to_string()).output().unwrap()
    };
    let output = run();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let about = fs::symlink_metadata(dir.join("weir-stencil-4711.json")).unwrap();
    assert_eq!((about.uid(), about.gid(), about.mode() & 0o7777), (USER, GROUP, 0o640));
    let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["weir-stencil-4711.json"]);
    // Nothing to do is no failure, nor is a user without a directory.
    assert!(run().status.success());
    fs::remove_dir_all(&dir).unwrap();
    assert!(run().status.success());
}
