/* gate FILE COUNT PAUSE_US: prints the nanoseconds of COUNT writes of 8 bytes, each the first of a phase: a
 * pause that ends the phase stands before it. */
#include "clock.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_File file;
    int i, count = argc > 3 ? atoi(argv[2]) : 0, pause_us = argc > 3 ? atoi(argv[3]) : 0;
    MPI_Init(&argc, &argv);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    for (i = 0; i < count; i++) {
        long long start;
        usleep(pause_us);
        start = now_ns();
        MPI_File_write_at(file, 8 * i, "eight by", 8, MPI_BYTE, MPI_STATUS_IGNORE);
        printf("%lld\n", now_ns() - start);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
