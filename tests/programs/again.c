/* again: writes a file, replaces itself by exec without MPI_Finalize, and writes another as the program it has become. */
#include "tally.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? "second.dat" : "first.dat";
    MPI_File file;
    MPI_Init(&argc, &argv);
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    REQUIRE(MPI_File_write_at(file, 0, name, 5, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    REQUIRE(MPI_File_close(&file) == 0);
    if (argc == 1) {
        execl(argv[0], argv[0], "again", (char *)NULL);
        return 1;
    }
    /* Of both. */
    tally("MPIIO_INDEP_OPENS", 2); /* of a world of one */
    tally("MPIIO_INDEP_WRITES", 2);
    tally("MPIIO_BYTES_WRITTEN", 10);
    tally("first.dat|MPIIO_INDEP_WRITES", 1);
    tally("second.dat|MPIIO_INDEP_WRITES", 1);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
