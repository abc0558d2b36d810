/* The same small call, many times over: calls.c OPERATION COUNT FILE
 * Run under callgrind with two counts, the difference is what one call costs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char data[64];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s write_at|write_at_all|pwrite|fwrite|wait|inert COUNT FILE\n", argv[0]);
        return 2;
    }
    const char *operation = argv[1], *path = argv[3];
    long count = atol(argv[2]);
    double start = 0;
    int inert = !strcmp(operation, "inert"), fd = -1;
    if (inert) { /* before MPI_Init nothing is armed */
        fd = open(path, O_CREAT | O_RDWR, 0644);
        start = now();
        for (long i = 0; i < count; i++)
            if (pwrite(fd, data, sizeof data, 0) != sizeof data) return 1;
        printf("%.9f\n", (now() - start) / count);
        close(fd);
        return 0;
    }
    MPI_Init(&argc, &argv);
    if (!strncmp(operation, "write_at", 8)) {
        int all = !strcmp(operation, "write_at_all");
        MPI_File file;
        if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)) return 1;
        start = now();
        for (long i = 0; i < count; i++)
            if (all)
                MPI_File_write_at_all(file, (i & 1023) * 64, data, sizeof data, MPI_BYTE, MPI_STATUS_IGNORE);
            else
                MPI_File_write_at(file, (i & 1023) * 64, data, sizeof data, MPI_BYTE, MPI_STATUS_IGNORE);
        start = now() - start;
        MPI_File_close(&file);
    } else if (!strcmp(operation, "pwrite")) {
        fd = open(path, O_CREAT | O_RDWR, 0644);
        start = now();
        for (long i = 0; i < count; i++)
            if (pwrite(fd, data, sizeof data, (i & 1023) * 64) != sizeof data) return 1;
        start = now() - start;
        close(fd);
    } else if (!strcmp(operation, "fwrite")) {
        FILE *file = fopen(path, "w");
        start = now();
        for (long i = 0; i < count; i++)
            if (fwrite(data, sizeof data, 1, file) != 1) return 1;
        start = now() - start;
        fclose(file);
    } else if (!strcmp(operation, "wait")) {
        start = now();
        for (long i = 0; i < count; i++) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        start = now() - start;
    } else {
        fprintf(stderr, "%s: no such operation\n", operation);
        return 2;
    }
    printf("%.9f\n", start / count);
    MPI_Finalize();
    return 0;
}
