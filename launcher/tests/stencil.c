/* Heat on a plate, by Jacobi's method, rows shared out among the ranks; an unmodified MPI program.
 *
 * stencil STEPS ROWS COLUMNS [GATE [PAUSE_US]]: ROWS x COLUMNS cells a rank. Stays in its middle, exchanging messages but
 * without progress, until the file GATE is there; GATE.reached is there then. Each rank prints `result RANK SUM`; rank 0 also the longest step it
 * has seen as `pause MS`, which a migration of others shows in, and each long one there as `stood END US`: when it
 * ended, in microseconds since 1970, and how long it was. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int rank, size;

/* Waits in step with all ranks until rank 0 sees the gate, without keeping a processor busy. */
static void wait_for_gate(const char *gate, double *worst)
{
    int open = 0;
    if (rank == 0) {
        char name[4096];
        FILE *reached = NULL;
        if (snprintf(name, sizeof name, "%s.reached", gate) < (int)sizeof name)
            reached = fopen(name, "w");
        if (!reached || fclose(reached))
            MPI_Abort(MPI_COMM_WORLD, 4);
    }
    while (!open) {
        MPI_Request request;
        int done = 0;
        double begin = MPI_Wtime();
        open = rank == 0 && access(gate, F_OK) == 0;
        MPI_Ibcast(&open, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
        while (!done) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (!done)
                usleep(500);
        }
        usleep(2000);
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        for (done = 0; !done; usleep(500))
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        double took = MPI_Wtime() - begin;
        if (took > *worst)
            *worst = took;
        if (rank == 0 && took > 0.1) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            printf("stood %lld %.0f\n", now.tv_sec * 1000000LL + now.tv_nsec / 1000, took * 1e6);
        }
    }
}

static void exchange(double *cells, int rows, int columns)
{
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(cells + columns, columns, MPI_DOUBLE, above, 0, cells + (size_t)(rows + 1) * columns,
                 columns, MPI_DOUBLE, below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(cells + (size_t)rows * columns, columns, MPI_DOUBLE, below, 1, cells, columns,
                 MPI_DOUBLE, above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 10, rows = argc > 2 ? atoi(argv[2]) : 16;
    int columns = argc > 3 ? atoi(argv[3]) : 64, pause_us = argc > 5 ? atoi(argv[5]) : 0;
    double worst = 0, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *now = calloc((size_t)(rows + 2) * columns, sizeof *now);
    double *next = calloc((size_t)(rows + 2) * columns, sizeof *next);
    if (!now || !next)
        MPI_Abort(MPI_COMM_WORLD, 3);
    for (int at = 0; at < rows * columns; at++)
        now[columns + at] = (rank * rows * columns + at) % 97;
    for (int step = 0; step < steps; step++) {
        double begin = MPI_Wtime();
        if (step == steps / 2 && argc > 4)
            wait_for_gate(argv[4], &worst);
        begin = MPI_Wtime();
        exchange(now, rows, columns);
        for (int row = 1; row <= rows; row++)
            for (int column = 1; column < columns - 1; column++) {
                double *cell = now + (size_t)row * columns + column;
                next[(size_t)row * columns + column] =
                    0.2 * (*cell + cell[-1] + cell[1] + cell[-columns] + cell[columns]);
            }
        double *swap = now;
        now = next, next = swap;
        if (pause_us)
            usleep(pause_us);
        if (MPI_Wtime() - begin > worst)
            worst = MPI_Wtime() - begin;
    }
    for (int at = 0; at < rows * columns; at++)
        sum += now[columns + at];
    printf("result %d %.17g\n", rank, sum);
    if (rank == 0)
        printf("pause %.0f\n", worst * 1000);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
