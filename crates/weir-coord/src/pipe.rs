//! A connection that stays within the thread: the coordinator's own job need not go through the kernel.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::sync::{Arc, Mutex, MutexGuard};

/// As much as a socket would take.
const CAPACITY_BYTES: usize = 256 << 10;

/// One of two ends. What one writes the other reads; nothing blocks, and when one is dropped the other ends.
pub(crate) struct Pipe {
    incoming: Arc<Mutex<VecDeque<u8>>>,
    outgoing: Arc<Mutex<VecDeque<u8>>>,
}

impl Pipe {
    pub(crate) fn pair() -> (Pipe, Pipe) {
        let [one, other]: [Arc<Mutex<VecDeque<u8>>>; 2] = Default::default();
        (Pipe { incoming: one.clone(), outgoing: other.clone() }, Pipe { incoming: other, outgoing: one })
    }

    /// Whether reading says anything new: bytes, or that the other end is gone.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_alone() || !bytes(&self.incoming).is_empty()
    }

    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        if self.is_alone() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let mut outgoing = bytes(&self.outgoing);
        let length = from.len().min(CAPACITY_BYTES - outgoing.len());
        outgoing.extend(&from[..length]);
        if length == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(length) }
    }

    fn is_alone(&self) -> bool {
        Arc::strong_count(&self.incoming) == 1
    }
}

impl Read for Pipe {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        // Asked first: what was written before the other end went is still read.
        let alone = self.is_alone();
        match bytes(&self.incoming).read(to)? {
            0 if !alone && !to.is_empty() => Err(ErrorKind::WouldBlock.into()),
            length => Ok(length),
        }
    }
}

fn bytes(queue: &Mutex<VecDeque<u8>>) -> MutexGuard<'_, VecDeque<u8>> {
    queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_writes_the_other_reads_until_it_is_gone() {
        let (mut here, mut there) = Pipe::pair();
        let mut buffer = [0; 4];
        assert_eq!(there.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(!there.is_ready());
        assert_eq!(here.write(b"hello").unwrap(), 5);
        assert!(there.is_ready() && !here.is_ready());
        assert_eq!((there.read(&mut buffer).unwrap(), &buffer), (4, b"hell"));
        drop(here);
        assert_eq!((there.read(&mut buffer).unwrap(), buffer[0]), (1, b'o'));
        assert_eq!(there.read(&mut buffer).unwrap(), 0);
        assert_eq!(there.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn who_is_not_read_cannot_write_for_ever() {
        let (mut here, mut there) = Pipe::pair();
        let written = std::iter::from_fn(|| here.write(&[7; 1000]).ok()).sum::<usize>();
        assert_eq!(written, CAPACITY_BYTES);
        let mut buffer = [0; 10];
        there.read_exact(&mut buffer).unwrap();
        assert_eq!(here.write(&[7; 1000]).unwrap(), 10);
    }
}
