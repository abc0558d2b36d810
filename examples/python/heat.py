"""Heat spreads over a square plate: the Python version of examples/c/heat.c, where it is explained.

    mpirun -n 4 python3 heat.py -n 512 -s 200 -i 50
"""

import argparse
import sys

import numpy as np
from mpi4py import MPI

MAGIC = 0x54414548  # "HEAT"
HEADER_BYTES = 4 * 8


class Plate:
    """This process's rectangle; `field` has a halo of one cell."""

    def __init__(self, cells):
        dims = MPI.Compute_dims(MPI.COMM_WORLD.size, 2)
        self.comm = MPI.COMM_WORLD.Create_cart(dims)
        self.cells = cells
        begin = [cells * at // parts for at, parts in zip(self.comm.coords, dims)]
        end = [cells * (at + 1) // parts for at, parts in zip(self.comm.coords, dims)]
        self.begin, self.end = begin, end
        self.shape = [e - b for b, e in zip(begin, end)]
        self.field = np.zeros([n + 2 for n in self.shape])
        # The rectangle within the plate, in the file.
        self.place = MPI.DOUBLE.Create_subarray([cells, cells], self.shape, begin).Commit()

    def heat_up(self):
        """A hot rectangle, off the middle."""
        n = self.cells
        y, x = np.mgrid[self.begin[0] : self.end[0], self.begin[1] : self.end[1]]
        hot = (y >= n // 8) & (y < n // 2) & (x >= n // 4) & (x < 5 * n // 8)
        self.field[1:-1, 1:-1] = np.where(hot, 100.0, 0.0)

    def exchange_halo(self):
        f = self.field
        up, down = self.comm.Shift(0, 1)
        west, east = self.comm.Shift(1, 1)
        for send, to, receive, source in (
            (f[1, :], up, f[-1, :], down),
            (f[-2, :], down, f[0, :], up),
            (f[:, 1], west, f[:, -1], east),
            (f[:, -2], east, f[:, 0], west),
        ):
            buffer = np.zeros(len(receive))
            self.comm.Sendrecv(np.ascontiguousarray(send), to, recvbuf=buffer, source=source)
            if source != MPI.PROC_NULL:
                receive[1:-1] = buffer[1:-1]

    def step(self):
        self.exchange_halo()
        f = self.field
        around = f[1:-1, :-2] + f[1:-1, 2:] + f[:-2, 1:-1] + f[2:, 1:-1]
        here = f[1:-1, 1:-1]
        new = np.zeros_like(f)
        new[1:-1, 1:-1] = here + 0.2 * (around - 4.0 * here)
        self.field = new

    def write_checkpoint(self, name, done):
        file = MPI.File.Open(self.comm, name, MPI.MODE_CREATE | MPI.MODE_WRONLY)
        if self.comm.rank == 0:
            file.Write_at(0, np.array([MAGIC, self.cells, done, 0], dtype=np.int64))
        file.Set_view(HEADER_BYTES, MPI.DOUBLE, self.place)
        file.Write_all(np.ascontiguousarray(self.field[1:-1, 1:-1]))
        file.Close()

    def read_checkpoint(self, name):
        """Answers with the steps that were done when the checkpoint was written."""
        header = np.zeros(4, dtype=np.int64)
        file = MPI.File.Open(self.comm, name, MPI.MODE_RDONLY)
        file.Read_at_all(0, header)
        if header[0] != MAGIC or header[1] != self.cells:
            print(f"heat: {name} is no checkpoint of a plate of {self.cells} cells", file=sys.stderr)
            self.comm.Abort(1)
        inner = np.zeros(self.shape)
        file.Set_view(HEADER_BYTES, MPI.DOUBLE, self.place)
        file.Read_all(inner)
        file.Close()
        self.field[1:-1, 1:-1] = inner
        return int(header[2])


def parse():
    parser = argparse.ArgumentParser(description="Heat spreads over a square plate.")
    parser.add_argument("-n", dest="cells", type=int, default=256, help="cells per side")
    parser.add_argument("-s", dest="steps", type=int, default=100, help="steps in all")
    parser.add_argument("-i", dest="interval", type=int, default=25, help="steps between checkpoints")
    parser.add_argument("-o", dest="file", default="heat.ckpt", help="the checkpoint")
    parser.add_argument("-r", dest="restart", action="store_true", help="go on from the checkpoint")
    return parser.parse_args()


def main():
    options = parse()
    plate = Plate(options.cells)
    done = 0
    if options.restart:
        done = plate.read_checkpoint(options.file)
    else:
        plate.heat_up()
    while done < options.steps:
        plate.step()
        done += 1
        if done % options.interval == 0:
            plate.write_checkpoint(options.file, done)
    hottest = plate.comm.reduce(float(plate.field[1:-1, 1:-1].max()), op=MPI.MAX)
    if plate.comm.rank == 0:
        n = options.cells
        print(f"heat: {n} x {n} cells, {options.steps} steps, hottest {hottest:.6f}", flush=True)


if __name__ == "__main__":
    main()
