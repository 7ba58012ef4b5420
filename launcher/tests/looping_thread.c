/* One thread waits in its first ftb_loop; the others ask and count meanwhile without waiting. */
#define _GNU_SOURCE
#include <ftb_job.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t looped;

static void *in_the_loop(void *unused)
{
    (void)unused;
    looped = ftb_loop();
    return NULL;
}

static void set(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

int main(void)
{
    int agent[2], steps = eventfd(0, 0), failed = 0;
    pthread_t thread;
    struct timespec begun, now;

    if (steps < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, agent))
        return 2;
    set("FTB_LOOP", 1);
    set("FTB_RANK_FD", agent[1]);
    set("FTB_PROGRESS_FD", steps);
    set("FTB_MEMORY_FIRST", 1);
    set("FTB_RANK", 2);
    set("FTB_SIZE", 3);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    pthread_create(&thread, NULL, in_the_loop, NULL);
    /* The loop counts as a step: then it is there, and waits. */
    while (eventfd_read(steps, &(eventfd_t){0}))
        ;
    failed |= ftb_progress() != FTB_JOB_OK;
    failed |= ftb_job_rank() != 2 || ftb_job_size() != 3;
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* It would wait for a minute. */
    if (now.tv_sec - begun.tv_sec > 30)
        failed |= 2;
    close(agent[0]);
    pthread_join(thread, NULL);
    failed |= looped != FTB_JOB_FAILED;
    if (failed)
        printf("failed: %d, after %lld s, loop %lld\n", failed,
               (long long)(now.tv_sec - begun.tv_sec), (long long)looped);
    return failed;
}
