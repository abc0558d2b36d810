/* Every form of a data call, once. Included twice by everything.c: with FORM(f) = f and
 * COUNT = int, then with FORM(f) = f##_c and COUNT = MPI_Count where the MPI is of version 4. */

/* With an offset of their own. */
static void FORM(explicit_offsets)(Tallied *file)
{
    MPI_File fh = file->handle;
    MPI_Status status;
    char *buffer = block();
    MPI_Offset mine = BLOCK * rank;

    fill(buffer, 1);
    REQUIRE(FORM(MPI_File_write_at)(fh, mine, buffer, BLOCK, MPI_BYTE, &status) == 0);
    REQUIRE(received(&status) == BLOCK);
    moved(file, "INDEP", 'W', BLOCK);
    fill(buffer, 2);
    REQUIRE(FORM(MPI_File_write_at_all)(fh, row() + mine, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(file, "COLL", 'W', BLOCK);
    REQUIRE(FORM(MPI_File_read_at)(fh, mine, buffer, BLOCK, MPI_BYTE, &status) == 0);
    REQUIRE(received(&status) == BLOCK && filled(buffer, 1));
    moved(file, "INDEP", 'R', BLOCK);
    REQUIRE(FORM(MPI_File_read_at_all)(fh, row() + mine, buffer, BLOCK, MPI_BYTE, &status) == 0);
    REQUIRE(received(&status) == BLOCK && filled(buffer, 2));
    moved(file, "COLL", 'R', BLOCK);
    free(buffer);
}

/* At each process's own file pointer. */
static void FORM(own_pointer)(Tallied *file)
{
    MPI_File fh = file->handle;
    char *buffer = block();

    MPI_File_seek(fh, BLOCK * rank, MPI_SEEK_SET);
    fill(buffer, 3);
    REQUIRE(FORM(MPI_File_write)(fh, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(file, "INDEP", 'W', BLOCK);
    MPI_File_seek(fh, row() + BLOCK * rank, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_write_all)(fh, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(file, "COLL", 'W', BLOCK);
    MPI_File_seek(fh, BLOCK * rank, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_read)(fh, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    REQUIRE(filled(buffer, 3));
    moved(file, "INDEP", 'R', BLOCK);
    MPI_File_seek(fh, row() + BLOCK * rank, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_read_all)(fh, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    REQUIRE(filled(buffer, 3));
    moved(file, "COLL", 'R', BLOCK);
    free(buffer);
}

/* At the shared file pointer. Who comes first is open, so all write the same bytes. */
static void FORM(shared_pointer)(Tallied *file)
{
    MPI_File fh = file->handle;
    MPI_Request request;
    char *buffer = block();

    memset(buffer, 's', BLOCK);
    REQUIRE(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET) == 0);
    REQUIRE(FORM(MPI_File_write_shared)(fh, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(file, "INDEP", 'W', BLOCK);
    MPI_Barrier(MPI_COMM_WORLD);
    REQUIRE(FORM(MPI_File_write_ordered)(fh, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(file, "COLL", 'W', BLOCK);
    MPI_Barrier(MPI_COMM_WORLD);
    REQUIRE(FORM(MPI_File_iwrite_shared)(fh, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'W', BLOCK);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    REQUIRE(FORM(MPI_File_write_ordered_begin)(fh, buffer, BLOCK, MPI_BYTE) == 0);
    moved(file, "SPLIT", 'W', BLOCK);
    REQUIRE(MPI_File_write_ordered_end(fh, buffer, MPI_STATUS_IGNORE) == 0);
    MPI_Barrier(MPI_COMM_WORLD);

    REQUIRE(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET) == 0);
    REQUIRE(FORM(MPI_File_read_shared)(fh, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(file, "INDEP", 'R', BLOCK);
    MPI_Barrier(MPI_COMM_WORLD);
    REQUIRE(FORM(MPI_File_read_ordered)(fh, buffer, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE) == 0);
    moved(file, "COLL", 'R', BLOCK);
    MPI_Barrier(MPI_COMM_WORLD);
    REQUIRE(FORM(MPI_File_iread_shared)(fh, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'R', BLOCK);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    REQUIRE(FORM(MPI_File_read_ordered_begin)(fh, buffer, BLOCK, MPI_BYTE) == 0);
    moved(file, "SPLIT", 'R', BLOCK);
    REQUIRE(MPI_File_read_ordered_end(fh, buffer, MPI_STATUS_IGNORE) == 0);
    REQUIRE(buffer[0] == 's' && buffer[BLOCK - 1] == 's');
    free(buffer);
}

static void FORM(nonblocking)(Tallied *file)
{
    MPI_File fh = file->handle;
    MPI_Request request;
    MPI_Status status;
    char *buffer = block();
    MPI_Offset mine = BLOCK * rank;

    fill(buffer, 4);
    REQUIRE(FORM(MPI_File_iwrite_at)(fh, mine, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'W', BLOCK);
    REQUIRE(MPI_Wait(&request, &status) == 0 && received(&status) == BLOCK);
    MPI_File_seek(fh, row() + mine, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_iwrite)(fh, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'W', BLOCK);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0 && request == MPI_REQUEST_NULL);
    REQUIRE(FORM(MPI_File_iwrite_at_all)(fh, 2 * row() + mine, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'W', BLOCK);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    MPI_File_seek(fh, 3 * row() + mine, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_iwrite_all)(fh, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'W', BLOCK);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);

    memset(buffer, 0, BLOCK);
    REQUIRE(FORM(MPI_File_iread_at)(fh, mine, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'R', BLOCK);
    REQUIRE(MPI_Wait(&request, &status) == 0 && received(&status) == BLOCK && filled(buffer, 4));
    MPI_File_seek(fh, row() + mine, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_iread)(fh, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'R', BLOCK);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0 && filled(buffer, 4));
    REQUIRE(FORM(MPI_File_iread_at_all)(fh, 2 * row() + mine, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'R', BLOCK);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0 && filled(buffer, 4));
    MPI_File_seek(fh, 3 * row() + mine, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_iread_all)(fh, buffer, BLOCK, MPI_BYTE, &request) == 0);
    moved(file, "NB", 'R', BLOCK);
    REQUIRE(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0 && filled(buffer, 4));
    free(buffer);
}

static void FORM(split)(Tallied *file)
{
    MPI_File fh = file->handle;
    MPI_Status status;
    char *buffer = block();
    MPI_Offset mine = BLOCK * rank;

    fill(buffer, 5);
    REQUIRE(FORM(MPI_File_write_at_all_begin)(fh, mine, buffer, BLOCK, MPI_BYTE) == 0);
    moved(file, "SPLIT", 'W', BLOCK);
    REQUIRE(MPI_File_write_at_all_end(fh, buffer, &status) == 0 && received(&status) == BLOCK);
    MPI_File_seek(fh, row() + mine, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_write_all_begin)(fh, buffer, BLOCK, MPI_BYTE) == 0);
    moved(file, "SPLIT", 'W', BLOCK);
    REQUIRE(MPI_File_write_all_end(fh, buffer, MPI_STATUS_IGNORE) == 0);

    REQUIRE(FORM(MPI_File_read_at_all_begin)(fh, mine, buffer, BLOCK, MPI_BYTE) == 0);
    moved(file, "SPLIT", 'R', BLOCK);
    REQUIRE(MPI_File_read_at_all_end(fh, buffer, &status) == 0 && filled(buffer, 5));
    MPI_File_seek(fh, row() + mine, MPI_SEEK_SET);
    REQUIRE(FORM(MPI_File_read_all_begin)(fh, buffer, BLOCK, MPI_BYTE) == 0);
    moved(file, "SPLIT", 'R', BLOCK);
    REQUIRE(MPI_File_read_all_end(fh, buffer, MPI_STATUS_IGNORE) == 0 && filled(buffer, 5));
    free(buffer);
}

static void FORM(every_form)(void)
{
    static const struct {
        const char *name;
        void (*run)(Tallied *);
    } groups[] = {
        {"explicit", FORM(explicit_offsets)}, {"pointer", FORM(own_pointer)},
        {"shared", FORM(shared_pointer)},     {"nonblocking", FORM(nonblocking)},
        {"split", FORM(split)},
    };
    size_t i;
    for (i = 0; i < sizeof groups / sizeof *groups; i++) {
        char name[64];
        Tallied file;
        snprintf(name, sizeof name, "%s%s.dat", groups[i].name, SUFFIX);
        file = open_tallied(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
        groups[i].run(&file);
        close_tallied(&file);
    }
}

#undef FORM
#undef COUNT
#undef SUFFIX
