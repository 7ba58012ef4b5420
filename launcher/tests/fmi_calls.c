/* Calls of MPI among four ranks whose results each rank can compute: it prints one line if all are
 * right. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static void check(int is_right, const char *what)
{
    if (!is_right) {
        printf("wrong: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

int main(int argc, char **argv)
{
    int rank, size, all[64], mine[16], flag = 0, at, seen = 0, polls = 0, len;
    char words[MPI_MAX_ERROR_STRING];
    MPI_Request requests[16];
    MPI_Status statuses[16];
    MPI_Datatype pair;
    void *ckpts[] = {all};
    size_t sizes[] = {sizeof all};

    MPI_Init(&argc, &argv);
    FMI_Loop(ckpts, sizes, 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(size == 4, "size");

    /* Two numbers for each, of the last rank; every second number goes. */
    for (at = 0; at < 64; at++)
        all[at] = rank == size - 1 ? at : -1;
    memset(mine, -1, sizeof mine);
    MPI_Scatter(all, 2, MPI_INT, mine, 2, MPI_INT, size - 1, MPI_COMM_WORLD);
    check(mine[0] == 2 * rank && mine[1] == 2 * rank + 1 && mine[2] == -1, "scatter");
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Scatter(all, 1, pair, mine, 2, MPI_INT, size - 1, MPI_COMM_WORLD);
    check(mine[0] == 3 * rank && mine[1] == 3 * rank + 2, "scatter of a derived type");

    for (at = 0; at < 2 * size; at++)
        mine[at] = 100 * rank + at;
    MPI_Alltoall(mine, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD);
    for (at = 0; at < size; at++)
        check(all[2 * at] == 100 * at + 2 * rank && all[2 * at + 1] == all[2 * at] + 1, "alltoall");

    /* A receive of each, in whatever order they come; rank 0 sends when it has heard of all. */
    for (at = 0; at < size; at++)
        MPI_Irecv(&all[at], 1, MPI_INT, at, 7, MPI_COMM_WORLD, &requests[at]);
    if (rank == 0) {
        MPI_Testall(size, requests, &flag, MPI_STATUSES_IGNORE);
        check(!flag && requests[1] != MPI_REQUEST_NULL, "nothing can be there");
        MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
        check(!flag && requests[0] != MPI_REQUEST_NULL, "it has sent nothing");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    mine[0] = 1000 + rank;
    for (at = 1; at < size && rank; at++)
        MPI_Send(mine, 1, MPI_INT, at, 7, MPI_COMM_WORLD);
    if (rank) {
        for (int left = size - 1; left; left--) {
            MPI_Waitany(size, requests, &at, &statuses[0]);
            check(at > 0 && requests[at] == MPI_REQUEST_NULL && all[at] == 1000 + at, "waitany");
            check(statuses[0].MPI_SOURCE == at && statuses[0].MPI_TAG == 7, "its status");
            seen |= 1 << at;
        }
        check(seen == 14, "each once");
        MPI_Send(mine, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    } else {
        for (flag = 0; !flag; polls++)
            MPI_Testall(size - 1, requests + 1, &flag, statuses);
        check(statuses[2].MPI_SOURCE == 3 && all[3] == 1003 && all[1] == 1001, "testall");
        for (at = 0; at < size; at++)
            MPI_Send(mine, 1, MPI_INT, at, 7, MPI_COMM_WORLD);
    }
    for (flag = 0; !flag; polls++)
        MPI_Test(&requests[0], &flag, &statuses[0]);
    check(all[0] == 1000 && statuses[0].MPI_SOURCE == 0, "test");
    MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
    check(flag, "an empty request is complete");
    MPI_Waitany(size, requests, &at, MPI_STATUS_IGNORE);
    check(at == MPI_UNDEFINED, "all are empty");
    MPI_Error_string(FMI_ERR_TRUNCATE, words, &len);
    check(strstr(words, "longer than its buffer") && len == (int)strlen(words), "error string");
    printf("result %d right\n", rank);
    MPI_Finalize();
    return 0;
}
