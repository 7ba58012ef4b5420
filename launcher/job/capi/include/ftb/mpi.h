/*
 * A part of MPI on FMI (fmi.h): a program that needs no more changes only its loop line to
 *
 *     while ((n = FMI_Loop(ckpts, sizes, len)) < steps)
 *
 * and is compiled with the folder of this file first: `cc -I/usr/include/ftb ... -lftbjob`.
 *
 * An error ends the job, as with MPI_ERRORS_ARE_FATAL. After the death of ranks calls return
 * MPI_ERR_RECOVERY at once, without an effect, until FMI_Loop; within MPI_Reinit they jump to its
 * point instead.
 *
 * With `--on-death continue` a program repairs its communicators itself, as with ULFM (MPIX_*). It
 * calls MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN): calls on all communicators return their
 * errors from then on.
 */
#ifndef FTB_MPI_H
#define FTB_MPI_H

#include "../fmi.h"
#include <setjmp.h>
#include <stdio.h>

#define MPI_VERSION 3
#define MPI_SUBVERSION 1

typedef FMI_Comm MPI_Comm;
typedef FMI_Datatype MPI_Datatype;
typedef FMI_Op MPI_Op;
typedef FMI_Group MPI_Group;
typedef int MPI_Errhandler;
#define MPI_ERRORS_ARE_FATAL 0
#define MPI_ERRORS_RETURN 1
typedef FMI_Request MPI_Request;
typedef FMI_Status MPI_Status;
#define MPI_SOURCE FMI_SOURCE
#define MPI_TAG FMI_TAG
#define MPI_ERROR FMI_ERROR

#define MPI_SUCCESS FMI_SUCCESS
#define MPI_ERR_RECOVERY FMI_ERR_RECOVERY
#define MPIX_ERR_PROC_FAILED FMI_ERR_PROC_FAILED
#define MPIX_ERR_REVOKED FMI_ERR_REVOKED
#define MPI_COMM_WORLD FMI_COMM_WORLD
#define MPI_COMM_SELF FMI_COMM_SELF
#define MPI_COMM_NULL FMI_COMM_NULL
#define MPI_GROUP_NULL FMI_GROUP_NULL
#define MPI_ANY_SOURCE FMI_ANY_SOURCE
#define MPI_PROC_NULL FMI_PROC_NULL
#define MPI_ANY_TAG FMI_ANY_TAG
#define MPI_UNDEFINED FMI_UNDEFINED
#define MPI_REQUEST_NULL FMI_REQUEST_NULL
#define MPI_STATUS_IGNORE FMI_STATUS_IGNORE
#define MPI_STATUSES_IGNORE FMI_STATUSES_IGNORE
#define MPI_IN_PLACE FMI_IN_PLACE
#define MPI_MAX_PROCESSOR_NAME FMI_MAX_PROCESSOR_NAME

#define MPI_DATATYPE_NULL FMI_DATATYPE_NULL
#define MPI_BYTE FMI_BYTE
#define MPI_CHAR FMI_CHAR
#define MPI_SIGNED_CHAR FMI_INT8_T
#define MPI_SHORT FMI_SHORT
#define MPI_INT FMI_INT
#define MPI_LONG FMI_LONG
#define MPI_LONG_LONG FMI_LONG_LONG
#define MPI_LONG_LONG_INT FMI_LONG_LONG
#define MPI_UNSIGNED_CHAR FMI_UNSIGNED_CHAR
#define MPI_UNSIGNED_SHORT FMI_UNSIGNED_SHORT
#define MPI_UNSIGNED FMI_UNSIGNED
#define MPI_UNSIGNED_LONG FMI_UNSIGNED_LONG
#define MPI_UNSIGNED_LONG_LONG FMI_UINT64_T
#define MPI_INT8_T FMI_INT8_T
#define MPI_INT16_T FMI_INT16_T
#define MPI_INT32_T FMI_INT32_T
#define MPI_INT64_T FMI_INT64_T
#define MPI_UINT8_T FMI_UINT8_T
#define MPI_UINT16_T FMI_UINT16_T
#define MPI_UINT32_T FMI_UINT32_T
#define MPI_UINT64_T FMI_UINT64_T
#define MPI_FLOAT FMI_FLOAT
#define MPI_DOUBLE FMI_DOUBLE

#define MPI_SUM FMI_SUM
#define MPI_PROD FMI_PROD
#define MPI_MIN FMI_MIN
#define MPI_MAX FMI_MAX
#define MPI_LAND FMI_LAND
#define MPI_LOR FMI_LOR
#define MPI_BAND FMI_BAND
#define MPI_BOR FMI_BOR
#define MPI_BXOR FMI_BXOR

/* One for all files of a program */
__attribute__((weak)) jmp_buf ftb_mpi_point;
__attribute__((weak)) int ftb_mpi_has_point;
__attribute__((weak)) MPI_Errhandler ftb_mpi_errhandler;

static inline int ftb_mpi_result(int code)
{
    if (code == FMI_SUCCESS || code == FMI_ERR_CANCELLED)
        return code;
    if (code == FMI_ERR_RECOVERY) {
        if (ftb_mpi_has_point)
            longjmp(ftb_mpi_point, 1);
        return code;
    }
    if (ftb_mpi_errhandler == MPI_ERRORS_RETURN)
        return code;
    fprintf(stderr, "MPI: %s\n", ftb_job_error());
    return FMI_Abort(FMI_COMM_WORLD, 1);
}

/* A death of ranks is no id: it leads to the point of MPI_Reinit. */
static inline int ftb_mpi_loop(void **ckpts, size_t *sizes, int len)
{
    int id;

    while ((id = FMI_Loop(ckpts, sizes, len)) < 0)
        if (ftb_mpi_has_point)
            longjmp(ftb_mpi_point, 1);
    return id;
}

static inline int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    (void)comm;
    ftb_mpi_errhandler = handler;
    return MPI_SUCCESS;
}

/* Codes are classes. */
static inline int MPI_Error_class(int code, int *found)
{
    *found = code;
    return MPI_SUCCESS;
}

#define MPI_MAX_ERROR_STRING 256

static inline int MPI_Error_string(int code, char *text, int *len)
{
    static const char *const words[] = {
        "no error", "ranks have died: go back to the loop", "a request from before a recovery",
        "a wrong argument", "a message longer than its buffer", "a call at the wrong time",
        "a limit of the library", "the job cannot go on", "an error", "a rank has died",
        "a member has revoked the communicator",
    };
    const int known = code >= 0 && code < (int)(sizeof words / sizeof *words);

    *len = snprintf(text, MPI_MAX_ERROR_STRING, "%s", known ? words[code] : "an error");
    return MPI_SUCCESS;
}

#define FMI_Loop(...) ftb_mpi_loop(__VA_ARGS__)
#define MPI_Init(...) ftb_mpi_result(FMI_Init(__VA_ARGS__))
#define MPI_Initialized(...) ftb_mpi_result(FMI_Initialized(__VA_ARGS__))
#define MPI_Finalized(...) ftb_mpi_result(FMI_Finalized(__VA_ARGS__))
#define MPI_Finalize() ftb_mpi_result(FMI_Finalize())
#define MPI_Abort(...) FMI_Abort(__VA_ARGS__)
#define MPI_Wtime() FMI_Wtime()
#define MPI_Get_processor_name(...) ftb_mpi_result(FMI_Get_processor_name(__VA_ARGS__))
#define MPI_Comm_rank(...) ftb_mpi_result(FMI_Comm_rank(__VA_ARGS__))
#define MPI_Comm_size(...) ftb_mpi_result(FMI_Comm_size(__VA_ARGS__))
#define MPI_Comm_dup(...) ftb_mpi_result(FMI_Comm_dup(__VA_ARGS__))
#define MPI_Comm_split(...) ftb_mpi_result(FMI_Comm_split(__VA_ARGS__))
#define MPI_Comm_free(...) ftb_mpi_result(FMI_Comm_free(__VA_ARGS__))
#define MPI_Send(...) ftb_mpi_result(FMI_Send(__VA_ARGS__))
#define MPI_Recv(...) ftb_mpi_result(FMI_Recv(__VA_ARGS__))
#define MPI_Isend(...) ftb_mpi_result(FMI_Isend(__VA_ARGS__))
#define MPI_Irecv(...) ftb_mpi_result(FMI_Irecv(__VA_ARGS__))
#define MPI_Wait(...) ftb_mpi_result(FMI_Wait(__VA_ARGS__))
#define MPI_Waitall(...) ftb_mpi_result(FMI_Waitall(__VA_ARGS__))
#define MPI_Test(...) ftb_mpi_result(FMI_Test(__VA_ARGS__))
#define MPI_Testall(...) ftb_mpi_result(FMI_Testall(__VA_ARGS__))
#define MPI_Waitany(...) ftb_mpi_result(FMI_Waitany(__VA_ARGS__))
#define MPI_Sendrecv(...) ftb_mpi_result(FMI_Sendrecv(__VA_ARGS__))
#define MPI_Get_count(...) ftb_mpi_result(FMI_Get_count(__VA_ARGS__))
#define MPI_Barrier(...) ftb_mpi_result(FMI_Barrier(__VA_ARGS__))
#define MPI_Bcast(...) ftb_mpi_result(FMI_Bcast(__VA_ARGS__))
#define MPI_Reduce(...) ftb_mpi_result(FMI_Reduce(__VA_ARGS__))
#define MPI_Allreduce(...) ftb_mpi_result(FMI_Allreduce(__VA_ARGS__))
#define MPI_Gather(...) ftb_mpi_result(FMI_Gather(__VA_ARGS__))
#define MPI_Allgather(...) ftb_mpi_result(FMI_Allgather(__VA_ARGS__))
#define MPI_Scatter(...) ftb_mpi_result(FMI_Scatter(__VA_ARGS__))
#define MPI_Alltoall(...) ftb_mpi_result(FMI_Alltoall(__VA_ARGS__))
#define MPIX_Comm_revoke(...) ftb_mpi_result(FMI_Comm_revoke(__VA_ARGS__))
#define MPIX_Comm_is_revoked(...) ftb_mpi_result(FMI_Comm_is_revoked(__VA_ARGS__))
#define MPIX_Comm_agree(...) ftb_mpi_result(FMI_Comm_agree(__VA_ARGS__))
#define MPIX_Comm_shrink(...) ftb_mpi_result(FMI_Comm_shrink(__VA_ARGS__))
#define MPIX_Comm_failure_ack(...) ftb_mpi_result(FMI_Comm_failure_ack(__VA_ARGS__))
#define MPIX_Comm_failure_get_acked(...) ftb_mpi_result(FMI_Comm_failure_get_acked(__VA_ARGS__))
#define MPI_Comm_group(...) ftb_mpi_result(FMI_Comm_group(__VA_ARGS__))
#define MPI_Group_size(...) ftb_mpi_result(FMI_Group_size(__VA_ARGS__))
#define MPI_Group_translate_ranks(...) ftb_mpi_result(FMI_Group_translate_ranks(__VA_ARGS__))
#define MPI_Group_free(...) ftb_mpi_result(FMI_Group_free(__VA_ARGS__))
#define MPI_Type_contiguous(...) ftb_mpi_result(FMI_Type_contiguous(__VA_ARGS__))
#define MPI_Type_vector(...) ftb_mpi_result(FMI_Type_vector(__VA_ARGS__))
#define MPI_Type_commit(...) ftb_mpi_result(FMI_Type_commit(__VA_ARGS__))
#define MPI_Type_size(...) ftb_mpi_result(FMI_Type_size(__VA_ARGS__))
#define MPI_Type_free(...) ftb_mpi_result(FMI_Type_free(__VA_ARGS__))
#define MPI_Dims_create(...) ftb_mpi_result(FMI_Dims_create(__VA_ARGS__))
#define MPI_Cart_create(...) ftb_mpi_result(FMI_Cart_create(__VA_ARGS__))
#define MPI_Cart_get(...) ftb_mpi_result(FMI_Cart_get(__VA_ARGS__))
#define MPI_Cart_coords(...) ftb_mpi_result(FMI_Cart_coords(__VA_ARGS__))
#define MPI_Cart_rank(...) ftb_mpi_result(FMI_Cart_rank(__VA_ARGS__))
#define MPI_Cart_shift(...) ftb_mpi_result(FMI_Cart_shift(__VA_ARGS__))

/*
 * EReinit: calls `point`, and again after each death of other ranks, without a return in between.
 * Its first FMI_Loop brings the protected memory back. Variables of functions that were left by the
 * jump are lost; what `point` allocates before its loop it allocates again.
 */
typedef FMI_Start_state MPI_Start_state;
#define MPI_START_NEW FMI_NEW
#define MPI_START_RESTARTED FMI_RESTARTED
#define MPI_START_ADDED FMI_ADDED
typedef void (*MPI_Restart_point)(int argc, char **argv, MPI_Start_state state);

static inline int MPI_Reinit(int argc, char **argv, const MPI_Restart_point point)
{
    MPI_Start_state state;

    /* Both ways: the first time, and by the jump. */
    (void)setjmp(ftb_mpi_point);
    ftb_mpi_has_point = 0;
    if (ftb_mpi_result(FMI_Restart_point(&state)) != MPI_SUCCESS)
        return MPI_ERR_RECOVERY;
    ftb_mpi_has_point = 1;
    point(argc, argv, state);
    ftb_mpi_has_point = 0;
    return MPI_SUCCESS;
}

#endif
