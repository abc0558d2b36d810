/* A library whose constructor waits for a thread that reads and writes, while the loader has it in hand; `host` runs it.
 * Every call is the first of its kind in the process. A constructor that hangs is ended by a signal. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 60 };
static int failures, handled;

#define CHECK(ok) (failures += !(ok))

static void list(FILE *stream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    CHECK(vfprintf(stream, format, arguments) > 0);
    va_end(arguments);
}

static void streams(void)
{
    char data[64], *line = NULL;
    size_t size = 0;
    int number = 0;
    FILE *stream = fopen("streams.txt", "w+");
    CHECK(fputs("first\nsecond\n", stream) >= 0 && fputc('3', stream) == '3' && putc('\n', stream) == '\n');
    CHECK(fprintf(stream, "%d\n", 4) == 2 && fwrite("five\n", 1, 5, stream) == 5);
    list(stream, "%s\n", "six");
    CHECK(fflush(stream) == 0 && fseek(stream, 0, SEEK_SET) == 0);
    CHECK(fgets(data, sizeof data, stream) != NULL && getline(&line, &size, stream) == 7);
    CHECK(fgetc(stream) == '3' && getc(stream) == '\n' && fscanf(stream, "%d", &number) == 1 && number == 4);
    CHECK(fread(data, 1, 6, stream) == 6);
    rewind(stream);
    CHECK((stream = freopen("streams.txt", "r", stream)) != NULL && fclose(stream) == 0);
    free(line);
}

static void descriptors(void)
{
    char data[8];
    struct iovec part = {data, 4};
    int fd = open("descriptors.dat", O_CREAT | O_RDWR | O_TRUNC, 0644), other;
    CHECK(write(fd, "abcd", 4) == 4 && pwrite(fd, "efgh", 4, 4) == 4 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, data, 4) == 4 && pread(fd, data, 4, 4) == 4 && memcmp(data, "efgh", 4) == 0);
    CHECK(writev(fd, &part, 1) == 4 && lseek(fd, 0, SEEK_SET) == 0 && readv(fd, &part, 1) == 4);
    CHECK(ftruncate(fd, 8) == 0 && fsync(fd) == 0 && fdatasync(fd) == 0);
    CHECK((other = dup(fd)) >= 0 && close(other) == 0 && fcntl(fd, F_GETFD) == 0);
    CHECK(mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED && close(fd) == 0);
}

static void handler(int number)
{
    handled = number;
}

static void signals_and_children(void)
{
    struct sigaction action = {.sa_handler = handler}, before;
    char *arguments[] = {"true", NULL};
    int status = -1;
    pid_t child;
    CHECK(sigaction(SIGUSR1, &action, &before) == 0 && before.sa_handler == SIG_DFL);
    CHECK(signal(SIGUSR1, handler) == handler && raise(SIGUSR1) == 0 && handled == SIGUSR1);
    if ((child = vfork()) == 0) {
        execvp("true", arguments);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *work(void *nothing)
{
    streams();
    descriptors();
    signals_and_children();
    return nothing;
}

__attribute__((constructor)) static void when_loaded(void)
{
    pthread_t thread;
    alarm(LIMIT_S);
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
    alarm(0);
}

int main(void)
{
    printf("%d failures\n", failures);
    return failures;
}
