/* harsh [contained|stderr]: nearly 1 MB of thread-local variables, which the C library takes off every thread's stack;
 * contained   on a system that refuses a thread descriptors of its own, closes every descriptor that was not there before
 *             its first I/O, and opens files in their place
 * stderr      closes standard error, and opens a data file in its place */
#define _GNU_SOURCE
#include "tally.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 1024, OWN = 24, BYTES = 8192, CALLS = 10 };
static __thread volatile char large[1000 << 10];
static int rank;

static int refuse_own_descriptors(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 436 /* close_range */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void put(const char *name)
{
    static char data[BYTES];
    MPI_File file;
    int i;
    memset(data, 'x', sizeof data);
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0);
    for (i = 0; i < CALLS; i++) {
        MPI_Offset at = (MPI_Offset)(8 + 2 * i + rank) * BYTES; /* behind a hole, which would show a stray line */
        REQUIRE(MPI_File_write_at(file, at, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        usleep(2000);
    }
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    int own[OWN], fd, i;
    char known[MOST], name[64];
    if (strcmp(kind, "contained") == 0 && !refuse_own_descriptors()) {
        printf("SKIP may not filter system calls\n");
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    large[rank] = 1;
    for (fd = 0; fd < MOST; fd++)
        known[fd] = fcntl(fd, F_GETFD) != -1;
    if (strcmp(kind, "stderr") == 0)
        close(2);
    put("first.dat");
    for (fd = 0; fd < MOST && strcmp(kind, "contained") == 0; fd++)
        if (!known[fd])
            close(fd);
    for (i = 0; i < OWN; i++) {
        snprintf(name, sizeof name, "own%d.%d.dat", i, rank);
        own[i] = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
        REQUIRE(write(own[i], "mine", 4) == 4);
    }
    usleep(600000); /* long enough for a gate without a coordinator to open, and to say so */
    put("second.dat");
    for (i = 0; i < OWN; i++) {
        REQUIRE(lseek(own[i], 0, SEEK_END) == 4);
        close(own[i]);
    }
    tally("MPIIO_INDEP_WRITES", 2 * CALLS);
    tally("MPIIO_BYTES_WRITTEN", 2 * CALLS * BYTES);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
