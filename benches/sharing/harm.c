/* A job with phases of I/O of many kinds, which says how long it took by its own clock.
 *
 *   harm START-FILE KIND [NAME=VALUE]... PATH...
 *
 * START-FILE  holds the moment to begin, in seconds of the monotonic clock, which all processes of a machine share. The job
 *             prints "ready PID" when it is, and waits for the file to appear
 * KIND        write, write_all, read, read_all  requests to the files, which exist; phases take them in turns
 *             iwrite                            requests that are under way while the job computes
 *             suite                             what tests of MPI-IO do: small requests of many kinds, few bytes at a time
 *             files                             new files, written once and removed
 *             give, take                        two jobs that hand each other files: PATH.give.N answered by PATH.take.N
 * delay=      seconds from the start until the job comes
 * phases=     so many of them, calls= requests of a rank in each, bytes= in each request
 * pause=      seconds computed after each phase; computing is sleeping
 * slow=       seconds that the last rank is late in each phase; the others wait for it at the end
 * sync=1      a sync after each request
 *
 * Rank 0 prints: took BEGIN END, call LONGEST, phase LONGEST MEAN, in seconds. A call is one that does I/O: open, write, read,
 * sync, wait and close; the longest is that of all ranks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "clock.h"

#define MAX_PATHS 4
#define MAX_CALLS 64
#define POLL_SECONDS 0.0005
#define MAX_REQUEST (64 << 20)

static int rank, ranks;
static double longest_call, longest_phase, phase_seconds;
static char *buffer;

/* What the command line says. */
static double delay_seconds, pause_seconds, slow_seconds;
static long phases = 1, calls = 1, request_bytes = 1 << 20, is_synced;
static char *paths[MAX_PATHS];
static int path_count;
static MPI_File files[MAX_PATHS];
static MPI_Offset file_bytes[MAX_PATHS];

static void must(int is_so, const char *what)
{
    if (is_so) return;
    fprintf(stderr, "harm: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A call that does I/O. */
#define TIMED(call)                                            \
    do {                                                       \
        double called_ = now();                                \
        must((call) == MPI_SUCCESS, #call);                    \
        double took_ = now() - called_;                        \
        if (took_ > longest_call) longest_call = took_;        \
    } while (0)

static void nap(double seconds)
{
    if (seconds > 0) sleep_until(now() + seconds);
}

/* The ranks wait for each other asleep: two cores have to do for all jobs. */
static void meet(void)
{
    MPI_Request request;
    int is_done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !is_done) nap(POLL_SECONDS);
}

/* Where the request of this rank lies: the ranks' requests side by side, and again from the beginning of the file. */
static MPI_Offset place(int file, long call)
{
    MPI_Offset at = (call * ranks + rank) * (MPI_Offset)request_bytes;
    MPI_Offset whole = file_bytes[file] - file_bytes[file] % request_bytes;
    return whole > 0 ? at % whole : 0;
}

typedef int (*transfer)(MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Status *);

static int write_at(MPI_File f, MPI_Offset at, void *b, int n, MPI_Datatype t, MPI_Status *s)
{
    return MPI_File_write_at(f, at, b, n, t, s);
}

static int write_at_all(MPI_File f, MPI_Offset at, void *b, int n, MPI_Datatype t, MPI_Status *s)
{
    return MPI_File_write_at_all(f, at, b, n, t, s);
}

static void requests_phase(transfer move, long phase)
{
    int file = (int)(phase % path_count);
    if (rank == ranks - 1) nap(slow_seconds);
    for (long call = 0; call < calls; call++) {
        TIMED(move(files[file], place(file, call), buffer, (int)request_bytes, MPI_BYTE, MPI_STATUS_IGNORE));
        if (is_synced) TIMED(MPI_File_sync(files[file]));
    }
    if (slow_seconds > 0) meet();
}

static void write_phase(long phase) { requests_phase(write_at, phase); }
static void write_all_phase(long phase) { requests_phase(write_at_all, phase); }
static void read_phase(long phase) { requests_phase(MPI_File_read_at, phase); }
static void read_all_phase(long phase) { requests_phase(MPI_File_read_at_all, phase); }

/* Computes while the requests are under way. */
static void iwrite_phase(long phase)
{
    MPI_Request under_way[MAX_CALLS];
    int file = (int)(phase % path_count);
    for (long call = 0; call < calls; call++)
        TIMED(MPI_File_iwrite_at(files[file], place(file, call), buffer, (int)request_bytes, MPI_BYTE, &under_way[call]));
    nap(pause_seconds);
    TIMED(MPI_Waitall((int)calls, under_way, MPI_STATUSES_IGNORE));
}

static MPI_File open_shared(const char *path, int mode)
{
    MPI_File file;
    TIMED(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file));
    return file;
}

/* Few bytes at a time: contiguous, collective and strided, read back, and synced at the end. */
static void suite_phase(long phase)
{
    static const int sizes[] = { 8, 100, 1000, 4096, 10000, 65536 };
    int bytes = sizes[phase % 6];
    MPI_Offset at = (MPI_Offset)rank * bytes;
    MPI_File file = open_shared(paths[0], MPI_MODE_RDWR | MPI_MODE_CREATE);
    for (long call = 0; call < calls; call++, at += (MPI_Offset)ranks * bytes) {
        TIMED(MPI_File_write_at(file, at, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
        TIMED(MPI_File_read_at(file, at, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
        TIMED(MPI_File_write_at_all(file, at, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    MPI_Datatype strided;
    MPI_Type_vector(16, bytes / 8, bytes / 8 * ranks, MPI_BYTE, &strided);
    MPI_Type_commit(&strided);
    TIMED(MPI_File_set_view(file, (MPI_Offset)rank * (bytes / 8), MPI_BYTE, strided, "native", MPI_INFO_NULL));
    TIMED(MPI_File_write_all(file, buffer, 2 * bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    TIMED(MPI_File_read_at_all(file, 0, buffer, 2 * bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    MPI_Type_free(&strided);
    if (is_synced) TIMED(MPI_File_sync(file));
    TIMED(MPI_File_close(&file));
}

static void files_phase(long phase)
{
    char name[4096];
    for (long call = 0; call < calls; call++) {
        snprintf(name, sizeof name, "%s.%ld.%ld", paths[0], phase, call);
        MPI_File file = open_shared(name, MPI_MODE_RDWR | MPI_MODE_CREATE);
        MPI_Offset at = (MPI_Offset)rank * request_bytes;
        TIMED(MPI_File_write_at(file, at, buffer, (int)request_bytes, MPI_BYTE, MPI_STATUS_IGNORE));
        TIMED(MPI_File_close(&file));
        if (rank == 0) TIMED(MPI_File_delete(name, MPI_INFO_NULL));
    }
}

/* The file is there under its name when it is whole. */
static void hand_over(const char *which, long number)
{
    char name[4096], early[4104];
    snprintf(name, sizeof name, "%s.%s.%ld", paths[0], which, number);
    snprintf(early, sizeof early, "%s.early", name);
    MPI_File file = open_shared(early, MPI_MODE_WRONLY | MPI_MODE_CREATE);
    TIMED(MPI_File_write_at(file, 0, buffer, (int)request_bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    TIMED(MPI_File_close(&file));
    must(rename(early, name) == 0, "rename");
}

static void receive(const char *which, long number)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.%s.%ld", paths[0], which, number);
    while (access(name, F_OK) != 0) nap(POLL_SECONDS);
    MPI_File file = open_shared(name, MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE);
    TIMED(MPI_File_read_at(file, 0, buffer, (int)request_bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    TIMED(MPI_File_close(&file));
}

static void give_phase(long phase)
{
    hand_over("give", phase);
    receive("take", phase);
}

static void take_phase(long phase)
{
    receive("give", phase);
    hand_over("take", phase);
}

static const struct kind {
    const char *name;
    void (*phase)(long);
    int opens_first, forgets;
} kinds[] = {
    { "write", write_phase, 1, 0 },   { "write_all", write_all_phase, 1, 0 }, { "read", read_phase, 1, 1 },
    { "read_all", read_all_phase, 1, 1 }, { "iwrite", iwrite_phase, 1, 0 },   { "suite", suite_phase, 0, 0 },
    { "files", files_phase, 0, 0 },   { "give", give_phase, 0, 0 },           { "take", take_phase, 0, 0 },
};

static const struct kind *kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    must(0, "no such kind");
    return NULL;
}

static void set(const char *word)
{
    static const struct { const char *name; double *seconds; long *count; } settings[] = {
        { "delay=", &delay_seconds, NULL }, { "pause=", &pause_seconds, NULL }, { "slow=", &slow_seconds, NULL },
        { "phases=", NULL, &phases },       { "calls=", NULL, &calls },         { "bytes=", NULL, &request_bytes },
        { "sync=", NULL, &is_synced },
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        size_t length = strlen(settings[i].name);
        if (strncmp(word, settings[i].name, length) != 0) continue;
        if (settings[i].seconds) *settings[i].seconds = atof(word + length);
        if (settings[i].count) *settings[i].count = atol(word + length);
        return;
    }
    must(path_count < MAX_PATHS, word);
    paths[path_count++] = strdup(word);
}

/* What the system has of the file in its memory is thrown away. */
static void forget(const char *path)
{
    int fd = open(path, O_RDONLY);
    must(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, path);
    close(fd);
}

static void prepare(const struct kind *kind)
{
    buffer = malloc(MAX_REQUEST);
    must(buffer != NULL && request_bytes <= MAX_REQUEST && calls <= MAX_CALLS, "too much");
    memset(buffer, 'h', (size_t)(request_bytes > 1 << 20 ? request_bytes : 1 << 20));
    for (int i = 0; i < path_count && kind->opens_first; i++) {
        if (kind->forgets && rank == 0) forget(paths[i]);
        must(MPI_File_open(MPI_COMM_WORLD, paths[i], MPI_MODE_RDWR, MPI_INFO_NULL, &files[i]) == MPI_SUCCESS, paths[i]);
        must(MPI_File_get_size(files[i], &file_bytes[i]) == MPI_SUCCESS && file_bytes[i] >= request_bytes, "too short");
    }
}

/* Whoever starts the jobs writes the moment when all of them are ready. */
static double agreed_start(const char *path)
{
    double at = 0;
    meet();
    if (rank == 0) {
        printf("ready %d\n", (int)getpid());
        fflush(stdout);
    }
    while (access(path, F_OK) != 0) nap(0.002);
    FILE *file = fopen(path, "r");
    must(file && fscanf(file, "%lf", &at) == 1, path);
    fclose(file);
    return at;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    must(argc > 3, "usage: harm START-FILE KIND [NAME=VALUE]... PATH...");
    const struct kind *kind = kind_of(argv[2]);
    for (int i = 3; i < argc; i++) set(argv[i]);
    prepare(kind);
    sleep_until(agreed_start(argv[1]) + delay_seconds);

    double begin = now(), end = begin, highest[3];
    for (long phase = 0; phase < phases; phase++) {
        double began = now();
        kind->phase(phase);
        end = now();
        phase_seconds += end - began;
        if (end - began > longest_phase) longest_phase = end - began;
        if (kind->phase != iwrite_phase && phase + 1 < phases) nap(pause_seconds);
    }
    meet();
    double own[] = { end, longest_call, longest_phase };
    MPI_Reduce(own, highest, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("took %.6f %.6f\n", begin, highest[0]);
        printf("call %.6f\nphase %.6f %.6f\n", highest[1], highest[2], phase_seconds / (double)phases);
    }
    for (int i = 0; i < path_count && kind->opens_first; i++) MPI_File_close(&files[i]);
    MPI_Finalize();
    return 0;
}
