//! What wakes the leader: the ranks, by a word in the page they share, and the coordinator, through a thread
//! that does nothing but wait for its sockets. So a rank that asks makes one system call, and needs no descriptor,
//! which the program could close.

use super::thread::stack_bytes;
use crate::shim::shield::keeping_errno;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_coord::Waker;

/// Sleeps while the word is what it was, for some time, or less. `errno` stays as it is: the program may be asleep here.
pub(super) fn sleep(word: &AtomicU32, was: u32, limit: Duration) {
    let time = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: the address of a word that stays mapped, and a time that outlives the call.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, was, &time) });
}

/// Wakes all who sleep on the word, in any process; whether there was one.
pub(super) fn wake(word: &AtomicU32) -> bool {
    // SAFETY: the address of a word that stays mapped.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) > 0 }
}

/// Zeros are a bell that has not been rung.
#[repr(C)]
pub(super) struct Bell {
    rings: AtomicU32,
    asleep: AtomicU32,
}

impl Bell {
    /// Wakes the leader. False: it should be asleep and is not there; it may have been killed.
    pub(super) fn ring(&self) -> bool {
        self.rings.fetch_add(1, SeqCst);
        self.asleep.load(SeqCst) == 0 || wake(&self.rings)
    }

    /// What [`Bell::rest`] takes: to be read before the leader looks at what there is to do.
    pub(super) fn rings(&self) -> u32 {
        self.rings.load(SeqCst)
    }

    /// Until it is rung once more than `rings` times, or for some time, or less.
    pub(super) fn rest(&self, rings: u32, limit: Duration) {
        self.asleep.store(1, SeqCst);
        sleep(&self.rings, rings, limit);
        self.asleep.store(0, SeqCst);
    }
}

/// Rings the bell when the coordinator has something to say.
pub(super) struct Ears {
    state: Arc<(Mutex<State>, Condvar)>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Resting,
    Listening,
    Ended,
}

const STACK_BYTES: usize = 64 << 10;

impl Ears {
    /// For a descriptor that is ready when there is something to hear, and that `waker` makes ready too. The thread
    /// has the signals blocked and the descriptors that its maker has. `None` if there is no room for it.
    pub(super) fn open(descriptor: RawFd, waker: Waker, bell: &'static Bell) -> Option<Ears> {
        let state = Arc::new((Mutex::new(State::Resting), Condvar::new()));
        let shared = state.clone();
        let builder =
            std::thread::Builder::new().name("weir-ears".into()).stack_size(stack_bytes(STACK_BYTES));
        let thread = builder.spawn(move || listen(&shared, descriptor, bell)).ok()?;
        Some(Ears { state, waker, thread: Some(thread) })
    }

    /// Rings once as soon as there is something to hear.
    pub(super) fn listen(&self) {
        change(&self.state, State::Listening);
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        change(&self.state, State::Ended);
        self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn change((state, changed): &(Mutex<State>, Condvar), to: State) {
    let before = std::mem::replace(&mut *lock(state), to);
    if before == State::Resting {
        changed.notify_one();
    }
}

fn listen((state, changed): &(Mutex<State>, Condvar), descriptor: RawFd, bell: &Bell) {
    loop {
        let guard = changed.wait_while(lock(state), |state| *state == State::Resting);
        let guard = guard.unwrap_or_else(|poisoned| poisoned.into_inner());
        if *guard == State::Ended {
            return;
        }
        drop(guard);
        let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one description, which outlives the call.
        unsafe { libc::poll(&mut wanted, 1, -1) };
        let mut guard = lock(state);
        if *guard == State::Listening {
            *guard = State::Resting;
        }
        drop(guard);
        bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    fn bell() -> &'static Bell {
        Box::leak(Box::new(Bell { rings: AtomicU32::new(0), asleep: AtomicU32::new(0) }))
    }

    #[test]
    fn a_ring_ends_the_rest_and_one_before_it_is_not_lost() {
        let bell = bell();
        let start = Instant::now();
        let rings = bell.rings();
        assert!(bell.ring());
        bell.rest(rings, LONG);
        let ringer = std::thread::spawn(|| {
            while bell.asleep.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            bell.ring();
        });
        bell.rest(bell.rings(), LONG);
        ringer.join().unwrap();
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn who_was_killed_in_its_sleep_is_missed() {
        let bell = bell();
        bell.asleep.store(1, SeqCst);
        assert!(!bell.ring());
    }

    #[test]
    fn what_can_be_heard_rings_once_each_time_somebody_listens() {
        let (bell, sound) = (bell(), Waker::new().unwrap());
        let ears = Ears::open(sound.as_raw_fd(), sound.clone(), bell).unwrap();
        let start = Instant::now();
        sound.wake();
        for _ in 0..3 {
            let rings = bell.rings();
            ears.listen();
            bell.rest(rings, LONG);
            assert_eq!(bell.rings(), rings + 1);
        }
        drop(ears);
        assert!(start.elapsed() < LONG);
    }
}
