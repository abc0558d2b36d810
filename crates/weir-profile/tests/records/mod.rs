//! Records made for tests: a buffer filled at the offsets of the layout's structs, as `libweir.so` does.
#![allow(dead_code, unreachable_pub)] // every test uses its own part

use std::fs;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use weir_profile::bins::bin;
use weir_profile::counters::Module;
use weir_profile::layout::*;

/// The moment at which every job of the tests begins.
pub const START_NS: u64 = 1_700_000_000_000_000_000;
/// The clock of the tests runs at 2 GHz and does not begin at zero.
pub const TICKS_PER_NS: u64 = 2;
pub const FIRST_TICKS: u64 = 123_456_789;

pub fn ticks(seconds: f64) -> u64 {
    FIRST_TICKS + duration(seconds)
}

pub fn duration(seconds: f64) -> u64 {
    (seconds * 1e9) as u64 * TICKS_PER_NS
}

pub fn this_host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_string()
}

pub struct Builder {
    bytes: Vec<u8>,
    files: u64,
}

impl Builder {
    /// A rank that armed at second 0 and finalized at second 10.
    pub fn new(rank: u64, nprocs: u64) -> Self {
        let mut builder = Builder { bytes: vec![0; BLOCKS_OFFSET], files: 1 };
        builder
            .set(offset_of!(Header, magic), MAGIC)
            .set(offset_of!(Header, pid), 1 << 30) // beyond any real process
            .set(offset_of!(Header, rank), rank)
            .set(offset_of!(Header, nprocs), nprocs)
            .set(offset_of!(Header, abi), Abi::OpenMpi as u64)
            .set(offset_of!(Header, lanes), LANES as u64)
            .set(offset_of!(Header, clock_first.ticks), FIRST_TICKS)
            .set(offset_of!(Header, clock_first.monotonic_ns), 5_000)
            .set(offset_of!(Header, clock_first.realtime_ns), START_NS)
            .text(offset_of!(Header, host), 8, &this_host())
            .text(offset_of!(Header, application), 16, "stencil")
            .text(offset_of!(Header, job), 16, "4711")
            .text(offset_of!(Header, mpi), 32, "Open MPI v4.1.4")
            .text(offset_of!(Header, weir_version), 4, "0.1.0")
            .ended(Ended::Finalized, 0, 10.0);
        for lane in 0..LANES {
            builder.set(lane_at(lane) + offset_of!(Lane, bursts.gap_ticks), duration(0.001));
            builder.set(lane_at(lane) + offset_of!(Lane, collectives.stride), 1);
            builder.set(lane_at(lane) + offset_of!(Lane, series.shift), 27);
        }
        builder
    }

    /// Goes on with a record that knows files up to the index `files`.
    pub fn from_bytes(bytes: &[u8], files: u64) -> Self {
        Builder { bytes: bytes.to_vec(), files }
    }

    pub fn set(&mut self, offset: usize, value: u64) -> &mut Self {
        self.bytes[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub fn get(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes[offset..offset + 8].try_into().unwrap())
    }

    fn add(&mut self, offset: usize, value: u64) {
        let sum = self.get(offset) + value;
        self.set(offset, sum);
    }

    pub fn text(&mut self, offset: usize, words: usize, text: &str) -> &mut Self {
        assert!(text.len() <= 8 * words);
        self.bytes[offset..offset + 8 * words].fill(0);
        self.bytes[offset..offset + text.len()].copy_from_slice(text.as_bytes());
        self
    }

    pub fn ended(&mut self, ended: Ended, code: i32, at_s: f64) -> &mut Self {
        self.set(offset_of!(Header, ended), ended as u64)
            .set(offset_of!(Header, end_code), code as i64 as u64)
            .set(offset_of!(Header, end_ticks), if ended == Ended::Running { 0 } else { ticks(at_s) })
            .set(offset_of!(Header, clock_last.ticks), ticks(at_s))
            .set(offset_of!(Header, clock_last.monotonic_ns), 5_000 + (at_s * 1e9) as u64)
            .set(offset_of!(Header, clock_last.realtime_ns), START_NS + (at_s * 1e9) as u64)
    }

    /// Adds a block and returns where it is.
    fn block(&mut self, kind: u64, file: u64, lane: u64) -> usize {
        let at = self.bytes.len();
        self.bytes.resize(at + BLOCK_BYTES, 0);
        self.set(at + offset_of!(Block, kind), kind);
        self.set(at + offset_of!(Block, file), file);
        self.set(at + offset_of!(Block, lane), lane);
        self.add(offset_of!(Header, blocks), 1);
        at
    }

    pub fn file(&mut self, name: &str) -> u64 {
        let file = self.files;
        self.files += 1;
        let at = self.block(KIND_NAME, file, 0);
        self.text(at + offset_of!(Block, words), COUNTERS_PER_BLOCK, name);
        file
    }

    pub fn counters(&mut self, file: u64, module: Module, lane: u64, counters: &[(usize, u64)]) -> &mut Self {
        let at = self.block(KIND_MODULE + module as u64, file, lane);
        for (index, value) in counters {
            self.set(at + offset_of!(Block, words) + 8 * index, *value);
        }
        self
    }

    pub fn burst(
        &mut self,
        lane: usize,
        from_s: f64,
        to_s: f64,
        written: u64,
        wait_s: f64,
        marked: u64,
    ) -> &mut Self {
        let count = lane_at(lane) + offset_of!(Lane, bursts.count);
        let at =
            lane_at(lane) + offset_of!(Lane, bursts.list) + self.get(count) as usize * size_of::<Burst>();
        self.add(count, 1);
        self.set(at + offset_of!(Burst, start_ticks), ticks(from_s))
            .set(at + offset_of!(Burst, end_ticks), ticks(to_s))
            .set(at + offset_of!(Burst, bytes_written), written)
            .set(at + offset_of!(Burst, wait_ticks), duration(wait_s))
            .set(at + offset_of!(Burst, calls), 1)
            .set(at + offset_of!(Burst, marked), marked)
    }

    /// A name for the burst that was made last.
    pub fn named(&mut self, lane: usize, name: &str) -> &mut Self {
        let names = offset_of!(Header, phase_names);
        self.text(names, PHASE_NAME_WORDS, name).named_as(lane, 1)
    }

    /// The place of the name of the burst that was made last.
    pub fn named_as(&mut self, lane: usize, place: u64) -> &mut Self {
        let last = self.get(lane_at(lane) + offset_of!(Lane, bursts.count)) as usize - 1;
        let at = lane_at(lane) + offset_of!(Lane, bursts.list) + last * size_of::<Burst>();
        self.set(at + offset_of!(Burst, name), place)
    }

    /// Calls alike that the process has not yet moved into the counters of its last block.
    pub fn run(&mut self, kind: usize, bytes: u64, calls: u64) -> &mut Self {
        let block = self.get(offset_of!(Header, blocks)) - 1;
        let at = lane_at(0) + offset_of!(Lane, runs) + kind * size_of::<Run>();
        self.set(at + offset_of!(Run, address), 0xdead_beef)
            .set(at + offset_of!(Run, bytes), bytes)
            .set(at + offset_of!(Run, calls), calls)
            .set(at + offset_of!(Run, block), block)
    }

    /// Bytes written that are not yet in the last burst, which lasts until `to_s`, nor in the series.
    pub fn pending(&mut self, written: u64, calls: u64, to_s: f64, bin: u64) -> &mut Self {
        let gap = self.get(lane_at(0) + offset_of!(Lane, bursts.gap_ticks));
        self.set(lane_at(0) + offset_of!(Lane, pending.bytes_written), written)
            .set(lane_at(0) + offset_of!(Lane, pending.calls), calls)
            .set(lane_at(0) + offset_of!(Lane, pending.bin), bin)
            .set(lane_at(0) + offset_of!(Lane, bursts.active_gap_ticks), gap)
            .set(lane_at(0) + offset_of!(Lane, bursts.deadline_ticks), ticks(to_s) + gap)
    }

    pub fn slow(&mut self, index: usize, file: u64, op: &str, at_s: f64, duration_s: f64) -> &mut Self {
        let at = lane_at(0) + offset_of!(Lane, slowest) + index * size_of::<Slow>();
        self.set(at + offset_of!(Slow, duration_ticks), duration(duration_s))
            .set(at + offset_of!(Slow, start_ticks), ticks(at_s))
            .set(at + offset_of!(Slow, bytes), 4096)
            .set(at + offset_of!(Slow, file), file)
            .text(at + offset_of!(Slow, op), 4, op)
    }

    /// Calls that failed with a code, the first of them at that second.
    pub fn failure(
        &mut self,
        index: usize,
        op: &str,
        file: u64,
        code: u64,
        count: u64,
        at_s: f64,
    ) -> &mut Self {
        let at = offset_of!(Header, failures) + index * size_of::<Failure>();
        self.set(at + offset_of!(Failure, count), count)
            .text(at + offset_of!(Failure, op), 4, op)
            .set(at + offset_of!(Failure, file), file)
            .set(at + offset_of!(Failure, code), code)
            .set(at + offset_of!(Failure, start_ticks), ticks(at_s))
    }

    /// A collective write of one mebibyte; a rank that moved it to the file spent `file_s` there.
    pub fn collective(&mut self, file: u64, sequence: u64, from_s: f64, to_s: f64, file_s: f64) -> &mut Self {
        let count = lane_at(0) + offset_of!(Lane, collectives.count);
        let list = lane_at(0) + offset_of!(Lane, collectives.list);
        let at = list + self.get(count) as usize * size_of::<Collective>();
        self.add(count, 1);
        self.set(at + offset_of!(Collective, sequence), sequence)
            .set(at + offset_of!(Collective, file), file)
            .text(at + offset_of!(Collective, op), 4, "MPI_File_write_at_all")
            .set(at + offset_of!(Collective, start_ticks), ticks(from_s))
            .set(at + offset_of!(Collective, end_ticks), ticks(to_s))
            .set(at + offset_of!(Collective, bytes), 1 << 20)
            .set(at + offset_of!(Collective, file_ticks), duration(file_s))
            .set(at + offset_of!(Collective, file_bytes), if file_s > 0.0 { 1 << 20 } else { 0 })
    }

    /// Bytes written in a bin of the series.
    pub fn series(&mut self, lane: usize, index: usize, written: u64) -> &mut Self {
        self.set(lane_at(lane) + offset_of!(Lane, series.bytes_written) + 8 * index, written)
    }

    /// Calls of a module in a direction (0 read, 1 write), all of one size and latency.
    pub fn calls(
        &mut self,
        module: Module,
        direction: usize,
        count: u64,
        bytes: u64,
        latency_s: f64,
    ) -> &mut Self {
        let histogram = 2 * module as usize + direction;
        let at = lane_at(0) + offset_of!(Lane, histograms) + histogram * size_of::<Histogram>();
        self.add(at + offset_of!(Histogram, size_bytes) + 8 * bin(bytes), count);
        self.add(at + offset_of!(Histogram, latency_ticks) + 8 * bin(duration(latency_s)), count);
        for (word, size) in [
            (offset_of!(Histogram, max_size_bytes), bytes),
            (offset_of!(Histogram, min_size_complement), !bytes),
        ] {
            let before = self.get(at + word);
            self.set(at + word, before.max(size));
        }
        self
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let used = self.bytes.len() as u64;
        let files = self.files;
        self.set(offset_of!(Header, used_bytes), used).set(offset_of!(Header, files), files);
        self.bytes.clone()
    }

    /// Writes the record under the name the library gives it.
    pub fn write(&mut self, dir: &Path) -> PathBuf {
        let (rank, pid) = (self.get(offset_of!(Header, rank)), self.get(offset_of!(Header, pid)));
        let generation = self.get(offset_of!(Header, generation));
        let path = dir.join(format!("{rank}-{}-{pid}-{generation}.rec", this_host()));
        fs::write(&path, self.bytes()).unwrap();
        path
    }
}

pub fn lane_at(lane: usize) -> usize {
    LANE_OFFSET + lane * LANE_BYTES
}

/// A directory that goes with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn job_is_there(&self) -> bool {
        self.0.join(".weir-4711").exists()
    }

    /// The folder of records of the tests' job.
    pub fn job(&self) -> PathBuf {
        let path = self.0.join(".weir-4711");
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
