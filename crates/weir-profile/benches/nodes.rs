//! How long it takes to merge the files of 1,000 nodes with ten ranks each, none of which is in the machine's cache.
//! `cargo bench --package weir-profile --bench nodes`

#[path = "../tests/records/mod.rs"]
mod records;

use records::{Builder, START_NS, Scratch};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_profile::counters::{Module, mpiio, posix};
use weir_profile::finish_job_within;
use weir_profile::folder::{node_path, put_file};
use weir_profile::job::Launch;
use weir_profile::layout::Header;
use weir_profile::node::{Leaf, Process, encode};

const NODES: u64 = 1000;
const RANKS: u64 = 10;
const GOAL_S: f64 = 1.0;

/// A rank of a program that writes a checkpoint ten times, and a file of its own.
fn rank(rank: u64) -> Builder {
    let mut record = Builder::new(rank, NODES * RANKS);
    record.set(offset_of!(Header, pid), (1 << 30) + rank).set(offset_of!(Header, lanes), 1);
    record.text(offset_of!(Header, host), 8, &format!("node{}", rank / RANKS));
    let file = record.file("/scratch/project/run/checkpoint.dat");
    let time = (mpiio::MPIIO_F_WRITE_TIME, 1_000_000 + rank * 37);
    record.counters(file, Module::Mpiio, 0, &[(mpiio::MPIIO_COLL_WRITES, 10), time]);
    let own = record.file(&format!("/scratch/project/run/out.{rank}"));
    record.counters(
        own,
        Module::Posix,
        0,
        &[(posix::POSIX_WRITES, 1), (posix::POSIX_BYTES_WRITTEN, 100 + rank)],
    );
    for phase in 0..10u32 {
        let at_s = 0.5 + f64::from(phase) * 0.9 + rank as f64 * 1e-6;
        record.burst(0, at_s, at_s + 0.2, 1 << 20, 0.0, 0).series(0, 10 * phase as usize, 1 << 20);
        let file_s = if rank.is_multiple_of(RANKS) { 0.05 } else { 0.0 };
        record.collective(file, u64::from(phase) + 1, at_s, at_s + 0.1, file_s);
    }
    record.calls(Module::Mpiio, 1, 10, 1 << 20, 0.1).slow(0, file, "MPI_File_write_at_all", 1.0, 0.1);
    record
}

/// Has the system forget what it has of a file.
fn cool(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: an open file.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn main() {
    let scratch = Scratch::new("thousand-nodes");
    let folder = scratch.job();
    let mut bytes = 0;
    for node in 0..NODES {
        let leaves: Vec<Leaf> = (0..RANKS)
            .map(|number| {
                let path = rank(node * RANKS + number).write(&scratch.0);
                let name = path.file_stem().unwrap().to_str().unwrap().to_string() + ".0000000000000007.rec";
                let leaf = Leaf::read(name, &File::open(&path).unwrap(), false).unwrap();
                std::fs::remove_file(path).unwrap();
                leaf
            })
            .collect();
        let whole = encode(Process { pid: 1 << 30, start: 1 }, leaves);
        bytes += whole.len();
        let path = node_path(&folder, &format!("node{node}-1-1"), 7);
        put_file(&path, &whole).unwrap();
        cool(&path);
    }
    // As root, also names and attributes.
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    let began = Instant::now();
    let launch = Launch { id: Some(7), start_ns: START_NS };
    let limit = Duration::from_secs(60);
    let profile = finish_job_within(&folder, &scratch.0, launch, limit, limit).unwrap().unwrap();
    let took_s = began.elapsed().as_secs_f64();
    let said = if took_s <= GOAL_S { "pass" } else { "OVER" };
    println!(
        "{NODES} node files of {RANKS} ranks, {} KiB in all ({} bytes a rank): merged cold in {took_s:.2} s (goal {GOAL_S} s) {said}; {}",
        bytes / 1024,
        bytes as u64 / NODES / RANKS,
        profile.file_name().unwrap_or_default().display()
    );
}
