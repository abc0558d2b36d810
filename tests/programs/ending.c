/* ending HOW WHO: writes a file, then the last rank (`one`) or every rank (`all`) ends in the way
 * HOW says, without MPI_Finalize. Rank 0 prints the tally of all before that, to the file `stdout`: some
 * launchers drop what they have not passed on yet when a rank aborts. */
#define _GNU_SOURCE
#include "mpiio.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static int rank;

/* Writes to blocks that were freed, and takes the last of each size, which says where the one before it lies: whoever
 * calls malloc next in this thread dies of it. */
static void damage_heap(void)
{
    enum { SIZES = 60, EACH = 2 };
    static char *volatile blocks[SIZES][EACH];
    int i, j;
    for (i = 0; i < SIZES; i++)
        for (j = 0; j < EACH; j++)
            blocks[i][j] = malloc(16 * (size_t)(i + 1));
    for (i = 0; i < SIZES; i++)
        for (j = 0; j < EACH; j++) {
            free(blocks[i][j]);
            memset(blocks[i][j], 0xa5, 16);
        }
    for (i = 0; i < SIZES; i++)
        blocks[i][0] = malloc(16 * (size_t)(i + 1));
}

/* A file of the rank's own, with no help of the heap; the same each time. */
static void put(void)
{
    char name[64];
    int fd;
    snprintf(name, sizeof name, "damaged.%d.dat", rank);
    fd = open(name, O_CREAT | O_WRONLY, 0644);
    if (fd < 0 || write(fd, "still here", 10) != 10 || close(fd) != 0)
        _exit(92);
}

/* What was there before a handler of the program's that came after its first I/O. */
static struct sigaction before;

/* Not meant for this handler: it passes the signal on. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    static int times;
    if (times++ > 1000)
        _exit(93); /* again and again */
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler == SIG_DFL)
        signal(number, SIG_DFL), raise(number);
    else if (before.sa_handler != SIG_IGN)
        before.sa_handler(number);
}

static void install(int number)
{
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO};
    REQUIRE(sigaction(number, &action, &before) == 0);
}

/* The same by one who asks the kernel, and so sees what others do not. */
static void install_by_kernel(int number)
{
    struct {
        void (*handler)(int, siginfo_t *, void *);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } kept = {0};
    REQUIRE(syscall(SYS_rt_sigaction, number, NULL, &kept, 8) == 0);
    install(number);
    before.sa_sigaction = kept.handler;
    before.sa_flags = (int)kept.flags;
}

static void end(const char *how)
{
    if (strcmp(how, "exit") == 0)
        exit(3);
    if (strcmp(how, "_exit") == 0)
        _exit(4);
    if (strcmp(how, "quick_exit") == 0)
        quick_exit(6);
    if (strcmp(how, "execve") == 0) {
        char *arguments[] = {"sh", "-c", "exit 7", NULL};
        execve("/bin/sh", arguments, environ);
    }
    if (strcmp(how, "execlp") == 0) /* more arguments than fit into registers */
        execlp("sh", "sh", "-c", "exit $#", "name", "1", "2", "3", "4", (char *)NULL);
    if (strcmp(how, "execl_SIGKILL") == 0) {
        REQUIRE(execl("/nowhere/sh", "sh", (char *)NULL) == -1 && errno == ENOENT);
        raise(SIGKILL);
    }
    if (strcmp(how, "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 5);
    if (strstr(how, "passed_on") != NULL)
        install(strstr(how, "SIGSEGV") ? SIGSEGV : SIGTERM);
    if (strstr(how, "by_kernel") != NULL)
        install_by_kernel(strstr(how, "SIGSEGV") ? SIGSEGV : SIGTERM);
    if (strcmp(how, "damaged_heap") == 0) {
        damage_heap();
        put();
    }
    if (strstr(how, "SIGSEGV") != NULL || strcmp(how, "damaged_heap") == 0)
        *(volatile int *)8 = 1;
    if (strstr(how, "SIGTERM") != NULL)
        raise(SIGTERM);
    if (strcmp(how, "SIGKILL") == 0)
        raise(SIGKILL);
    _exit(94); /* nothing of that ended it */
}

int main(int argc, char **argv)
{
    Tallied file;
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    file = open_tallied(MPI_COMM_WORLD, "ending.dat", MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
    REQUIRE(MPI_File_write_at_all(file.handle, 8 * rank, "the end!", 8, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(&file, "COLL", 'W', 8);
    REQUIRE(MPI_File_write_at(file.handle, 8 * (size + rank), "The End!", 8, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(&file, "INDEP", 'W', 8);
    MPI_File_sync(file.handle);
    tally("MPIIO_SYNCS", 1);
    if (strcmp(argv[1], "damaged_heap") == 0) {
        char key[TALLY_NAME];
        put(); /* of `all`, the launcher may end some before they do it again */
        snprintf(key, sizeof key, "damaged.%d.dat|POSIX_BYTES_WRITTEN", rank);
        if (strcmp(argv[2], "one") == 0)
            tally(key, rank == size - 1 ? 20 : 10);
    }
    if (rank == 0)
        REQUIRE(freopen("stdout", "w", stdout) != NULL);
    tally_print(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(argv[2], "all") == 0 || rank == size - 1)
        end(argv[1]);
    sleep(30); /* the launcher ends the others */
    return 0;
}
