/* fork, vfork, system(), popen() and every form of exec, inside an MPI program: what children do as the same
 * program is counted beside what the rank did, and what other programs do is not counted. */
#define _GNU_SOURCE
#include "append.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Replaces the process by `shell`, in one of the forms there are; comes back when there is no such program.
 * The shell fails unless it gets its arguments whole and, where one is passed, the environment. */
enum { FORMS = 9 };
static int replace(int form, const char *shell, const char *script)
{
    char *arguments[] = {"sh", "-c", (char *)script, "name", "a", "b", "c", NULL};
    char *environment[] = {"LETTER=x", NULL};
    switch (form) {
    case 0: return execve(shell, arguments, environment);
    case 1: return execv(shell, arguments);
    case 2: return execvp(shell, arguments);
    case 3: return execvpe(shell, arguments, environment);
    case 4: return fexecve(open(shell, O_RDONLY | O_CLOEXEC), arguments, environment);
    case 5: return execveat(AT_FDCWD, shell, arguments, environment, 0);
    case 6: return execl(shell, "sh", "-c", script, "name", "a", "b", "c", (char *)NULL);
    case 7: return execlp(shell, "sh", "-c", script, "name", "a", "b", "c", (char *)NULL);
    default: return execle(shell, "sh", "-c", script, "name", "a", "b", "c", (char *)NULL, environment);
    }
}

static void replace_children(void)
{
    const char *script = "test \"$*$LETTER\" = 'a b cx' && exit 3";
    int form, status;
    pid_t child;
    setenv("LETTER", "x", 1);
    for (form = 0; form < FORMS; form++) {
        child = form % 2 ? fork() : vfork();
        if (child == 0) {
            replace(form, "/bin/sh", script);
            _exit(9);
        }
        REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
        errno = 0;
        REQUIRE(replace(form, "/nowhere/sh", script) == -1 && errno == (form == 4 ? EINVAL : ENOENT));
    }
}

int main(int argc, char **argv)
{
    char command[128], line[64] = "", key[TALLY_NAME];
    int status;
    pid_t child;
    FILE *pipe;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    child = vfork();
    if (child == 0) /* shares the memory of a rank that has no record yet */
        _exit(6);
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 6);
    put("parent", 3);
    replace_children();

    child = fork();
    if (child == 0) {
        put("child", 5);
        _exit(7);
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);

    child = fork();
    if (child == 0) { /* leaves through exit(): its handlers must not end the parent's record */
        put("child", 1);
        exit(8);
    }
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 8);

    child = fork();
    if (child == 0) {
        snprintf(command, sizeof command, "echo executed >exec.%d.txt", rank);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(9);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);

    snprintf(command, sizeof command, "printf 'system\\n' >system.%d.txt", rank);
    REQUIRE(system(command) == 0);
    pipe = popen("echo piped", "r");
    REQUIRE(fgets(line, sizeof line, pipe) != NULL && strcmp(line, "piped\n") == 0);
    pclose(pipe);

    put("parent", 2);
    snprintf(key, sizeof key, "parent.%d.dat|POSIX_WRITES", rank);
    tally(key, 5);
    snprintf(key, sizeof key, "parent.%d.dat|POSIX_BYTES_WRITTEN", rank);
    tally(key, 50);
    snprintf(key, sizeof key, "parent.%d.dat|POSIX_OPENS", rank);
    tally(key, 2);
    snprintf(key, sizeof key, "child.%d.dat|POSIX_WRITES", rank);
    tally(key, 6);
    snprintf(key, sizeof key, "child.%d.dat|POSIX_BYTES_WRITTEN", rank);
    tally(key, 60);
    snprintf(key, sizeof key, "child.%d.dat|POSIX_OPENS", rank);
    tally(key, 2);
    tally("POSIX_WRITES", 11);
    tally("MPIIO_COLL_OPENS", 0);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
