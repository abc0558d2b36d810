// Error handlers that throw: the exceptions pass through MPI, and through whatever stands before it. What the program does
// after each is its own again.
#include "mpiio.h"
#include <fcntl.h>
#include <string>
#include <unistd.h>

struct Error {
    std::string of;
};

static void throw_file(MPI_File *, int *, ...) { throw Error{"a file"}; }
static void throw_comm(MPI_Comm *, int *, ...) { throw Error{"a communicator"}; }

static std::string own;
static int rank, descriptor;

template <typename Call> static void attempt(const char *what, Call call)
{
    bool caught = false;
    try {
        call();
    } catch (const Error &error) {
        caught = true;
        if (rank == 0)
            printf("%s: an error of %s\n", what, error.of.c_str());
    }
    if (!caught && rank == 0)
        printf("%s: nothing thrown\n", what);
    REQUIRE(write(descriptor, "own", 3) == 3);
    tally((own + "|POSIX_WRITES").c_str(), 1);
    tally((own + "|POSIX_BYTES_WRITTEN").c_str(), 3);
    tally((own + "|POSIX_MPI_BYTES_WRITTEN").c_str(), 0);
}

int main(int argc, char **argv)
{
    MPI_Errhandler of_files, of_comms;
    MPI_Request request;
    MPI_File none = MPI_FILE_NULL;
    char data[8] = "written";

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    own = "own." + std::to_string(rank) + ".dat";
    descriptor = open(own.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    MPI_File_create_errhandler(throw_file, &of_files);
    MPI_Comm_create_errhandler(throw_comm, &of_comms);
    MPI_File_set_errhandler(MPI_FILE_NULL, of_files);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, of_comms);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, of_comms);

    Tallied file = open_tallied(MPI_COMM_SELF, ("mpi." + std::to_string(rank) + ".dat").c_str(),
                                MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL);
    const auto read = [&] { MPI_File_read_at(file.handle, 0, data, 8, MPI_BYTE, MPI_STATUS_IGNORE); };
    const auto read_all = [&] { MPI_File_read_at_all(file.handle, 0, data, 8, MPI_BYTE, MPI_STATUS_IGNORE); };
    const auto open = [&] { MPI_File_open(MPI_COMM_SELF, "/no/file", MPI_MODE_RDONLY, MPI_INFO_NULL, &none); };
    attempt("open", open);
    attempt("delete", [] { MPI_File_delete("/no/file", MPI_INFO_NULL); });
    for (int i = 0; i < 3; i++) { // the first goes another way than those that are like it
        attempt("read_at", read);
        attempt("read_at_all", read_all);
    }
    attempt("iread_at", [&] { MPI_File_iread_at(file.handle, 0, data, 8, MPI_BYTE, &request); });

    REQUIRE(MPI_File_iwrite_at(file.handle, 0, data, 8, MPI_BYTE, &request) == 0);
    attempt("Wait", [] { MPI_Wait(NULL, MPI_STATUS_IGNORE); });
    attempt("Waitall", [&] { MPI_Waitall(-1, &request, MPI_STATUSES_IGNORE); });
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    moved(&file, "NB", 'W', 8);

    REQUIRE(MPI_File_write_at(file.handle, 8, data, 8, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(&file, "INDEP", 'W', 8);
    close_tallied(&file);
    close(descriptor);
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
}
