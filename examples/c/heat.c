/* Heat spreads over a square plate. A small but complete MPI program that checkpoints and restarts.
 *
 * The plate is cut into rectangles, one per process. Each step needs the neighbours' edges (a halo of
 * one cell); every INTERVAL steps all processes write the whole field to one file, collectively, each
 * its own rectangle. With -r the run goes on from the checkpoint, with any number of processes.
 *
 *   mpicc heat.c -o heat                          mpirun -n 4 ./heat -n 512 -s 200 -i 50
 *   mpicc -DUSE_WEIR -I…/include heat.c -o heat   the same, telling Weir where its phases are
 *
 * The file: four 64-bit integers (a magic number, cells per side, steps done, 0), then the field, row
 * by row, as doubles. The examples in the other languages write the very same bytes. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef USE_WEIR
#ifndef LINK_WEIR
#define WEIR_INLINE /* runs without Weir too */
#endif
#include "weir.h"
#else
#define weir_set_application(name) ((void)0)
#define weir_phase_begin(name) ((void)0)
#define weir_phase_end() ((void)0)
#endif

enum { MAGIC = 0x54414548 }; /* "HEAT" */
enum { HEADER_BYTES = 4 * sizeof(int64_t) };

typedef struct {
    int cells; /* per side of the plate */
    int steps;
    int interval;
    int restart;
    const char *file;
} Options;

/* This process's rectangle. `field` has a halo: row 0 and row height+1, column 0 and column width+1. */
typedef struct {
    MPI_Comm comm;
    int cells, top, left, height, width;
    int up, down, west, east; /* neighbours */
    double *field, *next;
    MPI_Datatype column;   /* a column of the rectangle, in memory */
    MPI_Datatype interior; /* the rectangle without its halo, in memory */
    MPI_Datatype place;    /* the rectangle within the plate, in the file */
} Plate;

static double *cell(const Plate *p, double *field, int row, int column)
{
    return &field[(size_t)row * (size_t)(p->width + 2) + (size_t)column];
}

/* Where part `index` of `parts` begins. */
static int part_begin(int cells, int parts, int index) { return (int)((int64_t)cells * index / parts); }

static MPI_Datatype subarray(int rows, int columns, int height, int width, int top, int left)
{
    int sizes[2] = {rows, columns}, sub[2] = {height, width}, start[2] = {top, left};
    MPI_Datatype type;
    MPI_Type_create_subarray(2, sizes, sub, start, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static Plate cut_plate(int cells)
{
    Plate p;
    int size, rank, dims[2] = {0, 0}, periodic[2] = {0, 0}, at[2];
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periodic, 0, &p.comm);
    MPI_Comm_rank(p.comm, &rank);
    MPI_Cart_coords(p.comm, rank, 2, at);
    MPI_Cart_shift(p.comm, 0, 1, &p.up, &p.down);
    MPI_Cart_shift(p.comm, 1, 1, &p.west, &p.east);
    p.cells = cells;
    p.top = part_begin(cells, dims[0], at[0]);
    p.left = part_begin(cells, dims[1], at[1]);
    p.height = part_begin(cells, dims[0], at[0] + 1) - p.top;
    p.width = part_begin(cells, dims[1], at[1] + 1) - p.left;
    p.field = calloc((size_t)(p.height + 2) * (size_t)(p.width + 2), sizeof(double));
    p.next = calloc((size_t)(p.height + 2) * (size_t)(p.width + 2), sizeof(double));
    MPI_Type_vector(p.height, 1, p.width + 2, MPI_DOUBLE, &p.column);
    MPI_Type_commit(&p.column);
    p.interior = subarray(p.height + 2, p.width + 2, p.height, p.width, 1, 1);
    p.place = subarray(cells, cells, p.height, p.width, p.top, p.left);
    return p;
}

static void free_plate(Plate *p)
{
    MPI_Type_free(&p->column);
    MPI_Type_free(&p->interior);
    MPI_Type_free(&p->place);
    MPI_Comm_free(&p->comm);
    free(p->field);
    free(p->next);
}

/* A hot rectangle, off the middle. */
static void heat_up(Plate *p)
{
    int row, column, n = p->cells;
    for (row = 0; row < p->height; row++)
        for (column = 0; column < p->width; column++) {
            int y = p->top + row, x = p->left + column;
            int hot = y >= n / 8 && y < n / 2 && x >= n / 4 && x < 5 * n / 8;
            *cell(p, p->field, row + 1, column + 1) = hot ? 100.0 : 0.0;
        }
}

static void exchange_halo(Plate *p)
{
    int h = p->height, w = p->width;
    double *f = p->field;
    MPI_Sendrecv(cell(p, f, 1, 1), w, MPI_DOUBLE, p->up, 0, cell(p, f, h + 1, 1), w, MPI_DOUBLE,
                 p->down, 0, p->comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(cell(p, f, h, 1), w, MPI_DOUBLE, p->down, 1, cell(p, f, 0, 1), w, MPI_DOUBLE, p->up,
                 1, p->comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(cell(p, f, 1, 1), 1, p->column, p->west, 2, cell(p, f, 1, w + 1), 1, p->column,
                 p->east, 2, p->comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(cell(p, f, 1, w), 1, p->column, p->east, 3, cell(p, f, 1, 0), 1, p->column, p->west,
                 3, p->comm, MPI_STATUS_IGNORE);
}

static void step(Plate *p)
{
    double *swap;
    int row, column;
    exchange_halo(p);
    for (row = 1; row <= p->height; row++)
        for (column = 1; column <= p->width; column++) {
            double here = *cell(p, p->field, row, column);
            double around = *cell(p, p->field, row, column - 1) + *cell(p, p->field, row, column + 1) +
                            *cell(p, p->field, row - 1, column) + *cell(p, p->field, row + 1, column);
            *cell(p, p->next, row, column) = here + 0.2 * (around - 4.0 * here);
        }
    swap = p->field;
    p->field = p->next;
    p->next = swap;
}

/* MPI-IO returns its errors; a program that goes on without its checkpoint would be worse off. */
static void check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "heat: %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void write_checkpoint(Plate *p, const char *name, int64_t steps_done)
{
    int64_t header[4] = {MAGIC, p->cells, steps_done, 0};
    MPI_File file;
    int rank;
    MPI_Comm_rank(p->comm, &rank);
    weir_phase_begin("checkpoint");
    check(MPI_File_open(p->comm, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file), name);
    if (rank == 0)
        check(MPI_File_write_at(file, 0, header, 4, MPI_INT64_T, MPI_STATUS_IGNORE), name);
    check(MPI_File_set_view(file, HEADER_BYTES, MPI_DOUBLE, p->place, "native", MPI_INFO_NULL), name);
    check(MPI_File_write_all(file, p->field, 1, p->interior, MPI_STATUS_IGNORE), name);
    check(MPI_File_close(&file), name);
    weir_phase_end();
}

/* Answers with the steps that were done when the checkpoint was written. */
static int64_t read_checkpoint(Plate *p, const char *name)
{
    int64_t header[4] = {0, 0, 0, 0};
    MPI_File file;
    weir_phase_begin("restart");
    check(MPI_File_open(p->comm, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), name);
    check(MPI_File_read_at_all(file, 0, header, 4, MPI_INT64_T, MPI_STATUS_IGNORE), name);
    if (header[0] != MAGIC || header[1] != p->cells) {
        fprintf(stderr, "heat: %s is no checkpoint of a plate of %d cells\n", name, p->cells);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    check(MPI_File_set_view(file, HEADER_BYTES, MPI_DOUBLE, p->place, "native", MPI_INFO_NULL), name);
    check(MPI_File_read_all(file, p->field, 1, p->interior, MPI_STATUS_IGNORE), name);
    check(MPI_File_close(&file), name);
    weir_phase_end();
    return header[2];
}

static double hottest(const Plate *p)
{
    double mine = 0.0, all = 0.0;
    int row, column;
    for (row = 1; row <= p->height; row++)
        for (column = 1; column <= p->width; column++)
            if (*cell(p, p->field, row, column) > mine)
                mine = *cell(p, p->field, row, column);
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, 0, p->comm);
    return all;
}

static Options parse(int argc, char **argv)
{
    Options options = {256, 100, 25, 0, "heat.ckpt"};
    int letter;
    while ((letter = getopt(argc, argv, "n:s:i:o:r")) != -1) {
        switch (letter) {
        case 'n': options.cells = atoi(optarg); break;
        case 's': options.steps = atoi(optarg); break;
        case 'i': options.interval = atoi(optarg); break;
        case 'o': options.file = optarg; break;
        case 'r': options.restart = 1; break;
        default: options.cells = 0;
        }
    }
    if (options.cells < 1 || options.steps < 0 || options.interval < 1) {
        fprintf(stderr, "usage: heat [-n CELLS] [-s STEPS] [-i INTERVAL] [-o FILE] [-r]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return options;
}

int main(int argc, char **argv)
{
    Options options;
    Plate plate;
    int64_t done = 0;
    double maximum;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    weir_set_application("heat");
    options = parse(argc, argv);
    plate = cut_plate(options.cells);
    if (options.restart)
        done = read_checkpoint(&plate, options.file);
    else
        heat_up(&plate);
    while (done < options.steps) {
        step(&plate);
        done++;
        if (done % options.interval == 0)
            write_checkpoint(&plate, options.file, done);
    }
    maximum = hottest(&plate);
    if (rank == 0)
        printf("heat: %d x %d cells, %d steps, hottest %.6f\n", options.cells, options.cells,
               options.steps, maximum);
    free_plate(&plate);
    MPI_Finalize();
    return 0;
}
