/* surroundings moved|user: changes what is around it between its first I/O and its last.
 * moved   its folder, and what its descriptors 1 and 2 are
 * user    itself, when it is root: it becomes somebody who may not write where it did */
#define _GNU_SOURCE
#include "tally.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static int rank;

static void put(const char *stem, int times)
{
    char name[64], key[TALLY_NAME];
    int fd, i;
    snprintf(name, sizeof name, "%s.%d.dat", stem, rank);
    fd = open(name, O_CREAT | O_WRONLY | O_APPEND, 0644);
    REQUIRE(fd >= 0);
    for (i = 0; i < times; i++)
        REQUIRE(write(fd, "0123456789", 10) == 10);
    close(fd);
    snprintf(key, sizeof key, "%s|POSIX_WRITES", name);
    tally(key, times);
}

int main(int argc, char **argv)
{
    char folder[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    put("first", 3);
    if (strcmp(argv[1], "moved") == 0) {
        snprintf(folder, sizeof folder, "folder.%d", rank);
        REQUIRE(mkdir(folder, 0777) == 0 && chdir(folder) == 0);
        put("moved", 3);
        tally_print(MPI_COMM_WORLD);
        close(1);
        close(2);
        open("in_place_of_stdout.dat", O_CREAT | O_WRONLY, 0644);
        REQUIRE(open("in_place_of_stderr.dat", O_CREAT | O_WRONLY, 0644) == 2);
    } else if (geteuid() != 0) {
        if (rank == 0)
            printf("SKIP only root may become somebody else\n");
    } else {
        tally_print(MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        REQUIRE(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    }
    MPI_Finalize();
    return 0;
}
