/* What the program itself knows it did, under the profile's names of counters.
 *
 * A key is a counter of a whole module ("MPIIO_SYNCS") or of one file ("a.dat|POSIX_READS").
 * `tally_print` has rank 0 print one line `TALLY {json}` per rank; the harness adds the lines up and
 * compares every key with the profile. A key that is not there is not compared. */
#ifndef TALLY_H
#define TALLY_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TALLY_KEYS = 1024, TALLY_NAME = 96 };

static struct {
    char name[TALLY_NAME];
    long long value;
} tally_list[TALLY_KEYS];
static int tally_count;

static long long *tally_at(const char *name)
{
    int i;
    for (i = 0; i < tally_count; i++)
        if (strcmp(tally_list[i].name, name) == 0)
            return &tally_list[i].value;
    if (tally_count == TALLY_KEYS || strlen(name) >= TALLY_NAME) {
        fprintf(stderr, "tally: no room for %s\n", name);
        exit(90);
    }
    strcpy(tally_list[tally_count].name, name);
    return &tally_list[tally_count++].value;
}

static inline void tally(const char *name, long long n) { *tally_at(name) += n; }

static inline void tally_max(const char *name, long long n)
{
    long long *value = tally_at(name);
    if (n > *value)
        *value = n;
}

/* The bin of a size, as Darshan has them: each ends with, and includes, its upper limit. */
static inline const char *tally_bin(long long bytes)
{
    static const struct {
        long long limit;
        const char *name;
    } bins[] = {{100, "0_100"},           {1024, "100_1K"},          {10240, "1K_10K"},
                {102400, "10K_100K"},     {1 << 20, "100K_1M"},      {4 << 20, "1M_4M"},
                {10 << 20, "4M_10M"},     {100 << 20, "10M_100M"},   {1 << 30, "100M_1G"}};
    size_t i;
    for (i = 0; i < sizeof bins / sizeof *bins; i++)
        if (bytes <= bins[i].limit)
            return bins[i].name;
    return "1G_PLUS";
}

/* As text: {"A":1,"B":2} */
static char *tally_text(void)
{
    char *text = (char *)malloc((size_t)tally_count * (TALLY_NAME + 24) + 3);
    int i, n = sprintf(text, "{");
    for (i = 0; i < tally_count; i++)
        n += sprintf(text + n, "%s\"%s\":%lld", i ? "," : "", tally_list[i].name, tally_list[i].value);
    sprintf(text + n, "}");
    return text;
}

/* This process alone, for programs that will not live to see the collective version. */
static inline void tally_print_self(void)
{
    char *text = tally_text();
    printf("TALLY %s\n", text);
    fflush(stdout);
    free(text);
}

static inline void tally_print(MPI_Comm comm)
{
    int rank, size, source;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (rank != 0) {
        char *text = tally_text();
        MPI_Send(text, (int)strlen(text) + 1, MPI_CHAR, 0, 4711, comm);
        free(text);
        return;
    }
    tally_print_self();
    for (source = 1; source < size; source++) {
        MPI_Status status;
        int length;
        char *text;
        MPI_Probe(source, 4711, comm, &status);
        MPI_Get_count(&status, MPI_CHAR, &length);
        text = (char *)malloc((size_t)length);
        MPI_Recv(text, length, MPI_CHAR, source, 4711, comm, MPI_STATUS_IGNORE);
        printf("TALLY %s\n", text);
        free(text);
    }
    fflush(stdout);
}

/* Ends the program with a message unless `ok`: a test program checks what it reads back. */
#define REQUIRE(ok)                                                                                \
    do {                                                                                           \
        if (!(ok)) {                                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #ok);                               \
            exit(91);                                                                              \
        }                                                                                          \
    } while (0)

#endif
