/* metadata: `metadata posix|mpi N` makes, looks at and removes files in N bursts of 50 ms with pauses of 200 ms between them, and
 * moves no byte. Prints what it measured itself: RUN, and of that BURSTS in bursts and CALLS in opens and closes, in seconds. */
#define _GNU_SOURCE
#include "tally.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char name[32];
static double calls;

static void pause_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};
    while (nanosleep(&t, &t) != 0)
        ;
}

static void with_posix(void)
{
    struct stat about;
    double start = MPI_Wtime();
    int fd = open(name, O_CREAT | O_WRONLY, 0644);
    calls += MPI_Wtime() - start;
    REQUIRE(fd >= 0);
    REQUIRE(stat(name, &about) == 0 && access(name, W_OK) == 0);
    start = MPI_Wtime();
    REQUIRE(close(fd) == 0);
    calls += MPI_Wtime() - start;
    REQUIRE(unlink(name) == 0);
    tally("POSIX_OPENS", 1);
    tally("POSIX_STATS", 2);
    tally("POSIX_DIRECTORY_CHANGES", 1);
}

static void with_mpi(void)
{
    MPI_File file;
    double start = MPI_Wtime();
    REQUIRE(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    REQUIRE(MPI_File_close(&file) == 0);
    calls += MPI_Wtime() - start;
    tally("MPIIO_INDEP_OPENS", 1);
}

int main(int argc, char **argv)
{
    double begin, bursts = 0;
    int rank, i;

    MPI_Init(&argc, &argv);
    begin = MPI_Wtime();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    REQUIRE(argc == 3);
    snprintf(name, sizeof name, "metadata.%d", rank);
    for (i = 0; i < atoi(argv[2]); i++) {
        double start = MPI_Wtime();
        while (MPI_Wtime() - start < 0.05)
            strcmp(argv[1], "mpi") == 0 ? with_mpi() : with_posix();
        bursts += MPI_Wtime() - start;
        pause_ms(200);
    }
    tally_print(MPI_COMM_WORLD);
    printf("RUN %f\nBURSTS %f\nCALLS %f\n", MPI_Wtime() - begin, bursts, calls);
    MPI_Finalize();
    return 0;
}
