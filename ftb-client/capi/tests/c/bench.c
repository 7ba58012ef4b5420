/* Round trips and the rate of publishing. argv[1]: round trips, argv[2]: events of each thread.
 * A round trip is from FTB_Publish to the first line of the callback: that the callback then wakes
 * the main thread is the program's own affair. */
#include "check.h"

static FTB_client_handle_t handle;
static struct counter arrived = COUNTER;
static double arrived_us; /* guarded by the counter: written before it counts, read after */
static int events;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int on_event(FTB_receive_event_t *event, void *arg)
{
    (void)event;
    (void)arg;
    arrived_us = now_us();
    count_up(&arrived);
    return 0;
}

static int compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void *publish(void *arg)
{
    FTB_event_handle_t published;
    (void)arg;
    for (int i = 0; i < events; i++)
        MUST(FTB_Publish(handle, "BULK", NULL, &published) == FTB_SUCCESS);
    return NULL;
}

static double rate(int count)
{
    pthread_t threads[8];
    double begin = now_us();
    for (int i = 0; i < count; i++)
        MUST(pthread_create(&threads[i], NULL, publish, NULL) == 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return count * (double)events / (now_us() - begin) * 1e6;
}

int main(int argc, char **argv)
{
    MUST(argc == 3);
    int trips = atoi(argv[1]);
    events = atoi(argv[2]);
    double *times = malloc(sizeof(double) * trips);
    FTB_event_info_t declared[] = {{"PING", "info"}, {"BULK", "info"}};
    FTB_subscribe_handle_t subscription;
    FTB_event_handle_t published;
    FTB_event_properties_t payload = properties(1, "a payload of some forty bytes, as usual.");
    handle = connected("ftb.bench.c", "bench", "FTB_SUBSCRIPTION_NOTIFY");
    MUST(FTB_Declare_publishable_events(handle, NULL, declared, 2) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&subscription, handle, "event_name=PING", on_event, NULL) == FTB_SUCCESS);
    for (int i = 0; i < trips; i++) {
        double begin = now_us();
        MUST(FTB_Publish(handle, "PING", &payload, &published) == FTB_SUCCESS);
        await_count(&arrived, i + 1);
        times[i] = arrived_us - begin;
    }
    qsort(times, trips, sizeof(double), compare);
    printf("round trip %.1f\n", times[trips / 2]);
    printf("publish 1 thread %.0f\n", rate(1));
    printf("publish 8 threads %.0f\n", rate(8));
    free(times);
    FTB_Disconnect(handle);
    return 0;
}
