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
 *   PHASE rank phase FROM TO   in nanoseconds: its second block was written (the first may have been let in before
 *                              others had the turn), its last was about to be
 *   ENDED rank
 *
 * With marks, two jobs meet in the middle of every phase: each makes a file that begins with its own mark and waits for
 * the other's, or for one that is just PARTNERS_MARK. Or MARK is `socket`, and PARTNERS_MARK the path of one at which both send and wait for a byte; or it is
 * `world`: then the two jobs are the halves of one world, between which there is a communicator. */
#define _GNU_SOURCE
#include "mpiio.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int rank, size;
static MPI_Comm job, partners = MPI_COMM_NULL;
static int line = -1;

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

/* Whoever comes first listens there. */
static int connect_partner(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), connection;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) == 0) {
        REQUIRE(listen(listener, 1) == 0);
        connection = accept(listener, NULL, NULL);
        close(listener);
        return connection;
    }
    REQUIRE(errno == EADDRINUSE);
    while (connect(listener, (struct sockaddr *)&address, sizeof address) != 0)
        pause_ms(5);
    return listener;
}

/* The world's halves become jobs: those with the same name. */
static void part_ways(const char *name)
{
    int world_rank, others;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_split(MPI_COMM_WORLD, (int)strlen(name), world_rank, &job);
    MPI_Comm_rank(job, &rank);
    MPI_Comm_size(job, &size);
    others = world_rank == rank ? size : 0;
    MPI_Intercomm_create(job, 0, MPI_COMM_WORLD, others, 1, &partners);
}

static void meet_by_files(const char *mark, const char *partners_mark, int phase)
{
    char path[512];
    struct stat about;
    snprintf(path, sizeof path, "%s.%d", mark, phase);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s.%d", partners_mark, phase);
    while (stat(path, &about) != 0 && stat(partners_mark, &about) != 0)
        pause_ms(5);
}

/* Nobody leaves before both are here. */
static void meet(const char *mark, const char *partners_mark, int phase)
{
    char byte = 0;
    if (partners != MPI_COMM_NULL)
        MPI_Barrier(partners);
    else if (rank == 0 && line >= 0)
        REQUIRE(write(line, &byte, 1) == 1 && read(line, &byte, 1) == 1);
    else if (rank == 0)
        meet_by_files(mark, partners_mark, phase);
    MPI_Barrier(job);
}

int main(int argc, char **argv)
{
    const char *name = argv[1], *mark = argc > 8 ? argv[7] : NULL, *partners_mark = argv[argc - 1];
    int phases = atoi(argv[2]), requests = atoi(argv[3]), bytes = atoi(argv[4]), phase, request;
    long pause = atol(argv[5]), compute = atol(argv[6]);
    char path[256], record[64];
    unsigned char *block = malloc((size_t)bytes);

    MPI_Init(&argc, &argv);
    job = MPI_COMM_WORLD;
    MPI_Comm_rank(job, &rank);
    MPI_Comm_size(job, &size);
    if (mark != NULL && strcmp(mark, "world") == 0)
        part_ways(name);
    if (mark != NULL && strcmp(mark, "socket") == 0 && rank == 0)
        line = connect_partner(partners_mark);
    say("RANK %d PID %lld\n", getpid(), 0, 0);
    for (phase = 0; phase < phases; phase++) {
        Tallied file, shared;
        MPI_Status status;
        long long from = 0, to = 0;
        int written;
        pause_ms(compute);
        MPI_Barrier(job);
        snprintf(path, sizeof path, "%s.dat", name);
        file = open_tallied(job, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
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
            if (request <= 1)
                from = now_ns();
            if (request == 0)
                say("IN %d %lld\n", phase, 0, 0);
            if (mark != NULL && request == requests / 2)
                meet(mark, partners_mark, phase);
            pause_ms(pause);
        }
        snprintf(path, sizeof path, "%s.shared", name);
        shared = open_tallied(job, path, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_APPEND,
                              MPI_INFO_NULL);
        snprintf(record, sizeof record, "%07d %07d\n", phase, rank);
        REQUIRE(MPI_File_write_shared(shared.handle, record, 16, MPI_BYTE, &status) == 0);
        moved(&shared, "INDEP", 'W', 16);
        close_tallied(&shared);
        close_tallied(&file);
        say("PHASE %d %lld %lld %lld\n", phase, from, to);
    }
    say("ENDED %d\n", 0, 0, 0);
    tally_print(job);
    MPI_Finalize();
    return 0;
}
