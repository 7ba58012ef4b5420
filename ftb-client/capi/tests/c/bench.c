/* Measures what a program sees; the harness prints it.
 *
 * trip ROUNDS: round trips from FTB_Publish to the first line of the callback. That the callback then
 * wakes the main thread is the program's own affair.
 * publish THREADS EVENTS CLIENTS: each client publishes EVENTS from THREADS threads at once, one client
 * after the other. Says a line and reads one before that and after it.
 * load EVENTS: publishes that many events, then one that is called LAST.
 * receive notify|poll: says a line when it has subscribed to that load; after LAST it prints how many
 * events came, how many are missing, and the processor time and the time that all took. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include <sys/resource.h>

#include "check.h"
#include "ftbx.h"

static FTB_client_handle_t handle;
static struct counter arrived = COUNTER;
static double arrived_us; /* guarded by the counter: written before it counts, read after */
static int share; /* events of one thread */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static double threads_us; /* processor time inside FTB_Publish */
static long waits, preemptions;

static double clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int on_event(FTB_receive_event_t *event, void *arg)
{
    (void)event;
    (void)arg;
    arrived_us = clock_us(CLOCK_MONOTONIC);
    count_up(&arrived);
    return 0;
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void trip(int rounds)
{
    double *times = malloc(sizeof(double) * rounds);
    FTB_event_info_t declared = {"PING", "info"};
    FTB_subscribe_handle_t subscription;
    FTB_event_handle_t published;
    FTB_event_properties_t payload = properties(1, "a payload of some forty bytes, as usual.");
    handle = connected("ftb.bench.c", "bench", "FTB_SUBSCRIPTION_NOTIFY");
    MUST(FTB_Declare_publishable_events(handle, NULL, &declared, 1) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&subscription, handle, "event_name=PING", on_event, NULL) == FTB_SUCCESS);
    for (int i = 0; i < rounds; i++) {
        double begin = clock_us(CLOCK_MONOTONIC);
        MUST(FTB_Publish(handle, "PING", &payload, &published) == FTB_SUCCESS);
        await_count(&arrived, i + 1);
        times[i] = arrived_us - begin;
    }
    qsort(times, rounds, sizeof(double), compare);
    printf("%.1f %.1f\n", times[rounds / 2], times[rounds * 99 / 100]);
    free(times);
    FTB_Disconnect(handle);
}

static void *publish(void *arg)
{
    FTB_event_handle_t published;
    struct rusage before, after;
    pthread_barrier_wait(arg);
    getrusage(RUSAGE_THREAD, &before);
    double begin = clock_us(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < share; i++)
        MUST(FTB_Publish(handle, "BULK", NULL, &published) == FTB_SUCCESS);
    double used = clock_us(CLOCK_THREAD_CPUTIME_ID) - begin;
    getrusage(RUSAGE_THREAD, &after);
    pthread_mutex_lock(&adding);
    threads_us += used;
    waits += after.ru_nvcsw - before.ru_nvcsw;
    preemptions += after.ru_nivcsw - before.ru_nivcsw;
    pthread_mutex_unlock(&adding);
    return NULL;
}

static void publish_from(int count)
{
    pthread_t threads[64];
    pthread_barrier_t begin;
    pthread_barrier_init(&begin, NULL, count);
    for (int i = 0; i < count; i++)
        MUST(pthread_create(&threads[i], NULL, publish, &begin) == 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&begin);
}

static void bulk(int threads, int events, int clients)
{
    static FTB_client_handle_t handles[256];
    FTB_event_info_t declared = {"BULK", "info"};
    MUST(threads <= 64 && clients <= COUNT(handles));
    for (int i = 0; i < clients; i++) {
        char name[16];
        sprintf(name, "bench%d", i);
        handles[i] = connected("ftb.bench.c", name, "FTB_SUBSCRIPTION_NONE");
        MUST(FTB_Declare_publishable_events(handles[i], NULL, &declared, 1) == FTB_SUCCESS);
    }
    share = events / threads;
    puts("ready");
    fflush(stdout);
    await_line();
    double wall = clock_us(CLOCK_MONOTONIC), process = clock_us(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < clients; i++) {
        handle = handles[i];
        publish_from(threads);
    }
    wall = clock_us(CLOCK_MONOTONIC) - wall;
    process = clock_us(CLOCK_PROCESS_CPUTIME_ID) - process;
    printf("%d %.0f %.0f %.0f %ld %ld\n", share * threads * clients, wall, threads_us,
           process - threads_us, waits, preemptions);
    puts("done");
    fflush(stdout);
    await_line();
    for (int i = 0; i < clients; i++)
        FTB_Disconnect(handles[i]);
}

static void load(int events)
{
    FTB_event_info_t declared[] = {{"LOAD", "info"}, {"LAST", "info"}};
    FTB_event_handle_t published;
    FTB_event_properties_t payload = properties(1, "a payload of some forty bytes, as usual.");
    handle = connected("ftb.bench.load", "load", "FTB_SUBSCRIPTION_NONE");
    MUST(FTB_Declare_publishable_events(handle, NULL, declared, COUNT(declared)) == FTB_SUCCESS);
    for (int i = 0; i < events; i++)
        MUST(FTB_Publish(handle, "LOAD", &payload, &published) == FTB_SUCCESS);
    MUST(FTB_Publish(handle, "LAST", &payload, &published) == FTB_SUCCESS);
    MUST(FTB_Disconnect(handle) == FTB_SUCCESS);
}

static int received; /* only by the thread that receives, until the last has come */

static int on_load(FTB_receive_event_t *event, void *arg)
{
    if (strcmp(event->event_name, "LAST") == 0)
        count_up(arg);
    else
        received++;
    return 0;
}

static void receive(int polls)
{
    FTB_subscribe_handle_t subscription;
    FTB_receive_event_t event;
    FTBX_gap_t gap;
    struct counter last = COUNTER;
    const char *style = polls ? "FTB_SUBSCRIPTION_POLLING" : "FTB_SUBSCRIPTION_NOTIFY";
    FTB_client_t info = client("ftb.bench.c", "receive", style);
    info.client_polling_queue_len = 100000;
    MUST(FTB_Connect(&info, &handle) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&subscription, handle, "event_space=ftb.bench.load", polls ? NULL : on_load,
                       &last) == FTB_SUCCESS);
    double process = clock_us(CLOCK_PROCESS_CPUTIME_ID), wall = clock_us(CLOCK_MONOTONIC);
    puts("ready");
    fflush(stdout);
    while (polls && counted(&last) == 0)
        if (FTB_Poll_event(subscription, &event) == FTB_SUCCESS)
            on_load(&event, &last);
        else
            nap();
    await_count(&last, 1);
    process = clock_us(CLOCK_PROCESS_CPUTIME_ID) - process;
    wall = clock_us(CLOCK_MONOTONIC) - wall;
    double missing = 0;
    while (FTBX_Poll_gap(subscription, &gap) == FTB_SUCCESS)
        missing += gap.count;
    printf("%d %.0f %.0f %.0f\n", received, missing, process, wall);
    FTB_Disconnect(handle);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "trip") == 0)
        trip(atoi(argv[2]));
    else if (argc == 5 && strcmp(argv[1], "publish") == 0)
        bulk(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    else if (argc == 3 && strcmp(argv[1], "load") == 0)
        load(atoi(argv[2]));
    else if (argc == 3 && strcmp(argv[1], "receive") == 0)
        receive(strcmp(argv[2], "poll") == 0);
    else
        return 2;
    return 0;
}
