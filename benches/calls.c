/* The same small call, many times over:  calls COUNT FOLDER OPERATION...
 *
 * Prints per operation its name and the nanoseconds of one call: the median of blocks of 1,024 calls,
 * so that the blocks in which another program had the processor do not count. All counted calls are made
 * below `measured`, which callgrind is told to look at; two blocks before it warm up. */
#define _GNU_SOURCE
#include "clock.h"
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1024 };

static char data[64];
static MPI_File file = MPI_FILE_NULL;
static int fd = -1;
static FILE *stream;

static int write_at(long i) {
    return MPI_File_write_at(file, i * 64, data, sizeof data, MPI_BYTE, MPI_STATUS_IGNORE);
}
static int write_at_all(long i) {
    return MPI_File_write_at_all(file, i * 64, data, sizeof data, MPI_BYTE, MPI_STATUS_IGNORE);
}
static int do_pwrite(long i) { return pwrite(fd, data, sizeof data, i * 64) != sizeof data; }
static int do_fwrite(long i) { return (void)i, fwrite(data, sizeof data, 1, stream) != 1; }
static int do_wait(long i) {
    MPI_Request request = MPI_REQUEST_NULL;
    return (void)i, MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static const struct operation {
    const char *name;
    int (*call)(long);
    enum { MPI_FILE, DESCRIPTOR, STREAM, NOTHING } needs;
} operations[] = {
    {"write_at", write_at, MPI_FILE},   {"write_at_all", write_at_all, MPI_FILE}, {"pwrite", do_pwrite, DESCRIPTOR},
    {"fwrite", do_fwrite, STREAM},      {"wait", do_wait, NOTHING},
    {"inert", do_pwrite, DESCRIPTOR}, /* before MPI_Init: nothing is armed */
};

static const struct operation *find(const char *name) {
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operations[i].name, name)) return &operations[i];
    fprintf(stderr, "calls: no operation is called %s\n", name);
    exit(2);
}

static void must(int failed, const char *what) {
    if (!failed) return;
    fprintf(stderr, "calls: %s failed\n", what);
    exit(1);
}

static void open_for(const struct operation *op, const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.data", folder, op->name);
    if (op->needs == MPI_FILE)
        must(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), path);
    if (op->needs == DESCRIPTOR) must((fd = open(path, O_CREAT | O_RDWR, 0644)) < 0, path);
    if (op->needs == STREAM) must(!(stream = fopen(path, "w")), path);
}

static void close_for(const struct operation *op) {
    if (op->needs == MPI_FILE) MPI_File_close(&file);
    if (op->needs == DESCRIPTOR) close(fd);
    if (op->needs == STREAM) fclose(stream);
}

static int block(const struct operation *op) {
    int failed = 0;
    for (long i = 0; i < BLOCK; i++) failed |= op->call(i);
    return failed;
}

__attribute__((noinline)) int measured(const struct operation *op) { return block(op); }

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(const struct operation *op, long blocks, const char *folder) {
    double *ns = malloc(sizeof *ns * blocks);
    must(!ns, "malloc");
    open_for(op, folder);
    must(block(op) | block(op), op->name);
    for (long i = 0; i < blocks; i++) {
        if (op->needs == STREAM) rewind(stream); /* the same pages again: none is made while the clock runs */
        double start = now_ns();
        must(measured(op), op->name);
        ns[i] = (now_ns() - start) / BLOCK;
    }
    close_for(op);
    qsort(ns, blocks, sizeof *ns, ascending);
    printf("%s %.2f\n", op->name, ns[blocks / 2]);
    free(ns);
}

int main(int argc, char **argv) {
    long blocks = argc > 3 ? (atol(argv[1]) + BLOCK - 1) / BLOCK : 0;
    if (blocks <= 0) {
        fprintf(stderr, "usage: %s COUNT FOLDER write_at|write_at_all|pwrite|fwrite|wait|inert...\n", argv[0]);
        return 2;
    }
    if (!strcmp(argv[3], "inert")) {
        run(find("inert"), blocks, argv[2]);
        return 0;
    }
    /* Moves all that comes after it in the heap; never freed. */
    volatile char *pad = getenv("BENCH_PAD") ? malloc(atol(getenv("BENCH_PAD"))) : NULL;
    (void)pad;
    MPI_Init(&argc, &argv);
    for (int i = 3; i < argc; i++) run(find(argv[i]), blocks, argv[2]);
    MPI_Finalize();
    return 0;
}
