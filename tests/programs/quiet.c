/* MPI without any I/O; with an argument, in a world that spawns another. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int one = 1, sum = 0;
    MPI_Comm parent, children;
    MPI_Init(&argc, &argv);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        MPI_Comm_disconnect(&parent);
    } else if (argc > 1) {
        if (MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE))
            return 1;
        MPI_Comm_disconnect(&children);
    }
    MPI_Finalize();
    return sum > 0 ? 0 : 1;
}
