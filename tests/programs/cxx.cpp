// The usual C++ way: MPI's C functions, wrapped in classes of one's own, and streams.
#include "mpiio.h"
#include <fstream>
#include <string>
#include <vector>

class File {
public:
    File(MPI_Comm comm, const std::string &name, int mode)
        : file(open_tallied(comm, name.c_str(), mode, MPI_INFO_NULL)) {}
    ~File() { close_tallied(&file); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    void write_all(MPI_Offset offset, const std::vector<double> &data)
    {
        REQUIRE(MPI_File_write_at_all(file.handle, offset, data.data(), static_cast<int>(data.size()),
                                      MPI_DOUBLE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        moved(&file, "COLL", 'W', static_cast<long long>(data.size() * sizeof(double)));
    }

    std::vector<double> read(MPI_Offset offset, int count)
    {
        std::vector<double> data(static_cast<size_t>(count));
        MPI_Request request;
        REQUIRE(MPI_File_iread_at(file.handle, offset, data.data(), count, MPI_DOUBLE, &request) == MPI_SUCCESS);
        REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        moved(&file, "NB", 'R', static_cast<long long>(data.size() * sizeof(double)));
        return data;
    }

private:
    Tallied file;
};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    {
        File file(MPI_COMM_WORLD, "cxx.dat", MPI_MODE_CREATE | MPI_MODE_RDWR);
        const std::vector<double> data(100, rank + 0.5);
        const MPI_Offset mine = static_cast<MPI_Offset>(rank * data.size() * sizeof(double));
        file.write_all(mine, data);
        REQUIRE(file.read(mine, 100) == data);
    }
    {
        const std::string name = "stream." + std::to_string(rank) + ".txt";
        std::ofstream stream(name);
        stream << "rank " << rank << std::endl;
        tally((name + "|STDIO_OPENS").c_str(), 1);
        tally((name + "|POSIX_WRITES").c_str(), 1); // the library's streams write to the descriptor themselves
        tally((name + "|POSIX_BYTES_WRITTEN").c_str(), 7);
    }
    tally_print(MPI_COMM_WORLD);
    MPI_Finalize();
}
