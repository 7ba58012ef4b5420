/* Everything from many threads at once: publishing, subscribing, polling, connecting.
 * argv[1]: how often each thread does it. */
#include "check.h"

static FTB_client_handle_t shared;
static int rounds;
static struct counter called = COUNTER;

static int on_event(FTB_receive_event_t *event, void *arg)
{
    MUST(arg == &called);
    MUST(strcmp(event->event_space, "ftb.threads.shared") == 0);
    count_up(&called);
    return 0;
}

static void *publish(void *arg)
{
    FTB_event_handle_t handle;
    (void)arg;
    for (int i = 0; i < rounds; i++)
        MUST(FTB_Publish(shared, "COUNTED", NULL, &handle) == FTB_SUCCESS);
    return NULL;
}

static void *subscribe(void *arg)
{
    FTB_subscribe_handle_t subscription;
    FTB_receive_event_t event;
    (void)arg;
    for (int i = 0; i < rounds / 10 + 1; i++) {
        MUST(FTB_Subscribe(&subscription, shared, "severity=warning", NULL, NULL) == FTB_SUCCESS);
        FTB_Poll_event(subscription, &event);
        MUST(FTB_Unsubscribe(&subscription) == FTB_SUCCESS);
    }
    return NULL;
}

static void *connect(void *arg)
{
    char name[16];
    snprintf(name, sizeof(name), "t%d", *(int *)arg);
    FTB_event_info_t event = {"OTHER", "info"};
    FTB_event_handle_t published;
    for (int i = 0; i < rounds / 20 + 1; i++) {
        FTB_client_handle_t own = connected("ftb.threads.own", name, "FTB_SUBSCRIPTION_NONE");
        MUST(FTB_Declare_publishable_events(own, NULL, &event, 1) == FTB_SUCCESS);
        MUST(FTB_Publish(own, "OTHER", NULL, &published) == FTB_SUCCESS);
        /* On a machine that is very busy the confirmation may take longer than it waits. */
        int code = FTB_Disconnect(own);
        MUST(code == FTB_SUCCESS || code == FTB_ERR_NETWORK_GENERAL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    MUST(argc == 2);
    rounds = atoi(argv[1]);
    shared = connected("ftb.threads.shared", "", "FTB_SUBSCRIPTION_BOTH");
    FTB_event_info_t event = {"COUNTED", "info"};
    FTB_subscribe_handle_t subscription;
    MUST(FTB_Declare_publishable_events(shared, NULL, &event, 1) == FTB_SUCCESS);
    MUST(FTB_Subscribe(&subscription, shared, "event_name=COUNTED", on_event, &called) == 0);
    pthread_t threads[8];
    int numbers[COUNT(threads)];
    void *(*work[])(void *) = {publish, publish, publish, publish, subscribe, subscribe, connect, connect};
    for (int i = 0; i < COUNT(threads); i++) {
        numbers[i] = i;
        MUST(pthread_create(&threads[i], NULL, work[i], &numbers[i]) == 0);
    }
    for (int i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    await_count(&called, 4 * rounds);
    MUST(FTB_Unsubscribe(&subscription) == FTB_SUCCESS);
    MUST(FTB_Disconnect(shared) == FTB_SUCCESS);
    printf("every event came once\n");
    MUST(counted(&called) == 4 * rounds);
    return 0;
}
