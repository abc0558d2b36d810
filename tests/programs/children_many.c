/* Each rank forks more children than records are kept of. Each writes a line to a file of its own. */
#include "append.h"
#include <sys/wait.h>

enum { CHILDREN = 150 };

int main(int argc, char **argv)
{
    int number, status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    put("own", 1);
    for (number = 0; number < CHILDREN; number++) {
        pid_t child = fork();
        if (child == 0) {
            char stem[32];
            snprintf(stem, sizeof stem, "many.%d", number);
            put(stem, 1);
            _exit(0);
        }
        REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    }
    MPI_Finalize();
    return 0;
}
