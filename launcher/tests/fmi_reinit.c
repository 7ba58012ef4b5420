/* A program with EReinit's interface: each process says what it is where it begins.
 *
 * fmi_reinit STEPS GATE: adds numbers of all ranks STEPS times; stays in its middle until the file
 * GATE is there. Each start prints `RANK is STATE`; each rank `result RANK SUM`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const states[] = {"new", "restarted", "added"};

static void resilient_main(int argc, char **argv, MPI_Start_state state)
{
    int rank, size, step = 0, start = 0;
    long sum = 0;
    MPI_Comm all;

    (void)argc;
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    /* It is received again as it was at the first start. */
    start = rank == 0 ? 1000 : 0;
    MPI_Bcast(&start, 1, MPI_INT, 0, all);
    sum = start;
    printf("%d is %s\n", rank, states[state]);
    void *ckpts[] = {&step, &sum};
    size_t sizes[] = {sizeof step, sizeof sum};
    while (FMI_Loop(ckpts, sizes, 2) >= 0 && step < atoi(argv[1])) {
        int waits = rank == 0 && step == atoi(argv[1]) / 2 && access(argv[2], F_OK);
        MPI_Bcast(&waits, 1, MPI_INT, 0, all);
        usleep(1000);
        if (waits)
            continue;
        long mine = sum % 1000 + rank, added = 0;
        MPI_Allreduce(&mine, &added, 1, MPI_LONG, MPI_SUM, all);
        sum += added + step++;
    }
    MPI_Barrier(all);
    printf("result %d %ld\n", rank, sum);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    MPI_Init(&argc, &argv);
    MPI_Reinit(argc, argv, resilient_main);
    MPI_Finalize();
    return 0;
}
