/* turns NAME PHASES REQUESTS BYTES PAUSE_MS COMPUTE_MS [MARK PARTNERS_MARK]
 *
 * PHASES times: computes for a while, then writes REQUESTS blocks of BYTES bytes per rank to NAME.dat, with
 * collective calls in even phases and independent ones in odd ones, and adds a record to NAME.shared through the
 * shared pointer. What is written where follows from the offset, so that the harness can tell a lost
 * byte from a wrong one; a record written twice makes the shared file too long.
 *
 * Says where it is, for the harness to act at the right moment and to compare jobs by their clocks:
 *   RANK rank PID pid          at the start
 *   IN rank phase              after the first block of the phase: the job was let in
 *   PHASE rank phase FROM TO   in nanoseconds: its first block was written, its last was about to be
 *   ENDED rank
 *
 * With marks, two jobs meet in the middle of every phase: each makes a file that begins with its own mark and waits for
 * the other's. */
#define _GNU_SOURCE
#include "mpiio.h"
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int rank, size;

static long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1000000000LL * t.tv_sec + t.tv_nsec;
}

/* In one write, so that lines of ranks do not mix. */
static void say(const char *format, long long a, long long b, long long c)
{
    char line[128];
    int n = snprintf(line, sizeof line, format, rank, a, b, c);
    REQUIRE(write(1, line, (size_t)n) == n);
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0)
        ;
}

/* Never zero: what nobody wrote is. */
static void fill(unsigned char *block, int bytes, MPI_Offset offset)
{
    int i;
    for (i = 0; i < bytes; i++)
        block[i] = (unsigned char)(1 + (offset + i) % 251);
}

static void meet(const char *mark, const char *partners_mark, int phase)
{
    char path[512];
    struct stat about;
    if (rank == 0) {
        snprintf(path, sizeof path, "%s.%d", mark, phase);
        fclose(fopen(path, "w"));
        snprintf(path, sizeof path, "%s.%d", partners_mark, phase);
        while (stat(path, &about) != 0)
            pause_ms(5);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *name = argv[1], *mark = argc > 8 ? argv[7] : NULL, *partners_mark = argv[argc - 1];
    int phases = atoi(argv[2]), requests = atoi(argv[3]), bytes = atoi(argv[4]), phase, request;
    long pause = atol(argv[5]), compute = atol(argv[6]);
    char path[256], record[64];
    unsigned char *block = malloc((size_t)bytes);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    say("RANK %d PID %lld\n", getpid(), 0, 0);
    for (phase = 0; phase < phases; phase++) {
        Tallied file, shared;
        MPI_Status status;
        long long from = 0, to = 0;
        int written;
        pause_ms(compute);
        MPI_Barrier(MPI_COMM_WORLD);
        snprintf(path, sizeof path, "%s.dat", name);
        file = open_tallied(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
        for (request = 0; request < requests; request++) {
            MPI_Offset offset = (((MPI_Offset)phase * requests + request) * size + rank) * bytes;
            fill(block, bytes, offset);
            to = now_ns();
            if (phase % 2 == 0)
                REQUIRE(MPI_File_write_at_all(file.handle, offset, block, bytes, MPI_BYTE, &status) == 0);
            else
                REQUIRE(MPI_File_write_at(file.handle, offset, block, bytes, MPI_BYTE, &status) == 0);
            REQUIRE(MPI_Get_count(&status, MPI_BYTE, &written) == 0 && written == bytes);
            moved(&file, phase % 2 == 0 ? "COLL" : "INDEP", 'W', bytes);
            if (request == 0) {
                from = now_ns();
                say("IN %d %lld\n", phase, 0, 0);
            }
            if (mark != NULL && request == requests / 2)
                meet(mark, partners_mark, phase);
            pause_ms(pause);
        }
        snprintf(path, sizeof path, "%s.shared", name);
        shared = open_tallied(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_APPEND,
                              MPI_INFO_NULL);
        snprintf(record, sizeof record, "%07d %07d\n", phase, rank);
        REQUIRE(MPI_File_write_shared(shared.handle, record, 16, MPI_BYTE, &status) == 0);
        moved(&shared, "INDEP", 'W', 16);
        close_tallied(&shared);
        close_tallied(&file);
        say("PHASE %d %lld %lld %lld\n", phase, from, to);
    }
    say("ENDED %d\n", 0, 0, 0);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
