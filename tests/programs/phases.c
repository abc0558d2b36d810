/* phases: `phases found|marked|killed N` writes N times, with a pause before each: as many phases, found or marked.
 * Every other mark has another name. Prints what it measured itself:
 * TIME from first to last start in seconds, and WEIR's characteristic time. Killed, it ends without a word. */
#define WEIR_INLINE
#include <weir.h>

#include "tally.h"
#include <signal.h>
#include <time.h>

static void pause_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};
    while (nanosleep(&t, &t) != 0)
        ;
}

int main(int argc, char **argv)
{
    char block[4096] = {1}, name[32];
    double first = 0, last = 0;
    int rank, i, marks, phases;
    MPI_File file;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    REQUIRE(argc == 3);
    marks = strcmp(argv[1], "found") != 0;
    phases = atoi(argv[2]);
    snprintf(name, sizeof name, "phases.%d", rank);
    REQUIRE(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    for (i = 0; i < phases; i++) {
        /* The file is opened and closed in the first phase and in the last. */
        if (i > 0)
            pause_ms(2);
        if (marks)
            weir_phase_begin(i % 2 == 1 ? "log" : "checkpoint");
        last = MPI_Wtime();
        if (i == 0)
            first = last;
        REQUIRE(MPI_File_write_at(file, 0, block, sizeof block, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        if (marks)
            weir_phase_end();
    }
    if (strcmp(argv[1], "killed") != 0)
        REQUIRE(MPI_File_close(&file) == 0);
    if (rank == 0)
        printf("TIME %f\nWEIR %f\n", last - first, weir_characteristic_time());
    fflush(stdout);
    if (strcmp(argv[1], "killed") == 0)
        raise(SIGKILL);
    MPI_Finalize();
    return 0;
}
