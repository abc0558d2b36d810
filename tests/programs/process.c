/* fork, vfork by way of system() and popen(), and exec, inside an MPI program: what children do is
 * theirs and changes nothing of what the rank is said to have done. */
#include "tally.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank;

static void put(const char *stem, int times)
{
    char name[64];
    int fd;
    snprintf(name, sizeof name, "%s.%d.dat", stem, rank);
    fd = open(name, O_CREAT | O_WRONLY | O_APPEND, 0644);
    while (times-- > 0)
        REQUIRE(write(fd, "0123456789", 10) == 10);
    close(fd);
}

int main(int argc, char **argv)
{
    char command[128], line[64] = "", key[TALLY_NAME];
    int status;
    pid_t child;
    FILE *pipe;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    put("parent", 3);

    child = fork();
    if (child == 0) {
        put("child", 5);
        _exit(7);
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);

    child = fork();
    if (child == 0) { /* leaves through exit(): its handlers must not end the parent's record */
        put("child", 1);
        exit(8);
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 8);

    child = fork();
    if (child == 0) {
        snprintf(command, sizeof command, "echo executed >exec.%d.txt", rank);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(9);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);

    snprintf(command, sizeof command, "printf 'system\\n' >system.%d.txt", rank);
    REQUIRE(system(command) == 0);
    pipe = popen("echo piped", "r");
    REQUIRE(fgets(line, sizeof line, pipe) != NULL && strcmp(line, "piped\n") == 0);
    pclose(pipe);

    put("parent", 2);
    snprintf(key, sizeof key, "parent.%d.dat|POSIX_WRITES", rank);
    tally(key, 5);
    snprintf(key, sizeof key, "parent.%d.dat|POSIX_BYTES_WRITTEN", rank);
    tally(key, 50);
    snprintf(key, sizeof key, "parent.%d.dat|POSIX_OPENS", rank);
    tally(key, 2);
    tally("MPIIO_COLL_OPENS", 0);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
