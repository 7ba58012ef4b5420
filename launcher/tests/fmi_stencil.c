/* Jacobi's method on a block of N x N x N numbers, of Himeno's structure: ranks in a grid of two
 * dimensions, halos exchanged as derived types, a residual over all. An MPI program whose loop line
 * alone is another with <ftb/mpi.h>.
 *
 * fmi_stencil STEPS N [GATE [LATER]]: stays in its middle, exchanging messages, until the file GATE
 * is there, and rank 1 behind its loop until LATER is; LATER.reached is there then. Each rank
 * prints `result RANK SUM RESIDUAL`, and `goes on at ID` if it went back. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define AT(i, j, k) (((size_t)(i) * (lj + 2) + (j)) * (n + 2) + (k))

static int li, lj, n;

static void reached(const char *gate)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.reached", gate);
    FILE *file = fopen(name, "w");
    if (!file || fclose(file))
        MPI_Abort(MPI_COMM_WORLD, 4);
}

int main(int argc, char **argv)
{
    int rank, size, parameters[2] = {0, 0}, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2];
    int up, down, left, right, step = 0, id, last = -1;
    double residual = 0, sum = 0;
    MPI_Comm grid, row;
    MPI_Datatype iface, jface;

    setvbuf(stdout, NULL, _IOLBF, 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        parameters[0] = atoi(argv[1]), parameters[1] = atoi(argv[2]);
    MPI_Bcast(parameters, 2, MPI_INT, 0, MPI_COMM_WORLD);
    int steps = parameters[0];
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Cart_get(grid, 2, dims, periods, at);
    MPI_Cart_shift(grid, 0, 1, &up, &down);
    MPI_Cart_shift(grid, 1, 1, &left, &right);
    MPI_Comm_split(grid, at[0], at[1], &row);
    n = parameters[1], li = n / dims[0], lj = n / dims[1];
    MPI_Type_contiguous((lj + 2) * (n + 2), MPI_FLOAT, &iface);
    MPI_Type_vector(li + 2, n + 2, (lj + 2) * (n + 2), MPI_FLOAT, &jface);
    MPI_Type_commit(&iface);
    MPI_Type_commit(&jface);
    size_t all = (size_t)(li + 2) * (lj + 2) * (n + 2);
    float *p = calloc(all, sizeof *p), *next = calloc(all, sizeof *next);
    for (int i = 1; i <= li; i++)
        for (int j = 1; j <= lj; j++)
            for (int k = 1; k <= n; k++)
                p[AT(i, j, k)] = (float)(((at[0] * li + i) * 7 + (at[1] * lj + j) * 3 + k) % 97);
    void *ckpts[] = {p, &step, &residual};
    size_t sizes[] = {all * sizeof *p, sizeof step, sizeof residual};
    (void)ckpts, (void)sizes;

#ifdef FTB_MPI_H
    while ((id = FMI_Loop(ckpts, sizes, 3)) >= 0 && step < steps) {
#else
    for (id = 0; step < steps; id++) {
#endif
        if (id != last + 1)
            printf("goes on at %d\n", id);
        last = id;
        int waits = rank == 0 && step == steps / 2 && argc > 3 && access(argv[3], F_OK);
        MPI_Bcast(&waits, 1, MPI_INT, 0, grid);
        MPI_Request requests[8];
        MPI_Irecv(&p[AT(0, 0, 0)], 1, iface, up, 0, grid, &requests[0]);
        MPI_Irecv(&p[AT(li + 1, 0, 0)], 1, iface, down, 1, grid, &requests[1]);
        MPI_Isend(&p[AT(li, 0, 0)], 1, iface, down, 0, grid, &requests[2]);
        MPI_Isend(&p[AT(1, 0, 0)], 1, iface, up, 1, grid, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        MPI_Irecv(&p[AT(0, 0, 0)], 1, jface, left, 2, grid, &requests[4]);
        MPI_Irecv(&p[AT(0, lj + 1, 0)], 1, jface, right, 3, grid, &requests[5]);
        MPI_Isend(&p[AT(0, lj, 0)], 1, jface, right, 2, grid, &requests[6]);
        MPI_Isend(&p[AT(0, 1, 0)], 1, jface, left, 3, grid, &requests[7]);
        MPI_Waitall(4, requests + 4, MPI_STATUSES_IGNORE);
        if (waits) {
            usleep(1000);
            continue;
        }
        float worst = 0, row_worst = 0;
        for (int i = 1; i <= li; i++)
            for (int j = 1; j <= lj; j++)
                for (int k = 1; k <= n; k++) {
                    float here = p[AT(i, j, k)];
                    float new = 0.25f * here
                                + 0.125f * (p[AT(i - 1, j, k)] + p[AT(i + 1, j, k)]
                                            + p[AT(i, j - 1, k)] + p[AT(i, j + 1, k)]
                                            + p[AT(i, j, k - 1)] + p[AT(i, j, k + 1)]);
                    float change = (new - here) * (new - here);
                    worst = change > worst ? change : worst;
                    next[AT(i, j, k)] = new;
                }
        for (int i = 1; i <= li; i++)
            for (int j = 1; j <= lj; j++)
                for (int k = 1; k <= n; k++)
                    p[AT(i, j, k)] = next[AT(i, j, k)];
        /* Of a row of ranks, then of all: greatest values have the same bits in any order. */
        MPI_Allreduce(&worst, &row_worst, 1, MPI_FLOAT, MPI_MAX, row);
        MPI_Allreduce(&row_worst, &worst, 1, MPI_FLOAT, MPI_MAX, grid);
        residual += worst;
        step++;
    }
    /* All are behind their loop when one says so. */
    MPI_Barrier(grid);
    if (rank == 1 && argc > 4) {
        reached(argv[4]);
        while (access(argv[4], F_OK))
            usleep(1000);
    }
    for (int i = 1; i <= li; i++)
        for (int j = 1; j <= lj; j++)
            for (int k = 1; k <= n; k++)
                sum += p[AT(i, j, k)];
    if (MPI_Barrier(grid) == MPI_SUCCESS)
        printf("result %d %.17g %.17g\n", rank, sum, residual);
    MPI_Comm_free(&row);
    MPI_Type_free(&iface);
    MPI_Finalize();
    return 0;
}
