/* More files than WEIR_MAX_FILES=1 lets have counters of their own: one of the program's takes the place, and all of MPI's
 * come after it. */
#include "tally.h"
#include <fcntl.h>
#include <unistd.h>

enum { BLOCK = 4099, FILES = 5 };

int main(int argc, char **argv)
{
    static char data[BLOCK];
    char name[32];
    int i, descriptor, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memset(data, 'm', sizeof data);
    snprintf(name, sizeof name, "first.%d", rank);
    descriptor = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    REQUIRE(descriptor >= 0 && write(descriptor, data, BLOCK) == BLOCK && close(descriptor) == 0);
    for (i = 0; i < FILES; i++) {
        MPI_Offset place = (MPI_Offset)rank * BLOCK;
        MPI_File file;
        snprintf(name, sizeof name, "many.%d", i);
        REQUIRE(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == 0);
        REQUIRE(MPI_File_write_at_all(file, place, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        REQUIRE(MPI_File_read_at(file, place, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        REQUIRE(MPI_File_close(&file) == 0);
    }
    tally("MPIIO_COLL_OPENS", FILES);
    tally("MPIIO_COLL_WRITES", FILES);
    tally("MPIIO_INDEP_READS", FILES);
    tally("MPIIO_BYTES_WRITTEN", FILES * BLOCK);
    tally("MPIIO_BYTES_READ", FILES * BLOCK);
    tally("MPIIO_COLL_FILE_BYTES", FILES * BLOCK);
    tally("POSIX_MPI_BYTES_WRITTEN", FILES * BLOCK);
    tally("POSIX_MPI_BYTES_READ", FILES * BLOCK);
    tally("POSIX_BYTES_WRITTEN", (FILES + 1) * BLOCK);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
