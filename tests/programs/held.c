/* held HOW: one call that moves data, of the program's own; those of the second half are never to wait for a turn. */
#define _GNU_SOURCE
#include "mpiio.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char data[1 << 20];
static int fd;

static void on_signal(int number)
{
    (void)number;
    REQUIRE(pwrite(fd, data, sizeof data, 0) == sizeof data);
}

/* Many lines, together less than what takes a turn, and a sync. */
static void keep_log(FILE *stream)
{
    for (int line = 0; line < 10000; line++)
        REQUIRE(fprintf(stream, "step %7d, energy %12.6f\n", line, 0.5 * line) > 0);
    REQUIRE(fflush(stream) == 0 && fsync(fileno(stream)) == 0);
}

static void write_to_pipe(void)
{
    REQUIRE(mkfifo("pipe", 0600) == 0);
    int both = open("pipe", O_RDWR);
    REQUIRE(both >= 0 && write(both, data, 60000) == 60000 && read(both, data, 60000) == 60000);
    close(both);
}

static void write_in_child(void)
{
    int status;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        _exit(pwrite(fd, data, sizeof data, 0) == sizeof data ? 0 : 1);
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    const char *how = argv[1];
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
    else if (!strcmp(how, "fwrite"))
        REQUIRE(fwrite(data, 1, sizeof data, stream) == sizeof data);
    else if (!strcmp(how, "putc"))
        for (size_t at = 0; at < sizeof data + 100000; at++)
            REQUIRE(putc(data[at % sizeof data], stream) != EOF);
    else if (!strcmp(how, "log"))
        keep_log(stream);
    else if (!strcmp(how, "pipe"))
        write_to_pipe();
    else if (!strcmp(how, "output"))
        REQUIRE(freopen("output.dat", "w", stdout) && fwrite(data, 1, sizeof data, stdout) == sizeof data);
    else if (!strcmp(how, "handler"))
        REQUIRE(signal(SIGUSR1, on_signal) != SIG_ERR && raise(SIGUSR1) == 0);
    else if (!strcmp(how, "child"))
        write_in_child();
    else
        REQUIRE(0);
    fclose(stream);
    close(fd);
    MPI_Finalize();
    return 0;
}
