/* Calls every MPI_File_* data function of MPI 3.1, in its MPI 4 large-count form too where there is
 * one, every function that changes a file's view or size, and completes nonblocking operations in
 * every way there is. Reads back and checks whatever it wrote. */
#include "mpiio.h"

/* Not a multiple of anything, so that sizes cannot be right by chance. */
enum { BLOCK = 1517 };

static int rank, size;

static MPI_Offset row(void) { return (MPI_Offset)BLOCK * size; }

static char *block(void) { return malloc(BLOCK); }

static char pattern(int salt, int i) { return (char)(31 * salt + 7 * rank + i); }

static void fill(char *buffer, int salt)
{
    int i;
    for (i = 0; i < BLOCK; i++)
        buffer[i] = pattern(salt, i);
}

static int filled(const char *buffer, int salt)
{
    int i;
    for (i = 0; i < BLOCK; i++)
        if (buffer[i] != pattern(salt, i))
            return 0;
    return 1;
}

static int received(MPI_Status *status)
{
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    return count;
}

#define FORM(f) f
#define COUNT int
#define SUFFIX ""
#include "forms.h"

#if MPI_VERSION >= 4
#define FORM(f) f##_c
#define COUNT MPI_Count
#define SUFFIX "_c"
#include "forms.h"
#endif

/* Open modes, views, sizes, hints, errors. */
static void meta(void)
{
    MPI_Info info;
    MPI_Offset bytes;
    MPI_Datatype filetype, memtype;
    MPI_File absent;
    Tallied file, own;
    char name[64];
    int numbers[12], i;

    REQUIRE(MPI_File_open(MPI_COMM_WORLD, "absent.dat", MPI_MODE_RDONLY, MPI_INFO_NULL, &absent) != 0);
    tally("MPIIO_ERRORS", 1);

    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_nodes", "1");
    file = open_tallied(MPI_COMM_WORLD, "meta.dat", MPI_MODE_CREATE | MPI_MODE_RDWR, info);
    REQUIRE(MPI_File_set_info(file.handle, info) == 0);
    tally("MPIIO_HINTS", 1);
    MPI_Info_free(&info);

    REQUIRE(MPI_File_preallocate(file.handle, 4096) == 0);
    REQUIRE(MPI_File_set_size(file.handle, 2048) == 0);
    tally("MPIIO_RESIZES", 2);
    REQUIRE(MPI_File_get_size(file.handle, &bytes) == 0 && bytes == 2048);

    /* Three numbers of every 3 * size, from a buffer that holds every other number. */
    MPI_Type_vector(4, 3, 3 * size, MPI_INT, &filetype);
    MPI_Type_commit(&filetype);
    MPI_Type_vector(6, 1, 2, MPI_INT, &memtype);
    MPI_Type_commit(&memtype);
    REQUIRE(MPI_File_set_view(file.handle, (MPI_Offset)(rank * 3 * sizeof(int)), MPI_INT, filetype,
                              "native", MPI_INFO_NULL) == 0);
    tally("MPIIO_VIEWS", 1);
    for (i = 0; i < 12; i++)
        numbers[i] = 100 * rank + i;
    REQUIRE(MPI_File_write_all(file.handle, numbers, 1, memtype, MPI_STATUS_IGNORE) == 0);
    moved(&file, "COLL", 'W', 6 * (long long)sizeof(int));
    REQUIRE(MPI_File_write(file.handle, numbers, 6, MPI_INT, MPI_STATUS_IGNORE) == 0);
    moved(&file, "INDEP", 'W', 6 * (long long)sizeof(int));
    REQUIRE(MPI_File_sync(file.handle) == 0);
    tally("MPIIO_SYNCS", 1);
    memset(numbers, 0, sizeof numbers);
    REQUIRE(MPI_File_read_at_all(file.handle, 0, numbers, 12, MPI_INT, MPI_STATUS_IGNORE) == 0);
    moved(&file, "COLL", 'R', 12 * (long long)sizeof(int));
    for (i = 0; i < 6; i++)
        REQUIRE(numbers[i] == 100 * rank + 2 * i && numbers[6 + i] == 100 * rank + i);
    REQUIRE(MPI_File_set_atomicity(file.handle, 1) == 0);
    REQUIRE(MPI_File_write_at_all(file.handle, 0, numbers, 0, MPI_INT, MPI_STATUS_IGNORE) == 0);
    moved(&file, "COLL", 'W', 0);
    close_tallied(&file);
    MPI_Type_free(&filetype);
    MPI_Type_free(&memtype);

    /* A file of this process alone, gone when it is closed. */
    snprintf(name, sizeof name, "own.%d.dat", rank);
    own = open_tallied(MPI_COMM_SELF, name,
                       MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL);
    REQUIRE(MPI_File_write(own.handle, name, (int)strlen(name), MPI_CHAR, MPI_STATUS_IGNORE) == 0);
    moved(&own, "INDEP", 'W', (long long)strlen(name));
    close_tallied(&own);

    snprintf(name, sizeof name, "deleted.%d.dat", rank);
    own = open_tallied(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
    close_tallied(&own);
    REQUIRE(MPI_File_delete(name, MPI_INFO_NULL) == 0);
}

enum { OPERATIONS = 3 };

/* Two I/O operations and a message to oneself, under way together. */
static void start(Tallied *file, char *data, int *box, MPI_Request *requests)
{
    MPI_Offset mine = (MPI_Offset)BLOCK * rank;
    REQUIRE(MPI_File_iwrite_at(file->handle, mine, data, BLOCK, MPI_BYTE, &requests[0]) == 0);
    moved(file, "NB", 'W', BLOCK);
    MPI_Irecv(box, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, &requests[1]);
    REQUIRE(MPI_File_iwrite_at(file->handle, row() + mine, data, BLOCK, MPI_BYTE, &requests[2]) == 0);
    moved(file, "NB", 'W', BLOCK);
    MPI_Send(&rank, 1, MPI_INT, rank, 7, MPI_COMM_WORLD);
}

static int all_null(const MPI_Request *requests)
{
    return requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL &&
           requests[2] == MPI_REQUEST_NULL;
}

static void by_wait(MPI_Request *requests)
{
    /* The handle is a value: a copy completes the operation as well. */
    MPI_Request copy = requests[0];
    REQUIRE(MPI_Wait(&copy, MPI_STATUS_IGNORE) == 0 && copy == MPI_REQUEST_NULL);
    requests[0] = copy;
    REQUIRE(MPI_Wait(&requests[1], MPI_STATUS_IGNORE) == 0);
    REQUIRE(MPI_Wait(&requests[2], MPI_STATUS_IGNORE) == 0);
    REQUIRE(MPI_Wait(&requests[2], MPI_STATUS_IGNORE) == 0); /* of nothing: returns at once */
}

static void by_waitall(MPI_Request *requests)
{
    MPI_Status statuses[OPERATIONS];
    REQUIRE(MPI_Waitall(OPERATIONS, requests, statuses) == 0);
    REQUIRE(received(&statuses[0]) == BLOCK && received(&statuses[2]) == BLOCK);
    REQUIRE(MPI_Waitall(OPERATIONS, requests, MPI_STATUSES_IGNORE) == 0);
}

static void by_waitany(MPI_Request *requests)
{
    int i, index;
    for (i = 0; i < OPERATIONS; i++)
        REQUIRE(MPI_Waitany(OPERATIONS, requests, &index, MPI_STATUS_IGNORE) == 0 && index >= 0);
    REQUIRE(MPI_Waitany(OPERATIONS, requests, &index, MPI_STATUS_IGNORE) == 0 && index == MPI_UNDEFINED);
}

static void by_waitsome(MPI_Request *requests)
{
    int done = 0, count, indices[OPERATIONS];
    MPI_Status statuses[OPERATIONS];
    while (done < OPERATIONS) {
        REQUIRE(MPI_Waitsome(OPERATIONS, requests, &count, indices, statuses) == 0);
        done += count;
    }
    REQUIRE(MPI_Waitsome(OPERATIONS, requests, &count, indices, MPI_STATUSES_IGNORE) == 0);
    REQUIRE(count == MPI_UNDEFINED);
}

static void by_test(MPI_Request *requests)
{
    int i, flag;
    for (i = 0; i < OPERATIONS; i++)
        for (flag = 0; !flag;)
            REQUIRE(MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE) == 0);
}

static void by_testall(MPI_Request *requests)
{
    int flag = 0;
#ifndef OPEN_MPI
    /* MPICH (seen with 4.0.2 and 5.0.2) may fail MPI_Testall on pending I/O requests, by itself. */
    REQUIRE(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == 0);
    REQUIRE(MPI_Wait(&requests[2], MPI_STATUS_IGNORE) == 0);
#endif
    while (!flag)
        REQUIRE(MPI_Testall(OPERATIONS, requests, &flag, MPI_STATUSES_IGNORE) == 0);
}

static void by_testany(MPI_Request *requests)
{
    int done = 0, flag, index;
    while (done < OPERATIONS) {
        REQUIRE(MPI_Testany(OPERATIONS, requests, &index, &flag, MPI_STATUS_IGNORE) == 0);
        done += flag && index != MPI_UNDEFINED;
    }
}

static void by_testsome(MPI_Request *requests)
{
    int done = 0, count, indices[OPERATIONS];
    while (done < OPERATIONS) {
        REQUIRE(MPI_Testsome(OPERATIONS, requests, &count, indices, MPI_STATUSES_IGNORE) == 0);
        done += count;
    }
}

static void completion(void)
{
    static void (*const ways[])(MPI_Request *) = {by_wait, by_waitall, by_waitany, by_waitsome,
                                                  by_test, by_testall, by_testany, by_testsome};
    MPI_Request requests[OPERATIONS], message;
    char *data = block();
    int box;
    size_t i;
    Tallied file =
        open_tallied(MPI_COMM_WORLD, "completion.dat", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
    fill(data, 6);
    for (i = 0; i < sizeof ways / sizeof *ways; i++) {
        box = -1;
        start(&file, data, &box, requests);
        ways[i](requests);
        REQUIRE(all_null(requests) && box == rank);
    }
    /* A message whose request nobody completes. (For I/O some MPIs then never move the bytes.) */
    MPI_Isend(&rank, 1, MPI_INT, rank, 8, MPI_COMM_WORLD, &message);
    REQUIRE(MPI_Request_free(&message) == 0);
    MPI_Recv(&box, 1, MPI_INT, rank, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    close_tallied(&file);
    free(data);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    every_form();
#if MPI_VERSION >= 4
    every_form_c();
#endif
    meta();
    completion();
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
