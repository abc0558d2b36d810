//! Jobs, services and coordinators while they run.

use crate::run::{Job, Ran, code_of, weir};
use crate::{Place, Verdict, ensure};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use weir_coord::address::Address;
use weir_coord::auth::Key;
use weir_coord::election;
use weir_coord::query::query_status;

/// For anything that must happen: far more than it takes, for machines that do other things as well.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// What the design bounds, and what it takes to be seen.
const ONE_SECOND: Duration = Duration::from_millis(1250);

/// Tries, up to three times, something of which it says how long somebody had to wait who should not for more than a second:
/// once is enough on a machine that does other things as well.
pub(crate) fn within_a_second(place: &Place, attempt: impl Fn(&Place) -> Verdict<Duration>) -> Verdict {
    let mut waits = Vec::new();
    while waits.len() < 3 {
        let wait = attempt(place)?;
        println!("{}: went on after {:.0} ms", place.name, wait.as_secs_f64() * 1e3);
        if wait < ONE_SECOND {
            return Ok(());
        }
        waits.push(wait);
    }
    Err(format!("went on after {waits:?}").into())
}

/// Asks again and again until there is an answer.
pub(crate) fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> Verdict<T> {
    let started = Instant::now();
    loop {
        if let Some(answer) = look() {
            return Ok(answer);
        }
        ensure(started.elapsed() < limit, || format!("not within {limit:?}: {what}"))?;
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory of this user's alone with a short name: addresses of Unix sockets are short.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Verdict<Directory> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-trial-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Directory(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What `WEIR_COORDINATOR` says for jobs that elect one of them here.
    pub(crate) fn elect(&self) -> String {
        format!("elect:{}", self.0.display())
    }

    /// What the coordinator that was elected here says.
    pub(crate) fn status(&self) -> Option<Value> {
        let (address, key) = election::find(&self.0).ok()?.into_iter().next()?;
        status(&address, key.as_ref())
    }

    /// A key for TCP; the path of its file.
    pub(crate) fn key(&self, name: &str) -> Verdict<PathBuf> {
        let path = self.0.join(name);
        let key = Key::random()?;
        weir_coord::auth::write_private(&path, key.as_text().unwrap_or_default())?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn status(address: &Address, key: Option<&Key>) -> Option<Value> {
    let text = query_status(address, key, Duration::from_secs(2)).ok()?;
    serde_json::from_str(&text).ok()
}

/// The jobs of a status in this state, "in I/O" or "waiting": their names and leaders.
pub(crate) fn in_state(status: &Value, state: &str) -> Vec<(String, i32)> {
    let jobs = status["jobs"].as_array().into_iter().flatten();
    jobs.filter(|job| job["state"] == state)
        .filter_map(|job| Some((job["job"].as_str()?.into(), job["nodes"][0]["pid"].as_i64()? as i32)))
        .collect()
}

pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: a process of a job that this test started and that has not ended.
    unsafe { libc::kill(pid, signal) };
}

pub(crate) fn is_alive(pid: i32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// What comes out of a process, line by line, with the time at which it came.
#[derive(Clone, Default)]
struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    lines: Mutex<Vec<(Instant, String)>>,
    more: Condvar,
}

impl Lines {
    fn of(from: impl Read + Send + 'static) -> (Lines, std::thread::JoinHandle<()>) {
        let lines = Lines::default();
        let mine = lines.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                mine.0.lines.lock().unwrap().push((Instant::now(), line));
                mine.0.more.notify_all();
            }
        });
        (lines, reader)
    }

    fn text(&self) -> String {
        self.0.lines.lock().unwrap().iter().map(|(_, line)| format!("{line}\n")).collect()
    }

    fn first_since(&self, since: Instant, limit: Duration, fits: impl Fn(&str) -> bool) -> Option<Instant> {
        let find = |lines: &Vec<(Instant, String)>| {
            lines.iter().find(|(at, line)| *at >= since && fits(line)).map(|(at, _)| *at)
        };
        let guard = self.0.lines.lock().unwrap();
        let guard = self.0.more.wait_timeout_while(guard, limit, |lines| find(lines).is_none()).unwrap().0;
        find(&guard)
    }
}

/// A job that runs.
pub(crate) struct Live {
    name: String,
    child: Child,
    started: Instant,
    files: PathBuf,
    profiles: PathBuf,
    out: Lines,
    err: Lines,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Live {
    pub(crate) fn start(job: &Job, name: &str) -> Verdict<Live> {
        let (mut command, files, profiles) = job.prepare(name)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (out, out_reader) = Lines::of(child.stdout.take().ok_or("no stdout")?);
        let (err, err_reader) = Lines::of(child.stderr.take().ok_or("no stderr")?);
        let readers = vec![out_reader, err_reader];
        Ok(Live { name: name.into(), child, started: Instant::now(), files, profiles, out, err, readers })
    }

    fn said(&self) -> String {
        format!("--- {} said\n{}{}", self.name, self.out.text(), self.err.text())
    }

    /// When the job first said, since some moment, a line that begins like this.
    pub(crate) fn says(&self, beginning: &str, since: Instant) -> Verdict<Instant> {
        let at = self.out.first_since(since, SOON, |line| line.starts_with(beginning));
        at.ok_or_else(|| format!("never said {beginning:?}\n{}", self.said()).into())
    }

    /// Since it was started.
    pub(crate) fn said_first(&self, beginning: &str) -> Verdict<Instant> {
        self.says(beginning, self.started)
    }

    /// The processes of the ranks, in order.
    pub(crate) fn pids(&self, ranks: usize) -> Verdict<Vec<i32>> {
        until("all ranks said who they are", SOON, || Some(self.known_pids()).filter(|p| p.len() == ranks))
    }

    fn known_pids(&self) -> Vec<i32> {
        let text = self.out.text();
        let mut pids: Vec<(usize, i32)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("RANK ")?.split_once(" PID "))
            .filter_map(|(rank, pid)| Some((rank.parse().ok()?, pid.trim().parse().ok()?)))
            .collect();
        pids.sort();
        pids.into_iter().map(|(_, pid)| pid).collect()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Verdict<Ran> {
        let status = until("the end of a job", SOON, || self.child.try_wait().ok().flatten());
        let status = status.map_err(|_| format!("does not end\n{}", self.said()))?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        Ok(Ran {
            code: code_of(status),
            stdout: self.out.text(),
            stderr: self.err.text(),
            files: self.files.clone(),
            profiles: self.profiles.clone(),
        })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        let timeout = self.child.id() as i32;
        // `timeout` passes it on to the launcher, and that to the ranks.
        signal(timeout, libc::SIGTERM);
        let gone = until("", Duration::from_secs(5), || self.child.try_wait().ok().flatten());
        if gone.is_err() {
            self.known_pids().into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
            signal(-timeout, libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
    pub(crate) memory_kib: u64,
}

/// `weir coordinator` with these words.
pub(crate) struct Service {
    child: Child,
    lines: Lines,
}

impl Service {
    /// A service under which nobody goes out of turn, so that it shows whether turns are kept.
    pub(crate) fn start(words: &[&str]) -> Verdict<Service> {
        Service::start_with("off", words)
    }

    pub(crate) fn start_with(backfill: &str, words: &[&str]) -> Verdict<Service> {
        let mut command = Command::new(weir());
        let service = Service::launch(command.args(["coordinator", "--backfill", backfill]).args(words))?;
        service.says("listen")?;
        Ok(service)
    }

    pub(crate) fn launch(command: &mut Command) -> Verdict<Service> {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let (lines, _) = Lines::of(child.stderr.take().ok_or("no stderr")?);
        Ok(Service { child, lines })
    }

    /// Waits until it has said this.
    pub(crate) fn says(&self, wanted: &str) -> Verdict {
        let said = self.lines.first_since(Instant::now() - SOON, SOON, |line| line.contains(wanted));
        ensure(said.is_some(), || format!("the service does not say {wanted:?}: {}", self.lines.text()))
    }

    pub(crate) fn signal(&self, number: i32) {
        signal(self.child.id() as i32, number);
    }

    /// What it takes of the system.
    pub(crate) fn size(&self) -> Verdict<Size> {
        let of = PathBuf::from(format!("/proc/{}", self.child.id()));
        let about = fs::read_to_string(of.join("status"))?;
        let number = |name: &str| -> Option<u64> {
            let line = about.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let unknown = || format!("no size in {about}");
        Ok(Size {
            descriptors: fs::read_dir(of.join("fd"))?.count(),
            threads: number("Threads:").ok_or_else(unknown)?,
            memory_kib: number("VmRSS:").ok_or_else(unknown)?,
        })
    }

    /// Ends it by a signal and waits for that.
    pub(crate) fn end(mut self, number: i32) -> Verdict {
        self.signal(number);
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
