/* progress [CALLS]: counts a step without and with a counter, then the cost of CALLS more. */
#include "ftbx.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    long calls = argc > 1 ? atol(argv[1]) : 0;
    uint64_t steps = 0;
    char number[16];
    struct timespec begin, end;
    int fd = eventfd(0, EFD_NONBLOCK);

    /* What a process has found at its first call stays: the child has none. */
    if (fork() == 0) {
        printf("without %d\n", ftb_progress());
        return 0;
    }
    wait(NULL);
    snprintf(number, sizeof number, "%d", fd);
    setenv("FTB_PROGRESS_FD", number, 1);
    for (int at = 0; at < 3; at++)
        printf("with %d\n", ftb_progress());
    if (read(fd, &steps, sizeof steps) != sizeof steps)
        return 1;
    printf("steps %d\n", (int)steps);
    if (!calls)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long at = 0; at < calls; at++)
        ftb_progress();
    clock_gettime(CLOCK_MONOTONIC, &end);
    fprintf(stderr, "%.0f ns\n",
            ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / calls);
    return 0;
}
