/* wake SLEEPERS COUNT PAUSE_US: prints the nanoseconds of COUNT questions, with a pause before each, that pass
 * through so many sleeping processes and come back to one that stays awake: what the machine takes by itself. */
#include "clock.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int sleepers = argc > 3 ? atoi(argv[1]) : 0, count = argc > 3 ? atoi(argv[2]) : 0, i;
    int first[2], from[2], to[2];
    volatile int *answers = mmap(0, sizeof *answers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char byte = 0;
    if (sleepers < 1 || answers == MAP_FAILED || pipe(first))
        return 1;
    from[0] = first[0], from[1] = first[1];
    /* Each ends when the one before it has: then its pipe is closed. */
    for (i = 0; i < sleepers; i++) {
        if (pipe(to))
            return 1;
        if (fork() == 0) {
            close(first[1]);
            close(from[1]);
            while (read(from[0], &byte, 1) == 1)
                if (i == sleepers - 1)
                    ++*answers;
                else if (write(to[1], &byte, 1) != 1)
                    break;
            _exit(0);
        }
        if (i > 0)
            close(from[1]);
        from[0] = to[0], from[1] = to[1];
    }
    close(from[1]);
    for (i = 1; i <= count; i++) {
        long long start;
        usleep(atoi(argv[3]));
        start = now_ns();
        if (write(first[1], &byte, 1) != 1)
            return 1;
        while (*answers < i)
            sched_yield();
        printf("%lld\n", now_ns() - start);
    }
    return 0;
}
