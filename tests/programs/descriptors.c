/* While the gate is in use: closes every descriptor that was not there before its first I/O, leaves a child behind
 * that outlives it, and has children that close all they have and run other programs. */
#define _GNU_SOURCE
#include "append.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1024 };

static void put_mpi(const char *name, int bytes)
{
    MPI_File file;
    char *data = malloc((size_t)bytes);
    memset(data, 'x', (size_t)bytes);
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    REQUIRE(MPI_File_write_at_all(file, (MPI_Offset)rank * bytes, data, bytes, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    MPI_File_close(&file);
    free(data);
}

int main(int argc, char **argv)
{
    char known[MOST], key[TALLY_NAME];
    int fd, status;
    pid_t child;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (fd = 0; fd < MOST; fd++)
        known[fd] = fcntl(fd, F_GETFD) != -1;
    put("before", 3);
    put_mpi("before.dat", 10000);
    for (fd = 0; fd < MOST; fd++)
        if (!known[fd])
            close(fd);
    put("after", 4);
    put_mpi("after.dat", 20000);

    child = fork();
    if (child == 0) { /* stays for a while, as a daemon does, with all that it inherited but the output */
        setsid();
        fd = open("/dev/null", O_RDWR);
        dup2(fd, 1);
        dup2(fd, 2);
        sleep(3);
        _exit(0);
    }
    child = fork();
    if (child == 0) {
        closefrom(3);
        put("child", 5);
        execlp("sh", "sh", "-c", "exit 7", (char *)NULL);
        _exit(9);
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    put("last", 1);
    snprintf(key, sizeof key, "after.%d.dat|POSIX_WRITES", rank);
    tally(key, 4);
    tally("MPIIO_COLL_WRITES", 2);
    tally("MPIIO_BYTES_WRITTEN", 30000);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
