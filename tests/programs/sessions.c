/* MPI-4 sessions: no MPI_Init, no MPI_Finalize. MPICH (up to 5.0.2) cannot open a file then; the
 * program goes without, and its own POSIX file still shows that the process was measured. */
#include "mpiio.h"
#include <fcntl.h>
#include <unistd.h>

#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
static void write_own(int rank)
{
    char name[64], key[TALLY_NAME];
    int fd;
    snprintf(name, sizeof name, "session.%d.dat", rank);
    fd = open(name, O_CREAT | O_WRONLY, 0644);
    REQUIRE(write(fd, "own", 3) == 3);
    close(fd);
    snprintf(key, sizeof key, "%s|POSIX_WRITES", name);
    tally(key, 1);
}

int main(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    Tallied file = {MPI_FILE_NULL, 0};
    int rank;
    REQUIRE(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == 0);
    REQUIRE(MPI_Group_from_session_pset(session, "mpi://WORLD", &group) == 0);
    REQUIRE(MPI_Comm_create_from_group(group, "weir.test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == 0);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    if (MPI_File_open(comm, "session.dat", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL,
                      &file.handle) == MPI_SUCCESS) {
        tally("MPIIO_COLL_OPENS", 1);
        REQUIRE(MPI_File_write_at_all(file.handle, 8 * rank, "sessions", 8, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        moved(&file, "COLL", 'W', 8);
        close_tallied(&file);
    } else {
        tally("MPIIO_ERRORS", 1);
    }
    write_own(rank);
    tally_print(comm);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    return 0;
}
#else
int main(void)
{
    printf("SKIP this MPI has no sessions\n");
    return 0;
}
#endif
