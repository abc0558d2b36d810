/* MPI_THREAD_MULTIPLE: several threads of every process do MPI and POSIX I/O at once, on handles of
 * their own and on one they share. No count may be lost. */
#define _GNU_SOURCE
#include "tally.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, CALLS = 200, BYTES = 512 };

static int rank;
static MPI_File shared;

/* Open MPI (4.1.4 and 5.0.11) crashes or hangs by itself when several threads wait for nonblocking I/O. */
#ifdef OPEN_MPI
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
#define ONE_AT_A_TIME(what) what(&turn)
#else
#define ONE_AT_A_TIME(what) (void)0
#endif

static void *work(void *argument)
{
    int thread = *(int *)argument, i, fd;
    char name[64], data[BYTES];
    MPI_File own;
    memset(data, 'a' + thread, sizeof data);
    snprintf(name, sizeof name, "own.%d.%d.dat", rank, thread);
    REQUIRE(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &own) == 0);
    snprintf(name, sizeof name, "posix.%d.%d.dat", rank, thread);
    fd = open(name, O_CREAT | O_RDWR, 0644);
    for (i = 0; i < CALLS; i++) {
        MPI_Offset place = (MPI_Offset)BYTES * i;
        MPI_Request request;
        REQUIRE(MPI_File_write_at(own, place, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        REQUIRE(MPI_File_read_at(own, place, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        place += (MPI_Offset)BYTES * CALLS * (THREADS * rank + thread);
        ONE_AT_A_TIME(pthread_mutex_lock);
        REQUIRE(MPI_File_iwrite_at(shared, place, data, BYTES, MPI_BYTE, &request) == 0);
        REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
        ONE_AT_A_TIME(pthread_mutex_unlock);
        REQUIRE(pwrite(fd, data, BYTES, BYTES * (off_t)i) == BYTES);
    }
    close(fd);
    MPI_File_close(&own);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], provided, i;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE) {
        printf("SKIP this MPI was built without MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File_open(MPI_COMM_WORLD, "shared.dat", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &shared);
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    MPI_File_close(&shared);

    tally("MPIIO_COLL_OPENS", 1);
    tally("MPIIO_INDEP_OPENS", THREADS);
    tally("MPIIO_INDEP_WRITES", THREADS * CALLS);
    tally("MPIIO_INDEP_READS", THREADS * CALLS);
    tally("MPIIO_NB_WRITES", THREADS * CALLS);
    tally("MPIIO_BYTES_WRITTEN", 2LL * THREADS * CALLS * BYTES);
    tally("MPIIO_BYTES_READ", 1LL * THREADS * CALLS * BYTES);
    for (i = 0; i < THREADS; i++) {
        char key[TALLY_NAME];
        snprintf(key, sizeof key, "posix.%d.%d.dat|POSIX_WRITES", rank, i);
        tally(key, CALLS);
        snprintf(key, sizeof key, "posix.%d.%d.dat|POSIX_BYTES_WRITTEN", rank, i);
        tally(key, CALLS * BYTES);
    }
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
