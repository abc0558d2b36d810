/* host LIBRARY [ARGUMENTS]: runs the main function of a program that was built as a shared library,
 * loaded so that nobody else sees its symbols or its MPI's (RTLD_LOCAL), as Python, R and Julia do. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*program)(int, char **);
    if (library == NULL) {
        fprintf(stderr, "host: %s\n", dlerror());
        return 92;
    }
    *(void **)&program = dlsym(library, "main");
    return program(argc - 1, argv + 1);
}
