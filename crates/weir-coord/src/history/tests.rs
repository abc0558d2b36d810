use super::*;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A history in a directory that goes away with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-history-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
        Scratch(std::env::temp_dir().join(name))
    }

    fn history(&self) -> History {
        History::in_directory(self.0.join("state/weir"))
    }

    fn file(&self) -> PathBuf {
        self.history().path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(application: &str, ranks: u64) -> Key {
    Key { application: application.into(), executable: "/opt/a \"b\"\n/lmp".into(), ranks }
}

fn habits(phases: u64, w_iter_ns: Option<u64>, mean_phase_bytes: u64) -> Habits {
    Habits { phases, w_iter_ns, mean_phase_bytes }
}

#[test]
fn what_was_learnt_is_known() {
    let scratch = Scratch::new();
    let history = scratch.history();
    assert_eq!(history.look_up(&key("lammps", 64)), Ok(None), "before there is any history");
    let seen = habits(10, Some(2_000_000_000), 1 << 30);
    history.learn(&key("lammps", 64), seen).unwrap();
    history.learn(&key("gromacs", 64), habits(1, None, 7)).unwrap();
    assert_eq!(history.look_up(&key("lammps", 64)), Ok(Some(seen)));
    assert_eq!(history.look_up(&key("gromacs", 64)), Ok(Some(habits(1, None, 7))));
    assert_eq!(history.look_up(&key("lammps", 128)), Ok(None), "on other ranks it has other habits");
    assert_eq!(fs::metadata(scratch.file()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn runs_count_by_their_phases_and_the_past_for_a_hundred() {
    let scratch = Scratch::new();
    let history = scratch.history();
    let lammps = key("lammps", 4);
    history.learn(&lammps, habits(1_000_000, Some(1_000), 1_000)).unwrap();
    history.learn(&lammps, habits(0, Some(9), 9)).unwrap();
    history.learn(&lammps, habits(1, None, 102)).unwrap();
    let known = history.look_up(&lammps).unwrap().unwrap();
    assert_eq!((known.w_iter_ns, known.mean_phase_bytes), (Some(1_000), (100 * 1_000 + 102) / 101));
    history.learn(&lammps, habits(900, Some(2_000), u64::MAX)).unwrap();
    let known = history.look_up(&lammps).unwrap().unwrap();
    assert_eq!(known.w_iter_ns, Some(1_900));
    assert!(known.mean_phase_bytes < u64::MAX && known.mean_phase_bytes > u64::MAX / 100 * 89);
}

#[test]
fn a_file_that_makes_no_sense_is_named_and_begun_anew() {
    let scratch = Scratch::new();
    let history = scratch.history();
    let lammps = key("lammps", 4);
    history.learn(&lammps, habits(1, None, 1)).unwrap();
    for nonsense in [&b"\xff\xfe\0 no history"[..], b"{}\n[1,2]\n", &[b'x'; MAX_FILE_BYTES + 1]] {
        fs::write(scratch.file(), nonsense).unwrap();
        let said = history.look_up(&lammps).unwrap_err();
        assert!(said.contains("is not used") && !said.contains('\n'), "{said}");
        history.learn(&lammps, habits(3, Some(5), 6)).unwrap();
        assert_eq!(history.look_up(&lammps), Ok(Some(habits(3, Some(5), 6))));
    }
    // Half a line at the end, as a full disk may leave it, costs that line.
    let mut bytes = fs::read(scratch.file()).unwrap();
    bytes.extend_from_slice(b"[\"gromacs\",\"/opt/g");
    fs::write(scratch.file(), bytes).unwrap();
    assert_eq!(history.look_up(&lammps), Ok(Some(habits(3, Some(5), 6))));
}

#[test]
fn the_file_is_bounded_and_the_oldest_goes_first() {
    let scratch = Scratch::new();
    let history = scratch.history();
    let long = |n: u64| Key { executable: "x".repeat(MAX_NAME_BYTES), ..key("long", n) };
    let count = (MAX_FILE_BYTES / MAX_NAME_BYTES) as u64 + 1;
    let entries: Vec<Entry> = (0..count).map(|n| (long(n), habits(1, None, n))).collect();
    history.learn(&key("first", 1), habits(1, None, 1)).unwrap();
    fs::write(scratch.file(), to_text(&entries)).unwrap();
    history.learn(&key("last", 1), habits(1, None, 1)).unwrap();
    assert!(fs::metadata(scratch.file()).unwrap().len() <= MAX_FILE_BYTES as u64);
    assert_eq!(history.look_up(&long(0)), Ok(None));
    assert_eq!(history.look_up(&long(count - 1)), Ok(Some(habits(1, None, count - 1))));
    assert_eq!(history.look_up(&key("last", 1)), Ok(Some(habits(1, None, 1))));
    let endless = Key { executable: "x".repeat(MAX_NAME_BYTES + 1), ..key("a", 1) };
    assert!(history.learn(&endless, habits(1, None, 1)).unwrap_err().contains("executable"));
    let many: Vec<Entry> =
        (0..MAX_APPLICATIONS as u64 + 5).map(|ranks| (key("a", ranks), habits(1, None, 1))).collect();
    assert_eq!(to_text(&many).lines().count(), MAX_APPLICATIONS);
    assert_eq!(entry(to_text(&many).lines().next().unwrap().as_bytes()).unwrap().0.ranks, 5);
}

#[test]
fn writers_at_once_lose_nothing() {
    let scratch = Scratch::new();
    let history = scratch.history();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let history = history.clone();
            std::thread::spawn(move || {
                for run in 0..10 {
                    let learnt = history.learn(&key(&writer.to_string(), run), habits(1, None, run));
                    // A machine so busy that the lock is not to be had in time loses this one, and says so.
                    if let Err(error) = learnt {
                        assert!(error.contains("held the lock"), "{error}");
                        while history.learn(&key(&writer.to_string(), run), habits(1, None, run)).is_err() {}
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for (writer, run) in (0..8).flat_map(|writer| (0..10).map(move |run| (writer, run))) {
        let known = history.look_up(&key(&writer.to_string(), run));
        assert_eq!(known, Ok(Some(habits(1, None, run))), "{writer} {run}");
    }
}

#[test]
fn a_holder_that_was_stopped_keeps_nobody() {
    let scratch = Scratch::new();
    let history = scratch.history();
    history.learn(&key("a", 1), habits(1, None, 1)).unwrap();
    let _held = lock(&history.directory.join("history.lock")).unwrap();
    let said = history.learn(&key("a", 1), habits(1, None, 1)).unwrap_err();
    assert!(said.contains("held the lock for too long"), "{said}");
    assert_eq!(history.look_up(&key("a", 1)), Ok(Some(habits(1, None, 1))), "readers take no lock");
}

#[test]
fn a_directory_that_others_may_enter_is_refused() {
    let scratch = Scratch::new();
    let history = scratch.history();
    history.learn(&key("a", 1), habits(1, None, 1)).unwrap();
    fs::set_permissions(&history.directory, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(history.learn(&key("a", 1), habits(1, None, 1)).unwrap_err().contains("mode 755"));
    assert!(History::in_directory("/proc/weir".into()).learn(&key("a", 1), habits(1, None, 1)).is_err());
}

#[test]
fn the_place_is_what_the_environment_says() {
    let place = |state: Option<&str>, home: Option<&str>| {
        directory_by(|name| if name == "HOME" { home } else { state }.map(OsString::from))
    };
    assert_eq!(place(Some("/s"), Some("/h")), Some("/s/weir".into()));
    for state in [None, Some(""), Some("relative")] {
        assert_eq!(place(state, Some("/tmp")), Some("/tmp/.local/state/weir".into()));
        assert_eq!(place(state, Some("/no/such/home")), None);
        assert_eq!(place(state, None), None);
    }
}
