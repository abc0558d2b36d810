/* gate FILE COUNT PAUSE_US: prints the nanoseconds of COUNT writes of 8 bytes, each the first of a phase: a
 * pause that ends the phase stands before it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
    MPI_File file;
    int i, count = argc > 3 ? atoi(argv[2]) : 0, pause_us = argc > 3 ? atoi(argv[3]) : 0;
    MPI_Init(&argc, &argv);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    for (i = 0; i < count; i++) {
        long long start;
        usleep(pause_us);
        start = now();
        MPI_File_write_at(file, 8 * i, "eight by", 8, MPI_BYTE, MPI_STATUS_IGNORE);
        printf("%lld\n", now() - start);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
