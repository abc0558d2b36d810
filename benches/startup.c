/* startup FILE: every rank writes one block of a shared file, collectively; without FILE no I/O at all. */
#include <mpi.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc > 1) {
        int rank, failed;
        char block[4096] = {0};
        MPI_File file;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        failed = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        if (failed) return 1;
        MPI_File_write_at_all(file, rank * (MPI_Offset)sizeof block, block, sizeof block, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_File_close(&file);
    }
    MPI_Finalize();
    return 0;
}
