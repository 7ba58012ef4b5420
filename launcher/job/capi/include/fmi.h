/*
 * FMI, the fault tolerant messaging interface, of libftbjob: messages as in MPI, and a loop that
 * protects memory of the program in the memory of its nodes. Manual: docs/job.md.
 *
 *     FMI_Init(&argc, &argv);
 *     void *ckpts[] = {grid, &time};
 *     size_t sizes[] = {sizeof grid, sizeof time};
 *     while ((n = FMI_Loop(ckpts, sizes, 2)) < steps)
 *         step(grid);                                     // FMI_Send, FMI_Recv, ...
 *     FMI_Finalize();
 *
 * Start it with `ftb-launch run -n 64 --spares ... --memory xor:4 -- ./program`; without a launcher
 * it is a job of one rank. After the death of ranks the others keep their processes: every call
 * that communicates, posts a receive, or makes or frees a communicator fails with FMI_ERR_RECOVERY
 * until FMI_Loop, which returns the id of the last set with its content in the protected memory.
 * A process that replaces a rank runs the program from its beginning; up to its first FMI_Loop what
 * it receives is what the first one received.
 *
 * One thread calls FMI. FMI_Init ignores SIGPIPE, unless the program handles it.
 * <ftb/mpi.h> has the same with names of MPI.
 */
#ifndef FTB_FMI_H
#define FTB_FMI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Results. ftb_job_error has the reason. All but FMI_SUCCESS, FMI_ERR_RECOVERY,
 * FMI_ERR_CANCELLED, FMI_ERR_PROC_FAILED and FMI_ERR_REVOKED are errors of the program or of the
 * job, which cannot go on.
 */
#define FMI_SUCCESS 0
#define FMI_ERR_RECOVERY 1  /* ranks have died: call FMI_Loop, or leave what it protects */
#define FMI_ERR_CANCELLED 2 /* a request from before a recovery */
#define FMI_ERR_ARG 3       /* a wrong argument */
#define FMI_ERR_TRUNCATE 4  /* a message longer than its buffer; its begin is there */
#define FMI_ERR_STATE 5     /* before FMI_Init, a second FMI_Init, or after FMI_Finalize */
#define FMI_ERR_LIMIT 6     /* a limit of the library */
#define FMI_ERR_JOB 7       /* the job cannot go on: a rank is lost for good, no launcher, ... */
#define FMI_ERR_PROC_FAILED 9 /* a rank has died that the call involves (--on-death continue) */
#define FMI_ERR_REVOKED 10    /* a member has revoked the communicator */

typedef int FMI_Comm;
typedef int FMI_Datatype;
typedef int FMI_Op;
typedef int FMI_Group;
typedef int64_t FMI_Request;
typedef struct {
    int FMI_SOURCE, FMI_TAG, FMI_ERROR;
    size_t bytes;
} FMI_Status;

#define FMI_COMM_WORLD 0
#define FMI_COMM_SELF 1
#define FMI_COMM_NULL (-1)
#define FMI_GROUP_NULL (-1)
#define FMI_ANY_SOURCE (-1)
#define FMI_PROC_NULL (-2) /* no rank: what is sent there and received from there is empty */
#define FMI_ANY_TAG (-1)
#define FMI_UNDEFINED (-32766)
#define FMI_REQUEST_NULL ((FMI_Request)0)
#define FMI_STATUS_IGNORE ((FMI_Status *)0)
#define FMI_STATUSES_IGNORE ((FMI_Status *)0)
#define FMI_IN_PLACE ((void *)-1) /* the data of a reduction are in the result; nowhere else */
#define FMI_MAX_PROCESSOR_NAME 256

/* Types of values */
#define FMI_DATATYPE_NULL (-1)
#define FMI_BYTE 0
#define FMI_INT8_T 1
#define FMI_INT16_T 2
#define FMI_INT32_T 3
#define FMI_INT64_T 4
#define FMI_UINT8_T 5
#define FMI_UINT16_T 6
#define FMI_UINT32_T 7
#define FMI_UINT64_T 8
#define FMI_FLOAT 9
#define FMI_DOUBLE 10
#define FMI_CHAR FMI_INT8_T
#define FMI_SHORT FMI_INT16_T
#define FMI_INT FMI_INT32_T
#define FMI_LONG (sizeof(long) == 8 ? FMI_INT64_T : FMI_INT32_T)
#define FMI_LONG_LONG FMI_INT64_T
#define FMI_UNSIGNED_CHAR FMI_UINT8_T
#define FMI_UNSIGNED_SHORT FMI_UINT16_T
#define FMI_UNSIGNED FMI_UINT32_T
#define FMI_UNSIGNED_LONG (sizeof(long) == 8 ? FMI_UINT64_T : FMI_UINT32_T)

/* How values are combined: the same bits in every run with the same number of ranks */
#define FMI_SUM 0
#define FMI_PROD 1
#define FMI_MIN 2
#define FMI_MAX 3
#define FMI_LAND 4
#define FMI_LOR 5
#define FMI_BAND 6
#define FMI_BOR 7
#define FMI_BXOR 8

int FMI_Init(int *argc, char ***argv);
int FMI_Initialized(int *flag);
int FMI_Finalized(int *flag);
/*
 * Waits for all ranks and leaves. The last call of FMI. If ranks die while others are behind their
 * loop, these do not return from here: their processes are replaced too, and the job goes on from
 * the last set.
 */
int FMI_Finalize(void);
/* Ends all ranks. Does not return. */
int FMI_Abort(FMI_Comm comm, int code);

/*
 * The beginning of each iteration, with `len` pieces of memory. Returns the loop id 0, 1, 2, ...;
 * after a death of ranks that of the last set. The first call saves the job before it returns.
 *
 * All ranks call it equally often, with the same number and sizes of pieces at each call; their
 * places may change. No receive is posted across a call. Before its n-th call no rank needs a
 * message that another sends after its n-th.
 *
 * If the job cannot go on, it prints the reason and ends the process. In a program that has called
 * FMI_Restart_point it returns -1 after a death of ranks: the program goes back to its point.
 */
int FMI_Loop(void **ckpts, size_t *sizes, int len);

/* Communicators. After a recovery they are those of the last set, with the same values. */
int FMI_Comm_rank(FMI_Comm comm, int *rank);
int FMI_Comm_size(FMI_Comm comm, int *size);
int FMI_Comm_dup(FMI_Comm comm, FMI_Comm *made);
int FMI_Comm_split(FMI_Comm comm, int color, int key, FMI_Comm *made);
/* Refused while receives wait in it that were not waited for. */
int FMI_Comm_free(FMI_Comm *comm);

/*
 * A message is sent at once: FMI_Send and FMI_Isend block only if 256 MiB (FTB_JOB_RECEIVE_BYTES)
 * of this rank wait at the receiver, those for its posted receives too: for ever if two ranks send
 * so much to each other before they wait. A receive of something else fails then (FMI_ERR_JOB).
 * Messages have at most 256 MiB, and those of all ranks in FMI_Allgather together.
 */
int FMI_Send(const void *data, int count, FMI_Datatype type, int to, int tag, FMI_Comm comm);
int FMI_Recv(void *data, int count, FMI_Datatype type, int from, int tag, FMI_Comm comm,
             FMI_Status *status);
int FMI_Isend(const void *data, int count, FMI_Datatype type, int to, int tag, FMI_Comm comm,
              FMI_Request *request);
int FMI_Irecv(void *data, int count, FMI_Datatype type, int from, int tag, FMI_Comm comm,
              FMI_Request *request);
/* The data are there when it returns; the request is FMI_REQUEST_NULL then, after a failure too. */
int FMI_Wait(FMI_Request *request, FMI_Status *status);
int FMI_Waitall(int count, FMI_Request *requests, FMI_Status *statuses);
/* As FMI_Wait if the data are there, with flag 1; else the flag is 0 and nothing has changed. */
int FMI_Test(FMI_Request *request, int *flag, FMI_Status *status);
/* As FMI_Waitall if the data of all are there; else the flag is 0 and nothing has changed. */
int FMI_Testall(int count, FMI_Request *requests, int *flag, FMI_Status *statuses);
/* As FMI_Wait for the first that is there; FMI_UNDEFINED as index if all are FMI_REQUEST_NULL. */
int FMI_Waitany(int count, FMI_Request *requests, int *index, FMI_Status *status);
int FMI_Sendrecv(const void *data, int count, FMI_Datatype type, int to, int tag, void *other,
                 int other_count, FMI_Datatype other_type, int from, int other_tag, FMI_Comm comm,
                 FMI_Status *status);
int FMI_Get_count(const FMI_Status *status, FMI_Datatype type, int *count);

int FMI_Barrier(FMI_Comm comm);
int FMI_Bcast(void *data, int count, FMI_Datatype type, int root, FMI_Comm comm);
int FMI_Reduce(const void *data, void *result, int count, FMI_Datatype type, FMI_Op op, int root,
               FMI_Comm comm);
int FMI_Allreduce(const void *data, void *result, int count, FMI_Datatype type, FMI_Op op,
                  FMI_Comm comm);
int FMI_Gather(const void *data, int count, FMI_Datatype type, void *result, int result_count,
               FMI_Datatype result_type, int root, FMI_Comm comm);
int FMI_Allgather(const void *data, int count, FMI_Datatype type, void *result, int result_count,
                  FMI_Datatype result_type, FMI_Comm comm);
/* `count` values for each member; those for all together have at most 256 MiB. */
int FMI_Scatter(const void *data, int count, FMI_Datatype type, void *result, int result_count,
                FMI_Datatype result_type, int root, FMI_Comm comm);
int FMI_Alltoall(const void *data, int count, FMI_Datatype type, void *result, int result_count,
                 FMI_Datatype result_type, FMI_Comm comm);

/*
 * Communicators after deaths, as ULFM has it, for jobs with `--on-death continue`: a call fails
 * with FMI_ERR_PROC_FAILED if it involves a dead rank (a collective operation involves all
 * members), and the others go on. Elsewhere the first three fail with FMI_ERR_JOB.
 */
/*
 * Every call that communicates on it, or makes a communicator of it, fails with FMI_ERR_REVOKED at
 * all members, but agree and shrink. FMI_ERR_LIMIT: it is not revoked.
 */
int FMI_Comm_revoke(FMI_Comm comm);
/*
 * The living members get the bitwise and of their flags. FMI_ERR_PROC_FAILED, with the flag, if one
 * of them has not acknowledged all dead members: the same result at all.
 */
int FMI_Comm_agree(FMI_Comm comm, int *flag);
/* The living members, in their order, get the same communicator */
int FMI_Comm_shrink(FMI_Comm comm, FMI_Comm *made);
int FMI_Comm_is_revoked(FMI_Comm comm, int *flag);
/* The dead members that this rank knows of no longer fail receives from any, nor agree */
int FMI_Comm_failure_ack(FMI_Comm comm);
int FMI_Comm_failure_get_acked(FMI_Comm comm, FMI_Group *group);
int FMI_Comm_group(FMI_Comm comm, FMI_Group *group);
int FMI_Group_size(FMI_Group group, int *size);
/* FMI_UNDEFINED for a rank that is not in the other group */
int FMI_Group_translate_ranks(FMI_Group from, int count, const int *ranks, FMI_Group to,
                              int *found);
int FMI_Group_free(FMI_Group *group);

/* Derived types: of values that do not lie one behind the other. Strides are not negative. */
int FMI_Type_contiguous(int count, FMI_Datatype of, FMI_Datatype *made);
int FMI_Type_vector(int count, int len, int stride, FMI_Datatype of, FMI_Datatype *made);
int FMI_Type_commit(FMI_Datatype *type);
int FMI_Type_size(FMI_Datatype type, int *bytes);
int FMI_Type_free(FMI_Datatype *type);

/* Ranks as a grid */
int FMI_Dims_create(int ranks, int count, int *dims);
int FMI_Cart_create(FMI_Comm comm, int count, const int *dims, const int *periods, int reorder,
                    FMI_Comm *made);
int FMI_Cart_get(FMI_Comm comm, int max, int *dims, int *periods, int *coords);
int FMI_Cart_coords(FMI_Comm comm, int rank, int max, int *coords);
int FMI_Cart_rank(FMI_Comm comm, const int *coords, int *rank);
int FMI_Cart_shift(FMI_Comm comm, int dim, int steps, int *from, int *to);

double FMI_Wtime(void);
int FMI_Get_processor_name(char *name, int *len);

/*
 * What this process is: at its start new, or one that replaces a rank; in a rank that goes back to
 * its point of restart because others have died, restarted.
 */
typedef enum { FMI_NEW, FMI_RESTARTED, FMI_ADDED } FMI_Start_state;
/*
 * A point of restart begins here: it gives the state of the process. For MPI_Reinit of <ftb/mpi.h>:
 * after FMI_ERR_RECOVERY, or -1 of FMI_Loop, the program jumps to it and calls this again. As in a
 * process that replaces a rank, what is received then up to FMI_Loop is what was received the first
 * time.
 */
int FMI_Restart_point(FMI_Start_state *state);

/* Why the last failed call of this thread failed. Valid until the next call of this thread. */
const char *ftb_job_error(void);

/* By this ftb-launch recognises the program. */
#if defined(__GNUC__)
__attribute__((used))
#endif
static const char fmi_mark[] = "ftb-job.mark.5e2b7c41d0a9f386";

#ifdef __cplusplus
}
#endif

#endif
