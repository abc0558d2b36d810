/* Collective reads, one after the other, from storage rather than from memory.
 *
 *   reader START CALLS PAUSE FILE...
 *
 * START  when to begin, in seconds of the monotonic clock, which all processes of a machine share; 0 at once
 * CALLS  so many collective reads, each of a whole file: of the first, the second, … and again the first
 * PAUSE  seconds between two of them
 * FILE   the byte at an offset is 1 + offset modulo 251; anything else is an error
 *
 * The ranks read blocks that alternate, through two aggregators where there are as many ranks. What the system
 * has of a file in its memory is thrown away before each read. Every rank prints RANK rank PID pid; rank 0, in seconds of the
 * same clock, read BEGIN END after each call.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "clock.h"

#define BLOCK (64 << 10)
#define PERIOD 251
#define MOST_FILES 16

static int rank, ranks;

static void must(int is_so, const char *what)
{
    if (is_so) return;
    fprintf(stderr, "reader: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void forget(const char *path)
{
    int fd = open(path, O_RDONLY);
    must(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, path);
    close(fd);
}

static MPI_File open_file(const char *path, MPI_Offset *bytes)
{
    MPI_File file;
    MPI_Info info;
    MPI_Datatype blocks;
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_nodes", "2");
    MPI_Info_set(info, "cb_config_list", "*:*");
    MPI_Info_set(info, "romio_cb_read", "enable");
    must(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, info, &file) == 0, path);
    MPI_Info_free(&info);
    must(MPI_File_get_size(file, bytes) == 0 && *bytes > 0 && *bytes % (BLOCK * ranks) == 0, "no whole blocks");
    MPI_Type_vector((int)(*bytes / BLOCK / ranks), BLOCK, BLOCK * ranks, MPI_BYTE, &blocks);
    MPI_Type_commit(&blocks);
    must(MPI_File_set_view(file, (MPI_Offset)rank * BLOCK, MPI_BYTE, blocks, "native", MPI_INFO_NULL) == 0, "view");
    MPI_Type_free(&blocks);
    return file;
}

static void check(const unsigned char *data, MPI_Offset bytes)
{
    static unsigned char pattern[BLOCK + PERIOD];
    for (int i = 0; pattern[BLOCK + PERIOD - 1] == 0 && i < BLOCK + PERIOD; i++) pattern[i] = (unsigned char)(1 + i % PERIOD);
    for (MPI_Offset block = 0; block < bytes / BLOCK; block++) {
        MPI_Offset offset = (block * ranks + rank) * BLOCK;
        must(memcmp(data + block * BLOCK, pattern + offset % PERIOD, BLOCK) == 0, "a wrong byte");
    }
}

int main(int argc, char **argv)
{
    MPI_File files[MOST_FILES];
    MPI_Offset bytes[MOST_FILES], most = 0;
    char line[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    must(argc > 4 && argc - 4 <= MOST_FILES, "usage: reader START CALLS PAUSE FILE...");
    int calls = atoi(argv[2]), count = argc - 4;
    double start = atof(argv[1]), pause = atof(argv[3]);
    int length = snprintf(line, sizeof line, "RANK %d PID %d\n", rank, (int)getpid());
    must(write(1, line, (size_t)length) == length, "nobody listens");
    for (int i = 0; i < count; i++) {
        files[i] = open_file(argv[4 + i], &bytes[i]);
        if (bytes[i] > most) most = bytes[i];
    }
    unsigned char *data = malloc((size_t)(most / ranks));
    must(data != NULL, "no memory");
    for (int call = 0; call < calls; call++) {
        int at = call % count;
        if (rank == 0) forget(argv[4 + at]);
        sleep_until(call == 0 ? start : now() + pause);
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = now();
        MPI_Status status;
        int got = 0, wanted = (int)(bytes[at] / ranks);
        must(MPI_File_read_at_all(files[at], 0, data, wanted, MPI_BYTE, &status) == 0, "cannot read");
        double end = now();
        must(MPI_Get_count(&status, MPI_BYTE, &got) == 0 && got == wanted, "too few bytes");
        check(data, wanted);
        length = snprintf(line, sizeof line, "read %.6f %.6f\n", begin, end);
        must(rank != 0 || write(1, line, (size_t)length) == length, "nobody listens");
    }
    for (int i = 0; i < count; i++) MPI_File_close(&files[i]);
    free(data);
    MPI_Finalize();
    return 0;
}
