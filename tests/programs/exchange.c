/* Collective calls of which it is known who exchanges how much with whom: each file is written or read whole,
 * by ranks that have it in one piece per call or in blocks that alternate, with one aggregator or two.
 * The file's name says which. Needs 4 ranks for the names to be true. */
#include "tally.h"

enum { BLOCK = 8000, CALLS = 8 };

static int rank, size;

static char *buffer;

/* Bytes of a rank in a call: the calls grow, so that speed can be told from latency. */
static MPI_Offset part(int call) { return (MPI_Offset)(call + 1) * 4 * BLOCK; }

static char pattern(MPI_Offset position) { return (char)(position * 7 / 5 + position / BLOCK); }

/* Where in the file byte `i` of a rank's part of a call lies. Every call begins at the file's begin: what Open
 * MPI's aggregators take of a call depends on where it lies. */
static MPI_Offset position(int alternating, int call, MPI_Offset i)
{
    return alternating ? (i / BLOCK * size + rank) * BLOCK + i % BLOCK : rank * part(call) + i;
}

static MPI_Offset offset(int alternating, int call) { return alternating ? 0 : position(0, call, 0); }

static void tally_call(const char *name, const char *direction, MPI_Offset bytes)
{
    char key[TALLY_NAME];
    snprintf(key, sizeof key, "%s|MPIIO_COLL_%sS", name, direction);
    tally(key, 1);
    snprintf(key, sizeof key, "%s|MPIIO_BYTES_%s", name, direction[0] == 'W' ? "WRITTEN" : "READ");
    tally(key, bytes);
}

static MPI_File open_file(const char *name, int alternating, const char *aggregators)
{
    MPI_File file;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_nodes", aggregators);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_cb_read", "enable");
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file) == MPI_SUCCESS);
    if (alternating) {
        MPI_Datatype block, tile;
        MPI_Type_contiguous(BLOCK, MPI_BYTE, &block);
        MPI_Type_create_resized(block, 0, (MPI_Aint)size * BLOCK, &tile);
        MPI_Type_commit(&tile);
        MPI_File_set_view(file, (MPI_Offset)rank * BLOCK, MPI_BYTE, tile, "native", info);
        MPI_Type_free(&tile);
        MPI_Type_free(&block);
    }
    MPI_Info_free(&info);
    return file;
}

static void fill(int alternating, int call)
{
    MPI_Offset i;
    for (i = 0; i < part(call); i++)
        buffer[i] = pattern(position(alternating, call, i));
}

/* With explicit offsets, and with the file pointer. */
static void write_file(const char *name, int alternating, const char *aggregators)
{
    MPI_File file = open_file(name, alternating, aggregators);
    int call;
    for (call = 0; call < CALLS; call++) {
        fill(alternating, call);
        if (call % 2 == 0) {
            MPI_File_write_at_all(file, offset(alternating, call), buffer, (int)part(call), MPI_BYTE,
                                  MPI_STATUS_IGNORE);
        } else {
            MPI_File_seek(file, offset(alternating, call), MPI_SEEK_SET);
            MPI_File_write_all(file, buffer, (int)part(call), MPI_BYTE, MPI_STATUS_IGNORE);
        }
        tally_call(name, "WRITE", part(call));
    }
    MPI_File_close(&file);
}

static void read_file(const char *name, int alternating, const char *aggregators)
{
    MPI_File file = open_file(name, alternating, aggregators);
    int call;
    MPI_Offset i;
    /* What is read is there: written without any collective call. */
    fill(alternating, CALLS - 1);
    MPI_File_write_at(file, offset(alternating, CALLS - 1), buffer, (int)part(CALLS - 1), MPI_BYTE,
                      MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    for (call = 0; call < CALLS; call++) {
        memset(buffer, 0, (size_t)part(call));
        MPI_File_read_at_all(file, offset(alternating, call), buffer, (int)part(call), MPI_BYTE,
                             MPI_STATUS_IGNORE);
        tally_call(name, "READ", part(call));
        for (i = 0; i < part(call); i++)
            REQUIRE(buffer[i] == pattern(position(alternating, call, i)));
    }
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    buffer = malloc((size_t)part(CALLS - 1));
    write_file("pieces_to_one.dat", 0, "1");
    write_file("blocks_to_one.dat", 1, "1");
    write_file("pieces_to_two.dat", 0, "2");
    write_file("blocks_to_two.dat", 1, "2");
    read_file("pieces_from_two.dat", 0, "2");
    read_file("blocks_from_two.dat", 1, "2");
    free(buffer);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
