/* A file handle that tallies: each data call on it is told to `moved`. */
#ifndef MPIIO_H
#define MPIIO_H

#include "tally.h"

typedef struct {
    MPI_File handle;
    int direction; /* of the last data call: 0 none, 'R', 'W' */
} Tallied;

/* One data call of a kind (INDEP, COLL, NB, SPLIT) in a direction ('R', 'W'). */
static inline void moved(Tallied *file, const char *kind, int direction, long long bytes)
{
    const char *noun = direction == 'W' ? "WRITE" : "READ";
    char key[TALLY_NAME];
    snprintf(key, sizeof key, "MPIIO_%s_%sS", kind, noun);
    tally(key, 1);
    tally(direction == 'W' ? "MPIIO_BYTES_WRITTEN" : "MPIIO_BYTES_READ", bytes);
    snprintf(key, sizeof key, "MPIIO_SIZE_%s_AGG_%s", noun, tally_bin(bytes));
    tally(key, 1);
    tally("MPIIO_RW_SWITCHES", file->direction != 0 && file->direction != direction);
    file->direction = direction;
}

static inline Tallied open_tallied(MPI_Comm comm, const char *name, int mode, MPI_Info info)
{
    Tallied file = {MPI_FILE_NULL, 0};
    int size;
    REQUIRE(MPI_File_open(comm, name, mode, info, &file.handle) == MPI_SUCCESS);
    MPI_Comm_size(comm, &size);
    tally(size > 1 ? "MPIIO_COLL_OPENS" : "MPIIO_INDEP_OPENS", 1);
    tally("MPIIO_HINTS", info != MPI_INFO_NULL);
    return file;
}

static inline void close_tallied(Tallied *file)
{
    REQUIRE(MPI_File_close(&file->handle) == MPI_SUCCESS);
    REQUIRE(file->handle == MPI_FILE_NULL);
}

#endif
