/* steady SECONDS BYTES [spin]: blocks of a shared file for so long, each with its number in it, and now and then a new file; with `spin`
 * a second thread writes too. The longest call is printed, in milliseconds. */
#define _GNU_SOURCE
#include "tally.h"
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_US = 4000, EACH = 20, PLACES = 64 };

static int rank;
static volatile int over;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put(const char *stem, int number)
{
    char name[64], key[TALLY_NAME];
    int fd;
    snprintf(name, sizeof name, "%s.%d.%d.dat", stem, rank, number);
    fd = open(name, O_CREAT | O_WRONLY, 0644);
    REQUIRE(fd >= 0 && write(fd, "0123456789", 10) == 10 && close(fd) == 0);
    snprintf(key, sizeof key, "%s|POSIX_WRITES", name);
    if (strcmp(stem, "other") != 0)
        tally(key, 1);
}

static void *beside(void *argument)
{
    int number = 0;
    (void)argument;
    while (!over) {
        put("other", number++);
        usleep(100 * 1000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const double seconds = atof(argv[1]);
    const int bytes = atoi(argv[2]);
    char *block;
    double start, longest = 0, all = 0;
    long long number = 0;
    int provided, spins = argc > 3, files = 0;
    pthread_t thread;
    MPI_File file;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    block = calloc(1, (size_t)bytes);
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, "steady.dat", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    start = now();
    while (now() - start < seconds) {
        MPI_Offset at = ((MPI_Offset)rank * PLACES + number % PLACES) * bytes;
        double before = now(), took;
        number++;
        memcpy(block, &number, sizeof number);
        REQUIRE(MPI_File_write_at(file, at, block, bytes, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        if (number % EACH == 0)
            put("new", files++);
        took = now() - before;
        longest = took > longest ? took : longest;
        if (spins && number == 5 * EACH)
            REQUIRE(pthread_create(&thread, NULL, beside, NULL) == 0);
        usleep(PAUSE_US);
    }
    over = 1;
    if (spins && number >= 5 * EACH)
        pthread_join(thread, NULL);
    MPI_File_close(&file);
    tally("MPIIO_INDEP_WRITES", number);
    tally("MPIIO_BYTES_WRITTEN", number * bytes);
    tally_print(MPI_COMM_WORLD);
    MPI_Reduce(&longest, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("LONGEST %.0f\n", 1000 * all);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
