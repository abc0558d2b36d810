# R with Rmpi: the interpreter loads MPI by itself, and does its I/O through the C library's streams.
suppressMessages(library(Rmpi))
rank <- mpi.comm.rank(0)
calls <- 10
bytes <- 1000
name <- function(rank) sprintf("r.%d.dat", rank)
out <- file(name(rank), "wb")
for (i in seq_len(calls)) writeBin(as.raw(rep(rank, bytes)), out)
close(out)
if (rank == 0) {
  names <- name(seq_len(mpi.comm.size(0)) - 1)
  cat(sprintf('TALLY {"%s|STDIO_WRITES": %d, "%s|STDIO_BYTES_WRITTEN": %d}\n', names, calls, names, calls * bytes), sep = "")
}
invisible(mpi.barrier(0))
invisible(mpi.finalize())
