//! How long a rank was in I/O calls of its program, by what they do.

use crate::counters::{Module, mpiio::*, posix::*, stdio::*};
use crate::profile::IoTime;
use crate::totals::{Totals, seconds};

/// Nanoseconds inside I/O calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IoTimeNs {
    open_close: u64,
    read: u64,
    write: u64,
    sync: u64,
    other: u64,
}

impl IoTimeNs {
    /// Of the calls that these counters are about, those that the program made itself: what the MPI library does
    /// beneath `MPI_File_*` is in the time of that call.
    pub(crate) fn of(module: Module, totals: &Totals) -> IoTimeNs {
        let get = |index: usize| totals.get(index);
        match module {
            Module::Mpiio => IoTimeNs::new(
                [get(MPIIO_F_READ_TIME), get(MPIIO_F_WRITE_TIME), get(MPIIO_F_META_TIME)],
                get(MPIIO_F_OPEN_CLOSE_TIME),
                get(MPIIO_F_SYNC_TIME),
            )
            .without(get(MPIIO_F_GATE_TIME)),
            Module::Posix => {
                let own = |time: usize, bytes: usize, mpi_bytes: usize| {
                    own_part(get(time), get(bytes), get(mpi_bytes))
                };
                let read = own(POSIX_F_READ_TIME, POSIX_BYTES_READ, POSIX_MPI_BYTES_READ);
                let write = own(POSIX_F_WRITE_TIME, POSIX_BYTES_WRITTEN, POSIX_MPI_BYTES_WRITTEN);
                let meta = get(POSIX_F_META_TIME).saturating_sub(get(POSIX_F_MPI_META_TIME));
                IoTimeNs::new([read, write, meta], get(POSIX_F_OPEN_CLOSE_TIME), get(POSIX_F_SYNC_TIME))
            }
            Module::Stdio => IoTimeNs::new(
                [get(STDIO_F_READ_TIME), get(STDIO_F_WRITE_TIME), get(STDIO_F_META_TIME)],
                get(STDIO_F_OPEN_CLOSE_TIME),
                get(STDIO_F_SYNC_TIME),
            ),
        }
    }

    /// Opens, closes and syncs are parts of the time of metadata.
    fn new([read, write, meta]: [u64; 3], open_close: u64, sync: u64) -> IoTimeNs {
        let open_close = open_close.min(meta);
        let sync = sync.min(meta - open_close);
        IoTimeNs { open_close, read, write, sync, other: meta - open_close - sync }
    }

    /// The same without so much time held back. In which calls that was is not known: each gives its share.
    fn without(self, held_back: u64) -> IoTimeNs {
        let total = self.total();
        let rest = u128::from(total.saturating_sub(held_back));
        let part = |time: u64| (u128::from(time) * rest / u128::from(total.max(1))) as u64;
        let IoTimeNs { open_close, read, write, sync, other } = self;
        IoTimeNs {
            open_close: part(open_close),
            read: part(read),
            write: part(write),
            sync: part(sync),
            other: part(other),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        let IoTimeNs { open_close, read, write, sync, other } = *self;
        [read, write, sync, other].into_iter().fold(open_close, u64::saturating_add)
    }

    pub(crate) fn add(&mut self, one: &IoTimeNs) {
        for (sum, time) in [
            (&mut self.open_close, one.open_close),
            (&mut self.read, one.read),
            (&mut self.write, one.write),
            (&mut self.sync, one.sync),
            (&mut self.other, one.other),
        ] {
            *sum = sum.saturating_add(time);
        }
    }

    pub(crate) fn finish(&self) -> IoTime {
        IoTime {
            open_close_s: seconds(self.open_close),
            read_s: seconds(self.read),
            write_s: seconds(self.write),
            sync_s: seconds(self.sync),
            other_s: seconds(self.other),
        }
    }
}

/// The program's part of the time of calls that the MPI library makes as well, by the bytes that each of them moved.
fn own_part(time: u64, bytes: u64, mpi_bytes: u64) -> u64 {
    match bytes.saturating_sub(mpi_bytes) {
        own_bytes if own_bytes == bytes => time,
        own_bytes => (u128::from(time) * u128::from(own_bytes) / u128::from(bytes)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::COUNTERS_PER_BLOCK;
    use crate::record::Clock;

    fn time(module: Module, counters: &[(usize, u64)]) -> IoTimeNs {
        let mut words = [0; COUNTERS_PER_BLOCK];
        counters.iter().for_each(|(index, value)| words[*index] = *value);
        IoTimeNs::of(module, &Totals::from_ticks(module, &words, &Clock::new([0; 3], [1; 3])))
    }

    #[test]
    fn calls_of_the_mpi_library_are_not_counted_twice() {
        let counters = [
            (POSIX_BYTES_WRITTEN, 400),
            (POSIX_MPI_BYTES_WRITTEN, 300),
            (POSIX_F_WRITE_TIME, 40),
            (POSIX_BYTES_READ, 100),
            (POSIX_MPI_BYTES_READ, 100),
            (POSIX_F_READ_TIME, 7),
            (POSIX_F_META_TIME, 100),
            (POSIX_F_MPI_META_TIME, 80),
            (POSIX_F_OPEN_CLOSE_TIME, 15),
            (POSIX_F_SYNC_TIME, 3),
        ];
        let expected = IoTimeNs { open_close: 15, read: 0, write: 10, sync: 3, other: 2 };
        assert_eq!(time(Module::Posix, &counters), expected);
    }

    #[test]
    fn time_held_back_is_no_time_in_io() {
        let counters = [
            (MPIIO_F_WRITE_TIME, 600),
            (MPIIO_F_META_TIME, 400),
            (MPIIO_F_OPEN_CLOSE_TIME, 400),
            (MPIIO_F_GATE_TIME, 500),
        ];
        let expected = IoTimeNs { open_close: 200, write: 300, ..IoTimeNs::default() };
        assert_eq!(time(Module::Mpiio, &counters), expected);
        let more = [(MPIIO_F_WRITE_TIME, 600), (MPIIO_F_GATE_TIME, 601)];
        assert_eq!(time(Module::Mpiio, &more), IoTimeNs::default());
    }
}
