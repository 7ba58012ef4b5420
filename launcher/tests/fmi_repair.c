/* A program that repairs its communicator after deaths, as with ULFM.
 *
 * fmi_repair add STEPS GATE [LATE]: adds up numbers in STEPS steps, which all living ranks share;
 * stays in its middle until the file GATE is there. After a death the others revoke, shrink, agree,
 * and repeat the step that not all of them have done. With LATE rank 2 waits for that file before
 * it shrinks. Each rank prints `result RANK SUM of SIZE`.
 * fmi_repair fatal STEPS GATE: the same, but an error ends the job.
 * fmi_repair calls: rank 3 waits; the others try each call when it has died. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ITEMS 60

static MPI_Comm comm = MPI_COMM_WORLD;
static int rank, steps, step;
static long sum, before;
static const char *gate, *late;

#define CHECK(is)                                                                      \
    do {                                                                               \
        if (!(is)) {                                                                   \
            printf("rank %d: line %d: %s: %s\n", rank, __LINE__, #is, ftb_job_error()); \
            exit(3);                                                                   \
        }                                                                              \
    } while (0)

static void touch(const char *name, const char *suffix)
{
    char path[4096];

    snprintf(path, sizeof path, "%s%s", name, suffix);
    FILE *file = fopen(path, "w");
    CHECK(file && !fclose(file));
}

/* Communicates until all living ranks are at the same step of the same communicator. */
static void repair(void)
{
    int well;

    do {
        MPI_Comm made;
        int least = 0;

        CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
        if (late && rank == 2) {
            touch(late, ".reached");
            while (access(late, F_OK))
                usleep(1000);
        }
        CHECK(MPIX_Comm_shrink(comm, &made) == MPI_SUCCESS);
        comm = made;
        well = MPI_Allreduce(&step, &least, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS;
        /* The flag is the same at all, whoever has died meanwhile. */
        MPIX_Comm_agree(comm, &well);
        if (well && step > least) {
            CHECK(step == least + 1);
            step = least;
            sum = before;
        }
    } while (!well);
}

/* What the living ranks add up in a step does not depend on their number. */
static int add(int *waits)
{
    int place, size, rc;
    long mine[2] = {0, 0}, all[2];

    MPI_Comm_rank(comm, &place);
    MPI_Comm_size(comm, &size);
    for (long item = place; item < ITEMS; item += size)
        mine[0] += (step * ITEMS + item) * (item + 1);
    mine[1] = place == 0 && step == steps / 2 && access(gate, F_OK);
    rc = MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, comm);
    if (rc != MPI_SUCCESS)
        return rc;
    *waits = all[1] != 0;
    if (!*waits) {
        before = sum;
        sum += all[0];
        step++;
    }
    return MPI_SUCCESS;
}

static void add_all(int repairs)
{
    int size;

    while (step < steps) {
        int waits = 0, class = 0, rc = add(&waits);

        if (rc != MPI_SUCCESS) {
            MPI_Error_class(rc, &class);
            CHECK(class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED);
            CHECK(repairs);
            repair();
        } else if (waits) {
            usleep(1000);
        }
    }
    MPI_Comm_size(comm, &size);
    printf("result %d %ld of %d\n", rank, sum, size);
}

/* Rank 3 of 4 dies. */
static void try_calls(void)
{
    int value = rank, other = -1, flag, count, of[1] = {0}, found[1] = {-1}, size;
    MPI_Status status;
    MPI_Group dead, all;
    MPI_Comm made;

    if (rank == 3)
        for (;;)
            pause();
    CHECK(MPI_Recv(&other, 1, MPI_INT, 3, 0, comm, &status) == MPIX_ERR_PROC_FAILED);
    /* The others do not need it. */
    CHECK(MPI_Sendrecv(&value, 1, MPI_INT, (rank + 1) % 3, 1, &other, 1, MPI_INT, (rank + 2) % 3, 1,
                       comm, &status) == MPI_SUCCESS);
    CHECK(other == (rank + 2) % 3);
    CHECK(MPI_Send(&value, 1, MPI_INT, 3, 0, comm) == MPIX_ERR_PROC_FAILED);
    CHECK(MPI_Barrier(comm) == MPIX_ERR_PROC_FAILED);
    CHECK(MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 2, comm, &status) == MPIX_ERR_PROC_FAILED);
    /* Rank 0 has not acknowledged the death: all get the error, and the flag. */
    if (rank != 0)
        CHECK(MPIX_Comm_failure_ack(comm) == MPI_SUCCESS);
    flag = (7 & ~(1 << rank)) | 8;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPIX_ERR_PROC_FAILED);
    CHECK(flag == 8);
    CHECK(MPIX_Comm_failure_ack(comm) == MPI_SUCCESS);
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == 8);
    CHECK(MPIX_Comm_failure_get_acked(comm, &dead) == MPI_SUCCESS);
    CHECK(MPI_Comm_group(comm, &all) == MPI_SUCCESS);
    CHECK(MPI_Group_size(dead, &count) == MPI_SUCCESS && count == 1);
    CHECK(MPI_Group_translate_ranks(dead, 1, of, all, found) == MPI_SUCCESS && found[0] == 3);
    CHECK(MPI_Group_free(&dead) == MPI_SUCCESS && dead == MPI_GROUP_NULL);
    /* From any goes on without it. */
    if (rank == 1)
        CHECK(MPI_Send(&value, 1, MPI_INT, 0, 2, comm) == MPI_SUCCESS);
    if (rank == 0)
        CHECK(MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 2, comm, &status) == MPI_SUCCESS);
    /* Only one revokes; the others wait for a message that never comes. */
    if (rank == 2)
        CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
    else
        CHECK(MPI_Recv(&other, 1, MPI_INT, 2, 9, comm, &status) == MPIX_ERR_REVOKED);
    CHECK(MPIX_Comm_is_revoked(comm, &flag) == MPI_SUCCESS && flag);
    CHECK(MPI_Send(&value, 1, MPI_INT, (rank + 1) % 3, 1, comm) == MPIX_ERR_REVOKED);
    CHECK(MPIX_Comm_shrink(comm, &made) == MPI_SUCCESS);
    CHECK(MPI_Comm_size(made, &size) == MPI_SUCCESS && size == 3);
    value = 1;
    CHECK(MPI_Allreduce(&value, &other, 1, MPI_INT, MPI_SUM, made) == MPI_SUCCESS && other == 3);
    printf("result %d %d of %d\n", rank, other, size);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(comm, &rank);
    if (strcmp(argv[1], "fatal") != 0)
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (strcmp(argv[1], "calls") == 0) {
        try_calls();
    } else {
        steps = atoi(argv[2]);
        gate = argv[3];
        late = argc > 4 ? argv[4] : NULL;
        add_all(strcmp(argv[1], "add") == 0);
    }
    MPI_Finalize();
    return 0;
}
