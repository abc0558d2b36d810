/* lost SECONDS: leaves a write by siglongjmp, so that it never comes back, and computes. */
#include "tally.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

enum { BYTES = 16 << 20 };
static sigjmp_buf before;

static void leave(int number)
{
    siglongjmp(before, number);
}

int main(int argc, char **argv)
{
    static char data[BYTES], name[32];
    int descriptor, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "lost.%d", rank);
    descriptor = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    REQUIRE(descriptor >= 0 && signal(SIGALRM, leave) != SIG_ERR);
    /* Most of the time goes into writing: that is where the signal finds it. */
    if (sigsetjmp(before, 1) == 0) {
        ualarm(300000, 0);
        for (;;)
            REQUIRE(pwrite(descriptor, data, BYTES, 0) == BYTES);
    }
    printf("COMPUTING\n");
    fflush(stdout);
    sleep((unsigned)atoi(argv[1]));
    MPI_Finalize();
    return 0;
}
