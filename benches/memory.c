/* memory posix|mpiio|stdio FILES CALLS FOLDER
 *
 * Opens FILES files one after the other, makes CALLS writes of one byte to each, closes and removes it.
 * Prints kibibytes: resident and proportional after that, and the peak of the whole run, which includes
 * what happens in MPI_Finalize. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int by_posix(const char *path, long calls) {
    int failed = 0, fd = open(path, O_CREAT | O_RDWR, 0644);
    for (long i = 0; i < calls; i++) failed |= pwrite(fd, "x", 1, i & 4095) != 1;
    return failed | close(fd);
}

static int by_mpiio(const char *path, long calls) {
    MPI_File file;
    if (MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)) return 1;
    for (long i = 0; i < calls; i++) MPI_File_write_at(file, i & 4095, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE);
    return MPI_File_close(&file);
}

static int by_stdio(const char *path, long calls) {
    int failed = 0;
    FILE *stream = fopen(path, "w");
    if (!stream) return 1;
    for (long i = 0; i < calls; i++) failed |= fwrite("x", 1, 1, stream) != 1;
    return failed | fclose(stream);
}

/* A line of /proc/self/smaps_rollup, in kibibytes. */
static long resident(const char *name) {
    char line[256];
    long kib = -1, found;
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    while (rollup && fgets(line, sizeof line, rollup))
        if (!strncmp(line, name, strlen(name)) && sscanf(line + strlen(name), " %ld", &found) == 1) kib = found;
    if (rollup) fclose(rollup);
    return kib;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s posix|mpiio|stdio FILES CALLS FOLDER\n", argv[0]);
        return 2;
    }
    long files = atol(argv[2]), calls = atol(argv[3]);
    int (*use)(const char *, long) = *argv[1] == 'p' ? by_posix : *argv[1] == 'm' ? by_mpiio : by_stdio;
    MPI_Init(&argc, &argv);
    for (long i = 0; i < files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/file.%06ld", argv[4], i);
        if (use(path, calls)) {
            fprintf(stderr, "memory: %s failed\n", path);
            return 1;
        }
        unlink(path);
    }
    long rss_kib = resident("Rss:"), pss_kib = resident("Pss:");
    MPI_Finalize();
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld %ld %ld\n", rss_kib, pss_kib, usage.ru_maxrss);
    return 0;
}
