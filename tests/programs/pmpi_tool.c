/* Another tool of the usual kind: a library that wraps MPI functions and calls their PMPI_ names.
 * At the end rank 0 prints what it counted. */
#include <mpi.h>
#include <stdio.h>

static long opens, writes, waits;

int MPI_File_open(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file)
{
    opens++;
    return PMPI_File_open(comm, name, mode, info, file);
}

int MPI_File_write_at_all(MPI_File file, MPI_Offset offset, const void *buffer, int count,
                          MPI_Datatype type, MPI_Status *status)
{
    writes++;
    return PMPI_File_write_at_all(file, offset, buffer, count, type, status);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    waits++;
    return PMPI_Wait(request, status);
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        printf("TOOL opens=%ld write_at_all=%ld waits=%ld\n", opens, writes, waits);
        fflush(stdout);
    }
    return PMPI_Finalize();
}
