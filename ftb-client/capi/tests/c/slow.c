/* A callback that stands still while the log of the agents moves on, then hears what it missed.
 * Says a line, reads one, goes on; then reports what came and what was missed. */
#include "check.h"
#include "ftbx.h"

static struct counter called = COUNTER, last = COUNTER;
static int waits = 1;

static int on_event(FTB_receive_event_t *event, void *arg)
{
    (void)arg;
    if (strcmp(event->event_name, "LAST") == 0) {
        count_up(&last);
        return 0;
    }
    count_up(&called);
    if (waits) {
        waits = 0;
        puts("called");
        fflush(stdout);
        await_line();
    }
    return 0;
}

int main(void)
{
    FTB_client_handle_t handle = connected("ftb.slow.test", "slow", "FTB_SUBSCRIPTION_NOTIFY");
    FTB_subscribe_handle_t subscription;
    FTBX_gap_t gap;
    const char *load = "event_space=load.test.x";
    MUST(FTB_Subscribe(&subscription, handle, load, on_event, NULL) == FTB_SUCCESS);
    puts("subscribed");
    fflush(stdout);
    await_count(&last, 1);
    printf("received %d\n", counted(&called));
    while (FTBX_Poll_gap(subscription, &gap) == FTB_SUCCESS)
        printf("gap %d %d %d %s\n", (int)gap.reason, (int)gap.count, (int)gap.at_least,
               gap.severity);
    MUST(FTB_Disconnect(handle) == FTB_SUCCESS);
    return 0;
}
