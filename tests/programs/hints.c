/* hints: creates `ours` without a hint, `own` with cb_nodes of its own, writes both in turns of the ranks, and
 * reads them back. Rank 0 prints the hints that the MPI library says it uses. */
#include "tally.h"

enum { BLOCK = 65536, BLOCKS = 8 };

static void print_hint(MPI_File file, const char *name, const char *key)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int found = 0, rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File_get_info(file, &info);
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &found);
    MPI_Info_free(&info);
    if (rank == 0)
        printf("HINT %s %s %s\n", name, key, found ? value : "-");
}

static void use(const char *name, MPI_Info info)
{
    static char block[BLOCK], back[BLOCK];
    MPI_File file;
    int rank, size, i;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(block, 'a' + rank, BLOCK);
    REQUIRE(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file) == 0);
    for (i = 0; i < BLOCKS; i++) {
        MPI_Offset at = ((MPI_Offset)i * size + rank) * BLOCK;
        REQUIRE(MPI_File_write_at_all(file, at, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        REQUIRE(MPI_File_read_at_all(file, at, back, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        REQUIRE(memcmp(block, back, BLOCK) == 0);
    }
    print_hint(file, name, "cb_nodes");
    REQUIRE(MPI_File_close(&file) == 0);
}

int main(int argc, char **argv)
{
    MPI_Info info;
    MPI_Init(&argc, &argv);
    use("ours", MPI_INFO_NULL);
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_nodes", "1");
    use("own", info);
    MPI_Info_free(&info);
    MPI_Finalize();
    return 0;
}
