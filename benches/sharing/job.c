/* A job as IO-SETS (section 2) has it: compute for a while, write a volume collectively, again and again.
 *
 *   job FILE START END FIRST COMPUTE VOLUME REQUEST [PAUSE]
 *
 * FILE     written from its beginning to its end over and over, so that phases allocate nothing
 * START    when to begin, END when to stop: seconds of the monotonic clock, which all processes of a machine share
 * FIRST    seconds computed before the first phase, COMPUTE before every other; computing is sleeping
 * VOLUME   bytes of a phase, over all ranks
 * REQUEST  bytes of a collective call, per rank
 * PAUSE    seconds between two calls, 0 if not given: a job that cannot use all of the storage
 *
 * Rank 0 prints, in seconds of the same clock and in bytes since START, what happened:
 *   compute BEGIN END | moved TIME BYTES (after a call; at most every 5 ms) | phase BEGIN END
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"

#define NOTE_SECONDS 0.005

static void must(int rc, const char *what)
{
    if (rc == MPI_SUCCESS) return;
    fprintf(stderr, "job: %s failed\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What happened is kept and printed at the end: a line written to a pipe meanwhile might wait for its reader. */
struct line { const char *what; double a, b; };
static struct line *lines;
static size_t line_count, line_room;

static void note(const char *what, double a, double b)
{
    if (line_count == line_room) {
        line_room = line_room ? 2 * line_room : 1024;
        lines = realloc(lines, line_room * sizeof *lines);
        if (!lines) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    lines[line_count++] = (struct line){ what, a, b };
}

static int rank, ranks;
static MPI_File file;
static char *buffer;
static long long request_bytes, moved_bytes, file_bytes;
static double pause_seconds, noted;

/* The ranks stop after the same request: rank 0 says when. */
static int is_over(double end)
{
    int over = now() >= end;
    MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return over;
}

static void write_phase(long long volume_bytes, double end)
{
    long long call_bytes = request_bytes * ranks;
    double begin = now();
    for (long long done = 0; done < volume_bytes && !is_over(end); done += call_bytes) {
        MPI_Offset at = done % file_bytes + rank * request_bytes;
        must(MPI_File_write_at_all(file, at, buffer, (int)request_bytes, MPI_BYTE, MPI_STATUS_IGNORE), "write");
        moved_bytes += call_bytes;
        if (now() >= noted + NOTE_SECONDS) note("moved", noted = now(), (double)moved_bytes);
        if (pause_seconds > 0) sleep_until(now() + pause_seconds);
    }
    must(MPI_File_sync(file), "sync");
    note("moved", now(), (double)moved_bytes);
    note("phase", begin, now());
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 8 && argc != 9) {
        if (rank == 0) fprintf(stderr, "usage: job FILE START END FIRST COMPUTE VOLUME REQUEST [PAUSE]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double start = atof(argv[2]), end = atof(argv[3]), compute = atof(argv[4]);
    long long volume_bytes = atoll(argv[6]);
    request_bytes = atoll(argv[7]);
    pause_seconds = argc == 9 ? atof(argv[8]) : 0;
    buffer = malloc((size_t)request_bytes);
    if (!buffer) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(buffer, 'w', (size_t)request_bytes);
    must(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    MPI_Offset size;
    must(MPI_File_get_size(file, &size), "get_size");
    /* Whole calls only. */
    file_bytes = size - size % (request_bytes * ranks);
    if (file_bytes == 0) {
        if (rank == 0) fprintf(stderr, "job: %s is shorter than a call\n", argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && now() > start) fprintf(stderr, "job: %.1f s late\n", now() - start);
    double ready = start;
    while (!is_over(end)) {
        sleep_until(ready + compute < end ? ready + compute : end);
        note("compute", ready, now());
        compute = atof(argv[5]);
        write_phase(volume_bytes, end);
        ready = now();
    }
    MPI_File_close(&file);
    for (size_t i = 0; rank == 0 && i < line_count; i++)
        printf("%s %.6f %.*f\n", lines[i].what, lines[i].a, lines[i].what[0] == 'm' ? 0 : 6, lines[i].b);
    free(lines);
    free(buffer);
    MPI_Finalize();
    return 0;
}
