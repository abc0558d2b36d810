/* overlap SECONDS: hands a block over without waiting, computes, and only then asks whether it was written. */
#include "tally.h"
#include <unistd.h>

enum { BYTES = 1 << 20 };

int main(int argc, char **argv)
{
    static char data[BYTES];
    MPI_File file;
    MPI_Request request;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memset(data, 'x', sizeof data);
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, "overlap.dat", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    REQUIRE(MPI_File_iwrite_at(file, (MPI_Offset)rank * BYTES, data, BYTES, MPI_BYTE, &request) == 0);
    printf("COMPUTING\n");
    fflush(stdout);
    sleep((unsigned)atoi(argv[1]));
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    MPI_File_close(&file);
    tally("MPIIO_NB_WRITES", 1);
    tally("MPIIO_BYTES_WRITTEN", BYTES);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
