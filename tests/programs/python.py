"""A dozen MPI-IO calls with mpi4py, beside Python's own files. Every rank does the same."""

import json
import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, nprocs = comm.Get_rank(), comm.Get_size()
block = bytes((rank + i) % 256 for i in range(1500))
n = len(block)
mine, row = rank * n, nprocs * n


def require(ok, what):
    if not ok:
        print("python: wrong:", what, file=sys.stderr, flush=True)
        comm.Abort(91)


info = MPI.Info.Create()
info.Set("cb_nodes", "1")
file = MPI.File.Open(comm, "python.dat", MPI.MODE_CREATE | MPI.MODE_RDWR, info)
info.Free()

file.Write_at_all(mine, block)
file.Write_at(row + mine, block)
file.Iwrite_at(2 * row + mine, block).Wait()
file.Write_at_all_begin(3 * row + mine, block)
file.Write_at_all_end(block)
file.Sync()

back = bytearray(n)
file.Read_at_all(mine, back)
require(back == block, "Read_at_all")
requests = [file.Iread_at(2 * row + mine, back), comm.irecv(source=rank, tag=5)]
comm.send(rank, dest=rank, tag=5)
MPI.Request.Waitall(requests)
require(back == block, "Iread_at")

# Each rank sees the file from its own place on. (No vector: MPICH 4.0 cannot view a file through the
# large-count types that mpi4py makes.)
file.Set_view(4 * row + mine)
file.Write_all(block)
file.Seek(0)
file.Read_all(back)
require(back == block, "Read_all through a view")
file.Close()

with open(f"text.{rank}.txt", "w") as text:
    text.write(f"rank {rank}\n")
with open(f"raw.{rank}.dat", "wb", buffering=0) as raw:
    raw.write(block)
    raw.write(block)

if rank == 0:
    each = {
        "MPIIO_COLL_OPENS": 1,
        "MPIIO_HINTS": 1,
        "MPIIO_COLL_WRITES": 2,
        "MPIIO_INDEP_WRITES": 1,
        "MPIIO_NB_WRITES": 1,
        "MPIIO_SPLIT_WRITES": 1,
        "MPIIO_COLL_READS": 2,
        "MPIIO_NB_READS": 1,
        "MPIIO_SYNCS": 1,
        "MPIIO_VIEWS": 1,
        "MPIIO_BYTES_WRITTEN": 5 * n,
        "MPIIO_BYTES_READ": 3 * n,
    }
    tally = {key: value * nprocs for key, value in each.items()}
    for r in range(nprocs):
        tally[f"raw.{r}.dat|POSIX_WRITES"] = 2
        tally[f"raw.{r}.dat|POSIX_BYTES_WRITTEN"] = 2 * n
    print("TALLY", json.dumps(tally), flush=True)
