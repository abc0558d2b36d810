/* Things a program may do that a library inside it might not expect. What it prints must be the same with
 * Weir and without. */
#define _GNU_SOURCE
#include "tally.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static int rank;
static struct sigaction before;
static volatile sig_atomic_t handled;
static int self_pipe[2];

/* What each signal does, as far as the program can see. */
static struct sigaction actions[32];

static void look_at_signals(void)
{
    for (int i = 1; i < 32; i++)
        if (i != SIGKILL && i != SIGSTOP)
            REQUIRE(sigaction(i, NULL, &actions[i]) == 0);
}

/* Nobody has changed what signals do; and each way to set one tells what was there. */
static void signals_are_as_they_were(void)
{
    for (int i = 1; i < 32; i++) {
        struct sigaction now = {0};
        if (i == SIGKILL || i == SIGSTOP)
            continue;
        REQUIRE(sigaction(i, NULL, &now) == 0);
        REQUIRE(now.sa_handler == actions[i].sa_handler && now.sa_flags == actions[i].sa_flags);
        REQUIRE(memcmp(&now.sa_mask, &actions[i].sa_mask, sizeof(long)) == 0); /* what the kernel knows of it */
    }
    REQUIRE(signal(SIGXCPU, SIG_IGN) == SIG_DFL && signal(SIGXCPU, SIG_DFL) == SIG_IGN);
    REQUIRE(sigset(SIGXCPU, SIG_IGN) == SIG_DFL && sigset(SIGXCPU, SIG_DFL) == SIG_IGN);
    REQUIRE(sysv_signal(SIGXCPU, SIG_IGN) == SIG_DFL && signal(SIGXCPU, SIG_DFL) == SIG_IGN);
    struct sigaction both = {.sa_handler = SIG_IGN};
    REQUIRE(sigaction(SIGXCPU, &both, &both) == 0 && both.sa_handler == SIG_DFL);
    raise(SIGXCPU);
    REQUIRE(sigaction(SIGXCPU, &both, &both) == 0 && both.sa_handler == SIG_IGN);
}

/* Calls what was there before, as well-behaved handlers do, and writes to a pipe nobody has used yet. */
static void handler(int number)
{
    handled++;
    if (write(self_pipe[1], "!", 1) != 1)
        handled = -100;
    if (!(before.sa_flags & SA_SIGINFO) && before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    else if (before.sa_flags & SA_SIGINFO)
        ((void (*)(int))before.sa_sigaction)(number);
}

static void *write_on(void *name)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    for (int i = 0; i < 20000; i++)
        REQUIRE(pwrite(fd, "0123456789", 10, 10 * (i % 100)) == 10);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    char name[64], late[64], pipe_name[64], key[TALLY_NAME], *text = NULL;
    size_t size = 0;
    struct sigaction action = {.sa_handler = handler};
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_File file = MPI_FILE_NULL;
    pthread_t thread;
    FILE *stream;
    int fd, provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "rough.%d.dat", rank);
    snprintf(late, sizeof late, "late.%d.dat", rank);

    look_at_signals();
    /* The first I/O: Weir makes its record here. The program's descriptors keep their numbers, and one
     * that is closed twice is not somebody else's. */
    fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    REQUIRE(write(fd, "one", 3) == 3);
    int next = dup(fd);
    close(next);
    close(next);
    for (int i = 0; i < 200; i++) { /* more files than one chunk of the record holds */
        char many[64];
        snprintf(many, sizeof many, "many.%d.%d.dat", rank, i);
        int other = open(many, O_CREAT | O_WRONLY | O_TRUNC, 0644);
        REQUIRE(other == next);
        REQUIRE(write(other, "x", 1) == 1);
        close(other);
    }

    signals_are_as_they_were();

    /* A handle that never was a file, with errors returned. */
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    REQUIRE(MPI_File_open(MPI_COMM_SELF, "/no/such/folder/file", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != 0);
    MPI_Wait(&request, MPI_STATUS_IGNORE);

    /* A handler of the program's own, installed after its first I/O. */
    REQUIRE(pipe(self_pipe) == 0);
    REQUIRE(sigaction(SIGUSR2, &action, &before) == 0);
    raise(SIGUSR2);
    raise(SIGUSR2);

    /* A stream without a descriptor leaves errno alone. */
    errno = 0;
    stream = open_memstream(&text, &size);
    fprintf(stream, "%d and %s", 42, "more");
    fputs("!", stream);
    int left = errno;
    fclose(stream);
    /* A stream on a pipe has no position, and nothing to read yet. */
    snprintf(pipe_name, sizeof pipe_name, "pipe.%d", rank);
    REQUIRE(mkfifo(pipe_name, 0600) == 0);
    int writer = open(pipe_name, O_RDWR | O_NONBLOCK), number = 0;
    stream = fopen(pipe_name, "r");
    REQUIRE(fcntl(fileno(stream), F_SETFL, O_NONBLOCK) == 0);
    errno = 0;
    REQUIRE(fscanf(stream, "%d", &number) == EOF && errno == EAGAIN);
    clearerr(stream);
    REQUIRE(write(writer, "42 ", 3) == 3);
    errno = 0;
    REQUIRE(fscanf(stream, "%d", &number) == 1 && number == 42 && errno == 0);
    fclose(stream);
    close(writer);
    unlink(pipe_name);
    /* Longer than any memory: the system refuses it, and that is all there is to it. */
    for (int i = 0; i < 4; i++)
        REQUIRE(pwrite(fd, name, SSIZE_MAX, 0) == -1);
    REQUIRE(write(fd, "two", 3) == 3);
    close(fd);
    if (rank == 0)
        printf("handled %d times, errno %d, text '%s', descriptor %d\n", (int)handled, left, text, next - fd);
    free(text);
    snprintf(key, sizeof key, "rough.%d.dat|POSIX_WRITES", rank);
    tally(key, 2);
    tally_print(MPI_COMM_WORLD);

    /* A thread that is still writing when MPI is gone. */
    REQUIRE(pthread_create(&thread, NULL, write_on, late) == 0);
    MPI_Finalize();
    pthread_join(thread, NULL);
    return 0;
}
