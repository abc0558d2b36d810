/* says: a program that says what its phases are like, and asks how it stands.
 *
 * says FILE: a phase that is announced, then one that is merely expected; both last for a while, so that a coordinator can be
 * asked what it knows of them. says FILE held: one collective write of which nothing is said, while a thread asks. */
#define WEIR_INLINE
#include <weir.h>

#include "tally.h"
#include <pthread.h>
#include <time.h>

enum { BLOCK = 65536, CALLS = 20, ANNOUNCED = 100000000, EXPECTED = 50000000, HELD = 1 << 20 };

static char block[HELD];
static volatile int is_done;

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0)
        ;
}

static void write_calls(MPI_File file, int rank, int size, int calls, int bytes, long ms)
{
    int i;
    for (i = 0; i < calls; i++) {
        MPI_Offset at = ((MPI_Offset)i * size + rank) * bytes;
        REQUIRE(MPI_File_write_at_all(file, at, block, bytes, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        pause_ms(ms);
    }
}

/* Keeps the lowest share and the longest wait that it was told. */
static void *ask(void *lowest)
{
    double *seen = lowest;
    while (!is_done) {
        double share = weir_share(), wait_s = weir_expected_wait();
        if (share >= 0 && share < seen[0])
            seen[0] = share;
        if (wait_s > seen[1])
            seen[1] = wait_s;
        pause_ms(1);
    }
    return NULL;
}

static void say(const char *word)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        puts(word);
        fflush(stdout);
    }
}

static void be_held(MPI_File file, int rank, int size)
{
    double seen[2] = {2, 0};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, ask, seen) == 0);
    say("ASKS");
    write_calls(file, rank, size, 1, HELD, 0);
    is_done = 1;
    REQUIRE(pthread_join(thread, NULL) == 0);
    if (rank == 0)
        printf("LOWEST %.3f %.3f\n", seen[0], seen[1]);
}

static void be_alone(MPI_File file, int rank, int size)
{
    int aggregators = 7, stripes = 7;
    const int with_weir = weir_active();
    REQUIRE(weir_share() < (with_weir ? 2 : 0) && weir_expected_wait() == 0);
    REQUIRE(weir_shuffle_cost(file) < 0 && weir_acceptable_delay(file) < 0);
    REQUIRE(weir_expect(-1, 0) == -1 && weir_expect(7.5, EXPECTED) == (with_weir ? 0 : -1));

    REQUIRE(weir_phase_begin_sized("announced", ANNOUNCED) == (with_weir ? 0 : -1));
    write_calls(file, rank, size, 2, BLOCK, 50);
    say("ANNOUNCED");
    write_calls(file, rank, size, CALLS, BLOCK, 50);
    weir_phase_end();
    pause_ms(200);

    write_calls(file, rank, size, 2, BLOCK, 20);
    say("EXPECTED");
    write_calls(file, rank, size, 3 * CALLS, BLOCK, 20);

    /* Every rank of a job alone has all of its storage. */
    REQUIRE(!with_weir || weir_share() == 1);
    REQUIRE(weir_expected_wait() == 0);
    REQUIRE(!with_weir || (weir_shuffle_cost(file) >= 0 && weir_acceptable_delay(file) >= 0));
    REQUIRE(weir_shuffle_cost(file) < 10 && weir_acceptable_delay(file) <= weir_shuffle_cost(file));
    REQUIRE(weir_shuffle_cost(MPI_FILE_NULL) < 0 && weir_shuffle_cost(&size) < 0);
    if (weir_allocation(file, &aggregators, &stripes) != 0)
        REQUIRE(aggregators == 0 && stripes == 0);
    if (rank == 0 && with_weir)
        printf("GIVEN %d %d\n", aggregators, stripes);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_File file;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(block, 'a' + rank, sizeof block);
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    if (argc > 2)
        be_held(file, rank, size);
    else
        be_alone(file, rank, size);
    REQUIRE(MPI_File_close(&file) == 0);
    MPI_Finalize();
    return 0;
}
