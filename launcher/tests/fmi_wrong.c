/* Calls of FMI that are refused, each with its code; and some that one rank alone can make. */
#include <fmi.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int failed;

#define EXPECT(call, expected, words)                                              \
    do {                                                                           \
        int code = call;                                                           \
        if (code != expected || (code && !strstr(ftb_job_error(), words))) {       \
            printf("%s is %d, not %d: %s\n", #call, code, expected, ftb_job_error()); \
            failed = 1;                                                            \
        }                                                                          \
    } while (0)

int main(int argc, char **argv)
{
    int flag = 1, rank = -1, values[4] = {1, 2, 3, 4}, more[4] = {0}, count, dims[2] = {1, 1};
    FMI_Comm made = FMI_COMM_NULL;
    FMI_Datatype pair;
    FMI_Request request, other;
    FMI_Status status;
    void *ckpts[] = {values};
    size_t sizes[] = {sizeof values};

    EXPECT(FMI_Initialized(&flag), FMI_SUCCESS, "");
    failed |= flag;
    EXPECT(FMI_Comm_rank(FMI_COMM_WORLD, &rank), FMI_ERR_STATE, "FMI_Init comes first");
    EXPECT(FMI_Finalize(), FMI_ERR_STATE, "FMI_Init comes first");
    EXPECT(FMI_Init(&argc, &argv), FMI_SUCCESS, "");
    EXPECT(FMI_Init(&argc, &argv), FMI_ERR_STATE, "called before");
    EXPECT(FMI_Comm_rank(7, &rank), FMI_ERR_ARG, "no communicator 7");
    EXPECT(FMI_Send(values, 1, FMI_INT, 1, 0, FMI_COMM_WORLD), FMI_ERR_ARG, "no rank 1");
    EXPECT(FMI_Send(values, 1, FMI_INT, 0, -1, FMI_COMM_WORLD), FMI_ERR_ARG, "no tag");
    EXPECT(FMI_Send(values, 1, 99, 0, 0, FMI_COMM_WORLD), FMI_ERR_ARG, "no type 99");
    EXPECT(FMI_Send(NULL, 1, FMI_INT, 0, 0, FMI_COMM_WORLD), FMI_ERR_ARG, "NULL");
    EXPECT(FMI_Send(values, -1, FMI_INT, 0, 0, FMI_COMM_WORLD), FMI_ERR_ARG, "-1 values");
    EXPECT(FMI_Comm_free(&made), FMI_ERR_ARG, "no communicator");
    EXPECT(FMI_Allreduce(values, more, 1, FMI_DOUBLE, FMI_BAND, FMI_COMM_SELF), FMI_ERR_ARG,
           "have no BitAnd");
    EXPECT(FMI_Send(values, 1 << 27, FMI_INT, 0, 0, FMI_COMM_WORLD), FMI_ERR_LIMIT, "at most");
    EXPECT(FMI_Bcast(values, 1 << 27, FMI_INT, 0, FMI_COMM_WORLD), FMI_ERR_LIMIT, "at most");
    EXPECT(FMI_Waitall(2, NULL, FMI_STATUSES_IGNORE), FMI_ERR_ARG, "NULL");
    EXPECT(FMI_Allgather(FMI_IN_PLACE, 1, FMI_INT, more, 1, FMI_INT, FMI_COMM_WORLD), FMI_ERR_ARG,
           "reductions only");
    /* A message after a send that was refused: no receive of that call takes it. */
    EXPECT(FMI_Sendrecv(values, 1, FMI_INT, 0, -1, more, 1, FMI_INT, 0, 6, FMI_COMM_WORLD, &status),
           FMI_ERR_ARG, "no tag");
    EXPECT(FMI_Send(values, 1, FMI_INT, 0, 6, FMI_COMM_WORLD), FMI_SUCCESS, "");
    EXPECT(FMI_Recv(more, 1, FMI_INT, 0, 6, FMI_COMM_WORLD, &status), FMI_SUCCESS, "");
    failed |= more[0] != 1 || status.FMI_TAG != 6;

    /* A loop, and what one rank can do in it. */
    failed |= FMI_Loop(ckpts, sizes, 1) != 0 || FMI_Loop(ckpts, sizes, 1) != 1;
    EXPECT(FMI_Comm_dup(FMI_COMM_WORLD, &made), FMI_SUCCESS, "");
    EXPECT(FMI_Irecv(more, 4, FMI_INT, FMI_ANY_SOURCE, FMI_ANY_TAG, made, &request), FMI_SUCCESS,
           "");
    EXPECT(FMI_Comm_free(&made), FMI_ERR_ARG, "receives wait");
    EXPECT(FMI_Irecv(more, 1, FMI_INT, 0, 5, FMI_COMM_WORLD, &other), FMI_SUCCESS, "");
    EXPECT(FMI_Send(values, 4, FMI_INT, 0, 5, FMI_COMM_WORLD), FMI_SUCCESS, "");
    EXPECT(FMI_Send(values, 3, FMI_INT, 0, 9, made), FMI_SUCCESS, "");
    EXPECT(FMI_Wait(&request, &status), FMI_SUCCESS, "");
    EXPECT(FMI_Get_count(&status, FMI_INT, &count), FMI_SUCCESS, "");
    failed |= more[2] != 3 || more[3] || count != 3 || status.FMI_TAG != 9 || status.FMI_SOURCE;
    EXPECT(FMI_Wait(&other, FMI_STATUS_IGNORE), FMI_ERR_TRUNCATE, "16 bytes");
    EXPECT(FMI_Wait(&other, FMI_STATUS_IGNORE), FMI_SUCCESS, "");
    EXPECT(FMI_Recv(more, 4, FMI_INT, FMI_PROC_NULL, 0, made, &status), FMI_SUCCESS, "");
    failed |= status.FMI_SOURCE != FMI_PROC_NULL;

    /* Every second number goes where they are dense. */
    memset(more, 0, sizeof more);
    EXPECT(FMI_Type_vector(2, 1, 2, FMI_INT, &pair), FMI_SUCCESS, "");
    EXPECT(FMI_Type_vector(2, 1, -2, FMI_INT, &pair), FMI_ERR_ARG, "-2 values");
    EXPECT(FMI_Sendrecv(values, 1, pair, 0, 1, more, 2, FMI_INT, 0, 1, made, &status), FMI_SUCCESS,
           "");
    failed |= more[0] != 1 || more[1] != 3 || more[2];
    EXPECT(FMI_Type_free(&pair), FMI_SUCCESS, "");
    EXPECT(FMI_Type_free(&pair), FMI_ERR_ARG, "no derived type");

    /* Numbers without a bound: each call answers at once. */
    EXPECT(FMI_Type_vector(INT_MAX, INT_MAX, INT_MAX, FMI_BYTE, &pair), FMI_SUCCESS, "");
    EXPECT(FMI_Type_size(pair, &count), FMI_SUCCESS, "");
    failed |= count != INT_MAX;
    EXPECT(FMI_Send(values, 1, pair, 0, 1, made), FMI_ERR_LIMIT, "at most");
    EXPECT(FMI_Type_contiguous(INT_MAX, pair, &pair), FMI_ERR_LIMIT, "pieces of memory");
    EXPECT(FMI_Type_vector(INT_MAX, 1, 2, FMI_BYTE, &pair), FMI_ERR_LIMIT, "pieces of memory");
    EXPECT(FMI_Type_vector(INT_MAX, 0, INT_MAX, FMI_BYTE, &pair), FMI_SUCCESS, "");
    EXPECT(FMI_Sendrecv(values, INT_MAX, pair, 0, 2, more, INT_MAX, pair, 0, 2, made, &status),
           FMI_SUCCESS, "");
    EXPECT(FMI_Type_vector(2, 1, 2, FMI_INT, &pair), FMI_SUCCESS, "");
    EXPECT(FMI_Sendrecv(values, 1, FMI_INT, 0, 2, more, INT_MAX, pair, 0, 2, made, &status),
           FMI_SUCCESS, "");
    dims[0] = dims[1] = INT_MAX;
    EXPECT(FMI_Dims_create(INT_MAX, 2, dims), FMI_ERR_ARG, "cannot be shared out");
    EXPECT(FMI_Cart_create(made, 2, dims, dims, 0, &made), FMI_ERR_ARG, "");
    dims[0] = dims[1] = 0;
    EXPECT(FMI_Dims_create(INT_MAX, 2, dims), FMI_SUCCESS, "");
    failed |= dims[0] != INT_MAX || dims[1] != 1;
    dims[0] = dims[1] = 1;
    EXPECT(FMI_Cart_shift(made, 0, 1, &count, &rank), FMI_ERR_ARG, "no grid");
    EXPECT(FMI_Cart_create(made, 2, dims, dims, 0, &made), FMI_SUCCESS, "");
    EXPECT(FMI_Cart_shift(made, 2, 1, &count, &rank), FMI_ERR_ARG, "no such dimension");
    EXPECT(FMI_Cart_shift(made, 1, 1, &count, &rank), FMI_SUCCESS, "");
    failed |= rank || count;
    EXPECT(FMI_Allreduce(FMI_IN_PLACE, values, 4, FMI_INT, FMI_SUM, made), FMI_SUCCESS, "");
    failed |= values[3] != 4;

    EXPECT(FMI_Finalize(), FMI_SUCCESS, "");
    EXPECT(FMI_Init(&argc, &argv), FMI_ERR_STATE, "after FMI_Finalize");
    EXPECT(FMI_Barrier(FMI_COMM_WORLD), FMI_ERR_STATE, "after FMI_Finalize");
    EXPECT(FMI_Finalize(), FMI_ERR_STATE, "called before");
    return failed;
}
