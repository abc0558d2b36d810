/* Threads that are cancelled inside a call: what they have to clean up, they do. Built with -fexceptions, so that cleaning up
 * needs a stack that can be unwound. */
#define _GNU_SOURCE
#include "tally.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

static int rank, cleaned, early, fd;
static FILE *stream;
static char data[16];

static void clean(void *what)
{
    (void)what;
    cleaned++;
}

static void in_write(void) { REQUIRE(write(fd, "lost", 4) == 0); }
static void in_pwrite(void) { REQUIRE(pwrite(fd, "lost", 4, 0) == 0); }
static void in_read(void) { REQUIRE(read(fd, data, 4) == 0); }
static void in_fsync(void) { REQUIRE(fsync(fd) == 1); }
static void in_open(void) { REQUIRE(open("never.dat", O_CREAT | O_WRONLY, 0644) == -2); }
static void in_fwrite(void) { REQUIRE(fwrite("lost", 1, 4, stream) == 0); }
static void in_fprintf(void) { REQUIRE(fprintf(stream, "%s %d %f\n", "lost", 1, 2.0) == 0); }
static void in_fputs(void) { REQUIRE(fputs("lost", stream) == -2); }
static void in_fscanf(void) { REQUIRE(fscanf(stream, "%15s", data) == -2); }

/* Not a place to be cancelled in, but the first I/O of all: Weir opens and writes files of its own. */
static void in_lseek(void)
{
    REQUIRE(lseek(early, 0, SEEK_SET) == 0);
    cleaned += 100;
    pthread_testcancel();
}

static void *run(void *call)
{
    pthread_cleanup_push(clean, NULL);
    pthread_cancel(pthread_self()); /* takes effect in the call */
    ((void (*)(void))call)();
    pthread_cleanup_pop(0);
    return NULL;
}

static void attempt(const char *name, void (*call)(void))
{
    void *result = NULL;
    pthread_t thread;
    cleaned = 0;
    REQUIRE(pthread_create(&thread, NULL, run, (void *)call) == 0 && pthread_join(thread, &result) == 0);
    if (rank == 0)
        printf("%s: %s, cleaned up %d\n", name, result == PTHREAD_CANCELED ? "cancelled" : "returned", cleaned);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char name[64], key[TALLY_NAME];
    int provided;
    early = open("early.dat", O_CREAT | O_RDWR, 0644);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    attempt("lseek", in_lseek);
    snprintf(name, sizeof name, "cancelled.%d.dat", rank);
    fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
    REQUIRE(write(fd, "kept", 4) == 4);
    attempt("write", in_write);
    attempt("pwrite", in_pwrite);
    attempt("read", in_read);
    attempt("fsync", in_fsync);
    attempt("open", in_open);
    REQUIRE(write(fd, "kept", 4) == 4);
    close(fd);
    snprintf(key, sizeof key, "%s|POSIX_WRITES", name);
    tally(key, 2);
    snprintf(key, sizeof key, "%s|POSIX_BYTES_WRITTEN", name);
    tally(key, 8);

    snprintf(name, sizeof name, "cancelled.%d.txt", rank);
    stream = fopen(name, "w+");
    setvbuf(stream, NULL, _IONBF, 0);
    REQUIRE(fprintf(stream, "%s\n", "kept") == 5);
    attempt("fwrite", in_fwrite);
    attempt("fprintf", in_fprintf);
    attempt("fputs", in_fputs);
    rewind(stream);
    attempt("fscanf", in_fscanf);
    REQUIRE(fseek(stream, 0, SEEK_END) == 0 && fprintf(stream, "%s\n", "kept") == 5);
    fclose(stream);
    snprintf(key, sizeof key, "%s|STDIO_WRITES", name);
    tally(key, 2);
    snprintf(key, sizeof key, "%s|STDIO_BYTES_WRITTEN", name);
    tally(key, 10);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
