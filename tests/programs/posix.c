/* Every POSIX call on files, on files of this process's own; compared file by file. Built a second
 * time with -D_FILE_OFFSET_BITS=64 and -D_FORTIFY_SOURCE=2, which call other symbols for the same. */
#define _GNU_SOURCE
#include "tally.h"
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SMALL = 64, LARGE = 5000 };

static int rank;
static char file_name[64]; /* of the file at hand */
static int direction;      /* of its last data call */
static char buffer[2 * LARGE];

static void at(const char *stem)
{
    snprintf(file_name, sizeof file_name, "%s.%d.dat", stem, rank);
    direction = 0;
}

static const char *key(const char *counter)
{
    static char name[TALLY_NAME];
    snprintf(name, sizeof name, "%s|POSIX_%s", file_name, counter);
    return name;
}

static void did(const char *counter, long long n) { tally(key(counter), n); }

static void moved(int to, off_t offset, ssize_t got, ssize_t expected)
{
    char bin[64];
    REQUIRE(got == expected);
    did(to == 'W' ? "WRITES" : "READS", 1);
    did(to == 'W' ? "BYTES_WRITTEN" : "BYTES_READ", got);
    snprintf(bin, sizeof bin, "SIZE_%s_%s", to == 'W' ? "WRITE" : "READ", tally_bin(got));
    did(bin, 1);
    did("RW_SWITCHES", direction != 0 && direction != to);
    if (got > 0)
        tally_max(key(to == 'W' ? "MAX_BYTE_WRITTEN" : "MAX_BYTE_READ"), offset + got - 1);
    direction = to;
}

static void wrote(off_t offset, ssize_t got, ssize_t expected) { moved('W', offset, got, expected); }

static void read_(off_t offset, ssize_t got, ssize_t expected) { moved('R', offset, got, expected); }

static int opened(int fd)
{
    REQUIRE(fd >= 0);
    did("OPENS", 1);
    return fd;
}

static void plain(void)
{
    int fd;
    at("plain");
    fd = opened(open(file_name, O_CREAT | O_RDWR | O_TRUNC, 0644));
    wrote(0, write(fd, buffer, SMALL), SMALL);
    wrote(SMALL, write(fd, buffer, LARGE), LARGE);
    wrote(100, pwrite(fd, buffer, SMALL, 100), SMALL);
    wrote(200, pwrite64(fd, buffer, SMALL, 200), SMALL);
    REQUIRE(lseek(fd, 10, SEEK_SET) == 10);
    did("SEEKS", 1);
    read_(10, read(fd, buffer, SMALL), SMALL);
    read_(100, pread(fd, buffer, LARGE, 100), SMALL + LARGE - 100);
    read_(7, pread64(fd, buffer, SMALL, 7), SMALL);
    REQUIRE(lseek64(fd, 0, SEEK_END) == SMALL + LARGE);
    did("SEEKS", 1);
    read_(SMALL + LARGE, read(fd, buffer, SMALL), 0); /* at the end */
    REQUIRE(fsync(fd) == 0);
    did("FSYNCS", 1);
    REQUIRE(fdatasync(fd) == 0);
    did("FDSYNCS", 1);
    REQUIRE(ftruncate(fd, 4000) == 0 && ftruncate64(fd, 3000) == 0);
    did("TRUNCATES", 2);
    REQUIRE(close(fd) == 0);

    fd = opened(open64(file_name, O_WRONLY | O_APPEND));
    wrote(3000, write(fd, buffer, SMALL), SMALL);
    REQUIRE(close(fd) == 0);
}

static void print_list(int fd, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    wrote(17, vdprintf(fd, format, arguments), 10);
    va_end(arguments);
}

static void printed(void)
{
    int fd;
    at("printed");
    fd = opened(open(file_name, O_CREAT | O_WRONLY | O_TRUNC, 0644));
    wrote(0, dprintf(fd, "%d of %s at %.1f\n", 7, "nine", 0.5), 17);
    print_list(fd, "%05d|%s", 42, "list");
    REQUIRE(close(fd) == 0);
    REQUIRE(dprintf(fd, "closed") == -1 && errno == EBADF);
}

static void other_opens(void)
{
    int fd;
    at("creat");
    fd = opened(creat(file_name, 0644));
    wrote(0, write(fd, buffer, SMALL), SMALL);
    close(fd);
    fd = opened(creat64(file_name, 0644));
    wrote(0, write(fd, buffer, SMALL), SMALL);
    close(fd);
    at("openat");
    fd = opened(openat(AT_FDCWD, file_name, O_CREAT | O_RDWR, 0600));
    wrote(0, write(fd, buffer, SMALL), SMALL);
    close(fd);
    fd = opened(openat64(AT_FDCWD, file_name, O_RDONLY));
    read_(0, read(fd, buffer, SMALL), SMALL);
    close(fd);
    fd = open("absent.dat", O_RDONLY);
    REQUIRE(fd == -1 && errno == ENOENT);
    at("scratch");
    fd = opened(open(file_name, O_CREAT | O_WRONLY, 0644));
    close(fd);
    REQUIRE(unlink(file_name) == 0);
}

static void duplicates(void)
{
    int fd, twin;
    at("dup");
    fd = opened(open(file_name, O_CREAT | O_RDWR, 0644));
    twin = dup(fd);
    wrote(0, write(twin, buffer, SMALL), SMALL);
    close(fd); /* the twin lives on */
    wrote(SMALL, write(twin, buffer, SMALL), SMALL);
    REQUIRE(dup2(twin, 200) == 200);
    wrote(2 * SMALL, write(200, buffer, SMALL), SMALL);
    REQUIRE(dup3(twin, 201, O_CLOEXEC) == 201);
    wrote(3 * SMALL, write(201, buffer, SMALL), SMALL);
    fd = fcntl(twin, F_DUPFD, 210);
    wrote(4 * SMALL, write(fd, buffer, SMALL), SMALL);
    did("DUPS", 4);
    close(200);
    close(201);
    close(fd);
    close(twin);
}

static void vectored(void)
{
    struct iovec parts[2] = {{buffer, SMALL}, {buffer + SMALL, 2 * SMALL}};
    int fd;
    at("vector");
    fd = opened(open(file_name, O_CREAT | O_RDWR, 0644));
    wrote(0, writev(fd, parts, 2), 3 * SMALL);
    wrote(500, pwritev(fd, parts, 2, 500), 3 * SMALL);
    wrote(1000, pwritev64(fd, parts, 2, 1000), 3 * SMALL);
    wrote(1500, pwritev2(fd, parts, 2, 1500, 0), 3 * SMALL);
    wrote(2000, pwritev64v2(fd, parts, 2, 2000, 0), 3 * SMALL);
    REQUIRE(lseek(fd, 0, SEEK_SET) == 0);
    did("SEEKS", 1);
    read_(0, readv(fd, parts, 2), 3 * SMALL);
    read_(1, preadv(fd, parts, 2, 1), 3 * SMALL);
    read_(2, preadv64(fd, parts, 2, 2), 3 * SMALL);
    read_(3, preadv2(fd, parts, 2, 3, 0), 3 * SMALL);
    read_(4, preadv64v2(fd, parts, 2, 4, 0), 3 * SMALL);
    close(fd);
}

static ssize_t finished(struct aiocb *request)
{
    const struct aiocb *list[1];
    list[0] = request;
    while (aio_error(request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    REQUIRE(aio_error(request) == 0);
    return aio_return(request);
}

static void asynchronous(void)
{
    struct aiocb one, two, *both[2];
    int fd;
    at("aio");
    fd = opened(open(file_name, O_CREAT | O_RDWR, 0644));
    memset(&one, 0, sizeof one);
    one.aio_fildes = fd;
    one.aio_buf = buffer;
    one.aio_nbytes = LARGE;
    one.aio_offset = 1000;
    two = one;
    two.aio_offset = 20000;
    REQUIRE(aio_write(&one) == 0);
    wrote(1000, finished(&one), LARGE);
    REQUIRE(aio_read(&one) == 0);
    read_(1000, finished(&one), LARGE);
    one.aio_lio_opcode = two.aio_lio_opcode = LIO_WRITE;
    both[0] = &one;
    both[1] = &two;
    REQUIRE(lio_listio(LIO_WAIT, both, 2, NULL) == 0);
    wrote(1000, finished(&one), LARGE);
    wrote(20000, finished(&two), LARGE);
    REQUIRE(aio_fsync(O_SYNC, &one) == 0);
    REQUIRE(finished(&one) == 0);
    close(fd);
}

static void mapped(void)
{
    int fd;
    char *view;
    at("map");
    fd = opened(open(file_name, O_CREAT | O_RDWR, 0644));
    REQUIRE(ftruncate(fd, LARGE) == 0);
    did("TRUNCATES", 1);
    view = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(view != MAP_FAILED);
    did("MMAPS", 1);
    memset(view, 'm', LARGE);
    munmap(view, LARGE);
    close(fd);
}

/* Errors are counted apart, and errno arrives as the call left it. */
static void errors(void)
{
    int fd;
    at("readonly");
    fd = opened(open(file_name, O_CREAT | O_RDONLY, 0644));
    errno = 0;
    REQUIRE(write(fd, buffer, SMALL) == -1 && errno == EBADF);
    errno = 0;
    REQUIRE(pwrite(fd, buffer, SMALL, 0) == -1 && errno == EBADF);
    did("ERRORS", 2);
    did("BYTES_WRITTEN", 0);
    close(fd);
    errno = 0;
    REQUIRE(close(fd) == -1 && errno == EBADF);
}

/* Not files of the program: these must not be in the profile. */
static void system_paths(void)
{
    int fd = open("/dev/null", O_WRONLY);
    REQUIRE(write(fd, buffer, SMALL) == SMALL);
    close(fd);
    fd = open("/proc/self/stat", O_RDONLY);
    REQUIRE(read(fd, buffer, SMALL) == SMALL);
    close(fd);
    fd = open("/etc/passwd", O_RDONLY);
    REQUIRE(read(fd, buffer, 1) == 1);
    close(fd);
    memset(buffer, 'p', sizeof buffer);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memset(buffer, 'p', sizeof buffer);
    plain();
    printed();
    other_opens();
    duplicates();
    vectored();
    asynchronous();
    mapped();
    errors();
    system_paths();
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
