/* Publishes more than the buffer holds while its agent is away. Says when publishing waits. */
#include "check.h"

#define EVENTS 100000

static struct counter published_events = COUNTER;

/* Says "waits" once two looks in a row find the same number of published events. */
static void *watch(void *arg)
{
    struct timespec look = {0, 500000000};
    int before = -1;
    (void)arg;
    for (int now = 0; now != before; now = counted(&published_events)) {
        before = now;
        nanosleep(&look, NULL);
    }
    puts("waits");
    fflush(stdout);
    return NULL;
}

int main(void)
{
    FTB_client_handle_t handle = connected("ftb.patient.test", "", "FTB_SUBSCRIPTION_NONE");
    FTB_event_info_t declared = {"NEWS", "info"};
    FTB_event_properties_t with = properties(1, "forty bytes of payload for each event...");
    FTB_event_handle_t published;
    pthread_t watcher;
    MUST(FTB_Declare_publishable_events(handle, NULL, &declared, 1) == FTB_SUCCESS);
    puts("connected");
    fflush(stdout);
    await_line();
    MUST(pthread_create(&watcher, NULL, watch, NULL) == 0);
    for (int i = 0; i < EVENTS; i++) {
        MUST(FTB_Publish(handle, "NEWS", &with, &published) == FTB_SUCCESS);
        count_up(&published_events);
    }
    pthread_join(watcher, NULL);
    say("disconnect", FTB_Disconnect(handle));
    return 0;
}
