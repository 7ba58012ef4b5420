/* A program without MPI that keeps its state by libftbjob: each rank mixes numbers, whose order a
 * lost, doubled or stale step changes.
 *
 * looping STEPS PAUSE_US [GATE [EXTRA]]: stays in its middle, at work but without progress, until
 * the file GATE is there. Restored ranks protect EXTRA more bytes. Each prints `result RANK SUM`,
 * and `goes on at ID` if it was restored. */
#include <ftb_job.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CELLS = 40000 };

static struct {
    uint64_t step, sum;
} state;
static uint64_t cells[CELLS + 512];

static int fail(int code)
{
    fprintf(stderr, "looping: %s\n", ftb_job_error());
    return -code;
}

int main(int argc, char **argv)
{
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    useconds_t pause = argc > 2 ? (useconds_t)atoi(argv[2]) : 0;
    size_t extra = argc > 4 && getenv("FTB_RESTORE") ? strtoull(argv[4], NULL, 10) : 0;
    int code, rank = ftb_job_rank(), first = 1;
    int64_t id;

    setvbuf(stdout, NULL, _IOLBF, 0);
    state.sum = (uint64_t)rank;
    if ((code = ftb_protect("state", &state, sizeof state)) < 0
        || (code = ftb_protect("cells", cells, CELLS * sizeof *cells + extra)) < 0)
        return fail(code);
    while (state.step < steps) {
        if ((id = ftb_loop()) < 0)
            return fail((int)id);
        if (first && id > 0)
            printf("goes on at %" PRId64 "\n", id);
        first = 0;
        /* The ranks do not depend on each other, so they may leave the gate at different ids. */
        if (state.step == steps / 2 && argc > 3 && access(argv[3], F_OK)) {
            usleep(2000);
            continue;
        }
        uint64_t *cell = &cells[state.step * 7919 % CELLS];
        *cell += state.sum ^ state.step;
        state.sum = state.sum * 31 + (*cell << 7 | *cell >> 57) + state.step++;
        usleep(pause);
    }
    for (size_t at = 0; at < CELLS; at++)
        state.sum = state.sum * 31 + cells[at];
    printf("result %d %016" PRIx64 "\n", rank, state.sum);
    return 0;
}
