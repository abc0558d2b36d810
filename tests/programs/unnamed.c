/* Files that never have a name (O_TMPFILE), as those of Python's TemporaryFile. */
#define _GNU_SOURCE
#include "tally.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char data[100] = "unnamed";
    int i, fd;
    fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0) {
        printf("SKIP no files without a name here: %s\n", strerror(errno));
        return 0;
    }
    close(fd);
    MPI_Init(&argc, &argv);
    for (i = 0; i < 3; i++) {
        fd = i == 0 ? open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600) : openat(AT_FDCWD, ".", O_TMPFILE | O_RDWR, 0600);
        REQUIRE(fd >= 0 && write(fd, data, sizeof data) == sizeof data && pread(fd, data, 7, 0) == 7);
        close(fd);
        tally("POSIX_OPENS", 1);
        tally("POSIX_WRITES", 1);
        tally("POSIX_BYTES_WRITTEN", sizeof data);
        tally("POSIX_BYTES_READ", 7);
    }
    fd = open(".", O_DIRECTORY | O_RDONLY); /* this is none */
    close(fd);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
