/* limit [RANK]: a limit on file sizes, of all ranks or that one, that Weir's record would exceed: it must not be
   Weir that meets it. */
#include "tally.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rlimit limit = {64 << 10, 64 << 10};
    char name[64];
    int rank, fd;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 2 || atoi(argv[1]) == rank) REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    snprintf(name, sizeof name, "limit.%d.dat", rank);
    fd = open(name, O_CREAT | O_WRONLY, 0644);
    REQUIRE(write(fd, "x", 1) == 1);
    close(fd);
    MPI_Finalize();
    return 0;
}
