/* A rank that leaves its I/O to children it forks: some write and leave in different ways, one is killed, one has a child
 * of its own, one reads what it finds open, others become programs. */
#define _GNU_SOURCE
#include "append.h"
#include <signal.h>
#include <sys/wait.h>

enum { BLOCK = 100000 };
static char block[BLOCK];

/* How a child ends. */
enum { RETURN, LEAVE, KILLED, ENDINGS };

static void write_blocks(int child, int blocks)
{
    char name[64];
    int fd;
    snprintf(name, sizeof name, "child.%d.%d.dat", rank, child);
    fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    for (int i = 0; i < blocks; i++)
        REQUIRE(pwrite(fd, block, BLOCK, (off_t)i * BLOCK) == BLOCK);
    if (child != KILLED)
        close(fd);
}

static void child_body(int child)
{
    write_blocks(child, 2 + child);
    if (child == KILLED)
        kill(getpid(), SIGKILL);
    if (child == LEAVE)
        _exit(0);
    exit(0);
}

static void expect(pid_t child, int killed)
{
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    pid_t children[ENDINGS], child;
    int ending, fd;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (ending = 0; ending < ENDINGS; ending++)
        if ((children[ending] = fork()) == 0)
            child_body(ending);
    for (ending = 0; ending < ENDINGS; ending++)
        expect(children[ending], ending == KILLED);

    /* A grandchild. */
    if ((child = fork()) == 0) {
        if ((child = fork()) == 0) {
            write_blocks(ENDINGS, 1);
            _exit(0);
        }
        expect(child, 0);
        _exit(0);
    }
    expect(child, 0);

    /* One that goes on with what its parent has open, and moves its place in the file. */
    put("shared", 3);
    {
        char name[64], back[16];
        snprintf(name, sizeof name, "shared.%d.dat", rank);
        fd = open(name, O_RDONLY);
        if ((child = fork()) == 0) {
            REQUIRE(read(fd, back, 16) == 16);
            _exit(0);
        }
        expect(child, 0);
        REQUIRE(read(fd, back, 16) == 14);
        close(fd);
    }

    /* Programs. */
    if ((child = fork()) == 0) {
        char name[64];
        snprintf(name, sizeof name, "list.%d.txt", rank);
        fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
        dup2(fd, 1);
        close(fd);
        execlp("echo", "echo", "by another program", (char *)NULL);
        _exit(9);
    }
    expect(child, 0);

    tally("POSIX_BYTES_WRITTEN", (2 + 3 + 4 + 1) * BLOCK + 30);
    tally("POSIX_BYTES_READ", 30);
    tally("POSIX_WRITES", 2 + 3 + 4 + 1 + 3);
    tally("POSIX_READS", 2);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
