/* Heat on a rod by Jacobi's method, cells shared out among the ranks: an MPI program whose loop is
 * ftb_loop.
 *
 * looping_mpi STEPS CELLS PAUSE_US [GATE]: stays in its middle, without progress, until the file
 * GATE is there. Each rank prints `result RANK SUM`, and `goes on at ID` if it was restored. */
#include <ftb_job.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int steps = atoi(argv[1]), cells = atoi(argv[2]), pause = atoi(argv[3]);
    int rank, size, step = 0, first = 1;
    double sum = 0;
    int64_t id = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t all = (size_t)cells + 2;
    double *now = calloc(all, sizeof *now), *next = calloc(all, sizeof *next);
    for (int at = 1; at <= cells; at++)
        now[at] = (rank * cells + at) % 97;
    if (ftb_job_rank() != rank || ftb_job_size() != size
        || ftb_protect("step", &step, sizeof step)
        || ftb_protect("rod", now, all * sizeof *now))
        MPI_Abort(MPI_COMM_WORLD, 3);
    while (step < steps && (id = ftb_loop()) >= 0) {
        if (first && id > 0)
            printf("goes on at %lld\n", (long long)id);
        first = 0;
        int waits = step == steps / 2 && argc > 4 && access(argv[4], F_OK);
        MPI_Bcast(&waits, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!waits) {
            int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
            int right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
            MPI_Sendrecv(now + 1, 1, MPI_DOUBLE, left, 0, now + cells + 1, 1, MPI_DOUBLE, right, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Sendrecv(now + cells, 1, MPI_DOUBLE, right, 1, now, 1, MPI_DOUBLE, left, 1,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int at = 1; at <= cells; at++)
                next[at] = 0.25 * now[at - 1] + 0.5 * now[at] + 0.25 * now[at + 1];
            for (int at = 1; at <= cells; at++)
                now[at] = next[at];
            step++;
        }
        usleep(pause);
    }
    if (id < 0) {
        fprintf(stderr, "looping_mpi: %s\n", ftb_job_error());
        MPI_Abort(MPI_COMM_WORLD, (int)-id);
    }
    for (int at = 1; at <= cells; at++)
        sum += now[at];
    printf("result %d %.17g\n", rank, sum);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
