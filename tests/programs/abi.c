/* What this MPI's own mpi.h says, next to what a preloaded libweir.so takes for granted.
 *
 * Prints `NAME value` lines. When the process has a `weir_abi_table`, every line of it must be one
 * of ours with the same value, and the lines Weir cannot do without must be there; exit code 1 if not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined OPEN_MPI
static const char abi[] = "Open MPI";
#elif defined MPI_ABI
static const char abi[] = "standard";
#else
static const char abi[] = "MPICH";
#endif

typedef struct {
    const char *name;
    uintptr_t value;
    int required;
} Row;

static int check(const Row *rows, size_t count, char *table)
{
    char *line, *rest = table;
    size_t i, wrong = 0;
    unsigned char *seen = calloc(count, 1);
    while ((line = strtok_r(rest, "\n", &rest)) != NULL) {
        char *value = strchr(line, ' ');
        if (value == NULL)
            continue;
        *value++ = '\0';
        if (strcmp(line, "abi") == 0) {
            if (strcmp(value, abi) != 0)
                fprintf(stderr, "abi: Weir says %s, mpi.h is %s\n", value, abi), wrong++;
            continue;
        }
        for (i = 0; i < count && strcmp(rows[i].name, line) != 0; i++)
            ;
        if (i == count) {
            fprintf(stderr, "abi: Weir knows %s, this probe does not\n", line);
            wrong++;
        } else {
            uintptr_t theirs = (uintptr_t)(value[0] == '-' ? strtoll(value, NULL, 0)
                                                           : (long long)strtoull(value, NULL, 0));
            seen[i] = 1;
            if (theirs != rows[i].value)
                fprintf(stderr, "abi: %s is %#lx, Weir has %s\n", line, (unsigned long)rows[i].value, value), wrong++;
        }
    }
    for (i = 0; i < count; i++)
        if (rows[i].required && !seen[i])
            fprintf(stderr, "abi: Weir says nothing about %s\n", rows[i].name), wrong++;
    free(seen);
    return wrong != 0;
}

#define SIZE(type, required) {"sizeof_" #type, sizeof(type), required}
#define OFFSET(field, required) {"offset_" #field, offsetof(MPI_Status, field), required}
#define VALUE(constant, required) {#constant, (uintptr_t)(constant), required}

int main(int argc, char **argv)
{
    const Row rows[] = {
        SIZE(MPI_Request, 1),
        SIZE(MPI_Status, 1),
        SIZE(MPI_Comm, 1),
        SIZE(MPI_File, 0),
        SIZE(MPI_Info, 0),
        SIZE(MPI_Datatype, 0),
        SIZE(MPI_Offset, 0),
        SIZE(MPI_Count, 0),
        OFFSET(MPI_SOURCE, 0),
        OFFSET(MPI_TAG, 0),
        OFFSET(MPI_ERROR, 1),
        VALUE(MPI_COMM_WORLD, 1),
        VALUE(MPI_COMM_SELF, 0),
        VALUE(MPI_COMM_NULL, 1),
        VALUE(MPI_REQUEST_NULL, 1),
        VALUE(MPI_FILE_NULL, 1),
        VALUE(MPI_INFO_NULL, 1),
        VALUE(MPI_BYTE, 1),
        VALUE(MPI_CHAR, 0),
        VALUE(MPI_INT, 0),
        VALUE(MPI_DOUBLE, 0),
        VALUE(MPI_STATUS_IGNORE, 1),
        VALUE(MPI_STATUSES_IGNORE, 1),
        VALUE(MPI_UNDEFINED, 1),
        VALUE(MPI_SUCCESS, 0),
        VALUE(MPI_ERR_INTERN, 1),
        VALUE(MPI_THREAD_MULTIPLE, 0),
        VALUE(MPI_MODE_RDONLY, 0),
        VALUE(MPI_MODE_WRONLY, 0),
        VALUE(MPI_MODE_RDWR, 0),
        VALUE(MPI_MODE_DELETE_ON_CLOSE, 0),
        VALUE(MPI_MODE_UNIQUE_OPEN, 0),
        VALUE(MPI_MODE_EXCL, 0),
        VALUE(MPI_MODE_APPEND, 0),
        VALUE(MPI_MODE_CREATE, 1),
        VALUE(MPI_MODE_SEQUENTIAL, 1),
        VALUE(MPI_MAX_LIBRARY_VERSION_STRING, 0),
        VALUE(MPI_COMM_TYPE_SHARED, 0),
    };
    const size_t count = sizeof rows / sizeof *rows;
    int (*describe)(char *, size_t);
    int wrong = 0;
    size_t i;
    MPI_Init(&argc, &argv);
    printf("abi %s\n", abi);
    for (i = 0; i < count; i++)
        printf("%s %#lx\n", rows[i].name, (unsigned long)rows[i].value);
    *(void **)&describe = dlsym(RTLD_DEFAULT, "weir_abi_table");
    if (describe != NULL) {
        char table[8192] = "";
        describe(table, sizeof table);
        wrong = check(rows, count, table);
    } else if (argc > 1 && strcmp(argv[1], "required") == 0) {
        fprintf(stderr, "abi: libweir.so is not here\n");
        wrong = 1;
    }
    MPI_Finalize();
    return wrong;
}
