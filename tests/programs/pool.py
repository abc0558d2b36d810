"""Each rank writes a little itself and leaves most to a pool of workers, as data loaders and post-processing do."""

import json
import multiprocessing

from mpi4py import MPI

BLOCK = 1 << 20
WORKERS = 3


def work(job):
    rank, number = job
    with open(f"pool.{rank}.{number}.dat", "wb", buffering=0) as file:
        return file.write(bytes(BLOCK))


if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    jobs = [(rank, number) for number in range(2 * WORKERS)]
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        moved = sum(pool.map(work, jobs, chunksize=1))
    with open(f"rank.{rank}.dat", "wb", buffering=0) as file:
        moved += file.write(bytes(1000))
    assert moved == 2 * WORKERS * BLOCK + 1000
    for line in comm.gather(json.dumps({"POSIX_BYTES_WRITTEN": moved, "POSIX_WRITES": 2 * WORKERS + 1})) or []:
        print("TALLY", line, flush=True)
