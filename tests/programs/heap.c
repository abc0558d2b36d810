/* heap interrupted|forked|exhausted: I/O at moments when the heap cannot be used.
 * interrupted   a signal handler opens and writes files, as it may, while the program is inside malloc
 * forked        children come into being while other threads open files
 * exhausted     there is no memory left, and the program can do without */
#define _GNU_SOURCE
#include "tally.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 64, TIMES = 8, THREADS = 3, CHILDREN = 200, MANY = 500, BLOCKS = 200 };

static int rank;
static char names[FILES][32];

static void put(const char *name)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_APPEND, 0644);
    if (fd < 0 || write(fd, "0123456789", 10) != 10 || close(fd) != 0)
        _exit(92);
}

static void tally_file(const char *name, int times)
{
    char key[TALLY_NAME];
    snprintf(key, sizeof key, "%s|POSIX_OPENS", name);
    tally(key, times);
    snprintf(key, sizeof key, "%s|POSIX_WRITES", name);
    tally(key, times);
}

static volatile sig_atomic_t handled;

static void on_alarm(int number)
{
    (void)number;
    if (handled < FILES * TIMES)
        put(names[handled++ % FILES]);
}

static void interrupted(void)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    char *blocks[BLOCKS] = {0};
    unsigned seed = 1, i;
    REQUIRE(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    while (handled < FILES * TIMES) {
        seed = seed * 1103515245 + 12345;
        i = seed >> 16;
        free(blocks[i % BLOCKS]);
        blocks[i % BLOCKS] = malloc(i % 700 + 1);
        memset(blocks[i % BLOCKS], 'x', i % 700 + 1);
    }
    REQUIRE(setitimer(ITIMER_REAL, &never, NULL) == 0);
    for (i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    for (i = 0; i < FILES; i++)
        tally_file(names[i], TIMES);
}

static volatile int over;

static void *open_on(void *argument)
{
    const char *name = argument;
    while (!over) {
        int fd = open(name, O_RDONLY);
        if (fd < 0 || close(fd) != 0)
            _exit(93);
    }
    return NULL;
}

static void forked(void)
{
    pthread_t threads[THREADS];
    int i, status;
    for (i = 0; i < THREADS; i++) {
        put(names[i]);
        REQUIRE(pthread_create(&threads[i], NULL, open_on, names[i]) == 0);
    }
    for (i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(30); /* one that hangs is one that died */
            put(names[THREADS]);
            _exit(dlsym(RTLD_DEFAULT, "MPI_File_open") == NULL ? 94 : 7);
        }
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    over = 1;
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void exhausted(void)
{
    struct rlimit limit, less;
    long pages = 0;
    void **taken = NULL;
    size_t size;
    char name[32];
    FILE *about = fopen("/proc/self/statm", "r");
    int i;
    REQUIRE(about != NULL && fscanf(about, "%ld", &pages) == 1);
    fclose(about);
    put(names[0]);
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
    less = limit;
    less.rlim_cur = (rlim_t)pages * 4096 + (4 << 20);
    REQUIRE(setrlimit(RLIMIT_AS, &less) == 0);
    for (size = 1 << 20; size >= 16; size /= 2) {
        void **block;
        while ((block = malloc(size)) != NULL) {
            *block = taken;
            taken = block;
        }
    }
    for (i = 0; i < MANY; i++) {
        sprintf(name, "many.%d.%d.dat", rank, i);
        put(name);
    }
    while (taken != NULL) {
        void **next = *taken;
        free(taken);
        taken = next;
    }
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main(int argc, char **argv)
{
    int i, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (i = 0; i < FILES; i++)
        sprintf(names[i], "heap.%d.%d.dat", rank, i);
    if (strcmp(argv[1], "interrupted") == 0)
        interrupted();
    else if (strcmp(argv[1], "forked") == 0)
        forked();
    else
        exhausted();
    tally("MPIIO_COLL_OPENS", 0);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
