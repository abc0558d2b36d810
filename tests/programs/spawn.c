/* MPI_Comm_spawn: parents and children are two worlds, and both do I/O. */
#include "mpiio.h"

int main(int argc, char **argv)
{
    MPI_Comm parent, children;
    Tallied file;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parent);
    file = open_tallied(MPI_COMM_WORLD, parent == MPI_COMM_NULL ? "parent.dat" : "child.dat",
                        MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
    REQUIRE(MPI_File_write_at_all(file.handle, 8 * rank, "weirweir", 8, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(&file, "COLL", 'W', 8);
    close_tallied(&file);
    if (parent == MPI_COMM_NULL) {
        REQUIRE(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                               MPI_ERRCODES_IGNORE) == 0);
        MPI_Barrier(children); /* they have printed */
        MPI_Comm_disconnect(&children);
        tally_print(MPI_COMM_WORLD);
    } else {
        tally_print(MPI_COMM_WORLD);
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
    }
    MPI_Finalize();
    return 0;
}
