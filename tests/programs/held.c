/* held HOW: one call that moves data, of the program's own. */
#define _GNU_SOURCE
#include "mpiio.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char data[1 << 20];
    const char *how = argv[1];
    int fd;
    FILE *stream;
    MPI_Init(&argc, &argv);
    REQUIRE((fd = open("held.dat", O_CREAT | O_RDWR, 0644)) >= 0);
    REQUIRE((stream = fopen("stream.dat", "w")) != NULL);
    if (!strcmp(how, "pwrite"))
        REQUIRE(pwrite(fd, data, sizeof data, 0) == sizeof data);
    else if (!strcmp(how, "fails"))
        REQUIRE(pwrite(fd, data, sizeof data, -1) == -1);
    else if (!strcmp(how, "fsync"))
        REQUIRE(fsync(fd) == 0);
    else if (!strcmp(how, "dprintf"))
        REQUIRE(dprintf(fd, "%s", how) > 0);
    else
        REQUIRE(fwrite(data, 1, sizeof data, stream) == sizeof data);
    fclose(stream);
    close(fd);
    MPI_Finalize();
    return 0;
}
