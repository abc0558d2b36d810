/* Waits for a write together with a message that is longer than its receiver has room for: the call returns an error, the
 * write is done all the same. Each way to wait is a phase of its own, so that the profile tells when the write ended. */
#define WEIR_INLINE
#include "mpiio.h"
#include <weir.h>

enum { BLOCK = 6007, REQUESTS = 3 };

static int rank, size;
static char data[BLOCK];

/* All at once, with or without being told which of them failed. */
static int all(MPI_Request *requests, MPI_Status *statuses)
{
    return MPI_Waitall(REQUESTS, requests, statuses) != MPI_SUCCESS;
}

/* As they come. */
static int some(MPI_Request *requests, MPI_Status *statuses)
{
    int failed = 0, over = 0, count, indices[REQUESTS];
    while (over < REQUESTS) {
        failed |= MPI_Waitsome(REQUESTS, requests, &count, indices, statuses) != MPI_SUCCESS;
        REQUIRE(count > 0);
        over += count;
    }
    return failed;
}

static void phase(const char *name, int row, int (*wait)(MPI_Request *, MPI_Status *), MPI_Status *statuses)
{
    static char small[4], large[50];
    MPI_Request requests[REQUESTS];
    int i, partner = rank ^ 1;
    Tallied file;
    MPI_Barrier(MPI_COMM_WORLD);
    weir_phase_begin(name);
    file = open_tallied(MPI_COMM_WORLD, "partly.dat", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
    REQUIRE(MPI_File_iwrite_at(file.handle, (MPI_Offset)BLOCK * (size * row + rank), data, BLOCK, MPI_BYTE,
                               &requests[0]) == 0);
    REQUIRE(MPI_Isend(large, sizeof large, MPI_CHAR, partner, row, MPI_COMM_WORLD, &requests[1]) == 0);
    REQUIRE(MPI_Irecv(small, sizeof small, MPI_CHAR, partner, row, MPI_COMM_WORLD, &requests[2]) == 0);
    REQUIRE(wait(requests, statuses));
    /* An MPI may leave those alone that come after the one that failed. */
    for (i = 0; i < REQUESTS; i++)
        REQUIRE(requests[i] == MPI_REQUEST_NULL || MPI_Wait(&requests[i], MPI_STATUS_IGNORE) == 0);
    moved(&file, "NB", 'W', BLOCK);
    close_tallied(&file);
    weir_phase_end();
}

int main(int argc, char **argv)
{
    MPI_Status statuses[REQUESTS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    REQUIRE(size == 2);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    memset(data, 'p', sizeof data);
    phase("Waitall", 0, all, statuses);
    phase("Waitall, ignored", 1, all, MPI_STATUSES_IGNORE);
    phase("Waitsome", 2, some, statuses);
    tally("MPIIO_ERRORS", 0);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
