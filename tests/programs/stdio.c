/* Streams: every call that moves bytes or the position, on files of this process's own. */
#define _GNU_SOURCE
#include "tally.h"
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

static int rank;
static char file_name[64];

static void at(const char *stem) { snprintf(file_name, sizeof file_name, "%s.%d.txt", stem, rank); }

static void did(const char *counter, long long n)
{
    char name[TALLY_NAME];
    snprintf(name, sizeof name, "%s|STDIO_%s", file_name, counter);
    tally(name, n);
}

static void wrote(long long bytes)
{
    did("WRITES", 1);
    did("BYTES_WRITTEN", bytes);
}

static void read_(long long bytes)
{
    did("READS", 1);
    did("BYTES_READ", bytes);
}

static void print_list(FILE *stream, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    wrote(vfprintf(stream, format, arguments));
    va_end(arguments);
}

static void writing(void)
{
    char data[4096];
    FILE *stream;
    memset(data, 'x', sizeof data);
    at("written");
    stream = fopen(file_name, "w");
    did("OPENS", 1);
    wrote(16 * (long long)fwrite(data, 16, 200, stream));
    wrote(fprintf(stream, "rank %d of %s\n", rank, "the job"));
    print_list(stream, "%05d|%s\n", 42, "list");
    REQUIRE(fputs("a line\n", stream) >= 0);
    wrote(7);
    REQUIRE(fputc('c', stream) == 'c');
    wrote(1);
    REQUIRE(putc('\n', stream) == '\n');
    wrote(1);
    REQUIRE(fflush(stream) == 0);
    did("FLUSHES", 1);
    REQUIRE(fseek(stream, 8, SEEK_SET) == 0 && fseeko(stream, 9, SEEK_SET) == 0);
    did("SEEKS", 2);
    wrote((long long)fwrite("over", 1, 4, stream));
    stream = freopen(file_name, "a", stream);
    did("OPENS", 1);
    wrote((long long)fwrite("appended\n", 1, 9, stream));
    fclose(stream);
}

static void reading(void)
{
    char data[4096];
    fpos_t position;
    FILE *stream;
    int fd;
    at("read");
    stream = fopen64(file_name, "w+");
    did("OPENS", 1);
    REQUIRE(fputs("first line\nsecond line\n", stream) >= 0);
    wrote(23);
    rewind(stream);
    did("SEEKS", 1);
    read_((long long)fread(data, 1, 6, stream));
    REQUIRE(fgetc(stream) == 'l');
    read_(1);
    REQUIRE(getc(stream) == 'i');
    read_(1);
    REQUIRE(fgets(data, sizeof data, stream) && strcmp(data, "ne\n") == 0);
    read_(3);
    REQUIRE(fgetpos(stream, &position) == 0 && fsetpos(stream, &position) == 0);
    did("SEEKS", 1);
    read_((long long)fread(data, 1, sizeof data, stream)); /* up to the end: 12 */
    REQUIRE(fgetc(stream) == EOF);
    read_(0);
    fclose(stream);

    at("fdopen");
    fd = open(file_name, O_CREAT | O_RDWR, 0644);
    stream = fdopen(fd, "w+");
    did("FDOPENS", 1);
    wrote(fprintf(stream, "%d %d\n", 123, 456));
    fclose(stream);

    at("scanned");
    stream = fopen(file_name, "w+");
    did("OPENS", 1);
    wrote(fprintf(stream, "%d %d\n", 123, 456));
    REQUIRE(fseeko64(stream, 0, SEEK_SET) == 0);
    did("SEEKS", 1);
    {
        int a, b;
        REQUIRE(fscanf(stream, "%d %d", &a, &b) == 2 && a == 123 && b == 456);
    }
    read_(7); /* the newline is looked at and put back */
    fclose(stream);
}

/* With a number that the compiler does not know, and optimised, these go by other names. */
static void reading_lines(void)
{
    char data[64], *line = NULL;
    size_t size = 0;
    volatile int some = 5;
    FILE *stream;
    at("lines");
    stream = fopen(file_name, "w+");
    did("OPENS", 1);
    REQUIRE(fputs("first line\nsecond;third\nmore of this\n", stream) >= 0);
    wrote(37);
    rewind(stream);
    did("SEEKS", 1);
    read_(getline(&line, &size, stream));
    read_(getdelim(&line, &size, ';', stream));
    REQUIRE(strcmp(line, "second;") == 0);
    REQUIRE(fgets(data, some, stream) && strcmp(data, "thir") == 0);
    read_(4);
    REQUIRE(fgets_unlocked(data, some, stream) && strcmp(data, "d\n") == 0);
    read_(2);
    read_((long long)fread(data, 1, (size_t)some, stream));
    read_((long long)fread_unlocked(data, 1, (size_t)some, stream));
    REQUIRE(memcmp(data, "of th", 5) == 0);
    fclose(stream);
    free(line);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    writing();
    reading();
    reading_lines();
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
