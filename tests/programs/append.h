/* What programs with children share: each rank, and each child of it, appends to a file of its own. */
#ifndef APPEND_H
#define APPEND_H

#include "tally.h"
#include <fcntl.h>
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

#endif
