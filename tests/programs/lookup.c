/* Asks dlsym for MPI's functions, from a handle of the MPI library itself, as language bindings that
 * are not linked to any MPI do. */
#define _GNU_SOURCE
#include "mpiio.h"
#include <dlfcn.h>
#include <link.h>

/* Of the loaded objects, the first that is an MPI library. */
static int is_mpi(struct dl_phdr_info *object, size_t size, void *path)
{
    const char *base = strrchr(object->dlpi_name, '/');
    (void)size;
    if (base == NULL || strncmp(base, "/libmpi", 7) != 0)
        return 0;
    *(const char **)path = object->dlpi_name;
    return 1;
}

#define LOOKUP(name) __typeof__(&name) my_##name = (__typeof__(&name))dlsym(library, #name)

int main(int argc, char **argv)
{
    const char *path = NULL;
    void *library;
    Tallied file = {MPI_FILE_NULL, 0};
    MPI_Request request;
    int rank;
    REQUIRE(dl_iterate_phdr(is_mpi, &path) == 1);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    {
        LOOKUP(MPI_Init);
        LOOKUP(MPI_File_open);
        LOOKUP(MPI_File_write_at_all);
        LOOKUP(PMPI_File_write_at);
        LOOKUP(MPI_File_iread_at);
        LOOKUP(MPI_Wait);
        LOOKUP(MPI_File_close);
        LOOKUP(MPI_Finalize);
        char data[8];
        REQUIRE(dlsym(library, "MPI_No_such_function") == NULL && dlerror() != NULL);
        my_MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        REQUIRE(my_MPI_File_open(MPI_COMM_WORLD, "lookup.dat", MPI_MODE_CREATE | MPI_MODE_RDWR,
                                 MPI_INFO_NULL, &file.handle) == 0);
        tally("MPIIO_COLL_OPENS", 1);
        REQUIRE(my_MPI_File_write_at_all(file.handle, 8 * rank, "lookedup", 8, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        moved(&file, "COLL", 'W', 8);
        REQUIRE(my_PMPI_File_write_at(file.handle, 8 * rank, "looked-u", 8, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
        moved(&file, "INDEP", 'W', 8);
        REQUIRE(my_MPI_File_iread_at(file.handle, 8 * rank, data, 8, MPI_BYTE, &request) == 0);
        moved(&file, "NB", 'R', 8);
        REQUIRE(my_MPI_Wait(&request, MPI_STATUS_IGNORE) == 0 && memcmp(data, "looked-u", 8) == 0);
        REQUIRE(my_MPI_File_close(&file.handle) == 0);
        tally_print(MPI_COMM_WORLD);
        my_MPI_Finalize();
    }
    return 0;
}
