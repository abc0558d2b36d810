/* Hands data over in every form that does not wait, and enters MPI for other reasons before it asks whether it is done: the
 * library may move the data in any of these calls. The program also has the file open itself, and writes and reads it
 * meanwhile, in pieces of the same size. */
#include "mpiio.h"
#include <fcntl.h>
#include <unistd.h>

/* A multiple of no page. Each form has its own row of blocks, each rank its own block. */
enum { BLOCK = 51239, ROUNDS = 6 };

static int rank, size, descriptor;
static char data[BLOCK];
static Tallied file;

/* Other things to do: messages, barriers, and asking for something that is not there yet. */
static void meanwhile(void)
{
    MPI_Request request;
    int i, there = 0, number = 0;
    MPI_Irecv(&number, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request);
    for (i = 0; i < ROUNDS; i++) {
        REQUIRE(MPI_Barrier(MPI_COMM_WORLD) == 0);
        REQUIRE(MPI_Test(&request, &there, MPI_STATUS_IGNORE) == 0 && !there);
        usleep(1000);
    }
    MPI_Send(&i, 1, MPI_INT, rank, 1, MPI_COMM_WORLD);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0 && number == ROUNDS);
}

/* The program's own I/O in between, on the same file and of the same size, beyond all that MPI writes. */
static void own(int row)
{
    static char block[BLOCK];
    off_t place = (off_t)BLOCK * (size * (100 + row) + rank);
    REQUIRE(pwrite(descriptor, data, BLOCK, place) == BLOCK);
    REQUIRE(pread(descriptor, block, BLOCK, place) == BLOCK && memcmp(block, data, BLOCK) == 0);
}

static MPI_Offset place(int row) { return (MPI_Offset)BLOCK * (size * row + rank); }

static void fill(int row)
{
    int i;
    for (i = 0; i < BLOCK; i++)
        data[i] = (char)(row * 31 + rank * 7 + i);
}

static void check(int row)
{
    int i;
    for (i = 0; i < BLOCK; i++)
        REQUIRE(data[i] == (char)(row * 31 + rank * 7 + i));
}

static void wait_for(MPI_Request *request)
{
    MPI_Status status;
    int count;
    REQUIRE(MPI_Wait(request, &status) == 0);
    MPI_Get_count(&status, MPI_BYTE, &count);
    REQUIRE(count == BLOCK);
}

/* A form is begun, something else is done, and it is completed. */
#define FORM(kind, direction, row, begin, end)                                                     \
    do {                                                                                           \
        MPI_Request request = MPI_REQUEST_NULL;                                                    \
        if (direction == 'W')                                                                      \
            fill(row);                                                                             \
        else                                                                                       \
            memset(data, 0, BLOCK);                                                                \
        MPI_File_seek(file.handle, place(row), MPI_SEEK_SET);                                      \
        REQUIRE(begin == 0);                                                                       \
        meanwhile();                                                                               \
        end;                                                                                       \
        if (direction == 'R')                                                                      \
            check(row);                                                                            \
        moved(&file, kind, direction, BLOCK);                                                      \
        own(row);                                                                                  \
        (void)request;                                                                             \
    } while (0)

#define NONBLOCKING(direction, row, begin) FORM("NB", direction, row, begin, wait_for(&request))
#define SPLIT(direction, row, begin, end)                                                          \
    FORM("SPLIT", direction, row, begin, REQUIRE(end(file.handle, data, MPI_STATUS_IGNORE) == 0))

#define DATA data, BLOCK, MPI_BYTE

int main(int argc, char **argv)
{
    int row = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    file = open_tallied(MPI_COMM_WORLD, "meanwhile.dat", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
    descriptor = open("meanwhile.dat", O_RDWR);
    REQUIRE(descriptor >= 0);

#ifndef SPLIT_ONLY
    NONBLOCKING('W', row, MPI_File_iwrite_at(file.handle, place(row), DATA, &request));
    NONBLOCKING('R', row, MPI_File_iread_at(file.handle, place(row), DATA, &request));
    row++;
    NONBLOCKING('W', row, MPI_File_iwrite(file.handle, DATA, &request));
    NONBLOCKING('R', row, MPI_File_iread(file.handle, DATA, &request));
    row++;
    NONBLOCKING('W', row, MPI_File_iwrite_at_all(file.handle, place(row), DATA, &request));
    NONBLOCKING('R', row, MPI_File_iread_at_all(file.handle, place(row), DATA, &request));
    row++;
    NONBLOCKING('W', row, MPI_File_iwrite_all(file.handle, DATA, &request));
    NONBLOCKING('R', row, MPI_File_iread_all(file.handle, DATA, &request));
    row++;
#endif
    SPLIT('W', row, MPI_File_write_at_all_begin(file.handle, place(row), DATA), MPI_File_write_at_all_end);
    SPLIT('R', row, MPI_File_read_at_all_begin(file.handle, place(row), DATA), MPI_File_read_at_all_end);
    row++;
    SPLIT('W', row, MPI_File_write_all_begin(file.handle, DATA), MPI_File_write_all_end);
    SPLIT('R', row, MPI_File_read_all_begin(file.handle, DATA), MPI_File_read_all_end);

    row++;
    close(descriptor);
    close_tallied(&file);
    /* In each row MPI wrote a block and read it, and the program did so twice. */
    tally("POSIX_MPI_BYTES_WRITTEN", row * BLOCK);
    tally("POSIX_MPI_BYTES_READ", row * BLOCK);
    tally("POSIX_BYTES_WRITTEN", (1 + 2) * row * BLOCK);
    tally("POSIX_BYTES_READ", (1 + 2) * row * BLOCK);
    /* Every byte of a split call was moved by a rank of which the profile knows that. */
    tally("MPIIO_COLL_FILE_BYTES", 2 * 2 * BLOCK);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
