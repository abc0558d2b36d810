/* marks: writes a block in a phase that it marks itself, keeps that for a while without I/O, and goes on with its file open.
 * Says BEGUN when the phase has begun. */
#define WEIR_INLINE
#include <weir.h>

#include "tally.h"
#include <time.h>

static void pause_s(time_t s)
{
    struct timespec t = {s, 0};
    while (nanosleep(&t, &t) != 0)
        ;
}

int main(int argc, char **argv)
{
    char block[4096] = {1};
    int rank;
    MPI_File file;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, "marks.dat", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    weir_phase_begin("marked");
    REQUIRE(MPI_File_write_at_all(file, rank * 4096, block, 4096, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    puts("BEGUN");
    fflush(stdout);
    pause_s(4);
    weir_phase_end();
    pause_s(10);
    REQUIRE(MPI_File_close(&file) == 0);
    MPI_Finalize();
    return 0;
}
