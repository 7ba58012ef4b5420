/*
 * libftbjob: a parallel program keeps its state in the memory of its nodes. It works beside any
 * MPI, or without one, under `ftb-launch run --memory ...`. Manual: docs/job.md.
 *
 *     ftb_protect("grid", grid, sizeof grid);
 *     for (int64_t i; (i = ftb_loop()) < steps; ) {
 *         if (i < 0)
 *             return fprintf(stderr, "%s\n", ftb_job_error()), -i;
 *         step(grid);
 *     }
 *
 * Without ftb-launch the same program runs, unprotected.
 */
#ifndef FTB_JOB_H
#define FTB_JOB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Codes of failed calls. `ftb_job_error` has the reason. A program ends with `exit(-code)`: after
 * 65 the launcher takes an older set.
 */
#define FTB_JOB_OK 0
#define FTB_JOB_FAILED (-1)      /* the launch agent is gone, or the system refuses something */
#define FTB_JOB_ENVIRONMENT (-2) /* the environment of this process is wrong */
#define FTB_JOB_INVALID (-3)     /* a wrong argument, or a call at the wrong time */
#define FTB_JOB_IMAGE (-65)      /* the saved state is damaged or does not fit this program */

/*
 * Protects `bytes` bytes at `memory`. Call it before the first ftb_loop: after a restart in the
 * same order, with the same names (at most 63 bytes) and sizes. The memory stays where it is until
 * the process ends. Returns FTB_JOB_OK or a code.
 */
int ftb_protect(const char *name, void *memory, size_t bytes);

/*
 * The beginning of each iteration. Returns the loop id: 0, 1, 2, ...; in a process that starts
 * again first the id of the saved state, which is then in the protected memory. Or a negative code.
 *
 * All ranks call it equally often. No message crosses a call: what one rank sends before its call
 * of an id, the other has received before its own. No thread writes to protected memory meanwhile.
 */
int64_t ftb_loop(void);

/*
 * A step of a long iteration has been made: see "Hung ranks" in docs/launcher.md. ftb_loop counts
 * as one. Never waits. FTB_JOB_FAILED: not started by ftb-launch.
 */
int ftb_progress(void);

/* The number of this process, from 0, and how many there are; or a code. */
int ftb_job_rank(void);
int ftb_job_size(void);

/* Why the last failed call of this thread failed. Valid until the next call of this thread. */
const char *ftb_job_error(void);

/* By this ftb-launch recognises the program. */
#if defined(__GNUC__)
__attribute__((used))
#endif
static const char ftb_job_mark[] = "ftb-job.mark.a1c7d25e90f3b864";

#ifdef __cplusplus
}
#endif

#endif
