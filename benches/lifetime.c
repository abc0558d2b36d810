/* lifetime FILE PRELOAD COMMAND...: runs the command, with the library PRELOAD in it unless that is empty, and
   appends a line to FILE: milliseconds from just before its exec to its end, and of the processor.

   Measured beside the process and not around the launcher, whose own start takes longer and varies by more
   than all there is to see. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double milliseconds(struct timeval time) { return time.tv_sec * 1e3 + time.tv_usec / 1e3; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    char line[64];
    struct rusage used;
    int status;
    if (argc < 4) return 2;
    if (argv[2][0]) setenv("LD_PRELOAD", argv[2], 1);
    double start = now();
    pid_t child = vfork();
    if (child == 0) {
        execvp(argv[3], argv + 3);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child) return 1;
    double wall = now() - start;
    int length = snprintf(line, sizeof line, "%.3f %.3f\n", wall,
                          milliseconds(used.ru_utime) + milliseconds(used.ru_stime));
    /* Ranks share the file: a line in one write, at its end. */
    int file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file < 0 || write(file, line, length) != length) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
