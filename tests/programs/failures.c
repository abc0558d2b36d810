/* failures: calls that fail, each in its own way, and calls that only look whether a file is there. */
#define _GNU_SOURCE
#include "tally.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rlimit limit = {4096, 4096};
    static char gathered[1 << 16];
    char block[8192] = {1};
    MPI_File file;
    FILE *stream;
    int fd, i;

    MPI_Init(&argc, &argv);
    /* Answers, not failures. */
    REQUIRE(open("absent.dat", O_RDONLY) == -1 && errno == ENOENT);
    REQUIRE(fopen("absent.dat", "r") == NULL && errno == ENOENT);
    REQUIRE(access("absent.dat", R_OK) == -1 && errno == ENOENT);
    REQUIRE(unlink("absent.dat") == -1 && errno == ENOENT);
    REQUIRE(MPI_File_delete("absent.dat", MPI_INFO_NULL) != 0);
    REQUIRE(MPI_File_open(MPI_COMM_SELF, "absent.dat", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != 0);

    /* No such directory. */
    REQUIRE(open("nowhere/new.dat", O_CREAT | O_WRONLY, 0644) == -1 && errno == ENOENT);

    /* Not open for writing. */
    fd = open("readonly.dat", O_CREAT | O_RDONLY, 0644);
    REQUIRE(fd >= 0);
    for (i = 0; i < 3; i++) {
        errno = 0;
        REQUIRE(write(fd, block, 64) == -1 && errno == EBADF);
    }
    REQUIRE(close(fd) == 0);

    /* Larger than it may become: the C library finds out when it writes what it has gathered. */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    stream = fopen("large.dat", "w");
    REQUIRE(stream != NULL);
    setvbuf(stream, gathered, _IOFBF, sizeof gathered);
    REQUIRE(fwrite(block, 1, sizeof block, stream) == sizeof block);
    errno = 0;
    REQUIRE(fflush(stream) == EOF && errno == EFBIG);
    fclose(stream);
    MPI_Finalize();
    return 0;
}
