/* A function that this MPI does not have, before MPI is up: a weak reference finds Weir's wrapper of it. */
#include <mpi.h>
#include <stdio.h>

#if MPI_VERSION >= 4
int main(void) { return puts("SKIP this MPI has sessions") < 0; }
#else
int MPI_Session_init(MPI_Info info, MPI_Errhandler handler, void *session) __attribute__((weak));

int main(void)
{
    void *session = NULL;
    if (MPI_Session_init != NULL && MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS)
        return 1;
    puts("no sessions");
    return 0;
}
#endif
